//! Plans of what clients call one at a time, outside any graph: single ops, functions, and the parts of functions that
//! another task has cut.

use super::place::Placer;
use super::{PlanOptions, Planned, infer, lower, optimize_and_check, prune};
use crate::env::RuntimeEnv;
use ferroflow_core::attr::Attrs;
use ferroflow_core::graph::{FunctionBody, Graph, Node, NodeData, NodeKind, Output};
use ferroflow_core::{DType, Result, ensure};
use ferroflow_proto::tensorflow::{AttrValue, FunctionDef, NodeDef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A call of a function, as far as its plan depends on it.
pub struct Call<'a> {
    /// The function's name.
    pub name: &'a str,
    /// Its definition.
    pub definition: &'a FunctionDef,
    /// The attributes that it is called with.
    pub attrs: &'a BTreeMap<String, AttrValue>,
    /// Full names of the devices that hold the arguments.
    pub arg_devices: &'a [String],
}

impl Call<'_> {
    /// Plans the call: calls within become nodes, and every node gets the device that its arguments and the function
    /// itself ask for.
    pub fn plan(&self, placer: &Placer<'_>, env: &Arc<RuntimeEnv>) -> Result<Planned> {
        let mut body = FunctionBody::new(&env.registry, &env.library(), self.definition, self.attrs)?;
        let args = body.arg_types.len();
        ensure!(
            self.arg_devices.len() == args,
            InvalidArgument,
            "InstantiateOptions.input_devices must have the same length as the number of arguments: input_devices \
             length = {} number of arguments = {args}",
            self.arg_devices.len()
        );
        for (id, device) in body.graph.ids().zip(self.arg_devices) {
            body.graph.set_device(id, device);
        }
        lower::lower_body(&mut body.graph, self.name)?;
        placer.place(&mut body.graph, args)?;
        optimize_and_check(prune::keep_needed(Planned::of_body(body)), env)
    }
}

/// Plans a part of a function that another task has cut: its nodes are placed, and all of them run.
pub fn plan_component(
    definition: &FunctionDef,
    attrs: &BTreeMap<String, AttrValue>,
    env: &Arc<RuntimeEnv>,
) -> Result<Planned> {
    let body = FunctionBody::new(&env.registry, &env.library(), definition, attrs)?;
    let planned = Planned::of_body(body);
    infer::infer_shapes(&planned.graph)?;
    Ok(planned)
}

/// Plans a single op with inputs of these types.
pub fn plan_op(def: &NodeDef, arg_types: &[DType], env: &Arc<RuntimeEnv>) -> Result<Planned> {
    let mut graph = Graph::new(env.registry.clone());
    let mut inputs = Vec::with_capacity(arg_types.len());
    for (index, dtype) in arg_types.iter().enumerate() {
        let data = NodeData {
            name: format!("input_{index}"),
            kind: NodeKind::Arg(index),
            attrs: Attrs::default(),
            device: def.device.clone(),
            input_types: Vec::new(),
            output_types: vec![(*dtype, false)],
        };
        let node = graph.push(Node { data: Arc::new(data), inputs: Vec::new(), controls: Vec::new() });
        inputs.push(Output { node, index: 0 });
    }
    let data = graph.check_node(def)?;
    check_inputs(&data, arg_types)?;
    let outputs = data.output_types.len() as u32;
    let node = graph.push(Node { data: Arc::new(data), inputs, controls: Vec::new() });
    let planned = Planned {
        arg_names: (0..arg_types.len()).map(|i| format!("input_{i}")).collect(),
        arg_types: arg_types.to_vec(),
        fetches: (0..outputs).map(|index| Output { node, index }).collect(),
        fetch_names: (0..outputs).map(|index| format!("output_{index}")).collect(),
        targets: vec![node],
        graph,
        options: PlanOptions::default(),
    };
    infer::infer_shapes(&planned.graph)?;
    Ok(planned)
}

/// Checks the number and types of an op's inputs, in stock's words.
fn check_inputs(data: &NodeData, given: &[DType]) -> Result<()> {
    let wanted = &data.input_types;
    ensure!(
        wanted.len() == given.len(),
        InvalidArgument,
        "expected {} inputs, got {}",
        wanted.len(),
        given.len()
    );
    for (index, ((want, is_ref), have)) in wanted.iter().zip(given).enumerate() {
        ensure!(
            !is_ref,
            Unimplemented,
            "{} takes a reference, which only nodes of a graph can hold",
            data.op_name()
        );
        ensure!(
            want == have,
            InvalidArgument,
            "cannot compute {} as input #{index}(zero-based) was expected to be a {want} tensor but is a {have} tensor",
            data.op_name()
        );
    }
    Ok(())
}
