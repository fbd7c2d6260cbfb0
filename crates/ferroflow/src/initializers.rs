//! Initial values of variables. The same seeds give the same values as in TensorFlow.
//!
//! ```
//! use ferroflow::{Graph, Variable, initializers};
//! # fn main() -> ferroflow::Result<()> {
//! let graph = Graph::new();
//! graph.set_seed(7);
//! let s = graph.scope();
//! Variable::new(&s, "kernel", [3, 4], initializers::he_normal())?;
//! Variable::new(&s, "bias", [4], initializers::zeros())?;
//! Variable::new(&s, "scale", [4], initializers::truncated_normal(1.0, 0.1).seed(3))?;
//! # Ok(())
//! # }
//! ```

use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure};
use ferroflow_ops::builders as ops;
use std::fmt;
use std::sync::Arc;

/// Position of a part of a partitioned variable in the whole.
#[derive(Clone, Debug)]
pub struct PartitionInfo {
    /// Shape of the whole variable.
    pub full_shape: Shape,
    /// Start of the part in each dimension.
    pub offset: Vec<i64>,
}

/// Recipe for the initial value of a variable; the functions of this [module](self) make them.
#[derive(Clone, Debug)]
pub struct Initializer {
    kind: Kind,
    seed: Option<i64>,
}

type Custom = dyn Fn(&Scope, &Shape, DType, Option<&PartitionInfo>) -> Result<Output> + Send + Sync;

#[derive(Clone)]
enum Kind {
    Zeros,
    Ones,
    Constant(f64),
    Value(Tensor),
    Normal { mean: f64, stddev: f64 },
    TruncatedNormal { mean: f64, stddev: f64 },
    Uniform { low: f64, high: f64 },
    VarianceScaling { scale: f64, fan: Fan, distribution: Distribution },
    Identity { gain: f64 },
    Orthogonal { gain: f64 },
    Custom(Arc<Custom>),
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Zeros => write!(f, "zeros"),
            Kind::Ones => write!(f, "ones"),
            Kind::Constant(value) => write!(f, "constant({value})"),
            Kind::Value(value) => write!(f, "value({value:?})"),
            Kind::Normal { mean, stddev } => write!(f, "random_normal({mean}, {stddev})"),
            Kind::TruncatedNormal { mean, stddev } => write!(f, "truncated_normal({mean}, {stddev})"),
            Kind::Uniform { low, high } => write!(f, "random_uniform({low}, {high})"),
            Kind::VarianceScaling { scale, fan, distribution } => {
                write!(f, "variance_scaling({scale}, {fan:?}, {distribution:?})")
            }
            Kind::Identity { gain } => write!(f, "identity({gain})"),
            Kind::Orthogonal { gain } => write!(f, "orthogonal({gain})"),
            Kind::Custom(_) => write!(f, "custom"),
        }
    }
}

/// Connections of a unit that determine the variance of its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fan {
    /// Incoming connections.
    In,
    /// Outgoing connections.
    Out,
    /// The average of both.
    Average,
}

/// Distribution of random weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Normal, without values more than two standard deviations from the mean.
    TruncatedNormal,
    /// Normal.
    Normal,
    /// Uniform.
    Uniform,
}

fn of(kind: Kind) -> Initializer {
    Initializer { kind, seed: None }
}

/// Zeros, or empty strings.
pub fn zeros() -> Initializer {
    of(Kind::Zeros)
}

/// Ones.
pub fn ones() -> Initializer {
    of(Kind::Ones)
}

/// The same number in every element.
pub fn constant(value: f64) -> Initializer {
    of(Kind::Constant(value))
}

/// Normally distributed numbers.
pub fn random_normal(mean: f64, stddev: f64) -> Initializer {
    of(Kind::Normal { mean, stddev })
}

/// Normally distributed numbers within two standard deviations of the mean.
pub fn truncated_normal(mean: f64, stddev: f64) -> Initializer {
    of(Kind::TruncatedNormal { mean, stddev })
}

/// Uniformly distributed numbers from `low` to `high`.
pub fn random_uniform(low: f64, high: f64) -> Initializer {
    of(Kind::Uniform { low, high })
}

