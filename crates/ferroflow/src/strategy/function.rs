//! Functions that workers run, and datasets of workers.

use crate::data::{Dataset, Elements};
use ferroflow_core::scope::{Graph, Operation, Output, Scope, TensorSpec};
use ferroflow_core::{Result, Tensor, ensure};
use std::sync::{Arc, Mutex, PoisonError};

/// A function whose nodes are in the graph, so that any worker can run it. Cloning shares the function.
#[derive(Clone, Debug)]
pub struct WorkerFunction(pub(super) Arc<Body>);

#[derive(Debug)]
pub(super) struct Body {
    pub(super) inputs: Vec<Output>,
    pub(super) outputs: Vec<Output>,
    pub(super) operations: Vec<Operation>,
}

/// Results of a function: outputs, operations, or both.
#[derive(Clone, Debug, Default)]
pub struct FunctionResults {
    /// Outputs to compute and return.
    pub outputs: Vec<Output>,
    /// Operations to run.
    pub operations: Vec<Operation>,
}

impl From<Output> for FunctionResults {
    fn from(output: Output) -> FunctionResults {
        FunctionResults { outputs: vec![output], operations: Vec::new() }
    }
}

impl From<Vec<Output>> for FunctionResults {
    fn from(outputs: Vec<Output>) -> FunctionResults {
        FunctionResults { outputs, operations: Vec::new() }
    }
}

impl From<Operation> for FunctionResults {
    fn from(operation: Operation) -> FunctionResults {
        FunctionResults { outputs: Vec::new(), operations: vec![operation] }
    }
}

impl From<(Output, Operation)> for FunctionResults {
    fn from((output, operation): (Output, Operation)) -> FunctionResults {
        FunctionResults { outputs: vec![output], operations: vec![operation] }
    }
}

impl From<(Vec<Output>, Operation)> for FunctionResults {
    fn from((outputs, operation): (Vec<Output>, Operation)) -> FunctionResults {
        FunctionResults { outputs, operations: vec![operation] }
    }
}

impl WorkerFunction {
    /// Adds the nodes of a function, with a placeholder per input.
    pub(super) fn trace<T: Into<FunctionResults>>(
        graph: &Graph,
        inputs: impl IntoIterator<Item = TensorSpec>,
        build: impl FnOnce(&Scope, &[Output]) -> Result<T>,
    ) -> Result<WorkerFunction> {
        let scope = graph.scope().scope("function");
        let placeholder = |spec: TensorSpec| {
            let node = scope.op("Placeholder").attr("dtype", spec.dtype());
            node.attr("shape", spec.shape().clone()).build()?.output(0)
        };
        let inputs = inputs.into_iter().map(placeholder).collect::<Result<Vec<Output>>>()?;
        let FunctionResults { outputs, operations } = build(&scope, &inputs)?.into();
        ensure!(
            !outputs.is_empty() || !operations.is_empty(),
            InvalidArgument,
            "a function must return at least one output or operation, but returned none"
        );
        Ok(WorkerFunction(Arc::new(Body { inputs, outputs, operations })))
    }

    /// Returns a number that differs between functions.
    pub(super) fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

/// A dataset that every worker makes for itself. Cloning shares the recipe and the positions.
///
/// ```no_run
/// use ferroflow::data::Dataset;
/// use ferroflow::strategy::ClusterCoordinator;
/// use ferroflow::{DType, Result, Tensor, TensorSpec, ops};
///
/// /// Sums a hundred numbers, divided among the workers.
/// fn schedule_all(coordinator: &ClusterCoordinator, workers: usize) -> Result<()> {
///     let sum = coordinator.function([TensorSpec::new(DType::Float, [-1])?], |s, x| ops::sum(s, &x[0], [0]))?;
///     let numbers = coordinator.per_worker_dataset(move |worker| {
///         let own = Dataset::from_fn(|| (0..100).map(|n| n as f32)).shard(workers, worker)?;
///         Ok(own.batch(10).map(|batch: Tensor| vec![batch]))
///     });
///     for _ in 0..10 {
///         coordinator.schedule_next(&sum, &numbers)?;
///     }
///     coordinator.join()
/// }
/// ```
#[derive(Clone)]
pub struct PerWorkerDataset(Arc<PerWorker>);

struct PerWorker {
    make: Box<MakeFn>,
    /// Iterators by worker; made again after the worker was lost.
    iterators: Vec<Mutex<Option<Elements<Vec<Tensor>>>>>,
}

type MakeFn = dyn Fn(usize) -> Result<Dataset<Vec<Tensor>>> + Send + Sync;

impl PerWorkerDataset {
    pub(super) fn new(
        workers: usize,
        make: impl Fn(usize) -> Result<Dataset<Vec<Tensor>>> + Send + Sync + 'static,
    ) -> PerWorkerDataset {
        let iterators = (0..workers).map(|_| Mutex::new(None)).collect();
        PerWorkerDataset(Arc::new(PerWorker { make: Box::new(make), iterators }))
    }

    /// Returns the next element of a worker's dataset; `None` at the end.
    pub(super) fn next(&self, worker: usize) -> Result<Option<Vec<Tensor>>> {
        let mut slot = self.0.iterators[worker].lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            *slot = Some((self.0.make)(worker)?.iter());
        }
        slot.as_mut().and_then(Iterator::next).transpose()
    }

    /// Restarts the dataset of a worker.
    pub(super) fn restart(&self, worker: usize) {
        *self.0.iterators[worker].lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
