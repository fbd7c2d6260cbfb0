//! One step: starts on the thread that received the request and moves to the compute threads if it does not finish at
//! once.

use super::parts::{PartsRun, from_task};
use super::plan::StepPlan;
use super::session::MasterSession;
use super::transfer_log::TransferLog;
use crate::metrics::Metrics;
use crate::worker::{WorkerSession, WorkerStep, run_concurrently};
use ferroflow_core::cancel::{Cancellation, Cancelled};
use ferroflow_core::rendezvous::Rendezvous;
use ferroflow_core::step::StepCx;
use ferroflow_core::{Code, Result, Status, Tensor, ensure, status};
use ferroflow_proto::tensorflow::{
    CostGraphDef, ExecutorOpts, RunGraphResponse, RunMetadata, RunOptions, StepStats, run_options::TraceLevel,
};
use ferroflow_runtime::{Executable, LocalRendezvous, PartialHub, StepTrace, cost_nodes};
use futures_util::future::try_join;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The exclusive upper bound of step ids, as in stock; ids above are for functions.
const STEP_IDS: u64 = 1 << 57;

/// Runs a plan once. Feeds and returned fetches are in the signature's order.
pub(super) async fn run_plan(
    session: &MasterSession,
    plan: &StepPlan,
    feeds: Vec<Tensor>,
    options: &RunOptions,
) -> Result<(Vec<Tensor>, RunMetadata)> {
    let experimental = session.context.config.experimental.as_ref();
    ensure!(
        !(options.output_partition_graphs
            && experimental.is_some_and(|set| set.disable_output_partition_graphs)),
        InvalidArgument,
        "RunOptions.output_partition_graphs() is not supported when disable_output_partition_graphs is true."
    );
    let mut guard = session.steps.begin()?;
    let full_trace = options.trace_level == TraceLevel::FullTrace as i32;
    let trace = |part: &Arc<Executable>| StepTrace::new(part.env().device.name());
    let costs = plan.count_run(&session.context.config);
    let traces: Vec<_> = if full_trace || costs { plan.own_parts().map(trace).collect() } else { Vec::new() };
    let run = async {
        if plan.remote.is_empty() {
            let own = OwnParts::new(plan, guard.id_and_cancellation(), Arc::new(LocalRendezvous::default()));
            let done = own.run(feeds, &traces).await;
            return Ok((done.map_err(|error| from_task(error, &session.task))?, Vec::new()));
        }
        let on_worker = session.start_on_worker(&guard);
        let own = OwnParts::new(
            plan,
            guard.id_and_cancellation(),
            on_worker.rendezvous(session.context.members.own()),
        );
        let local = own.run(feeds, &traces);
        let exec_opts = ExecutorOpts {
            record_timeline: full_trace,
            record_costs: costs,
            record_partition_graphs: options.output_partition_graphs,
            ..Default::default()
        };
        let log = if full_trace {
            Some(TransferLog::start(session.context.members.own_worker(), &plan.remote).await)
        } else {
            None
        };
        let (values, mut responses) =
            session.parts_run(&on_worker, &guard.cancellation, exec_opts).run(plan, local).await?;
        if let Some(log) = log {
            let step_stats = Some(StepStats { dev_stats: log.read(on_worker.id()).await });
            responses.push(RunGraphResponse { step_stats, ..Default::default() });
        }
        Ok((values, responses))
    };
    let done = match u64::try_from(options.timeout_in_ms) {
        Ok(millis @ 1..) => tokio::time::timeout(Duration::from_millis(millis), run)
            .await
            .map_err(|_| status!(DeadlineExceeded, "Deadline Exceeded"))?,
        _ => run.await,
    };
    let (values, responses) = done.map_err(|error| session.explain(error))?;
    guard.finished();
    let own_costs = || plan.own_parts().zip(&traces).flat_map(|(part, trace)| cost_nodes(part, trace));
    let own_stats = traces.iter().flat_map(|trace| trace.to_proto().dev_stats);
    let mut metadata = RunMetadata {
        step_stats: full_trace.then(|| StepStats { dev_stats: own_stats.collect() }),
        cost_graph: costs.then(|| CostGraphDef { node: own_costs().collect(), ..Default::default() }),
        partition_graphs: if options.output_partition_graphs {
            plan.own_parts().flat_map(|part| part.partition_graphs()).collect()
        } else {
            Vec::new()
        },
        ..Default::default()
    };
    for response in responses {
        merge_metadata(&mut metadata, response);
    }
    if !full_trace {
        // Stock's tasks send statistics along with costs.
        metadata.step_stats = None;
    }
    Ok((values, metadata))
}