/// Random numbers whose variance is `scale` divided by the number of connections.
pub fn variance_scaling(scale: f64, fan: Fan, distribution: Distribution) -> Initializer {
    of(Kind::VarianceScaling { scale, fan, distribution })
}

/// Glorot's uniform initializer, also called Xavier's.
pub fn glorot_uniform() -> Initializer {
    variance_scaling(1.0, Fan::Average, Distribution::Uniform)
}

/// Glorot's normal initializer.
pub fn glorot_normal() -> Initializer {
    variance_scaling(1.0, Fan::Average, Distribution::TruncatedNormal)
}

/// He's uniform initializer.
pub fn he_uniform() -> Initializer {
    variance_scaling(2.0, Fan::In, Distribution::Uniform)
}

/// He's normal initializer.
pub fn he_normal() -> Initializer {
    variance_scaling(2.0, Fan::In, Distribution::TruncatedNormal)
}

/// LeCun's uniform initializer.
pub fn lecun_uniform() -> Initializer {
    variance_scaling(1.0, Fan::In, Distribution::Uniform)
}

/// LeCun's normal initializer.
pub fn lecun_normal() -> Initializer {
    variance_scaling(1.0, Fan::In, Distribution::TruncatedNormal)
}

/// A matrix with `gain` on its diagonal and zeros elsewhere.
pub fn identity(gain: f64) -> Initializer {
    of(Kind::Identity { gain })
}

/// A random matrix with orthogonal rows or columns, times `gain`; all dimensions but the last count as rows.
pub fn orthogonal(gain: f64) -> Initializer {
    of(Kind::Orthogonal { gain })
}

/// The output of nodes that `f` adds.
pub fn from_fn(
    f: impl Fn(&Scope, &Shape, DType, Option<&PartitionInfo>) -> Result<Output> + Send + Sync + 'static,
) -> Initializer {
    of(Kind::Custom(Arc::new(f)))
}

/// Number of elements from which a constant is filled in at run time, so that graphs stay small.
const LARGE: usize = 1000;

impl Initializer {
    /// Initializes with this tensor.
    pub fn value(value: Tensor) -> Initializer {
        of(Kind::Value(value))
    }

    /// Sets the seed of random numbers, which determines them together with the graph's seed.
    #[must_use]
    pub fn seed(mut self, seed: i64) -> Initializer {
        self.seed = Some(seed);
        self
    }

    /// Returns TensorFlow's default for variables of this type.
    pub(crate) fn default_for(dtype: DType) -> Initializer {
        if dtype.is_floating() { glorot_uniform() } else { zeros() }
    }

    /// Adds the nodes that compute the initial value.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the initializer cannot make values of this type or shape.
    #[track_caller]
    pub fn build(
        &self,
        scope: &Scope,
        shape: &Shape,
        dtype: DType,
        part: Option<&PartitionInfo>,
    ) -> Result<Output> {
        match &self.kind {
            Kind::Zeros => filled(scope, "zeros", 0.0, shape, dtype),
            Kind::Ones => filled(scope, "ones", 1.0, shape, dtype),
            Kind::Constant(value) => filled(scope, "Const", *value, shape, dtype),
            Kind::Value(value) => {
                ensure!(
                    value.shape() == shape && value.dtype() == dtype,
                    InvalidArgument,
                    "an initial value of type {} and shape {} does not fit a variable of type {dtype} and shape {shape}",
                    value.dtype(),
                    value.shape()
                );
                scope.named_constant("initial_value", value.clone())
            }
            Kind::Normal { mean, stddev } => normal(
                scope,
                ["random_normal", "RandomStandardNormal"],
                *mean,
                *stddev,
                shape,
                dtype,
                self.seed,
            ),
            Kind::TruncatedNormal { mean, stddev } => normal(
                scope,
                ["truncated_normal", "TruncatedNormal"],
                *mean,
                *stddev,
                shape,
                dtype,
                self.seed,
            ),
            Kind::Uniform { low, high } => uniform(scope, *low, *high, shape, dtype, self.seed),
            Kind::VarianceScaling { scale, fan, distribution } => {
                let whole = part.map_or(shape, |part| &part.full_shape);
                let variance = scale / connections(whole, *fan).max(1.0);
                match distribution {
                    // Truncation reduces the standard deviation by this factor.
                    Distribution::TruncatedNormal => {
                        let stddev = variance.sqrt() / 0.879_625_661_034_239_8;
                        let names = ["truncated_normal", "TruncatedNormal"];
                        normal(scope, names, 0.0, stddev, shape, dtype, self.seed)
                    }
                    Distribution::Normal => {
                        let names = ["random_normal", "RandomStandardNormal"];
                        normal(scope, names, 0.0, variance.sqrt(), shape, dtype, self.seed)
                    }
                    Distribution::Uniform => {
                        let limit = (3.0 * variance).sqrt();
                        uniform(scope, -limit, limit, shape, dtype, self.seed)
                    }
                }
            }
            Kind::Identity { gain } => identity_part(scope, *gain, shape, dtype, part),
            Kind::Orthogonal { gain } => orthogonal_matrix(scope, *gain, shape, dtype, self.seed),
            Kind::Custom(f) => f(scope, shape, dtype, part),
        }
    }
}

