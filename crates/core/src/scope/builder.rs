//! Builds one node of any op: attributes from inputs, constants from values, then the op's own checks.

use super::constant::{Input, InputKind, Numbers};
use super::{Operation, Output, Scope};
use crate::attr::{Attrs, ToAttr, attr_text};
use crate::graph::{self, NodeId};
use crate::op::{ArgSpec, ArgType, OpEntry};
use crate::{DType, Result, Status, Tensor, ToPartialShape, bail, ensure};
use ferroflow_proto::tensorflow::NodeDef;
use ferroflow_proto::tensorflow::attr_value::Value;
use std::panic::Location;
use std::sync::Arc;

/// A node's name and attributes, as typed builders collect them.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    name: Option<String>,
    attrs: Attrs,
    error: Option<Status>,
}

impl Settings {
    /// Sets the node's name.
    pub fn name(&mut self, name: &str) {
        self.name = Some(name.to_owned());
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: &str, value: impl ToAttr) {
        match value.to_attr() {
            Ok(value) => self.attrs.set(name, value),
            Err(error) => {
                self.error.get_or_insert(error.map_message(|text| format!("attribute '{name}': {text}")));
            }
        }
    }

    /// Sets an attribute that is a shape.
    pub fn set_shape(&mut self, name: &str, shape: impl ToPartialShape) {
        match shape.to_partial_shape() {
            Ok(shape) => self.set(name, shape),
            Err(error) => {
                self.error.get_or_insert(error.map_message(|text| format!("attribute '{name}': {text}")));
            }
        }
    }

    /// Starts building a node with these settings.
    pub fn node(self, scope: &Scope, op: &str) -> OpBuilder {
        OpBuilder::new(scope, op, self)
    }
}

/// Builds a node of any op by name; `ops::*` has a typed builder for each op.
///
/// Inputs are given per declared argument. Type and count attributes follow from them, other attributes have their
/// defaults, and the name is the op's unless given.
///
/// ```
/// # use ferroflow_core::{Result, op::{Op, Registry}, scope::Graph};
/// # static NEG: Op = Op { name: "Neg", inputs: &["x: T"], outputs: &["y: T"], attrs: &["T: type"], ..Op::PURE };
/// # static CONST: Op = Op {
/// #     name: "Const", outputs: &["output: dtype"], attrs: &["value: tensor", "dtype: type"], ..Op::PURE
/// # };
/// # fn main() -> Result<()> {
/// # let graph = Graph::over(Registry::new([&NEG, &CONST])?);
/// let s = graph.scope();
/// let x = s.constant(2.0f32)?;
/// let negated = s.op("Neg").name("negated").input(&x).build()?;
/// assert_eq!(negated.output(0)?.name(), "negated:0");
/// # Ok(())
/// # }
/// ```
#[must_use = "a node is added by `build`"]
pub struct OpBuilder {
    scope: Scope,
    op: String,
    settings: Settings,
    args: Vec<Vec<Input>>,
}

impl OpBuilder {
    pub(super) fn new(scope: &Scope, op: &str, settings: Settings) -> OpBuilder {
        OpBuilder { scope: scope.clone(), op: op.to_owned(), settings, args: Vec::new() }
    }

    /// Names the node. As in stock, a name that is taken gets a number, and one that ends in `/` is a full name.
    pub fn name(mut self, name: &str) -> OpBuilder {
        self.settings.name(name);
        self
    }

    /// Sets the next declared input, which is a single tensor.
    pub fn input(mut self, input: impl Into<Input>) -> OpBuilder {
        self.args.push(vec![input.into()]);
        self
    }

    /// Sets the next declared input, which is a list of tensors.
    pub fn inputs<I>(mut self, inputs: I) -> OpBuilder
    where
        I: IntoIterator,
        I::Item: Into<Input>,
    {
        self.args.push(inputs.into_iter().map(Into::into).collect());
        self
    }

    /// Sets an attribute.
    pub fn attr(mut self, name: &str, value: impl ToAttr) -> OpBuilder {
        self.settings.set(name, value);
        self
    }

    /// Sets an attribute that is a shape.
    pub fn shape_attr(mut self, name: &str, shape: impl ToPartialShape) -> OpBuilder {
        self.settings.set_shape(name, shape);
        self
    }

    /// Adds the node; the error says what is wrong and which line of the program asked for the node.
    #[track_caller]
    pub fn build(self) -> Result<Operation> {
        let caller = Location::caller();
        self.add().map_err(|error| {
            if error.message().contains("\n\tat ") {
                return error;
            }
            error.map_message(|text| format!("{text}\n\tat {caller}"))
        })
    }

