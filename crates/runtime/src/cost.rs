//! The cost of a step, node by node, for `GraphOptions.build_cost_model`.
//!
//! Nodes are numbered as in stock's graphs, where 0 is a source before all others and 1 a sink after them.

use crate::executable::Executable;
use crate::trace::StepTrace;
use ferroflow_core::graph::{Node, NodeId, NodeKind, Output};
use ferroflow_core::op::OpClass;
use ferroflow_proto::tensorflow::cost_graph_def::node::{InputInfo, OutputInfo};
use ferroflow_proto::tensorflow::{DataType, NodeExecStats, TensorShapeProto, cost_graph_def};
use std::collections::HashMap;

/// The number of the source node.
const SOURCE: i32 = 0;
/// The number of the sink node.
const SINK: i32 = 1;
/// The number of the first other node.
const FIRST: i32 = 2;
/// The alias of an output that does not share an input's memory.
const NO_ALIAS: i64 = -1;

/// The nodes of a part that ran, in stock's format.
pub fn cost_nodes(part: &Executable, trace: &StepTrace) -> Vec<cost_graph_def::Node> {
    let graph = part.graph();
    let stats = trace.to_proto();
    let stats = stats.dev_stats.iter().flat_map(|device| &device.node_stats);
    let stats: HashMap<&str, &NodeExecStats> = stats.map(|stats| (stats.node_name.as_str(), stats)).collect();
    let consumers = graph.consumers();
    let is_fetched = |id: &NodeId| part.fetches().iter().any(|fetch| fetch.node == *id);
    let is_final = |id: &NodeId| consumers[id.index()].is_empty() && !is_fetched(id);
    let first_send = FIRST + graph.node_count() as i32;
    let sends: Vec<_> =
        (first_send..).zip(part.fetches()).map(|(id, fetch)| send_node(id, part, *fetch)).collect();
    let finals = graph.ids().filter(is_final).map(number).chain(sends.iter().map(|send| send.id));
    let source = cost_graph_def::Node { name: "_SOURCE".to_owned(), id: SOURCE, ..Default::default() };
    let sink = cost_graph_def::Node {
        name: "_SINK".to_owned(),
        id: SINK,
        // Stock counts the edge from source to sink twice.
        control_input: [SOURCE, SOURCE].into_iter().chain(finals).collect(),
        ..Default::default()
    };
    let nodes = graph.ids().map(|id| {
        let node = graph.node(id);
        let stats = stats.get(node.data.name.as_str()).copied();
        cost_graph_def::Node { is_final: is_final(&id), ..cost_node(number(id), node, stats) }
    });
    [source, sink].into_iter().chain(nodes).chain(sends).collect()
}

/// The node with which stock sends a fetch to the client.
fn send_node(id: i32, part: &Executable, fetch: Output) -> cost_graph_def::Node {
    let data = &part.graph().node(fetch.node).data;
    cost_graph_def::Node {
        name: format!("_send_{}_{}", data.name, fetch.index),
        device: data.device.clone(),
        id,
        input_info: vec![InputInfo {
            preceding_node: number(fetch.node),
            preceding_port: fetch.index as i32,
        }],
        is_final: true,
        ..Default::default()
    }
}

fn number(id: NodeId) -> i32 {
    id.index() as i32 + FIRST
}

fn cost_node(id: i32, node: &Node, stats: Option<&NodeExecStats>) -> cost_graph_def::Node {
    // Stock does not measure sends and receives, feeds included.
    let crosses = matches!(node.data.class(), OpClass::Send | OpClass::Recv)
        || matches!(node.data.kind, NodeKind::Arg(_));
    let stats = stats.filter(|_| !crosses);
    let is_constant = matches!(node.data.kind, NodeKind::Constant(_));
    let outputs = (0..node.data.output_types.len()).map(|slot| output_info(slot, stats, is_constant));
    let controls = node.controls.iter().map(|control| number(*control));
    let starts = node.inputs.is_empty() && node.controls.is_empty();
    let constant_bytes = stats.filter(|_| is_constant).and_then(|stats| requested_bytes(stats, 0));
    cost_graph_def::Node {
        name: node.data.name.clone(),
        device: node.data.device.clone(),
        id,
        input_info: node
            .inputs
            .iter()
            .map(|input| InputInfo { preceding_node: number(input.node), preceding_port: input.index as i32 })
            .collect(),
        output_info: outputs.collect(),
        control_input: starts.then_some(SOURCE).into_iter().chain(controls).collect(),
        compute_cost: stats.map_or(0, |stats| stats.op_end_rel_micros),
        persistent_memory_size: constant_bytes.unwrap_or_default(),
        ..Default::default()
    }
}

fn output_info(slot: usize, stats: Option<&NodeExecStats>, is_constant: bool) -> OutputInfo {
    let output = stats.and_then(|stats| stats.output.iter().find(|output| output.slot == slot as i32));
    let Some(tensor) = output.and_then(|output| output.tensor_description.as_ref()) else {
        let shape = TensorShapeProto { unknown_rank: true, ..Default::default() };
        return OutputInfo { size: -1, alias_input_port: NO_ALIAS, shape: Some(shape), dtype: 0 };
    };
    let is_handle = tensor.dtype == DataType::DtResource as i32;
    let bytes = stats.and_then(|stats| requested_bytes(stats, slot as i32));
    OutputInfo {
        size: bytes.filter(|_| !is_constant && !is_handle).unwrap_or_default(),
        alias_input_port: NO_ALIAS,
        shape: tensor.shape.clone(),
        dtype: tensor.dtype,
    }
}

fn requested_bytes(stats: &NodeExecStats, slot: i32) -> Option<i64> {
    let output = stats.output.iter().find(|output| output.slot == slot)?;
    Some(output.tensor_description.as_ref()?.allocation_description.as_ref()?.requested_bytes)
}
