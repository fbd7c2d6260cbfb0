//! Recurrent layers over sequences. If the number of steps is known, the cell's ops are added once per step; otherwise they
//! run in a loop, which takes any number of steps and sequences of different lengths.
//!
//! Cells and the names of their variables are those of TensorFlow's `BasicLSTMCell` and `GRUCell`; loops do what its
//! `dynamic_rnn` does.

use super::last_dim;
use crate::initializers::{self, Initializer};
use crate::variables::Variable;
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{DType, PartialShape, Result, Tensor, ensure, status};
use ferroflow_ops::builders as ops;
use ferroflow_ops::flow::while_loop;

/// Results of a recurrent layer.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Output of every step, of shape (batch, steps, units); zeros after the end of a sequence.
    pub outputs: Output,
    /// Output of the last step of each sequence, of shape (batch, units).
    pub last: Output,
    /// Cell state after the last step; the last output for cells without a separate state.
    pub state: Output,
}

/// A layer of long short-term memory (LSTM).
///
/// ```
/// use ferroflow::layers::Lstm;
/// use ferroflow::{DType, Graph, ops};
/// # fn main() -> ferroflow::Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// let x = ops::Placeholder::new(DType::Float).shape([-1, 5, 3]).build(&s)?;
/// let sequence = Lstm::new(8).build(&s, &x)?;
/// assert_eq!(sequence.outputs.shape().dims(), Some(&[-1, 5, 8][..]));
/// assert!(graph.find("basic_lstm_cell/kernel").is_some());
///
/// // Sequences of different lengths, in batches with any number of steps.
/// let x = ops::Placeholder::new(DType::Float).shape([-1, -1, 3]).build(&s)?;
/// let lengths = ops::Placeholder::new(DType::Int32).shape([-1]).build(&s)?;
/// let sequence = Lstm::new(8).lengths(&lengths).build(&s, &x)?;
/// assert_eq!(sequence.last.shape().dims(), Some(&[-1, 8][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lstm {
    steps: Steps,
    forget_bias: f64,
    kernel: Option<Initializer>,
    name: String,
}

/// A layer of gated recurrent units (GRU).
///
/// ```
/// use ferroflow::layers::Gru;
/// use ferroflow::{DType, Graph, ops};
///
/// let graph = Graph::new();
/// let s = graph.scope();
/// let x = ops::Placeholder::new(DType::Float).shape([-1, 5, 3]).build(&s)?;
/// let sequence = Gru::new(8).build(&s, &x)?;
/// assert_eq!(sequence.outputs.shape().to_string(), "[?,5,8]");
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gru {
    steps: Steps,
    kernel: Option<Initializer>,
    name: String,
}

/// Iteration over the steps of sequences.
#[derive(Clone, Debug)]
struct Steps {
    units: i64,
    /// Number of steps of each sequence.
    lengths: Option<Output>,
    /// Forces a loop even if the number of steps is known.
    dynamic: bool,
}

/// Function from an input and the states of a cell to its next states, the last of which is its output.
type CellFn<'a> = &'a dyn Fn(&Scope, &Output, &[Output]) -> Result<Vec<Output>>;

impl Steps {
    fn new(units: i64) -> Steps {
        Steps { units, lengths: None, dynamic: false }
    }

    /// Applies a cell with `states` states to `x` of shape (batch, steps, features).
    fn run(&self, scope: &Scope, x: &Output, states: usize, cell: CellFn<'_>) -> Result<Sequence> {
        let shape = x.shape();
        let dims = shape.dims().filter(|dims| dims.len() == 3).ok_or_else(|| {
            let name = x.name();
            status!(
                InvalidArgument,
                "'{name}' has shape {shape}, but a recurrent layer needs (batch, steps, features)"
            )
        })?;
        let zeros = self.zeros(scope, x, dims[0])?;
        let start = vec![zeros; states];
        if self.dynamic || self.lengths.is_some() || dims[1] < 1 {
            return self.in_loop(scope, x, start, cell);
        }
        let mut state = start;
        let mut outputs = Vec::new();
        for step in &ops::Unpack::new(dims[1]).axis(1).build(scope, x)? {
            state = cell(scope, step, &state)?;
            outputs.push(output(&state)?.clone());
        }
        let outputs = ops::Pack::new().axis(1).build(scope, &outputs)?;
        Ok(Sequence { outputs, last: output(&state)?.clone(), state: state[0].clone() })
    }

    /// Returns zeros of shape (batch, units).
    fn zeros(&self, scope: &Scope, x: &Output, batch: i64) -> Result<Output> {
        let units = scope.constant(Tensor::scalar(self.units as i32))?;
        let dims = ops::pack(scope, [&element(scope, &ops::shape(scope, x)?, 0)?, &units])?;
        let zeros = ops::fill(scope, &dims, ops::cast(scope, 0.0, x.dtype()))?;
        zeros.set_shape([batch, self.units])?;
        Ok(zeros)
    }

