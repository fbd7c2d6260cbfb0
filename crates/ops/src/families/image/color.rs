//! Color spaces, and changes of contrast, hue and saturation.

use crate::builders as ops;
use crate::numeric::{Float, Real};
use crate::support::cwise::rows;
use crate::support::image::single;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{Result, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] =
    &[&RGB_TO_HSV, &HSV_TO_RGB, &ADJUST_CONTRAST, &ADJUST_CONTRAST_V2, &ADJUST_HUE, &ADJUST_SATURATION];

static RGB_TO_HSV: Op = Op {
    name: "RGBToHSV",
    gradient: Gradient::Fn(rgb_to_hsv_gradient),
    inputs: &["images: T"],
    outputs: &["output: T"],
    attrs: &["T: {half, bfloat16, float, double} = DT_FLOAT"],
    shape: color_shape,
    kernels: kernels![rgb_to_hsv_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static HSV_TO_RGB: Op = Op {
    name: "HSVToRGB",
    gradient: Gradient::Stop,
    kernels: kernels![hsv_to_rgb_kernel: f16, bf16, f32, f64],
    ..RGB_TO_HSV
};

static ADJUST_CONTRAST: Op = Op {
    name: "AdjustContrast",
    inputs: &["images: T", "contrast_factor: float", "min_value: float", "max_value: float"],
    outputs: &["output: float"],
    attrs: &["T: {uint8, int8, int16, int32, int64, float, double}"],
    shape: adjust_shape,
    kernels: rows![contrast_kernel: Uint8, Int8, Int16, Int32, Float, Double],
    accuracy: Accuracy::Rounding,
    deprecated_at: Some(2),
    ..Op::PURE
};

static ADJUST_CONTRAST_V2: Op = Op {
    name: "AdjustContrastv2",
    inputs: &["images: T", "contrast_factor: float"],
    outputs: &["output: T"],
    attrs: &["T: {half, float} = DT_FLOAT"],
    shape: adjust_shape,
    kernels: rows![contrast_v2_kernel: Float],
    ..Op::PURE
};

static ADJUST_HUE: Op = Op {
    name: "AdjustHue",
    inputs: &["images: T", "delta: float"],
    shape: at_least_images,
    kernels: rows![hue_kernel: Float],
    ..ADJUST_CONTRAST_V2
};

static ADJUST_SATURATION: Op = Op {
    name: "AdjustSaturation",
    inputs: &["images: T", "scale: float"],
    shape: at_least_images,
    kernels: rows![saturation_kernel: Float],
    ..ADJUST_CONTRAST_V2
};

fn color_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let images = s.rank_at_least(0, 1)?;
    if let Some([rest @ .., last]) = images.dims() {
        let last = s.merge_dims(*last, 3)?;
        return s.output(0, rest.iter().copied().chain([last]));
    }
    s.set(0, images);
    Ok(())
}

fn at_least_images(s: &mut ShapeCx<'_>) -> Result<()> {
    let images = s.rank_at_least(0, 3)?;
    s.set(0, images);
    Ok(())
}

fn adjust_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    (1..s.num_inputs()).try_for_each(|input| s.rank(input, 0).map(|_| ()))?;
    at_least_images(s)
}

/// Applies a function to every pixel.
fn map_pixels<T: Real>(
    cx: &mut KernelCx<'_>,
    cost: usize,
    function: impl Fn([T; 3]) -> [T; 3] + Sync,
) -> Result<ferroflow_core::Tensor> {
    let images = cx.input(0)?;
    ensure!(images.rank() >= 1, InvalidArgument, "input must be at least 1D{}", images.shape());
    let channels = images.shape().dims().last().copied().unwrap_or_default();
    ensure!(
        channels == 3,
        FailedPrecondition,
        "input must have 3 channels but input only has {channels} channels."
    );
    let mut out = cx.alloc::<T>(images.shape().clone())?;
    let (pixels, _) = images.flat::<T>()?.as_chunks::<3>();
    cx.threads().parallel_rows(out.flat_mut::<T>()?, 3, cost, |first, out| {
        let (out, _) = out.as_chunks_mut::<3>();
        for (out, pixel) in out.iter_mut().zip(&pixels[first..]) {
            *out = function(*pixel);
        }
    });
    Ok(out)
}

