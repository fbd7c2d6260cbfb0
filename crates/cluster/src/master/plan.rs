//! A plan for one signature: the parts that run on this task, and those that other tasks have registered.

use super::members::Members;
use crate::spec::TaskName;
use crate::transport::client::RemoteWorker;
use ferroflow_core::Result;
use ferroflow_core::graph::Graph;
use ferroflow_core::op::OpClass;
use ferroflow_proto::tensorflow::{ConfigProto, DeregisterGraphRequest, GraphDef, RegisterGraphRequest};
use ferroflow_runtime::plan::partition::{Borders, Part, Parts, partition};
use ferroflow_runtime::plan::plan;
use ferroflow_runtime::{Executable, PlanOptions, Signature};
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The inputs that all plans of a session share.
pub(super) struct PlanContext {
    pub(super) members: Members,
    pub(super) options: PlanOptions,
    pub(super) config: ConfigProto,
    /// Numbers the nodes and edges added by partitioning, so that their names are unique within the session.
    pub(super) next_edge: AtomicU64,
}

/// A step that is planned and registered, ready to run any number of times.
pub(crate) struct StepPlan {
    /// The part of the master's own device, which takes the feeds and produces the fetches.
    pub(super) local: Arc<Executable>,
    /// The parts of the other devices of the master's task.
    pub(super) other_local: Vec<Arc<Executable>>,
    /// The parts of other tasks.
    pub(super) remote: Vec<RemotePart>,
    /// The number of runs started so far.
    runs: AtomicI64,
}

/// A part that another task has registered.
pub(super) struct RemotePart {
    pub(super) worker: Arc<RemoteWorker>,
    /// The task's name.
    pub(super) task: String,
    pub(super) graph_handle: String,
    /// True if only the master's task receives tensors from this part.
    pub(super) master_only: bool,
}

impl StepPlan {
    /// Returns the parts of the master's own task, the one with feeds and fetches first.
    pub(super) fn own_parts(&self) -> impl Iterator<Item = &Arc<Executable>> {
        [&self.local].into_iter().chain(&self.other_local)
    }

    /// Counts another run; returns whether to record its costs. As in stock, the session's configuration asks for every
    /// nth run.
    pub(super) fn count_run(&self, config: &ConfigProto) -> bool {
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(options) = &config.graph_options else { return false };
        let every = options.build_cost_model;
        every > 0 && run.wrapping_sub(options.build_cost_model_after) % every == 0
    }
}

/// A plan that is cut at device borders but not yet registered with other tasks.
pub(super) struct CutPlan {
    local: Arc<Executable>,
    other_local: Vec<Arc<Executable>>,
    remote: Vec<TaskPart>,
}

/// The parts of another task's devices, which it registers as one graph.
struct TaskPart {
    worker: Arc<RemoteWorker>,
    graph: GraphDef,
    /// True if only the master's task receives tensors from these parts.
    master_only: bool,
}

impl PlanContext {
    /// Plans a graph, cuts it at device borders and creates the kernels of this task's parts.
    pub(super) fn cut(&self, graph: &Graph, signature: &Signature) -> Result<CutPlan> {
        let env = self.members.own().env();
        let planned = plan(graph, signature, &self.options, env)?;
        let options = self.config.graph_options.as_ref();
        let borders = Borders {
            client: env.device.name(),
            incarnation: &|device| self.members.incarnation(device),
            next_id: &self.next_edge,
            bfloat16: options.is_some_and(|options| options.enable_bfloat16_sendrecv),
        };
        let Parts { local, remote, .. } = partition(planned, &borders)?;
        let local = Executable::from_plan(local, env)?;
        let (mut other_local, mut tasks): (_, Vec<TaskPart>) = (Vec::new(), Vec::new());
        for part in remote {
            if let Some(env) = self.members.own().env_on(&part.device) {
                other_local.push(Executable::for_part(part.graph, env)?);
                continue;
            }
            let worker = self.members.owner(&part.device)?;
            let (master_only, def) = (self.sends_only_to_master(&part, worker.task()), part.graph.to_def());
            match tasks.last_mut().filter(|last| last.worker.task() == worker.task()) {
                Some(last) => {
                    last.graph.node.extend(def.node);
                    last.master_only &= master_only;
                }
                None => tasks.push(TaskPart { worker, graph: def, master_only }),
            }
        }
        Ok(CutPlan { local, other_local, remote: tasks })
    }

    /// Registers the other tasks' parts with them. If one fails, the others are deregistered.
    pub(super) async fn register(&self, cut: CutPlan) -> Result<StepPlan> {
        let CutPlan { local, other_local, remote: parts } = cut;
        let registering = parts.into_iter().map(|TaskPart { worker, graph, master_only }| async move {
            let graph_handle = worker.register_graph(&self.request(graph)).await?;
            let task = worker.task().to_string();
            Ok(RemotePart { worker, task, graph_handle, master_only })
        });
        let (mut remote, mut failure) = (Vec::new(), None);
        for registered in join_all(registering).await {
            match registered {
                Ok(part) => remote.push(part),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let Some(error) = failure else {
            return Ok(StepPlan { local, other_local, remote, runs: AtomicI64::new(0) });
        };
        for part in remote {
            part.worker.forget_graph(DeregisterGraphRequest {
                session_handle: self.members.handle().to_owned(),
                graph_handle: part.graph_handle,
                create_worker_session_called: true,
            });
        }
        Err(error)
    }

    /// Returns whether a part of `task` sends tensors only to the master's task or within its own task.
    fn sends_only_to_master(&self, part: &Part, task: &TaskName) -> bool {
        let (own, there) = (self.members.own(), format!("{task}/device:"));
        let sends = part.graph.nodes().iter().filter(|node| node.data.class() == OpClass::Send);
        let mut targets = sends.map(|node| node.data.attrs.get::<String>("recv_device"));
        targets.all(|target| {
            target.is_ok_and(|target| own.env_on(&target).is_some() || target.starts_with(&there))
        })
    }

    fn request(&self, graph: GraphDef) -> RegisterGraphRequest {
        RegisterGraphRequest {
            session_handle: self.members.handle().to_owned(),
            graph_def: Some(graph),
            has_control_flow: false,
            graph_options: self.config.graph_options.clone(),
            create_worker_session_called: true,
            config_proto: Some(self.config.clone()),
            ..Default::default()
        }
    }
}
