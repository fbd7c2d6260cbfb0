//! Sends and receives: the nodes on both sides of a crossing edge, and casts around them.

use super::Cutter;
use ferroflow_core::attr::Attrs;
use ferroflow_core::graph::{NodeData, NodeId, NodeKind, Output};
use ferroflow_core::op::OpEntry;
use ferroflow_core::{DType, Result, Shape, Tensor, status};
use ferroflow_proto::tensorflow::attr_value::Value;
use std::sync::Arc;

/// An edge that crosses a device border.
pub(super) struct Crossing<'a> {
    /// The node that the edge is named after.
    pub(super) node: &'a str,
    /// The sending device.
    pub(super) device: &'a str,
    /// The output to send, in the sending part.
    pub(super) output: Output,
    /// Nodes that must run before the send, in the sending part.
    pub(super) after: Vec<NodeId>,
    pub(super) dtype: DType,
    /// The loop frame of the edge.
    pub(super) frame: u32,
}

impl Cutter<'_> {
    /// Adds a send of `from` and a receive on `device`; returns the received output.
    pub(super) fn cross(&mut self, from: &Crossing<'_>, device: &str) -> Result<Output> {
        if !self.borders.bfloat16 || from.dtype != DType::Float {
            return self.send_and_receive(from, device);
        }
        let output = self.cast(from.node, from.device, from.output, from.after.clone(), DType::Bfloat16)?;
        let narrow = Crossing { output, after: Vec::new(), dtype: DType::Bfloat16, ..*from };
        let received = self.send_and_receive(&narrow, device)?;
        self.cast(from.node, device, received, Vec::new(), DType::Float)
    }

    /// Adds a send and a receive of an empty tensor for the completion of these nodes, which are on one device.
    pub(super) fn cross_controls(&mut self, sources: &[NodeId], device: &str) -> Result<NodeId> {
        let first = &self.graph.node(sources[0]).data;
        let signal = NodeData {
            name: self.fresh_name(&first.name).0,
            kind: NodeKind::Constant(Tensor::zeros(DType::Float, Shape::vector(0))),
            attrs: Attrs::default(),
            device: first.device.clone(),
            input_types: Vec::new(),
            output_types: vec![(DType::Float, false)],
        };
        let controls = sources.iter().map(|id| self.new_ids[id.index()]).collect();
        let signal = self.add(signal, Vec::new(), controls);
        let from = Crossing {
            node: &first.name,
            device: &first.device,
            output: Output { node: signal, index: 0 },
            after: Vec::new(),
            dtype: DType::Float,
            frame: self.frames.after(self.graph, sources[0]),
        };
        let received = self.send_and_receive(&from, device)?;
        // As in stock, a receive of a dead value has a dead output, but nodes with only a control edge from the receive
        // run.
        let mut attrs = Attrs::default();
        attrs.set("T", Value::Type(DType::Float.to_wire()));
        let forwarded = NodeData {
            name: self.fresh_name(&first.name).0,
            kind: NodeKind::Op(self.entry("Identity")?),
            attrs,
            device: device.to_owned(),
            input_types: vec![(DType::Float, false)],
            output_types: vec![(DType::Float, false)],
        };
        Ok(self.add(forwarded, vec![received], Vec::new()))
    }

    fn send_and_receive(&mut self, from: &Crossing<'_>, device: &str) -> Result<Output> {
        // A receive in a loop runs once per iteration; the skeleton provides the iteration.
        let controls = self.skeleton(from.frame, device)?.into_iter().collect();
        let (send_name, number) = self.fresh_name(from.node);
        let text = |text: &str| Value::S(text.to_owned().into_bytes().into());
        let mut attrs = Attrs::default();
        attrs.set("tensor_name", text(&format!("edge_{number}_{}", from.node)));
        attrs.set("send_device", text(from.device));
        // The attribute is signed; the cast keeps the incarnation's bits.
        attrs.set("send_device_incarnation", Value::I((self.borders.incarnation)(from.device) as i64));
        attrs.set("recv_device", text(device));
        attrs.set("client_terminated", Value::B(false));
        let with_type = |name: &str| {
            let mut attrs = attrs.clone();
            attrs.set(name, Value::Type(from.dtype.to_wire()));
            attrs
        };
        let value = vec![(from.dtype, false)];
        let send = NodeData {
            name: send_name,
            kind: NodeKind::Op(self.entry("_Send")?),
            attrs: with_type("T"),
            device: from.device.to_owned(),
            input_types: value.clone(),
            output_types: Vec::new(),
        };
        self.add(send, vec![from.output], from.after.clone());
        let receive = NodeData {
            name: self.fresh_name(from.node).0,
            kind: NodeKind::Op(self.entry("_Recv")?),
            attrs: with_type("tensor_type"),
            device: device.to_owned(),
            input_types: Vec::new(),
            output_types: value,
        };
        let node = self.add(receive, Vec::new(), controls);
        Ok(Output { node, index: 0 })
    }

    fn cast(
        &mut self,
        node: &str,
        device: &str,
        value: Output,
        after: Vec<NodeId>,
        to: DType,
    ) -> Result<Output> {
        let from = if to == DType::Float { DType::Bfloat16 } else { DType::Float };
        let mut attrs = Attrs::default();
        attrs.set("SrcT", Value::Type(from.to_wire()));
        attrs.set("DstT", Value::Type(to.to_wire()));
        // Stock truncates instead of rounding.
        attrs.set("Truncate", Value::B(to == DType::Bfloat16));
        let data = NodeData {
            name: self.fresh_name(node).0,
            kind: NodeKind::Op(self.entry("Cast")?),
            attrs,
            device: device.to_owned(),
            input_types: vec![(from, false)],
            output_types: vec![(to, false)],
        };
        let node = self.add(data, vec![value], after);
        Ok(Output { node, index: 0 })
    }

    /// The registry entry of an op that partitioning adds.
    pub(super) fn entry(&self, name: &str) -> Result<Arc<OpEntry>> {
        let entry = self.graph.registry().get(name).cloned();
        entry.ok_or_else(|| {
            status!(Internal, "the registry has no {name}, which a plan for several devices needs")
        })
    }
}
