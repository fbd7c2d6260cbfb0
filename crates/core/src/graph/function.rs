//! Function bodies as graphs: a `FunctionDef` with its attributes bound becomes a [`FunctionBody`].

use super::build::{Checker, arg_types, bind_attrs};
use super::{Graph, Library, Node, NodeData, NodeId, NodeKind, Output};
use crate::attr::Attrs;
use crate::op::{OpSpec, Registry};
use crate::{DType, Result, bail, ensure, status};
use ferroflow_proto::tensorflow::{AttrValue, FunctionDef, OpDef, op_def};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// A function's body with its attributes bound: argument nodes first, in order.
pub struct FunctionBody {
    /// The nodes.
    pub graph: Graph,
    /// Element types of arguments.
    pub arg_types: Vec<DType>,
    /// The results.
    pub returns: Vec<Output>,
    /// Nodes that must run even if no result needs them.
    pub controls: Vec<NodeId>,
}

/// The meaning of each name in a function body.
#[derive(Default)]
struct BodyNames {
    /// Nodes that stand for an argument.
    args: HashMap<String, Range<u32>>,
    /// Outputs of nodes, by (node, output argument).
    outputs: HashMap<(String, String), (NodeId, Range<u32>)>,
    nodes: HashMap<String, NodeId>,
}

impl FunctionBody {
    /// Builds the body of a function for these attributes.
    pub fn new(
        registry: &Registry,
        library: &Arc<Library>,
        function: &FunctionDef,
        attrs: &BTreeMap<String, AttrValue>,
    ) -> Result<FunctionBody> {
        FunctionBody::build(registry, library, function, attrs, false)
    }

    /// Builds the body of a part of a function that was planned and cut, whose nodes may have names that clients do not
    /// give.
    pub fn of_part(
        registry: &Registry,
        library: &Arc<Library>,
        function: &FunctionDef,
        attrs: &BTreeMap<String, AttrValue>,
    ) -> Result<FunctionBody> {
        FunctionBody::build(registry, library, function, attrs, true)
    }

    fn build(
        registry: &Registry,
        library: &Arc<Library>,
        function: &FunctionDef,
        attrs: &BTreeMap<String, AttrValue>,
        planned: bool,
    ) -> Result<FunctionBody> {
        let signature = function.signature.as_ref();
        let signature = signature.ok_or_else(|| status!(InvalidArgument, "a function has no signature"))?;
        let bound = Attrs::from(attrs.clone());
        let mut graph = Graph::new(registry.clone());
        graph.library = library.clone();
        let mut names = BodyNames::default();
        let mut types = Vec::new();
        for arg in &signature.input_arg {
            let start = types.len() as u32;
            for dtype in arg_types(arg, &bound)? {
                let index = types.len();
                types.push(dtype);
                graph.push(Node {
                    data: Arc::new(NodeData {
                        name: format!("{}_arg{index}", arg.name),
                        kind: NodeKind::Arg(index),
                        attrs: Attrs::default(),
                        device: String::new(),
                        input_types: Vec::new(),
                        output_types: vec![(dtype, false)],
                    }),
                    inputs: Vec::new(),
                    controls: Vec::new(),
                });
            }
            names.args.insert(arg.name.clone(), start..types.len() as u32);
        }
        let checker = Checker { registry, library, planned };
        let mut ids = Vec::with_capacity(function.node_def.len());
        for def in &function.node_def {
            ensure!(
                !names.nodes.contains_key(&def.name),
                InvalidArgument,
                "function {}: node '{}' is not unique",
                signature.name,
                def.name
            );
            let data = Arc::new(checker.check(def, &bind_attrs(&def.attr, attrs)?)?);
            let id = graph.push(Node { data: data.clone(), inputs: Vec::new(), controls: Vec::new() });
            names.nodes.insert(def.name.clone(), id);
            names.add_outputs(&def.name, id, &data, library)?;
            ids.push(id);
        }
        for (def, id) in function.node_def.iter().zip(ids) {
            let mut inputs = Vec::new();
            let mut controls = Vec::new();
            for text in &def.input {
                match text.strip_prefix('^') {
                    Some(name) => controls.extend(names.control(name).map_err(|error| {
                        error.map_message(|text| {
                            format!("function {}, node '{}': {text}", signature.name, def.name)
                        })
                    })?),
                    None => inputs.push(names.resolve(text).map_err(|error| {
                        error.map_message(|text| {
                            format!("function {}, node '{}': {text}", signature.name, def.name)
                        })
                    })?),
                }
            }
            graph.check_input_types(id, &inputs)?;
            let node = graph.node_mut(id);
            node.inputs = inputs;
            node.controls = controls;
        }
        let mut returns = Vec::new();
        for arg in &signature.output_arg {
            let Some(text) = function.ret.get(&arg.name) else {
                bail!(InvalidArgument, "function {}: result '{}' is not returned", signature.name, arg.name)
            };
            let count = arg_types(arg, &bound)?.len();
            returns.extend(names.resolve_all(text, count)?);
        }
        let mut controls = Vec::new();
        for name in function.control_ret.values() {
            controls.extend(names.control(name)?);
        }
        graph.topological_order()?;
        Ok(FunctionBody { graph, arg_types: types, returns, controls })
    }
}