    fn in_loop(&self, scope: &Scope, x: &Output, start: Vec<Output>, cell: CellFn<'_>) -> Result<Sequence> {
        let (dtype, batch) = (x.dtype(), start[0].shape().dims().map_or(-1, |dims| dims[0]));
        let lengths = match &self.lengths {
            Some(lengths) => {
                let shape = lengths.shape();
                ensure!(
                    shape.is_compatible_with(&PartialShape::new([batch])?),
                    InvalidArgument,
                    "lengths '{}' have shape {shape}, but need one element per sequence of '{}', whose shape is {}",
                    lengths.name(),
                    x.name(),
                    x.shape()
                );
                Some(ops::cast(scope, lengths, DType::Int32)?)
            }
            None => None,
        };
        // Transposed so that each step is an element of the list.
        let steps = ops::transpose(scope, x, [1, 0, 2])?;
        let count = element(scope, &ops::shape(scope, &steps)?, 0)?;
        let input_shape = [batch as i32, last_dim(x)? as i32];
        let output_shape = [batch as i32, self.units as i32];
        let inputs = ops::tensor_list_from_tensor(scope, &steps, input_shape)?;
        let outputs = ops::tensor_list_reserve(scope, output_shape, &count, dtype)?;
        let zeros = start[0].clone();
        let mut variables = vec![scope.constant(0i32)?, outputs];
        variables.extend(start);
        let body = |s: &Scope, v: &[Output]| {
            let (index, outputs, state) = (&v[0], &v[1], &v[2..]);
            let step = ops::tensor_list_get_item(s, &inputs, index, input_shape, dtype)?;
            let mut next = cell(s, &step, state)?;
            let mut shown = output(&next)?.clone();
            if let Some(lengths) = &lengths {
                let active = ops::expand_dims(s, ops::less(s, index, lengths), 1)?;
                shown = ops::select_v2(s, &active, &shown, &zeros)?;
                for (next, before) in next.iter_mut().zip(state) {
                    *next = ops::select_v2(s, &active, &*next, before)?;
                }
            }
            let outputs = ops::tensor_list_set_item(s, outputs, index, &shown)?;
            Ok([ops::add_v2(s, index, 1)?, outputs].into_iter().chain(next).collect())
        };
        let ended = while_loop(scope, &variables, |s, v| ops::less(s, &v[0], &count), body)?;
        let stacked = ops::tensor_list_stack(scope, &ended[1], output_shape, dtype)?;
        let outputs = ops::transpose(scope, &stacked, [1, 0, 2])?;
        outputs.set_shape([batch, x.shape().dims().map_or(-1, |dims| dims[1]), self.units])?;
        Ok(Sequence { outputs, last: output(&ended)?.clone(), state: ended[2].clone() })
    }
}

fn output(state: &[Output]) -> Result<&Output> {
    state.last().ok_or_else(|| status!(Internal, "a recurrent cell returned an empty state"))
}

fn element(scope: &Scope, vector: &Output, index: i32) -> Result<Output> {
    ops::StridedSlice::new().shrink_axis_mask(1).build(scope, vector, [index], [index + 1], [1])
}

/// Defines the builder methods that recurrent layers share.
macro_rules! steps_builder {
    ($type:ident) => {
        impl $type {
            /// Sets the number of steps of each sequence of a batch: a vector of integers. Later steps leave the state
            /// unchanged and output zeros.
            #[must_use]
            pub fn lengths(mut self, lengths: &Output) -> $type {
                self.steps.lengths = Some(lengths.clone());
                self
            }

            /// Iterates in a loop even if the number of steps is known, which keeps the graph small for long sequences.
            #[must_use]
            pub fn dynamic(mut self) -> $type {
                self.steps.dynamic = true;
                self
            }
        }
    };
}

steps_builder!(Lstm);
steps_builder!(Gru);

fn weights(
    scope: &Scope,
    dims: [i64; 2],
    kernel: &Option<Initializer>,
    bias: Initializer,
    x: &Output,
) -> Result<[Variable; 2]> {
    let mut spec = Variable::spec("kernel", dims).dtype(x.dtype());
    if let Some(kernel) = kernel {
        spec = spec.initializer(kernel.clone());
    }
    let bias = Variable::spec("bias", [dims[1]]).dtype(x.dtype()).initializer(bias);
    Ok([spec.build(scope)?, bias.build(scope)?])
}

