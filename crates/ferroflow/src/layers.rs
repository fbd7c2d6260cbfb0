//! Layers: variables and the ops that use them, with the names of TensorFlow's `tf.compat.v1.layers`.
//!
//! ```
//! use ferroflow::layers::{Activation, Dense, dropout, flatten};
//! use ferroflow::{DType, Graph, ops};
//! # fn main() -> ferroflow::Result<()> {
//! let graph = Graph::new();
//! let s = graph.scope();
//! let images = ops::Placeholder::new(DType::Float).shape([-1, 8, 8, 1]).build(&s)?;
//! let x = flatten(&s, &images)?;
//! let x = Dense::new(128).activation(Activation::Relu).build(&s, &x)?;
//! let x = dropout(&s, &x, 0.4, Some(1))?;
//! let logits = Dense::new(10).build(&s, &x)?;
//! assert_eq!(logits.shape().dims(), Some(&[-1, 10][..]));
//! assert!(graph.find("dense_1/kernel").is_some());
//! # Ok(())
//! # }
//! ```

mod convolution;
mod embedding;
mod normalization;
mod recurrent;

pub use convolution::{Conv1d, Conv2d, Padding, avg_pool2d, max_pool2d};
pub use embedding::{PartitionStrategy, embedding_lookup};
pub use normalization::BatchNorm;
pub use recurrent::{Gru, Lstm, Sequence};

use crate::initializers::{self, Initializer};
use crate::variables::{Partitioner, Variable};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{Result, Tensor, ensure, status};
use ferroflow_ops::builders as ops;

/// Function that a layer applies to its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// The identity.
    #[default]
    Linear,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `x` for positive numbers, `exp(x) - 1` for others.
    Elu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `log(exp(x) + 1)`.
    Softplus,
    /// Exponentials along the last dimension, normalized to a sum of one.
    Softmax,
}

impl Activation {
    /// Adds the node that applies the function.
    #[track_caller]
    pub fn build(self, scope: &Scope, x: &Output) -> Result<Output> {
        match self {
            Activation::Linear => Ok(x.clone()),
            Activation::Relu => ops::relu(scope, x),
            Activation::Relu6 => ops::relu6(scope, x),
            Activation::Elu => ops::elu(scope, x),
            Activation::Sigmoid => ops::sigmoid(scope, x),
            Activation::Tanh => ops::tanh(scope, x),
            Activation::Softplus => ops::softplus(scope, x),
            Activation::Softmax => ops::softmax(scope, x),
        }
    }
}

/// Options that layers with weights have in common.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    pub(crate) kernel: Option<Initializer>,
    pub(crate) bias: Option<Initializer>,
    pub(crate) activation: Activation,
    pub(crate) name: String,
    pub(crate) partitioner: Option<Partitioner>,
}

impl Weights {
    pub(crate) fn new(name: &str) -> Weights {
        Weights {
            kernel: None,
            bias: Some(initializers::zeros()),
            activation: Activation::Linear,
            name: name.to_owned(),
            partitioner: None,
        }
    }

    /// Adds the kernel: whole, or in parts that are concatenated for use.
    pub(crate) fn kernel(&self, scope: &Scope, dims: Vec<i64>, like: &Output) -> Result<Output> {
        let mut spec = Variable::spec("kernel", dims).dtype(like.dtype());
        if let Some(kernel) = &self.kernel {
            spec = spec.initializer(kernel.clone());
        }
        match self.partitioner {
            Some(partitioner) => spec.partitioned(scope, partitioner)?.concat(scope),
            None => Ok(spec.build(scope)?.value().clone()),
        }
    }

    /// Adds the bias and the activation to the product with the kernel.
    pub(crate) fn finish(&self, scope: &Scope, x: Output, units: i64) -> Result<Output> {
        let x = match &self.bias {
            Some(initializer) => {
                let spec = Variable::spec("bias", [units]).dtype(x.dtype()).initializer(initializer.clone());
                let bias = spec.build(scope)?;
                ops::bias_add(scope, &x, &bias)?
            }
            None => x,
        };
        self.activation.build(scope, &x)
    }
}

/// Defines the builder methods that layers with weights share.
macro_rules! weights_builder {
    ($type:ident) => {
        impl $type {
            /// Sets the activation; none by default.
            #[must_use]
            pub fn activation(mut self, activation: $crate::layers::Activation) -> $type {
                self.weights.activation = activation;
                self
            }

            /// Sets the initial value of the kernel; Glorot-uniform by default.
            #[must_use]
            pub fn kernel_initializer(mut self, initializer: $crate::initializers::Initializer) -> $type {
                self.weights.kernel = Some(initializer);
                self
            }

            /// Sets the initial value of the bias; zeros by default.
            #[must_use]
            pub fn bias_initializer(mut self, initializer: $crate::initializers::Initializer) -> $type {
                self.weights.bias = Some(initializer);
                self
            }

            /// Leaves the bias out.
            #[must_use]
            pub fn without_bias(mut self) -> $type {
                self.weights.bias = None;
                self
            }

            /// Sets the name of the layer's scope.
            #[must_use]
            pub fn name(mut self, name: &str) -> $type {
                self.weights.name = name.to_owned();
                self
            }

            /// Partitions the kernel.
            #[must_use]
            pub fn partitioner(mut self, partitioner: $crate::variables::Partitioner) -> $type {
                self.weights.partitioner = Some(partitioner);
                self
            }
        }
    };
}
pub(crate) use weights_builder;