fn rgb_to_hsv_kernel<T: Float>(_: &Init<'_>) -> Result<Kernel> {
    let fraction = |part: f64| T::from_f64(part).div(T::from_f64(6.0));
    let (sixth, third, two_thirds) = (fraction(1.0), fraction(2.0), fraction(4.0));
    Kernel::sync(move |cx| {
        let out = map_pixels::<T>(cx, 8, |[r, g, b]| {
            let value = r.maximum(g).maximum(b);
            let range = value.sub(r.minimum(g).minimum(b));
            let saturation = if value > T::ZERO { range.div(value) } else { T::ZERO };
            let norm = range.reciprocal().mul(sixth);
            let hue = if r == value {
                norm.mul(g.sub(b))
            } else if g == value {
                norm.mul(b.sub(r)).add(third)
            } else {
                norm.mul(r.sub(g)).add(two_thirds)
            };
            let hue = if range > T::ZERO { hue } else { T::ZERO };
            [if hue < T::ZERO { hue.add(T::ONE) } else { hue }, saturation, value]
        })?;
        Ok(out.into())
    })
}

fn hsv_to_rgb_kernel<T: Float>(_: &Init<'_>) -> Result<Kernel> {
    let number = T::from_f64;
    Kernel::sync(move |cx| {
        let out = map_pixels::<T>(cx, 8, |[h, s, v]| {
            let place = h.mul(number(6.0));
            let bounded = |x: T| x.maximum(T::ZERO).minimum(T::ONE);
            let distance = |from: f64| place.sub(number(from)).abs();
            let red = bounded(distance(3.0).sub(T::ONE));
            let green = bounded(distance(2.0).neg().add(number(2.0)));
            let blue = bounded(distance(4.0).neg().add(number(2.0)));
            let rest = s.neg().add(T::ONE);
            [red, green, blue].map(|share| rest.add(s.mul(share)).mul(v))
        })?;
        Ok(out.into())
    })
}

/// Checks an image and the scalars beside it.
fn check_adjustment(cx: &KernelCx<'_>, names: &[&str], colors: bool) -> Result<()> {
    let images = cx.input(0)?;
    ensure!(images.rank() >= 3, InvalidArgument, "input must be at least 3-D, got shape{}", images.shape());
    for (input, name) in names.iter().enumerate() {
        let scalar = cx.input(input + 1)?;
        ensure!(scalar.rank() == 0, InvalidArgument, "{name} must be scalar: {}", scalar.shape());
    }
    let channels = images.shape().dims().last().copied().unwrap_or_default();
    ensure!(
        !colors || channels == 3,
        InvalidArgument,
        "input must have 3 channels but instead has {channels} channels."
    );
    Ok(())
}

/// The number of pixels of an image, and that of its channels.
fn image_size(shape: &ferroflow_core::Shape) -> (usize, usize) {
    let rank = shape.rank();
    (shape.dim(rank - 3) * shape.dim(rank - 2), shape.dim(rank - 1))
}

fn contrast_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        check_adjustment(cx, &["contrast_factor", "min_value", "max_value"], false)?;
        let [factor, min, max] = [cx.scalar::<f32>(1)?, cx.scalar::<f32>(2)?, cx.scalar::<f32>(3)?];
        let images = single(cx, cx.input(0)?)?;
        let mut out = cx.alloc::<f32>(images.shape().clone())?;
        let (pixels, channels) = image_size(images.shape());
        if images.elements() == 0 {
            return Ok(out.into());
        }
        let elements = images.flat::<f32>()?;
        let size = pixels * channels;
        cx.threads().parallel_rows(out.flat_mut::<f32>()?, size, 4, |first, outs| {
            for (number, out) in outs.chunks_mut(size).enumerate() {
                let image = &elements[(first + number) * size..][..size];
                let mut means = vec![0.0f64; channels];
                for pixel in image.chunks(channels) {
                    for (sum, x) in means.iter_mut().zip(pixel) {
                        *sum += f64::from(*x);
                    }
                }
                for (out, pixel) in out.chunks_mut(channels).zip(image.chunks(channels)) {
                    for ((out, x), mean) in out.iter_mut().zip(pixel).zip(&means) {
                        let mean = (mean / pixels as f64) as f32;
                        *out = ((x - mean) * factor + mean).min(max).max(min);
                    }
                }
            }
        });
        Ok(out.into())
    })
}

