//! Partitioning, after planning: cuts a placed plan at device borders, where each crossing edge becomes a send and a
//! receive. Handing the parts to their tasks is the cluster's job.
//!
//! An output crosses once per receiving device, however many consumers it has there; a control edge crosses as an empty
//! tensor. Small constants are copied instead of sent. A loop whose nodes are on several devices gets a skeleton on
//! each of them (see `skeleton`).

mod crossing;
mod movable;
mod skeleton;
#[cfg(test)]
mod tests;

use super::Planned;
use crate::exec::layout::{FrameAssignment, assign_frames};
use crossing::Crossing;
use ferroflow_core::graph::{Graph, Node, NodeData, NodeId, NodeKind, Output};
use ferroflow_core::op::OpClass;
use ferroflow_core::{Result, ensure};
use skeleton::Skeleton;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Constants of up to this many bytes are copied to the device that needs them.
const MAX_COPIED_BYTES: usize = 1024;

/// The cluster and session information that partitioning needs.
pub struct Borders<'a> {
    /// Full name of the client device, which has the feeds and fetches.
    pub client: &'a str,
    /// The incarnation of a device.
    pub incarnation: &'a dyn Fn(&str) -> u64,
    /// The counter for nodes and edges that partitioning adds, so that their names are unique within a session.
    pub next_id: &'a AtomicU64,
    /// True if floats are sent as bfloat16.
    pub bfloat16: bool,
}

/// The partition of one device.
pub struct Part {
    /// The device's full name.
    pub device: String,
    /// Its nodes, with sends and receives.
    pub graph: Graph,
    /// The fetches that stay on this device, with their numbers in the plan.
    pub fetches: Vec<(usize, Output)>,
}

/// A plan cut at device borders.
pub struct Parts {
    /// The client device's part, with all feeds, and the fetches that no other device keeps.
    pub local: Planned,
    /// The numbers of these fetches in the plan.
    pub local_fetches: Vec<usize>,
    /// The other parts, by device name.
    pub remote: Vec<Part>,
}

/// Cuts a plan into parts. All nodes must have full device names.
pub fn partition(mut planned: Planned, borders: &Borders<'_>) -> Result<Parts> {
    let is_local = |node: &Node| node.data.device == borders.client;
    let all = 0..planned.fetches.len();
    if planned.graph.nodes().iter().all(is_local)
        && all.clone().all(|number| planned.fetch_device(number, borders.client) == borders.client)
    {
        return Ok(Parts { local: planned, local_fetches: all.collect(), remote: Vec::new() });
    }
    movable::move_borders(&mut planned.graph)?;
    let mut cutter = Cutter::new(&planned.graph, borders)?;
    for id in planned.graph.ids() {
        cutter.copy_node(id);
    }
    for id in planned.graph.ids() {
        cutter.connect(id)?;
    }
    let mut fetches: BTreeMap<&str, Vec<(usize, Output)>> = BTreeMap::new();
    for (number, fetch) in planned.fetches.iter().enumerate() {
        let device = planned.fetch_device(number, borders.client);
        let output = cutter.bring(*fetch, device, &[])?;
        fetches.entry(device).or_default().push((number, output));
    }
    let targets = planned.targets.iter().filter(|id| is_local(planned.graph.node(**id)));
    let targets = targets.map(|id| cutter.new_ids[id.index()]).collect();
    let mut parts = cutter.parts;
    let local = parts.remove(borders.client).unwrap_or_else(|| planned.graph.empty_like());
    let (local_fetches, outputs): (Vec<usize>, Vec<Output>) =
        fetches.remove(borders.client).unwrap_or_default().into_iter().unzip();
    let part = |(device, graph): (String, Graph)| {
        let fetches = fetches.remove(&*device).unwrap_or_default();
        Part { device, graph, fetches }
    };
    let remote = parts.into_iter().map(part).collect();
    let fetch_names = local_names(&planned, &local_fetches);
    let local = Planned {
        graph: local,
        fetches: outputs,
        fetch_names,
        fetch_devices: Vec::new(),
        targets,
        ..planned
    };
    Ok(Parts { local, local_fetches, remote })
}