    fn add(mut self) -> Result<Operation> {
        self.scope.check()?;
        if let Some(error) = self.settings.error.take() {
            return Err(error.map_message(|text| format!("{}: {text}", self.op)));
        }
        let registry = self.scope.graph().registry();
        let Some(entry) = registry.get(&self.op) else {
            return self.add_call();
        };
        for input in self.args.iter_mut().flatten() {
            match &mut input.0 {
                InputKind::Failed(error) => return Err(error.clone()),
                InputKind::Output(output) => *output = self.scope.capture(output)?,
                InputKind::Value(_) | InputKind::Numbers(_) => {}
            }
        }
        let types = infer_attrs(entry, &mut self.settings.attrs, &self.args)?;
        let name = self.take_name();
        let mut inputs = Vec::new();
        for ((arg, spec), types) in self.args.iter().zip(&entry.spec().inputs).zip(types) {
            for (input, dtype) in arg.iter().zip(types) {
                inputs.push(self.resolve(input, dtype, &format!("{name}/{}", spec.name))?);
            }
        }
        self.push(name, inputs)
    }

    /// Adds a call of a function by its name.
    fn add_call(mut self) -> Result<Operation> {
        let mut inputs = Vec::new();
        let name = self.take_name();
        for (i, input) in self.args.iter().flatten().enumerate() {
            let dtype = match &input.0 {
                InputKind::Numbers(numbers) => numbers.natural,
                _ => DType::Float,
            };
            inputs.push(self.resolve(input, dtype, &format!("{name}/arg_{i}"))?);
        }
        self.push(name, inputs)
    }

    fn take_name(&mut self) -> String {
        let name = self.settings.name.take().unwrap_or_else(|| self.op.clone());
        let graph = self.scope.graph();
        match name.strip_suffix('/') {
            Some(full) => full.to_owned(),
            None => graph.unique_name(&format!("{}{name}", self.scope.prefix())),
        }
    }

    /// The output behind an input; a value becomes a constant.
    fn resolve(&self, input: &Input, dtype: DType, name: &str) -> Result<Output> {
        let constant = |value: &Tensor| {
            let scope = self.scope.without_control();
            scope.named_constant(&format!("{}/", scope.graph().unique_name(name)), value)
        };
        match &input.0 {
            InputKind::Output(output) => self.scope.capture(output),
            InputKind::Value(value) => constant(value),
            InputKind::Numbers(numbers) => constant(&numbers.to_tensor(dtype)?),
            InputKind::Failed(error) => Err(error.clone()),
        }
    }

    fn push(self, name: String, inputs: Vec<Output>) -> Result<Operation> {
        let def = NodeDef {
            name: name.clone(),
            op: self.op.clone(),
            attr: self.settings.attrs.map().clone(),
            ..Default::default()
        };
        for attr in def.attr.keys().filter(|attr| !attr.starts_with('_')) {
            check_declared(self.scope.graph().registry().get(&self.op), attr)?;
        }
        let data = self.scope.graph().lock().graph.check_user_node(&def)?;
        // Device functions are user code, so they must not run while the graph is locked.
        let data = self.scope.place(data)?;
        let attrs = data.attrs.clone();
        let edges: Vec<graph::Output> = inputs.iter().map(Output::edge).collect();
        let mut controls: Vec<NodeId> = self.scope.0.controls.iter().map(Operation::id).collect();
        controls.retain(|id| !edges.iter().any(|edge| edge.node == *id));
        let mut state = self.scope.graph().lock();
        state.names.reserve(&name);
        ensure!(
            state.graph.find(&name).is_none(),
            AlreadyExists,
            "the graph already has an operation named '{name}'"
        );
        let id = state.push(graph::Node { data: Arc::new(data), inputs: edges, controls });
        drop(state);
        match id {
            Ok(id) => Ok(Operation::new(&self.scope, id)),
            Err(error) => {
                let shapes: Vec<String> = inputs.iter().map(|input| input.shape().to_string()).collect();
                let names: Vec<String> = inputs.iter().map(input_name).collect();
                let node = summary(&name, &self.op, &attrs, &names);
                Err(error.map_message(|text| {
                    let text = text.split(" for input shapes:").next().unwrap_or_default();
                    format!("{text} for '{node}' with input shapes: {}.", shapes.join(", "))
                }))
            }
        }
    }
}

/// A node as stock describes it in error messages.
fn summary(name: &str, op: &str, attrs: &Attrs, inputs: &[String]) -> String {
    let attrs = attrs.map().iter().filter_map(|(name, value)| {
        let value = value.value.as_ref().filter(|_| !name.starts_with('_'))?;
        Some(format!("{name}={}", attr_text(value)))
    });
    let attrs = attrs.collect::<Vec<_>>().join(", ");
    let attrs = if attrs.is_empty() { attrs } else { format!("[{attrs}]") };
    format!("{{{{node {name}}}}} = {op}{attrs}({})", inputs.join(", "))
}

fn input_name(output: &Output) -> String {
    if output.index() == 0 { output.op().name() } else { output.name() }
}

