//! One step on several tasks: all parts run side by side under one id; the first failure ends the others.

use super::plan::{RemotePart, StepPlan};
use crate::transport::direct::{LinkHandle, RunPart};
use crate::worker::{Worker, WorkerStep};
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::{Result, Status, Tensor};
use ferroflow_proto::tensorflow::{ExecutorOpts, RunGraphRequest, RunGraphResponse};
use futures_util::StreamExt;
use futures_util::future::{self, Either, join_all};
use futures_util::stream::{FuturesUnordered, once, select};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long a failure that another one caused waits for its cause to be told.
const CAUSE_WAIT: Duration = Duration::from_secs(2);

/// What a step on several tasks is run with.
pub(super) struct PartsRun<'a> {
    pub(super) session_handle: &'a str,
    /// The name of the master's task.
    pub(super) task: &'a str,
    /// The worker of the master's task.
    pub(super) worker: &'a Arc<Worker>,
    pub(super) step: &'a Arc<WorkerStep>,
    pub(super) cancellation: &'a Cancellation,
    pub(super) exec_opts: ExecutorOpts,
}

impl PartsRun<'_> {
    /// Runs all parts of a plan. `local` is the run of the own part. Nothing of the step is left running when this ends
    /// or is given up.
    pub(super) async fn run(
        &self,
        plan: &StepPlan,
        local: impl Future<Output = Result<Vec<Tensor>>>,
    ) -> Result<(Vec<Tensor>, Vec<RunGraphResponse>)> {
        let (worker, step_id) = (self.worker, self.step.id());
        let mut cleanup = Cleanup { remote: &plan.remote, links: Vec::new(), worker, step_id };
        // The own part hears of a cancellation by itself, but it may be over while others still wait.
        let mut cancelled = self.cancellation.cancelled();
        cleanup.links = match future::select(pin!(self.links(plan)), &mut cancelled).await {
            Either::Left((links, _)) => links,
            Either::Right((reason, _)) => return Err(reason),
        };
        let parts = plan.remote.iter().zip(&cleanup.links);
        let remote: FuturesUnordered<_> = parts.map(|(part, link)| self.run_part(part, link)).collect();
        // The others first, so that requests leave before the own part occupies the thread.
        let mut ends = pin!(select(remote.map(PartEnd::Remote), once(local).map(PartEnd::Local)));
        let (mut values, mut responses) = (Vec::new(), Vec::with_capacity(plan.remote.len()));
        let failure = loop {
            let end = match future::select(ends.next(), &mut cancelled).await {
                Either::Left((end, _)) => end,
                Either::Right((reason, _)) => break reason,
            };
            match end {
                None => return Ok((values, responses)),
                Some(PartEnd::Local(Ok(fetched))) => values = fetched,
                Some(PartEnd::Remote(Ok(response))) => responses.push(response),
                Some(PartEnd::Local(Err(error))) => break from_task(error, self.task),
                Some(PartEnd::Remote(Err(error))) => break error,
            }
        };
        // What the step does here ends, and with it what peers wait for from here.
        self.step.abort(failure.clone().derived());
        if !failure.is_derived() {
            return Err(failure);
        }
        let mut cause = pin!(ends.filter_map(async |end| {
            let error = match end {
                PartEnd::Local(done) => from_task(done.err()?, self.task),
                PartEnd::Remote(done) => done.err()?,
            };
            (!error.is_derived()).then_some(error)
        }));
        match future::select(cause.next(), pin!(self.worker.sleep(CAUSE_WAIT))).await {
            Either::Left((Some(cause), _)) => Err(cause),
            _ => Err(failure),
        }
    }

    /// The direct connections to the tasks of a plan, where there are any.
    async fn links(&self, plan: &StepPlan) -> Vec<Option<Arc<LinkHandle>>> {
        // What is traced is called as stock's tasks are, so that transfers are logged by those who receive.
        if self.exec_opts != ExecutorOpts::default() {
            return vec![None; plan.remote.len()];
        }
        let links = plan.remote.iter().map(|part| {
            let worker = Arc::downgrade(self.worker);
            let deliver = move |step, key, parcel| {
                if let Some(worker) = worker.upgrade() {
                    worker.deliver(step, &key, parcel);
                }
            };
            part.worker.link(self.step.id(), deliver)
        });
        let links = join_all(links).await;
        let linked = plan.remote.iter().zip(&links);
        let linked = linked.filter_map(|(part, link)| Some((part.task.clone(), link.as_ref()?.link())));
        self.step.connect(linked.collect());
        links
    }

    async fn run_part(&self, part: &RemotePart, link: &Option<Arc<LinkHandle>>) -> Result<RunGraphResponse> {
        let request = RunGraphRequest {
            graph_handle: part.graph_handle.clone(),
            step_id: self.step.id(),
            exec_opts: Some(self.exec_opts),
            session_handle: self.session_handle.to_owned(),
            store_errors_in_response_body: true,
            create_worker_session_called: true,
            // Nothing is repeated on a direct connection.
            request_id: if link.is_some() { 0 } else { crate::random()? as i64 },
            ..Default::default()
        };
        let done = match link {
            Some(link) => {
                let caller = self.task.to_owned();
                let run = RunPart { request: Some(request), caller, master_only: part.master_only };
                part.worker.run_directly(link, run, self.step.id()).await
            }
            None => part.worker.run_graph(&request).await,
        };
        done.map_err(|error| from_task(error, &part.task))
    }
}

/// How one part ended.
enum PartEnd {
    Local(Result<Vec<Tensor>>),
    Remote(Result<RunGraphResponse>),
}

/// A failure as the client is told of it: with the task where it happened.
pub(super) fn from_task(error: Status, task: &str) -> Status {
    error.map_message(|message| format!("From {task}:\n{message}"))
}

/// Tells every task of a step that it is over, however it ended.
struct Cleanup<'a> {
    remote: &'a [RemotePart],
    /// Empty while none of the tasks knows of the step.
    links: Vec<Option<Arc<LinkHandle>>>,
    worker: &'a Worker,
    step_id: i64,
}

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        for (part, link) in self.remote.iter().zip(&self.links) {
            match link {
                // It ends there with the part.
                Some(_) if part.master_only => {}
                Some(link) if link.forget(self.step_id).is_ok() => {}
                _ => part.worker.forget_step(self.step_id),
            }
        }
        self.worker.cleanup_step(self.step_id);
    }
}
