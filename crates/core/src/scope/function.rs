//! Functions from Rust closures: the closure is called once with arguments, and the nodes it adds are the body.
//!
//! A body may use outputs of the graph around it. They become arguments that every caller passes, just as a closure
//! captures other values.

use super::graph::{Capture, Outer};
use super::{Graph, Input, Output, Scope};
use crate::attr::Attrs;
use crate::graph::{self, FunctionBody, Inference, NodeData, NodeKind};
use crate::op::OpClass;
use crate::resource::HandleShape;
use crate::{DType, PartialShape, Result, ToPartialShape, bail, ensure};
use ferroflow_proto::tensorflow::attr_value::{ListValue, Value};
use ferroflow_proto::tensorflow::function_def::ArgAttrs;
use ferroflow_proto::tensorflow::{AttrValue, FunctionDef, FunctionDefLibrary, NameAttrList, OpDef, op_def};
use std::sync::Arc;

/// Constants of at most this many elements are copied into a body instead of being passed in.
const COPIED_ELEMENTS: usize = 1 << 16;

/// The type and shape of a function's argument.
#[derive(Clone, Debug)]
pub struct TensorSpec {
    dtype: DType,
    shape: PartialShape,
    handles: Vec<HandleShape>,
}

impl TensorSpec {
    /// An argument of this type and shape.
    pub fn new(dtype: DType, shape: impl ToPartialShape) -> Result<TensorSpec> {
        Ok(TensorSpec { dtype, shape: shape.to_partial_shape()?, handles: Vec::new() })
    }

    /// The same with another shape.
    #[must_use]
    pub fn with_shape(mut self, shape: PartialShape) -> TensorSpec {
        self.shape = shape;
        self
    }

    /// The shape.
    pub fn shape(&self) -> &PartialShape {
        &self.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}

impl From<&Output> for TensorSpec {
    fn from(output: &Output) -> TensorSpec {
        let handles = output.graph().lock().known.handles(output.edge()).to_vec();
        TensorSpec { dtype: output.dtype(), shape: output.shape(), handles }
    }
}

impl From<&TensorSpec> for TensorSpec {
    fn from(spec: &TensorSpec) -> TensorSpec {
        spec.clone()
    }
}

/// A function of the graph, made from a closure.
///
/// ```
/// # use ferroflow_core::{DType, Result, op::{Op, Registry}, scope::{Function, Graph, TensorSpec}};
/// # static MUL: Op = Op { name: "Mul", inputs: &["x: T", "y: T"], outputs: &["z: T"], attrs: &["T: type"], ..Op::PURE };
/// # static CONST: Op = Op {
/// #     name: "Const", outputs: &["output: dtype"], attrs: &["value: tensor", "dtype: type"], ..Op::PURE
/// # };
/// # static CALL: Op = Op {
/// #     name: "PartitionedCall", inputs: &["args: Tin"], outputs: &["output: Tout"],
/// #     attrs: &["Tin: list(type) >= 0", "Tout: list(type) >= 0", "f: func"], ..Op::PURE
/// # };
/// # fn main() -> Result<()> {
/// # let graph = Graph::over(Registry::new([&MUL, &CONST, &CALL])?);
/// let s = graph.scope();
/// let factor = s.constant(3.0f32)?;
/// let scale = Function::new(&s, "scale", [TensorSpec::new(DType::Float, [2])?], |_, args| Ok(vec![(&args[0] * &factor)?]))?;
/// let scaled = scale.call(&s, [[1.0, 2.0]])?;
/// assert_eq!(scaled.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Function {
    function: NameAttrList,
    stateful: bool,
    args: Vec<TensorSpec>,
    results: Vec<TensorSpec>,
    captures: Vec<Output>,
}

