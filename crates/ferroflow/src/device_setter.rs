//! Placement of a replica's nodes: state on the parameter servers, everything else on the replica's worker.

use ferroflow_cluster::spec::ClusterSpec;
use ferroflow_core::device::DeviceSpec;
pub use ferroflow_core::graph::NodeData;
use ferroflow_core::scope::Scope;
use ferroflow_core::{DType, PartialShape, Result, ensure, status};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Ops whose nodes hold state, as TensorFlow's setter lists them.
const STATE: [&str; 10] = [
    "Variable",
    "VariableV2",
    "AutoReloadVariable",
    "MutableHashTable",
    "MutableHashTableV2",
    "MutableHashTableOfTensors",
    "MutableHashTableOfTensorsV2",
    "MutableDenseHashTable",
    "MutableDenseHashTableV2",
    "VarHandleOp",
];

/// Chooses the parameter server of a node that holds state.
///
/// ```
/// use ferroflow::device_setter::PsStrategy;
/// use ferroflow::{Graph, ReplicaDeviceSetter, Variable, initializers};
///
/// /// Everything whose name begins with `wide` on the first parameter server, the rest on the second.
/// struct ByName;
///
/// impl PsStrategy for ByName {
///     fn task(&self, node: &ferroflow::device_setter::NodeData) -> ferroflow::Result<u32> {
///         Ok(u32::from(!node.name.starts_with("wide")))
///     }
/// }
///
/// let graph = Graph::new();
/// let s = ReplicaDeviceSetter::with_ps_tasks(2).strategy(ByName).apply(&graph.scope());
/// let deep = Variable::new(&s, "deep", [1], initializers::zeros())?;
/// assert_eq!(deep.op().device(), "/job:ps/task:1");
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub trait PsStrategy: Send + Sync {
    /// Returns the task index of the parameter server for `node`.
    fn task(&self, node: &NodeData) -> Result<u32>;
}

/// Strategy that uses one parameter server after the other.
#[derive(Debug)]
pub struct RoundRobin {
    tasks: usize,
    next: AtomicUsize,
}

impl RoundRobin {
    /// Takes turns among `tasks` parameter servers.
    pub fn new(tasks: usize) -> RoundRobin {
        RoundRobin { tasks: tasks.max(1), next: AtomicUsize::new(0) }
    }
}

impl PsStrategy for RoundRobin {
    fn task(&self, _: &NodeData) -> Result<u32> {
        Ok((self.next.fetch_add(1, Ordering::Relaxed) % self.tasks) as u32)
    }
}

/// Strategy that uses the parameter server with the smallest load so far, in bytes or another measure.
///
/// ```
/// use ferroflow::device_setter::GreedyLoadBalancing;
/// use ferroflow::{Graph, ReplicaDeviceSetter, Variable, initializers};
///
/// let graph = Graph::new();
/// let setter = ReplicaDeviceSetter::with_ps_tasks(2).strategy(GreedyLoadBalancing::by_bytes(2));
/// let s = setter.apply(&graph.scope());
/// let sizes = [("large", 1000), ("small", 10), ("another", 10)];
/// let tasks = sizes.map(|(name, size)| Variable::new(&s, name, [size], initializers::zeros()).map(|v| v.op().device()));
/// let tasks = tasks.into_iter().collect::<ferroflow::Result<Vec<String>>>()?;
/// assert_eq!(tasks, ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:1"]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct GreedyLoadBalancing {
    loads: Mutex<Vec<f64>>,
    load: LoadFn,
}

type LoadFn = Box<dyn Fn(&NodeData) -> Result<f64> + Send + Sync>;

impl GreedyLoadBalancing {
    /// Balances the sum of `load` over `tasks` parameter servers.
    pub fn new(
        tasks: usize,
        load: impl Fn(&NodeData) -> Result<f64> + Send + Sync + 'static,
    ) -> GreedyLoadBalancing {
        GreedyLoadBalancing { loads: Mutex::new(vec![0.0; tasks.max(1)]), load: Box::new(load) }
    }

    /// Balances the sizes of variables over `tasks` parameter servers.
    pub fn by_bytes(tasks: usize) -> GreedyLoadBalancing {
        GreedyLoadBalancing::new(tasks, byte_size)
    }
}

impl PsStrategy for GreedyLoadBalancing {
    fn task(&self, node: &NodeData) -> Result<u32> {
        let load = (self.load)(node)?;
        let mut loads = self.loads.lock().expect("nothing panics while loads are compared");
        let mut least = 0;
        for task in 1..loads.len() {
            if loads[task] < loads[least] {
                least = task;
            }
        }
        loads[least] += load;
        Ok(least as u32)
    }
}

/// Returns the size in bytes of the variable that a node holds.
///
/// # Errors
///
/// `InvalidArgument` if the shape is not fully known.
pub fn byte_size(node: &NodeData) -> Result<f64> {
    let (dtype, shape): (DType, PartialShape) = (node.attrs.get("dtype")?, node.attrs.get("shape")?);
    let elements = shape.to_shape().map(|shape| shape.elements());
    let elements = elements.ok_or_else(|| {
        status!(InvalidArgument, "the size of '{}' is not known, because its shape is {shape}", node.name)
    })?;
    Ok((elements * dtype.size()) as f64)
}

