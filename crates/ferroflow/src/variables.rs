//! Variables: state that outlives steps, named and structured as stock's `tf.compat.v1.get_variable` does it, so that
//! stock reads their checkpoints and runs their graphs.
//!
//! ```
//! use ferroflow::{Graph, Variable, initializers, ops};
//! # fn main() -> ferroflow::Result<()> {
//! let graph = Graph::new();
//! let s = graph.scope();
//! let w = Variable::new(&s.scope("layer"), "w", [64, 10], initializers::glorot_uniform().seed(1))?;
//! let x = ops::Placeholder::new(ferroflow::DType::Float).shape([-1, 64]).build(&s)?;
//! let y = ops::mat_mul(&s, &x, &w)?;
//! assert_eq!(w.name(), "layer/w");
//! # let _ = y;
//! # Ok(())
//! # }
//! ```

mod partitioned;

pub use partitioned::{PartitionedVariable, Partitioner};

use crate::initializers::{Initializer, PartitionInfo};
use bytes::Bytes;
use ferroflow_core::scope::{CollectionItem, Graph, Input, Operation, Output, Scope};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, ToShape, bail, ensure, status};
use ferroflow_ops::builders as ops;
use ferroflow_proto::tensorflow::{SaveSliceInfoDef, VariableAggregation, VariableDef};
use prost::Message;

/// Names of the collections that hold variables.
pub mod collections {
    /// Variables that all tasks share and that checkpoints hold.
    pub const GLOBAL_VARIABLES: &str = "variables";
    /// Variables that optimizers update.
    pub const TRAINABLE_VARIABLES: &str = "trainable_variables";
    /// Variables of one task, such as those of metrics.
    pub const LOCAL_VARIABLES: &str = "local_variables";
    /// Variables that metrics are made of.
    pub const METRIC_VARIABLES: &str = "metric_variables";
    /// Variables that have moving averages.
    pub const MOVING_AVERAGE_VARIABLES: &str = "moving_average_variables";
    /// The variable that counts steps.
    pub const GLOBAL_STEP: &str = "global_step";
    /// Operations that every training step runs, such as updates of moving averages.
    pub const UPDATE_OPS: &str = "update_ops";
    /// Losses, for [`crate::losses::total_loss`].
    pub const LOSSES: &str = "losses";
    /// Losses of regularizers.
    pub const REGULARIZATION_LOSSES: &str = "regularization_losses";
}

/// Which part of a larger variable a variable is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveSlice {
    /// The name of the whole, which checkpoints use.
    pub full_name: String,
    /// The shape of the whole.
    pub full_shape: Shape,
    /// Where the part starts in each dimension.
    pub offset: Vec<i64>,
    /// The shape of the part.
    pub shape: Shape,
}

impl SaveSlice {
    /// The text by which save and restore ops name the part: `5 2 0,3:-`.
    pub fn spec(&self) -> String {
        let full: String = self.full_shape.dims().iter().map(|dim| format!("{dim} ")).collect();
        let parts = self.offset.iter().zip(self.shape.dims()).map(|(at, size)| format!("{at},{size}"));
        full + &parts.collect::<Vec<_>>().join(":")
    }

    fn to_proto(&self) -> SaveSliceInfoDef {
        SaveSliceInfoDef {
            full_name: self.full_name.clone(),
            full_shape: self.full_shape.dims().to_vec(),
            var_offset: self.offset.clone(),
            var_shape: self.shape.dims().to_vec(),
        }
    }

    fn from_proto(def: &SaveSliceInfoDef) -> Result<SaveSlice> {
        Ok(SaveSlice {
            full_name: def.full_name.clone(),
            full_shape: Shape::new(def.full_shape.iter().copied())?,
            offset: def.var_offset.clone(),
            shape: Shape::new(def.var_shape.iter().copied())?,
        })
    }
}

/// A variable of a graph. Cloning is cheap and shares the variable.
#[derive(Clone, Debug)]
pub struct Variable {
    handle: Output,
    snapshot: Output,
    initializer: Operation,
    initial_value: Option<Output>,
    shape: Shape,
    dtype: DType,
    trainable: bool,
    aggregation: VariableAggregation,
    slice: Option<SaveSlice>,
}