impl Function {
    /// Calls the closure with arguments of these types and makes a function of the nodes that it adds.
    #[track_caller]
    pub fn new<A, F>(scope: &Scope, name: &str, args: A, body: F) -> Result<Function>
    where
        A: IntoIterator,
        A::Item: Into<TensorSpec>,
        F: FnOnce(&Scope, &[Output]) -> Result<Vec<Output>>,
    {
        let args: Vec<TensorSpec> = args.into_iter().map(Into::into).collect();
        let traced = FunctionGraph::trace(scope, &args, body)?;
        let (function, captures) = (traced.define(name, &traced.captures())?, traced.captures());
        let results = traced.results.iter().map(Into::into).collect();
        Ok(Function { function, stateful: traced.is_stateful(), args, results, captures })
    }

    /// The name in the graph's library.
    pub fn name(&self) -> &str {
        &self.function.name
    }

    /// The function as an attribute value.
    pub fn attr(&self) -> &NameAttrList {
        &self.function
    }

    /// Adds a call of the function.
    #[track_caller]
    pub fn call<I>(&self, scope: &Scope, args: I) -> Result<Vec<Output>>
    where
        I: IntoIterator,
        I::Item: Into<Input>,
    {
        let args: Vec<Input> = args.into_iter().map(Into::into).collect();
        ensure!(
            args.len() == self.args.len(),
            InvalidArgument,
            "function '{}' takes {} arguments, but {} were given",
            self.name(),
            self.args.len(),
            args.len()
        );
        let op = if self.stateful { "StatefulPartitionedCall" } else { "PartitionedCall" };
        let types: Vec<DType> =
            self.args.iter().map(TensorSpec::dtype).chain(self.captures.iter().map(Output::dtype)).collect();
        let results: Vec<DType> = self.results.iter().map(TensorSpec::dtype).collect();
        let inputs = args.into_iter().chain(self.captures.iter().map(Into::into));
        let call =
            scope.op(op).inputs(inputs).attr("Tin", types).attr("Tout", results).attr("f", &self.function);
        let outputs = call.build()?.outputs();
        for (output, spec) in outputs.iter().zip(&self.results) {
            output.refine(spec);
        }
        Ok(outputs)
    }
}

/// The body of a function as a graph: traced from a closure, or read from a library to be differentiated or extended.
#[derive(Clone)]
pub struct FunctionGraph {
    /// The body.
    pub graph: Graph,
    /// The outputs that stand for the arguments, without captures.
    pub args: Vec<Output>,
    /// The results.
    pub results: Vec<Output>,
}

impl FunctionGraph {
    /// Calls a closure with arguments of these types.
    pub fn trace<F>(scope: &Scope, args: &[TensorSpec], body: F) -> Result<FunctionGraph>
    where
        F: FnOnce(&Scope, &[Output]) -> Result<Vec<Output>>,
    {
        let mut traced = FunctionGraph::empty(scope, false);
        for spec in args {
            traced.add_arg(spec)?;
        }
        // Device rules of the scope apply inside; control dependencies and colocation apply to the call instead.
        let inner = traced.graph.scope().changed(|context| context.devices = scope.0.devices.clone());
        let results = body(&inner, &traced.args)?;
        traced.results = results.iter().map(|output| inner.capture(output)).collect::<Result<_>>()?;
        Ok(traced)
    }

    /// A body without nodes, used within `scope`. If `copies` is set, captured constants are copied whatever their
    /// type.
    pub fn empty(scope: &Scope, copies: bool) -> FunctionGraph {
        let around = scope.graph().root().lock().graph.empty_like();
        let graph = Graph::with(around, Some(Outer { scope: scope.clone(), copies }));
        FunctionGraph { graph, args: Vec::new(), results: Vec::new() }
    }

