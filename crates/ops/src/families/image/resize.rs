//! Resizing by bilinear interpolation and by nearest neighbors, and the gradients.

use crate::builders as ops;
use crate::numeric::Num;
use crate::support::gradient::{part, shape_output};
use crate::support::image::{ImageDims, Pixel, like_second, resized_shape, sized_image, with_pixels};
use crate::support::widen::narrowed;
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::{Element, Result, Tensor, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] =
    &[&RESIZE_BILINEAR, &RESIZE_BILINEAR_GRAD, &RESIZE_NEAREST, &RESIZE_NEAREST_GRAD];

static RESIZE_BILINEAR: Op = Op {
    name: "ResizeBilinear",
    gradient: Gradient::Fn(bilinear_gradient),
    inputs: &["images: T", "size: int32"],
    outputs: &["resized_images: float"],
    attrs: &[
        "T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double, bfloat16}",
        "align_corners: bool = false",
        "half_pixel_centers: bool = false",
    ],
    shape: resized_shape,
    kernels: kernels![any bilinear_kernel],
    ..Op::PURE
};

static RESIZE_BILINEAR_GRAD: Op = Op {
    name: "ResizeBilinearGrad",
    gradient: Gradient::Stop,
    inputs: &["grads: float", "original_image: T"],
    outputs: &["output: T"],
    attrs: &[
        "T: {float, bfloat16, half, double}",
        "align_corners: bool = false",
        "half_pixel_centers: bool = false",
    ],
    shape: like_second,
    kernels: kernels![bilinear_grad_kernel: f64; any bilinear_grad_single_kernel],
    ..Op::PURE
};

static RESIZE_NEAREST: Op = Op {
    name: "ResizeNearestNeighbor",
    gradient: Gradient::Fn(nearest_gradient),
    inputs: &["images: T", "size: int32"],
    outputs: &["resized_images: T"],
    attrs: &[
        "T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}",
        "align_corners: bool = false",
        "half_pixel_centers: bool = false",
    ],
    shape: resized_shape,
    kernels: kernels![any nearest_kernel],
    ..Op::PURE
};

static RESIZE_NEAREST_GRAD: Op = Op {
    name: "ResizeNearestNeighborGrad",
    inputs: &["grads: T", "size: int32"],
    outputs: &["output: T"],
    attrs: &[
        "T: {uint8, int8, int32, half, float, double, bfloat16}",
        "align_corners: bool = false",
        "half_pixel_centers: bool = false",
    ],
    shape: nearest_grad_shape,
    kernels: kernels![nearest_grad_kernel: u8, i8, i32, f16, f32, f64, bf16],
    ..Op::PURE
};

fn nearest_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let grads = s.rank(0, 4)?;
    let dims = grads.dims().unwrap_or_default();
    sized_image(s, dims[0], 1, dims[3])
}

/// The attributes of a resize.
#[derive(Clone, Copy)]
pub(super) struct Alignment {
    pub(super) corners: bool,
    pub(super) half_pixels: bool,
}

impl Alignment {
    pub(super) fn read(init: &Init<'_>) -> Result<Alignment> {
        Ok(Alignment { corners: init.attr("align_corners")?, half_pixels: init.attr("half_pixel_centers")? })
    }

    /// The number of pixels of the larger grid per pixel of the other.
    pub(super) fn scale(self, from: usize, to: usize) -> f32 {
        if self.corners && from > 1 && to > 1 {
            (from - 1) as f32 / (to - 1) as f32
        } else {
            from as f32 / to as f32
        }
    }

    /// The place in the original of a pixel of the result.
    pub(super) fn place(self, at: usize, scale: f32) -> f32 {
        if self.half_pixels { (at as f32 + 0.5) * scale - 0.5 } else { at as f32 * scale }
    }

    fn check(self) -> Result<()> {
        ensure!(
            !(self.half_pixels && self.corners),
            InvalidArgument,
            "If half_pixel_centers is True, align_corners must be False."
        );
        Ok(())
    }
}

/// The sizes of a resize.
pub(super) struct Resize {
    pub(super) from: ImageDims,
    pub(super) to: ImageDims,
    pub(super) height_scale: f32,
    pub(super) width_scale: f32,
}