/// How a variable is made; see [`Variable::spec`].
#[derive(Clone, Debug)]
pub struct VariableSpec {
    name: String,
    shape: Result<Shape>,
    dtype: DType,
    initializer: Option<Initializer>,
    trainable: bool,
    reference: bool,
    collections: Vec<String>,
    aggregation: VariableAggregation,
    colocated: Option<Operation>,
    slice: Option<SaveSlice>,
    /// Whether the name is whole, whatever the scope.
    absolute: bool,
}

impl VariableSpec {
    /// The element type; float unless this says otherwise.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> VariableSpec {
        self.dtype = dtype;
        self
    }

    /// What the variable starts with; as in stock, floating-point variables are Glorot-uniform and others zero unless
    /// this says otherwise.
    #[must_use]
    pub fn initializer(mut self, initializer: Initializer) -> VariableSpec {
        self.initializer = Some(initializer);
        self
    }

    /// Whether optimizers update it; they do unless this says otherwise.
    #[must_use]
    pub fn trainable(mut self, trainable: bool) -> VariableSpec {
        self.trainable = trainable;
        self
    }

    /// Makes a variable of the first kind, reached by references instead of a handle.
    #[must_use]
    pub fn reference(mut self) -> VariableSpec {
        self.reference = true;
        self
    }

    /// The collections that list it, instead of the global variables.
    #[must_use]
    pub fn collections<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> VariableSpec {
        self.collections = names.into_iter().map(str::to_owned).collect();
        self
    }

    /// Puts the variable where this operation is.
    #[must_use]
    pub fn colocate_with(mut self, operation: impl Into<Operation>) -> VariableSpec {
        self.colocated = Some(operation.into());
        self
    }

    /// Says which part of a larger variable it is.
    #[must_use]
    pub fn slice(mut self, slice: SaveSlice) -> VariableSpec {
        self.slice = Some(slice);
        self
    }

    /// Takes the name as the whole name, whatever the scope.
    #[must_use]
    pub(crate) fn absolute(mut self) -> VariableSpec {
        self.absolute = true;
        self
    }

    fn aggregation(mut self, aggregation: VariableAggregation) -> VariableSpec {
        self.aggregation = aggregation;
        self
    }

    /// Adds the variable. Its name is new in the scope, or this is an error.
    #[track_caller]
    pub fn build(self, scope: &Scope) -> Result<Variable> {
        let shape = self.shape.clone()?;
        let name = format!("{}{}", if self.absolute { "" } else { scope.prefix() }, self.name);
        let graph = scope.graph();
        if graph.find(&name).is_some() {
            bail!(
                AlreadyExists,
                "Variable {name} already exists; give it another name, or pass the variable on"
            );
        }
        let outside = scope.without_control();
        let placed = match &self.colocated {
            Some(operation) => outside.colocate_with(operation),
            None => outside.clone(),
        };
        // Names with a slash at the end are taken as they are.
        let below = |scope: &Scope, part: &str| scope.scope(&format!("{name}/{part}"));
        let op = if self.reference { "VariableV2" } else { "VarHandleOp" };
        let node =
            placed.op(op).name(&format!("{name}/")).attr("dtype", self.dtype).shape_attr("shape", &shape);
        let node = if self.reference { node } else { node.attr("shared_name", name.as_str()) };
        let handle = node.build()?.output(0)?;
        let initializer = self.initializer.clone().unwrap_or_else(|| Initializer::default_for(self.dtype));
        let info = self.slice.as_ref().map(|slice| PartitionInfo {
            full_shape: slice.full_shape.clone(),
            offset: slice.offset.clone(),
        });
        let colocated = outside.colocate_with(&handle);
        let initial =
            initializer.build(&below(&colocated, "Initializer/"), &shape, self.dtype, info.as_ref())?;
        if !initial.shape().is_compatible_with(&PartialShape::from(&shape)) {
            bail!(
                InvalidArgument,
                "variable {name} has shape {shape}, but its initial value has shape {}",
                initial.shape()
            );
        }
        let device = handle.op().device();
        let own = if device.is_empty() {
            outside.without_device()
        } else {
            outside.without_device().device(&device)
        };
        let (assign, snapshot) = if self.reference {
            let scope = colocated.scope(&format!("{name}/"));
            let assign = scope.op("Assign").name("Assign").input(&handle).input(&initial).build()?;
            (assign, scope.op("Identity").name("read").input(&handle).build()?.output(0)?)
        } else {
            let checks = below(&placed, "IsInitialized/");
            checks.op("VarIsInitializedOp").input(&handle).build()?;
            let assign = own.scope(&format!("{name}/")).op("AssignVariableOp").name("Assign");
            let assign = assign.input(&handle).input(&initial).build()?;
            (assign, read_op(&below(&placed, "Read/"), &handle, self.dtype)?)
        };
        let variable = Variable {
            handle,
            snapshot,
            initializer: assign,
            initial_value: Some(initial),
            shape,
            dtype: self.dtype,
            trainable: self.trainable,
            aggregation: self.aggregation,
            slice: self.slice,
        };
        let mut collections = self.collections;
        if self.trainable && !collections.iter().any(|name| name == collections::TRAINABLE_VARIABLES) {
            collections.push(collections::TRAINABLE_VARIABLES.to_owned());
        }
        let encoded = Bytes::from(variable.to_proto().encode_to_vec());
        for name in collections {
            graph.add_to_collection(&name, CollectionItem::Bytes(encoded.clone()));
        }
        Ok(variable)
    }
}

