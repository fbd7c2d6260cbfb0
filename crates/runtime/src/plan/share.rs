//! Common subexpression elimination, after folding: nodes that compute the same from the same inputs are merged into
//! one.

use super::Planned;
use ferroflow_core::graph::{Graph, NodeId, NodeKind, Output};
use ferroflow_core::op::OpClass;
use ferroflow_core::{DType, Result};
use std::collections::HashMap;

/// Constants larger than this are not compared.
const MAX_COMPARED_BYTES: usize = 1024;

#[derive(PartialEq, Eq, Hash)]
struct Key {
    op: String,
    device: String,
    attrs: Vec<u8>,
    inputs: Vec<Output>,
}

pub(super) fn share_common(mut planned: Planned) -> Result<Planned> {
    let mut first: HashMap<Key, NodeId> = HashMap::new();
    let mut same: HashMap<NodeId, NodeId> = HashMap::new();
    let resolve = |same: &HashMap<NodeId, NodeId>, id: NodeId| same.get(&id).copied().unwrap_or(id);
    for id in planned.graph.topological_order()? {
        let node = planned.graph.node_mut(id);
        node.inputs.iter_mut().for_each(|input| input.node = resolve(&same, input.node));
        if let Some(key) = key_of(&planned.graph, id) {
            let known = *first.entry(key).or_insert(id);
            if known != id {
                same.insert(id, known);
            }
        }
    }
    let ids: Vec<NodeId> = planned.graph.ids().collect();
    for id in ids {
        // Back edges of loops and control edges were not rewritten above.
        let node = planned.graph.node_mut(id);
        node.inputs.iter_mut().for_each(|input| input.node = resolve(&same, input.node));
        node.controls.iter_mut().for_each(|control| *control = resolve(&same, *control));
        node.controls.sort();
        node.controls.dedup();
    }
    planned.fetches.iter_mut().for_each(|fetch| fetch.node = resolve(&same, fetch.node));
    planned.targets.iter_mut().for_each(|target| *target = resolve(&same, *target));
    Ok(planned)
}

/// The key that is equal for nodes that compute the same; `None` if the node may not be merged.
fn key_of(graph: &Graph, id: NodeId) -> Option<Key> {
    let node = graph.node(id);
    let data = &node.data;
    if !node.controls.is_empty() || data.is_stateful() {
        return None;
    }
    let mut attrs = Vec::new();
    match &data.kind {
        NodeKind::Constant(value) if value.dtype().is_plain() && value.byte_size() <= MAX_COMPARED_BYTES => {
            attrs.push(value.dtype() as u8);
            value.shape().iter().for_each(|dim| attrs.extend(dim.to_le_bytes()));
            attrs.push(u8::MAX);
            attrs.extend_from_slice(value.bytes().ok()?);
        }
        NodeKind::Op(_)
            if matches!(data.class(), OpClass::Plain | OpClass::Identity) && !node.inputs.is_empty() =>
        {
            for (name, value) in data.attrs.map() {
                attrs.extend_from_slice(name.as_bytes());
                attrs.push(0);
                attrs.extend(prost::Message::encode_to_vec(value));
            }
        }
        _ => return None,
    }
    // References, resources and variants may refer to state that changes between two reads.
    let plain =
        |(dtype, is_ref): &(DType, bool)| !is_ref && *dtype != DType::Resource && *dtype != DType::Variant;
    if !data.input_types.iter().chain(&data.output_types).all(plain) {
        return None;
    }
    // Two reads of a reference may give different values.
    let from_ref = |input: &Output| graph.node(input.node).data.output_types[input.index as usize].1;
    if node.inputs.iter().any(from_ref) {
        return None;
    }
    Some(Key {
        op: data.op_name().to_owned(),
        device: data.device.clone(),
        attrs,
        inputs: node.inputs.clone(),
    })
}
