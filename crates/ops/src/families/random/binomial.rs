//! Binomially distributed numbers: for each output a stretch of the stream of its own. Small means add up geometric
//! numbers, large ones use transformed rejection (Hörmann, "The generation of binomial random variates", 1993).

use crate::numeric::philox::{Philox, from_seed_input, scalar_input};
use crate::numeric::{Float, Num};
use crate::state::rng_state;
use crate::support::distribution::{
    Backward, Sample, broadcast_parameter, infer_from_shape_input, infer_seed,
};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx, shapes};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, ensure, f16, kernels, status};

pub(crate) const OPS: &[&Op] = &[&STATELESS_RANDOM_BINOMIAL, &STATEFUL_RANDOM_BINOMIAL];

static STATELESS_RANDOM_BINOMIAL: Op = Op {
    name: "StatelessRandomBinomial",
    gradient: Gradient::Stop,
    inputs: &["shape: S", "seed: Tseed", "counts: T", "probs: T"],
    outputs: &["output: dtype"],
    attrs: &[
        "S: {int32, int64}",
        "Tseed: {int32, int64} = DT_INT64",
        "T: {half, float, double, int32, int64} = DT_DOUBLE",
        "dtype: {half, float, double, int32, int64} = DT_INT64",
    ],
    shape: stateless_shape,
    kernels: kernels!["T" => stateless_kernel: f16, f32, f64],
    ..Op::PURE
};

static STATEFUL_RANDOM_BINOMIAL: Op = Op {
    name: "StatefulRandomBinomial",
    inputs: &["resource: resource", "algorithm: int64", "shape: S", "counts: T", "probs: T"],
    outputs: &["output: dtype"],
    attrs: &[
        "S: {int32, int64}",
        "T: {half, float, double, int32, int64} = DT_DOUBLE",
        "dtype: {half, float, double, int32, int64} = DT_INT64",
    ],
    shape: stateful_shape,
    kernels: kernels!["T" => stateful_kernel: f16, f32, f64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

fn stateless_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    infer_seed(s, 1)?;
    infer_from_shape_input(s)
}

fn stateful_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.constant_shape(2)?;
    s.set(0, shape);
    Ok(())
}

fn stateless_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    let dtype = init.attr::<DType>("dtype")?;
    Kernel::sync(move |cx| {
        let philox = from_seed_input(cx, 1)?;
        let plan = Plan::<T>::new(cx, 0, 2)?;
        Ok(plan.sample(cx, dtype, || Ok(philox))?.into())
    })
}

fn stateful_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    let dtype = init.attr::<DType>("dtype")?;
    Kernel::sync(move |cx| {
        let plan = Plan::<T>::new(cx, 2, 3)?;
        let algorithm = scalar_input::<i64>(cx.input(1)?, 1)?;
        rng_state::check_algorithm(algorithm)?;
        let reserve = || {
            let delta = plan.batches() as u64 * 2 * 100 * (plan.samples() as u64 + 3) / 4;
            rng_state::advance(&*cx.variable(0)?, 0, delta)
        };
        Ok(plan.sample(cx, dtype, reserve)?.into())
    })
}

/// Every pair of a count and a probability, and how many numbers are wanted of each.
struct Plan<T> {
    shape: Shape,
    pairs: Vec<(T, T)>,
}

impl<T: Float> Plan<T> {
    fn new(cx: &KernelCx<'_>, shape: usize, counts: usize) -> Result<Plan<T>> {
        let (shape, counts, probs) = (cx.input(shape)?, cx.input(counts)?, cx.input(counts + 1)?);
        let batch =
            shapes::broadcast(&PartialShape::from(counts.shape()), &PartialShape::from(probs.shape()));
        let batch = batch.ok().and_then(|batch| batch.to_shape()).ok_or_else(|| {
            status!(
                InvalidArgument,
                "counts and probs must have compatible batch dimensions: {} vs. {}",
                counts.shape(),
                probs.shape()
            )
        })?;
        ensure!(
            shape.rank() == 1,
            InvalidArgument,
            "Input shape should be a vector, got shape: {}",
            shape.shape()
        );
        let shape = Shape::new(shape.to_i64s()?)?;
        ensure!(shape.ends_with(&batch), InvalidArgument, "Shape passed in must end with broadcasted shape.");
        let counts = broadcast_parameter(counts.flat::<T>()?, counts.shape(), &batch);
        let probs = broadcast_parameter(probs.flat::<T>()?, probs.shape(), &batch);
        Ok(Plan { shape, pairs: counts.into_iter().zip(probs).collect() })
    }

    fn batches(&self) -> usize {
        self.pairs.len()
    }

    fn samples(&self) -> usize {
        self.shape.elements() / self.batches().max(1)
    }

