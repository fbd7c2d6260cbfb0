//! Normal numbers between bounds that are parameters, by rejection from a normal, a uniform or an exponential
//! distribution, whichever accepts most (Robert, "Simulation of truncated normal variables", 1995).

use crate::builders as ops;
use crate::numeric::Float;
use crate::numeric::philox::{KernelStream, Philox, from_seed_input};
use crate::support::distribution::{Sample, broadcast_parameter, infer_from_shape_input, infer_seed};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, f16, kernels};
use num_traits::Float as _;
use std::f64::consts::FRAC_1_SQRT_2;

pub(crate) const OPS: &[&Op] = &[&PARAMETERIZED_TRUNCATED_NORMAL, &STATELESS_PARAMETERIZED_TRUNCATED_NORMAL];

static PARAMETERIZED_TRUNCATED_NORMAL: Op = Op {
    name: "ParameterizedTruncatedNormal",
    gradient: Gradient::Stop,
    inputs: &["shape: T", "means: dtype", "stdevs: dtype", "minvals: dtype", "maxvals: dtype"],
    outputs: &["output: dtype"],
    attrs: &[
        "seed: int = 0",
        "seed2: int = 0",
        "dtype: {half, bfloat16, float, double}",
        "T: {int32, int64}",
    ],
    shape: parameterized_shape,
    kernels: kernels!["dtype" => stateful_kernel: f16, f32, f64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static STATELESS_PARAMETERIZED_TRUNCATED_NORMAL: Op = Op {
    name: "StatelessParameterizedTruncatedNormal",
    gradient: Gradient::Fn(truncated_normal_grad),
    inputs: &[
        "shape: S",
        "seed: Tseed",
        "means: dtype",
        "stddevs: dtype",
        "minvals: dtype",
        "maxvals: dtype",
    ],
    outputs: &["output: dtype"],
    attrs: &["S: {int32, int64}", "Tseed: {int32, int64} = DT_INT64", "dtype: {half, float, double}"],
    shape: stateless_shape,
    kernels: kernels!["dtype" => stateless_kernel: f16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn parameterized_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    for parameter in 1..5 {
        s.rank_at_most(parameter, 1)?;
    }
    infer_from_shape_input(s)
}

fn stateless_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    infer_seed(s, 1)?;
    infer_from_shape_input(s)
}

/// Attempts per value; stock reserves two random words for each.
const MAX_ATTEMPTS: usize = 1000;
/// The size of a batch where all values share their parameters.
const BATCH: usize = 100;
const NAMES: [&str; 4] = ["means", "stddevs", "minvals", "maxvals"];

fn stateful_kernel<T: Float + Sample<Wide = <T as Float>::Math>>(init: &Init<'_>) -> Result<Kernel> {
    let stream = KernelStream::new(init)?;
    Kernel::sync(move |cx| {
        let shape = vector_shape(cx, 0)?;
        ensure!(!shape.is_empty(), InvalidArgument, "Shape tensor must not be empty");
        let parameters = [cx.input(1)?, cx.input(2)?, cx.input(3)?, cx.input(4)?];
        for (parameter, name) in parameters.iter().zip(NAMES) {
            ensure!(
                parameter.rank() <= 1,
                InvalidArgument,
                "Input {name} should be a scalar or vector, got shape: {}",
                parameter.shape()
            );
        }
        let mut out = cx.alloc::<T>(shape)?;
        let total = out.elements();
        if total == 0 {
            return Ok(out.into());
        }
        let (mut batches, mut samples) = (out.shape().dim(0), total / out.shape().dim(0));
        let [means, stddevs, minvals, maxvals] = parameters;
        if means.elements() == 1 && stddevs.elements() == 1 && minvals.rank() == 0 && maxvals.rank() == 0 {
            (batches, samples) = (total.div_ceil(BATCH), BATCH);
        } else {
            for (parameter, name) in parameters.iter().zip(NAMES) {
                ensure!(
                    parameter.elements() == 1 || parameter.elements() == batches,
                    InvalidArgument,
                    "Input {name} should have length 1 or shape[0], got shape: {}",
                    parameter.shape()
                );
            }
        }
        let reserved = batches * 2 * MAX_ATTEMPTS * (samples + 3) / 4;
        let mut philox = stream.reserve(reserved as u64);
        let values = [means.flat::<T>()?, stddevs.flat()?, minvals.flat()?, maxvals.flat()?];
        for (batch, part) in out.flat_mut::<T>()?.chunks_mut(samples).enumerate() {
            let [mean, stddev, low, high] = values.map(|v| if v.len() == 1 { v[0] } else { v[batch] });
            let bounds = Bounds::new(mean, stddev, low, high)?;
            bounds.sample(&mut philox, part.len(), |at, value| part[at] = value)?;
        }
        Ok(out.into())
    })
}

fn stateless_kernel<T: Float + Sample<Wide = <T as Float>::Math>>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let mut philox = from_seed_input(cx, 1)?;
        let parameters = [cx.input(2)?, cx.input(3)?, cx.input(4)?, cx.input(5)?];
        let batch = joint_shape(&parameters)?;
        let shape = vector_shape(cx, 0)?;
        ensure!(shape.ends_with(&batch), InvalidArgument, "Shape passed in must end with broadcasted shape.");
        let mut out = cx.alloc::<T>(shape)?;
        if out.elements() == 0 {
            return Ok(out.into());
        }
        let mut values = Vec::with_capacity(4);
        for parameter in parameters {
            values.push(broadcast_parameter(parameter.flat::<T>()?, parameter.shape(), &batch));
        }
        let batches = batch.elements();
        let samples = out.elements() / batches;
        let slots = out.flat_mut::<T>()?;
        for at in 0..batches {
            let bounds = Bounds::new(values[0][at], values[1][at], values[2][at], values[3][at])?;
            bounds.sample(&mut philox, samples, |sample, value| slots[sample * batches + at] = value)?;
        }
        Ok(out.into())
    })
}

