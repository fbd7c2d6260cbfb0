//! Recurrent layers over sequences of known length, one copy of the cell's ops per step.
//!
//! Cells and the names of their variables are those of stock's `BasicLSTMCell` and `GRUCell`.

use super::last_dim;
use crate::initializers::{self, Initializer};
use crate::variables::Variable;
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{Result, Tensor, ensure, status};
use ferroflow_ops::build as ops;

/// What a recurrent layer made of a sequence.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The output of every step: batch, steps, units.
    pub outputs: Output,
    /// The output of the last step: batch, units.
    pub last: Output,
    /// The cell state after the last step; the last output for cells without one.
    pub state: Output,
}

/// Long short-term memory.
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
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lstm {
    units: i64,
    forget_bias: f64,
    kernel: Option<Initializer>,
    name: String,
}

/// Gated recurrent units.
#[derive(Clone, Debug)]
pub struct Gru {
    units: i64,
    kernel: Option<Initializer>,
    name: String,
}

/// The steps of `x`, each batch by features, and a batch of zeros.
fn steps(scope: &Scope, x: &Output, units: i64) -> Result<(Vec<Output>, Output)> {
    let shape = x.shape();
    let length = shape.dims().filter(|dims| dims.len() == 3).map(|dims| dims[1]).filter(|length| *length > 0);
    let length = length.ok_or_else(|| {
        status!(
            InvalidArgument,
            "'{}' has shape {shape}, expected batch, a known number of steps, and features",
            x.name()
        )
    })?;
    let steps = ops::Unpack::new(length).axis(1).build(scope, x)?;
    let first = ops::StridedSlice::new().shrink_axis_mask(1);
    let rows = first.build(scope, ops::shape(scope, x), [0], [1], [1])?;
    let dims = ops::pack(scope, [&rows, &scope.constant(Tensor::scalar(units as i32))?])?;
    let zeros = ops::fill(scope, &dims, ops::cast(scope, 0.0, x.dtype()))?;
    zeros.set_shape([shape.dims().map_or(-1, |dims| dims[0]), units])?;
    Ok((steps, zeros))
}

fn sequence(scope: &Scope, outputs: &[Output], state: Output) -> Result<Sequence> {
    let last = outputs.last().cloned();
    let last = last.ok_or_else(|| status!(InvalidArgument, "a sequence has at least one step"))?;
    Ok(Sequence { outputs: ops::Pack::new().axis(1).build(scope, outputs)?, last, state })
}

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
    ensure!(!parts.is_empty(), Internal, "a split has parts");
    Ok(parts)
}

impl Lstm {
    /// A layer of so many units.
    pub fn new(units: i64) -> Lstm {
        Lstm { units, forget_bias: 1.0, kernel: None, name: "basic_lstm_cell".to_owned() }
    }

    /// What is added to the forget gate; one unless this says otherwise.
    #[must_use]
    pub fn forget_bias(mut self, bias: f64) -> Lstm {
        self.forget_bias = bias;
        self
    }

    /// What the kernel starts with; Glorot-uniform numbers unless this says otherwise.
    #[must_use]
    pub fn kernel_initializer(mut self, initializer: Initializer) -> Lstm {
        self.kernel = Some(initializer);
        self
    }

    /// The name of the layer's scope.
    #[must_use]
    pub fn name(mut self, name: &str) -> Lstm {
        self.name = name.to_owned();
        self
    }

    /// Adds the layer over `x`: batch, steps, features.
    #[track_caller]
    pub fn build(self, scope: &Scope, x: &Output) -> Result<Sequence> {
        let inner = scope.scope(&self.name);
        let dims = [last_dim(x)? + self.units, 4 * self.units];
        let weights = weights(&inner, dims, &self.kernel, initializers::zeros(), x)?;
        let (steps, zeros) = steps(&inner, x, self.units)?;
        let (mut c, mut h) = (zeros.clone(), zeros);
        let mut outputs = Vec::new();
        for step in &steps {
            let gates = split(&inner, &affine(&inner, step, &h, &weights)?, 4)?;
            let [input, new, forget, output] = &gates[..] else {
                return Err(status!(Internal, "an LSTM has four gates"));
            };
            let forget = ops::sigmoid(&inner, ops::add_v2(&inner, forget, self.forget_bias))?;
            let kept = ops::mul(&inner, &c, &forget)?;
            let added = ops::mul(&inner, ops::sigmoid(&inner, input), ops::tanh(&inner, new))?;
            c = ops::add_v2(&inner, &kept, &added)?;
            h = ops::mul(&inner, ops::tanh(&inner, &c), ops::sigmoid(&inner, output))?;
            outputs.push(h.clone());
        }
        sequence(&inner, &outputs, c)
    }
}

impl Gru {
    /// A layer of so many units.
    pub fn new(units: i64) -> Gru {
        Gru { units, kernel: None, name: "gru_cell".to_owned() }
    }

    /// What the kernels start with; Glorot-uniform numbers unless this says otherwise.
    #[must_use]
    pub fn kernel_initializer(mut self, initializer: Initializer) -> Gru {
        self.kernel = Some(initializer);
        self
    }

    /// The name of the layer's scope.
    #[must_use]
    pub fn name(mut self, name: &str) -> Gru {
        self.name = name.to_owned();
        self
    }

    /// Adds the layer over `x`: batch, steps, features.
    #[track_caller]
    pub fn build(self, scope: &Scope, x: &Output) -> Result<Sequence> {
        let inner = scope.scope(&self.name);
        let (inputs, units) = (last_dim(x)? + self.units, self.units);
        let gates = weights(
            &inner.scope("gates"),
            [inputs, 2 * units],
            &self.kernel,
            initializers::constant(1.0),
            x,
        )?;
        let candidate =
            weights(&inner.scope("candidate"), [inputs, units], &self.kernel, initializers::zeros(), x)?;
        let (steps, mut h) = steps(&inner, x, units)?;
        let mut outputs = Vec::new();
        for step in &steps {
            let value = ops::sigmoid(&inner, affine(&inner, step, &h, &gates))?;
            let parts = split(&inner, &value, 2)?;
            let [reset, keep] = &parts[..] else {
                return Err(status!(Internal, "a GRU has two gates"));
            };
            let visible = ops::mul(&inner, reset, &h)?;
            let new = ops::tanh(&inner, affine(&inner, step, &visible, &candidate))?;
            let fresh = ops::mul(&inner, ops::sub(&inner, 1.0, keep), &new)?;
            h = ops::add_v2(&inner, ops::mul(&inner, keep, &h), &fresh)?;
            outputs.push(h.clone());
        }
        sequence(&inner, &outputs, h)
    }
}
