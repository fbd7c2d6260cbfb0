//! Batches of images as kernels see them: their sizes, and their pixels in single precision.

use ferroflow_core::kernel::KernelCx;
use ferroflow_core::op::{Dim, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Element, Result, Shape, Tensor, bail, bf16, f16};

/// Types of pixels that resizing reads without converting the image first: those that pipelines are made of.
pub(crate) trait Pixel: Element + Copy {
    fn single(self) -> f32;
}

impl Pixel for u8 {
    #[inline(always)]
    fn single(self) -> f32 {
        f32::from(self)
    }
}

impl Pixel for f32 {
    #[inline(always)]
    fn single(self) -> f32 {
        self
    }
}

/// The sizes of a batch of images, channels last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageDims {
    pub(crate) batch: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl ImageDims {
    /// The sizes of a tensor of rank 4.
    pub(crate) fn of(shape: &Shape) -> Option<ImageDims> {
        let [batch, height, width, channels] = shape.dims() else { return None };
        let [batch, height, width, channels] = [batch, height, width, channels].map(|dim| *dim as usize);
        Some(ImageDims { batch, height, width, channels })
    }

    /// The number of elements in a row of pixels.
    pub(crate) fn row(&self) -> usize {
        self.width * self.channels
    }

    /// The number of elements in an image.
    pub(crate) fn image(&self) -> usize {
        self.height * self.row()
    }

    pub(crate) fn shape(&self) -> Result<Shape> {
        Shape::new([self.batch, self.height, self.width, self.channels].map(|dim| dim as i64))
    }
}

/// The tensor itself, or its elements in single precision.
pub(crate) fn single(cx: &KernelCx<'_>, tensor: &Tensor) -> Result<Tensor> {
    fn fill<T: Element>(cx: &KernelCx<'_>, tensor: &Tensor, convert: fn(&T) -> f32) -> Result<Tensor> {
        let mut out = cx.alloc::<f32>(tensor.shape().clone())?;
        let elements = tensor.flat::<T>()?;
        cx.threads().parallel_rows(out.flat_mut::<f32>()?, 1, 1, |first, out| {
            for (out, x) in out.iter_mut().zip(&elements[first..]) {
                *out = convert(x);
            }
        });
        Ok(out)
    }
    match tensor.dtype() {
        DType::Float => Ok(tensor.clone()),
        DType::Int8 => fill::<i8>(cx, tensor, |x| f32::from(*x)),
        DType::Uint8 => fill::<u8>(cx, tensor, |x| f32::from(*x)),
        DType::Int16 => fill::<i16>(cx, tensor, |x| f32::from(*x)),
        DType::Uint16 => fill::<u16>(cx, tensor, |x| f32::from(*x)),
        DType::Int32 => fill::<i32>(cx, tensor, |x| *x as f32),
        DType::Int64 => fill::<i64>(cx, tensor, |x| *x as f32),
        DType::Half => fill::<f16>(cx, tensor, |x| x.to_f32()),
        DType::Bfloat16 => fill::<bf16>(cx, tensor, |x| x.to_f32()),
        DType::Double => fill::<f64>(cx, tensor, |x| *x as f32),
        other => bail!(Unimplemented, "images of type {other} are not supported"),
    }
}

/// Evaluates `$body` with `$pixels` being the elements of an image, of a type that [`Pixel`] knows.
macro_rules! with_pixels {
    ($cx:expr, $image:expr, $pixels:ident => $body:expr) => {
        if $image.dtype() == ferroflow_core::DType::Uint8 {
            let $pixels = $image.flat::<u8>()?;
            $body
        } else {
            let wide = $crate::support::image::single($cx, $image)?;
            let $pixels = wide.flat::<f32>()?;
            $body
        }
    };
}
pub(crate) use with_pixels;

/// Gives output 0 the shape of a batch of images whose height and width input `size` holds.
pub(crate) fn sized_image(s: &mut ShapeCx<'_>, batch: Dim, size: usize, channels: Dim) -> Result<()> {
    let length = s.rank(size, 1)?;
    s.merge_dims(length.dims().map_or(UNKNOWN_DIM, |dims| dims[0]), 2)?;
    // A negative size is left to the kernel, which refuses it.
    let known = |dim: i64| if dim < 0 { UNKNOWN_DIM } else { dim };
    let (height, width) = match s.constant_i64s(size)?.as_deref() {
        Some(&[height, width]) => (known(height), known(width)),
        _ => (UNKNOWN_DIM, UNKNOWN_DIM),
    };
    s.output(0, [batch, height, width, channels])
}

/// The shape function of ops that resize a batch of images, input 1 being the size.
pub(crate) fn resized_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let images = s.rank(0, 4)?;
    let dims = images.dims().unwrap_or_default();
    sized_image(s, dims[0], 1, dims[3])
}

/// Gives output 0 the shape of input 1.
pub(crate) fn like_second(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, s.input(1));
    Ok(())
}