impl Resize {
    /// The resize that inputs 0, images, and 1, a size, ask for.
    pub(super) fn new(cx: &KernelCx<'_>, alignment: Alignment) -> Result<Resize> {
        alignment.check()?;
        let (images, size) = (cx.input(0)?, cx.input(1)?);
        let Some(from) = ImageDims::of(images.shape()) else {
            bail!(InvalidArgument, "input must be 4-dimensional{}", images.shape());
        };
        ensure!(from.channels > 0, InvalidArgument, "image must have at least one channel");
        ensure!(from.height > 0 && from.width > 0, InvalidArgument, "input image must be of non-zero size");
        ensure!(
            from.height <= i32::MAX as usize && from.width <= i32::MAX as usize,
            InvalidArgument,
            "input sizes must be between 0 and max int32"
        );
        ensure!(size.rank() == 1, InvalidArgument, "shape_t must be 1-dimensional{}", size.shape());
        let &[height, width] = size.flat::<i32>()? else {
            bail!(InvalidArgument, "shape_t must have two elements{}", size.shape());
        };
        ensure!(height > 0 && width > 0, InvalidArgument, "output dimensions must be positive");
        let to = ImageDims { height: height as usize, width: width as usize, ..from };
        let (height_scale, width_scale) =
            (alignment.scale(from.height, to.height), alignment.scale(from.width, to.width));
        ensure!(
            ((to.width - 1) as f32 * width_scale).ceil() <= i32::MAX as f32,
            InvalidArgument,
            "input image width scale would cause an overflow"
        );
        Ok(Resize { from, to, height_scale, width_scale })
    }

    /// The resize whose gradient inputs 0, gradients, and 1, the original images, ask for.
    pub(super) fn of_gradient(cx: &KernelCx<'_>, alignment: Alignment) -> Result<Resize> {
        alignment.check()?;
        let (grads, original) = (cx.input(0)?, cx.input(1)?);
        let Some(to) = ImageDims::of(grads.shape()) else {
            bail!(InvalidArgument, "input_grad must be 4-dimensional{}", grads.shape());
        };
        ensure!(to.height > 0 && to.width > 0, InvalidArgument, "resized dimensions must be positive");
        let Some(from) = ImageDims::of(original.shape()) else {
            bail!(InvalidArgument, "original_image must be 4-dimensional{}", original.shape());
        };
        ensure!(from.height > 0 && from.width > 0, InvalidArgument, "original dimensions must be positive");
        ensure!(
            from.height <= i32::MAX as usize && from.width <= i32::MAX as usize,
            InvalidArgument,
            "original sizes must be between 0 and max int32"
        );
        let from = ImageDims { batch: to.batch, channels: to.channels, ..from };
        let (height_scale, width_scale) =
            (alignment.scale(from.height, to.height), alignment.scale(from.width, to.width));
        Ok(Resize { from, to, height_scale, width_scale })
    }
}

/// The two pixels of the original that a pixel of the result lies between, and the weight of the second.
#[derive(Clone, Copy)]
struct Between {
    lower: usize,
    upper: usize,
    weight: f32,
}

fn between(alignment: Alignment, from: usize, to: usize, scale: f32) -> Vec<Between> {
    let pixel = |at: usize| {
        let place = alignment.place(at, scale);
        let floor = place.floor();
        Between {
            lower: (floor as i64).max(0) as usize,
            upper: (place.ceil() as i64).clamp(0, from as i64 - 1) as usize,
            weight: place - floor,
        }
    };
    (0..to).map(pixel).collect()
}

fn bilinear_kernel(init: &Init<'_>) -> Result<Kernel> {
    let alignment = Alignment::read(init)?;
    Kernel::sync(move |cx| {
        let resize = Resize::new(cx, alignment)?;
        let (from, to) = (&resize.from, &resize.to);
        let images = cx.input(0)?;
        if (from.height, from.width) == (to.height, to.width) {
            return Ok(crate::support::image::single(cx, images)?.into());
        }
        let mut out = cx.alloc::<f32>(to.shape()?)?;
        if to.batch == 0 {
            return Ok(out.into());
        }
        let ys = between(alignment, from.height, to.height, resize.height_scale);
        let xs = between(alignment, from.width, to.width, resize.width_scale);
        let pixels = out.flat_mut::<f32>()?;
        with_pixels!(cx, images, original => interpolate(cx.threads(), original, &resize, &xs, &ys, pixels));
        Ok(out.into())
    })
}

