//! The API with which programs build graphs: [`Graph`], [`Scope`], [`Operation`], [`Output`], and gradients.
//!
//! A node is checked when it is added: attributes are inferred from inputs, the shape function runs, and a mistake is
//! an error at the line that added the node. This module knows the declarations in the graph's registry; the only ops
//! it names itself are those of operators, constants and sums of gradients.
//!
//! Planning and execution have their own graphs, [`crate::graph`]; a graph of this module wraps one.

mod builder;
mod collection;
mod constant;
mod function;
mod gradients;
mod graph;
mod import;
mod meta_graph;
mod names;
mod operators;
mod output;
mod placement;
mod rewrite;

pub use builder::{OpBuilder, Settings};
pub use collection::CollectionItem;
pub use constant::Input;
pub use function::{Function, FunctionGraph, TensorSpec};
pub use gradients::{Gradients, gradients};
pub use graph::Graph;
pub use import::Import;
pub use meta_graph::{MetaGraph, import_meta_graph};
pub use output::{Operation, Output};

use crate::device::DeviceSpec;
use crate::graph::NodeData;
use crate::{Result, Status, Tensor};
use placement::DeviceRule;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The place where nodes are added: a graph, a name prefix, devices, control dependencies and colocation. Cloning is
/// cheap, and every method that changes something returns another scope.
///
/// A mistake in a scope (an invalid device, an operation of another graph) is reported by the first node built in it.
#[derive(Clone)]
pub struct Scope(Arc<Context>);

#[derive(Clone)]
struct Context {
    graph: Graph,
    /// Empty, or ends in `/`.
    prefix: String,
    /// Outermost first.
    devices: Vec<DeviceRule>,
    controls: Vec<Operation>,
    colocated: Vec<Operation>,
    error: Option<Status>,
}

impl Scope {
    pub(crate) fn root(graph: &Graph) -> Scope {
        Scope(Arc::new(Context {
            graph: graph.clone(),
            prefix: String::new(),
            devices: Vec::new(),
            controls: Vec::new(),
            colocated: Vec::new(),
            error: None,
        }))
    }

    fn changed(&self, change: impl FnOnce(&mut Context)) -> Scope {
        let mut context = (*self.0).clone();
        change(&mut context);
        Scope(Arc::new(context))
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.0.graph
    }

    /// The prefix of the names of nodes built here: empty, or ending in `/`.
    pub fn prefix(&self) -> &str {
        &self.0.prefix
    }

    /// A scope for names below this one. As in stock, a name that is taken gets a number (`hidden_1`), and one that
    /// ends in `/` is a full prefix that may be entered again.
    #[must_use]
    pub fn scope(&self, name: &str) -> Scope {
        let prefix = match name.strip_suffix('/') {
            Some(_) => name.to_owned(),
            None => format!("{}/", self.graph().unique_name(&format!("{}{name}", self.prefix()))),
        };
        self.changed(|context| context.prefix = prefix)
    }

    /// Puts nodes on a device, given in full or in part; missing parts come from enclosing scopes.
    #[must_use]
    pub fn device(&self, device: &str) -> Scope {
        self.changed(|context| match DeviceSpec::parse(device) {
            Ok(spec) => context.devices.push(DeviceRule::Spec(spec)),
            Err(error) => context.fail(error.map_message(|text| {
                format!("{text}; expected parts of /job:<name>/replica:<n>/task:<n>/device:CPU:<n>")
            })),
        })
    }

    /// Lets a function choose the device of every node from its op, its attributes and the device chosen by inner
    /// scopes.
    #[must_use]
    pub fn device_fn(&self, choose: impl Fn(&NodeData) -> Result<String> + Send + Sync + 'static) -> Scope {
        self.changed(|context| context.devices.push(DeviceRule::Fn(Arc::new(choose))))
    }

    /// Ignores the devices of enclosing scopes.
    #[must_use]
    pub fn without_device(&self) -> Scope {
        self.changed(|context| context.devices.clear())
    }

