//! Draws from categorical distributions given as unnormalized log-probabilities.

use crate::numeric::Real;
use crate::numeric::philox::{BLOCKS_PER_OUTPUT, KernelStream, Philox, Words, from_seed_input};
use crate::support::distribution::infer_seed;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Shape, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&MULTINOMIAL, &STATELESS_MULTINOMIAL];

static MULTINOMIAL: Op = Op {
    name: "Multinomial",
    gradient: Gradient::Stop,
    inputs: &["logits: T", "num_samples: int32"],
    outputs: &["output: output_dtype"],
    attrs: &[
        "seed: int = 0",
        "seed2: int = 0",
        "T: realnumbertype",
        "output_dtype: {int32, int64} = DT_INT64",
    ],
    shape: multinomial_shape,
    kernels: kernels![multinomial_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static STATELESS_MULTINOMIAL: Op = Op {
    name: "StatelessMultinomial",
    gradient: Gradient::Stop,
    inputs: &["logits: T", "num_samples: int32", "seed: Tseed"],
    outputs: &["output: output_dtype"],
    attrs: &[
        "T: realnumbertype",
        "Tseed: {int32, int64} = DT_INT64",
        "output_dtype: {int32, int64} = DT_INT64",
    ],
    shape: stateless_shape,
    kernels: kernels![stateless_kernel: f16, bf16, f32, f64],
    ..Op::PURE
};

fn multinomial_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let logits = s.rank(0, 2)?;
    s.rank(1, 0)?;
    let samples = s.constant_i64(1)?.unwrap_or(UNKNOWN_DIM);
    s.output(0, [logits.dims().map_or(UNKNOWN_DIM, |dims| dims[0]), samples])
}

fn stateless_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    infer_seed(s, 2)?;
    multinomial_shape(s)
}

fn multinomial_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let (stream, dtype) = (KernelStream::new(init)?, init.attr::<DType>("output_dtype")?);
    Kernel::sync(move |cx| Ok(draw::<T>(cx, dtype, |blocks| stream.reserve(blocks))?.into()))
}

fn stateless_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let dtype = init.attr::<DType>("output_dtype")?;
    Kernel::sync(move |cx| {
        let philox = from_seed_input(cx, 2)?;
        Ok(draw::<T>(cx, dtype, |_| philox)?.into())
    })
}

fn draw<T: Real>(cx: &KernelCx<'_>, dtype: DType, reserve: impl FnOnce(u64) -> Philox) -> Result<Tensor> {
    let (logits, samples) = (cx.input(0)?, cx.input(1)?);
    ensure!(logits.rank() == 2, InvalidArgument, "logits should be a matrix, got shape {}", logits.shape());
    ensure!(
        samples.rank() == 0,
        InvalidArgument,
        "num_samples should be a scalar, got shape {}",
        samples.shape()
    );
    let samples = samples.to_scalar::<i32>()?;
    ensure!(samples >= 0, InvalidArgument, "num_samples should be non-negative, got {samples}");
    let (batch, classes, samples) = (logits.shape().dim(0), logits.shape().dim(1), samples as usize);
    ensure!(classes > 0, InvalidArgument, "num_classes should be positive, got {classes}");
    let mut out = cx.alloc_dtype(dtype, Shape::matrix(batch, samples))?;
    if out.elements() == 0 {
        return Ok(out);
    }
    // Stock reserves two words per double, in multiples of four samples.
    let reserved = batch as u64 * (samples.next_multiple_of(4) * 2) as u64;
    let mut words = Words::new(reserve(reserved.wrapping_mul(BLOCKS_PER_OUTPUT)));
    let mut classes_drawn = Vec::with_capacity(out.elements());
    let mut cumulative = vec![0.0f64; classes];
    for row in logits.flat::<T>()?.chunks(classes) {
        let total = accumulate(row, &mut cumulative);
        for _ in 0..samples {
            let sought = words.next_f64() * total;
            classes_drawn.push(cumulative.partition_point(|bound| *bound <= sought));
        }
    }
    match dtype {
        DType::Int32 => {
            let slots = out.flat_mut::<i32>()?.iter_mut().zip(classes_drawn);
            slots.for_each(|(slot, class)| *slot = class as i32);
        }
        _ => {
            let slots = out.flat_mut::<i64>()?.iter_mut().zip(classes_drawn);
            slots.for_each(|(slot, class)| *slot = class as i64);
        }
    }
    Ok(out)
}

/// The running sums of `exp(logit - max)` over finite logits, and their total.
fn accumulate<T: Real>(row: &[T], cumulative: &mut [f64]) -> f64 {
    let finite = row.iter().map(|logit| logit.to_f64()).filter(|logit| logit.is_finite());
    let max = finite.fold(f64::MIN, f64::max);
    let mut total = 0.0;
    for (bound, logit) in cumulative.iter_mut().zip(row) {
        let logit = logit.to_f64();
        if logit.is_finite() {
            total += (logit - max).exp();
        }
        *bound = total;
    }
    total
}