fn read_op(scope: &Scope, handle: &Output, dtype: DType) -> Result<Output> {
    scope.op("ReadVariableOp").input(handle).attr("dtype", dtype).build()?.output(0)
}

impl Variable {
    /// Adds a float variable.
    #[track_caller]
    pub fn new(scope: &Scope, name: &str, shape: impl ToShape, initializer: Initializer) -> Result<Variable> {
        Variable::spec(name, shape).initializer(initializer).build(scope)
    }

    /// Adds a variable that starts with a tensor.
    #[track_caller]
    pub fn with_value(scope: &Scope, name: &str, value: impl Into<Tensor>) -> Result<Variable> {
        let value = value.into();
        let spec = Variable::spec(name, value.shape()).dtype(value.dtype());
        spec.initializer(Initializer::value(value)).build(scope)
    }

    /// Describes a variable.
    pub fn spec(name: &str, shape: impl ToShape) -> VariableSpec {
        VariableSpec {
            name: name.to_owned(),
            shape: shape.to_shape(),
            dtype: DType::Float,
            initializer: None,
            trainable: true,
            reference: false,
            collections: vec![collections::GLOBAL_VARIABLES.to_owned()],
            aggregation: VariableAggregation::None,
            colocated: None,
            slice: None,
            absolute: false,
        }
    }

    /// The variable that a collection's entry describes, e.g. one of an imported graph.
    pub fn from_proto(graph: &Graph, def: &VariableDef) -> Result<Variable> {
        let handle = graph.output(&def.variable_name)?;
        let shape: PartialShape = handle.op().attr("shape")?;
        let shape = shape.to_shape().ok_or_else(|| {
            status!(
                Unimplemented,
                "variable '{}' has the shape {shape}, which is not known in full",
                handle.name()
            )
        })?;
        let initial = (!def.initial_value_name.is_empty()).then(|| graph.output(&def.initial_value_name));
        Ok(Variable {
            dtype: handle.op().attr("dtype")?,
            snapshot: graph.output(&def.snapshot_name)?,
            initializer: graph.operation(&def.initializer_name)?,
            initial_value: initial.transpose()?,
            shape,
            trainable: def.trainable,
            aggregation: VariableAggregation::try_from(def.aggregation).unwrap_or_default(),
            slice: def.save_slice_info_def.as_ref().map(SaveSlice::from_proto).transpose()?,
            handle,
        })
    }

    /// The message that collections hold.
    pub fn to_proto(&self) -> VariableDef {
        VariableDef {
            variable_name: self.handle.name(),
            initial_value_name: self.initial_value.as_ref().map(Output::name).unwrap_or_default(),
            initializer_name: self.initializer.name(),
            snapshot_name: self.snapshot.name(),
            save_slice_info_def: self.slice.as_ref().map(SaveSlice::to_proto),
            is_resource: self.is_resource(),
            trainable: self.trainable,
            aggregation: self.aggregation as i32,
            ..Default::default()
        }
    }

