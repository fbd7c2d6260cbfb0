//! The start of a training program: initial values, readiness checks, and the saver.

use super::saver::{Saver, savers_in};
use crate::session::Session;
use crate::variables::{Variable, global_variables, local_variables};
use bytes::Bytes;
use ferroflow_core::scope::{CollectionItem, Graph, Operation, Output, Scope};
use ferroflow_core::{Result, Tensor};
use std::sync::Arc;

/// Collection of the operations that initialize tables.
const TABLE_INITIALIZERS: &str = "table_initializer";

/// Function that prepares a model in a session, beyond what an operation can do.
pub type InitFn = dyn Fn(&Session) -> Result<()> + Send + Sync;

/// Pieces that start a training program. Those that are not given are made from the graph's collections.
///
/// ```
/// use ferroflow::train::{MonitoredTrainingSession, Saver, Scaffold};
/// use ferroflow::{DType, Graph, Tensor, Variable, initializers, ops};
///
/// // The initial value is fed, so that it is not part of the graph.
/// let graph = Graph::new();
/// let s = graph.scope();
/// let w = Variable::spec("w", [2]).build(&s)?;
/// let start = ops::Placeholder::new(DType::Float).shape([2]).build(&s)?;
/// let init = w.assign(&s, &start)?;
/// let scaffold = Scaffold::new()
///     .init_op(init)
///     .init_feed(&start, Tensor::vector(vec![1.0f32, 2.0]))
///     .init_fn(|session| { println!("initialized on {:?}", session.target()); Ok(()) })
///     .saver(Saver::builder().sharded(true).max_to_keep(10).build(&graph)?);
/// let mut session = MonitoredTrainingSession::new(&graph).scaffold(scaffold).build()?;
/// assert_eq!(session.run(&[], &[w.value()])?[0].flat::<f32>()?, [1.0, 2.0]);
/// # let _ = initializers::zeros();
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Default)]
pub struct Scaffold {
    init_op: Option<Operation>,
    init_feeds: Vec<(Output, Tensor)>,
    init_fn: Option<Arc<InitFn>>,
    ready_op: Option<Output>,
    ready_for_local_init_op: Option<Output>,
    local_init_op: Option<Operation>,
    summary_op: Option<Output>,
    saver: Option<Arc<Saver>>,
}

impl Scaffold {
    /// Takes all pieces from the graph.
    pub fn new() -> Scaffold {
        Scaffold::default()
    }

    /// Sets the operation that initializes the model; by default, it initializes all global variables.
    pub fn init_op(mut self, operation: impl Into<Operation>) -> Self {
        self.init_op = Some(operation.into());
        self
    }

    /// Feeds a value to the operation that initializes the model.
    pub fn init_feed(mut self, output: &Output, value: impl Into<Tensor>) -> Self {
        self.init_feeds.push((output.clone(), value.into()));
        self
    }

    /// Sets a function that runs after the model was initialized.
    pub fn init_fn(mut self, init: impl Fn(&Session) -> Result<()> + Send + Sync + 'static) -> Self {
        self.init_fn = Some(Arc::new(init));
        self
    }

    /// Sets an output with the names of what is not ready; the model is ready when it is empty.
    pub fn ready_op(mut self, output: &Output) -> Self {
        self.ready_op = Some(output.clone());
        self
    }

    /// Sets an output with the names of what must be ready before local variables are initialized.
    pub fn ready_for_local_init_op(mut self, output: &Output) -> Self {
        self.ready_for_local_init_op = Some(output.clone());
        self
    }

    /// Sets the operation that initializes the local variables and tables of a task.
    pub fn local_init_op(mut self, operation: impl Into<Operation>) -> Self {
        self.local_init_op = Some(operation.into());
        self
    }

    /// Sets the summaries that are written while training; all summaries of the graph by default.
    pub fn summary_op(mut self, output: &Output) -> Self {
        self.summary_op = Some(output.clone());
        self
    }

    /// Sets the saver.
    pub fn saver(mut self, saver: Saver) -> Self {
        self.saver = Some(Arc::new(saver));
        self
    }