fn check_declared(entry: Option<&Arc<OpEntry>>, attr: &str) -> Result<()> {
    let Some(entry) = entry else { return Ok(()) };
    if entry.spec().attr(attr).is_none() {
        let names: Vec<&str> = entry.spec().attrs.iter().map(|attr| attr.name.as_str()).collect();
        bail!(
            InvalidArgument,
            "{} has no attribute '{attr}'; its attributes are: {}",
            entry.op.name,
            names.join(", ")
        );
    }
    Ok(())
}

/// Sets the attributes that inputs determine, and returns the element type of every input, per argument.
fn infer_attrs(entry: &OpEntry, attrs: &mut Attrs, args: &[Vec<Input>]) -> Result<Vec<Vec<DType>>> {
    let (op, specs) = (entry.op.name, &entry.spec().inputs);
    ensure!(
        args.len() == specs.len(),
        InvalidArgument,
        "{op} takes {} inputs ({}), but {} were given",
        specs.len(),
        specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", "),
        args.len()
    );
    for (spec, arg) in specs.iter().zip(args) {
        infer_count(op, spec, arg, attrs)?;
        if let ArgType::Attr(attr) = &spec.ty {
            for dtype in arg.iter().filter_map(dtype_of) {
                set_type(op, &spec.name, attr, dtype, attrs)?;
            }
        }
    }
    // Numbers take the types that are determined by now.
    for (spec, arg) in specs.iter().zip(args) {
        let ArgType::Attr(attr) = &spec.ty else { continue };
        if attrs.has(attr) {
            continue;
        }
        let default = entry.spec().attr(attr).and_then(|attr| attr.default.clone());
        match (default, arg.iter().find_map(numbers_of)) {
            (Some(default), Some(_)) => attrs.set(attr, default),
            (None, Some(numbers)) => attrs.set(attr, Value::Type(numbers.natural.to_wire())),
            _ => {}
        }
    }
    let mut types = Vec::with_capacity(specs.len());
    for (spec, arg) in specs.iter().zip(args) {
        types.push(match &spec.ty {
            ArgType::Fixed(dtype) => {
                for given in arg.iter().filter_map(dtype_of) {
                    ensure!(
                        given == *dtype,
                        InvalidArgument,
                        "input '{}' of {op} must be {dtype}, but is {given}; ops::cast converts",
                        spec.name
                    );
                }
                vec![*dtype; arg.len()]
            }
            // An empty list leaves the type open; the op's own check reports that.
            ArgType::Attr(attr) => vec![attrs.get(attr).unwrap_or(DType::Float); arg.len()],
            ArgType::List(attr) => {
                let given: Vec<DType> = arg.iter().map(natural_type).collect();
                let types = if attrs.has(attr) { attrs.get(attr)? } else { given.clone() };
                ensure!(
                    types.len() == given.len(),
                    InvalidArgument,
                    "attribute '{attr}' of {op} names {} types, but '{}' has {} tensors",
                    types.len(),
                    spec.name,
                    given.len()
                );
                attrs.set(attr, types.clone().to_attr()?);
                types
            }
        });
    }
    Ok(types)
}

fn infer_count(op: &str, spec: &ArgSpec, arg: &[Input], attrs: &mut Attrs) -> Result<()> {
    let Some(attr) = &spec.number_attr else {
        ensure!(
            arg.len() == 1 || matches!(spec.ty, ArgType::List(_)),
            InvalidArgument,
            "input '{}' of {op} is one tensor, but {} were given",
            spec.name,
            arg.len()
        );
        return Ok(());
    };
    if let Ok(count) = attrs.get::<i64>(attr) {
        ensure!(
            count == arg.len() as i64,
            InvalidArgument,
            "attribute '{attr}' of {op} is {count}, but '{}' has {} tensors",
            spec.name,
            arg.len()
        );
    }
    attrs.set(attr, Value::I(arg.len() as i64));
    Ok(())
}

fn set_type(op: &str, arg: &str, attr: &str, dtype: DType, attrs: &mut Attrs) -> Result<()> {
    match attrs.get::<DType>(attr) {
        Ok(known) if known != dtype => bail!(
            InvalidArgument,
            "input '{arg}' of {op} is {dtype}, but {attr} is {known} because of an earlier input or attribute; ops::cast converts"
        ),
        Ok(_) => Ok(()),
        Err(_) if attrs.has(attr) => bail!(InvalidArgument, "attribute '{attr}' of {op} is not a type"),
        Err(_) => {
            attrs.set(attr, Value::Type(dtype.to_wire()));
            Ok(())
        }
    }
}

fn dtype_of(input: &Input) -> Option<DType> {
    match &input.0 {
        InputKind::Output(output) => Some(output.dtype()),
        InputKind::Value(value) => Some(value.dtype()),
        InputKind::Numbers(_) | InputKind::Failed(_) => None,
    }
}

fn numbers_of(input: &Input) -> Option<&Numbers> {
    match &input.0 {
        InputKind::Numbers(numbers) => Some(numbers),
        _ => None,
    }
}

fn natural_type(input: &Input) -> DType {
    dtype_of(input).or(numbers_of(input).map(|numbers| numbers.natural)).unwrap_or(DType::Float)
}
