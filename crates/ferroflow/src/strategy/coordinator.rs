//! The coordinator, which schedules functions on workers.

use super::ParameterServerStrategy;
use super::function::{FunctionResults, PerWorkerDataset, WorkerFunction};
use super::queue::{Arguments, Call, Queue, RemoteValue};
use super::worker::{ParameterServer, Worker, incarnation};
use crate::data::Dataset;
use crate::session::{Session, SessionOptions};
use ferroflow_cluster::spec::TaskName;
use ferroflow_core::scope::{Graph, Operation, Output, Scope, TensorSpec};
use ferroflow_core::{Result, Tensor, ensure, status};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Scheduler of functions on the workers of a cluster. If a worker is lost, another one makes its call; the lost worker
/// takes part again when it is back. Dropping the coordinator cancels all calls that have not run.
pub struct ClusterCoordinator {
    graph: Graph,
    queue: Arc<Queue>,
    workers: Vec<Arc<Mutex<Option<Session>>>>,
    threads: Vec<JoinHandle<()>>,
    /// A session at the first parameter server.
    own: Session,
}

impl ClusterCoordinator {
    /// Connects to the cluster. Waits for the parameter servers; workers may come later.
    ///
    /// # Errors
    ///
    /// `Unavailable` or `DeadlineExceeded` if a parameter server cannot be reached.
    pub fn new(strategy: &ParameterServerStrategy, graph: &Graph) -> Result<ClusterCoordinator> {
        let tasks = strategy.tasks("ps");
        let (_, first) = tasks.first().ok_or_else(|| {
            status!(InvalidArgument, "the cluster of a coordinator must have parameter servers, but has none")
        })?;
        let own = SessionOptions::new().device_filters(["/job:ps"]);
        let own = Session::with_options(first.as_str(), graph, own)?;
        let server = |(task, address): (TaskName, String)| {
            Ok(ParameterServer { incarnation: incarnation(&own, &task)?, task, address })
        };
        let parameter_servers = Arc::new(tasks.into_iter().map(server).collect::<Result<Vec<_>>>()?);
        let queue = Arc::new(Queue::default());
        let (mut workers, mut threads) = (Vec::new(), Vec::new());
        for (number, (task, address)) in strategy.tasks("worker").into_iter().enumerate() {
            let session = Arc::new(Mutex::new(None));
            let name = format!("worker-{number}");
            let worker = Worker {
                number,
                task,
                address,
                graph: graph.clone(),
                queue: queue.clone(),
                parameter_servers: parameter_servers.clone(),
                session: session.clone(),
            };
            let thread = std::thread::Builder::new().name(name).spawn(move || worker.run());
            threads.push(
                thread.map_err(|error| {
                    status!(Internal, "cannot start a thread of the coordinator: {error}")
                })?,
            );
            workers.push(session);
        }
        Ok(ClusterCoordinator { graph: graph.clone(), queue, workers, threads, own })
    }

    /// Builds a function: `build` adds its nodes, once. In the shapes of inputs, -1 stands for any size.
    pub fn function<T: Into<FunctionResults>>(
        &self,
        inputs: impl IntoIterator<Item = TensorSpec>,
        build: impl FnOnce(&Scope, &[Output]) -> Result<T>,
    ) -> Result<WorkerFunction> {
        WorkerFunction::trace(&self.graph, inputs, build)
    }

    /// Schedules a call of a function on any worker, and returns without waiting for it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number of arguments does not fit; otherwise the error of an earlier call that failed.
    pub fn schedule(
        &self,
        function: &WorkerFunction,
        arguments: impl IntoIterator<Item = impl Into<Tensor>>,
    ) -> Result<RemoteValue> {
        let arguments: Vec<Tensor> = arguments.into_iter().map(Into::into).collect();
        let wanted = function.0.inputs.len();
        ensure!(
            arguments.len() == wanted,
            InvalidArgument,
            "the function has {wanted} inputs, but was scheduled with {} arguments",
            arguments.len()
        );
        self.push(function, Arguments::Given(arguments))
    }

    /// Schedules a call of a function on any worker, with the next element of that worker's dataset.
    pub fn schedule_next(
        &self,
        function: &WorkerFunction,
        dataset: &PerWorkerDataset,
    ) -> Result<RemoteValue> {
        self.push(function, Arguments::NextOf(dataset.clone()))
    }

    fn push(&self, function: &WorkerFunction, arguments: Arguments) -> Result<RemoteValue> {
        let result = RemoteValue::default();
        self.queue.push(Call {
            function: function.clone(),
            arguments,
            result: result.clone(),
            cancelled: 0,
        })?;
        Ok(result)
    }

    /// Describes a dataset that every worker makes for itself, e.g. a shard of the whole; `make` gets the worker's number.
    pub fn per_worker_dataset(
        &self,
        make: impl Fn(usize) -> Result<Dataset<Vec<Tensor>>> + Send + Sync + 'static,
    ) -> PerWorkerDataset {
        PerWorkerDataset::new(self.workers.len(), make)
    }

    /// Waits until all calls have ended.
    ///
    /// # Errors
    ///
    /// The error of the first call that failed; calls that were pending then have been canceled.
    pub fn join(&self) -> Result<()> {
        self.queue.join()
    }

    /// Returns `true` if all calls have ended.
    pub fn done(&self) -> bool {
        self.queue.is_idle()
    }

    /// Waits for a call and returns its outputs.
    pub fn fetch(&self, value: &RemoteValue) -> Result<Vec<Tensor>> {
        value.fetch()
    }

    /// Returns the number of workers that are connected now.
    pub fn connected_workers(&self) -> usize {
        let connected = |worker: &&Arc<Mutex<Option<Session>>>| {
            worker.lock().unwrap_or_else(PoisonError::into_inner).is_some()
        };
        self.workers.iter().filter(connected).count()
    }

    /// Returns a session on the parameter servers, for savers and other work outside of workers.
    pub fn session(&self) -> &Session {
        &self.own
    }

    /// Runs an operation on the parameter servers, e.g. an initializer of variables.
    pub fn execute(&self, operation: impl Into<Operation>) -> Result<()> {
        self.own.execute(operation)
    }

    /// Computes an output on the parameter servers.
    pub fn eval(&self, output: &Output) -> Result<Tensor> {
        self.own.eval(output)
    }
}

impl Drop for ClusterCoordinator {
    fn drop(&mut self) {
        self.queue.stop();
        for worker in &self.workers {
            let session = worker.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(session) = session {
                // Cancels the step in flight. A server that is gone has ended it already.
                let _ = session.close();
            }
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("A thread of the coordinator panicked.");
            }
        }
    }
}
