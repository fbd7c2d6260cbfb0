//! Skeletons of loops whose nodes are on several devices.
//!
//! Every such device gets a loop that carries no value: enter, merge, switch and next iteration, driven by the
//! predicate that the device with the loop's condition sends in every iteration. The skeleton's merge runs once in
//! every iteration of the real loop, so a receive with a control edge from it runs in the right frame and iteration.
//! The frame has the real loop's name, from which all tasks compute the same frame id.

use super::Cutter;
use crate::exec::layout::FrameAssignment;
use ferroflow_core::attr::Attrs;
use ferroflow_core::graph::{Graph, NodeData, NodeId, NodeKind, Output};
use ferroflow_core::op::OpClass;
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure};
use ferroflow_proto::tensorflow::attr_value::Value;

/// The skeleton of a loop on one device.
pub(super) struct Skeleton {
    /// The merge, which runs once in every iteration.
    merge: NodeId,
}

/// For every frame, the device of its nodes if they are all on one.
pub(super) fn only_devices<'a>(graph: &'a Graph, frames: &FrameAssignment) -> Vec<Option<&'a str>> {
    let mut only: Vec<Option<&str>> = vec![None; frames.layouts.len()];
    let mut several = vec![false; frames.layouts.len()];
    for id in graph.ids() {
        let device = graph.node(id).data.device.as_str();
        // The output of an inner loop's exit is in the outer loop.
        for frame in [frames.of(id), frames.after(graph, id)] {
            let known = *only[frame as usize].get_or_insert(device);
            several[frame as usize] |= known != device;
        }
    }
    only.into_iter().zip(several).map(|(only, several)| only.filter(|_| !several)).collect()
}

impl Cutter<'_> {
    /// A node that runs once in every iteration of a frame on `device`; `None` if none is needed: outside loops, and in
    /// loops on one device.
    pub(super) fn skeleton(&mut self, frame: u32, device: &str) -> Result<Option<NodeId>> {
        if frame == 0 {
            return Ok(None);
        }
        let key = (frame, device.to_owned());
        if let Some(known) = self.skeletons.get(&key) {
            return Ok(Some(known.merge));
        }
        if self.only[frame as usize] == Some(device) {
            return Ok(None);
        }
        let condition = self.loop_condition(frame)?;
        // An inner loop starts once in every iteration of the outer one.
        let outer = self.outer_skeleton(frame, device)?;
        let layout = &self.frames.layouts[frame as usize];
        let text = Value::S(layout.name.clone().into_bytes().into());
        let parallel_iterations = i64::from(layout.parallel_iterations);
        let start =
            self.float_node(device, NodeKind::Constant(Tensor::zeros(DType::Float, Shape::vector(0))), 0, 1);
        let start = self.add(start, Vec::new(), outer.into_iter().collect());
        let mut enter = self.float_node(device, NodeKind::Op(self.entry("Enter")?), 1, 1);
        enter.attrs.set("frame_name", text);
        enter.attrs.set("is_constant", Value::B(false));
        enter.attrs.set("parallel_iterations", Value::I(parallel_iterations));
        let enter = self.add(enter, vec![Output { node: start, index: 0 }], Vec::new());
        let mut merge = self.float_node(device, NodeKind::Op(self.entry("Merge")?), 2, 1);
        merge.attrs.set("N", Value::I(2));
        merge.output_types.push((DType::Int32, false));
        let entered = Output { node: enter, index: 0 };
        // The second input is set below; it comes from the end of the loop.
        let merge = self.add(merge, vec![entered, entered], Vec::new());
        self.skeletons.insert(key, Skeleton { merge });
        let predicate = self.bring(condition, device, &[])?;
        let mut switch = self.float_node(device, NodeKind::Op(self.entry("Switch")?), 1, 2);
        switch.input_types.push((DType::Bool, false));
        let switch = self.add(switch, vec![Output { node: merge, index: 0 }, predicate], Vec::new());
        let next = self.float_node(device, NodeKind::Op(self.entry("NextIteration")?), 1, 1);
        let next = self.add(next, vec![Output { node: switch, index: 1 }], Vec::new());
        self.part(device).node_mut(merge).inputs[1] = Output { node: next, index: 0 };
        Ok(Some(merge))
    }

    fn outer_skeleton(&mut self, frame: u32, device: &str) -> Result<Option<NodeId>> {
        let parent = self.frames.parents[frame as usize];
        if parent == 0 {
            return Ok(None);
        }
        let outer = self.skeleton(parent, device)?;
        if outer.is_some() {
            return Ok(outer);
        }
        // The outer loop is on this device alone, so its condition is here and runs once in every iteration.
        let condition = self.loop_condition(parent)?;
        Ok(Some(self.new_ids[condition.node.index()]))
    }

    fn loop_condition(&self, frame: u32) -> Result<Output> {
        let name = &self.frames.layouts[frame as usize].name;
        let decides = |id: &NodeId| {
            self.frames.of(*id) == frame && self.graph.node(*id).data.class() == OpClass::LoopCond
        };
        let mut conditions = self.graph.ids().filter(decides);
        let Some(node) = conditions.next() else {
            bail!(
                InvalidArgument,
                "A cross-device loop must have a pivot predicate: loop {name} has no LoopCond node"
            )
        };
        ensure!(
            conditions.next().is_none(),
            InvalidArgument,
            "Loop {name} has more than one LoopCond node, and its nodes are on several devices"
        );
        Ok(Output { node, index: 0 })
    }

    /// A node of the skeleton with this many float inputs and outputs.
    fn float_node(&self, device: &str, kind: NodeKind, inputs: usize, outputs: usize) -> NodeData {
        let mut attrs = Attrs::default();
        if matches!(kind, NodeKind::Op(_)) {
            attrs.set("T", Value::Type(DType::Float.to_wire()));
        }
        NodeData {
            name: self.fresh_name("_cloop").0,
            kind,
            attrs,
            device: device.to_owned(),
            input_types: vec![(DType::Float, false); inputs],
            output_types: vec![(DType::Float, false); outputs],
        }
    }
}
