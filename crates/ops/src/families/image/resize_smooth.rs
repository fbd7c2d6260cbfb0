//! Resizing by bicubic interpolation, with its gradient, and by the means of areas.

use super::resize::{Alignment, Resize};
use crate::builders as ops;
use crate::numeric::Num;
use crate::support::image::{Pixel, like_second, resized_shape, with_pixels};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op};
use ferroflow_core::{DType, Result, kernels};
use std::sync::OnceLock;

pub(crate) const OPS: &[&Op] = &[&RESIZE_BICUBIC, &RESIZE_BICUBIC_GRAD, &RESIZE_AREA];

static RESIZE_BICUBIC: Op = Op {
    name: "ResizeBicubic",
    gradient: Gradient::Fn(bicubic_gradient),
    inputs: &["images: T", "size: int32"],
    outputs: &["resized_images: float"],
    attrs: &[
        "T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}",
        "align_corners: bool = false",
        "half_pixel_centers: bool = false",
    ],
    shape: resized_shape,
    kernels: kernels![any bicubic_kernel],
    ..Op::PURE
};

static RESIZE_BICUBIC_GRAD: Op = Op {
    name: "ResizeBicubicGrad",
    inputs: &["grads: float", "original_image: T"],
    outputs: &["output: T"],
    attrs: &["T: {float, double}", "align_corners: bool = false", "half_pixel_centers: bool = false"],
    shape: like_second,
    kernels: kernels![bicubic_grad_kernel: f32, f64],
    ..Op::PURE
};

static RESIZE_AREA: Op = Op {
    name: "ResizeArea",
    inputs: &["images: T", "size: int32"],
    outputs: &["resized_images: float"],
    attrs: &[
        "T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}",
        "align_corners: bool = false",
    ],
    shape: resized_shape,
    kernels: kernels![any area_kernel],
    ..Op::PURE
};

/// Four pixels along one direction and their weights.
#[derive(Clone, Copy)]
struct Cubic {
    index: [usize; 4],
    weight: [f32; 4],
}

/// The number of steps between two pixels for which weights are tabulated, as in stock: results are equal to the last bit.
const STEPS: usize = 1 << 10;

/// Weights of the nearer and of the farther pixel by distance.
type Table = Vec<[f32; 2]>;