fn connections(shape: &Shape, fan: Fan) -> f64 {
    let (inputs, outputs) = match shape.dims() {
        [] => (1, 1),
        [units] => (*units, *units),
        [field @ .., inputs, outputs] => {
            let field: i64 = field.iter().product();
            (inputs * field, outputs * field)
        }
    };
    match fan {
        Fan::In => inputs as f64,
        Fan::Out => outputs as f64,
        Fan::Average => (inputs + outputs) as f64 / 2.0,
    }
}

/// Returns a tensor of this shape and type with `value` in every element.
fn number(value: f64, shape: &Shape, dtype: DType) -> Result<Tensor> {
    use ferroflow_core::{C64, C128, bf16, f16};
    let count = shape.elements();
    macro_rules! repeated {
        ($($dtype:ident => $value:expr;)*) => {
            match dtype {
                $(DType::$dtype => Tensor::new(shape.clone(), vec![$value; count]),)*
                DType::String if value == 0.0 => Ok(Tensor::zeros(dtype, shape.clone())),
                _ => bail!(InvalidArgument, "a variable of type {dtype} cannot be initialized with {value}"),
            }
        };
    }
    repeated! {
        Float => value as f32; Double => value; Half => f16::from_f64(value); Bfloat16 => bf16::from_f64(value);
        Int8 => value as i8; Int16 => value as i16; Int32 => value as i32; Int64 => value as i64;
        Uint8 => value as u8; Uint16 => value as u16; Uint32 => value as u32; Uint64 => value as u64;
        Bool => value != 0.0; Complex64 => C64::new(value as f32, 0.0); Complex128 => C128::new(value, 0.0);
    }
}

fn filled(scope: &Scope, name: &str, value: f64, shape: &Shape, dtype: DType) -> Result<Output> {
    if shape.elements() < LARGE {
        return scope.named_constant(name, number(value, shape, dtype)?);
    }
    let inner = scope.scope(name);
    let dims = inner.named_constant("shape_as_tensor", dims(shape)?)?;
    let value = inner.named_constant("Const", number(value, &Shape::scalar(), dtype)?)?;
    scope.op("Fill").name(inner.prefix()).input(dims).input(value).build()?.output(0)
}

/// Returns a shape as a vector, int32 if its dimensions fit.
fn dims(shape: &Shape) -> Result<Tensor> {
    let dims: Option<Vec<i32>> = shape.dims().iter().map(|dim| i32::try_from(*dim).ok()).collect();
    match dims {
        Some(dims) => Ok(Tensor::vector(dims)),
        None => Ok(Tensor::vector(shape.dims().to_vec())),
    }
}