    /// Makes nodes run after these operations.
    #[must_use]
    pub fn control<I>(&self, operations: I) -> Scope
    where
        I: IntoIterator,
        I::Item: Into<Operation>,
    {
        self.changed(|context| {
            for operation in operations {
                let operation = operation.into();
                match context.graph.check_owns(&operation) {
                    Ok(()) if context.controls.contains(&operation) => {}
                    Ok(()) => context.controls.push(operation),
                    Err(error) => context.fail(error),
                }
            }
        })
    }

    /// Ignores the control dependencies of enclosing scopes.
    #[must_use]
    pub fn without_control(&self) -> Scope {
        self.changed(|context| context.controls.clear())
    }

    /// Colocates nodes with this operation.
    #[must_use]
    pub fn colocate_with(&self, operation: impl Into<Operation>) -> Scope {
        let operation = operation.into();
        self.changed(|context| match context.graph.check_owns(&operation) {
            Ok(()) => context.colocated.push(operation),
            Err(error) => context.fail(error),
        })
    }

    /// Ignores the colocation of enclosing scopes.
    #[must_use]
    pub fn without_colocation(&self) -> Scope {
        self.changed(|context| context.colocated.clear())
    }

    /// Starts building a node of any op in the registry. [`OpBuilder`] has an example.
    pub fn op(&self, op: &str) -> OpBuilder {
        OpBuilder::new(self, op, Settings::default())
    }

    /// Adds a constant.
    #[track_caller]
    pub fn constant(&self, value: impl Into<Tensor>) -> Result<Output> {
        self.named_constant("Const", value)
    }

    /// Adds a constant with a name.
    #[track_caller]
    pub fn named_constant(&self, name: &str, value: impl Into<Tensor>) -> Result<Output> {
        let value = value.into();
        let builder = self.op("Const").name(name).attr("dtype", value.dtype()).attr("value", &value);
        builder.build()?.output(0)
    }

    /// Adds an operation that completes after all of these.
    #[track_caller]
    pub fn group<I>(&self, operations: I) -> Result<Operation>
    where
        I: IntoIterator,
        I::Item: Into<Operation>,
    {
        self.group_named("group_deps", operations)
    }

    /// Adds an operation with this name that completes after all of these. As in stock, the operations of each device
    /// are grouped there first, so that each device signals completion once.
    #[track_caller]
    pub fn group_named<I>(&self, name: &str, operations: I) -> Result<Operation>
    where
        I: IntoIterator,
        I::Item: Into<Operation>,
    {
        let mut devices: BTreeMap<String, Vec<Operation>> = BTreeMap::new();
        for operation in operations {
            let operation = operation.into();
            devices.entry(operation.device()).or_default().push(operation);
        }
        let on = |scope: &Scope, device: &str| match device {
            "" => scope.clone(),
            device => scope.device(device),
        };
        if devices.len() <= 1 {
            let (device, operations) = devices.pop_first().unwrap_or_default();
            return on(self, &device).control(operations).op("NoOp").name(name).build();
        }
        let inner = self.scope(name);
        let mut ends = Vec::with_capacity(devices.len());
        for (device, operations) in devices {
            ends.push(on(&inner, &device).control(operations).op("NoOp").build()?);
        }
        self.control(ends).op("NoOp").name(inner.prefix()).build()
    }

    /// The pair of seeds that stock gives to a random op, from the graph's seed and the op's, either of which may be
    /// missing. Ops without their own seed are numbered.
    pub fn seeds(&self, op_seed: Option<i64>) -> (i64, i64) {
        const DEFAULT_GRAPH_SEED: i64 = 87_654_321;
        const LARGEST: i64 = i32::MAX as i64;
        let truncated = |seed: i64| seed.rem_euclid(LARGEST);
        let seeds = match (self.graph().seed(), op_seed) {
            (None, None) => return (0, 0),
            (None, Some(op)) => (DEFAULT_GRAPH_SEED, truncated(op)),
            (Some(graph), Some(op)) => (truncated(graph), truncated(op)),
            (Some(graph), None) => (truncated(graph), self.graph().next_op_seed()),
        };
        // A pair of zeros would mean random seeds.
        if seeds == (0, 0) { (0, LARGEST) } else { seeds }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &self.0.error {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

impl Context {
    fn fail(&mut self, error: Status) {
        self.error.get_or_insert(error);
    }
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scope({:?})", self.prefix())
    }
}
