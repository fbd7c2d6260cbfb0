//! A step on several tasks: all parts run concurrently under one step id, and the first failure ends the others.
//!
//! The local part runs on this task; the parts of other tasks are started over a direct connection where there is one,
//! and with `RunGraph` otherwise.

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

/// The time that a derived failure waits for its cause to be reported.
const CAUSE_WAIT: Duration = Duration::from_secs(2);

/// The inputs of a step on several tasks.
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
    /// Runs all parts of a plan; `local` is the run of the local part. Nothing of the step keeps running after this
    /// returns or is dropped.
    pub(super) async fn run(
        &self,
        plan: &StepPlan,
        local: impl Future<Output = Result<Vec<Tensor>>>,
    ) -> Result<(Vec<Tensor>, Vec<RunGraphResponse>)> {
        let (worker, step_id) = (self.worker, self.step.id());
        let mut cleanup = Cleanup { remote: &plan.remote, links: Vec::new(), worker, step_id };
        // The local part observes the cancellation itself, but it may be done while other parts still wait.
        let mut cancelled = self.cancellation.cancelled();
        cleanup.links = match future::select(pin!(self.links(plan)), &mut cancelled).await {
            Either::Left((links, _)) => links,
            Either::Right((reason, _)) => return Err(reason),
        };
        let parts = plan.remote.iter().zip(&cleanup.links);
        let remote: FuturesUnordered<_> = parts.map(|(part, link)| self.run_part(part, link)).collect();
        // Poll the remote parts first, so that requests leave before the local part occupies the thread.
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
        // End the local part, and with it the waits of peers for its tensors.
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

    /// Returns a direct connection for each remote part whose task accepts one.
    async fn links(&self, plan: &StepPlan) -> Vec<Option<Arc<LinkHandle>>> {
        // A traced step uses gRPC, as with stock's tasks, so that the receivers log the transfers.
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
            // Nothing is retried on a direct connection.
            request_id: if link.is_some() { 0 } else { crate::random()? as i64 },
            ..Default::default()
        };
        let done = match link {
            Some(link) => {
                let caller = self.task.to_owned();
                let run = RunPart {
                    request: Some(request),
                    caller,
                    master_only: part.master_only,
                    component: None,
                };
                part.worker.run_directly(link, run, self.step.id()).await
            }
            None => part.worker.run_graph(&request).await,
        };
        done.map_err(|error| from_task(error, &part.task))
    }
}

/// The outcome of one part.
enum PartEnd {
    Local(Result<Vec<Tensor>>),
    Remote(Result<RunGraphResponse>),
}

/// Adds the task on which a failure happened, as stock does.
pub(super) fn from_task(error: Status, task: &str) -> Status {
    error.map_message(|message| format!("From {task}:\n{message}"))
}

/// Tells every task on drop that the step is over, however it ended.
struct Cleanup<'a> {
    remote: &'a [RemotePart],
    /// Empty until the tasks know of the step.
    links: Vec<Option<Arc<LinkHandle>>>,
    worker: &'a Worker,
    step_id: i64,
}

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        for (part, link) in self.remote.iter().zip(&self.links) {
            match link {
                // The step ends there with its part.
                Some(_) if part.master_only => {}
                Some(link) if link.forget(self.step_id).is_ok() => {}
                _ => part.worker.forget_step(self.step_id),
            }
        }
        self.worker.cleanup_step(self.step_id);
    }
}
