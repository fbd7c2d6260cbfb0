//! Moves switches, exits and loop entries to other devices, as stock does, so that less data crosses.

use ferroflow_core::Result;
use ferroflow_core::graph::{Graph, NodeId};
use ferroflow_core::op::OpClass;

/// Moves switches and exits to the device of their data, and nodes that begin an iteration to the device of their
/// consumers.
pub(super) fn move_borders(graph: &mut Graph) -> Result<()> {
    let order = graph.topological_order()?;
    for id in &order {
        let node = graph.node(*id);
        if matches!(node.data.class(), OpClass::Switch | OpClass::Exit) {
            let source = node.inputs[0].node;
            move_to(graph, *id, source);
        }
    }
    let consumers = graph.consumers();
    for id in order.iter().rev() {
        let data = &graph.node(*id).data;
        let by_reference = data.input_types.iter().any(|(_, is_ref)| *is_ref);
        let begins = matches!(data.class(), OpClass::Enter | OpClass::NextIteration);
        let users = &consumers[id.index()];
        let used_here = users.iter().any(|user| graph.node(*user).data.device == data.device);
        if begins
            && !by_reference
            && !used_here
            && let Some(user) = users.first()
        {
            move_to(graph, *id, *user);
        }
    }
    Ok(())
}

fn move_to(graph: &mut Graph, id: NodeId, other: NodeId) {
    let device = graph.node(other).data.device.clone();
    if graph.node(id).data.device != device {
        graph.set_device(id, &device);
    }
}
