//! Colocation groups: a union-find over nodes that must be on one device, with the device constraints of each group.

use super::Placer;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::graph::{Graph, Node, NodeData, NodeId};
use ferroflow_core::op::{AttrKind, OpClass};
use ferroflow_core::{DType, Result, Status, bail, status};
use ferroflow_proto::tensorflow::attr_value::Value;
use std::collections::HashMap;
use std::fmt::Write;

pub(super) struct Groups<'a> {
    placer: &'a Placer<'a>,
    groups: Vec<Group>,
    /// Indices of the devices, in the order of preference.
    preference: Vec<usize>,
    /// The device chosen for each specification, cached.
    found: HashMap<DeviceSpec, Option<usize>>,
}

/// The constraints of a group; stored at its root.
#[derive(Default)]
struct Group {
    parent: u32,
    rank: u32,
    /// The device of members that have been placed already.
    assigned: DeviceSpec,
    /// The request of members that create a variable or a resource; others follow it.
    resource: DeviceSpec,
    /// The request of all members together, including the other two.
    requested: DeviceSpec,
}

impl<'a> Groups<'a> {
    /// Makes a group for every node. Nodes before `first` have been placed.
    pub(super) fn new(placer: &'a Placer<'a>, graph: &Graph, first: usize) -> Result<Groups<'a>> {
        let mut parsed: HashMap<&str, DeviceSpec> = HashMap::new();
        let mut groups = Vec::with_capacity(graph.node_count());
        for (i, node) in graph.nodes().iter().enumerate() {
            let text = node.data.device.as_str();
            if !parsed.contains_key(text) {
                parsed.insert(text, parse(&node.data)?);
            }
            let requested = parsed[text].clone();
            let assigned = if i < first { requested.clone() } else { DeviceSpec::default() };
            let resource = if makes_resource(node) { requested.clone() } else { DeviceSpec::default() };
            groups.push(Group { parent: i as u32, rank: 0, assigned, resource, requested });
        }
        let mut preference: Vec<usize> = (0..placer.devices.len()).collect();
        let default_task = placer.devices.get(placer.default).map(DeviceSpec::task_part);
        preference.sort_by_cached_key(|i| {
            let device = &placer.devices[*i];
            let elsewhere = default_task.as_ref().is_none_or(|task| !task.matches(device));
            (*i != placer.default, elsewhere, device.to_string())
        });
        Ok(Groups { placer, groups, preference, found: HashMap::new() })
    }

    /// Joins nodes with the variables and resources that they take by reference or handle.
    pub(super) fn join_references(&mut self, graph: &Graph, order: &[NodeId]) -> Result<()> {
        for id in order {
            let node = graph.node(*id);
            for (input, (dtype, is_ref)) in node.inputs.iter().zip(&node.data.input_types) {
                let joined = match dtype {
                    _ if *is_ref => true,
                    DType::Resource => !only_passes_resources(&node.data),
                    DType::Variant => makes_dataset(graph.node(input.node)) && makes_dataset(node),
                    _ => false,
                };
                if joined {
                    self.follow(graph, input.node, *id)?;
                }
            }
        }
        Ok(())
    }

    /// Joins nodes that name each other in the `_class` attribute.
    pub(super) fn join_classes(&mut self, graph: &Graph) -> Result<()> {
        let mut roots: HashMap<String, NodeId> = HashMap::new();
        for id in graph.ids() {
            let data = &graph.node(id).data;
            let classes: Vec<String> = if data.attrs.has("_class") {
                data.attrs.get("_class").unwrap_or_default()
            } else {
                Vec::new()
            };
            let named = classes.iter().filter_map(|class| class.strip_prefix("loc:@"));
            for name in named.chain([data.name.as_str()]) {
                let Some(root) = roots.get(name) else {
                    roots.insert(name.to_owned(), id);
                    continue;
                };
                match self.join(graph, id, *root) {
                    // With soft placement, a colocation that cannot be satisfied is dropped, as in stock.
                    Err(_) if self.placer.soft => {}
                    Err(error) => return Err(with_node(&data.name, error)),
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    /// Chooses a device for a node, `preferred` if its group allows it, and binds the group to the device.
    pub(super) fn assign(&mut self, graph: &Graph, id: NodeId, preferred: Option<usize>) -> Result<usize> {
        let root = self.root(id);
        let requested = self.groups[root].requested.clone();
        let exact = |device: &usize| requested.matches(&self.placer.devices[*device]);
        let device =
            preferred.filter(exact).or_else(|| self.find(&requested)).or_else(|| self.find_softly(root));
        let Some(device) = device else {
            return Err(self.no_device_error(graph, id));
        };
        let group = &mut self.groups[root];
        let spec = &self.placer.devices[device];
        group.assigned = group.assigned.overridden_by(spec);
        group.resource = group.resource.overridden_by(spec);
        group.requested = group.requested.overridden_by(spec);
        Ok(device)
    }

    /// The device for a specification: the default one if it matches, else another of its task, else the first by name.
    fn find(&mut self, wanted: &DeviceSpec) -> Option<usize> {
        if let Some(known) = self.found.get(wanted) {
            return *known;
        }
        let found = self.preference.iter().copied().find(|i| wanted.matches(&self.placer.devices[*i]));
        self.found.insert(wanted.clone(), found);
        found
    }

    /// A device of the same task if type and index may be changed; the request of resources is kept if possible.
    fn find_softly(&mut self, root: usize) -> Option<usize> {
        if !self.placer.soft {
            return None;
        }
        let group = &self.groups[root];
        let loosened = |fixed: &[&DeviceSpec]| {
            let mut wanted = group.requested.clone();
            if fixed.iter().all(|spec| spec.kind.is_none()) {
                wanted.kind = None;
            }
            if fixed.iter().all(|spec| spec.index.is_none()) {
                wanted.index = None;
            }
            wanted
        };
        let (kept, changed) = (loosened(&[&group.assigned, &group.resource]), loosened(&[&group.assigned]));
        self.find(&kept).or_else(|| self.find(&changed))
    }

    /// Joins a node with the one that it takes a variable or resource from; the former's request yields.
    fn follow(&mut self, graph: &Graph, source: NodeId, target: NodeId) -> Result<()> {
        let (from, to) = (self.root(source), self.root(target));
        let (source_data, target_data) = (&graph.node(source).data, &graph.node(target).data);
        let (source_group, target_group) = (&self.groups[from], &self.groups[to]);
        refuse_conflict(
            "assigned",
            &source_group.assigned,
            &target_group.assigned,
            (source_data, target_data),
        )?;
        refuse_conflict(
            "resource",
            &source_group.resource,
            &target_group.resource,
            (source_data, target_data),
        )?;
        if !source_group.requested.is_compatible(&target_group.requested) {
            let requested = source_group.requested.overridden_by(&target_group.assigned);
            self.groups[to].requested = requested.overridden_by(&self.groups[to].resource);
        }
        self.join(graph, source, target).map_err(|error| {
            with_node(
                &target_data.name,
                status!(
                    InvalidArgument,
                    "Nodes were connected by a reference connection (requiring them to be on the same device), but the \
                     two nodes were assigned two different devices: {}",
                    error.message()
                ),
            )
        })
    }

    fn join(&mut self, graph: &Graph, x: NodeId, y: NodeId) -> Result<()> {
        let (x_root, y_root) = (self.root(x), self.root(y));
        if x_root == y_root {
            return Ok(());
        }
        let (x_rank, y_rank) = (self.groups[x_root].rank, self.groups[y_root].rank);
        let (new, old) = if x_rank < y_rank { (y_root, x_root) } else { (x_root, y_root) };
        let (kept, gone) = (&self.groups[new], &self.groups[old]);
        let merged = || -> Result<(DeviceSpec, DeviceSpec, DeviceSpec)> {
            let assigned = kept.assigned.merge(&gone.assigned, false)?;
            let resource = kept.resource.merge(&gone.resource, false)?;
            let requested = kept.requested.merge(&gone.requested, self.placer.soft)?;
            let requested = requested.overridden_by(&assigned).overridden_by(&resource);
            Ok((assigned, resource, requested))
        };
        let (assigned, resource, requested) = merged().map_err(|error| {
            status!(
                InvalidArgument,
                "Cannot colocate nodes {{{{colocation_node {}}}}} and {{{{colocation_node {}}}}}: {}",
                graph.node(x).data.name,
                graph.node(y).data.name,
                error.message()
            )
        })?;
        self.groups[old].parent = new as u32;
        let group = &mut self.groups[new];
        (group.assigned, group.resource, group.requested) = (assigned, resource, requested);
        group.rank += u32::from(x_rank == y_rank);
        Ok(())
    }

    fn root(&mut self, id: NodeId) -> usize {
        let mut node = id.index();
        while self.groups[node].parent as usize != node {
            let above = self.groups[node].parent as usize;
            self.groups[node].parent = self.groups[above].parent;
            node = above;
        }
        node
    }

    /// The error for a node without a possible device, in stock's words.
    fn no_device_error(&mut self, graph: &Graph, id: NodeId) -> Status {
        let data = &graph.node(id).data;
        let root = self.root(id);
        let requested = self.groups[root].requested.clone();
        let mut devices: Vec<String> = self.placer.devices.iter().map(DeviceSpec::to_string).collect();
        devices.sort();
        let devices = devices.join(", ");
        let name = &data.name;
        if parse(data).is_ok_and(|own| own == requested) {
            let hint = match requested.kind.as_deref() {
                Some("GPU") => " The requested device appears to be a GPU, but CUDA is not enabled.",
                _ => "",
            };
            return status!(
                InvalidArgument,
                "Cannot assign a device for operation {name}: {{{{node {name}}}}} was explicitly assigned to {} but \
                 available devices are [ {devices} ]. Make sure the device specification refers to a valid \
                 device.{hint}\n\t [[{name}]]",
                data.device
            );
        }
        let mut members = String::new();
        for member in graph.ids() {
            if self.root(member) == root {
                let data = &graph.node(member).data;
                let _ = write!(members, "\n  {} ({}) {}", data.name, data.op_name(), data.device);
            }
        }
        let error = status!(
            InvalidArgument,
            "Cannot assign a device for operation {name}: Could not satisfy explicit device specification '{}' because \
             the node {{{{colocation_node {name}}}}} was colocated with a group of nodes that required incompatible \
             device '{requested}'. All available devices [{devices}]. \nColocation members, user-requested devices, and \
             framework assigned devices, if any:{members}\n",
            data.device
        );
        with_node(name, error)
    }
}

fn refuse_conflict(
    what: &str,
    source: &DeviceSpec,
    target: &DeviceSpec,
    (from, to): (&NodeData, &NodeData),
) -> Result<()> {
    if source.is_compatible(target) {
        return Ok(());
    }
    bail!(
        InvalidArgument,
        "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible \
         {what} devices: {source} vs {target}. The edge src node is name='{}' (op='{}'), and the dst node is name='{}' \
         (op='{}').",
        from.name,
        from.op_name(),
        to.name,
        to.op_name()
    )
}

fn parse(data: &NodeData) -> Result<DeviceSpec> {
    DeviceSpec::parse(&data.device).map_err(|_| {
        with_node(
            &data.name,
            status!(
                InvalidArgument,
                "Malformed device specification '{}' in node: {{{{node {}}}}}",
                data.device,
                data.name
            ),
        )
    })
}

fn with_node(node: &str, error: Status) -> Status {
    error.map_message(|text| format!("{text}\n\t [[{{{{node {node}}}}}]]"))
}

/// Returns whether the node creates a variable or a resource handle without inputs.
fn makes_resource(node: &Node) -> bool {
    let resource = |(dtype, is_ref): (DType, bool)| is_ref || dtype == DType::Resource;
    node.inputs.is_empty() && matches!(node.data.output_types[..], [output] if resource(output))
}

/// Returns whether the node only passes resources on: to a function that runs later and elsewhere, or as a list of
/// values that may come from any device.
fn only_passes_resources(data: &NodeData) -> bool {
    if data.class() == OpClass::Identity && matches!(data.attrs.raw("T"), Some(Value::List(_))) {
        return true;
    }
    data.class() != OpClass::Call
        // Its function runs now, and only the device of a resource without a name knows that resource.
        && data.op_name() != "RemoteCall"
        && data.spec().is_some_and(|spec| spec.attrs.iter().any(|attr| attr.kind == AttrKind::Func))
}

/// Returns whether the node creates a dataset; datasets do not cross devices.
fn makes_dataset(node: &Node) -> bool {
    let attrs = &node.data.attrs;
    let described = attrs.has("output_types") && attrs.has("output_shapes");
    described && matches!(node.data.output_types[..], [(DType::Variant, false)])
}