    /// The name, which checkpoints use unless the variable is part of a larger one.
    pub fn name(&self) -> String {
        self.handle.op().name()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        self.handle.graph()
    }

    /// The operation that names the variable: it says where the variable is.
    pub fn op(&self) -> &Operation {
        self.handle.op()
    }

    /// The handle or reference, by which ops update the variable and gradients find it.
    pub fn handle(&self) -> &Output {
        &self.handle
    }

    /// Whether it is reached by a handle, not by references.
    pub fn is_resource(&self) -> bool {
        self.dtype_of_handle() == DType::Resource
    }

    fn dtype_of_handle(&self) -> DType {
        self.handle.dtype()
    }

    /// The value at some time in a step: before or after the updates that it does not wait for. [`Variable::read`]
    /// adds a read that waits for what its scope waits for.
    pub fn value(&self) -> &Output {
        &self.snapshot
    }

    /// The operation that gives the variable its initial value.
    pub fn initializer(&self) -> &Operation {
        &self.initializer
    }

    /// The initial value.
    pub fn initial_value(&self) -> Option<&Output> {
        self.initial_value.as_ref()
    }

    /// Whether optimizers update it.
    pub fn is_trainable(&self) -> bool {
        self.trainable
    }

    /// Which part of a larger variable it is, if it is one.
    pub fn save_slice(&self) -> Option<&SaveSlice> {
        self.slice.as_ref()
    }

    /// Adds a read after everything that the scope waits for.
    #[track_caller]
    pub fn read(&self, scope: &Scope) -> Result<Output> {
        if self.is_resource() {
            return read_op(scope, &self.handle, self.dtype);
        }
        scope.colocate_with(&self.handle).op("Identity").input(&self.handle).build()?.output(0)
    }

    /// Adds a test of whether the variable has a value.
    #[track_caller]
    pub fn is_initialized(&self, scope: &Scope) -> Result<Output> {
        let op = if self.is_resource() { "VarIsInitializedOp" } else { "IsVariableInitialized" };
        scope.op(op).input(&self.handle).build()?.output(0)
    }

    /// Adds an operation that replaces the value.
    #[track_caller]
    pub fn assign(&self, scope: &Scope, value: impl Into<Input>) -> Result<Operation> {
        self.update(scope, ["AssignVariableOp", "Assign"], value)
    }

    /// Adds an operation that adds to the value.
    #[track_caller]
    pub fn assign_add(&self, scope: &Scope, value: impl Into<Input>) -> Result<Operation> {
        self.update(scope, ["AssignAddVariableOp", "AssignAdd"], value)
    }

    /// Adds an operation that subtracts from the value.
    #[track_caller]
    pub fn assign_sub(&self, scope: &Scope, value: impl Into<Input>) -> Result<Operation> {
        self.update(scope, ["AssignSubVariableOp", "AssignSub"], value)
    }

    #[track_caller]
    fn update(&self, scope: &Scope, ops: [&str; 2], value: impl Into<Input>) -> Result<Operation> {
        let value = value.into();
        let (own, given) = (PartialShape::from(&self.shape), value.known_shape());
        ensure!(
            own.is_compatible_with(&given),
            InvalidArgument,
            "Cannot assign value to variable '{}': Shape mismatch. The variable shape {own}, and the assigned value shape \
             {given} are incompatible.",
            self.name()
        );
        let op = if self.is_resource() { ops[0] } else { ops[1] };
        let node = scope.op(op).input(&self.handle).input(value);
        if self.is_resource() { node.attr("dtype", self.dtype).build() } else { node.build() }
    }

    /// Adds a node that gathers rows, without reading the rest.
    #[track_caller]
    pub fn gather(&self, scope: &Scope, indices: impl Into<Input>) -> Result<Output> {
        if self.is_resource() {
            let node =
                scope.op("ResourceGather").input(&self.handle).input(indices).attr("dtype", self.dtype);
            return node.build()?.output(0);
        }
        ops::gather_v2(&scope.colocate_with(&self.handle), &self.snapshot, indices, 0)
    }

