//! Shape inference: output shapes, types and shapes behind handles, and values of constants, before anything runs.
//!
//! An error in a node that may not run at all (inside a branch or a loop) is not reported here; it is reported if the
//! node runs.

use super::{Graph, Node, NodeId, NodeKind, Output};
use crate::op::{OpClass, ShapeCx};
use crate::resource::HandleShape;
use crate::{DType, PartialShape, Result, Tensor};

/// The inferred facts about the nodes of one graph.
#[derive(Clone, Default)]
pub struct Inference {
    nodes: Vec<Known>,
}

#[derive(Clone, Default)]
struct Known {
    shapes: Vec<PartialShape>,
    handles: Vec<Vec<HandleShape>>,
    value: Option<Tensor>,
    conditional: bool,
}

impl Inference {
    /// Runs a node's shape function; its inputs must have been inferred, except for the back edges of loops.
    pub fn infer(&mut self, graph: &Graph, id: NodeId) -> Result<()> {
        let node = graph.node(id);
        let data = &node.data;
        let types: Vec<DType> = data.output_types.iter().map(|(dtype, _)| *dtype).collect();
        let starts_branch =
            matches!(data.class(), OpClass::Switch | OpClass::RefSwitch | OpClass::Enter | OpClass::Merge);
        let known = Known {
            shapes: vec![PartialShape::unknown(); types.len()],
            handles: vec![Vec::new(); types.len()],
            value: constant(node),
            conditional: starts_branch || node.sources().any(|id| self.is_conditional(id)),
        };
        let (conditional, value) = (known.conditional, known.value.clone());
        self.set(id, known);
        if let (Some(value), 1) = (&value, types.len()) {
            self.nodes[id.index()].shapes[0] = value.shape().into();
        }
        let NodeKind::Op(entry) = &data.kind else { return Ok(()) };
        let inputs: Vec<PartialShape> = node.inputs.iter().map(|input| self.shape(*input)).collect();
        let handles: Vec<Vec<HandleShape>> =
            node.inputs.iter().map(|input| self.handles(*input).to_vec()).collect();
        let constants: Vec<Option<Tensor>> =
            node.inputs.iter().map(|input| self.value(*input).cloned()).collect();
        let mut cx = ShapeCx::new(&data.attrs, &inputs, &constants, &handles, &types);
        let inferred = (entry.op.shape)(&mut cx);
        let (shapes, handles) = cx.into_outputs();
        match inferred {
            Ok(()) => {
                let known = &mut self.nodes[id.index()];
                (known.shapes, known.handles) = (shapes, handles);
                Ok(())
            }
            Err(_) if conditional => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The shape of an output.
    pub fn shape(&self, output: Output) -> PartialShape {
        self.known(output.node)
            .and_then(|node| node.shapes.get(output.index as usize).cloned())
            .unwrap_or_default()
    }

    /// Refines the shape of an output.
    pub fn set_shape(&mut self, output: Output, shape: PartialShape) {
        let node = self.nodes.get_mut(output.node.index());
        if let Some(slot) = node.and_then(|node| node.shapes.get_mut(output.index as usize)) {
            *slot = shape;
        }
    }

    /// Types and shapes behind an output that is a handle or a list.
    pub fn handles(&self, output: Output) -> &[HandleShape] {
        self.known(output.node)
            .and_then(|node| node.handles.get(output.index as usize))
            .map_or(&[], Vec::as_slice)
    }

    /// Sets the types and shapes behind an output that is a handle or a list.
    pub fn set_handles(&mut self, output: Output, handles: Vec<HandleShape>) {
        let node = self.nodes.get_mut(output.node.index());
        if let Some(slot) = node.and_then(|node| node.handles.get_mut(output.index as usize)) {
            *slot = handles;
        }
    }

    /// The value of an output that is a constant.
    pub fn value(&self, output: Output) -> Option<&Tensor> {
        self.known(output.node)?.value.as_ref()
    }

    fn known(&self, id: NodeId) -> Option<&Known> {
        self.nodes.get(id.index())
    }

    fn is_conditional(&self, id: NodeId) -> bool {
        self.known(id).is_some_and(|node| node.conditional)
    }

    fn set(&mut self, id: NodeId, known: Known) {
        if self.nodes.len() <= id.index() {
            self.nodes.resize_with(id.index() + 1, Known::default);
        }
        self.nodes[id.index()] = known;
    }
}

fn constant(node: &Node) -> Option<Tensor> {
    match &node.data.kind {
        NodeKind::Constant(value) => Some(value.clone()),
        NodeKind::Op(entry) if entry.op.class == OpClass::Constant => node.data.attrs.get("value").ok(),
        _ => None,
    }
}