/// Adds the metadata that another task reports for its part.
fn merge_metadata(metadata: &mut RunMetadata, response: RunGraphResponse) {
    if let Some(stats) = response.step_stats {
        metadata.step_stats.get_or_insert_default().dev_stats.extend(stats.dev_stats);
    }
    if let (Some(costs), Some(more)) = (&mut metadata.cost_graph, response.cost_graph) {
        costs.node.extend(more.node);
    }
    metadata.partition_graphs.extend(response.partition_graph);
}

/// The parts of a step that run on the devices of the master's task.
pub(super) struct OwnParts<'a> {
    plan: &'a StepPlan,
    step_id: i64,
    rendezvous: Arc<dyn Rendezvous>,
    cancellation: Cancellation,
}

impl<'a> OwnParts<'a> {
    /// Creates the local parts of a plan for one step; they exchange tensors through `rendezvous`.
    pub(super) fn new(
        plan: &'a StepPlan,
        (step_id, cancellation): (i64, Cancellation),
        rendezvous: Arc<dyn Rendezvous>,
    ) -> OwnParts<'a> {
        OwnParts { plan, step_id, rendezvous, cancellation }
    }

    /// Returns the step context of one device.
    fn step_cx(&self, part: &Executable) -> Arc<StepCx> {
        WorkerSession::step_cx(part.env(), self.step_id, self.rendezvous.clone(), self.cancellation.clone())
    }

    /// Runs all local parts; returns the fetches. `traces` holds one trace per part, or nothing if nothing is recorded.
    async fn run(&self, feeds: Vec<Tensor>, traces: &[Arc<StepTrace>]) -> Result<Vec<Tensor>> {
        let run = self.plan.local.start(feeds, self.step_cx(&self.plan.local), traces.first().cloned())?;
        self.run_with_others(run.near_caller(), traces.get(1..).unwrap_or_default()).await
    }

    /// Runs all local parts as a partial run, which exchanges its feeds and fetches through `hub`.
    pub(super) async fn run_partially(&self, hub: Arc<PartialHub>) -> Result<Vec<Tensor>> {
        let run = self.plan.local.start_partial(self.step_cx(&self.plan.local), hub);
        self.run_with_others(run, &[]).await
    }

    async fn run_with_others(
        &self,
        first: impl Future<Output = Result<Vec<Tensor>>>,
        traces: &[Arc<StepTrace>],
    ) -> Result<Vec<Tensor>> {
        if self.plan.other_local.is_empty() {
            return first.await;
        }
        let mut traces = traces.iter().cloned();
        let others = self.plan.other_local.iter().map(|part| {
            let run = part.start(Vec::new(), self.step_cx(part), traces.next())?;
            Ok(run.near_caller())
        });
        let others = run_concurrently(others.collect::<Result<Vec<_>>>()?);
        let (values, ()) = try_join(first, others).await?;
        Ok(values)
    }
}

impl MasterSession {
    /// Maps the failure of a step to what the client is told: if the session was closed, that is the reason.
    pub(super) fn explain(&self, error: Status) -> Status {
        match self.steps.closed() {
            Some(reason) if error.code() == Code::Cancelled => reason,
            _ => error,
        }
    }

    /// Registers a step with the local worker, where other tasks ask for its tensors.
    pub(super) fn start_on_worker(&self, guard: &StepGuard) -> Arc<WorkerStep> {
        self.context.members.own_worker().step(guard.id as i64)
    }

    /// Returns the inputs for running a step on several tasks.
    pub(super) fn parts_run<'a>(
        &'a self,
        step: &'a Arc<WorkerStep>,
        cancellation: &'a Cancellation,
        exec_opts: ExecutorOpts,
    ) -> PartsRun<'a> {
        let members = &self.context.members;
        PartsRun {
            session_handle: members.handle(),
            task: &self.task,
            worker: members.own_worker(),
            step,
            cancellation,
            exec_opts,
        }
    }
}

/// The running steps of a session.
pub(crate) struct RunningSteps {
    state: Mutex<State>,
    next_id: AtomicU64,
    /// Notified when the last step has ended.
    idle: Notify,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    running: HashMap<u64, Cancellation>,
    closed: Option<Status>,
}

const UNPOISONED: &str = "no panic while steps are locked";

