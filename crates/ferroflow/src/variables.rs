//! Variables: state that outlives steps, with the names and the structure of TensorFlow's `tf.compat.v1.get_variable`, so
//! that TensorFlow reads their checkpoints and runs their graphs.
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

/// Names of collections.
pub mod collections {
    /// Variables that all tasks share and that checkpoints hold.
    pub const GLOBAL_VARIABLES: &str = "variables";
    /// Variables that optimizers update.
    pub const TRAINABLE_VARIABLES: &str = "trainable_variables";
    /// Variables of one task, such as those of metrics.
    pub const LOCAL_VARIABLES: &str = "local_variables";
    /// Variables of metrics.
    pub const METRIC_VARIABLES: &str = "metric_variables";
    /// Variables that have moving averages.
    pub const MOVING_AVERAGE_VARIABLES: &str = "moving_average_variables";
    /// The global step.
    pub const GLOBAL_STEP: &str = "global_step";
    /// Operations that every training step runs, such as updates of moving averages.
    pub const UPDATE_OPS: &str = "update_ops";
    /// Losses, for [`crate::losses::total_loss`].
    pub const LOSSES: &str = "losses";
    /// Losses of regularizers.
    pub const REGULARIZATION_LOSSES: &str = "regularization_losses";
}

/// Position of a part of a partitioned variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveSlice {
    /// Name of the whole variable, which checkpoints use.
    pub full_name: String,
    /// Shape of the whole variable.
    pub full_shape: Shape,
    /// Start of the part in each dimension.
    pub offset: Vec<i64>,
    /// Shape of the part.
    pub shape: Shape,
}

impl SaveSlice {
    /// Returns the text that names the part in save and restore ops, e.g. `1000 16 500,500:0,16`: the whole shape, then start
    /// and length in each dimension.
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

/// Description of a variable; see [`Variable::spec`].
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
    /// Set if the name does not get the scope's prefix.
    absolute: bool,
}

