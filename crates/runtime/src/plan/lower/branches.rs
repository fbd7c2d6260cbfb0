//! Lowering of conditionals: every input is switched to the branch that is taken, and results are merged.

use super::{Lowering, Site};
use ferroflow_core::graph::{NodeId, Output};
use ferroflow_core::{DType, Result};
use ferroflow_proto::tensorflow::NameAttrList;
use ferroflow_proto::tensorflow::attr_value::Value;

/// The type of the branch index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    /// A bool: the first branch is for false.
    Two,
    /// An integer.
    Many,
}

impl Lowering<'_> {
    /// Lowers a conditional whose first input selects one of these functions.
    pub(super) fn lower_branches(
        &mut self,
        id: NodeId,
        functions: Vec<NameAttrList>,
        split: Split,
    ) -> Result<()> {
        self.check_defined(id, &functions)?;
        let node = self.graph.node(id).clone();
        let inputs = self.read_inputs(id)?;
        let Some((&choice, inputs)) = inputs.split_first() else { return Ok(()) };
        if split == Split::Two && self.dtype(choice) != DType::Bool {
            return Ok(());
        }
        let mut bodies = Vec::with_capacity(functions.len());
        for function in &functions {
            match self.body(id, function)? {
                Some(body)
                    if body.arg_types.len() == inputs.len()
                        && body.returns.len() >= node.data.output_types.len() =>
                {
                    bodies.push(body);
                }
                _ => return Ok(()),
            }
        }
        let (name, device) = (node.data.name.clone(), node.data.device.clone());
        let controls = self.join_controls(id)?;
        let chosen = self.split(id, choice, choice, split, functions.len(), &device, controls)?;
        let mut pivots = Vec::with_capacity(functions.len());
        for (branch, output) in chosen.iter().enumerate() {
            let types = [("T", self.type_of(*output))];
            let pivot = match split {
                Split::Two => format!("{name}/pivot_{}", ["f", "t"][branch.min(1)]),
                Split::Many => format!("{name}/pivot_{branch}"),
            };
            pivots.push(self.add(id, "Identity", &pivot, &device, &types, vec![*output], Vec::new())?);
        }
        // Each input is switched on its own device, so that it is only sent to the branch that is taken.
        let mut switched = Vec::with_capacity(inputs.len());
        for input in inputs {
            let device = self.graph.node(input.node).data.device.clone();
            switched.push(self.split(id, *input, choice, split, functions.len(), &device, Vec::new())?);
        }
        let mut results: Vec<Vec<Output>> = vec![Vec::new(); node.data.output_types.len()];
        let mut ends = Vec::new();
        for (branch, (body, function)) in bodies.into_iter().zip(&functions).enumerate() {
            let inputs: Vec<Output> = switched.iter().map(|outputs| outputs[branch]).collect();
            // Stock's names, which appear in timelines.
            let prefix = match split {
                Split::Two => format!("{name}/{}", ["else", "then"][branch.min(1)]),
                Split::Many => format!("{name}/branch_{branch}"),
            };
            let controls = vec![pivots[branch]];
            let site = Site { caller: id, prefix: &prefix, inputs: &inputs, controls, in_flow: true };
            let inlined = self.inline(&site, body, function)?;
            results.iter_mut().zip(inlined.returns).for_each(|(results, output)| results.push(output));
            ends.extend(inlined.ends);
        }
        let mut merged = Vec::with_capacity(results.len());
        for (result, (dtype, _)) in results.into_iter().zip(&node.data.output_types) {
            let attrs = [("T", Value::Type(dtype.to_wire())), ("N", Value::I(result.len() as i64))];
            let merge =
                self.add(id, "Merge", &format!("{name}/output"), &device, &attrs, result, Vec::new())?;
            merged.push(Output { node: merge, index: 0 });
        }
        // Runs when the taken branch has completed; the ends of other branches are dead, which a merge ignores.
        let attrs = [("T", self.type_of(chosen[0])), ("N", Value::I(pivots.len() as i64))];
        let pivots = pivots.into_iter().map(|node| Output { node, index: 0 }).collect();
        let completion =
            self.add(id, "Merge", &format!("{name}/branch_executed"), &device, &attrs, pivots, ends)?;
        self.replace(id, merged, vec![completion])
    }

    /// One output per branch: live for the one that is taken, dead for the others.
    #[expect(clippy::too_many_arguments, reason = "the node's parts and how it splits")]
    fn split(
        &mut self,
        caller: NodeId,
        value: Output,
        choice: Output,
        split: Split,
        branches: usize,
        device: &str,
        controls: Vec<NodeId>,
    ) -> Result<Vec<Output>> {
        let name = format!("{}/switch", self.graph.node(caller).data.name);
        let mut attrs = vec![("T", self.type_of(value))];
        let op = match split {
            Split::Two => "Switch",
            Split::Many => "_SwitchN",
        };
        if split == Split::Many {
            attrs.push(("num_outs", Value::I(branches as i64)));
        }
        let node = self.add(caller, op, &name, device, &attrs, vec![value, choice], controls)?;
        Ok((0..branches as u32).map(|index| Output { node, index }).collect())
    }
}
