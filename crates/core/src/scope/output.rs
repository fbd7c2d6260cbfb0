//! Handles to the nodes of a graph under construction, and to their outputs.

use super::{Graph, Scope};
use crate::attr::FromAttr;
use crate::graph::{self, Node, NodeData, NodeId, NodeKind};
use crate::op::{OpEntry, OpSpec};
use crate::resource::HandleShape;
use crate::{DType, PartialShape, Result, Tensor, ToPartialShape, bail, ensure};
use ferroflow_proto::tensorflow::{TensorInfo, tensor_info};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A node of a graph. Cloning is cheap.
#[derive(Clone)]
pub struct Operation {
    /// The scope in which the node was built; operators on its outputs add nodes there.
    scope: Scope,
    id: NodeId,
}

impl Operation {
    pub(super) fn new(scope: &Scope, id: NodeId) -> Operation {
        Operation { scope: scope.clone(), id }
    }

    pub(super) fn id(&self) -> NodeId {
        self.id
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        self.scope.graph()
    }

    /// The scope that the node was built in; the graph's own if it was looked up.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    fn node(&self) -> Node {
        self.graph().lock().graph.node(self.id).clone()
    }

    pub(super) fn data(&self) -> Arc<NodeData> {
        self.graph().lock().graph.node(self.id).data.clone()
    }

    /// The index among the graph's nodes, in the order they were added.
    pub fn position(&self) -> usize {
        self.id.index()
    }

    /// The name.
    pub fn name(&self) -> String {
        self.data().name.clone()
    }

    /// The op's name, e.g. `MatMul`, or the name of the function that the node calls.
    pub fn op_type(&self) -> String {
        self.data().op_name().to_owned()
    }

    /// The declaration; `None` for a function call and for an op that this registry lacks.
    pub fn entry(&self) -> Option<Arc<OpEntry>> {
        match &self.data().kind {
            NodeKind::Op(entry) => Some(entry.clone()),
            _ => None,
        }
    }

    /// The requested device, possibly partial or empty.
    pub fn device(&self) -> String {
        self.data().device.clone()
    }

    /// An attribute.
    pub fn attr<T: FromAttr>(&self, name: &str) -> Result<T> {
        self.data().attrs.get(name).map_err(|error| {
            error.map_message(|text| format!("operation '{}' ({}): {text}", self.name(), self.op_type()))
        })
    }

    /// The inputs, without control inputs.
    pub fn inputs(&self) -> Vec<Output> {
        let scope = self.graph().scope();
        let output = |input: &graph::Output| Output::new(&scope, *input);
        self.node().inputs.iter().map(output).collect()
    }

    /// The operations that must run before this one.
    pub fn control_inputs(&self) -> Vec<Operation> {
        let scope = self.graph().scope();
        self.node().controls.iter().map(|id| Operation::new(&scope, *id)).collect()
    }

    /// The number of outputs.
    pub fn output_count(&self) -> usize {
        self.data().output_types.len()
    }

    /// One output.
    pub fn output(&self, index: usize) -> Result<Output> {
        let count = self.output_count();
        ensure!(
            index < count,
            OutOfRange,
            "operation '{}' ({}) has {count} outputs; there is no output {index}",
            self.name(),
            self.op_type()
        );
        Ok(Output { operation: self.clone(), index: index as u32 })
    }

    /// All outputs.
    pub fn outputs(&self) -> Vec<Output> {
        let output = |index| Output { operation: self.clone(), index: index as u32 };
        (0..self.output_count()).map(output).collect()
    }

    /// The outputs that a declared output stands for.
    pub fn output_list(&self, arg: usize) -> Result<Vec<Output>> {
        let data = self.data();
        let Some(spec) = data.spec() else { return Ok(self.outputs()) };
        let specs = &spec.outputs;
        let Some(spec) = specs.get(arg) else {
            bail!(OutOfRange, "{} declares {} outputs; there is no output {arg}", data.op_name(), specs.len())
        };
        let start = OpSpec::arg_types(&specs[..arg], &data.attrs)?.len();
        let count = OpSpec::arg_types(std::slice::from_ref(spec), &data.attrs)?.len();
        (start..start + count).map(|index| self.output(index)).collect()
    }

    /// The first of the outputs that a declared output stands for.
    pub fn output_arg(&self, arg: usize) -> Result<Output> {
        match self.output_list(arg)?.into_iter().next() {
            Some(output) => Ok(output),
            None => bail!(OutOfRange, "declared output {arg} of {} is an empty list", self.op_type()),
        }
    }
}

