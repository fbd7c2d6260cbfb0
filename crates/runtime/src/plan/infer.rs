//! Follows shapes through a graph and refuses what can never fit.
//!
//! A node that may not run at all (inside a branch or a loop) is not refused: its error, if any, comes when it runs.

use ferroflow_core::graph::{Graph, NodeId, NodeKind};
use ferroflow_core::op::{OpClass, ShapeCx};
use ferroflow_core::resource::HandleShape;
use ferroflow_core::{DType, PartialShape, Result, Tensor};

/// What is known of every node's outputs.
#[derive(Default)]
struct Known {
    shapes: Vec<Vec<PartialShape>>,
    handles: Vec<Vec<Vec<HandleShape>>>,
    conditional: Vec<bool>,
}

/// The shapes of every node's outputs.
pub(super) fn infer_shapes(graph: &Graph) -> Result<Vec<Vec<PartialShape>>> {
    let count = graph.node_count();
    let mut known = Known {
        shapes: vec![Vec::new(); count],
        handles: vec![Vec::new(); count],
        conditional: vec![false; count],
    };
    for id in graph.topological_order()? {
        infer_node(graph, id, &mut known)?;
    }
    Ok(known.shapes)
}

fn infer_node(graph: &Graph, id: NodeId, known: &mut Known) -> Result<()> {
    let node = graph.node(id);
    let data = &node.data;
    let types: Vec<DType> = data.output_types.iter().map(|(dtype, _)| *dtype).collect();
    let sources = node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied());
    let starts_branch =
        matches!(data.class(), OpClass::Switch | OpClass::RefSwitch | OpClass::Enter | OpClass::Merge);
    known.conditional[id.index()] =
        starts_branch || sources.into_iter().any(|id| known.conditional[id.index()]);
    let NodeKind::Op(entry) = &data.kind else {
        let shape = match &data.kind {
            NodeKind::Constant(value) => PartialShape::from(value.shape()),
            _ => PartialShape::unknown(),
        };
        known.shapes[id.index()] = vec![shape; types.len()];
        known.handles[id.index()] = vec![Vec::new(); types.len()];
        return Ok(());
    };
    let output = |input: &ferroflow_core::graph::Output| (input.node.index(), input.index as usize);
    let shape = |input| {
        let (node, index): (usize, usize) = output(input);
        known.shapes[node].get(index).cloned().unwrap_or_default()
    };
    let handle = |input| {
        let (node, index): (usize, usize) = output(input);
        known.handles[node].get(index).cloned().unwrap_or_default()
    };
    let constant = |input: &ferroflow_core::graph::Output| -> Option<Tensor> {
        match &graph.node(input.node).data.kind {
            NodeKind::Constant(value) => Some(value.clone()),
            _ => None,
        }
    };
    let inputs: Vec<PartialShape> = node.inputs.iter().map(shape).collect();
    let handles: Vec<Vec<HandleShape>> = node.inputs.iter().map(handle).collect();
    let constants: Vec<Option<Tensor>> = node.inputs.iter().map(constant).collect();
    let mut cx = ShapeCx::new(&data.attrs, &inputs, &constants, &handles, &types);
    let inferred = (entry.op.shape)(&mut cx);
    let (shapes, handles) = cx.into_outputs();
    match inferred {
        Ok(()) => {
            known.shapes[id.index()] = shapes;
            known.handles[id.index()] = handles;
            Ok(())
        }
        Err(_) if known.conditional[id.index()] => {
            known.shapes[id.index()] = vec![PartialShape::unknown(); types.len()];
            known.handles[id.index()] = vec![Vec::new(); types.len()];
            Ok(())
        }
        Err(error) => Err(error.at_node(&data.name)),
    }
}
