//! Constant folding, after pruning: computes nodes that depend on constants alone once, at planning time. The only pass
//! that runs kernels.

use super::Planned;
use crate::env::RuntimeEnv;
use crate::exec::layout::pure_kernel;
use crate::executable::planning_step;
use ferroflow_core::attr::Attrs;
use ferroflow_core::graph::{Graph, Node, NodeData, NodeId, NodeKind, Output};
use ferroflow_core::kernel::{Kernel, KernelCx, Outputs, Value};
use ferroflow_core::op::OpClass;
use ferroflow_core::step::StepCx;
use ferroflow_core::{DType, Result, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

/// Results larger than this are computed in every step instead of being kept with the plan, as in stock.
const MAX_FOLDED_BYTES: usize = 10 << 20;

pub(super) fn fold_constants(mut planned: Planned, env: &Arc<RuntimeEnv>) -> Result<Planned> {
    let step = planning_step(env);
    let mut known: HashMap<Output, Output> = HashMap::new();
    for id in planned.graph.topological_order()? {
        redirect(&mut planned.graph, id, &known);
        let Some(inputs) = constant_inputs(&planned.graph, id) else { continue };
        let data = planned.graph.node(id).data.clone();
        // A node that fails now stays, and reports its error when it runs.
        let Some(values) = evaluate(&data, inputs, env, &step) else { continue };
        for (index, value) in values.into_iter().enumerate() {
            let name = if index == 0 { data.name.clone() } else { format!("{}/output_{index}", data.name) };
            let constant = constant_data(name, value, &data.device);
            let target = if index == 0 {
                let node = planned.graph.node_mut(id);
                *node = Node { data: Arc::new(constant), inputs: Vec::new(), controls: Vec::new() };
                Output { node: id, index: 0 }
            } else {
                let node = Node { data: Arc::new(constant), inputs: Vec::new(), controls: Vec::new() };
                Output { node: planned.graph.push(node), index: 0 }
            };
            known.insert(Output { node: id, index: index as u32 }, target);
        }
    }
    for fetch in &mut planned.fetches {
        *fetch = known.get(fetch).copied().unwrap_or(*fetch);
    }
    Ok(planned)
}

fn redirect(graph: &mut Graph, id: NodeId, known: &HashMap<Output, Output>) {
    for input in &mut graph.node_mut(id).inputs {
        *input = known.get(input).copied().unwrap_or(*input);
    }
}

/// The inputs of a node that can be folded, if all are constants.
fn constant_inputs(graph: &Graph, id: NodeId) -> Option<Vec<Value>> {
    let node = graph.node(id);
    let data = &node.data;
    let computable = matches!(data.kind, NodeKind::Op(_))
        && !data.is_stateful()
        && node.controls.is_empty()
        && matches!(data.class(), OpClass::Plain | OpClass::Constant | OpClass::Identity)
        && (!node.inputs.is_empty() || data.class() == OpClass::Constant)
        && !data.output_types.is_empty()
        && data
            .output_types
            .iter()
            .chain(&data.input_types)
            .all(|(dtype, is_ref)| !is_ref && !matches!(dtype, DType::Resource | DType::Variant));
    if !computable {
        return None;
    }
    let value = |input: &Output| match &graph.node(input.node).data.kind {
        NodeKind::Constant(value) => Some(Value::Tensor(value.clone())),
        _ => None,
    };
    node.inputs.iter().map(value).collect()
}

fn evaluate(
    data: &Arc<NodeData>,
    mut inputs: Vec<Value>,
    env: &Arc<RuntimeEnv>,
    step: &Arc<StepCx>,
) -> Option<Vec<Tensor>> {
    let kernel = pure_kernel(data, env).ok()?;
    let Kernel::Sync(run) = &kernel else { return None };
    let work = || run(&mut KernelCx::new(&mut inputs, step, Default::default(), false));
    let outputs = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).ok()?.ok()?;
    let values = match outputs {
        Outputs::One(value) => vec![value],
        Outputs::Many(values) => values,
        Outputs::None | Outputs::Dead => return None,
    };
    let mut tensors = Vec::with_capacity(values.len());
    for value in values {
        let Value::Tensor(tensor) = value else { return None };
        if data.class() != OpClass::Constant && tensor.byte_size() > MAX_FOLDED_BYTES {
            return None;
        }
        tensors.push(tensor);
    }
    (tensors.len() == data.output_types.len()).then_some(tensors)
}

fn constant_data(name: String, value: Tensor, device: &str) -> NodeData {
    NodeData {
        name,
        output_types: vec![(value.dtype(), false)],
        kind: NodeKind::Constant(value),
        attrs: Attrs::default(),
        device: device.to_owned(),
        input_types: Vec::new(),
    }
}