impl PartialEq for Operation {
    fn eq(&self, other: &Operation) -> bool {
        self.id == other.id && self.graph().is_same(other.graph())
    }
}

impl Eq for Operation {}

impl Hash for Operation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.graph().address(), self.id).hash(state);
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name(), self.op_type())
    }
}

impl From<&Operation> for Operation {
    fn from(operation: &Operation) -> Operation {
        operation.clone()
    }
}

impl From<&Output> for Operation {
    fn from(output: &Output) -> Operation {
        output.operation.clone()
    }
}

impl From<Output> for Operation {
    fn from(output: Output) -> Operation {
        output.operation
    }
}

/// One output of an operation: an edge of the graph. Cloning is cheap. Operators (`+ - * /`, unary `-`) add nodes in the
/// scope of their left operand and return a `Result`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Output {
    operation: Operation,
    index: u32,
}

impl Output {
    pub(super) fn new(scope: &Scope, output: graph::Output) -> Output {
        Output { operation: Operation::new(scope, output.node), index: output.index }
    }

    pub(super) fn edge(&self) -> graph::Output {
        graph::Output { node: self.operation.id, index: self.index }
    }

    /// The operation.
    pub fn op(&self) -> &Operation {
        &self.operation
    }

    /// The index among the operation's outputs.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        self.operation.graph()
    }

    /// The scope that the operation was built in.
    pub fn scope(&self) -> &Scope {
        self.operation.scope()
    }

    /// The name, `operation:index`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.operation.name(), self.index)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.operation.data().output_types[self.index()].0
    }

    /// Returns whether it is a reference to a variable.
    pub fn is_ref(&self) -> bool {
        self.operation.data().output_types[self.index()].1
    }

    /// The shape, as far as it is known.
    pub fn shape(&self) -> PartialShape {
        self.graph().lock().known.shape(self.edge())
    }

    /// Refines the shape; an error if that contradicts what is known.
    pub fn set_shape(&self, shape: impl ToPartialShape) -> Result<()> {
        let (known, given) = (self.shape(), shape.to_partial_shape()?);
        let Some(merged) = known.merged(&given) else {
            bail!(
                InvalidArgument,
                "output '{}' has shape {known}, which is incompatible with {given}",
                self.name()
            )
        };
        self.graph().lock().known.set_shape(self.edge(), merged);
        Ok(())
    }

    /// The type and shape behind a handle, e.g. of a variable.
    pub fn handle_shape(&self) -> Option<HandleShape> {
        self.graph().lock().known.handles(self.edge()).first().cloned()
    }

    /// The entry for this output in a signature or a meta graph.
    pub fn tensor_info(&self) -> TensorInfo {
        TensorInfo {
            encoding: Some(tensor_info::Encoding::Name(self.name())),
            dtype: self.dtype().to_wire(),
            tensor_shape: Some(self.shape().to_proto()),
        }
    }

    /// The value, if it is known while the graph is built.
    pub fn value(&self) -> Option<Tensor> {
        self.graph().lock().known.value(self.edge()).cloned()
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Output({}, {}, {})", self.name(), self.dtype(), self.shape())
    }
}

impl From<&Output> for Output {
    fn from(output: &Output) -> Output {
        output.clone()
    }
}