fn table(a: f64) -> Table {
    let entry = |step: usize| {
        let x = (step as f64 / STEPS as f64) as f32;
        let near = (((a + 2.0) * x as f64 - (a + 3.0)) * x as f64 * x as f64 + 1.0) as f32;
        let x = (x as f64 + 1.0) as f32 as f64;
        [near, (((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a) as f32]
    };
    (0..=STEPS).map(entry).collect()
}

/// The weights of four pixels around each pixel of the result. With half-pixel centers, pixels outside the image weigh
/// nothing; without, those at its edge stand for them.
fn cubics(alignment: Alignment, from: usize, to: usize, scale: f32) -> Vec<Cubic> {
    static KEYS: OnceLock<Table> = OnceLock::new();
    static LEGACY: OnceLock<Table> = OnceLock::new();
    let table = if alignment.half_pixels {
        KEYS.get_or_init(|| table(-0.5))
    } else {
        LEGACY.get_or_init(|| table(-0.75))
    };
    let cubic = |at: usize| {
        let place = alignment.place(at, scale);
        let floor = place.floor();
        let step = ((place - floor) * STEPS as f32).round_ties_even() as usize;
        let mut weight = [table[step][1], table[step][0], table[STEPS - step][0], table[STEPS - step][1]];
        let asked: [i64; 4] = std::array::from_fn(|number| floor as i64 - 1 + number as i64);
        let index = asked.map(|index| index.clamp(0, from as i64 - 1));
        if alignment.half_pixels {
            for number in 0..4 {
                if index[number] != asked[number] {
                    weight[number] = 0.0;
                }
            }
            let sum = weight[0] + weight[1] + weight[2] + weight[3];
            if sum.abs() >= 1000.0 * f32::MIN_POSITIVE {
                let inverse = 1.0 / sum;
                weight = weight.map(|weight| weight * inverse);
            }
        }
        Cubic { index: index.map(|index| index as usize), weight }
    };
    (0..to).map(cubic).collect()
}

fn weighted(values: [f32; 4], weights: &[f32; 4]) -> f32 {
    values[0] * weights[0] + values[1] * weights[1] + values[2] * weights[2] + values[3] * weights[3]
}

fn bicubic_kernel(init: &Init<'_>) -> Result<Kernel> {
    let alignment = Alignment::read(init)?;
    Kernel::sync(move |cx| {
        let resize = Resize::new(cx, alignment)?;
        let mut out = cx.alloc::<f32>(resize.to.shape()?)?;
        let ys = cubics(alignment, resize.from.height, resize.to.height, resize.height_scale);
        let xs = cubics(alignment, resize.from.width, resize.to.width, resize.width_scale);
        let pixels = out.flat_mut::<f32>()?;
        with_pixels!(cx, cx.input(0)?, original => interpolate(cx.threads(), original, &resize, &xs, &ys, pixels));
        Ok(out.into())
    })
}

/// Interpolates between rows first, each column of the original once.
fn interpolate<T: Pixel>(
    threads: Threads<'_>,
    original: &[T],
    resize: &Resize,
    xs: &[Cubic],
    ys: &[Cubic],
    out: &mut [f32],
) {
    let (from, to) = (&resize.from, &resize.to);
    let channels = from.channels;
    threads.parallel_rows(out, to.row(), 16, |first, rows| {
        let mut between = vec![0.0f32; from.row()];
        for (number, out) in rows.chunks_mut(to.row()).enumerate() {
            let (image, y) = ((first + number) / to.height, &ys[(first + number) % to.height]);
            let row = |row: usize| &original[(image * from.height + row) * from.row()..][..from.row()];
            let rows = y.index.map(row);
            for (at, between) in between.iter_mut().enumerate() {
                *between = weighted(rows.map(|row| row[at].single()), &y.weight);
            }
            for (out, x) in out.chunks_mut(channels).zip(xs) {
                for (channel, out) in out.iter_mut().enumerate() {
                    let values = x.index.map(|index| between[index * channels + channel]);
                    *out = weighted(values, &x.weight);
                }
            }
        }
    });
}

fn bicubic_grad_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let alignment = Alignment::read(init)?;
    Kernel::sync(move |cx| {
        let resize = Resize::of_gradient(cx, alignment)?;
        let (from, to) = (&resize.from, &resize.to);
        let mut out = cx.zeros(T::DTYPE, from.shape()?)?;
        let ys = cubics(alignment, from.height, to.height, resize.height_scale);
        let xs = cubics(alignment, from.width, to.width, resize.width_scale);
        let grads = cx.flat::<f32>(0)?;
        let channels = to.channels;
        cx.threads().parallel_rows(out.flat_mut::<T>()?, from.image(), 32, |first, images| {
            for (number, image) in images.chunks_mut(from.image()).enumerate() {
                let grads = &grads[(first + number) * to.image()..][..to.image()];
                for (grads, y) in grads.chunks(to.row()).zip(&ys) {
                    for (grads, x) in grads.chunks(channels).zip(&xs) {
                        for pair in 0..16 {
                            let (vertical, across) = (pair / 4, pair % 4);
                            let place = (y.index[vertical] * from.width + x.index[across]) * channels;
                            let first = T::from_f64(y.weight[vertical] as f64);
                            let second = T::from_f64(x.weight[across] as f64);
                            for (sum, grad) in image[place..][..channels].iter_mut().zip(grads) {
                                *sum = sum.add(T::from_f64(*grad as f64).mul(first).mul(second));
                            }
                        }
                    }
                }
            }
        });
        Ok(out.into())
    })
}

/// The pixels that a pixel of the result covers: a range, and the share of the first and of the last of them.
#[derive(Clone, Copy)]
struct Cover {
    start: i64,
    end: i64,
    first: f32,
    last: f32,
}

fn covers(to: usize, scale: f32) -> Vec<Cover> {
    let cover = |at: usize| {
        let (begin, end) = (at as f32 * scale, (at + 1) as f32 * scale);
        let share = |pixel: i64| {
            let (low, high) = (pixel as f32, (pixel + 1) as f32);
            match (low < begin, high > end) {
                (true, true) => scale,
                (true, false) => high - begin,
                (false, true) => end - low,
                (false, false) => 1.0,
            }
        };
        let (start, stop) = (begin.floor() as i64, end.ceil() as i64);
        Cover { start, end: stop, first: share(start), last: share(stop - 1) }
    };
    (0..to).map(cover).collect()
}

fn area_kernel(init: &Init<'_>) -> Result<Kernel> {
    let alignment = Alignment { corners: init.attr("align_corners")?, half_pixels: false };
    Kernel::sync(move |cx| {
        let resize = Resize::new(cx, alignment)?;
        let mut out = cx.alloc::<f32>(resize.to.shape()?)?;
        let pixels = out.flat_mut::<f32>()?;
        with_pixels!(cx, cx.input(0)?, original => means(cx.threads(), original, &resize, pixels));
        Ok(out.into())
    })
}

fn means<T: Pixel>(threads: Threads<'_>, original: &[T], resize: &Resize, out: &mut [f32]) {
    let (from, to) = (&resize.from, &resize.to);
    let (ys, xs) = (covers(to.height, resize.height_scale), covers(to.width, resize.width_scale));
    let scale = (1.0 / (resize.height_scale * resize.width_scale) as f64) as f32;
    let channels = from.channels;
    let inside = |at: i64, limit: usize| at.clamp(0, limit as i64 - 1) as usize;
    let covered = (from.image() / to.image().max(1)).max(1);
    threads.parallel_rows(out, to.row(), 2 * covered, |first, rows| {
        for (number, out) in rows.chunks_mut(to.row()).enumerate() {
            let (image, y) = ((first + number) / to.height, &ys[(first + number) % to.height]);
            for (out, x) in out.chunks_mut(channels).zip(&xs) {
                out.fill(0.0);
                for at in y.start..y.end {
                    let share = if at == y.start {
                        y.first
                    } else if at == y.end - 1 {
                        y.last
                    } else {
                        1.0
                    };
                    let row = (image * from.height + inside(at, from.height)) * from.row();
                    let row = &original[row..][..from.row()];
                    let pixel =
                        |at: i64, channel: usize| row[inside(at, from.width) * channels + channel].single();
                    for (channel, out) in out.iter_mut().enumerate() {
                        let mut sum = pixel(x.start, channel) * x.first;
                        if x.start + 1 != x.end {
                            for at in x.start + 1..x.end - 1 {
                                sum += pixel(at, channel);
                            }
                            sum += pixel(x.end - 1, channel) * x.last;
                        }
                        *out += sum * share;
                    }
                }
                for out in out.iter_mut() {
                    *out *= scale;
                }
            }
        }
    });
}

fn bicubic_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    if !matches!(g.input(0).dtype(), DType::Float | DType::Double) {
        return Ok(InputGrads::none(2));
    }
    let node = ops::ResizeBicubicGrad::new().align_corners(g.attr("align_corners")?);
    let node = node.half_pixel_centers(g.attr("half_pixel_centers")?);
    Ok([Some(node.build(g.scope(), g.dy(0)?, g.input(0))?), None].into())
}
