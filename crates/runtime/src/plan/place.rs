//! Which device runs which node.

use ferroflow_core::device::DeviceSpec;
use ferroflow_core::graph::{Graph, NodeData, NodeKind};
use ferroflow_core::op::OpClass;
use ferroflow_core::{Result, bail, status};
use ferroflow_proto::tensorflow::NameAttrList;

/// The devices that a session may use; the first is where unconstrained nodes go.
pub struct Placer<'a> {
    /// Full names.
    pub devices: &'a [DeviceSpec],
    /// Whether a device type that does not exist is replaced by one that does.
    pub soft: bool,
}

impl Placer<'_> {
    /// The device of every node from `first` on, as a position in `devices`, or why a node has none.
    pub fn place(&self, graph: &Graph, first: usize) -> Result<Vec<usize>> {
        let nodes = graph.nodes().iter().skip(first);
        nodes.map(|node| self.place_node(graph, &node.data)).collect()
    }

    fn place_node(&self, graph: &Graph, data: &NodeData) -> Result<usize> {
        let wanted = DeviceSpec::parse(&data.device).map_err(|_| {
            status!(
                InvalidArgument,
                "Malformed device specification '{}' in node: {{{{node {}}}}}",
                data.device,
                data.name
            )
        })?;
        let device = match self.find(&wanted) {
            Some(device) => device,
            None => bail!(
                InvalidArgument,
                "Cannot assign a device for operation {name}: {{{{node {name}}}}} was explicitly assigned to {} but \
                 available devices are [ {} ]. Make sure the device specification refers to a valid device.\n\t \
                 [[{name}]]",
                data.device,
                self.devices.iter().map(DeviceSpec::to_string).collect::<Vec<_>>().join(", "),
                name = data.name
            ),
        };
        if let NodeKind::Op(entry) = &data.kind
            && !runs_without_kernel(data.class())
        {
            entry.kernel(&data.name, &data.attrs)?;
        }
        if data.class() == OpClass::Call
            && let Ok(function) = data.attrs.get::<NameAttrList>("f")
            && graph.library().get(&function.name).is_none()
        {
            bail!(InvalidArgument, "Failed to find function \"{}\" in function library", function.name);
        }
        Ok(device)
    }

    fn find(&self, wanted: &DeviceSpec) -> Option<usize> {
        let exact = self.devices.iter().position(|device| wanted.matches(device));
        if exact.is_some() || !self.soft {
            return exact;
        }
        self.devices.iter().position(|device| wanted.task_part().matches(device))
    }
}

fn runs_without_kernel(class: OpClass) -> bool {
    use OpClass::*;
    matches!(
        class,
        Switch
            | RefSwitch
            | Merge
            | RefMerge
            | Enter
            | Exit
            | NextIteration
            | ControlTrigger
            | Identity
            | Arg
            | Retval
    )
}