fn vector_shape(cx: &KernelCx<'_>, input: usize) -> Result<Shape> {
    let shape = cx.input(input)?;
    ensure!(
        shape.rank() == 1,
        InvalidArgument,
        "Input shape should be a vector, got shape: {}",
        shape.shape()
    );
    Shape::new(shape.to_i64s()?)
}

fn joint_shape(parameters: &[&Tensor; 4]) -> Result<Shape> {
    let mut joint = PartialShape::scalar();
    for parameter in parameters {
        joint = match shapes::broadcast(&joint, &PartialShape::from(parameter.shape())) {
            Ok(joint) => joint,
            Err(_) => {
                let [means, stddevs, minvals, maxvals] = parameters.map(Tensor::shape);
                bail!(
                    InvalidArgument,
                    "means, stddevs, minvals, maxvals must have compatible batch dimensions: {means} vs. {stddevs} \
                     vs. {minvals} vs. {maxvals}"
                )
            }
        };
    }
    Ok(joint.to_shape().expect("a broadcast of known shapes is known"))
}

/// Bounds in units of the standard deviation, turned so that the lower one is finite.
struct Bounds<T> {
    mean: T,
    stddev: T,
    low: T,
    high: T,
}

impl<T: Float + Sample<Wide = <T as Float>::Math>> Bounds<T> {
    fn new(mean: T, stddev: T, low: T, high: T) -> Result<Bounds<T>> {
        ensure!(
            stddev > T::ZERO && low < high && (Float::is_finite(low) || Float::is_finite(high)),
            InvalidArgument,
            "Invalid parameters"
        );
        let turned = low == T::LOWEST || high < mean;
        let (low, high, stddev) = if turned { (high, low, stddev.neg()) } else { (low, high, stddev) };
        Ok(Bounds { mean, stddev, low: low.sub(mean).div(stddev), high: high.sub(mean).div(stddev) })
    }

    /// Draws `count` values; every operation rounds to the element type, as in stock.
    fn sample(&self, philox: &mut Philox, count: usize, mut put: impl FnMut(usize, T)) -> Result<()> {
        let of = T::from_f64;
        let (low, high) = (self.low, self.high);
        let inside = of(1.3);
        let root = sqrt(low.mul(low).add(of(4.0)));
        let cutoff = of(2.0).mul(exp(of(0.5).add(low.mul(low.sub(root)).div(of(4.0))))).div(low.add(root));
        let span = high.sub(low);
        let mut filled = 0;
        let mut attempts = 0;
        let mut accept = |value: T, filled: &mut usize| {
            put(*filled, value.mul(self.stddev).add(self.mean));
            *filled += 1;
        };
        if (low < inside.neg() && high >= T::ZERO) || (high > inside && low <= T::ZERO) {
            while filled < count {
                for normal in T::normal(philox.block()).into_iter().take(T::GROUP) {
                    let normal = <T as Sample>::narrow(normal);
                    if normal >= low && normal <= high {
                        accept(normal, &mut filled);
                        if filled == count {
                            break;
                        }
                        attempts = 0;
                    } else {
                        attempts += 1;
                        ensure!(attempts <= MAX_ATTEMPTS, Internal, "{}", failure("randn rejection sampler"));
                    }
                }
            }
        } else if span < cutoff {
            let plus = if low < T::ZERO { T::ZERO } else { low.mul(low) };
            while filled < count {
                let proposals = T::uniform(philox.block()).map(|uniform| uniform.mul(span).add(low));
                let tests = T::uniform(philox.block());
                for (z, test) in proposals.into_iter().zip(tests).take(T::GROUP) {
                    if test <= exp(plus.sub(z.mul(z)).div(of(2.0))) {
                        accept(z, &mut filled);
                        if filled == count {
                            break;
                        }
                        attempts = 0;
                    } else {
                        attempts += 1;
                        ensure!(
                            attempts < MAX_ATTEMPTS,
                            Internal,
                            "{}",
                            failure("uniform rejection sampler")
                        );
                    }
                }
            }
        } else {
            let alpha = low.add(root).div(of(2.0));
            while filled < count {
                let uniforms = T::uniform(philox.block());
                for pair in uniforms[..T::GROUP].chunks(2) {
                    let z = ln(pair[0]).neg().div(alpha).add(low);
                    let x = if low < alpha { alpha.sub(z) } else { low.sub(alpha) };
                    if pair[1] <= exp(x.neg().mul(x).div(of(2.0))) && z < high {
                        accept(z, &mut filled);
                        if filled == count {
                            break;
                        }
                        attempts = 0;
                    } else {
                        attempts += 1;
                        ensure!(
                            attempts < MAX_ATTEMPTS,
                            Internal,
                            "{}",
                            failure("exponential distribution rejection sampler")
                        );
                    }
                }
            }
        }
        Ok(())
    }
}