    /// The body of a function in the library of `scope`; `args` gives the known types and shapes of its arguments.
    pub fn load(scope: &Scope, function: &NameAttrList, args: &[TensorSpec]) -> Result<FunctionGraph> {
        let (registry, library) = {
            let root = scope.graph().root().lock();
            (root.graph.registry().clone(), root.graph.library().clone())
        };
        let Some(def) = library.get(&function.name) else {
            bail!(NotFound, "the graph has no function named '{}'", function.name)
        };
        let body = FunctionBody::new(&registry, &library, def, &function.attr)?;
        ensure!(
            body.arg_types.len() == args.len(),
            InvalidArgument,
            "function '{}' takes {} arguments, not {}",
            function.name,
            body.arg_types.len(),
            args.len()
        );
        let mut known = Inference::default();
        for id in body.graph.topological_order()? {
            // Inference that succeeded when the function was made succeeds again, or the node fails when it runs.
            let _ = known.infer(&body.graph, id);
            if let NodeKind::Arg(index) = &body.graph.node(id).data.kind {
                let output = graph::Output { node: id, index: 0 };
                known.set_shape(output, args[*index].shape.clone());
                known.set_handles(output, args[*index].handles.clone());
            }
        }
        let graph = Graph::with(body.graph, Some(Outer { scope: scope.clone(), copies: false }));
        let (mut state, inner) = (graph.lock(), graph.scope());
        state.known = known;
        let names: Vec<String> = state.graph.nodes().iter().map(|node| node.data.name.clone()).collect();
        names.iter().for_each(|name| state.names.reserve(name));
        drop(state);
        let arg = |index| Output::new(&inner, graph::Output { node: graph::NodeId(index as u32), index: 0 });
        let args = (0..args.len()).map(arg).collect();
        let results = body.returns.iter().map(|output| Output::new(&inner, *output)).collect();
        Ok(FunctionGraph { graph, args, results })
    }

    /// Adds an argument.
    pub fn add_arg(&mut self, spec: &TensorSpec) -> Result<Output> {
        let arg = self.graph.add_arg(spec)?;
        self.args.push(arg.clone());
        Ok(arg)
    }

    /// The outer outputs that the body uses, in the order of their first use.
    pub fn captures(&self) -> Vec<Output> {
        let state = self.graph.lock();
        state
            .captures
            .iter()
            .filter(|capture| !capture.copied)
            .map(|capture| capture.passed.clone())
            .collect()
    }

    /// The outputs that stand for captures in the body, in the same order.
    pub fn captured(&self) -> Vec<Output> {
        let (scope, state) = (self.graph.scope(), self.graph.lock());
        let inner = state.captures.iter().filter(|capture| !capture.copied).map(|capture| capture.inner);
        inner.map(|edge| Output::new(&scope, edge)).collect()
    }

    /// Appends captures, in the order that callers pass them, to the results: a loop returns its invariants that way.
    pub fn pass_captures(&mut self, captures: &[Output]) -> Result<()> {
        let inner = self.graph.scope();
        for capture in captures {
            self.results.push(inner.capture_by_argument(capture)?);
        }
        Ok(())
    }

    /// Replaces an argument or a capture with another output of the body; it is no longer an argument then.
    pub fn bind(&mut self, arg: &Output, value: &Output) -> Result<()> {
        ensure!(
            value.graph().is_same(&self.graph),
            Internal,
            "the value must be an output of the function's body"
        );
        let mut state = self.graph.lock();
        state.become_identity(arg.edge().node, &[value.edge()])?;
        state.captures.retain(|capture| capture.inner != arg.edge());
        drop(state);
        self.args.retain(|known| known != arg);
        Ok(())
    }

    /// Returns whether running the body has effects, or depends on more than its arguments.
    pub fn is_stateful(&self) -> bool {
        self.graph.lock().graph.nodes().iter().any(|node| node.data.is_stateful())
    }

    /// For each result, whether it depends on each argument.
    pub fn dependencies(&self) -> Vec<Vec<bool>> {
        let state = self.graph.lock();
        let depends = |result: &Output| {
            let mut seen = vec![false; state.graph.node_count()];
            let mut ahead = vec![result.edge().node];
            while let Some(id) = ahead.pop() {
                if !std::mem::replace(&mut seen[id.index()], true) {
                    ahead.extend(state.graph.node(id).inputs.iter().map(|input| input.node));
                }
            }
            self.args.iter().map(|arg| seen[arg.edge().node.index()]).collect()
        };
        self.results.iter().map(depends).collect()
    }

