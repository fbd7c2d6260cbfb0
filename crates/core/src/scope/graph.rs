//! The graph that a program builds.

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
pub struct Graph(Arc<Shared>);

struct Shared {
    /// Guards everything that adding a node changes. Never held while user code runs.
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) graph: graph::Graph,
    pub(super) known: Inference,
    pub(super) names: Names,
    pub(super) seed: Option<i64>,
    pub(super) collections: BTreeMap<String, Vec<CollectionItem>>,
}

impl Graph {
    /// An empty graph over the ops of a registry.
    pub fn over(registry: Registry) -> Graph {
        let state = State {
            graph: graph::Graph::new(registry),
            known: Inference::default(),
            names: Names::default(),
            seed: None,
            collections: BTreeMap::new(),
        };
        Graph(Arc::new(Shared { state: Mutex::new(state) }))
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
                    status!(InvalidArgument, "'{name}' names no output; expected <operation>:<number>")
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

    /// The wire form, which stock reads.
    pub fn to_graph_def(&self) -> GraphDef {
        self.lock().graph.to_def()
    }

    /// The wire form of the nodes from position `first` on, for a session that has the others; with all functions.
    pub fn to_graph_def_from(&self, first: usize) -> GraphDef {
        let state = self.lock();
        GraphDef {
            node: state.graph.node_defs(first).collect(),
            library: Some(state.graph.library().to_proto()),
            versions: Some(state.graph.versions().clone()),
            ..Default::default()
        }
    }

    /// Whether both are handles to one graph.
    pub fn is_same(&self, other: &Graph) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A name that no other node or scope has, marked as used.
    pub fn unique_name(&self, name: &str) -> String {
        self.lock().names.unique(name)
    }

    /// Fails unless the operation is of this graph.
    pub(super) fn admit(&self, operation: &Operation) -> Result<()> {
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
        // State is changed in one go at the end of each call, so a panic elsewhere leaves it whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl State {
    /// Adds a checked node and infers what is known of its outputs; takes it back if that fails.
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