/// Cuts a graph that runs every node, without feeds or fetches, into one part per device.
pub fn split(graph: Graph, borders: &Borders<'_>) -> Result<Vec<Part>> {
    let crosses =
        |node: &Node| node.sources().any(|source| graph.node(source).data.device != node.data.device);
    if !graph.nodes().iter().any(crosses) {
        return Ok(separate(&graph));
    }
    let Parts { local, remote, .. } = partition(Planned::whole(graph), borders)?;
    let local = Part { device: borders.client.to_owned(), graph: local.graph, fetches: Vec::new() };
    Ok([local].into_iter().chain(remote).filter(|part| part.graph.node_count() > 0).collect())
}

/// The parts of a graph without crossing edges, such as one that was partitioned before.
fn separate(graph: &Graph) -> Vec<Part> {
    let mut parts: BTreeMap<&str, Graph> = BTreeMap::new();
    let mut new_ids = Vec::with_capacity(graph.node_count());
    for node in graph.nodes() {
        let part = parts.entry(&node.data.device).or_insert_with(|| graph.empty_like());
        let copy = Node { data: node.data.clone(), inputs: Vec::new(), controls: Vec::new() };
        new_ids.push(part.push(copy));
    }
    for id in graph.ids() {
        let node = graph.node(id);
        let moved = |output: &Output| Output { node: new_ids[output.node.index()], index: output.index };
        let part = parts.get_mut(&*node.data.device).expect("inserted above");
        let copy = part.node_mut(new_ids[id.index()]);
        copy.inputs = node.inputs.iter().map(moved).collect();
        copy.controls = node.controls.iter().map(|control| new_ids[control.index()]).collect();
    }
    let part =
        |(device, graph): (&str, Graph)| Part { device: device.to_owned(), graph, fetches: Vec::new() };
    parts.into_iter().map(part).collect()
}

/// The names of some of a plan's fetches.
fn local_names(planned: &Planned, numbers: &[usize]) -> Vec<String> {
    numbers.iter().filter_map(|number| planned.fetch_names.get(*number).cloned()).collect()
}

struct Cutter<'a> {
    graph: &'a Graph,
    borders: &'a Borders<'a>,
    frames: FrameAssignment,
    /// The device of each loop frame whose nodes are all on one device.
    only: Vec<Option<&'a str>>,
    parts: BTreeMap<String, Graph>,
    /// The id of each node within its device's part.
    new_ids: Vec<NodeId>,
    /// Outputs that have crossed, by output, the nodes it waited for, and receiving device.
    received: HashMap<(Output, Vec<NodeId>, String), Output>,
    /// Control edges that have crossed together, by source nodes and receiving device.
    received_controls: HashMap<(Vec<NodeId>, String), NodeId>,
    /// Copies of constants and of nodes that begin an iteration, by device.
    copies: HashMap<(NodeId, String), NodeId>,
    /// Loop skeletons, by frame and device.
    skeletons: HashMap<(u32, String), Skeleton>,
}

