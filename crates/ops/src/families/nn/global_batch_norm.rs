//! Batch normalization of the first graphs, with moments that come from elsewhere.

use crate::builders as ops;
use crate::numeric::{Float, Num};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::{PartialShape, Result, ensure, f16, kernels};
use num_traits::Float as _;

pub(crate) const OPS: &[&Op] =
    &[&BATCH_NORM_WITH_GLOBAL_NORMALIZATION, &BATCH_NORM_WITH_GLOBAL_NORMALIZATION_GRAD];

static BATCH_NORM_WITH_GLOBAL_NORMALIZATION: Op = Op {
    name: "BatchNormWithGlobalNormalization",
    inputs: &["t: T", "m: T", "v: T", "beta: T", "gamma: T"],
    outputs: &["result: T"],
    attrs: &[
        "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
        "variance_epsilon: float",
        "scale_after_normalization: bool",
    ],
    shape: normalized_shape,
    gradient: Gradient::Fn(gradient),
    deprecated_at: Some(9),
    kernels: kernels![normalize_kernel: f16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static BATCH_NORM_WITH_GLOBAL_NORMALIZATION_GRAD: Op = Op {
    name: "BatchNormWithGlobalNormalizationGrad",
    inputs: &["t: T", "m: T", "v: T", "gamma: T", "backprop: T"],
    outputs: &["dx: T", "dm: T", "dv: T", "db: T", "dg: T"],
    shape: gradient_shape,
    gradient: Gradient::Undefined,
    kernels: kernels![gradient_kernel: f16, f32, f64],
    ..BATCH_NORM_WITH_GLOBAL_NORMALIZATION
};

/// The shape of images whose channels are as many as the vectors at `vectors` have elements, and of the vectors.
fn merged(s: &ShapeCx<'_>, images: PartialShape, vectors: &[usize]) -> Result<[PartialShape; 2]> {
    let mut channels = images.dims().map_or(-1, |dims| dims[3]);
    for input in vectors {
        if let Some([count]) = s.rank(*input, 1)?.dims() {
            channels = s.merge_dims(channels, *count)?;
        }
    }
    let mut dims = images.dims().unwrap_or_default().to_vec();
    dims[3] = channels;
    Ok([PartialShape::new(dims)?, PartialShape::new([channels])?])
}

fn normalized_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let images = s.rank(0, 4)?;
    let [images, _] = merged(s, images, &[1, 2, 3, 4])?;
    s.set(0, images);
    Ok(())
}

fn gradient_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let images = s.merge(&s.rank(0, 4)?, &s.rank(4, 4)?)?;
    let [images, vector] = merged(s, images, &[1, 2, 3])?;
    s.set(0, images);
    for output in 1..5 {
        s.set(output, vector.clone());
    }
    Ok(())
}

/// The attributes.
#[derive(Clone, Copy)]
struct Settings {
    epsilon: f32,
    scale: bool,
}

impl Settings {
    fn new(init: &Init<'_>) -> Result<Settings> {
        Ok(Settings {
            epsilon: init.attr("variance_epsilon")?,
            scale: init.attr("scale_after_normalization")?,
        })
    }

    /// One divided by the deviation, of every channel, in the type's own arithmetic.
    fn inverse_deviations<T: Float>(self, variances: &[T]) -> Vec<T> {
        let epsilon = T::from_f64(self.epsilon.into());
        variances.iter().map(|v| T::from_math(v.add(epsilon).to_math().sqrt().recip())).collect()
    }
}

fn check(cx: &KernelCx<'_>, vectors: &[(usize, &str)]) -> Result<usize> {
    let images = cx.input(0)?;
    ensure!(images.rank() == 4, InvalidArgument, "input must be 4-dimensional{}", images.shape());
    let depth = images.shape().dim(3);
    for (input, name) in vectors {
        let vector = cx.input(*input)?;
        ensure!(vector.rank() == 1, InvalidArgument, "{name} must be 1-dimensional{}", vector.shape());
        ensure!(
            vector.elements() == depth,
            InvalidArgument,
            "{name} must have an element per channel, {depth}, got {}",
            vector.elements()
        );
    }
    Ok(depth)
}

