//! Local response normalization: every element is divided by a power of the squares of its neighbors along the
//! channels.

use crate::numeric::Num;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::{Result, bail, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&LRN, &LRN_GRAD];

const ATTRS: &[&str] = &[
    "depth_radius: int = 5",
    "bias: float = 1.0",
    "alpha: float = 1.0",
    "beta: float = 0.5",
    "T: {half, bfloat16, float} = DT_FLOAT",
];

static LRN: Op = Op {
    name: "LRN",
    gradient: Gradient::Fn(lrn_gradient),
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: ATTRS,
    shape: image_shape,
    kernels: kernels![lrn_kernel: f16, f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static LRN_GRAD: Op = Op {
    name: "LRNGrad",
    inputs: &["input_grads: T", "input_image: T", "output_image: T"],
    outputs: &["output: T"],
    attrs: ATTRS,
    shape: image_shape,
    kernels: kernels![lrn_grad_kernel: f16, f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn image_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 4)?;
    shapes::same(s)
}

/// With more channels than this stock adds and subtracts squares one by one.
const RUNNING_SUMS: usize = 384;

/// The attributes.
#[derive(Clone, Copy)]
struct Settings {
    radius: usize,
    bias: f32,
    alpha: f32,
    beta: f32,
}

impl Settings {
    fn read(init: &Init<'_>) -> Result<Settings> {
        let radius: i64 = init.attr("depth_radius")?;
        let Ok(radius) =
            i32::try_from(radius).map_err(|_| ()).and_then(|r| usize::try_from(r).map_err(|_| ()))
        else {
            bail!(InvalidArgument, "depth_radius = {radius} larger than int max");
        };
        Ok(Settings {
            radius,
            bias: init.attr("bias")?,
            alpha: init.attr("alpha")?,
            beta: init.attr("beta")?,
        })
    }

    /// The channels around one of them.
    fn around(&self, channel: usize, channels: usize) -> std::ops::Range<usize> {
        channel.saturating_sub(self.radius)..(channel + self.radius + 1).min(channels)
    }

    /// The factor of an element. Stock takes other powers than these two by logarithms, which sums below zero
    /// do not have; its gradient does not.
    fn power(&self, norm: f32) -> f32 {
        match self.beta {
            1.0 => 1.0 / norm,
            0.5 => 1.0 / norm.sqrt(),
            beta => (norm.ln() * -beta).exp(),
        }
    }

    /// The divisors of a pixel's elements, before the power.
    fn norms<T: Num<Wide = f32>>(&self, pixel: &[T], norms: &mut [f32]) {
        let square = |x: &T| x.widen() * x.widen();
        for (channel, norm) in norms.iter_mut().enumerate() {
            let squares: f32 = pixel[self.around(channel, pixel.len())].iter().map(square).sum();
            *norm = self.bias + self.alpha * squares;
        }
        let is_finite = |x: &T| square(x).is_finite();
        if pixel.len() > RUNNING_SUMS || pixel.iter().all(is_finite) {
            return;
        }
        // Stock multiplies the squares by a matrix of zeros and ones, and zero times what is no number is none.
        for (channel, norm) in norms.iter_mut().enumerate() {
            let around = self.around(channel, pixel.len());
            if !pixel[..around.start].iter().chain(&pixel[around.end..]).all(is_finite) {
                *norm = f32::NAN;
            }
        }
    }
}

fn lrn_kernel<T: Num<Wide = f32>>(init: &Init<'_>) -> Result<Kernel> {
    let settings = Settings::read(init)?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        ensure!(input.rank() == 4, InvalidArgument, "in must be 4-dimensional");
        let channels = input.shape().dim(3);
        let mut out = cx.alloc::<T>(input.shape().clone())?;
        let elements = input.flat::<T>()?;
        let cost = settings.around(channels / 2, channels).len() + 16;
        cx.threads().parallel_rows(out.flat_mut::<T>()?, channels, cost, |first, rows| {
            let mut norms = vec![0.0f32; channels];
            for (number, out) in rows.chunks_mut(channels).enumerate() {
                let pixel = &elements[(first + number) * channels..][..channels];
                settings.norms(pixel, &mut norms);
                for ((out, x), norm) in out.iter_mut().zip(pixel).zip(&norms) {
                    *out = T::narrow(x.widen() * settings.power(*norm));
                }
            }
        });
        Ok(out.into())
    })
}

fn lrn_grad_kernel<T: Num<Wide = f32>>(init: &Init<'_>) -> Result<Kernel> {
    let settings = Settings::read(init)?;
    Kernel::sync(move |cx| {
        let (gradient, input, output) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        ensure!(gradient.rank() == 4 && input.rank() == 4, InvalidArgument, "inputs must be 4-dimensional");
        ensure!(
            gradient.shape() == input.shape() && gradient.shape() == output.shape(),
            InvalidArgument,
            "input_grads, input_image, and out_image should have the same shape"
        );
        let channels = input.shape().dim(3);
        let mut out = cx.alloc::<T>(input.shape().clone())?;
        let (gradient, input, output) = (gradient.flat::<T>()?, input.flat::<T>()?, output.flat::<T>()?);
        // Rounds after every operation, as stock does in 16 bits.
        let (alpha, beta) = (T::from_f64(settings.alpha.into()), T::from_f64(settings.beta.into()));
        let (bias, factor) = (T::from_f64(settings.bias.into()), T::from_f64(-2.0).mul(alpha).mul(beta));
        let cost = 2 * settings.around(channels / 2, channels).len() + 16;
        cx.threads().parallel_rows(out.flat_mut::<T>()?, channels, cost, |first, rows| {
            for (number, out) in rows.chunks_mut(channels).enumerate() {
                let pixel = (first + number) * channels..(first + number + 1) * channels;
                let (gradient, input, output) =
                    (&gradient[pixel.clone()], &input[pixel.clone()], &output[pixel]);
                out.fill(T::ZERO);
                for channel in 0..channels {
                    // Stock leaves these out, even where zero times a term would be no number.
                    if gradient[channel].is_zero() {
                        continue;
                    }
                    let around = settings.around(channel, channels);
                    let squares = input[around.clone()].iter().fold(T::ZERO, |sum, x| sum.add(x.mul(*x)));
                    let norm = alpha.mul(squares).add(bias);
                    let power = T::narrow(norm.widen().powf(-beta.widen()));
                    let scaled = factor.mul(output[channel]);
                    for (at, (sum, x)) in
                        around.clone().zip(out[around.clone()].iter_mut().zip(&input[around]))
                    {
                        let slope = x.mul(scaled).div(norm);
                        let slope = if at == channel { slope.add(power) } else { slope };
                        *sum = sum.add(slope.mul(gradient[channel]));
                    }
                }
            }
        });
        Ok(out.into())
    })
}

fn lrn_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let mut node = g.scope().op("LRNGrad").attr("depth_radius", g.attr::<i64>("depth_radius")?);
    for name in ["bias", "alpha", "beta"] {
        node = node.attr(name, g.attr::<f32>(name)?);
    }
    let node = node.input(g.dy(0)?).input(g.input(0)).input(g.output(0)?);
    Ok([node.build()?.output(0)?].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{infer, infer_err};
    use ferroflow_core::Code;

    #[test]
    fn images_keep_their_shape() {
        infer("LRN", "[?,3,2,7]", "[?,3,2,7]");
        infer_err("LRN", "[3,2,7]", Code::InvalidArgument);
    }
}
