//! The graph that a program builds, shared by all scopes and handles.

use super::names::Names;
use super::{CollectionItem, Operation, Output, Scope};
use crate::graph::{self, Inference, NodeId};
use crate::op::Registry;
use crate::{Result, bail, status};
use ferroflow_proto::tensorflow::GraphDef;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A graph under construction. Cloning shares; handles may be used from several threads.
#[derive(Clone)]
pub struct Graph(Arc<GraphInner>);

struct GraphInner {
    /// The scope in which this function body is used, if this graph is one; the body may capture its outputs.
    outer: Option<Outer>,
    /// Everything that changes when a node is added. Never locked while user code runs.
    state: Mutex<State>,
}

pub(super) struct Outer {
    pub(super) scope: Scope,
    /// True if captured constants are copied whatever their type, because nobody differentiates with respect to them.
    pub(super) copies: bool,
}

pub(super) struct State {
    pub(super) graph: graph::Graph,
    pub(super) known: Inference,
    pub(super) names: Names,
    pub(super) seed: Option<i64>,
    /// The number of random ops without their own seed so far.
    pub(super) unseeded: i64,
    pub(super) collections: BTreeMap<String, Vec<CollectionItem>>,
    /// The outer outputs that a function body uses.
    pub(super) captures: Vec<Capture>,
    /// Existing nodes that were changed, in order.
    pub(super) rewritten: Vec<NodeId>,
}

/// An outer output that a function body uses.
#[derive(Clone)]
pub(super) struct Capture {
    /// The output.
    pub(super) outer: Output,
    /// The value passed to the function: the output, or the value behind it if it is a reference.
    pub(super) passed: Output,
    /// The output that stands for it in the body.
    pub(super) inner: graph::Output,
    /// True if the body has a copy, so that nothing is passed.
    pub(super) copied: bool,
}

impl State {
    fn new(graph: graph::Graph) -> State {
        State {
            graph,
            known: Inference::default(),
            names: Names::default(),
            seed: None,
            unseeded: 0,
            collections: BTreeMap::new(),
            captures: Vec::new(),
            rewritten: Vec::new(),
        }
    }
}

impl Graph {
    /// An empty graph over the ops of a registry.
    pub fn over(registry: Registry) -> Graph {
        Graph::with(graph::Graph::new(registry), None)
    }

    pub(super) fn with(graph: graph::Graph, outer: Option<Outer>) -> Graph {
        let seed = outer.as_ref().and_then(|outer| outer.scope.graph().seed());
        let state = State { seed, ..State::new(graph) };
        Graph(Arc::new(GraphInner { outer, state: Mutex::new(state) }))
    }

    pub(super) fn outer(&self) -> Option<&Outer> {
        self.0.outer.as_ref()
    }

    /// The outermost graph, which is not a function body.
    pub(super) fn root(&self) -> &Graph {
        let mut graph = self;
        while let Some(outer) = graph.outer() {
            graph = outer.scope.graph();
        }
        graph
    }

    /// Returns whether this is `other` or the body of a function used within it.
    pub(super) fn is_within(&self, other: &Graph) -> bool {
        self.is_same(other) || self.outer().is_some_and(|outer| outer.scope.graph().is_within(other))
    }

    /// The scope without a prefix.
    pub fn scope(&self) -> Scope {
        Scope::root(self)
    }

    /// The ops that nodes may use.
    pub fn registry(&self) -> Registry {
        self.lock().graph.registry().clone()
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.lock().graph.node_count()
    }

    /// All operations, in the order they were added.
    pub fn operations(&self) -> Vec<Operation> {
        let (scope, ids) = (self.scope(), self.lock().graph.ids());
        ids.map(|id| Operation::new(&scope, id)).collect()
    }

    /// The operation with this name.
    pub fn operation(&self, name: &str) -> Result<Operation> {
        match self.find(name) {
            Some(operation) => Ok(operation),
            None => bail!(NotFound, "the graph has no operation named '{name}'"),
        }
    }

    /// The operation with this name, if there is one.
    pub fn find(&self, name: &str) -> Option<Operation> {
        let id = self.lock().graph.find(name)?;
        Some(Operation::new(&self.scope(), id))
    }

    /// The output with this name: `loss:0`, or `loss` for the first output.
    pub fn output(&self, name: &str) -> Result<Output> {
        let (node, index) = match name.rsplit_once(':') {
            Some((node, digits)) => {
                let index = digits.parse().map_err(|_| {
                    status!(InvalidArgument, "'{name}' is not an output; expected <operation>:<number>")
                })?;
                (node, index)
            }
            None => (name, 0),
        };
        self.operation(node)?.output(index)
    }

    /// Sets the seed that ops derive theirs from; see [`Scope::seeds`].
    pub fn set_seed(&self, seed: i64) {
        self.lock().seed = Some(seed);
    }

    /// The seed that ops derive theirs from.
    pub fn seed(&self) -> Option<i64> {
        self.lock().seed
    }

    /// The seed of the next random op without its own.
    pub(super) fn next_op_seed(&self) -> i64 {
        let mut state = self.lock();
        state.unseeded += 1;
        state.unseeded - 1
    }

    /// The wire form, which stock can read.
    pub fn to_graph_def(&self) -> GraphDef {
        self.lock().graph.to_def()
    }

    /// The wire form of the nodes from position `first` on, for a session that has the others; includes all functions.
    pub fn to_graph_def_from(&self, first: usize) -> GraphDef {
        let state = self.lock();
        GraphDef {
            node: state.graph.node_defs(first).collect(),
            library: Some(state.graph.library().to_proto()),
            versions: Some(state.graph.versions().clone()),
            ..Default::default()
        }
    }

    /// The number of times that existing nodes were changed, as gradients of calls, conditionals and loops do.
    pub fn rewrites(&self) -> usize {
        self.lock().rewritten.len()
    }

    /// The operations changed after the first `since` changes: a session that has sent them is out of date.
    pub fn rewritten(&self, since: usize) -> Vec<Operation> {
        let scope = self.scope();
        self.lock().rewritten.iter().skip(since).map(|id| Operation::new(&scope, *id)).collect()
    }

    /// Returns whether both are handles to one graph.
    pub fn is_same(&self, other: &Graph) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Makes a name unique among nodes and scopes, and reserves it.
    pub fn unique_name(&self, name: &str) -> String {
        self.lock().names.unique(name)
    }

    /// Returns an error unless the operation belongs to this graph.
    pub(super) fn check_owns(&self, operation: &Operation) -> Result<()> {
        if !self.is_same(operation.graph()) {
            bail!(
                InvalidArgument,
                "operation '{}' belongs to another graph and cannot be waited for or colocated with here",
                operation.name()
            );
        }
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // State is changed in one go at the end of each call, so it is consistent even after a panic elsewhere.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl State {
    /// Adds a checked node and runs its shape function; removes the node again if that fails.
    pub(super) fn push(&mut self, node: graph::Node) -> Result<NodeId> {
        let id = self.graph.push(node);
        let fits = self
            .graph
            .check_input_types(id, &self.graph.node(id).inputs)
            .and_then(|()| self.known.infer(&self.graph, id));
        if let Err(error) = fits {
            self.graph.pop();
            return Err(error);
        }
        Ok(id)
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.lock().graph, f)
    }
}