impl Graph {
    /// The name of an output in a function's body: `argument`, or `node:output:index`.
    pub(crate) fn reference(&self, output: Output) -> Result<String> {
        let data = &self.node(output.node).data;
        let mut left = output.index as usize;
        match &data.kind {
            NodeKind::Arg(_) => return Ok(data.name.clone()),
            NodeKind::Constant(_) => return Ok(format!("{}:output:0", data.name)),
            NodeKind::Op(_) | NodeKind::Unsupported(_) => {
                for arg in data.spec().map_or(&[][..], |spec| &spec.outputs) {
                    let mut types = Vec::new();
                    arg.expand(&data.attrs, &mut types)?;
                    if left < types.len() {
                        return Ok(format!("{}:{}:{left}", data.name, arg.name));
                    }
                    left -= types.len();
                }
            }
            NodeKind::Function(callee) => {
                let signature = self.library().get(callee).and_then(|function| function.signature.as_ref());
                if let Some(arg) = signature.and_then(|signature| signature.output_arg.get(left)) {
                    return Ok(format!("{}:{}:0", data.name, arg.name));
                }
            }
        }
        Err(status!(Internal, "operation '{}' has no output {}", data.name, output.index))
    }

    /// The graph as a function that takes the values of its argument nodes and returns these outputs; all of its nodes
    /// run. Also the numbers of these arguments, in the order in which the function takes them.
    pub fn to_component(&self, name: &str, returns: &[Output]) -> Result<(FunctionDef, Vec<usize>)> {
        let mut signature = OpDef { name: name.to_owned(), ..Default::default() };
        let mut args: Vec<(usize, &NodeData)> = Vec::new();
        let mut nodes = Vec::with_capacity(self.node_count());
        for (node, mut def) in self.nodes().iter().zip(self.node_defs(0)) {
            if let NodeKind::Arg(number) = node.data.kind {
                args.push((number, &node.data));
                continue;
            }
            let inputs = node.inputs.iter().map(|input| self.reference(*input));
            def.input = inputs.collect::<Result<_>>()?;
            // What waits for an argument waits for nothing.
            let controls = node.controls.iter().map(|id| &self.node(*id).data);
            let controls = controls.filter(|data| !matches!(data.kind, NodeKind::Arg(_)));
            def.input.extend(controls.map(|data| format!("^{}", data.name)));
            signature.is_stateful |= node.data.is_stateful();
            nodes.push(def);
        }
        args.sort_by_key(|(number, _)| *number);
        for (_, data) in &args {
            signature.input_arg.push(op_def::ArgDef {
                name: data.name.clone(),
                r#type: data.output_types[0].0.to_wire(),
                ..Default::default()
            });
        }
        let mut ret = BTreeMap::new();
        for (number, output) in returns.iter().enumerate() {
            let name = format!("ret_{number}");
            let (dtype, _) = self.node(output.node).data.output_types[output.index as usize];
            ret.insert(name.clone(), self.reference(*output)?);
            signature.output_arg.push(op_def::ArgDef { name, r#type: dtype.to_wire(), ..Default::default() });
        }
        let function = FunctionDef { signature: Some(signature), node_def: nodes, ret, ..Default::default() };
        Ok((function, args.into_iter().map(|(number, _)| number).collect()))
    }
}

impl BodyNames {
    fn add_outputs(&mut self, name: &str, id: NodeId, data: &NodeData, library: &Library) -> Result<()> {
        let mut start = 0u32;
        let mut add = |arg: &str, count: usize| {
            let range = start..start + count as u32;
            start = range.end;
            self.outputs.insert((name.to_owned(), arg.to_owned()), (id, range));
        };
        match &data.kind {
            NodeKind::Op(_) | NodeKind::Unsupported(_) => {
                for arg in data.spec().map_or(&[][..], |spec| &spec.outputs) {
                    add(&arg.name, OpSpec::arg_types(std::slice::from_ref(arg), &data.attrs)?.len());
                }
            }
            NodeKind::Function(callee) => {
                let signature = library.get(callee).and_then(|function| function.signature.clone());
                for arg in &signature.unwrap_or_default().output_arg {
                    add(&arg.name, arg_types(arg, &data.attrs)?.len());
                }
            }
            NodeKind::Arg(_) | NodeKind::Constant(_) => {}
        }
        Ok(())
    }

    fn control(&self, name: &str) -> Result<Vec<NodeId>> {
        // Arguments are always available, so a control edge from one is dropped.
        if self.args.contains_key(name) {
            return Ok(Vec::new());
        }
        match self.nodes.get(name) {
            Some(id) => Ok(vec![*id]),
            None => bail!(InvalidArgument, "unknown control input '{name}'"),
        }
    }

    /// One input: `arg`, `arg:index`, `node:output`, `node:output:index`.
    fn resolve(&self, text: &str) -> Result<Output> {
        let unknown = || status!(InvalidArgument, "unknown input '{text}'");
        let parts: Vec<&str> = text.split(':').collect();
        let (range, node, index) = match parts.as_slice() {
            [arg] => (self.args.get(*arg).ok_or_else(unknown)?, None, 0),
            [first, second] => match (self.args.get(*first), second.parse::<u32>()) {
                (Some(range), Ok(index)) => (range, None, index),
                _ => {
                    let key = ((*first).to_owned(), (*second).to_owned());
                    let (id, range) = self.outputs.get(&key).ok_or_else(unknown)?;
                    (range, Some(*id), 0)
                }
            },
            [node, output, index] => {
                let key = ((*node).to_owned(), (*output).to_owned());
                let (id, range) = self.outputs.get(&key).ok_or_else(unknown)?;
                (range, Some(*id), index.parse().map_err(|_| unknown())?)
            }
            _ => return Err(unknown()),
        };
        let position = range.start.checked_add(index).filter(|at| *at < range.end);
        let position = position.ok_or_else(|| status!(InvalidArgument, "input '{text}' is out of range"))?;
        Ok(match node {
            Some(node) => Output { node, index: position },
            None => Output { node: NodeId(position), index: 0 },
        })
    }

    /// The outputs that a result of `count` tensors refers to.
    fn resolve_all(&self, text: &str, count: usize) -> Result<Vec<Output>> {
        if count == 1 {
            return Ok(vec![self.resolve(text)?]);
        }
        let base = text.to_owned();
        (0..count).map(|i| self.resolve(&format!("{base}:{i}"))).collect()
    }
}