impl VariableSpec {
    /// Sets the element type; float by default.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> VariableSpec {
        self.dtype = dtype;
        self
    }

    /// Sets the initial value. By default, as in TensorFlow, it is Glorot-uniform for floating-point variables and zero for
    /// others.
    #[must_use]
    pub fn initializer(mut self, initializer: Initializer) -> VariableSpec {
        self.initializer = Some(initializer);
        self
    }

    /// Sets whether optimizers update the variable; `true` by default.
    #[must_use]
    pub fn trainable(mut self, trainable: bool) -> VariableSpec {
        self.trainable = trainable;
        self
    }

    /// Makes a reference variable, TensorFlow's older kind, instead of a resource variable.
    #[must_use]
    pub fn reference(mut self) -> VariableSpec {
        self.reference = true;
        self
    }

    /// Sets the collections that list the variable, instead of the global variables.
    #[must_use]
    pub fn collections<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> VariableSpec {
        self.collections = names.into_iter().map(str::to_owned).collect();
        self
    }

    /// Places the variable on the device of an operation.
    #[must_use]
    pub fn colocate_with(mut self, operation: impl Into<Operation>) -> VariableSpec {
        self.colocated = Some(operation.into());
        self
    }

    /// Declares the variable as a part of a larger one.
    #[must_use]
    pub fn slice(mut self, slice: SaveSlice) -> VariableSpec {
        self.slice = Some(slice);
        self
    }

    /// Takes the name without the scope's prefix.
    #[must_use]
    pub(crate) fn absolute(mut self) -> VariableSpec {
        self.absolute = true;
        self
    }

    fn aggregation(mut self, aggregation: VariableAggregation) -> VariableSpec {
        self.aggregation = aggregation;
        self
    }

    /// Adds the variable.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the graph has a node of this name, `InvalidArgument` if the initial value does not fit.
    #[track_caller]
    pub fn build(self, scope: &Scope) -> Result<Variable> {
        let shape = self.shape.clone()?;
        let name = format!("{}{}", if self.absolute { "" } else { scope.prefix() }, self.name);
        let graph = scope.graph();
        if graph.find(&name).is_some() {
            bail!(
                AlreadyExists,
                "Variable {name} already exists; give it another name, or pass the variable itself around"
            );
        }
        let outside = scope.without_control();
        let placed = match &self.colocated {
            Some(operation) => outside.colocate_with(operation),
            None => outside.clone(),
        };
        // A slash at the end of a name keeps it from being made unique.
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

    /// Adds a variable with a tensor as its initial value, whose type and shape it has.
    #[track_caller]
    pub fn with_value(scope: &Scope, name: &str, value: impl Into<Tensor>) -> Result<Variable> {
        let value = value.into();
        let spec = Variable::spec(name, value.shape()).dtype(value.dtype());
        spec.initializer(Initializer::value(value)).build(scope)
    }

    /// Starts the description of a variable.
    ///
    /// ```
    /// use ferroflow::{DType, Graph, Variable, initializers};
    ///
    /// let graph = Graph::new();
    /// let counter = Variable::spec("counter", [])
    ///     .dtype(DType::Int64)
    ///     .initializer(initializers::zeros())
    ///     .trainable(false)
    ///     .build(&graph.scope())?;
    /// assert!(!counter.is_trainable());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
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

    /// Finds the variable that an entry of a collection describes, e.g. in an imported graph.
    ///
    /// # Errors
    ///
    /// `Unimplemented` if its shape is not fully known.
    pub fn from_proto(graph: &Graph, def: &VariableDef) -> Result<Variable> {
        let handle = graph.output(&def.variable_name)?;
        let shape: PartialShape = handle.op().attr("shape")?;
        let shape = shape.to_shape().ok_or_else(|| {
            status!(
                Unimplemented,
                "variable '{}' has shape {shape}, but must have a fully known shape",
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

    /// Returns the message that represents the variable in collections.
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

    /// Returns the name, which checkpoints use unless the variable is part of a larger one.
    pub fn name(&self) -> String {
        self.handle.op().name()
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the graph.
    pub fn graph(&self) -> &Graph {
        self.handle.graph()
    }

    /// Returns the operation of the handle, whose device is that of the variable.
    pub fn op(&self) -> &Operation {
        self.handle.op()
    }

    /// Returns the handle or reference, by which ops update the variable and gradients are taken.
    pub fn handle(&self) -> &Output {
        &self.handle
    }

    /// Returns `true` for a resource variable, `false` for a reference variable.
    pub fn is_resource(&self) -> bool {
        self.dtype_of_handle() == DType::Resource
    }

    fn dtype_of_handle(&self) -> DType {
        self.handle.dtype()
    }

    /// Returns the value at some time in a step: before or after updates that it does not wait for. [`Variable::read`]
    /// adds a read that waits for the control dependencies of its scope.
    pub fn value(&self) -> &Output {
        &self.snapshot
    }

    /// Returns the operation that initializes the variable.
    pub fn initializer(&self) -> &Operation {
        &self.initializer
    }

    /// Returns the initial value.
    pub fn initial_value(&self) -> Option<&Output> {
        self.initial_value.as_ref()
    }

    /// Returns `true` if optimizers update the variable.
    pub fn is_trainable(&self) -> bool {
        self.trainable
    }

    /// Returns the position in a larger variable, if this is a part of one.
    pub fn save_slice(&self) -> Option<&SaveSlice> {
        self.slice.as_ref()
    }

    /// Adds a read after the control dependencies of the scope.
    #[track_caller]
    pub fn read(&self, scope: &Scope) -> Result<Output> {
        if self.is_resource() {
            return read_op(scope, &self.handle, self.dtype);
        }
        scope.colocate_with(&self.handle).op("Identity").input(&self.handle).build()?.output(0)
    }

    /// Adds a node that tells whether the variable is initialized.
    #[track_caller]
    pub fn is_initialized(&self, scope: &Scope) -> Result<Output> {
        let op = if self.is_resource() { "VarIsInitializedOp" } else { "IsVariableInitialized" };
        scope.op(op).input(&self.handle).build()?.output(0)
    }

    /// Adds an operation that assigns a value.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the shape or type of the value does not fit.
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

    /// Adds a node that gathers rows, without reading the others.
    #[track_caller]
    pub fn gather(&self, scope: &Scope, indices: impl Into<Input>) -> Result<Output> {
        if self.is_resource() {
            let node =
                scope.op("ResourceGather").input(&self.handle).input(indices).attr("dtype", self.dtype);
            return node.build()?.output(0);
        }
        ops::gather_v2(&scope.colocate_with(&self.handle), &self.snapshot, indices, 0)
    }

    /// Adds an operation that adds `rows` to the rows at `indices`.
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
    /// Returns the handle, by which gradients are taken.
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

/// Returns the variables of a collection, in the order they were added.
pub fn variables_in(graph: &Graph, collection: &str) -> Result<Vec<Variable>> {
    let variable = |item: CollectionItem| match item {
        CollectionItem::Bytes(encoded) => {
            let def = VariableDef::decode(encoded).map_err(|error| {
                status!(InvalidArgument, "collection '{collection}' holds a malformed variable: {error}")
            })?;
            Variable::from_proto(graph, &def)
        }
        other => bail!(InvalidArgument, "collection '{collection}' holds {other:?}, which is not a variable"),
    };
    graph.collection(collection).into_iter().map(variable).collect()
}

/// Returns the variables that all tasks share, in the order they were added.
pub fn global_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::GLOBAL_VARIABLES)
}

/// Returns the variables that optimizers update.
pub fn trainable_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::TRAINABLE_VARIABLES)
}

/// Returns the variables of this task, such as those of metrics.
pub fn local_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::LOCAL_VARIABLES)
}

/// Adds an operation that initializes variables.
#[track_caller]
pub fn variables_initializer(scope: &Scope, variables: &[Variable]) -> Result<Operation> {
    scope
        .without_control()
        .control(variables.iter().map(Variable::initializer))
        .op("NoOp")
        .name("init")
        .build()
}

/// Adds an operation that initializes all global variables added so far.
#[track_caller]
pub fn global_variables_initializer(scope: &Scope) -> Result<Operation> {
    variables_initializer(scope, &global_variables(scope.graph())?)
}

/// Adds an operation that initializes all local variables added so far.
#[track_caller]
pub fn local_variables_initializer(scope: &Scope) -> Result<Operation> {
    variables_initializer(scope, &local_variables(scope.graph())?)
}

/// Returns the global step, if the graph has one.
pub fn find_global_step(graph: &Graph) -> Result<Option<Variable>> {
    Ok(variables_in(graph, collections::GLOBAL_STEP)?.into_iter().next())
}

/// Returns the global step, which counts training steps; adds it as an int64 named `global_step` if the graph lacks it.
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

/// Returns the operations that every training step must run, such as updates of moving averages.
pub fn update_ops(graph: &Graph) -> Result<Vec<Operation>> {
    let operation = |item: CollectionItem| match item {
        CollectionItem::Node(name) => graph.operation(name.split(':').next().unwrap_or(&name)),
        other => bail!(
            InvalidArgument,
            "collection '{}' holds {other:?}, which is not an operation",
            collections::UPDATE_OPS
        ),
    };
    graph.collection(collections::UPDATE_OPS).into_iter().map(operation).collect()
}