/// A fully connected layer.
///
/// ```
/// use ferroflow::layers::{Activation, Dense};
/// use ferroflow::{DType, Graph, ops};
///
/// let graph = Graph::new();
/// let s = graph.scope();
/// let x = ops::Placeholder::new(DType::Float).shape([-1, 64]).build(&s)?;
/// let y = Dense::new(32).activation(Activation::Relu).name("hidden").build(&s, &x)?;
/// assert_eq!(y.shape().to_string(), "[?,32]");
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dense {
    units: i64,
    weights: Weights,
}

weights_builder!(Dense);

impl Dense {
    /// Describes a layer of `units` units.
    pub fn new(units: i64) -> Dense {
        Dense { units, weights: Weights::new("dense") }
    }

    /// Adds the layer. It replaces the last dimension of `x` by the units.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the last dimension of `x` is not known.
    #[track_caller]
    pub fn build(self, scope: &Scope, x: &Output) -> Result<Output> {
        let inner = scope.scope(&self.weights.name);
        let shape = x.shape();
        let inputs = last_dim(x)?;
        let kernel = self.weights.kernel(&inner, vec![inputs, self.units], x)?;
        let rank = shape.rank().unwrap_or(2);
        if rank == 2 {
            return self.weights.finish(&inner, ops::mat_mul(&inner, x, &kernel)?, self.units);
        }
        // All dimensions but the last count as rows.
        let rows = ops::reshape(&inner, x, [-1, inputs])?;
        let product = ops::mat_mul(&inner, &rows, &kernel)?;
        let outer = ops::strided_slice(&inner, ops::shape(&inner, x), [0], [rank as i32 - 1], [1])?;
        let dims = ops::concat_v2(&inner, [&outer, &inner.constant([self.units as i32])?], 0)?;
        let whole = ops::reshape(&inner, &product, &dims)?;
        let known = shape.dims().map(|dims| {
            let outer = dims[..dims.len() - 1].iter().copied();
            outer.chain([self.units]).collect::<Vec<i64>>()
        });
        if let Some(known) = known {
            whole.set_shape(known)?;
        }
        self.weights.finish(&inner, whole, self.units)
    }
}

/// Returns the last dimension of an output, which determines the size of a layer's weights.
pub(crate) fn last_dim(x: &Output) -> Result<i64> {
    let shape = x.shape();
    let last = shape.dims().and_then(|dims| dims.last().copied()).filter(|dim| *dim > 0);
    last.ok_or_else(|| {
        status!(
            InvalidArgument,
            "the last dimension of '{}' determines the size of the layer's weights and must be known, but its shape is {shape}",
            x.name()
        )
    })
}

/// Adds a fully connected layer with default options; see [`Dense`].
#[track_caller]
pub fn dense(scope: &Scope, x: &Output, units: i64) -> Result<Output> {
    Dense::new(units).build(scope, x)
}

/// Reshapes `x` to a matrix with a row per element of its first dimension.
#[track_caller]
pub fn flatten(scope: &Scope, x: &Output) -> Result<Output> {
    let inner = scope.scope("flatten");
    let shape = x.shape();
    let width = shape.dims().and_then(|dims| {
        let rest = dims.get(1..)?;
        rest.iter().all(|dim| *dim >= 0).then(|| rest.iter().product::<i64>())
    });
    match width {
        Some(width) => ops::reshape(&inner, x, [-1, width as i32]),
        None => {
            let first = ops::StridedSlice::new().shrink_axis_mask(1);
            let rows = first.build(&inner, ops::shape(&inner, x), [0], [1], [1])?;
            let rows = [rows, inner.constant(Tensor::scalar(-1i32))?];
            ops::reshape(&inner, x, ops::pack(&inner, &rows))
        }
    }
}

/// Sets a fraction `rate` of the elements, drawn at random, to zero, and scales up the others to keep the expected sum.
///
/// # Errors
///
/// `InvalidArgument` unless `0 <= rate < 1`.
#[track_caller]
pub fn dropout(scope: &Scope, x: &Output, rate: f64, seed: Option<i64>) -> Result<Output> {
    ensure!((0.0..1.0).contains(&rate), InvalidArgument, "the dropout rate is {rate}, but must be in [0, 1)");
    if rate == 0.0 {
        return Ok(x.clone());
    }
    let inner = scope.scope("dropout");
    let scaled = ops::mul(&inner, x, 1.0 / (1.0 - rate))?;
    let (seed, seed2) = inner.seeds(seed);
    let dims = ops::shape(&inner, x)?;
    let drawn = ops::RandomUniform::new(x.dtype()).seed(seed).seed2(seed2);
    let drawn = drawn.build(&inner.scope("random_uniform"), &dims)?;
    let kept = ops::greater_equal(&inner, &drawn, rate)?;
    ops::select_v2(&inner, &kept, &scaled, 0.0)
}