    /// Makes the pieces that were not given.
    pub(super) fn finalize(self, graph: &Graph) -> Result<Prepared> {
        let s = graph.scope();
        let (global, local) = (global_variables(graph)?, local_variables(graph)?);
        let init_op = match self.init_op {
            Some(operation) => operation,
            None => initializer(&s, "init", &global, &[])?,
        };
        let ready_op = match self.ready_op {
            Some(output) => output,
            None => {
                let all: Vec<Variable> = global.iter().chain(&local).cloned().collect();
                report_uninitialized_variables(&s, &all)?
            }
        };
        let ready_for_local_init_op = match self.ready_for_local_init_op {
            Some(output) => output,
            None => report_uninitialized_variables(&s, &global)?,
        };
        let local_init_op = match self.local_init_op {
            Some(operation) => operation,
            None => initializer(&s, "init_local", &local, &operations_in(graph, TABLE_INITIALIZERS)?)?,
        };
        let summary_op = match self.summary_op {
            Some(output) => Some(output),
            None => crate::summary::merge_all(&s)?,
        };
        let saver = match self.saver {
            Some(saver) => saver,
            None => Arc::new(match savers_in(graph)?.into_iter().next() {
                Some(saver) => saver,
                None => {
                    let saver = Saver::builder().sharded(true).allow_empty(true).build(graph)?;
                    saver.add_to_collection(graph);
                    saver
                }
            }),
        };
        Ok(Prepared {
            init_op,
            init_feeds: self.init_feeds,
            init_fn: self.init_fn,
            ready_op,
            ready_for_local_init_op,
            local_init_op,
            summary_op,
            saver,
        })
    }
}

/// A scaffold with all its pieces.
pub(super) struct Prepared {
    pub(super) init_op: Operation,
    pub(super) init_feeds: Vec<(Output, Tensor)>,
    pub(super) init_fn: Option<Arc<InitFn>>,
    pub(super) ready_op: Output,
    pub(super) ready_for_local_init_op: Output,
    pub(super) local_init_op: Operation,
    pub(super) summary_op: Option<Output>,
    pub(super) saver: Arc<Saver>,
}

fn initializer(scope: &Scope, name: &str, variables: &[Variable], others: &[Operation]) -> Result<Operation> {
    let scope = scope.control(variables.iter().map(Variable::initializer)).control(others);
    scope.op("NoOp").name(name).build()
}

fn operations_in(graph: &Graph, collection: &str) -> Result<Vec<Operation>> {
    let nodes = graph.collection(collection).into_iter().filter_map(|item| match item {
        CollectionItem::Node(name) => Some(name),
        _ => None,
    });
    nodes.map(|name| graph.operation(name.split(':').next().unwrap_or(&name))).collect()
}

/// Adds a node that returns the names of uninitialized variables.
#[track_caller]
pub fn report_uninitialized_variables(scope: &Scope, variables: &[Variable]) -> Result<Output> {
    let scope = scope.without_control().scope("report_uninitialized_variables").device("/device:CPU:0");
    if variables.is_empty() {
        return scope.constant(Vec::<Bytes>::new());
    }
    let initialized = variables.iter().map(|variable| {
        let at = scope.without_device().colocate_with(variable.op());
        variable.is_initialized(&at)
    });
    let initialized = initialized.collect::<Result<Vec<Output>>>()?;
    let initialized = scope.op("Pack").name("stack").inputs(&initialized).build()?.output(0)?;
    let missing = scope.op("LogicalNot").input(&initialized).build()?.output(0)?;
    let names = variables.iter().map(|variable| Bytes::from(variable.name().into_bytes()));
    let names = scope.constant(names.collect::<Vec<Bytes>>())?;
    let at = scope.op("Where").input(&missing).build()?.output(0)?;
    let at = scope.op("Squeeze").input(&at).attr("squeeze_dims", vec![1i64]).build()?.output(0)?;
    scope.op("GatherV2").input(&names).input(&at).input(0).build()?.output(0)
}