impl RunningSteps {
    /// Creates an empty set of steps.
    pub(super) fn new(metrics: Arc<Metrics>) -> Arc<RunningSteps> {
        let first = crate::random().unwrap_or_default();
        Arc::new(RunningSteps {
            state: Mutex::default(),
            next_id: AtomicU64::new(first),
            idle: Notify::new(),
            metrics,
        })
    }

    /// Adds a step. It is cancelled if the guard is dropped before it is marked as finished.
    pub(super) fn begin(self: &Arc<Self>) -> Result<StepGuard> {
        let mut guard = self.begin_uncounted()?;
        guard.counted = true;
        Ok(guard)
    }

    /// Adds work that ends with the session as steps do, but is not one of them.
    pub(super) fn begin_uncounted(self: &Arc<Self>) -> Result<StepGuard> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) % STEP_IDS;
        let cancellation = Cancellation::new();
        let mut state = self.state.lock().expect(UNPOISONED);
        if let Some(reason) = &state.closed {
            return Err(reason.clone());
        }
        state.running.insert(id, cancellation.clone());
        Ok(StepGuard {
            steps: self.clone(),
            id,
            cancellation,
            began: Instant::now(),
            counted: false,
            finished: false,
        })
    }

    /// Cancels all steps and refuses new ones.
    pub(super) fn close(&self, reason: Status) {
        let running: Vec<Cancellation> = {
            let mut state = self.state.lock().expect(UNPOISONED);
            state.closed.get_or_insert(reason.clone());
            state.running.values().cloned().collect()
        };
        running.into_iter().for_each(|cancellation| cancellation.cancel(reason.clone()));
    }

    /// Returns the reason for which the session was closed.
    pub(super) fn closed(&self) -> Option<Status> {
        self.state.lock().expect(UNPOISONED).closed.clone()
    }

    /// Returns the number of running steps.
    pub(super) fn count(&self) -> usize {
        self.state.lock().expect(UNPOISONED).running.len()
    }

    /// Returns the ids of the running steps.
    pub(super) fn ids(&self) -> Vec<u64> {
        self.state.lock().expect(UNPOISONED).running.keys().copied().collect()
    }

    /// Completes when no step is running.
    pub(super) async fn idle(&self) {
        loop {
            let mut notified = std::pin::pin!(self.idle.notified());
            notified.as_mut().enable();
            if self.state.lock().expect(UNPOISONED).running.is_empty() {
                return;
            }
            notified.await;
        }
    }
}

/// A running step.
pub(super) struct StepGuard {
    steps: Arc<RunningSteps>,
    id: u64,
    cancellation: Cancellation,
    began: Instant,
    /// True if metrics have it.
    counted: bool,
    finished: bool,
}

impl StepGuard {
    /// Returns the step's id and its cancellation.
    pub(super) fn id_and_cancellation(&self) -> (i64, Cancellation) {
        (self.id as i64, self.cancellation.clone())
    }

    /// Completes with the reason when the step is cancelled.
    pub(super) fn cancelled(&self) -> Cancelled {
        self.cancellation.cancelled()
    }

    /// Marks the step as finished: there is nothing left to cancel.
    pub(super) fn finished(&mut self) {
        self.finished = true;
    }
}

impl Drop for StepGuard {
    fn drop(&mut self) {
        if self.counted {
            self.steps.metrics.steps.count(self.began, self.finished);
        }
        if !self.finished {
            self.cancellation.cancel(status!(Cancelled, "the caller cancelled the step"));
        }
        let mut state = self.steps.state.lock().expect(UNPOISONED);
        state.running.remove(&self.id);
        if state.running.is_empty() {
            self.steps.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn closing_cancels_and_then_waits() {
        let steps = RunningSteps::new(Arc::default());
        let guard = steps.begin().unwrap();
        steps.close(status!(Cancelled, "closed"));
        assert!(guard.cancellation.is_cancelled());
        assert!(steps.begin().is_err());
        let mut idle = Box::pin(steps.idle());
        assert!((&mut idle).now_or_never().is_none());
        drop(guard);
        assert!(idle.now_or_never().is_some());
    }

    #[test]
    fn a_dropped_guard_cancels_unless_the_step_has_finished() {
        let steps = RunningSteps::new(Arc::default());
        let mut guard = steps.begin().unwrap();
        let finished = guard.cancellation.clone();
        guard.finished();
        drop(guard);
        assert!(!finished.is_cancelled());
        let given_up = steps.begin().unwrap().cancellation.clone();
        assert!(given_up.is_cancelled());
    }
}
