//! The declaration of an op's gradient: a function that builds nodes with the same builders that programs use. The walk
//! over the graph that calls it is in [`crate::scope::gradients`].

use crate::attr::FromAttr;
use crate::scope::{Input, Operation, Output, Scope};
use crate::{DType, PartialShape, Result, Shape, Tensor, bail};

/// The gradient of an op.
#[derive(Clone, Copy)]
pub enum Gradient {
    /// No gradient: asking for one is an error.
    Undefined,
    /// The outputs do not depend on the inputs in a way that has a derivative.
    Stop,
    /// Builds the gradients of inputs from those of outputs.
    Fn(GradientFn),
    /// The operation is replaced by other nodes, which have gradients, before anything is differentiated.
    Replace(fn(&Operation) -> Result<()>),
    /// Builds gradients like `Fn` in the operation's own graph. Gradients built in another graph, such as those of a
    /// function's body, need values that exist in every step: the operation is replaced by other nodes first, unless
    /// the function returns false.
    Conditional(GradientFn, fn(&Operation) -> Result<bool>),
}

/// Builds the gradients of an operation's inputs, one per input, from those of its outputs.
pub type GradientFn = fn(&GradCx<'_>) -> Result<InputGrads>;

/// The gradient with respect to one value.
#[derive(Clone, Debug)]
pub enum Grad {
    /// A tensor of the value's shape.
    Dense(Output),
    /// Some rows of the value; all others are zero.
    Sparse(IndexedSlices),
}

/// Rows of a larger tensor: row `indices[i]` is `values[i]`; rows that occur several times add up.
#[derive(Clone, Debug)]
pub struct IndexedSlices {
    /// The rows.
    pub values: Output,
    /// The row numbers: a vector of int32 or int64.
    pub indices: Output,
    /// The shape of the whole tensor, as a vector, if known.
    pub dense_shape: Option<Output>,
}

impl IndexedSlices {
    /// The whole tensor; rows that are not listed are zero.
    pub fn to_dense(&self, scope: &Scope) -> Result<Output> {
        let Some(shape) = &self.dense_shape else {
            bail!(
                InvalidArgument,
                "the sparse gradient '{}' cannot be made dense, because the shape of the whole tensor is unknown",
                self.values.name()
            )
        };
        let first = scope.op("StridedSlice").input(shape).input([0]).input([1]).input([1]);
        let rows = first.attr("shrink_axis_mask", 1i64).build()?.output(0)?;
        let sum = scope.op("UnsortedSegmentSum").input(&self.values).input(&self.indices).input(&rows);
        let sum = sum.build()?.output(0)?;
        if let (Some(dims), Some(whole)) = (self.values.shape().dims(), shape.value()) {
            let dims = whole.to_i64s()?.first().copied().into_iter().chain(dims.iter().skip(1).copied());
            sum.set_shape(PartialShape::new(dims)?)?;
        }
        Ok(sum)
    }
}

impl Grad {
    /// The gradient as one tensor.
    pub fn to_dense(&self, scope: &Scope) -> Result<Output> {
        match self {
            Grad::Dense(output) => Ok(output.clone()),
            Grad::Sparse(slices) => slices.to_dense(scope),
        }
    }

    /// The tensor, if the gradient is one.
    pub fn dense(&self) -> Option<&Output> {
        match self {
            Grad::Dense(output) => Some(output),
            Grad::Sparse(_) => None,
        }
    }

    /// The rows, if the gradient is sparse.
    pub fn sparse(&self) -> Option<&IndexedSlices> {
        match self {
            Grad::Dense(_) => None,
            Grad::Sparse(slices) => Some(slices),
        }
    }

    /// The tensor or the rows.
    pub fn values(&self) -> &Output {
        match self {
            Grad::Dense(output) => output,
            Grad::Sparse(slices) => &slices.values,
        }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.values().dtype()
    }
}

impl From<Output> for Grad {
    fn from(output: Output) -> Grad {
        Grad::Dense(output)
    }
}

impl From<&Output> for Grad {
    fn from(output: &Output) -> Grad {
        Grad::Dense(output.clone())
    }
}

impl From<IndexedSlices> for Grad {
    fn from(slices: IndexedSlices) -> Grad {
        Grad::Sparse(slices)
    }
}

/// The gradients of an operation's inputs, in order; `None` where the outputs do not depend on the input.
#[derive(Clone, Debug, Default)]
pub struct InputGrads(pub Vec<Option<Grad>>);

impl InputGrads {
    /// No gradient for any input.
    pub fn none(inputs: usize) -> InputGrads {
        InputGrads(vec![None; inputs])
    }
}

impl<G: Into<Grad>, const N: usize> From<[G; N]> for InputGrads {
    fn from(grads: [G; N]) -> InputGrads {
        InputGrads(grads.into_iter().map(|grad| Some(grad.into())).collect())
    }
}

impl<G: Into<Grad>, const N: usize> From<[Option<G>; N]> for InputGrads {
    fn from(grads: [Option<G>; N]) -> InputGrads {
        InputGrads(grads.into_iter().map(|grad| grad.map(Into::into)).collect())
    }
}

impl<G: Into<Grad>> From<Vec<G>> for InputGrads {
    fn from(grads: Vec<G>) -> InputGrads {
        InputGrads(grads.into_iter().map(|grad| Some(grad.into())).collect())
    }
}

impl<G: Into<Grad>> From<Vec<Option<G>>> for InputGrads {
    fn from(grads: Vec<Option<G>>) -> InputGrads {
        InputGrads(grads.into_iter().map(|grad| grad.map(Into::into)).collect())
    }
}

/// The context of a gradient function: the operation, and the gradients of its outputs.
pub struct GradCx<'a> {
    scope: &'a Scope,
    operation: &'a Operation,
    inputs: Vec<Output>,
    dys: &'a [Option<Grad>],
    needed: &'a [bool],
}