    /// Adds the function to the library, with `args` and then `captures` as its arguments; there may be more captures
    /// than this body uses. A number is appended to the name if it is taken.
    pub fn define(&self, name: &str, captures: &[Output]) -> Result<NameAttrList> {
        let inner = self.graph.scope();
        let mut args = self.args.clone();
        for capture in captures {
            args.push(inner.capture_by_argument(capture)?);
        }
        let root = self.graph.root();
        let taken = |name: &str| root.lock().graph.library().get(name).is_some();
        let numbered = (1..).map(|number| format!("{name}_{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        let name = names.find(|name| !taken(name)).expect("there are more numbers than functions");
        let def = self.to_def(&name, &args)?;
        let library = FunctionDefLibrary { function: vec![def], ..Default::default() };
        root.lock().graph.add_functions(&library)?;
        Ok(NameAttrList { name, ..Default::default() })
    }

    fn to_def(&self, name: &str, args: &[Output]) -> Result<FunctionDef> {
        let state = self.graph.lock();
        let graph = &state.graph;
        let mut signature = OpDef { name: name.to_owned(), ..Default::default() };
        let mut def = FunctionDef::default();
        let arg_def = |name: String, dtype: DType| op_def::ArgDef {
            name,
            r#type: dtype.to_wire(),
            ..Default::default()
        };
        for (index, arg) in args.iter().enumerate() {
            let data = &graph.node(arg.edge().node).data;
            signature.input_arg.push(arg_def(data.name.clone(), data.output_types[0].0));
            let shapes =
                ListValue { shape: vec![state.known.shape(arg.edge()).to_proto()], ..Default::default() };
            let shapes = AttrValue { value: Some(Value::List(Box::new(shapes))) };
            let attr = [("_output_shapes".to_owned(), shapes)].into_iter().collect();
            def.arg_attr.insert(index as u32, ArgAttrs { attr });
        }
        for (node, mut node_def) in graph.nodes().iter().zip(graph.node_defs(0)) {
            if matches!(node.data.kind, NodeKind::Arg(_)) {
                let id = graph.find(&node.data.name);
                ensure!(
                    args.iter().any(|arg| Some(arg.edge().node) == id),
                    Internal,
                    "argument '{}' of function '{name}' is not declared",
                    node.data.name
                );
                continue;
            }
            let inputs =
                node.inputs.iter().map(|input| graph.reference(*input)).collect::<Result<Vec<_>>>()?;
            let controls = node.controls.iter().map(|id| format!("^{}", graph.node(*id).data.name));
            node_def.input = inputs.into_iter().chain(controls).collect();
            let has_effects = node.data.is_stateful()
                && !matches!(node.data.class(), OpClass::Variable | OpClass::Placeholder | OpClass::Constant);
            if has_effects {
                signature.is_stateful = true;
                signature.control_output.push(node.data.name.clone());
                def.control_ret.insert(node.data.name.clone(), node.data.name.clone());
            }
            def.node_def.push(node_def);
        }
        for (index, result) in self.results.iter().enumerate() {
            let result_name = format!("result_{index}");
            let dtype = graph.node(result.edge().node).data.output_types[result.index()].0;
            signature.output_arg.push(arg_def(result_name.clone(), dtype));
            def.ret.insert(result_name, graph.reference(result.edge())?);
        }
        def.signature = Some(signature);
        Ok(def)
    }
}

impl Graph {
    fn add_arg(&self, spec: &TensorSpec) -> Result<Output> {
        let mut state = self.lock();
        let index =
            state.graph.nodes().iter().filter(|node| matches!(node.data.kind, NodeKind::Arg(_))).count();
        let name = state.names.unique(&format!("arg_{index}"));
        let data = NodeData {
            name,
            kind: NodeKind::Arg(index),
            attrs: Attrs::default(),
            device: String::new(),
            input_types: Vec::new(),
            output_types: vec![(spec.dtype, false)],
        };
        let node = graph::Node { data: Arc::new(data), inputs: Vec::new(), controls: Vec::new() };
        let output = graph::Output { node: state.push(node)?, index: 0 };
        state.known.set_shape(output, spec.shape.clone());
        state.known.set_handles(output, spec.handles.clone());
        drop(state);
        Ok(Output::new(&self.scope(), output))
    }
}

impl Scope {
    /// The output to use in this scope's graph: the output itself or, in the body of a function, the capture that
    /// stands for an outer output. An error if the output belongs to an unrelated graph.
    pub fn capture(&self, output: &Output) -> Result<Output> {
        let graph = self.graph();
        if graph.is_same(output.graph()) {
            return Ok(output.clone());
        }
        if let (Some(outer), Some(value)) = (graph.outer(), output.value()) {
            let differentiable = output.dtype().is_floating() || output.dtype().is_complex();
            if (outer.copies || !differentiable)
                && value.elements() <= COPIED_ELEMENTS
                && graph.is_within(output.graph())
            {
                return self.capture_by_copy(output, &value);
            }
        }
        self.capture_by_argument(output)
    }

    fn capture_by_copy(&self, output: &Output, value: &crate::Tensor) -> Result<Output> {
        if let Some(known) = self.known_capture(output, true) {
            return Ok(known);
        }
        let root = self.graph().scope();
        let copy = root.constant(value)?;
        let capture =
            Capture { outer: output.clone(), passed: output.clone(), inner: copy.edge(), copied: true };
        self.graph().lock().captures.push(capture);
        Ok(copy)
    }

    /// Like [`Scope::capture`], but constants are passed in rather than copied.
    fn capture_by_argument(&self, output: &Output) -> Result<Output> {
        let graph = self.graph();
        if graph.is_same(output.graph()) {
            return Ok(output.clone());
        }
        let Some(outer) = graph.outer().filter(|outer| outer.scope.graph().is_within(output.graph())) else {
            ensure!(
                !output.graph().is_within(graph),
                InvalidArgument,
                "output '{}' was made in the body of a function; return it from the closure to use it outside",
                output.name()
            );
            bail!(
                InvalidArgument,
                "output '{}' belongs to another graph; build the node in a scope of that graph, or import its GraphDef",
                output.name()
            )
        };
        if let Some(known) = self.known_capture(output, false) {
            return Ok(known);
        }
        let mut passed = outer.scope.capture_by_argument(output)?;
        if passed.is_ref() {
            passed = outer.scope.op("Identity").input(&passed).build()?.output(0)?;
        }
        let inner = graph.add_arg(&TensorSpec::from(&passed))?;
        let capture = Capture { outer: output.clone(), passed, inner: inner.edge(), copied: false };
        graph.lock().captures.push(capture);
        Ok(inner)
    }

    fn known_capture(&self, output: &Output, copied: bool) -> Option<Output> {
        let state = self.graph().lock();
        let same = |capture: &&Capture| {
            capture.copied == copied && (capture.outer == *output || (!copied && capture.passed == *output))
        };
        let inner = state.captures.iter().find(same)?.inner;
        drop(state);
        Some(Output::new(&self.graph().scope(), inner))
    }
}

impl Output {
    /// Sets the shape of an output and of what is behind a handle.
    pub(super) fn refine(&self, spec: &TensorSpec) {
        let mut state = self.graph().lock();
        if let Some(shape) = state.known.shape(self.edge()).merged(&spec.shape) {
            state.known.set_shape(self.edge(), shape);
        }
        if state.known.handles(self.edge()).is_empty() {
            state.known.set_handles(self.edge(), spec.handles.clone());
        }
    }
}
