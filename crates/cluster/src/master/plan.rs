//! A plan for one signature: the part that runs here, and the parts that other tasks have registered.

use super::members::Members;
use crate::transport::client::RemoteWorker;
use ferroflow_core::Result;
use ferroflow_core::graph::Graph;
use ferroflow_core::op::OpClass;
use ferroflow_proto::tensorflow::{ConfigProto, DeregisterGraphRequest, RegisterGraphRequest};
use ferroflow_runtime::plan::partition::{Borders, Part, Parts, partition};
use ferroflow_runtime::plan::plan;
use ferroflow_runtime::{Executable, PlanOptions, Signature};
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What every plan of a session depends on.
pub(super) struct PlanContext {
    pub(super) members: Members,
    pub(super) options: PlanOptions,
    pub(super) config: ConfigProto,
    /// Numbers the nodes and edges that cutting adds, so that their names stay unique within the session.
    pub(super) next_edge: AtomicU64,
}

/// A step that is ready to run, again and again.
pub(crate) struct StepPlan {
    /// The part of the master's own task, which takes the feeds and gives the fetches.
    pub(super) local: Arc<Executable>,
    /// The parts of other tasks.
    pub(super) remote: Vec<RemotePart>,
}

/// A part that another task has registered.
pub(super) struct RemotePart {
    pub(super) worker: Arc<RemoteWorker>,
    /// The task's name.
    pub(super) task: String,
    pub(super) graph_handle: String,
    /// Whether nobody but the master's task receives tensors from it.
    pub(super) alone: bool,
}

impl PlanContext {
    /// Plans a graph, cuts it at the borders of tasks and makes the kernels of the local part.
    pub(super) fn cut(&self, graph: &Graph, signature: &Signature) -> Result<(Arc<Executable>, Vec<Part>)> {
        let env = self.members.own().env();
        let planned = plan(graph, signature, &self.options, env)?;
        let options = self.config.graph_options.as_ref();
        let borders = Borders {
            client: env.device.name(),
            incarnation: &|device| self.members.incarnation(device),
            next_id: &self.next_edge,
            bfloat16: options.is_some_and(|options| options.enable_bfloat16_sendrecv),
        };
        let Parts { local, remote } = partition(planned, &borders)?;
        Ok((Executable::from_plan(local, env)?, remote))
    }

    /// Has the other tasks register their parts. If one fails, those that succeeded are given back.
    pub(super) async fn register(&self, local: Arc<Executable>, parts: Vec<Part>) -> Result<StepPlan> {
        let registering = parts.iter().map(|part| async {
            let worker = self.members.owner(&part.device)?;
            let graph_handle = worker.register_graph(&self.request(&part.graph)).await?;
            let task = worker.task().to_string();
            Ok(RemotePart { worker, task, graph_handle, alone: self.is_alone(&part.graph) })
        });
        let (mut remote, mut failure) = (Vec::with_capacity(parts.len()), None);
        for registered in join_all(registering).await {
            match registered {
                Ok(part) => remote.push(part),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let Some(error) = failure else { return Ok(StepPlan { local, remote }) };
        for part in remote {
            part.worker.forget_graph(DeregisterGraphRequest {
                session_handle: self.members.handle().to_owned(),
                graph_handle: part.graph_handle,
                create_worker_session_called: true,
            });
        }
        Err(error)
    }

    /// Whether a part sends to the master's own device only.
    fn is_alone(&self, graph: &Graph) -> bool {
        let own = self.members.own().env().device.name();
        let sends = graph.nodes().iter().filter(|node| node.data.class() == OpClass::Send);
        let mut targets = sends.map(|node| node.data.attrs.get::<String>("recv_device"));
        targets.all(|target| target.is_ok_and(|target| target == own))
    }

    fn request(&self, graph: &Graph) -> RegisterGraphRequest {
        RegisterGraphRequest {
            session_handle: self.members.handle().to_owned(),
            graph_def: Some(graph.to_def()),
            has_control_flow: false,
            graph_options: self.config.graph_options.clone(),
            create_worker_session_called: true,
            config_proto: Some(self.config.clone()),
            ..Default::default()
        }
    }
}
