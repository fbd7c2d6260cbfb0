//! Lowering, the first step of placement: inlines function calls, and turns conditionals into switches and merges and
//! loops into loop frames.
//!
//! A function's nodes may belong on several devices, because they use variables there or because the user says so,
//! while a call is one node on one device. Stock does the same before it places a graph. A lowered node remains as a
//! node of the same name that passes the results on, so that it can be fetched and waited for.

mod branches;
mod loops;
mod size;

use ferroflow_core::attr::Attrs;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::graph::{FunctionBody, Graph, Node, NodeData, NodeId, NodeKind, Output};
use ferroflow_core::op::OpClass;
use ferroflow_core::{DType, Result, ensure};
use ferroflow_proto::tensorflow::attr_value::{ListValue, Value};
use ferroflow_proto::tensorflow::{AttrValue, NameAttrList, NodeDef};
use std::collections::HashMap;
use std::sync::Arc;

/// The set of nodes to lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lowered {
    /// Conditionals and loops that the client marked. Their functions are inlined, but calls in them are not.
    Marked,
    /// Calls, and conditionals and loops that the client marked.
    AsMarked,
    /// Calls, conditionals and loops.
    All,
}

/// The attribute with which clients mark conditionals and loops for lowering.
const MARK: &str = "_lower_using_switch_merge";

/// The largest graph after lowering. Larger ones come from functions that call each other exponentially often.
const MAX_NODES: usize = 1 << 20;

/// Lowers the nodes from `first` on. Nodes that cannot be lowered (a recursive call, a condition that is not a bool)
/// stay.
pub fn lower(graph: &mut Graph, first: usize, which: Lowered) -> Result<()> {
    lower_within(graph, first, which, None)
}

/// Lowers the body of the function with this name.
pub(crate) fn lower_body(body: &mut Graph, function: &str) -> Result<()> {
    let within = InlinedFrom { function: function.to_owned(), outer: None };
    lower_within(body, 0, Lowered::AsMarked, Some(Arc::new(within)))
}

fn lower_within(
    graph: &mut Graph,
    first: usize,
    which: Lowered,
    within: Option<Arc<InlinedFrom>>,
) -> Result<()> {
    let calls = |node: &Node| node.data.class() == OpClass::Call;
    if !graph.nodes().iter().skip(first).any(calls) {
        return Ok(());
    }
    size::check(graph, first, which)?;
    let in_flow = in_flow(graph)?;
    let within = vec![within; graph.node_count()];
    let mut lowering =
        Lowering { graph, which, in_flow, within, replaced: HashMap::new(), completions: HashMap::new() };
    let mut next = first;
    // Nodes of inlined functions are appended, and visited in turn.
    while next < lowering.graph.node_count() {
        lowering.lower_node(NodeId(next as u32))?;
        next += 1;
    }
    lowering.redirect(first);
    lowering.graph.topological_order()?;
    Ok(())
}

struct Lowering<'a> {
    graph: &'a mut Graph,
    which: Lowered,
    /// For each node, true if it may be in a branch or a loop.
    in_flow: Vec<bool>,
    /// For each node, the functions that it was inlined from, innermost first.
    within: Vec<Option<Arc<InlinedFrom>>>,
    /// The replacements of outputs of lowered nodes.
    replaced: HashMap<Output, Output>,
    /// The replacements of lowered nodes in control edges.
    completions: HashMap<NodeId, NodeId>,
}

/// A function that nodes were inlined from.
struct InlinedFrom {
    function: String,
    outer: Option<Arc<InlinedFrom>>,
}

/// The place where a function is inlined.
struct Site<'a> {
    /// The calling node.
    caller: NodeId,
    /// The prefix of names.
    prefix: &'a str,
    inputs: &'a [Output],
    /// Nodes that must run before the function's nodes.
    controls: Vec<NodeId>,
    /// True if the nodes are in a branch or a loop.
    in_flow: bool,
}

/// An inlined function.
struct Inlined {
    returns: Vec<Output>,
    /// Nodes that must have run when the call completes, besides those of the results.
    ends: Vec<NodeId>,
}