impl<'a> GradCx<'a> {
    /// A context for an operation; `dys` has an entry per output, `needed` one per input.
    pub fn new(
        scope: &'a Scope,
        operation: &'a Operation,
        dys: &'a [Option<Grad>],
        needed: &'a [bool],
    ) -> GradCx<'a> {
        GradCx { scope, operation, inputs: operation.inputs(), dys, needed }
    }

    /// The scope that the gradient's nodes are added to.
    pub fn scope(&self) -> &'a Scope {
        self.scope
    }

    /// The operation.
    pub fn op(&self) -> &'a Operation {
        self.operation
    }

    /// An attribute of the operation.
    pub fn attr<T: FromAttr>(&self, name: &str) -> Result<T> {
        self.operation.attr(name)
    }

    /// The number of inputs.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs.
    pub fn num_outputs(&self) -> usize {
        self.dys.len()
    }

    /// An input. The op's declaration says how many there are.
    pub fn input(&self, index: usize) -> &Output {
        &self.inputs[index]
    }

    /// All inputs.
    pub fn inputs(&self) -> &[Output] {
        &self.inputs
    }

    /// An output.
    pub fn output(&self, index: usize) -> Result<Output> {
        self.operation.output(index)
    }

    /// Returns whether the gradient of this input is needed; otherwise a costly one may be left `None`.
    pub fn needs(&self, input: usize) -> bool {
        self.needed.get(input).copied().unwrap_or(true)
    }

    /// The gradient of an output, possibly sparse; `None` if nothing depends on the output.
    pub fn grad(&self, output: usize) -> Option<&Grad> {
        self.dys.get(output)?.as_ref()
    }

    /// The gradient of an output as one tensor; zeros if nothing depends on the output.
    pub fn dy(&self, output: usize) -> Result<Output> {
        match self.grad(output) {
            Some(grad) => grad.to_dense(self.scope),
            None => zeros_like(self.scope, &self.output(output)?),
        }
    }
}

/// Zeros for a value that nothing depends on; for a handle, zeros like what it refers to.
pub fn zeros_like(scope: &Scope, output: &Output) -> Result<Output> {
    let (dtype, shape) = match (output.dtype(), output.handle_shape()) {
        (DType::Resource, Some(handle)) => (handle.dtype, handle.shape),
        (dtype, _) => (dtype, output.shape()),
    };
    let zero = Tensor::zeros(dtype, Shape::scalar());
    let fill = |dims: Input| scope.op("Fill").name("zeros").input(dims).input(&zero).build()?.output(0);
    match (shape.to_shape(), output.dtype()) {
        // The zeros of a list depend on the list, so its op makes them.
        (Some(shape), dtype) if dtype != DType::Variant => fill(shape.dims().into()),
        (_, DType::Resource) => fill(scope.op("VariableShape").input(output).build()?.output(0)?.into()),
        _ => scope.op("ZerosLike").input(output).build()?.output(0),
    }
}
