//! Changes of existing nodes, as needed by gradients of calls, conditionals and loops.
//!
//! A node keeps its name and position, because others refer to it by both.

use super::graph::State;
use super::{Graph, Operation, Output};
use crate::DType;
use crate::attr::{Attrs, ToAttr};
use crate::graph::{self, NodeId};
use crate::{Result, ensure};
use ferroflow_proto::tensorflow::NodeDef;
use ferroflow_proto::tensorflow::attr_value::Value;
use std::collections::HashSet;
use std::sync::Arc;

impl Operation {
    /// Changes attributes of an operation and appends inputs, for gradients that need more results of a call. Outputs
    /// keep their numbers; new ones follow.
    pub fn rewrite<'a>(
        &self,
        attrs: impl IntoIterator<Item = (&'a str, Value)>,
        more_inputs: &[Output],
    ) -> Result<()> {
        let scope = self.graph().scope();
        let more =
            more_inputs.iter().map(|input| Ok(scope.capture(input)?.edge())).collect::<Result<Vec<_>>>()?;
        let mut changed = self.data().attrs.clone();
        for (name, value) in attrs {
            changed.set(name, value);
        }
        self.graph().lock().rewrite(self.id(), changed, &more)
    }

    /// Turns the operation into an identity of other outputs. It may have had more outputs if the extra ones are
    /// unused.
    pub fn become_identity(&self, values: &[Output]) -> Result<()> {
        let scope = self.graph().scope();
        let values =
            values.iter().map(|value| Ok(scope.capture(value)?.edge())).collect::<Result<Vec<_>>>()?;
        self.graph().lock().become_identity(self.id(), &values)
    }

    /// The operation as a `NodeDef`, with the names of its inputs.
    pub fn to_node_def(&self) -> NodeDef {
        let state = self.graph().lock();
        state.graph.node_defs(self.position()).next().expect("the graph has the operation")
    }
}

impl Graph {
    /// Removes replaced operations that nothing else uses, so that a function body does not have their effects twice.
    /// In a graph that is not a function body they stay, because programs may refer to them; a step runs only what it
    /// needs.
    pub fn discard(&self, replaced: impl IntoIterator<Item = Operation>) -> Result<()> {
        if self.outer().is_none() {
            return Ok(());
        }
        let mut state = self.lock();
        let mut gone: HashSet<NodeId> = replaced.into_iter().map(|operation| operation.id()).collect();
        loop {
            let users = state.graph.ids().filter(|id| !gone.contains(id));
            let used: HashSet<NodeId> = users.flat_map(|id| state.graph.node(id).sources()).collect();
            let before = gone.len();
            gone.retain(|id| !used.contains(id));
            if gone.len() == before {
                break;
            }
        }
        let mut gone: Vec<NodeId> = gone.into_iter().collect();
        gone.sort_unstable();
        gone.into_iter().try_for_each(|id| state.change(id, "NoOp", Attrs::default(), Vec::new()))
    }
}

impl State {
    /// Changes a node's attributes and appends inputs.
    fn rewrite(&mut self, id: NodeId, attrs: Attrs, more_inputs: &[graph::Output]) -> Result<()> {
        let old = self.graph.node(id).clone();
        let def = NodeDef {
            name: old.data.name.clone(),
            op: old.data.op_name().to_owned(),
            device: old.data.device.clone(),
            attr: attrs.map().clone(),
            ..Default::default()
        };
        let data = Arc::new(self.graph.check_user_node(&def)?);
        let mut inputs = old.inputs.clone();
        inputs.extend(more_inputs);
        self.replace(id, graph::Node { data, inputs, controls: old.controls.clone() }, old)
    }

    /// Turns a node into an identity of other outputs, keeping its inferred shapes.
    pub(super) fn become_identity(&mut self, id: NodeId, values: &[graph::Output]) -> Result<()> {
        let types: Vec<DType> =
            self.graph.node(id).data.output_types.iter().map(|(dtype, _)| *dtype).collect();
        ensure!(
            !values.is_empty() && values.len() <= types.len(),
            Internal,
            "an identity has at most as many outputs as the node it replaces"
        );
        let types = &types[..values.len()];
        let outputs: Vec<graph::Output> =
            (0..values.len()).map(|index| graph::Output { node: id, index: index as u32 }).collect();
        let known: Vec<_> = outputs
            .iter()
            .map(|output| (self.known.shape(*output), self.known.handles(*output).to_vec()))
            .collect();
        let (op, types) = match types {
            [dtype] => ("Identity", Value::Type(dtype.to_wire())),
            types => ("IdentityN", types.to_vec().to_attr()?),
        };
        let mut attrs = Attrs::default();
        attrs.set("T", types);
        self.change(id, op, attrs, values.to_vec())?;
        for (output, (shape, handles)) in outputs.into_iter().zip(known) {
            self.known.set_shape(output, shape);
            self.known.set_handles(output, handles);
        }
        Ok(())
    }

    /// Changes a node's op, and removes its device and control inputs.
    fn change(&mut self, id: NodeId, op: &str, attrs: Attrs, inputs: Vec<graph::Output>) -> Result<()> {
        let old = self.graph.node(id).clone();
        let def = NodeDef {
            name: old.data.name.clone(),
            op: op.to_owned(),
            attr: attrs.map().clone(),
            ..Default::default()
        };
        let data = Arc::new(self.graph.check_user_node(&def)?);
        self.replace(id, graph::Node { data, inputs, controls: Vec::new() }, old)
    }

    fn replace(&mut self, id: NodeId, node: graph::Node, old: graph::Node) -> Result<()> {
        *self.graph.node_mut(id) = node;
        let fits = self
            .graph
            .check_input_types(id, &self.graph.node(id).inputs)
            .and_then(|()| self.known.infer(&self.graph, id));
        if fits.is_err() {
            *self.graph.node_mut(id) = old;
        }
        self.rewritten.push(id);
        fits
    }
}