fn normalize_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    let settings = Settings::new(init)?;
    Kernel::sync(move |cx| {
        let depth = check(cx, &[(1, "mean"), (2, "var"), (3, "beta"), (4, "gamma")])?;
        let mut output = cx.alloc::<T>(cx.input(0)?.shape().clone())?;
        let [x, mean, variance, beta, gamma] =
            [cx.flat::<T>(0)?, cx.flat::<T>(1)?, cx.flat::<T>(2)?, cx.flat::<T>(3)?, cx.flat::<T>(4)?];
        let mut factors = settings.inverse_deviations(variance);
        if settings.scale {
            for (factor, gamma) in factors.iter_mut().zip(gamma) {
                *factor = factor.mul(*gamma);
            }
        }
        cx.threads().parallel_rows(output.flat_mut::<T>()?, depth, 4, |first, out| {
            let x = &x[first * depth..][..out.len()];
            for (out, x) in out.chunks_exact_mut(depth).zip(x.chunks_exact(depth)) {
                for channel in 0..depth {
                    out[channel] = x[channel].sub(mean[channel]).mul(factors[channel]).add(beta[channel]);
                }
            }
        });
        Ok(output.into())
    })
}

fn gradient_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    let settings = Settings::new(init)?;
    Kernel::sync(move |cx| {
        let depth = check(cx, &[(1, "mean"), (2, "var"), (3, "gamma")])?;
        let backprop = cx.input(4)?;
        ensure!(
            backprop.rank() == 4,
            InvalidArgument,
            "out_backprop must be 4-dimensional{}",
            backprop.shape()
        );
        ensure!(
            backprop.shape() == cx.input(0)?.shape(),
            InvalidArgument,
            "out_backprop must have the shape of the input, {}, got {}",
            cx.input(0)?.shape(),
            backprop.shape()
        );
        let mut dx = cx.alloc::<T>(cx.input(0)?.shape().clone())?;
        let vector = cx.input(1)?.shape().clone();
        let [x, mean, variance, gamma, dy] =
            [cx.flat::<T>(0)?, cx.flat::<T>(1)?, cx.flat::<T>(2)?, cx.flat::<T>(3)?, cx.flat::<T>(4)?];
        let inverses = settings.inverse_deviations(variance);
        let scales: Vec<T> = gamma.iter().map(|gamma| if settings.scale { *gamma } else { T::ONE }).collect();
        let factors: Vec<T> =
            inverses.iter().zip(&scales).map(|(inverse, scale)| inverse.mul(*scale)).collect();
        let (mut sums, mut products) = (vec![T::Wide::ZERO; depth], vec![T::Wide::ZERO; depth]);
        let rows = dx.flat_mut::<T>()?.chunks_exact_mut(depth.max(1));
        for (out, (x, dy)) in rows.zip(x.chunks_exact(depth.max(1)).zip(dy.chunks_exact(depth.max(1)))) {
            for channel in 0..depth {
                out[channel] = dy[channel].mul(factors[channel]);
                sums[channel] = sums[channel].add(dy[channel].widen());
                let term = dy[channel].mul(x[channel].sub(mean[channel]));
                products[channel] = products[channel].add(term.widen());
            }
        }
        let epsilon = T::from_f64(settings.epsilon.into());
        let mut vectors = [(); 4].map(|()| cx.alloc::<T>(vector.clone()));
        for channel in 0..depth {
            let (sum, product) = (T::narrow(sums[channel]), T::narrow(products[channel]));
            let slope = inverses[channel].mul(T::from_f64(-0.5)).div(variance[channel].add(epsilon));
            let values = [
                sum.neg().mul(factors[channel]),
                product.mul(slope.mul(scales[channel])),
                sum,
                if settings.scale { product.mul(inverses[channel]) } else { T::ZERO },
            ];
            for (vector, value) in vectors.iter_mut().zip(values) {
                if let Ok(vector) = vector {
                    vector.flat_mut::<T>()?[channel] = value;
                }
            }
        }
        let [dm, dv, db, dg] = vectors;
        Ok([dx, dm?, dv?, db?, dg?].into())
    })
}

fn gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let grads = ops::batch_norm_with_global_normalization_grad(
        g.scope(),
        g.input(0),
        g.input(1),
        g.input(2),
        g.input(4),
        g.dy(0)?,
        g.attr::<f32>("variance_epsilon")?,
        g.attr("scale_after_normalization")?,
    )?;
    Ok([grads.dx, grads.dm, grads.dv, grads.db, grads.dg].into())
}