    /// Adds an operation that adds rows to some of the variable's.
    #[track_caller]
    pub fn scatter_add(
        &self,
        scope: &Scope,
        indices: impl Into<Input>,
        rows: impl Into<Input>,
    ) -> Result<Operation> {
        let op = if self.is_resource() { "ResourceScatterAdd" } else { "ScatterAdd" };
        let node = scope.op(op).input(&self.handle).input(indices).input(rows);
        if self.is_resource() { node.attr("dtype", self.dtype).build() } else { node.build() }
    }
}

impl From<&Variable> for Input {
    fn from(variable: &Variable) -> Input {
        variable.value().into()
    }
}

impl From<&Variable> for Output {
    /// The handle: what gradients are taken by.
    fn from(variable: &Variable) -> Output {
        variable.handle().clone()
    }
}

impl From<&Variable> for Variable {
    fn from(variable: &Variable) -> Variable {
        variable.clone()
    }
}

impl PartialEq for Variable {
    fn eq(&self, other: &Variable) -> bool {
        self.handle == other.handle
    }
}

impl Eq for Variable {}

/// The variables of a collection.
pub fn variables_in(graph: &Graph, collection: &str) -> Result<Vec<Variable>> {
    let variable = |item: CollectionItem| match item {
        CollectionItem::Bytes(encoded) => {
            let def = VariableDef::decode(encoded)
                .map_err(|error| status!(InvalidArgument, "collection '{collection}' is broken: {error}"))?;
            Variable::from_proto(graph, &def)
        }
        other => bail!(InvalidArgument, "collection '{collection}' holds {other:?}, which is no variable"),
    };
    graph.collection(collection).into_iter().map(variable).collect()
}

/// The variables that all tasks share, in the order they were added.
pub fn global_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::GLOBAL_VARIABLES)
}

/// The variables that optimizers update.
pub fn trainable_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::TRAINABLE_VARIABLES)
}

/// The variables of this task.
pub fn local_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::LOCAL_VARIABLES)
}

/// Adds an operation that gives all these variables their initial values.
#[track_caller]
pub fn variables_initializer(scope: &Scope, variables: &[Variable]) -> Result<Operation> {
    scope
        .without_control()
        .control(variables.iter().map(Variable::initializer))
        .op("NoOp")
        .name("init")
        .build()
}

/// Adds an operation that gives all global variables so far their initial values.
#[track_caller]
pub fn global_variables_initializer(scope: &Scope) -> Result<Operation> {
    variables_initializer(scope, &global_variables(scope.graph())?)
}

/// Adds an operation that gives all local variables so far their initial values.
#[track_caller]
pub fn local_variables_initializer(scope: &Scope) -> Result<Operation> {
    variables_initializer(scope, &local_variables(scope.graph())?)
}

/// The variable that counts steps, if the graph has it.
pub fn find_global_step(graph: &Graph) -> Result<Option<Variable>> {
    Ok(variables_in(graph, collections::GLOBAL_STEP)?.into_iter().next())
}

/// The variable that counts steps: an int64 named `global_step`, added if the graph lacks it.
#[track_caller]
pub fn global_step(scope: &Scope) -> Result<Variable> {
    if let Some(step) = find_global_step(scope.graph())? {
        return Ok(step);
    }
    Variable::spec("global_step", [])
        .absolute()
        .dtype(DType::Int64)
        .initializer(crate::initializers::zeros())
        .trainable(false)
        .collections([collections::GLOBAL_VARIABLES, collections::GLOBAL_STEP])
        .aggregation(VariableAggregation::OnlyFirstReplica)
        .build(scope)
}

/// The operations that every training step runs, such as updates of moving averages.
pub fn update_ops(graph: &Graph) -> Result<Vec<Operation>> {
    let operation = |item: CollectionItem| match item {
        CollectionItem::Node(name) => graph.operation(name.split(':').next().unwrap_or(&name)),
        other => bail!(InvalidArgument, "collection '{}' holds {other:?}", collections::UPDATE_OPS),
    };
    graph.collection(collections::UPDATE_OPS).into_iter().map(operation).collect()
}