impl<'a> Cutter<'a> {
    fn new(graph: &'a Graph, borders: &'a Borders<'a>) -> Result<Cutter<'a>> {
        let frames = assign_frames(graph)?;
        Ok(Cutter {
            graph,
            borders,
            only: skeleton::only_devices(graph, &frames),
            frames,
            parts: BTreeMap::new(),
            new_ids: Vec::with_capacity(graph.node_count()),
            received: HashMap::new(),
            received_controls: HashMap::new(),
            copies: HashMap::new(),
            skeletons: HashMap::new(),
        })
    }

    fn part(&mut self, device: &str) -> &mut Graph {
        if !self.parts.contains_key(device) {
            self.parts.insert(device.to_owned(), self.graph.empty_like());
        }
        self.parts.get_mut(device).expect("inserted above")
    }

    fn add(&mut self, data: NodeData, inputs: Vec<Output>, controls: Vec<NodeId>) -> NodeId {
        let device = data.device.clone();
        self.part(&device).push(Node { data: Arc::new(data), inputs, controls })
    }

    /// A name that is unique within the session, and the number in it.
    fn fresh_name(&self, prefix: &str) -> (String, u64) {
        loop {
            let number = self.borders.next_id.fetch_add(1, Ordering::Relaxed);
            let name = format!("{prefix}_S{number}");
            if self.graph.find(&name).is_none() {
                return (name, number);
            }
        }
    }

    fn copy_node(&mut self, id: NodeId) {
        let data = self.graph.node(id).data.clone();
        let device = data.device.clone();
        let new = self.part(&device).push(Node { data, inputs: Vec::new(), controls: Vec::new() });
        self.new_ids.push(new);
    }

    fn connect(&mut self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        let device = &node.data.device;
        for (input, (_, wants_ref)) in node.inputs.iter().zip(&node.data.input_types) {
            let source = &self.graph.node(input.node).data;
            ensure!(
                !wants_ref || source.device == *device,
                InvalidArgument,
                "{} on {device} needs a reference to {}, which is on {}: a reference does not cross devices",
                format_args!("{{{{node {}}}}}", node.data.name),
                format_args!("{{{{node {}}}}}", source.name),
                source.device
            );
        }
        // Devices that share a loop iterate together, whether or not they receive anything in it.
        self.skeleton(self.frames.of(id), device)?;
        let (inputs, controls) = self.bring_edges(node, device)?;
        let new = self.new_ids[id.index()];
        let copy = self.part(device).node_mut(new);
        copy.inputs = inputs;
        copy.controls = controls;
        Ok(())
    }

    /// The inputs and control inputs of a node on `device`.
    fn bring_edges(&mut self, node: &Node, device: &str) -> Result<(Vec<Output>, Vec<NodeId>)> {
        let inputs: Result<Vec<Output>> =
            node.inputs.iter().map(|input| self.bring(*input, device, &node.controls)).collect();
        Ok((inputs?, self.bring_controls(&node.controls, device)?))
    }

    /// The output as seen on `device`: itself, or received there. A node reads a reference when it runs, so a reference
    /// that crosses is read after the nodes in `controls`.
    fn bring(&mut self, output: Output, device: &str, controls: &[NodeId]) -> Result<Output> {
        let source = &self.graph.node(output.node).data;
        let local = Output { node: self.new_ids[output.node.index()], index: output.index };
        if source.device == device {
            return Ok(local);
        }
        if let Some(copy) = self.copy(output.node, device)? {
            return Ok(Output { node: copy, index: output.index });
        }
        let (dtype, is_ref) = source.output_types[output.index as usize];
        let controls = if is_ref { controls } else { &[] };
        let key = (output, controls.to_vec(), device.to_owned());
        if let Some(known) = self.received.get(&key) {
            return Ok(*known);
        }
        let after = self.bring_controls(controls, &source.device)?;
        let frame = self.frames.after(self.graph, output.node);
        let from =
            Crossing { node: &source.name, device: &source.device, output: local, after, dtype, frame };
        let here = self.cross(&from, device)?;
        self.received.insert(key, here);
        Ok(here)
    }

    /// Control inputs on `device` that stand for these nodes. Nodes of one device cross together.
    fn bring_controls(&mut self, ids: &[NodeId], device: &str) -> Result<Vec<NodeId>> {
        let mut here = Vec::with_capacity(ids.len());
        let mut elsewhere: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
        for id in ids {
            let source = &self.graph.node(*id).data;
            if source.device == device {
                here.push(self.new_ids[id.index()]);
            } else if let Some(copy) = self.copy(*id, device)? {
                here.push(copy);
            } else {
                elsewhere.entry(&source.device).or_default().push(*id);
            }
        }
        for sources in elsewhere.into_values() {
            let key = (sources, device.to_owned());
            let node = match self.received_controls.get(&key) {
                Some(known) => *known,
                None => {
                    let node = self.cross_controls(&key.0, device)?;
                    self.received_controls.insert(key, node);
                    node
                }
            };
            here.push(node);
        }
        Ok(here)
    }

    /// A copy of the node on `device`, if it is copied rather than sent.
    fn copy(&mut self, id: NodeId, device: &str) -> Result<Option<NodeId>> {
        let graph = self.graph;
        let node = graph.node(id);
        let small = matches!(&node.data.kind, NodeKind::Constant(value)
            if value.dtype().is_plain() && value.byte_size() <= MAX_COPIED_BYTES);
        // These have a value in some iterations only, so a receive in every iteration would wait forever.
        let begins = matches!(node.data.class(), OpClass::Enter | OpClass::NextIteration);
        if !small && !begins {
            return Ok(None);
        }
        let key = (id, device.to_owned());
        if let Some(known) = self.copies.get(&key) {
            return Ok(Some(*known));
        }
        let data = NodeData { name: self.fresh_name(&node.data.name).0, ..node.data.on_device(device) };
        let copy = self.add(data, Vec::new(), Vec::new());
        self.copies.insert(key, copy);
        self.skeleton(self.frames.of(id), device)?;
        let (inputs, controls) = self.bring_edges(node, device)?;
        let added = self.part(device).node_mut(copy);
        added.inputs = inputs;
        added.controls = controls;
        Ok(Some(copy))
    }
}