    fn sample(
        &self,
        cx: &KernelCx<'_>,
        dtype: DType,
        philox: impl FnOnce() -> Result<Philox>,
    ) -> Result<Tensor> {
        let mut out = cx.alloc_dtype(dtype, self.shape.clone())?;
        let philox = philox()?;
        match dtype {
            DType::Half => self.fill(cx, philox, out.flat_mut::<f16>()?),
            DType::Float => self.fill(cx, philox, out.flat_mut::<f32>()?),
            DType::Double => self.fill(cx, philox, out.flat_mut::<f64>()?),
            DType::Int32 => self.fill(cx, philox, out.flat_mut::<i32>()?),
            _ => self.fill(cx, philox, out.flat_mut::<i64>()?),
        }
        Ok(out)
    }

    /// Output `[sample, p]` is of pair `p`; streams are numbered by pair, then by sample.
    fn fill<R: Num>(&self, cx: &KernelCx<'_>, philox: Philox, out: &mut [R]) {
        let (samples, batches) = (self.samples(), self.batches());
        cx.threads().parallel_rows(out, batches, 200, |first, rows| {
            for (row, values) in rows.chunks_mut(batches).enumerate() {
                for (at, (value, (count, prob))) in values.iter_mut().zip(&self.pairs).enumerate() {
                    let output = (at * samples + first + row) as u64;
                    *value = R::from_f64(draw(philox, output, *count, *prob));
                }
            }
        });
    }
}

fn draw<T: Float>(philox: Philox, output: u64, count: T, prob: T) -> f64 {
    let n = count.to_f64();
    if n <= 0.0 || prob <= T::ZERO {
        return 0.0;
    }
    if prob >= T::ONE {
        return n;
    }
    if prob.is_nan() || n.is_nan() {
        return f64::NAN;
    }
    // The rarer of the two outcomes is counted; which method serves is decided in the parameters' own precision.
    let flipped = prob > T::from_f64(0.5);
    let p = if flipped { T::ONE.sub(prob) } else { prob };
    let drawn = if count.mul(p) >= T::from_f64(10.0) {
        transformed_rejection(n, p.to_f64(), philox.skipped(256 * output))
    } else {
        geometric_sum(n, p.to_f64(), philox.skipped(42 * output))
    };
    if flipped { n - drawn } else { drawn }
}

fn geometric_sum(count: f64, prob: f64, mut philox: Philox) -> f64 {
    let mut uniforms = Backward::<f64>::new();
    let (mut sum, mut terms) = (0.0, 0.0);
    loop {
        sum += (uniforms.next(&mut philox, f64::uniform).ln() / (-prob).ln_1p()).ceil();
        if sum > count {
            return terms;
        }
        terms += 1.0;
    }
}

fn transformed_rejection(count: f64, prob: f64, mut philox: Philox) -> f64 {
    let mut uniforms = Backward::<f64>::new();
    let deviation = (count * prob * (1.0 - prob)).sqrt();
    let b = 1.15 + 2.53 * deviation;
    let a = -0.0873 + 0.0248 * b + 0.01 * prob;
    let c = count * prob + 0.5;
    let v_r = 0.92 - 4.2 / b;
    let r = prob / (1.0 - prob);
    let alpha = (2.83 + 5.1 / b) * deviation;
    let m = ((count + 1.0) * prob).floor();
    loop {
        let u = uniforms.next(&mut philox, f64::uniform);
        let v = uniforms.next(&mut philox, f64::uniform);
        let u = u - 0.5;
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + c).floor();
        // A box under the curve: most numbers are accepted here.
        if us >= 0.07 && v <= v_r {
            return k;
        }
        if k < 0.0 || k > count {
            continue;
        }
        let v = (v * alpha / (a / (us * us) + b)).ln();
        let bound = (m + 0.5) * ((m + 1.0) / (r * (count - m + 1.0))).ln()
            + (count + 1.0) * ((count - m + 1.0) / (count - k + 1.0)).ln()
            + (k + 0.5) * (r * (count - k + 1.0) / (k + 1.0)).ln()
            + stirling_tail(m)
            + stirling_tail(count - m)
            - stirling_tail(k)
            - stirling_tail(count - k);
        if v <= bound {
            return k;
        }
    }
}

/// The error of Stirling's formula for `ln k!`.
fn stirling_tail(k: f64) -> f64 {
    const SMALL: [f64; 10] = [
        0.0810614667953272,
        0.0413406959554092,
        0.0276779256849983,
        0.02079067210376509,
        0.0166446911898211,
        0.0138761288230707,
        0.0118967099458917,
        0.0104112652619720,
        0.00925546218271273,
        0.00833056343336287,
    ];
    if k <= 9.0 {
        return SMALL[k.max(0.0) as usize];
    }
    let square = (k + 1.0) * (k + 1.0);
    (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / square) / square) / (k + 1.0)
}
