//! Plans of what clients call one at a time, outside any graph: single ops, functions, and the parts of functions that
//! another task has cut.

use super::place::Placer;
use super::results::{ResultPlace, place_results};
use super::{PlanOptions, Planned, infer, lower, optimize_and_check, prune};
use crate::env::RuntimeEnv;
use ferroflow_core::attr::Attrs;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::graph::{FunctionBody, Graph, Node, NodeData, NodeKind, Output};
use ferroflow_core::{DType, Result, ensure, status};
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
    /// Arguments that several devices hold together, each a value of its own.
    pub packed: &'a [PackedArg],
    /// Whether results stay on the devices that the function asks for; otherwise all of them come to the caller.
    pub keep_results: bool,
}

/// An argument that several devices hold together. The values follow the function's own arguments, in this order.
#[derive(Clone, Debug)]
pub struct PackedArg {
    /// The argument.
    pub number: usize,
    /// Full names of the devices.
    pub devices: Vec<String>,
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
        let places = if self.keep_results { place_results(&body, placer)? } else { Vec::new() };
        lower::lower_body(&mut body.graph, self.name)?;
        self.unpack(&mut body, placer)?;
        placer.place(&mut body.graph, args)?;
        let default = placer.devices[placer.default].to_string();
        let device = |(place, output): (ResultPlace, &Output)| match place {
            ResultPlace::Default => default.clone(),
            ResultPlace::Source => body.graph.node(output.node).data.device.clone(),
            ResultPlace::Device(index) => placer.devices[index].to_string(),
        };
        let fetch_devices = places.into_iter().zip(&body.returns).map(device).collect();
        let planned = Planned { fetch_devices, ..Planned::of_body(body) };
        optimize_and_check(prune::keep_needed(planned), env)
    }

    /// Gives every consumer of an argument that several devices hold the value of its own device.
    fn unpack(&self, body: &mut FunctionBody, placer: &Placer<'_>) -> Result<()> {
        let graph = &mut body.graph;
        for PackedArg { number, devices } in self.packed {
            let arg = graph.ids().nth(*number);
            let arg =
                arg.ok_or_else(|| status!(Internal, "argument {number} of {} is missing", self.name))?;
            let mut values = Vec::with_capacity(devices.len());
            for device in devices {
                let number = body.arg_types.len();
                body.arg_types.push(body.arg_types[arg.index()]);
                let data = NodeData {
                    name: format!("packed_{number}"),
                    kind: NodeKind::Arg(number),
                    ..graph.node(arg).data.on_device(device)
                };
                let node =
                    graph.push(Node { data: Arc::new(data), inputs: Vec::new(), controls: Vec::new() });
                values.push((DeviceSpec::parse(device)?, node));
            }
            let Some((_, first)) = values.first().cloned() else { continue };
            let default = &placer.devices[placer.default];
            for id in graph.ids().collect::<Vec<_>>() {
                let wanted = DeviceSpec::parse(&graph.node(id).data.device)?;
                let chosen =
                    |fits: &dyn Fn(&DeviceSpec) -> bool| values.iter().find(|(device, _)| fits(device));
                let chosen = chosen(&|device| device == default && wanted.matches(device))
                    .or_else(|| chosen(&|device| wanted.matches(device)));
                let node = chosen.map_or(first, |(_, node)| *node);
                for input in &mut graph.node_mut(id).inputs {
                    if input.node == arg {
                        input.node = node;
                    }
                }
            }
            for output in body.returns.iter_mut().filter(|output| output.node == arg) {
                output.node = first;
            }
        }
        Ok(())
    }
}

/// Plans a part of a function that another task has cut: its nodes are placed, and all of them run.
pub fn plan_component(
    definition: &FunctionDef,
    attrs: &BTreeMap<String, AttrValue>,
    env: &Arc<RuntimeEnv>,
) -> Result<Planned> {
    let body = FunctionBody::of_part(&env.registry, &env.library(), definition, attrs)?;
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
        fetch_devices: Vec::new(),
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