/// `[x, h] · kernel + bias`.
fn affine(scope: &Scope, x: &Output, h: &Output, [kernel, bias]: &[Variable; 2]) -> Result<Output> {
    let joined = ops::concat_v2(scope, [x, h], 1)?;
    ops::bias_add(scope, ops::mat_mul(scope, &joined, kernel), bias)
}

fn split(scope: &Scope, x: &Output, parts: i64) -> Result<Vec<Output>> {
    let parts = ops::split(scope, 1, x, parts)?;
    ensure!(!parts.is_empty(), Internal, "a split has no parts");
    Ok(parts)
}

impl Lstm {
    /// Describes a layer of `units` units.
    pub fn new(units: i64) -> Lstm {
        Lstm { steps: Steps::new(units), forget_bias: 1.0, kernel: None, name: "basic_lstm_cell".to_owned() }
    }

    /// Sets the number that is added to the forget gate; 1 by default.
    #[must_use]
    pub fn forget_bias(mut self, bias: f64) -> Lstm {
        self.forget_bias = bias;
        self
    }

    /// Sets the initial value of the kernel; Glorot-uniform by default.
    #[must_use]
    pub fn kernel_initializer(mut self, initializer: Initializer) -> Lstm {
        self.kernel = Some(initializer);
        self
    }

    /// Sets the name of the layer's scope.
    #[must_use]
    pub fn name(mut self, name: &str) -> Lstm {
        self.name = name.to_owned();
        self
    }

    /// Adds the layer over `x` of shape (batch, steps, features).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `x` or the lengths have another shape, or the number of features is not known.
    #[track_caller]
    pub fn build(self, scope: &Scope, x: &Output) -> Result<Sequence> {
        let inner = scope.scope(&self.name);
        let units = self.steps.units;
        let weights =
            weights(&inner, [last_dim(x)? + units, 4 * units], &self.kernel, initializers::zeros(), x)?;
        self.steps.run(&inner, x, 2, &|s, step, state| {
            let [c, h] = state else { return Err(status!(Internal, "an LSTM cell needs two states")) };
            let gates = split(s, &affine(s, step, h, &weights)?, 4)?;
            let [input, new, forget, output] = &gates[..] else {
                return Err(status!(Internal, "an LSTM cell needs four gates"));
            };
            let forget = ops::sigmoid(s, ops::add_v2(s, forget, self.forget_bias))?;
            let kept = ops::mul(s, c, &forget)?;
            let added = ops::mul(s, ops::sigmoid(s, input), ops::tanh(s, new))?;
            let c = ops::add_v2(s, &kept, &added)?;
            let h = ops::mul(s, ops::tanh(s, &c), ops::sigmoid(s, output))?;
            Ok(vec![c, h])
        })
    }
}

impl Gru {
    /// Describes a layer of `units` units.
    pub fn new(units: i64) -> Gru {
        Gru { steps: Steps::new(units), kernel: None, name: "gru_cell".to_owned() }
    }

    /// Sets the initial value of the kernels; Glorot-uniform by default.
    #[must_use]
    pub fn kernel_initializer(mut self, initializer: Initializer) -> Gru {
        self.kernel = Some(initializer);
        self
    }

    /// Sets the name of the layer's scope.
    #[must_use]
    pub fn name(mut self, name: &str) -> Gru {
        self.name = name.to_owned();
        self
    }

    /// Adds the layer over `x` of shape (batch, steps, features).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `x` or the lengths have another shape, or the number of features is not known.
    #[track_caller]
    pub fn build(self, scope: &Scope, x: &Output) -> Result<Sequence> {
        let inner = scope.scope(&self.name);
        let units = self.steps.units;
        let inputs = last_dim(x)? + units;
        let gates = weights(
            &inner.scope("gates"),
            [inputs, 2 * units],
            &self.kernel,
            initializers::constant(1.0),
            x,
        )?;
        let candidate =
            weights(&inner.scope("candidate"), [inputs, units], &self.kernel, initializers::zeros(), x)?;
        self.steps.run(&inner, x, 1, &|s, step, state| {
            let [h] = state else { return Err(status!(Internal, "a GRU cell needs one state")) };
            let value = ops::sigmoid(s, affine(s, step, h, &gates))?;
            let parts = split(s, &value, 2)?;
            let [reset, keep] = &parts[..] else {
                return Err(status!(Internal, "a GRU cell needs two gates"));
            };
            let visible = ops::mul(s, reset, h)?;
            let new = ops::tanh(s, affine(s, step, &visible, &candidate))?;
            let fresh = ops::mul(s, ops::sub(s, 1.0, keep), &new)?;
            Ok(vec![ops::add_v2(s, ops::mul(s, keep, h), &fresh)?])
        })
    }
}
