//! Batch normalization of the first generation, with means and variances of the whole, and its gradient.

use crate::builders as ops;
use crate::linalg::functions::Functions;
use crate::numeric::{Num, Real};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, Tensor, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&BATCH_NORM, &BATCH_NORM_GRAD];

static BATCH_NORM: Op = Op {
    name: "BatchNormWithGlobalNormalization",
    inputs: &["t: T", "m: T", "v: T", "beta: T", "gamma: T"],
    outputs: &["result: T"],
    attrs: &["T: numbertype", "variance_epsilon: float", "scale_after_normalization: bool"],
    shape: batch_norm_shape,
    kernels: kernels![batch_norm_kernel: f16, f32, f64],
    gradient: Gradient::Fn(batch_norm_grad),
    accuracy: Accuracy::Rounding,
    deprecated_at: Some(9),
    ..Op::PURE
};

static BATCH_NORM_GRAD: Op = Op {
    name: "BatchNormWithGlobalNormalizationGrad",
    inputs: &["t: T", "m: T", "v: T", "gamma: T", "backprop: T"],
    outputs: &["dx: T", "dm: T", "dv: T", "db: T", "dg: T"],
    shape: batch_norm_grad_shape,
    kernels: kernels![batch_norm_grad_kernel: f16, f32, f64],
    gradient: Gradient::Undefined,
    ..BATCH_NORM
};

/// The input's shape with the depth that all vectors have.
fn normalized(s: &ShapeCx<'_>, vectors: std::ops::Range<usize>) -> Result<Vec<i64>> {
    let mut dims = s.rank(0, 4)?.dims().map_or(vec![UNKNOWN_DIM; 4], <[i64]>::to_vec);
    for input in vectors {
        let depth = s.rank(input, 1)?.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
        dims[3] = s.merge_dims(dims[3], depth)?;
    }
    Ok(dims)
}

fn batch_norm_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let dims = normalized(s, 1..5)?;
    s.output(0, dims)
}

fn batch_norm_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let dims = normalized(s, 1..4)?;
    let backprop = s.rank(4, 4)?;
    let shape = s.merge(&ferroflow_core::PartialShape::new(dims)?, &backprop)?;
    let depth = shape.dims().map_or(UNKNOWN_DIM, |dims| dims[3]);
    s.set(0, shape);
    (1..5).try_for_each(|output| s.output(output, [depth]))
}

/// Checks the ranks and lengths; returns the depth.
fn check(cx: &KernelCx<'_>, vectors: &[(usize, &str)]) -> Result<usize> {
    let input = cx.input(0)?.shape();
    ensure!(input.rank() == 4, InvalidArgument, "input must be 4-dimensional{input}");
    for (at, name) in vectors {
        let shape = cx.input(*at)?.shape();
        ensure!(shape.rank() == 1, InvalidArgument, "{name} must be 1-dimensional{shape}");
        ensure!(
            shape.dim(0) == input.dim(3),
            InvalidArgument,
            "{name} must have an element per channel of {input}, got {shape}"
        );
    }
    Ok(input.dim(3))
}

/// Attributes of both ops.
struct Settings<T> {
    epsilon: T,
    scales: bool,
}

impl<T: Real + Functions> Settings<T> {
    fn new(init: &Init<'_>) -> Result<Settings<T>> {
        let epsilon: f32 = init.attr("variance_epsilon")?;
        Ok(Settings { epsilon: T::from_f64(epsilon as f64), scales: init.attr("scale_after_normalization")? })
    }

    /// One over the deviation, and that times gamma if it is used.
    fn factors(&self, variance: &[T], gamma: &[T]) -> (Vec<T>, Vec<T>) {
        // In two steps, which halves round after each.
        let inverse = |v: &T| T::ONE.div(Functions::sqrt(v.add(self.epsilon)));
        let inverse: Vec<T> = variance.iter().map(inverse).collect();
        let scaled = inverse.iter().zip(gamma).map(|(r, g)| if self.scales { r.mul(*g) } else { *r });
        let scaled = scaled.collect();
        (inverse, scaled)
    }
}

fn batch_norm_kernel<T: Real + Functions>(init: &Init<'_>) -> Result<Kernel> {
    let settings = Settings::<T>::new(init)?;
    Kernel::sync(move |cx| {
        let depth = check(cx, &[(1, "mean"), (2, "var"), (3, "beta"), (4, "gamma")])?;
        let (mean, beta) = (cx.flat::<T>(1)?, cx.flat::<T>(3)?);
        let (_, factors) = settings.factors(cx.flat(2)?, cx.flat(4)?);
        let mut out = cx.alloc::<T>(cx.input(0)?.shape().clone())?;
        for (at, (slot, x)) in out.flat_mut::<T>()?.iter_mut().zip(cx.flat::<T>(0)?).enumerate() {
            let channel = at % depth;
            *slot = x.sub(mean[channel]).mul(factors[channel]).add(beta[channel]);
        }
        Ok(out.into())
    })
}

fn batch_norm_grad_kernel<T: Real + Functions>(init: &Init<'_>) -> Result<Kernel> {
    let settings = Settings::<T>::new(init)?;
    Kernel::sync(move |cx| {
        let depth = check(cx, &[(1, "mean"), (2, "var"), (3, "gamma")])?;
        let (input, backprop) = (cx.input(0)?, cx.input(4)?);
        ensure!(
            backprop.shape() == input.shape(),
            InvalidArgument,
            "out_backprop must be 4-dimensional{}",
            backprop.shape()
        );
        let (mean, variance, gamma) = (cx.flat::<T>(1)?, cx.flat::<T>(2)?, cx.flat::<T>(3)?);
        let (inverse, factors) = settings.factors(variance, gamma);
        let mut dx = cx.alloc::<T>(input.shape().clone())?;
        let (mut db, mut centered) = (vec![T::ZERO.widen(); depth], vec![T::ZERO.widen(); depth]);
        let values = input.flat::<T>()?.iter().zip(backprop.flat::<T>()?);
        for (at, (slot, (x, dy))) in dx.flat_mut::<T>()?.iter_mut().zip(values).enumerate() {
            let channel = at % depth;
            *slot = dy.mul(factors[channel]);
            db[channel] = db[channel].add(dy.widen());
            centered[channel] = centered[channel].add(dy.mul(x.sub(mean[channel])).widen());
        }
        let vector = |of: &dyn Fn(usize) -> T| Tensor::vector((0..depth).map(of).collect());
        let (db, centered): (Vec<T>, Vec<T>) =
            (db.into_iter().map(T::narrow).collect(), centered.into_iter().map(T::narrow).collect());
        let dm = vector(&|at| db[at].neg().mul(factors[at]));
        let half = T::from_f64(-0.5);
        let dv = vector(&|at| {
            let slope = inverse[at].mul(half).div(variance[at].add(settings.epsilon));
            centered[at].mul(if settings.scales { slope.mul(gamma[at]) } else { slope })
        });
        let dg = vector(&|at| if settings.scales { centered[at].mul(inverse[at]) } else { T::ZERO });
        Ok([dx, dm, dv, Tensor::new(Shape::vector(depth), db.clone())?, dg].into())
    })
}

fn batch_norm_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (epsilon, scales): (f32, bool) = (g.attr("variance_epsilon")?, g.attr("scale_after_normalization")?);
    let grads = ops::batch_norm_with_global_normalization_grad(
        g.scope(),
        g.input(0),
        g.input(1),
        g.input(2),
        g.input(4),
        g.dy(0)?,
        epsilon,
        scales,
    )?;
    Ok([grads.dx, grads.dm, grads.dv, grads.db, grads.dg].into())
}
