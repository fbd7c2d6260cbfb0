//! Validated graphs: nodes with known ops, complete attributes and matching types. The planner and the executor work on
//! these; programs build graphs with [`crate::scope`].
//!
//! A graph is built from the wire form ([`Graph::extend`]), from a function body ([`FunctionBody`]) or node by node by
//! the planner. It never holds a dangling edge or a cycle outside loops.

mod build;
mod def;
mod function;
mod infer;
mod library;
mod order;
mod text;

pub use function::FunctionBody;
pub use infer::Inference;
pub use library::Library;

use crate::attr::Attrs;
use crate::op::{OpClass, OpEntry, OpSpec, Registry};
use crate::{DType, Result, Tensor};
use ferroflow_proto::tensorflow::{FunctionDefLibrary, VersionDef};
use std::collections::HashMap;
use std::sync::Arc;

/// The graph version that Ferroflow produces and accepts, equal to that of stock 2.21.
pub const GRAPH_VERSION: i32 = 2474;

/// The index of a node within one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The position in [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One output of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Output {
    /// The node.
    pub node: NodeId,
    /// The index among the node's outputs.
    pub index: u32,
}

/// The kind of work that a node does.
#[derive(Clone)]
pub enum NodeKind {
    /// Runs an op.
    Op(Arc<OpEntry>),
    /// Stands for a value that the caller supplies: a feed, or a function's argument.
    Arg(usize),
    /// Holds a value that the planner computed.
    Constant(Tensor),
    /// Calls the function with this name.
    Function(String),
    /// Stands for an op that stock has and the registry lacks: graphs may hold it, but no step may run it.
    Unsupported(Arc<OpSpec>),
}

/// A node without its edges. Shared by all graphs that hold the node.
pub struct NodeData {
    /// The name.
    pub name: String,
    /// The kind of work.
    pub kind: NodeKind,
    /// Attributes, with defaults filled in.
    pub attrs: Attrs,
    /// The device: as requested by the user, possibly partial; after placement, the full name.
    pub device: String,
    /// Element types of inputs, and whether the op takes a reference.
    pub input_types: Vec<(DType, bool)>,
    /// Element types of outputs, and whether they are references.
    pub output_types: Vec<(DType, bool)>,
}

impl NodeData {
    /// The op's class, which is all that the planner and the executor know of the op.
    pub fn class(&self) -> OpClass {
        match &self.kind {
            NodeKind::Op(entry) => entry.op.class,
            NodeKind::Arg(_) => OpClass::Arg,
            NodeKind::Constant(_) => OpClass::Constant,
            NodeKind::Function(_) => OpClass::Call,
            NodeKind::Unsupported(_) => OpClass::Plain,
        }
    }

    /// The declaration of the op; `None` if the node does not run an op.
    pub fn spec(&self) -> Option<&OpSpec> {
        match &self.kind {
            NodeKind::Op(entry) => Some(entry.spec()),
            NodeKind::Unsupported(spec) => Some(spec),
            NodeKind::Arg(_) | NodeKind::Constant(_) | NodeKind::Function(_) => None,
        }
    }

    /// Returns whether the node has state or effects.
    pub fn is_stateful(&self) -> bool {
        match &self.kind {
            NodeKind::Op(entry) => entry.op.stateful,
            NodeKind::Arg(_) | NodeKind::Constant(_) => false,
            NodeKind::Function(_) | NodeKind::Unsupported(_) => true,
        }
    }

    /// The op type's name, for messages.
    pub fn op_name(&self) -> &str {
        match &self.kind {
            NodeKind::Op(entry) => entry.op.name,
            NodeKind::Arg(_) => "_Arg",
            NodeKind::Constant(_) => "Const",
            NodeKind::Function(name) => name,
            NodeKind::Unsupported(spec) => &spec.name,
        }
    }
}