fn random(scope: &Scope, op: &str, shape: &Shape, dtype: DType, seed: Option<i64>) -> Result<Output> {
    ensure!(
        dtype.is_floating(),
        InvalidArgument,
        "random initial values are floating-point numbers; a variable of type {dtype} needs another initializer"
    );
    let dims = scope.named_constant("shape", dims(shape)?)?;
    let (seed, seed2) = scope.seeds(seed);
    let node = scope.op(op).input(dims).attr("dtype", dtype).attr("seed", seed).attr("seed2", seed2);
    node.build()?.output(0)
}

fn normal(
    scope: &Scope,
    [name, op]: [&str; 2],
    mean: f64,
    stddev: f64,
    shape: &Shape,
    dtype: DType,
    seed: Option<i64>,
) -> Result<Output> {
    let inner = scope.scope(name);
    let scalar = |name: &str, value| inner.named_constant(name, number(value, &Shape::scalar(), dtype)?);
    let (mean, stddev) = (scalar("mean", mean)?, scalar("stddev", stddev)?);
    let drawn = random(&inner, op, shape, dtype, seed)?;
    let scaled = ops::Mul::new().name("mul").build(&inner, &drawn, &stddev)?;
    ops::AddV2::new().name(inner.prefix()).build(&inner, &scaled, &mean)
}

fn uniform(
    scope: &Scope,
    low: f64,
    high: f64,
    shape: &Shape,
    dtype: DType,
    seed: Option<i64>,
) -> Result<Output> {
    let inner = scope.scope("random_uniform");
    let scalar = |name: &str, value| inner.named_constant(name, number(value, &Shape::scalar(), dtype)?);
    let (low, high) = (scalar("min", low)?, scalar("max", high)?);
    let drawn = random(&inner, "RandomUniform", shape, dtype, seed)?;
    let range = ops::Sub::new().name("sub").build(&inner, &high, &low)?;
    let scaled = ops::Mul::new().name("mul").build(&inner, &drawn, &range)?;
    ops::AddV2::new().name(inner.prefix()).build(&inner, &scaled, &low)
}

fn identity_part(
    scope: &Scope,
    gain: f64,
    shape: &Shape,
    dtype: DType,
    part: Option<&PartitionInfo>,
) -> Result<Output> {
    ensure!(
        shape.rank() == 2,
        InvalidArgument,
        "an identity matrix has two dimensions, but the shape is {shape}"
    );
    let offset = part.map_or(vec![0, 0], |part| part.offset.clone());
    let mut values = vec![0.0f64; shape.elements()];
    let (rows, columns) = (shape.dim(0), shape.dim(1));
    for row in 0..rows {
        let column = row as i64 + offset[0] - offset[1];
        if (0..columns as i64).contains(&column) {
            values[row * columns + column as usize] = gain;
        }
    }
    let matrix = Tensor::new(shape.clone(), values)?;
    let matrix = scope.named_constant("eye", matrix)?;
    ops::Cast::new(dtype).name("identity").build(scope, &matrix)
}

fn orthogonal_matrix(
    scope: &Scope,
    gain: f64,
    shape: &Shape,
    dtype: DType,
    seed: Option<i64>,
) -> Result<Output> {
    let [outer @ .., columns] = shape.dims() else {
        bail!(InvalidArgument, "an orthogonal matrix has at least two dimensions, but the shape is {shape}");
    };
    ensure!(
        !outer.is_empty(),
        InvalidArgument,
        "an orthogonal matrix has at least two dimensions, but the shape is {shape}"
    );
    let rows: i64 = outer.iter().product();
    let tall = Shape::new([rows.max(*columns), rows.min(*columns)])?;
    let drawn = normal(scope, ["random_normal", "RandomStandardNormal"], 0.0, 1.0, &tall, dtype, seed)?;
    let factors = scope.op("Qr").input(&drawn).build()?;
    // The factorization is unique up to signs; those of R's diagonal are made positive.
    let diagonal = scope.op("MatrixDiagPart").input(factors.output(1)?).build()?.output(0)?;
    let mut matrix = ops::mul(scope, factors.output(0)?, ops::sign(scope, &diagonal))?;
    if rows < *columns {
        matrix = ops::transpose(scope, &matrix, [1, 0])?;
    }
    let whole = ops::reshape(scope, &matrix, dims(shape)?)?;
    ops::mul(scope, gain, &whole)
}
