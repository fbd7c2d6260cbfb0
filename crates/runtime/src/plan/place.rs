//! Which device runs which node.

use ferroflow_core::device::DeviceSpec;
use ferroflow_core::graph::{Graph, NodeData, NodeKind};
use ferroflow_core::op::OpClass;
use ferroflow_core::{Result, bail, status};
use ferroflow_proto::tensorflow::NameAttrList;

/// The devices that a session may use.
pub struct Placer<'a> {
    /// Full names.
    pub devices: &'a [DeviceSpec],
    /// Where unconstrained nodes go: a position in `devices`.
    pub default: usize,
    /// Whether a device type that does not exist is replaced by one that does.
    pub soft: bool,
}

impl Placer<'_> {
    /// Gives every node from `first` on the full name of its device; earlier nodes have theirs.
    pub fn place(&self, graph: &mut Graph, first: usize) -> Result<()> {
        let names: Vec<String> = self.devices.iter().map(DeviceSpec::to_string).collect();
        for id in graph.ids().skip(first) {
            let device = self.place_node(graph, &graph.node(id).data)?;
            graph.set_device(id, &names[device]);
        }
        Ok(())
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
        let exact = self.best(wanted);
        if exact.is_some() || !self.soft { exact } else { self.best(&wanted.task_part()) }
    }

    fn best(&self, wanted: &DeviceSpec) -> Option<usize> {
        if wanted.matches(&self.devices[self.default]) {
            return Some(self.default);
        }
        self.devices.iter().position(|device| wanted.matches(device))
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