impl NodeData {
    /// The same node on another device.
    #[must_use]
    pub fn on_device(&self, device: &str) -> NodeData {
        NodeData {
            name: self.name.clone(),
            kind: self.kind.clone(),
            attrs: self.attrs.clone(),
            device: device.to_owned(),
            input_types: self.input_types.clone(),
            output_types: self.output_types.clone(),
        }
    }
}

/// A node and its edges.
#[derive(Clone)]
pub struct Node {
    /// Name, op, attributes and device.
    pub data: Arc<NodeData>,
    /// The outputs that the inputs are connected to.
    pub inputs: Vec<Output>,
    /// Nodes that must run first.
    pub controls: Vec<NodeId>,
}

impl Node {
    /// The nodes that inputs and control inputs come from.
    pub fn sources(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.inputs.iter().map(|input| input.node).chain(self.controls.iter().copied())
    }
}

/// Nodes, by index and by name, and the functions that they call.
#[derive(Clone)]
pub struct Graph {
    registry: Registry,
    nodes: Vec<Node>,
    names: HashMap<String, NodeId>,
    library: Arc<Library>,
    versions: VersionDef,
    /// For each output of an inlined call, the inputs (node and position) that now take the body's result directly.
    bypassing: Arc<HashMap<Output, Vec<(NodeId, usize)>>>,
}

impl Graph {
    /// An empty graph over the ops of a registry.
    pub fn new(registry: Registry) -> Graph {
        Graph {
            registry,
            nodes: Vec::new(),
            names: HashMap::new(),
            library: Arc::default(),
            versions: VersionDef { producer: GRAPH_VERSION, ..Default::default() },
            bypassing: Arc::default(),
        }
    }

    /// An empty graph with the same ops, functions and versions.
    pub fn empty_like(&self) -> Graph {
        Graph {
            registry: self.registry.clone(),
            nodes: Vec::new(),
            names: HashMap::new(),
            library: self.library.clone(),
            versions: self.versions.clone(),
            bypassing: Arc::default(),
        }
    }

    /// The ops that nodes may use.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The version of the graph's producer.
    pub fn producer(&self) -> i32 {
        self.versions.producer
    }

    /// The versions of the graph.
    pub fn versions(&self) -> &VersionDef {
        &self.versions
    }

    /// The functions.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// Sets the versions of the graph.
    pub(crate) fn set_versions(&mut self, versions: VersionDef) {
        self.versions = versions;
    }

    /// Adds functions; one that exists must be identical.
    pub fn add_functions(&mut self, more: &FunctionDefLibrary) -> Result<()> {
        self.library = Arc::new(self.library.with(more, &self.registry)?);
        Ok(())
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The ids of all nodes.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// A node for changing it; the caller must not leave dangling edges.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// Connects an input to `passed_on` instead of the output that passes that value on. If the passing output is fed,
    /// the input still takes the feed.
    pub fn bypass(&mut self, id: NodeId, input: usize, passed_on: Output) {
        let passed_by = std::mem::replace(&mut self.nodes[id.index()].inputs[input], passed_on);
        Arc::make_mut(&mut self.bypassing).entry(passed_by).or_default().push((id, input));
    }

    /// The inputs, by node and position, that bypass an output.
    pub fn bypassing(&self, output: Output) -> &[(NodeId, usize)] {
        self.bypassing.get(&output).map_or(&[], Vec::as_slice)
    }

    /// The same graph without the name index, which takes as much memory as the nodes. For graphs that are complete.
    #[must_use]
    pub fn without_names(mut self) -> Graph {
        self.names = HashMap::new();
        self.nodes.shrink_to_fit();
        self
    }

    /// The node with this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// Adds a node whose edges the caller has checked.
    pub fn push(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.names.insert(node.data.name.clone(), id);
        self.nodes.push(node);
        id
    }

    /// Removes the node that was added last; nothing may refer to it.
    pub(crate) fn pop(&mut self) {
        if let Some(node) = self.nodes.pop() {
            self.names.remove(&node.data.name);
        }
    }
}
