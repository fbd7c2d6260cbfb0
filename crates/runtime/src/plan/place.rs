//! Placement: chooses the device of every node, as stock does, when a session's graph is created or extended, before
//! any plan is made.
//!
//! Nodes that must be together form groups: those connected by a reference or a resource, and those that the user
//! colocated. A group goes to a device that satisfies all device specifications in it: the default device if possible,
//! else one of the same task, else the first by name. Sources without inputs go to their consumers, and ops that only
//! use a shape go to their input.

mod groups;
#[cfg(test)]
mod tests;

use super::lower::{Lowered, lower};
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::graph::{Graph, Node, NodeKind};
use ferroflow_core::op::OpClass;
use ferroflow_core::{Code, Result, bail};
use ferroflow_proto::tensorflow::NameAttrList;
use groups::Groups;

/// The devices that a session may use.
pub struct Placer<'a> {
    /// Full device names.
    pub devices: &'a [DeviceSpec],
    /// The device for unconstrained nodes: an index into `devices`.
    pub default: usize,
    /// True if a device type or index that does not exist is replaced by one that does (soft placement).
    pub soft: bool,
    /// True if function calls are inlined even if there is only one device, as stock's optimizer does.
    pub inline_calls: bool,
}

impl Placer<'_> {
    /// Sets the device of every node from `first` on; earlier nodes have theirs. First, conditionals and loops that the
    /// client marked are lowered, and function calls are inlined if there are several devices, since their nodes may
    /// belong on different devices.
    pub fn place(&self, graph: &mut Graph, first: usize) -> Result<()> {
        let calls = self.inline_calls || self.devices.len() > 1;
        lower(graph, first, if calls { Lowered::AsMarked } else { Lowered::Marked })?;
        for id in graph.ids().skip(first) {
            check_runs(graph, graph.node(id))?;
        }
        let order = graph.topological_order()?;
        let mut groups = Groups::new(self, graph, first)?;
        groups.join_references(graph, &order)?;
        groups.join_classes(graph)?;
        let mut placed: Vec<Option<usize>> = vec![None; graph.node_count()];
        for id in graph.ids().take(first) {
            placed[id.index()] = self.position(&graph.node(id).data.device);
        }
        let consumers = graph.consumers();
        let new = || order.iter().filter(|id| id.index() >= first);
        for id in new().filter(|id| !is_source(graph.node(**id))) {
            let input = graph.node(*id).inputs.first().filter(|_| is_metadata(graph.node(*id)));
            let preferred = input.and_then(|input| placed[input.node.index()]);
            placed[id.index()] = Some(groups.assign(graph, *id, preferred)?);
        }
        for id in new().filter(|id| is_source(graph.node(**id))) {
            let mut users = consumers[id.index()].iter().map(|user| placed[user.index()]);
            let preferred = users.next().flatten().filter(|first| users.all(|user| user == Some(*first)));
            placed[id.index()] = Some(groups.assign(graph, *id, preferred)?);
        }
        let names: Vec<String> = self.devices.iter().map(DeviceSpec::to_string).collect();
        for id in graph.ids().skip(first) {
            let device = placed[id.index()].expect("every node has been placed above");
            graph.set_device(id, &names[device]);
        }
        Ok(())
    }

    fn position(&self, device: &str) -> Option<usize> {
        let spec = DeviceSpec::parse(device).ok()?;
        self.devices.iter().position(|known| *known == spec)
    }
}

/// Refuses a node that no device of stock could run. A node that is only unsupported here is refused when a step needs
/// it: it may never run, or another task may run it.
fn check_runs(graph: &Graph, node: &Node) -> Result<()> {
    let data = &node.data;
    let refused = match &data.kind {
        NodeKind::Op(entry) if !data.class().runs_without_kernel() => {
            entry.kernel(&data.name, &data.attrs).err()
        }
        NodeKind::Unsupported(spec) => {
            Some(graph.registry().refuse_unsupported(spec, &data.name, &data.attrs))
        }
        _ => None,
    };
    if let Some(error) = refused.filter(|error| error.code() != Code::Unimplemented) {
        return Err(error);
    }
    if data.class() == OpClass::Call
        && let Ok(function) = data.attrs.get::<NameAttrList>("f")
        && graph.library().get(&function.name).is_none()
    {
        bail!(InvalidArgument, "Failed to find function \"{}\" in function library", function.name);
    }
    Ok(())
}

/// Returns whether the node has no inputs and one output.
fn is_source(node: &Node) -> bool {
    node.inputs.is_empty() && matches!(node.data.output_types[..], [(_, false)])
}

fn is_metadata(node: &Node) -> bool {
    matches!(&node.data.kind, NodeKind::Op(entry) if entry.op.metadata)
}