/// Interpolates along rows first: neighbors in the result often lie between the same two rows, whose interpolations are
/// kept.
fn interpolate<T: Pixel>(
    threads: Threads<'_>,
    original: &[T],
    resize: &Resize,
    xs: &[Between],
    ys: &[Between],
    out: &mut [f32],
) {
    let (from, to) = (&resize.from, &resize.to);
    let along = match from.channels {
        1 => along_row::<T, 1>,
        3 => along_row::<T, 3>,
        4 => along_row::<T, 4>,
        _ => along_any_row::<T>,
    };
    threads.parallel_rows(out, to.row(), 4, |first, rows| {
        let mut kept = [(usize::MAX, vec![0.0f32; to.row()]), (usize::MAX, vec![0.0f32; to.row()])];
        for (number, out) in rows.chunks_mut(to.row()).enumerate() {
            let (image, y) = ((first + number) / to.height, ys[(first + number) % to.height]);
            let (lower, upper) = (image * from.height + y.lower, image * from.height + y.upper);
            if kept[1].0 == lower {
                kept.swap(0, 1);
            }
            for (kept, row) in kept.iter_mut().zip([lower, upper]) {
                if kept.0 != row {
                    kept.0 = row;
                    along(&original[row * from.row()..][..from.row()], from.channels, xs, &mut kept.1);
                }
            }
            for ((out, top), bottom) in out.iter_mut().zip(&kept[0].1).zip(&kept[1].1) {
                *out = top + (bottom - top) * y.weight;
            }
        }
    });
}

fn along_row<T: Pixel, const CHANNELS: usize>(row: &[T], _: usize, xs: &[Between], out: &mut [f32]) {
    let (row, _) = row.as_chunks::<CHANNELS>();
    let (out, _) = out.as_chunks_mut::<CHANNELS>();
    for (out, x) in out.iter_mut().zip(xs) {
        let (left, right) = (row[x.lower].map(T::single), row[x.upper].map(T::single));
        for channel in 0..CHANNELS {
            out[channel] = left[channel] + (right[channel] - left[channel]) * x.weight;
        }
    }
}

fn along_any_row<T: Pixel>(row: &[T], channels: usize, xs: &[Between], out: &mut [f32]) {
    for (out, x) in out.chunks_mut(channels).zip(xs) {
        let (left, right) = (&row[x.lower * channels..][..channels], &row[x.upper * channels..][..channels]);
        for ((out, left), right) in out.iter_mut().zip(left).zip(right) {
            *out = left.single() + (right.single() - left.single()) * x.weight;
        }
    }
}

/// 16-bit floats are added up in single precision.
fn bilinear_grad_single_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (alignment, dtype) = (Alignment::read(init)?, init.output_types[0]);
    Kernel::sync(move |cx| Ok(narrowed(cx, bilinear_grad::<f32>(cx, alignment)?, dtype)?.into()))
}

fn bilinear_grad_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let alignment = Alignment::read(init)?;
    Kernel::sync(move |cx| Ok(bilinear_grad::<T>(cx, alignment)?.into()))
}

fn bilinear_grad<T: Num>(cx: &KernelCx<'_>, alignment: Alignment) -> Result<Tensor> {
    let resize = Resize::of_gradient(cx, alignment)?;
    let (from, to) = (&resize.from, &resize.to);
    let mut out = cx.zeros(T::DTYPE, from.shape()?)?;
    let ys = between(alignment, from.height, to.height, resize.height_scale);
    let xs = between(alignment, from.width, to.width, resize.width_scale);
    let grads = cx.flat::<f32>(0)?;
    let channels = to.channels;
    cx.threads().parallel_rows(out.flat_mut::<T>()?, from.image(), 4, |first, images| {
        for (number, image) in images.chunks_mut(from.image()).enumerate() {
            let grads = &grads[(first + number) * to.image()..][..to.image()];
            for (grads, y) in grads.chunks(to.row()).zip(&ys) {
                let down = 1.0 - y.weight;
                for (grads, x) in grads.chunks(channels).zip(&xs) {
                    let across = 1.0 - x.weight;
                    let corners = [
                        (y.lower, x.lower, down, across),
                        (y.lower, x.upper, down, x.weight),
                        (y.upper, x.lower, y.weight, across),
                        (y.upper, x.upper, y.weight, x.weight),
                    ];
                    for (row, column, first, second) in corners {
                        let place = (row * from.width + column) * channels;
                        for (sum, grad) in image[place..][..channels].iter_mut().zip(grads) {
                            *sum = sum.add(T::from_f64((grad * first * second) as f64));
                        }
                    }
                }
            }
        }
    });
    Ok(out)
}

/// The pixel of the original nearest to each pixel of the result.
fn nearest(alignment: Alignment, from: usize, to: usize, scale: f32) -> Vec<usize> {
    let pixel = |at: usize| {
        let at = at as f32;
        let place = if alignment.half_pixels { (at + 0.5) * scale } else { at * scale };
        let place = if alignment.corners { place.round() } else { place.floor() };
        (place as i64).clamp(0, from as i64 - 1) as usize
    };
    (0..to).map(pixel).collect()
}

