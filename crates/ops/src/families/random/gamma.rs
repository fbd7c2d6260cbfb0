//! Gamma-distributed numbers: for each output a stretch of the stream of its own, and rejection until one is accepted
//! (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000).

use crate::builders as ops;
use crate::numeric::Real;
use crate::numeric::philox::{BLOCKS_PER_OUTPUT, KernelStream, Philox, from_key_inputs, from_seed_input};
use crate::support::distribution::{Backward, Sample, infer_appended, infer_seed, shape_input};
use crate::support::gradient::element;
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::scope::Output;
use ferroflow_core::{Result, Shape, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&RANDOM_GAMMA, &STATELESS_RANDOM_GAMMA_V2, &STATELESS_RANDOM_GAMMA_V3];

static RANDOM_GAMMA: Op = Op {
    name: "RandomGamma",
    gradient: Gradient::Fn(random_gamma_grad),
    inputs: &["shape: S", "alpha: T"],
    outputs: &["output: T"],
    attrs: &["seed: int = 0", "seed2: int = 0", "S: {int32, int64}", "T: {half, float, double}"],
    shape: infer_appended,
    kernels: kernels![gamma_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static STATELESS_RANDOM_GAMMA_V2: Op = Op {
    name: "StatelessRandomGammaV2",
    gradient: Gradient::Fn(stateless_gamma_grad),
    inputs: &["shape: T", "seed: Tseed", "alpha: dtype"],
    outputs: &["output: dtype"],
    attrs: &["dtype: {half, float, double}", "T: {int32, int64}", "Tseed: {int32, int64} = DT_INT64"],
    shape: seeded_shape,
    kernels: kernels!["dtype" => seeded_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static STATELESS_RANDOM_GAMMA_V3: Op = Op {
    name: "StatelessRandomGammaV3",
    gradient: Gradient::Fn(stateless_gamma_grad),
    inputs: &["shape: shape_dtype", "key: uint64", "counter: uint64", "alg: int32", "alpha: dtype"],
    outputs: &["output: dtype"],
    attrs: &["dtype: {half, float, double}", "shape_dtype: {int32, int64} = DT_INT32"],
    shape: keyed_shape,
    kernels: kernels!["dtype" => keyed_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn seeded_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    infer_seed(s, 1)?;
    crate::support::distribution::infer_from_shape_input(s)
}

fn keyed_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(1, 1)?;
    s.rank(2, 1)?;
    s.rank(3, 0)?;
    crate::support::distribution::infer_from_shape_input(s)
}

fn gamma_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let stream = KernelStream::new(init)?;
    Kernel::sync(move |cx| {
        let samples = shape_input(cx, 0)?;
        let alpha = cx.input(1)?;
        let shape = Shape::new(samples.iter().chain(alpha.shape().iter()).copied())?;
        if shape.elements() == 0 {
            return Ok(cx.alloc::<T>(shape)?.into());
        }
        let outputs = shape.elements();
        Ok(sample::<T>(cx, || stream.reserve_outputs(outputs), shape, alpha)?.into())
    })
}

fn seeded_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| stateless::<T>(cx, from_seed_input(cx, 1)?, 2).map(Into::into))
}

fn keyed_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let philox = from_key_inputs(cx, 1, shape_input(cx, 0)?.elements() > 0)?;
        stateless::<T>(cx, philox, 4).map(Into::into)
    })
}

fn stateless<T: Real>(cx: &KernelCx<'_>, philox: Philox, alpha: usize) -> Result<Tensor> {
    let (shape, alpha) = (shape_input(cx, 0)?, cx.input(alpha)?);
    if shape.elements() == 0 {
        return cx.alloc::<T>(shape);
    }
    ensure!(
        shape.ends_with(alpha.shape()),
        InvalidArgument,
        "Shape passed in must end with broadcasted shape."
    );
    sample::<T>(cx, || philox, shape, alpha)
}

/// Output `[sample, a]` has shape parameter `alpha[a]`; streams are numbered by parameter, then by sample.
fn sample<T: Real>(
    cx: &KernelCx<'_>,
    philox: impl FnOnce() -> Philox,
    shape: Shape,
    alpha: &Tensor,
) -> Result<Tensor> {
    let alphas: Vec<f64> = alpha.flat::<T>()?.iter().map(|alpha| alpha.to_f64()).collect();
    let mut out = cx.alloc::<T>(shape)?;
    fill(cx.threads(), philox(), &alphas, out.flat_mut::<T>()?);
    Ok(out)
}

fn fill<T: Real>(threads: Threads<'_>, philox: Philox, alphas: &[f64], out: &mut [T]) {
    let samples = out.len() / alphas.len();
    threads.parallel_rows(out, alphas.len(), 60, |first, rows| {
        for (row, values) in rows.chunks_mut(alphas.len()).enumerate() {
            for (at, (value, alpha)) in values.iter_mut().zip(alphas).enumerate() {
                let stream = (at * samples + first + row) as u64 * BLOCKS_PER_OUTPUT;
                *value = T::from_f64(draw(philox.skipped(stream), *alpha));
            }
        }
    });
}

fn draw(mut philox: Philox, alpha: f64) -> f64 {
    let (mut normals, mut uniforms) = (Backward::<f64>::new(), Backward::<f64>::new());
    if alpha == 1.0 {
        return -(-uniforms.next(&mut philox, f64::uniform)).ln_1p();
    }
    // Below 1, draw for alpha + 1 and scale by a power of a uniform number.
    let below_one = alpha < 1.0;
    let d = alpha + if below_one { 2.0 / 3.0 } else { -1.0 / 3.0 };
    let c = 1.0 / 3.0 / d.sqrt();
    loop {
        let x = normals.next(&mut philox, f64::normal);
        let v = 1.0 + c * x;
        if v <= 0.0 {
            continue;
        }
        let v = v * v * v;
        let u = uniforms.next(&mut philox, f64::uniform);
        if u < 1.0 - 0.0331 * (x * x) * (x * x) || u.ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
            let result = d * v;
            if !below_one {
                return result;
            }
            return result * uniforms.next(&mut philox, f64::uniform).powf(1.0 / alpha);
        }
    }
}

/// The gradient of samples with respect to `alpha`, by implicit differentiation. Samples have `extra` dimensions in front
/// of those of `alpha`.
fn alpha_grad(g: &GradCx<'_>, alpha: &Output, extra: Output) -> Result<Output> {
    let s = g.scope();
    let ones = ops::fill(s, ops::expand_dims(s, &extra, 0), 1)?;
    let shape = ops::concat_v2(s, [&ones, &ops::shape(s, alpha)?], 0);
    let slope = ops::random_gamma_grad(s, ops::reshape(s, alpha, shape), g.output(0)?);
    ops::sum(s, ops::mul(s, g.dy(0)?, slope), ops::range(s, 0, extra, 1))
}

fn random_gamma_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let extra = element(s, &ops::shape(s, g.input(0))?, 0)?;
    Ok([None, Some(alpha_grad(g, g.input(1), extra)?)].into())
}

/// The shape of stateless samples includes that of `alpha`, which is the last input.
fn stateless_gamma_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, last) = (g.scope(), g.num_inputs() - 1);
    let alpha = g.input(last);
    let extra = ops::sub(s, element(s, &ops::shape(s, g.input(0))?, 0)?, ops::rank(s, alpha))?;
    let mut grads = InputGrads::none(last);
    grads.0.push(Some(alpha_grad(g, alpha, extra)?.into()));
    Ok(grads)
}
