//! Lowering of loops: every loop variable enters a frame, is merged with its next value, and exits when the condition
//! is false.

use super::{Lowered, Lowering, Site};
use ferroflow_core::graph::{NodeId, Output};
use ferroflow_core::{DType, Result, ensure};
use ferroflow_proto::tensorflow::NameAttrList;
use ferroflow_proto::tensorflow::attr_value::Value;

impl Lowering<'_> {
    /// Lowers a loop over its inputs.
    pub(super) fn lower_loop(
        &mut self,
        id: NodeId,
        condition: &NameAttrList,
        body: &NameAttrList,
    ) -> Result<()> {
        self.check_defined(id, [condition, body])?;
        let (Some(mut condition_body), Some(mut loop_body)) =
            (self.body(id, condition)?, self.body(id, body)?)
        else {
            return Ok(());
        };
        let node = self.graph.node(id).clone();
        let count = node.inputs.len();
        let decides = condition_body
            .returns
            .first()
            .map(|output| condition_body.graph.node(output.node).data.output_types[output.index as usize].0);
        let fits = condition_body.arg_types.len() == count
            && loop_body.arg_types.len() == count
            && loop_body.returns.len() >= count;
        if fits && let Some(other) = decides.filter(|dtype| *dtype != DType::Bool) {
            ensure!(
                self.which == Lowered::All,
                InvalidArgument,
                "Input 'input' passed {other} expected bool while building NodeDef '{}/LoopCond' using Op<name=LoopCond; \
                 signature=input:bool -> output:bool>",
                node.data.name
            );
        }
        if !fits || count == 0 || decides != Some(DType::Bool) {
            return Ok(());
        }
        // Further results are ignored, as in stock.
        condition_body.returns.truncate(1);
        loop_body.returns.truncate(count);
        let inputs = self.read_inputs(id)?;
        let (name, device) = (node.data.name.clone(), node.data.device.clone());
        let named = |part: &str| format!("{name}/{part}");
        let controls = self.join_controls(id)?;
        let parallel = node.data.attrs.get::<i64>("parallel_iterations").unwrap_or(10);
        // Variables that the body returns unchanged are loop invariants; at least one variable must iterate.
        let mut constant: Vec<bool> =
            loop_body.returns.iter().enumerate().map(|(i, output)| output.node.index() == i).collect();
        if constant.iter().all(|constant| *constant) {
            constant[0] = false;
        }
        let mut values = Vec::with_capacity(count);
        let mut merges = Vec::with_capacity(count);
        for (input, constant) in inputs.iter().zip(&constant) {
            let attrs = [
                ("T", self.type_of(*input)),
                ("frame_name", Value::S(name.clone().into_bytes().into())),
                ("is_constant", Value::B(*constant)),
                ("parallel_iterations", Value::I(parallel)),
            ];
            let enter =
                self.add(id, "Enter", &named("enter"), &device, &attrs, vec![*input], controls.clone())?;
            let entered = Output { node: enter, index: 0 };
            if *constant {
                values.push(entered);
                merges.push(None);
                continue;
            }
            let attrs = [("T", self.type_of(*input)), ("N", Value::I(2))];
            // The second input is set below; it comes from the end of the loop.
            let merge =
                self.add(id, "Merge", &named("merge"), &device, &attrs, vec![entered; 2], Vec::new())?;
            values.push(Output { node: merge, index: 0 });
            merges.push(Some(merge));
        }
        let first = merges.iter().flatten().next().copied();
        let prefix = named("cond");
        let controls = first.into_iter().collect();
        let site = Site { caller: id, prefix: &prefix, inputs: &values, controls, in_flow: true };
        let decided = self.inline(&site, condition_body, condition)?;
        let goes_on =
            self.add(id, "LoopCond", &named("LoopCond"), &device, &[], decided.returns, decided.ends)?;
        let goes_on = Output { node: goes_on, index: 0 };
        let bool_type = [("T", self.type_of(goes_on))];
        let pivot =
            self.add(id, "Switch", &named("pivot"), &device, &bool_type, vec![goes_on; 2], Vec::new())?;
        let taken = vec![Output { node: pivot, index: 1 }];
        let pivot =
            self.add(id, "Identity", &named("loop_body_control"), &device, &bool_type, taken, Vec::new())?;
        let mut results = Vec::with_capacity(count);
        for (i, merge) in merges.iter().enumerate() {
            if merge.is_none() {
                results.push(inputs[i]);
                continue;
            }
            let types = [("T", self.type_of(inputs[i]))];
            let switched = vec![values[i], goes_on];
            let switch = self.add(id, "Switch", &named("switch"), &device, &types, switched, Vec::new())?;
            values[i] = Output { node: switch, index: 1 };
            let last = vec![Output { node: switch, index: 0 }];
            let exit = self.add(id, "Exit", &named("exit"), &device, &types, last, Vec::new())?;
            results.push(Output { node: exit, index: 0 });
        }
        let prefix = named("body");
        let site =
            Site { caller: id, prefix: &prefix, inputs: &values, controls: vec![pivot], in_flow: true };
        let inlined = self.inline(&site, loop_body, body)?;
        for (i, merge) in merges.iter().enumerate() {
            let Some(merge) = merge else { continue };
            let types = [("T", self.type_of(inputs[i]))];
            // An iteration ends when its effects have happened.
            let (value, ends) = (vec![inlined.returns[i]], inlined.ends.clone());
            let next =
                self.add(id, "NextIteration", &named("next_iteration"), &device, &types, value, ends)?;
            self.graph.node_mut(*merge).inputs[1] = Output { node: next, index: 0 };
        }
        self.replace(id, results, Vec::new())
    }
}