fn failure(sampler: &str) -> String {
    format!("TruncatedNormal {sampler} failed to accept a sample.")
}

fn sqrt<T: Float>(value: T) -> T {
    T::from_math(value.to_math().sqrt())
}

fn exp<T: Float>(value: T) -> T {
    T::from_math(value.to_math().exp())
}

fn ln<T: Float>(value: T) -> T {
    T::from_math(value.to_math().ln())
}

/// The share of a normal distribution below `x`.
fn share_below(s: &Scope, x: &Output) -> Result<Output> {
    let scaled = ops::mul(s, x, FRAC_1_SQRT_2)?;
    let size = ops::abs(s, &scaled)?;
    let tail = ops::erfc(s, &size)?;
    let far = ops::select(s, ops::greater(s, &scaled, 0), ops::sub(s, 2, &tail), &tail);
    let near = ops::add_v2(s, 1, ops::erf(s, &scaled));
    ops::mul(s, 0.5, ops::select(s, ops::less(s, &size, FRAC_1_SQRT_2), near, far))
}

/// By implicit differentiation of the distribution's share below each sample.
fn truncated_normal_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, shape, sample, dy) = (g.scope(), g.input(0), g.output(0)?, g.dy(0)?);
    let (mean, stddev, low, high) = (g.input(2), g.input(3), g.input(4), g.input(5));
    let standard = |x: &Output| ops::real_div(s, ops::sub(s, x, mean), stddev);
    let (low_std, high_std, x) = (standard(low)?, standard(high)?, standard(&sample)?);
    let below_low = share_below(s, &low_std)?;
    let whole = ops::sub(s, share_below(s, &high_std), &below_low);
    let share = ops::real_div(s, ops::sub(s, share_below(s, &x), &below_low), whole);
    // Neither share may be zero, because logarithms are taken of both.
    let (tiny, epsilon) = match mean.dtype() {
        DType::Half => (f16::MIN_POSITIVE.to_f64(), f16::EPSILON.to_f64()),
        DType::Float => (f64::from(f32::MIN_POSITIVE), f64::from(f32::EPSILON)),
        _ => (f64::MIN_POSITIVE, f64::EPSILON),
    };
    let share = ops::maximum(s, ops::minimum(s, share, 1.0 - epsilon), tiny)?;
    let squares = |bound: &Output| ops::mul(s, 0.5, ops::sub(s, ops::pow(s, &x, 2), ops::pow(s, bound, 2)));
    let slope_high = ops::exp(s, ops::add_v2(s, squares(&high_std), ops::log(s, &share)))?;
    let slope_low = ops::exp(s, ops::add_v2(s, squares(&low_std), ops::log1p(s, ops::neg(s, &share))))?;
    // Samples have dimensions in front of those that the parameters have together.
    let shapes = [mean, stddev, low, high].map(|parameter| ops::shape(s, parameter));
    let [mean_shape, stddev_shape, low_shape, high_shape] = shapes;
    let shapes = [mean_shape?, stddev_shape?, low_shape?, high_shape?];
    let mut together = ops::broadcast_args(s, &shapes[0], &shapes[1])?;
    together = ops::broadcast_args(s, &shapes[2], together)?;
    together = ops::broadcast_args(s, &shapes[3], together)?;
    let extra = ops::range(s, 0, ops::sub(s, ops::size(s, shape), ops::size(s, &together)), 1)?;
    let slopes = [ops::ones_like(s, &x)?, x.clone(), slope_low, slope_high];
    let mut grads = InputGrads::none(2);
    for (slope, shape) in slopes.into_iter().zip(shapes) {
        let sum = ops::sum(s, ops::mul(s, &dy, slope), &extra);
        let axes = ops::broadcast_gradient_args(s, &together, &shape)?.r1;
        let sum = ops::Sum::new().keep_dims(true).build(s, sum, axes);
        grads.0.push(Some(ops::reshape(s, sum, shape)?.into()));
    }
    Ok(grads)
}