/// The sums are made by halves, in stock's order.
fn contrast_v2_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        check_adjustment(cx, &["contrast_factor"], false)?;
        let factor = cx.scalar::<f32>(1)?;
        let images = cx.input(0)?;
        let mut out = cx.alloc::<f32>(images.shape().clone())?;
        let (pixels, channels) = image_size(images.shape());
        if images.elements() == 0 {
            return Ok(out.into());
        }
        let elements = images.flat::<f32>()?;
        let size = pixels * channels;
        cx.threads().parallel_rows(out.flat_mut::<f32>()?, size, 4, |first, outs| {
            for (number, out) in outs.chunks_mut(size).enumerate() {
                let image = &elements[(first + number) * size..][..size];
                out.copy_from_slice(image);
                let mut remaining = pixels;
                while remaining > 1 {
                    let left = remaining - remaining / 2;
                    let (sums, others) = out[..remaining * channels].split_at_mut(left * channels);
                    for (sum, other) in sums.iter_mut().zip(others) {
                        *sum += *other;
                    }
                    remaining = left;
                }
                let scaling = 1.0 / pixels as f32;
                let means: Vec<f32> = out[..channels].iter().map(|sum| sum * scaling).collect();
                for (out, pixel) in out.chunks_mut(channels).zip(image.chunks(channels)) {
                    for ((out, x), mean) in out.iter_mut().zip(pixel).zip(&means) {
                        *out = mean + factor * (x - mean);
                    }
                }
            }
        });
        Ok(out.into())
    })
}

/// A number brought into a range by adding or subtracting its length as often as it takes, which for small numbers stock
/// does one by one.
fn wrapped(mut x: f32, length: f32) -> f32 {
    if x.is_nan() || x.abs() >= 100.0 * length {
        return x.rem_euclid(length);
    }
    while x < 0.0 {
        x += length;
    }
    while x >= length {
        x -= length;
    }
    x
}

fn hue_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        check_adjustment(cx, &["delta"], true)?;
        let delta = cx.scalar::<f32>(1)?;
        Ok(map_pixels::<f32>(cx, 10, |pixel| rotated(pixel, delta))?.into())
    })
}

/// A color whose hue is turned, its largest and smallest part staying as they are.
fn rotated([r, g, b]: [f32; 3], delta: f32) -> [f32; 3] {
    let (high, middle, low, sector) = match () {
        () if r < g && b < r => (g, r, b, 1),
        () if r < g && b > g => (b, g, r, 3),
        () if r < g => (g, b, r, 2),
        () if b < g => (r, g, b, 0),
        () if b > r => (b, r, g, 4),
        () => (r, b, g, 5),
    };
    let hue = if high == low {
        0.0
    } else {
        let ratio = (middle - low) / (high - low);
        sector as f32 + if sector % 2 == 0 { ratio } else { 1.0 - ratio }
    };
    let hue = wrapped(hue + delta * 6.0, 6.0);
    let sector = hue as i32;
    let ratio = hue - sector as f32;
    let ratio = if sector % 2 == 0 { ratio } else { 1.0 - ratio };
    let middle = low + ratio * (high - low);
    match sector {
        0 => [high, middle, low],
        1 => [middle, high, low],
        2 => [low, high, middle],
        3 => [low, middle, high],
        4 => [middle, low, high],
        _ => [high, low, middle],
    }
}

fn saturation_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        check_adjustment(cx, &["scale"], true)?;
        let scale = cx.scalar::<f32>(1)?;
        Ok(map_pixels::<f32>(cx, 10, |pixel| saturated(pixel, scale))?.into())
    })
}

fn saturated([r, g, b]: [f32; 3], scale: f32) -> [f32; 3] {
    let value = r.max(g.max(b));
    let range = value - r.min(g.min(b));
    let saturation = if value > 0.0 { range / value } else { 0.0 };
    let norm = 1.0 / (6.0 * range);
    let hue = if r == value {
        norm * (g - b)
    } else if g == value {
        (f64::from(norm * (b - r)) + 2.0 / 6.0) as f32
    } else {
        (f64::from(norm * (r - g)) + 4.0 / 6.0) as f32
    };
    let hue = if range <= 0.0 { 0.0 } else { hue };
    let hue = if hue < 0.0 { hue + 1.0 } else { hue };
    // Unlike `clamp`, this makes zero of NaN, as stock does.
    #[allow(clippy::manual_clamp)]
    let saturation = (saturation * scale).max(0.0).min(1.0);
    let chroma = saturation * value;
    let rest = value - chroma;
    let place = hue * 6.0;
    let part = chroma * (1.0 - (wrapped(place, 2.0) - 1.0).abs());
    let [r, g, b] = match place as i32 {
        0 => [chroma, part, 0.0],
        1 => [part, chroma, 0.0],
        2 => [0.0, chroma, part],
        3 => [0.0, part, chroma],
        4 => [part, 0.0, chroma],
        5 => [chroma, 0.0, part],
        _ => [0.0; 3],
    };
    [r + rest, g + rest, b + rest]
}