fn nearest_kernel(init: &Init<'_>) -> Result<Kernel> {
    let alignment = Alignment::read(init)?;
    Kernel::sync(move |cx| {
        let resize = Resize::new(cx, alignment)?;
        let images = cx.input(0)?;
        let mut out = cx.alloc_dtype(images.dtype(), resize.to.shape()?)?;
        match images.dtype().size() {
            1 => copy_nearest::<u8>(cx, images, alignment, &resize, &mut out)?,
            2 => copy_nearest::<u16>(cx, images, alignment, &resize, &mut out)?,
            4 => copy_nearest::<u32>(cx, images, alignment, &resize, &mut out)?,
            _ => copy_nearest::<u64>(cx, images, alignment, &resize, &mut out)?,
        }
        Ok(out.into())
    })
}

fn copy_nearest<U: ferroflow_core::Unit + Copy>(
    cx: &KernelCx<'_>,
    images: &Tensor,
    alignment: Alignment,
    resize: &Resize,
    out: &mut Tensor,
) -> Result<()> {
    let (from, to) = (&resize.from, &resize.to);
    let ys = nearest(alignment, from.height, to.height, resize.height_scale);
    let xs = nearest(alignment, from.width, to.width, resize.width_scale);
    let original = images.units::<U>()?;
    let channels = from.channels;
    cx.threads().parallel_rows(out.units_mut::<U>()?, to.row(), 1, |first, rows| {
        for (number, out) in rows.chunks_mut(to.row()).enumerate() {
            let (image, y) = ((first + number) / to.height, ys[(first + number) % to.height]);
            let row = &original[(image * from.height + y) * from.row()..][..from.row()];
            for (out, x) in out.chunks_mut(channels).zip(&xs) {
                out.copy_from_slice(&row[x * channels..][..channels]);
            }
        }
    });
    Ok(())
}

fn nearest_grad_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let alignment = Alignment::read(init)?;
    Kernel::sync(move |cx| Ok(nearest_grad::<T>(cx, alignment)?.into()))
}

fn nearest_grad<T: Num + Element>(cx: &KernelCx<'_>, alignment: Alignment) -> Result<Tensor> {
    let (grads, size) = (cx.input(0)?, cx.input(1)?);
    let Some(from) = ImageDims::of(grads.shape()) else {
        bail!(InvalidArgument, "input must be 4-dimensional{}", grads.shape());
    };
    ensure!(size.rank() == 1, InvalidArgument, "shape_t must be 1-dimensional{}", size.shape());
    let &[height, width] = size.flat::<i32>()? else {
        bail!(InvalidArgument, "shape_t must have two elements{}", size.shape());
    };
    ensure!(height > 0 && width > 0, InvalidArgument, "shape_t's elements must be positive");
    let to = ImageDims { height: height as usize, width: width as usize, ..from };
    let mut out = cx.zeros(T::DTYPE, to.shape()?)?;
    if from.image() == 0 {
        return Ok(out);
    }
    let ys = nearest(alignment, to.height, from.height, alignment.scale(to.height, from.height));
    let xs = nearest(alignment, to.width, from.width, alignment.scale(to.width, from.width));
    let grads = grads.flat::<T>()?;
    cx.threads().parallel_rows(out.flat_mut::<T>()?, to.image(), 1, |first, images| {
        for (number, image) in images.chunks_mut(to.image()).enumerate() {
            let grads = &grads[(first + number) * from.image()..][..from.image()];
            for (grads, y) in grads.chunks(from.row()).zip(&ys) {
                for (grads, x) in grads.chunks(from.channels).zip(&xs) {
                    let place = (y * to.width + x) * to.channels;
                    for (sum, grad) in image[place..][..to.channels].iter_mut().zip(grads) {
                        *sum = sum.add(*grad);
                    }
                }
            }
        }
    });
    Ok(out)
}

fn bilinear_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = ops::ResizeBilinearGrad::new().align_corners(g.attr("align_corners")?);
    let node = node.half_pixel_centers(g.attr("half_pixel_centers")?);
    Ok([Some(node.build(g.scope(), g.dy(0)?, g.input(0))?), None].into())
}

fn nearest_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let size = part(s, &shape_output(s, g.input(0))?, 1, Some(3))?;
    let node = ops::ResizeNearestNeighborGrad::new().align_corners(g.attr("align_corners")?);
    let node = node.half_pixel_centers(g.attr("half_pixel_centers")?);
    Ok([Some(node.build(s, g.dy(0)?, size)?), None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{infer, infer_err};
    use ferroflow_core::Code;

    #[test]
    fn sizes_of_resized_images() {
        infer("ResizeBilinear", "[2,3,4,5];[2]", "[2,?,?,5]");
        infer("ResizeNearestNeighbor", "?;[2]", "[?,?,?,?]");
        infer_err("ResizeBilinear", "[2,3,4];[2]", Code::InvalidArgument);
        infer_err("ResizeBilinear", "[2,3,4,5];[3]", Code::InvalidArgument);
    }
}
