//! Poisson-distributed numbers: for each output a stretch of the stream of its own. Small rates count uniform factors
//! (Knuth), large ones use transformed rejection (Hörmann, "The transformed rejection method for generating Poisson
//! random variables", 1993).

use crate::numeric::philox::{BLOCKS_PER_OUTPUT, KernelStream, Philox, from_seed_input};
use crate::numeric::{Num, Real};
use crate::support::distribution::{
    Backward, Sample, infer_appended, infer_from_shape_input, infer_seed, shape_input,
};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&RANDOM_POISSON, &RANDOM_POISSON_V2, &STATELESS_RANDOM_POISSON];

static RANDOM_POISSON: Op = Op {
    name: "RandomPoisson",
    inputs: &["shape: S", "rate: dtype"],
    outputs: &["output: dtype"],
    attrs: &["seed: int = 0", "seed2: int = 0", "S: {int32, int64}", "dtype: {half, float, double}"],
    shape: infer_appended,
    kernels: kernels!["dtype" => poisson_kernel: f16, f32, f64],
    accuracy: Accuracy::Random,
    deprecated_at: Some(25),
    restartable: true,
    ..Op::STATEFUL
};

static RANDOM_POISSON_V2: Op = Op {
    name: "RandomPoissonV2",
    inputs: &["shape: S", "rate: R"],
    outputs: &["output: dtype"],
    attrs: &[
        "seed: int = 0",
        "seed2: int = 0",
        "S: {int32, int64}",
        "R: {half, float, double, int32, int64} = DT_DOUBLE",
        "dtype: {half, float, double, int32, int64} = DT_INT64",
    ],
    shape: infer_appended,
    kernels: kernels!["dtype" => poisson_kernel: f16, f32, f64, i32, i64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static STATELESS_RANDOM_POISSON: Op = Op {
    name: "StatelessRandomPoisson",
    gradient: Gradient::Stop,
    inputs: &["shape: T", "seed: Tseed", "lam: Rtype"],
    outputs: &["output: dtype"],
    attrs: &[
        "Rtype: {half, float, double, int32, int64}",
        "dtype: {half, float, double, int32, int64}",
        "T: {int32, int64}",
        "Tseed: {int32, int64} = DT_INT64",
    ],
    shape: stateless_shape,
    kernels: kernels!["dtype" => stateless_kernel: f16, f32, f64, i32, i64],
    ..Op::PURE
};

fn stateless_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    infer_seed(s, 1)?;
    infer_from_shape_input(s)
}

fn poisson_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let stream = KernelStream::new(init)?;
    Kernel::sync(move |cx| {
        let samples = shape_input(cx, 0)?;
        let rate = cx.input(1)?;
        let shape = Shape::new(samples.iter().chain(rate.shape().iter()).copied())?;
        if shape.elements() == 0 {
            return Ok(cx.alloc::<T>(shape)?.into());
        }
        let outputs = shape.elements();
        Ok(sample::<T>(cx, || stream.reserve_outputs(outputs), shape, rate)?.into())
    })
}

fn stateless_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let philox = from_seed_input(cx, 1)?;
        let (shape, rate) = (shape_input(cx, 0)?, cx.input(2)?);
        if shape.elements() == 0 {
            return Ok(cx.alloc::<T>(shape)?.into());
        }
        ensure!(
            shape.ends_with(rate.shape()),
            InvalidArgument,
            "Shape passed in must end with broadcasted shape."
        );
        Ok(sample::<T>(cx, || philox, shape, rate)?.into())
    })
}

/// Output `[sample, r]` has rate `rate[r]`; streams are numbered by rate, then by sample.
fn sample<T: Num>(
    cx: &KernelCx<'_>,
    philox: impl FnOnce() -> Philox,
    shape: Shape,
    rate: &Tensor,
) -> Result<Tensor> {
    let rates = match rate.dtype() {
        DType::Half => widen(rate.flat::<f16>()?),
        DType::Float => widen(rate.flat::<f32>()?),
        DType::Double => widen(rate.flat::<f64>()?),
        DType::Int32 => widen(rate.flat::<i32>()?),
        DType::Int64 => widen(rate.flat::<i64>()?),
        other => bail!(InvalidArgument, "rates of type {other} are not supported"),
    };
    let mut out = cx.alloc::<T>(shape)?;
    let philox = philox();
    let samples = out.elements() / rates.len();
    cx.threads().parallel_rows(out.flat_mut::<T>()?, rates.len(), 100, |first, rows| {
        for (row, values) in rows.chunks_mut(rates.len()).enumerate() {
            for (at, (value, rate)) in values.iter_mut().zip(&rates).enumerate() {
                let stream = (at * samples + first + row) as u64 * BLOCKS_PER_OUTPUT;
                *value = T::from_f64(draw(philox.skipped(stream), *rate));
            }
        }
    });
    Ok(out)
}

fn widen<T: Real>(values: &[T]) -> Vec<f64> {
    values.iter().map(|value| value.to_f64()).collect()
}

fn draw(mut philox: Philox, rate: f64) -> f64 {
    let mut uniforms = Backward::<f64>::new();
    let mut uniform = || uniforms.next(&mut philox, f64::uniform);
    // Neither would ever be accepted below.
    if rate.is_nan() || rate == f64::INFINITY {
        return rate;
    }
    if rate < 10.0 {
        let limit = (-rate).exp();
        let mut product = 1.0;
        let mut count = 0.0;
        loop {
            product *= uniform();
            if product <= limit {
                return count;
            }
            count += 1.0;
        }
    }
    let log_rate = rate.ln();
    let b = 0.931 + 2.53 * rate.sqrt();
    let a = -0.059 + 0.02483 * b;
    let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    loop {
        let u = uniform() - 0.5;
        let v = uniform();
        let shifted = 0.5 - u.abs();
        let k = ((2.0 * a / shifted + b) * u + rate + 0.43).floor();
        // A box under the curve: most numbers are accepted here.
        if shifted >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2.0) {
            return k;
        }
        if k < 0.0 || (shifted < 0.013 && v > shifted) {
            continue;
        }
        let s = (v * inverse_alpha / (a / (shifted * shifted) + b)).ln();
        if s <= -rate + k * log_rate - libm::lgamma(k + 1.0) {
            return k;
        }
    }
}