impl Lowering<'_> {
    fn lower_node(&mut self, id: NodeId) -> Result<()> {
        let data = self.graph.node(id).data.clone();
        if !is_lowered(&data, self.which) {
            return Ok(());
        }
        if let NodeKind::Function(name) = &data.kind {
            let function = NameAttrList { name: name.clone(), attr: data.attrs.map().clone() };
            return self.lower_call(id, &function);
        }
        let function = |name: &str| data.attrs.get::<NameAttrList>(name).ok();
        if let Some(called) = function("f") {
            return self.lower_call(id, &called);
        }
        if let (Some(then), Some(otherwise)) = (function("then_branch"), function("else_branch")) {
            return self.lower_branches(id, vec![otherwise, then], branches::Split::Two);
        }
        if let Ok(branches) = data.attrs.get::<Vec<NameAttrList>>("branches") {
            return self.lower_branches(id, branches, branches::Split::Many);
        }
        if let (Some(condition), Some(body)) = (function("cond"), function("body")) {
            return self.lower_loop(id, &condition, &body);
        }
        Ok(())
    }

    fn lower_call(&mut self, id: NodeId, function: &NameAttrList) -> Result<()> {
        let Some(body) = self.body(id, function)? else { return Ok(()) };
        let node = self.graph.node(id).clone();
        if body.arg_types.len() != node.inputs.len() || body.returns.len() != node.data.output_types.len() {
            return Ok(());
        }
        let inputs = self.read_inputs(id)?;
        let in_flow = self.in_flow[id.index()];
        let mut controls = self.join_controls(id)?;
        // A node without inputs must be dead whenever the call is, and run in the call's loop frame.
        if controls.is_empty() && in_flow {
            controls.extend(inputs.first().map(|input| input.node));
        }
        let prefix = node.data.name.clone();
        let site = Site { caller: id, prefix: &prefix, inputs: &inputs, controls, in_flow };
        let inlined = self.inline(&site, body, function)?;
        self.replace(id, inlined.returns, inlined.ends)
    }

    /// The body of a function that `caller` calls; `None` if the call must stay.
    fn body(&self, caller: NodeId, function: &NameAttrList) -> Result<Option<FunctionBody>> {
        let mut within = self.within[caller.index()].as_deref();
        while let Some(InlinedFrom { function: outer, outer: next }) = within {
            if *outer == function.name {
                return Ok(None);
            }
            within = next.as_deref();
        }
        let library = self.graph.library();
        match library.get(&function.name) {
            // A body that cannot be built is reported by the step that calls it.
            Some(definition) => {
                Ok(FunctionBody::new(self.graph.registry(), library, definition, &function.attr).ok())
            }
            None => Ok(None),
        }
    }

    /// Refuses a marked conditional or loop whose functions are not defined.
    fn check_defined<'a>(
        &self,
        caller: NodeId,
        functions: impl IntoIterator<Item = &'a NameAttrList>,
    ) -> Result<()> {
        for function in functions {
            ensure!(
                self.graph.library().get(&function.name).is_some() || self.which == Lowered::All,
                InvalidArgument,
                "Op type not registered '{}' in binary running on this host: node {} calls a function of this name, \
                 which the graph does not define",
                function.name,
                self.graph.node(caller).data.name
            );
        }
        Ok(())
    }

    /// The caller's inputs, with references dereferenced.
    fn read_inputs(&mut self, caller: NodeId) -> Result<Vec<Output>> {
        let node = self.graph.node(caller).clone();
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in node.inputs {
            let source = &self.graph.node(input.node).data;
            if !source.output_types[input.index as usize].1 {
                inputs.push(input);
                continue;
            }
            let (name, device) = (format!("{}/{}", node.data.name, source.name), source.device.clone());
            let types = [("T", self.type_of(input))];
            let read =
                self.add(caller, "Identity", &name, &device, &types, vec![input], node.controls.clone())?;
            inputs.push(Output { node: read, index: 0 });
        }
        Ok(inputs)
    }

    /// The caller's control inputs, joined into one node at most.
    fn join_controls(&mut self, caller: NodeId) -> Result<Vec<NodeId>> {
        let node = self.graph.node(caller);
        let (controls, name) = (node.controls.clone(), format!("{}/input_control", node.data.name));
        if controls.len() < 2 {
            return Ok(controls);
        }
        let device = node.data.device.clone();
        Ok(vec![self.add(caller, "NoOp", &name, &device, &[], Vec::new(), controls)?])
    }

    /// Adds the nodes of a function.
    fn inline(&mut self, site: &Site<'_>, body: FunctionBody, function: &NameAttrList) -> Result<Inlined> {
        let caller_device = self.graph.node(site.caller).data.device.clone();
        let outer = self.within[site.caller.index()].clone();
        let within = Some(Arc::new(InlinedFrom { function: function.name.clone(), outer }));
        let start = self.graph.node_count() as u32;
        let args = body.arg_types.len() as u32;
        // Arguments come first in a body; the other nodes keep their order.
        let new_id = |id: NodeId| NodeId(start + id.0 - args);
        let new_output = |output: Output| {
            if output.node.0 < args {
                site.inputs[output.node.index()]
            } else {
                Output { node: new_id(output.node), index: output.index }
            }
        };
        for node in body.graph.nodes().iter().skip(args as usize) {
            let data = &node.data;
            let data = NodeData {
                name: self.fresh_name(&format!("{}/{}", site.prefix, data.name)),
                attrs: prefixed_classes(&data.attrs, site.prefix),
                ..data.on_device(&inherit(&caller_device, &data.device))
            };
            let depends = node.inputs.iter().any(|input| input.node.0 >= args) || !node.controls.is_empty();
            let mut controls: Vec<NodeId> = node.controls.iter().map(|id| new_id(*id)).collect();
            if !depends {
                controls.clone_from(&site.controls);
            }
            let inputs = node.inputs.iter().map(|input| new_output(*input)).collect();
            self.push(Node { data: Arc::new(data), inputs, controls }, site.in_flow, within.clone());
        }
        Ok(Inlined {
            returns: body.returns.iter().map(|output| new_output(*output)).collect(),
            ends: body.controls.iter().map(|id| new_id(*id)).collect(),
        })
    }

    /// Replaces a lowered node with one that passes the results on.
    fn replace(&mut self, id: NodeId, results: Vec<Output>, ends: Vec<NodeId>) -> Result<()> {
        let node = self.graph.node(id);
        let (name, device) = (node.data.name.clone(), node.data.device.clone());
        if !results.is_empty() {
            // Control edges from the node are redirected to the nodes behind it, so that the results need not be sent
            // to its device.
            let mut all: Vec<NodeId> = results.iter().map(|result| result.node).chain(ends.clone()).collect();
            all.sort();
            all.dedup();
            let completion = format!("{name}/output_control");
            let completion = self.add(id, "NoOp", &completion, &device, &[], Vec::new(), all)?;
            self.completions.insert(id, completion);
        }
        let types = results.iter().map(|result| self.dtype(*result).to_wire()).collect();
        let mut def = NodeDef { name, device, op: "NoOp".to_owned(), ..Default::default() };
        if !results.is_empty() {
            def.op = "IdentityN".to_owned();
            let types = Value::List(Box::new(ListValue { r#type: types, ..Default::default() }));
            def.attr.insert("T".to_owned(), AttrValue { value: Some(types) });
        }
        let data = Arc::new(self.graph.check_node(&def)?);
        for (index, result) in results.iter().enumerate() {
            self.replaced.insert(Output { node: id, index: index as u32 }, *result);
        }
        let mut controls = self.graph.node(id).controls.clone();
        controls.extend(ends);
        *self.graph.node_mut(id) = Node { data, inputs: results, controls };
        Ok(())
    }

    /// Connects consumers to the results directly instead of to the nodes that pass them on.
    fn redirect(&mut self, first: usize) {
        for id in self.graph.ids().skip(first) {
            for input in 0..self.graph.node(id).inputs.len() {
                let mut result = self.graph.node(id).inputs[input];
                while let Some(further) = self.replaced.get(&result) {
                    result = *further;
                }
                if result != self.graph.node(id).inputs[input] {
                    self.graph.bypass(id, input, result);
                }
            }
            for control in &mut self.graph.node_mut(id).controls {
                while let Some(completion) = self.completions.get(control) {
                    *control = *completion;
                }
            }
        }
    }

    fn push(&mut self, node: Node, in_flow: bool, within: Option<Arc<InlinedFrom>>) -> NodeId {
        self.in_flow.push(in_flow);
        self.within.push(within);
        self.graph.push(node)
    }

    /// Adds a node for lowering `caller`.
    #[expect(clippy::too_many_arguments, reason = "these are the parts of a node")]
    fn add(
        &mut self,
        caller: NodeId,
        op: &str,
        name: &str,
        device: &str,
        attrs: &[(&str, Value)],
        inputs: Vec<Output>,
        controls: Vec<NodeId>,
    ) -> Result<NodeId> {
        let attr =
            attrs.iter().map(|(name, value)| ((*name).to_owned(), AttrValue { value: Some(value.clone()) }));
        let def = NodeDef {
            name: self.fresh_name(name),
            op: op.to_owned(),
            device: device.to_owned(),
            attr: attr.collect(),
            ..Default::default()
        };
        let data = Arc::new(self.graph.check_node(&def)?);
        let (in_flow, within) = (self.in_flow[caller.index()], self.within[caller.index()].clone());
        Ok(self.push(Node { data, inputs, controls }, in_flow, within))
    }

    fn fresh_name(&self, wanted: &str) -> String {
        let is_free = |name: &String| self.graph.find(name).is_none();
        let numbered = (1..).map(|number| format!("{wanted}_{number}"));
        let mut names = std::iter::once(wanted.to_owned()).chain(numbered);
        names.find(is_free).expect("there are more numbers than nodes")
    }

    fn dtype(&self, output: Output) -> DType {
        self.graph.node(output.node).data.output_types[output.index as usize].0
    }

    fn type_of(&self, output: Output) -> Value {
        Value::Type(self.dtype(output).to_wire())
    }
}

/// Returns whether a node is to be lowered.
fn is_lowered(data: &NodeData, which: Lowered) -> bool {
    let is_marked = || data.attrs.get::<bool>(MARK).unwrap_or_default();
    let is_call = matches!(data.kind, NodeKind::Function(_)) || data.attrs.has("f");
    data.class() == OpClass::Call
        && match which {
            Lowered::Marked => !is_call && is_marked(),
            Lowered::AsMarked => is_call || is_marked(),
            Lowered::All => true,
        }
}

/// The device of an inlined node: its own specification, completed by the call's.
fn inherit(caller: &str, own: &str) -> String {
    match (DeviceSpec::parse(caller), DeviceSpec::parse(own)) {
        (Ok(caller), Ok(own)) => caller.overridden_by(&own).to_string(),
        // Malformed devices are reported by placement.
        _ => own.to_owned(),
    }
}

/// The attributes with the names in colocation groups prefixed.
fn prefixed_classes(attrs: &Attrs, prefix: &str) -> Attrs {
    let mut attrs = attrs.clone();
    if !attrs.has("_class") {
        return attrs;
    }
    if let Some(AttrValue { value: Some(Value::List(list)) }) = attrs.map_mut().get_mut("_class") {
        for class in &mut list.s {
            if let Some(name) = class.strip_prefix(b"loc:@") {
                *class = [b"loc:@", prefix.as_bytes(), b"/", name].concat().into();
            }
        }
    }
    attrs
}

/// For each node, whether it may be in a branch or a loop, i.e. depends on a switch or an enter.
fn in_flow(graph: &Graph) -> Result<Vec<bool>> {
    let mut in_flow = vec![false; graph.node_count()];
    for id in graph.topological_order()? {
        let node = graph.node(id);
        let starts = matches!(
            node.data.class(),
            OpClass::Switch | OpClass::RefSwitch | OpClass::SwitchN | OpClass::Enter
        );
        in_flow[id.index()] = starts || node.sources().any(|source| in_flow[source.index()]);
    }
    Ok(in_flow)
}
