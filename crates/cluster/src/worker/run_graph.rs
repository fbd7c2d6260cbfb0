//! Runs this task's part of a step, for a `RunGraph` call or a direct connection.

use super::Worker;
use super::graphs::TaskGraph;
use super::sessions::WorkerSession;
use super::steps::WorkerStep;
use crate::metrics::Durations;
use ferroflow_core::rendezvous::{Parcel, Rendezvous, RendezvousKey};
use ferroflow_core::{Result, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::{
    CostGraphDef, ExecutorOpts, NamedTensorProto, RunGraphRequest, RunGraphResponse, StepStats,
};
use ferroflow_runtime::{StepTrace, cost_nodes};
use futures_util::future::{BoxFuture, Shared};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::sync::Arc;
use std::time::Instant;

/// The outcome of a partial run; all clones share it.
pub(super) type PartialRunEnd = Shared<BoxFuture<'static, Result<()>>>;

impl Worker {
    /// Runs a registered graph once, or continues a partial run. Dropping the future cancels the step: its nodes stop,
    /// and waits for its tensors fail.
    pub(crate) async fn run_graph(&self, request: RunGraphRequest) -> Result<RunGraphResponse> {
        self.requests.track(request.request_id, "RunGraph (Worker)")?;
        if !(request.is_partial && self.steps.find(request.step_id).is_some()) {
            self.check_not_draining()?;
        }
        let session = self.session(&request.session_handle, request.create_worker_session_called)?;
        let sends = read_sends(&request.send)?;
        let step = self.step(request.step_id);
        step.belongs_to(&session);
        let call = CallGuard::new(&step, &self.metrics.parts);
        let run = async {
            for (key, tensor) in sends {
                step.local().send(&key, Parcel::new(tensor))?;
            }
            if request.is_partial {
                self.run_partially(&session, &step, &request).await
            } else {
                self.run_whole(&session, &step, &request).await
            }
        };
        let done = run.await;
        call.ended(done.is_ok());
        if let Err(error) = &done {
            // Peers that wait for tensors of the step learn why none will come.
            step.abort(error.clone());
        }
        done
    }

    async fn run_whole(
        &self,
        session: &Arc<WorkerSession>,
        step: &Arc<WorkerStep>,
        request: &RunGraphRequest,
    ) -> Result<RunGraphResponse> {
        let graph = session.graph(&request.graph_handle)?;
        let options = request.exec_opts.unwrap_or_default();
        let rendezvous = step.rendezvous(session);
        let mut traces = Vec::new();
        let mut runs = Vec::with_capacity(graph.parts.len());
        for part in &graph.parts {
            let cx = WorkerSession::step_cx(
                part.env(),
                step.id(),
                rendezvous.clone(),
                step.cancellation().clone(),
            );
            let trace = wants_stats(&options).then(|| StepTrace::new(cx.device.name()));
            traces.extend(trace.clone());
            runs.push(part.start(Vec::new(), cx, trace)?.near_caller());
        }
        run_concurrently(runs).await?;
        let stats =
            || StepStats { dev_stats: traces.iter().flat_map(|trace| trace.to_proto().dev_stats).collect() };
        let mut costs = CostGraphDef::default();
        if options.record_costs && graph.models_costs {
            let traced = graph.parts.iter().zip(&traces);
            costs.node = traced.flat_map(|(part, trace)| cost_nodes(part, trace)).collect();
        }
        let mut partition_graph = Vec::new();
        if options.record_partition_graphs {
            partition_graph = graph.parts.iter().flat_map(|part| part.partition_graphs()).collect();
        }
        Ok(RunGraphResponse {
            recv: receive(&*rendezvous, &request.recv_key).await?,
            step_stats: (!traces.is_empty()).then(stats),
            cost_graph: Some(costs),
            partition_graph,
            ..Default::default()
        })
    }

    /// Continues a partial run: the first call starts the graph, the last one waits for its end, and every call
    /// exchanges the values that it names.
    async fn run_partially(
        &self,
        session: &Arc<WorkerSession>,
        step: &Arc<WorkerStep>,
        request: &RunGraphRequest,
    ) -> Result<RunGraphResponse> {
        let ending = step.partial_run(|| {
            let graph = session.graph(&request.graph_handle)?;
            self.start_partial(session, step, &graph)
        })?;
        let rendezvous = step.rendezvous(session);
        let recv = receive(&*rendezvous, &request.recv_key).await?;
        if request.is_last_partial_run {
            ending.await?;
        }
        Ok(RunGraphResponse { recv, cost_graph: Some(CostGraphDef::default()), ..Default::default() })
    }

    fn start_partial(
        &self,
        session: &Arc<WorkerSession>,
        step: &Arc<WorkerStep>,
        graph: &TaskGraph,
    ) -> Result<PartialRunEnd> {
        let rendezvous = step.rendezvous(session);
        let runs = graph.parts.iter().map(|part| {
            let cx = WorkerSession::step_cx(
                part.env(),
                step.id(),
                rendezvous.clone(),
                step.cancellation().clone(),
            );
            part.start(Vec::new(), cx, None)
        });
        let run = run_concurrently(runs.collect::<Result<Vec<_>>>()?);
        // The step holds its run, so the run must not hold the step.
        let failing = Arc::downgrade(step);
        let run = async move {
            let done = run.await;
            if let (Err(error), Some(step)) = (&done, failing.upgrade()) {
                step.abort(error.clone());
            }
            done
        };
        Ok(self.pool.complete(run).boxed().shared())
    }
}

/// Runs the parts of a task's devices, which exchange tensors, until all have ended or one has failed, which cancels
/// the others.
pub(crate) async fn run_concurrently<T>(mut runs: Vec<impl Future<Output = Result<T>>>) -> Result<()> {
    match runs.len() {
        0 => Ok(()),
        1 => runs.remove(0).await.map(drop),
        _ => {
            let mut ends: FuturesUnordered<_> = runs.into_iter().collect();
            while let Some(end) = ends.next().await {
                end?;
            }
            Ok(())
        }
    }
}

/// Aborts a step whose call is dropped.
struct CallGuard<'a> {
    step: &'a WorkerStep,
    durations: &'a Durations,
    began: Instant,
    under_way: bool,
}

