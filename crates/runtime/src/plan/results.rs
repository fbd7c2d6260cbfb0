//! Devices of a function's results. A result stays where the function says that it is made, as in stock: the client is
//! told, and takes it from there.

use super::place::Placer;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::graph::{FunctionBody, Graph, Node, NodeKind, Output};
use ferroflow_core::op::OpClass;
use ferroflow_core::{DType, Result, bail};

/// The device of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultPlace {
    /// The device that the function runs on.
    Default,
    /// The device of the node that makes it, wherever that is placed.
    Source,
    /// A device of the placer.
    Device(usize),
}

/// Chooses the devices of a function's results before its nodes are placed, by what the nodes ask for.
pub(super) fn place_results(body: &FunctionBody, placer: &Placer<'_>) -> Result<Vec<ResultPlace>> {
    body.returns.iter().map(|output| place_result(&body.graph, *output, placer)).collect()
}

fn place_result(graph: &Graph, output: Output, placer: &Placer<'_>) -> Result<ResultPlace> {
    let (dtype, _) = graph.node(output.node).data.output_types[output.index as usize];
    let mut source = graph.node(output.node);
    while source.data.device.is_empty() && !is_colocated(source) && source.data.class() == OpClass::Identity {
        let Some(input) = source.inputs.first() else { break };
        source = graph.node(input.node);
    }
    if is_colocated(source) {
        return Ok(ResultPlace::Source);
    }
    let is_arg = matches!(source.data.kind, NodeKind::Arg(_));
    match dtype {
        // The placer knows where the resource is.
        DType::Resource if source.data.device.is_empty() || source.data.class() == OpClass::Call => {
            return Ok(ResultPlace::Source);
        }
        DType::Variant if !is_arg => return Ok(ResultPlace::Default),
        _ if source.data.device.is_empty() => return Ok(ResultPlace::Default),
        _ => {}
    }
    let text = &source.data.device;
    let Ok(wanted) = DeviceSpec::parse(text) else {
        bail!(InvalidArgument, "Failed to parse explicit device specification {text}")
    };
    let fits = |device: &&DeviceSpec| wanted.matches(device);
    let mut matching = placer.devices.iter().enumerate().filter(|(_, device)| fits(device));
    let Some((index, first)) = matching.next() else { return Ok(ResultPlace::Default) };
    let task = first.task_part();
    let Some((_, second)) = matching.next() else { return Ok(ResultPlace::Device(index)) };
    // Of several devices of one task any is right.
    if task.matches(second) && matching.all(|(_, device)| task.matches(device)) {
        return Ok(ResultPlace::Default);
    }
    let own = placer.devices[placer.default].task_part();
    let matching = || placer.devices.iter().filter(fits);
    if matching().filter(|device| own.matches(device)).count() == 1 {
        return Ok(ResultPlace::Default);
    }
    let names: Vec<String> = matching().map(DeviceSpec::to_string).collect();
    bail!(
        InvalidArgument,
        "{text}When FunctionLibraryRuntime::Options.output_devices are not specified for a multi-device function, the \
         device specification on the output node must match exactly one device. Matched devices are [{}]",
        names.join(", ")
    )
}

fn is_colocated(node: &Node) -> bool {
    node.data.attrs.has("_class")
}
