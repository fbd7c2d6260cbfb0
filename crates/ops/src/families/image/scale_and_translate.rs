//! Resizing by a scale and a translation, with sampling kernels of several widths.

use super::resize::Resize;
use crate::builders as ops;
use crate::support::image::{ImageDims, Pixel, like_second, resized_shape, with_pixels};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op};
use ferroflow_core::{Result, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&SCALE_AND_TRANSLATE, &SCALE_AND_TRANSLATE_GRAD];

static SCALE_AND_TRANSLATE: Op = Op {
    name: "ScaleAndTranslate",
    gradient: Gradient::Fn(gradient),
    inputs: &["images: T", "size: int32", "scale: float", "translation: float"],
    outputs: &["resized_images: float"],
    attrs: &[
        "T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double}",
        "kernel_type: string = 'lanczos3'",
        "antialias: bool = true",
    ],
    shape: resized_shape,
    kernels: kernels![any kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static SCALE_AND_TRANSLATE_GRAD: Op = Op {
    name: "ScaleAndTranslateGrad",
    inputs: &["grads: T", "original_image: T", "scale: float", "translation: float"],
    outputs: &["output: T"],
    attrs: &["T: {float}", "kernel_type: string = 'lanczos3'", "antialias: bool = true"],
    shape: like_second,
    kernels: kernels![any grad_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// A function that weighs pixels by their distance.
#[derive(Clone, Copy)]
struct Sampling {
    radius: f32,
    weight: fn(f32, f32) -> f32,
    antialias: bool,
}

impl Sampling {
    fn read(init: &Init<'_>) -> Result<Sampling> {
        let name: String = init.attr("kernel_type")?;
        let antialias = init.attr("antialias")?;
        let (radius, weight): (f32, fn(f32, f32) -> f32) = match name.to_ascii_lowercase().as_str() {
            "lanczos1" => (1.0, lanczos),
            "lanczos3" => (3.0, lanczos),
            "lanczos5" => (5.0, lanczos),
            "gaussian" => (1.5, gaussian),
            "box" => (1.0, boxed),
            "triangle" => (1.0, triangle),
            "keyscubic" => (2.0, keys_cubic),
            "mitchellcubic" => (2.0, mitchell_cubic),
            _ => bail!(InvalidArgument, "Unrecognized kernel type: {name}"),
        };
        Ok(Sampling { radius, weight, antialias })
    }
}

fn lanczos(x: f32, radius: f32) -> f32 {
    const PI: f32 = std::f32::consts::PI;
    if x > radius {
        0.0
    } else if x <= 1e-3 {
        1.0
    } else {
        radius * (PI * x).sin() * (PI * x / radius).sin() / (PI * PI * x * x)
    }
}

fn gaussian(x: f32, radius: f32) -> f32 {
    let sigma = radius / 3.0;
    if x >= radius {
        0.0
    } else {
        (f64::from(-x * x) / (2.0 * f64::from(sigma) * f64::from(sigma))).exp() as f32
    }
}

fn boxed(x: f32, _: f32) -> f32 {
    if x < 0.5 {
        1.0
    } else if x == 0.5 {
        0.5
    } else {
        0.0
    }
}

fn triangle(x: f32, _: f32) -> f32 {
    if x < 1.0 { 1.0 - x } else { 0.0 }
}

fn keys_cubic(x: f32, _: f32) -> f32 {
    if x >= 2.0 {
        0.0
    } else if x >= 1.0 {
        ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    } else {
        ((1.5 * x - 2.5) * x) * x + 1.0
    }
}

fn mitchell_cubic(x: f32, _: f32) -> f32 {
    if x >= 2.0 {
        0.0
    } else if x >= 1.0 {
        (((-7.0 / 18.0) * x + 2.0) * x - 10.0 / 3.0) * x + 16.0 / 9.0
    } else {
        (((7.0 / 6.0) * x - 2.0) * x) * x + 8.0 / 9.0
    }
}

/// The pixels that each pixel of the result is made of: the first of them, and the weights of it and its successors.
struct Spans {
    length: usize,
    starts: Vec<usize>,
    weights: Vec<f32>,
}

impl Spans {
    fn new(sampling: Sampling, to: usize, from: usize, scale: f32, translation: f32) -> Result<Spans> {
        let inverse = (1.0 / f64::from(scale)) as f32;
        let shift = -inverse * translation;
        let widening = if sampling.antialias { inverse.max(1.0) } else { 1.0 };
        let reach = sampling.radius * widening;
        let length = (2 * i64::from(reach.ceil() as i32)).saturating_add(1).min(from as i64) as usize;
        ensure!(
            to.saturating_mul(length) <= i32::MAX as usize,
            ResourceExhausted,
            "resizing {from} pixels to {to} by {scale} needs too many weights"
        );
        let (mut starts, mut weights) = (vec![0; to], vec![0.0f32; to * length]);
        let narrowing = 1.0 / widening;
        for (at, (start, weights)) in starts.iter_mut().zip(weights.chunks_mut(length.max(1))).enumerate() {
            let place = (at as f32 + 0.5) * inverse + shift;
            // Pixels outside the original stay empty.
            if !(place >= 0.0 && place <= from as f32) {
                continue;
            }
            let inside = |pixel: f32| (pixel as i64).clamp(0, from as i64 - 1) as usize;
            let (first, last) = (inside((place - reach - 0.5).ceil()), inside((place + reach - 0.5).floor()));
            ensure!(
                last + 1 - first <= length,
                Internal,
                "Span is too large: {} vs {length}.",
                last + 1 - first
            );
            let mut sum = 0.0f32;
            for (pixel, weight) in (first..=last).zip(weights.iter_mut()) {
                *weight =
                    (sampling.weight)(((pixel as f32 + 0.5 - place) * narrowing).abs(), sampling.radius);
                sum += *weight;
            }
            let norm = if sum.abs() >= 1000.0 * f32::MIN_POSITIVE { 1.0 / sum } else { 0.0 };
            for weight in weights.iter_mut() {
                *weight *= norm;
            }
            *start = first;
        }
        Ok(Spans { length, starts, weights })
    }

    /// The spans that carry gradients back: those of the pixels of the original.
    fn transposed(&self, from: usize) -> Result<Spans> {
        let mut parts: Vec<Vec<(usize, f32)>> = vec![Vec::new(); from];
        for (at, start) in self.starts.iter().enumerate() {
            for (number, weight) in self.weights[at * self.length..][..self.length].iter().enumerate() {
                if *weight != 0.0 && start + number < from {
                    parts[start + number].push((at, *weight));
                }
            }
        }
        let reach = |part: &Vec<(usize, f32)>| match (part.first(), part.last()) {
            (Some((first, _)), Some((last, _))) => last + 1 - first,
            _ => 0,
        };
        let length = parts.iter().map(reach).max().unwrap_or(0);
        ensure!(
            from.saturating_mul(length) <= i32::MAX as usize,
            ResourceExhausted,
            "the gradient of a resize to {from} pixels needs too many weights"
        );
        let (mut starts, mut weights) = (vec![0; from], vec![0.0f32; from * length]);
        for (pixel, part) in parts.iter().enumerate() {
            if let Some((first, _)) = part.first() {
                starts[pixel] = *first;
                for (at, weight) in part {
                    weights[pixel * length + at - first] += weight;
                }
            }
        }
        Ok(Spans { length, starts, weights })
    }

    fn weights(&self, at: usize, limit: usize) -> (usize, &[f32]) {
        let start = self.starts[at];
        let length = self.length.min(limit - start.min(limit));
        (start, &self.weights[at * self.length..][..length])
    }
}

/// Two floats, rows first.
fn pair(cx: &KernelCx<'_>, input: usize) -> Result<[f32; 2]> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() == 1, InvalidArgument, "t must be 1-dimensional{}", tensor.shape());
    match tensor.flat::<f32>()? {
        [rows, columns] => Ok([*rows, *columns]),
        _ => bail!(InvalidArgument, "t must have two elements{}", tensor.shape()),
    }
}

fn transform(cx: &KernelCx<'_>) -> Result<([f32; 2], [f32; 2])> {
    let scale = pair(cx, 2)?;
    ensure!(scale[0] > 0.0 && scale[1] > 0.0, InvalidArgument, "Scale must be greater than zero.");
    Ok((scale, pair(cx, 3)?))
}

fn kernel(init: &Init<'_>) -> Result<Kernel> {
    let sampling = Sampling::read(init)?;
    let alignment = super::resize::Alignment { corners: false, half_pixels: false };
    Kernel::sync(move |cx| {
        let Resize { from, to, .. } = Resize::new(cx, alignment)?;
        let (scale, translation) = transform(cx)?;
        let mut out = cx.alloc::<f32>(to.shape()?)?;
        if to.batch == 0 {
            return Ok(out.into());
        }
        let rows = Spans::new(sampling, to.height, from.height, scale[0], translation[0])?;
        let columns = Spans::new(sampling, to.width, from.width, scale[1], translation[1])?;
        let pixels = out.flat_mut::<f32>()?;
        with_pixels!(cx, cx.input(0)?, images => gather(cx.threads(), images, (from, to), (&rows, &columns), pixels));
        Ok(out.into())
    })
}

/// Adds up rows of the original, then pixels along the sums.
fn gather<T: Pixel>(
    threads: Threads<'_>,
    images: &[T],
    (from, to): (ImageDims, ImageDims),
    (rows, columns): (&Spans, &Spans),
    out: &mut [f32],
) {
    let channels = to.channels;
    threads.parallel_rows(out, to.row(), 2 * (rows.length + columns.length), |first, parts| {
        let mut sums = vec![0.0f32; from.row()];
        for (number, out) in parts.chunks_mut(to.row()).enumerate() {
            let (image, y) = ((first + number) / to.height, (first + number) % to.height);
            sums.fill(0.0);
            let (start, weights) = rows.weights(y, from.height);
            for (row, weight) in (start..).zip(weights) {
                let row = &images[(image * from.height + row) * from.row()..][..from.row()];
                for (sum, x) in sums.iter_mut().zip(row) {
                    *sum += weight * x.single();
                }
            }
            for (at, out) in out.chunks_mut(channels).enumerate() {
                out.fill(0.0);
                let (start, weights) = columns.weights(at, from.width);
                for (pixel, weight) in sums[start * channels..].chunks(channels).zip(weights) {
                    for (out, x) in out.iter_mut().zip(pixel) {
                        *out += weight * x;
                    }
                }
            }
        }
    });
}

fn grad_kernel(init: &Init<'_>) -> Result<Kernel> {
    let sampling = Sampling::read(init)?;
    Kernel::sync(move |cx| {
        let (grads, original) = (cx.input(0)?, cx.input(1)?);
        let Some(from) = ImageDims::of(grads.shape()) else {
            bail!(InvalidArgument, "input_grad must be 4-dimensional{}", grads.shape());
        };
        let Some(to) = ImageDims::of(original.shape()) else {
            bail!(InvalidArgument, "original_image must be 4-dimensional{}", original.shape());
        };
        let to = ImageDims { batch: from.batch, channels: from.channels, ..to };
        let (scale, translation) = transform(cx)?;
        let mut out = cx.alloc::<f32>(to.shape()?)?;
        if out.elements() == 0 {
            return Ok(out.into());
        }
        let rows =
            Spans::new(sampling, from.height, to.height, scale[0], translation[0])?.transposed(to.height)?;
        let columns =
            Spans::new(sampling, from.width, to.width, scale[1], translation[1])?.transposed(to.width)?;
        gather(cx.threads(), grads.flat::<f32>()?, (from, to), (&rows, &columns), out.flat_mut()?);
        Ok(out.into())
    })
}

fn gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = ops::ScaleAndTranslateGrad::new().antialias(g.attr("antialias")?);
    let node = node.kernel_type(&g.attr::<String>("kernel_type")?);
    let grad = node.build(g.scope(), g.dy(0)?, g.input(0), g.input(2), g.input(3))?;
    Ok([Some(grad), None, None, None].into())
}
