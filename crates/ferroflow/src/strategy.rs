//! Training with parameter servers from one program: variables on the servers, functions scheduled on workers.
//!
//! A function is a Rust closure that builds nodes; it is called once. A worker runs these nodes in a session of its own
//! server, so that nodes without a device run there. Variables are shared, because sessions of one cluster share them.
//!
//! ```
//! use ferroflow::strategy::{ClusterCoordinator, ParameterServerStrategy};
//! use ferroflow::variables::global_variables_initializer;
//! use ferroflow::{DType, Graph, Server, TensorSpec, Variable};
//! # use ferroflow::ClusterSpec;
//! # let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
//! # let mut cluster = ClusterSpec::new();
//! # cluster.add("ps", 0, &free())?;
//! # cluster.add("worker", 0, &free())?;
//! # let (_ps, _worker) = (Server::new(&cluster, "ps", 0)?, Server::new(&cluster, "worker", 0)?);
//!
//! let strategy = ParameterServerStrategy::new(&cluster)?;
//! let graph = Graph::new();
//! let s = strategy.scope(&graph.scope());
//! let total = Variable::with_value(&s, "total", 0.0f32)?;
//! let init = global_variables_initializer(&s)?;
//!
//! let coordinator = ClusterCoordinator::new(&strategy, &graph)?;
//! coordinator.execute(&init)?;
//! let number = TensorSpec::new(DType::Float, [])?;
//! let add = coordinator.function([number], |s, inputs| total.assign_add(s, &inputs[0]))?;
//! for value in [1.0f32, 2.0, 3.0] {
//!     coordinator.schedule(&add, [value])?;
//! }
//! coordinator.join()?;
//! assert_eq!(coordinator.eval(total.value())?.to_scalar::<f32>()?, 6.0);
//! # Ok::<(), ferroflow::Status>(())
//! ```

mod coordinator;
mod function;
mod queue;
mod worker;

pub use coordinator::ClusterCoordinator;
pub use function::{FunctionResults, PerWorkerDataset, WorkerFunction};
pub use queue::RemoteValue;

use crate::device_setter::{PsStrategy, ReplicaDeviceSetter};
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::scope::Scope;
use ferroflow_core::{Result, ensure};
use std::sync::Arc;

/// Placement of variables on the tasks of job `ps`, in turn. Functions run on the tasks of job `worker`.
#[derive(Clone)]
pub struct ParameterServerStrategy {
    cluster: ClusterSpec,
    placement: Option<Arc<dyn PsStrategy>>,
}

impl ParameterServerStrategy {
    /// Creates the strategy.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless the cluster has tasks of both jobs.
    pub fn new(cluster: &ClusterSpec) -> Result<ParameterServerStrategy> {
        for job in ["ps", "worker"] {
            ensure!(
                cluster.num_tasks(job) > 0,
                InvalidArgument,
                "a parameter server strategy needs tasks of jobs 'ps' and 'worker', but the cluster has {cluster}"
            );
        }
        Ok(ParameterServerStrategy { cluster: cluster.clone(), placement: None })
    }

    /// Sets the strategy that chooses among the parameter servers: in turn by default.
    pub fn placement(mut self, placement: impl PsStrategy + 'static) -> Self {
        self.placement = Some(Arc::new(placement));
        self
    }

    /// Returns a scope that places variables on the parameter servers, and leaves other nodes to the worker that runs them.
    pub fn scope(&self, scope: &Scope) -> Scope {
        let mut setter = ReplicaDeviceSetter::new(&self.cluster).worker_device("");
        if let Some(placement) = &self.placement {
            setter = setter.shared_strategy(placement.clone());
        }
        setter.apply(scope)
    }

    /// Returns the cluster.
    pub fn cluster(&self) -> &ClusterSpec {
        &self.cluster
    }

    /// Returns the tasks of a job and their addresses.
    fn tasks(&self, job: &str) -> Vec<(TaskName, String)> {
        let tasks = self.cluster.tasks().filter(|(task, _)| task.job == job);
        tasks.map(|(task, address)| (task, address.to_owned())).collect()
    }
}