/// Placement of the nodes of one replica: variables and other state on the parameter servers, the rest on its worker. A
/// device that the scope or the node names takes precedence.
///
/// ```
/// use ferroflow::{ClusterSpec, Graph, ReplicaDeviceSetter};
///
/// let mut cluster = ClusterSpec::new();
/// cluster.add_hosts("ps", "ps0:2222,ps1:2222")?;
/// cluster.add_hosts("worker", "worker0:2222")?;
/// let graph = Graph::new();
/// let s = ReplicaDeviceSetter::new(&cluster).worker_device("/job:worker/task:0").apply(&graph.scope());
/// assert_eq!(s.constant(1.0f32)?.op().device(), "/job:worker/task:0");
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct ReplicaDeviceSetter {
    cluster: Option<ClusterSpec>,
    ps_tasks: usize,
    ps_device: String,
    worker_device: String,
    merge_devices: bool,
    state: Vec<String>,
    strategy: Option<Arc<dyn PsStrategy>>,
}

impl ReplicaDeviceSetter {
    /// Places variables on the tasks of job `ps` in turn, and everything else on job `worker`.
    pub fn new(cluster: &ClusterSpec) -> ReplicaDeviceSetter {
        ReplicaDeviceSetter { cluster: Some(cluster.clone()), ..ReplicaDeviceSetter::with_ps_tasks(0) }
    }

    /// Like [`ReplicaDeviceSetter::new`], for a number of parameter servers instead of a cluster.
    pub fn with_ps_tasks(ps_tasks: usize) -> ReplicaDeviceSetter {
        ReplicaDeviceSetter {
            cluster: None,
            ps_tasks,
            ps_device: "/job:ps".to_owned(),
            worker_device: "/job:worker".to_owned(),
            merge_devices: true,
            state: STATE.iter().map(|op| (*op).to_owned()).collect(),
            strategy: None,
        }
    }

    /// Sets the device of state, without a task: `/job:ps` by default.
    pub fn ps_device(mut self, device: &str) -> Self {
        self.ps_device = device.to_owned();
        self
    }

    /// Sets the device of everything else: `/job:worker` by default.
    pub fn worker_device(mut self, device: &str) -> Self {
        self.worker_device = device.to_owned();
        self
    }

    /// Sets whether the missing parts of a node's own device are filled in (the default); otherwise it stays as it is.
    pub fn merge_devices(mut self, merge: bool) -> Self {
        self.merge_devices = merge;
        self
    }

    /// Sets the ops whose nodes are state.
    pub fn ps_ops(mut self, ops: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.state = ops.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the strategy that chooses among the parameter servers: [`RoundRobin`] by default.
    pub fn strategy(self, strategy: impl PsStrategy + 'static) -> Self {
        self.shared_strategy(Arc::new(strategy))
    }

    pub(crate) fn shared_strategy(mut self, strategy: Arc<dyn PsStrategy>) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Returns a scope that places its nodes this way. Without parameter servers, it places none.
    pub fn apply(self, scope: &Scope) -> Scope {
        match self.choose() {
            Ok(Some(choose)) => scope.device_fn(choose),
            Ok(None) => scope.clone(),
            Err(error) => scope.device_fn(move |_| Err(error.clone())),
        }
    }

    #[allow(clippy::type_complexity)]
    fn choose(self) -> Result<Option<impl Fn(&NodeData) -> Result<String> + Send + Sync + 'static>> {
        let ps = DeviceSpec::parse(&self.ps_device)?;
        let worker = DeviceSpec::parse(&self.worker_device)?;
        let mut tasks = self.ps_tasks;
        if let Some(cluster) = &self.cluster {
            ensure!(
                ps.job.is_some(),
                InvalidArgument,
                "the device of parameter servers, '{}', does not name a job; write e.g. /job:ps",
                self.ps_device
            );
            tasks = ps.job.as_ref().map_or(0, |job| cluster.num_tasks(job));
        }
        if tasks == 0 {
            return Ok(None);
        }
        let strategy = self.strategy.unwrap_or_else(|| Arc::new(RoundRobin::new(tasks)));
        let (merge, state) = (self.merge_devices, self.state);
        Ok(Some(move |node: &NodeData| {
            if !merge && !node.device.is_empty() {
                return Ok(node.device.clone());
            }
            let current = DeviceSpec::parse(&node.device)?;
            let is_state = state.iter().any(|op| op == node.op_name());
            if is_state && ps.job.is_some() && (current.job.is_none() || current.job == ps.job) {
                let chosen = DeviceSpec { task: Some(strategy.task(node)?), ..ps.clone() };
                return Ok(chosen.overridden_by(&current).to_string());
            }
            Ok(worker.overridden_by(&current).to_string())
        }))
    }
}