/// Of equal channels, red counts as the largest first, blue as the smallest first, as in stock.
fn rgb_to_hsv_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dtype) = (g.scope(), g.input(0).dtype());
    let channels = |x: &Output| ops::Unpack::new(3).axis(-1).build(s, x);
    let (x, dy) = (channels(g.input(0))?, channels(&g.dy(0)?)?);
    let [r, gr, b] = [&x[0], &x[1], &x[2]];
    let both = |left: Result<Output>, right: Result<Output>| {
        ops::cast(s, ops::logical_and(s, left?, right?)?, dtype)
    };
    let largest = [
        both(ops::greater_equal(s, r, b), ops::greater_equal(s, r, gr))?,
        both(ops::greater(s, gr, r), ops::greater_equal(s, gr, b))?,
        both(ops::greater(s, b, r), ops::greater(s, b, gr))?,
    ];
    let smallest = [
        both(ops::less(s, r, b), ops::less(s, r, gr))?,
        both(ops::less_equal(s, gr, r), ops::less(s, gr, b))?,
        both(ops::less_equal(s, b, r), ops::less_equal(s, b, gr))?,
    ];
    let zero = ops::zeros_like(s, r)?;
    let one = ops::ones_like(s, r)?;
    let positive = |x: &Output| ops::cast(s, ops::greater(s, x, &zero)?, dtype);
    let positive = [positive(r)?, positive(gr)?, positive(b)?];
    let inverse = |x: Result<Output>| ops::div_no_nan(s, &one, x?);
    let pick = |masks: &[Output; 3], at: [usize; 2]| sum_of_products(s, at.map(|i| (&masks[i], &x[i])));
    let extreme = |masks: &[Output; 3]| ops::add_v2(s, pick(masks, [0, 1])?, ops::mul(s, &masks[2], b)?);
    let range = ops::sub(s, extreme(&largest)?, extreme(&smallest)?)?;
    let (per_range, per_square) = (inverse(Ok(range.clone()))?, inverse(ops::square(s, &range))?);
    let sixth = ops::div(s, &one, ops::cast(s, 6.0f32, dtype)?)?;
    let mut grads = Vec::new();
    for i in 0..3 {
        let (next, previous) = ((i + 1) % 3, (i + 2) % 3);
        // Saturation: the smallest of the others over the square, or one over the largest of the others.
        let up = ops::mul(s, &largest[i], pick(&smallest, [next, previous])?)?;
        let up = ops::mul(s, up, inverse(ops::square(s, &x[i]))?)?;
        let down = ops::mul(s, &smallest[i], inverse(pick(&largest, [next, previous]))?)?;
        let saturation = ops::mul(s, &positive[i], ops::sub(s, up, down)?)?;
        // Hue: a difference of the others over the range, which this channel may be an end of.
        let [a, n, p] = [i, next, previous].map(|i| (&largest[i], &positive[i]));
        let ends = ops::mul(s, &smallest[i], sum_of_products(s, [n, p])?)?;
        let ends = ops::add_v2(s, ops::mul(s, a.0, a.1)?, ends)?;
        let bent = ops::mul(s, ops::sub(s, &x[previous], &x[next])?, ops::mul(s, &per_square, ends)?)?;
        let falls = ops::mul(s, ops::mul(s, n.0, n.1)?, &smallest[previous])?;
        let rises = ops::mul(s, ops::mul(s, p.0, p.1)?, &smallest[next])?;
        let straight = ops::mul(s, &per_range, ops::sub(s, rises, falls)?)?;
        let hue = ops::mul(s, ops::add_v2(s, bent, straight)?, &sixth)?;
        let grad = sum_of_products(s, [(&dy[0], &hue), (&dy[1], &saturation)])?;
        grads.push(ops::add_v2(s, grad, ops::mul(s, &dy[2], &largest[i])?)?);
    }
    Ok([ops::Pack::new().axis(-1).build(s, grads)?].into())
}

fn sum_of_products(s: &Scope, factors: [(&Output, &Output); 2]) -> Result<Output> {
    let [first, second] = factors.map(|(left, right)| ops::mul(s, left, right));
    ops::add_v2(s, first?, second?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_a_turn() {
        assert_eq!(rotated([1.0, 0.0, 0.0], 1.0 / 3.0), [0.0, 1.0, 0.0]);
    }

    #[test]
    fn gray_has_no_saturation_to_change() {
        assert_eq!(saturated([0.5, 0.5, 0.5], 3.0), [0.5, 0.5, 0.5]);
    }
}