impl<'a> CallGuard<'a> {
    fn new(step: &'a WorkerStep, durations: &'a Durations) -> CallGuard<'a> {
        step.call_began();
        CallGuard { step, durations, began: Instant::now(), under_way: true }
    }

    fn ended(mut self, well: bool) {
        self.under_way = false;
        self.durations.count(self.began, well);
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.step.call_ended();
        if self.under_way {
            self.durations.count(self.began, false);
            let id = self.step.id();
            self.step.abort(status!(Cancelled, "Step {id} was cancelled by its master."));
        }
    }
}

fn wants_stats(options: &ExecutorOpts) -> bool {
    options.record_timeline || options.record_costs
}

fn read_sends(sends: &[NamedTensorProto]) -> Result<Vec<(RendezvousKey, Tensor)>> {
    let read = |send: &NamedTensorProto| {
        let Some(proto) = &send.tensor else { bail!(InvalidArgument, "Invalid TensorProto for feed value") };
        Ok((RendezvousKey::parse(&send.name)?, Tensor::from_proto(proto)?))
    };
    sends.iter().map(read).collect()
}

async fn receive(rendezvous: &dyn Rendezvous, keys: &[String]) -> Result<Vec<NamedTensorProto>> {
    let mut received = Vec::with_capacity(keys.len());
    for name in keys {
        let parcel = rendezvous.recv(&RendezvousKey::parse(name)?).await?;
        ensure!(!parcel.dead, InvalidArgument, "The tensor returned for {name} was not valid.");
        received.push(NamedTensorProto { name: name.clone(), tensor: Some(parcel.tensor.to_proto()?) });
    }
    Ok(received)
}
