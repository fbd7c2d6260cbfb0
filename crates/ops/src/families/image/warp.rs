//! Glimpses of images around a point, and projective transforms.

use crate::builders as ops;
use crate::numeric::Real;
use crate::numeric::philox::{Philox, Words, fresh_seed};
use crate::support::distribution::uniform_f32;
use crate::support::gradient::{part, shape_output};
use crate::support::image::{ImageDims, sized_image};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{Result, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] =
    &[&EXTRACT_GLIMPSE, &EXTRACT_GLIMPSE_V2, &PROJECTIVE_TRANSFORM_V2, &PROJECTIVE_TRANSFORM_V3];

static EXTRACT_GLIMPSE: Op = Op {
    name: "ExtractGlimpse",
    gradient: Gradient::Stop,
    inputs: &["input: float", "size: int32", "offsets: float"],
    outputs: &["glimpse: float"],
    attrs: &[
        "centered: bool = true",
        "normalized: bool = true",
        "uniform_noise: bool = true",
        "noise: string = 'uniform'",
    ],
    shape: glimpse_shape,
    kernels: kernels![any glimpse_kernel],
    // Noise around the image has no seed.
    accuracy: Accuracy::Random,
    ..Op::PURE
};

static EXTRACT_GLIMPSE_V2: Op = Op { name: "ExtractGlimpseV2", ..EXTRACT_GLIMPSE };

static PROJECTIVE_TRANSFORM_V2: Op = Op {
    name: "ImageProjectiveTransformV2",
    gradient: Gradient::Fn(transform_gradient),
    inputs: &["images: dtype", "transforms: float", "output_shape: int32"],
    outputs: &["transformed_images: dtype"],
    attrs: &[
        "dtype: {uint8, int32, int64, half, bfloat16, float, double}",
        "interpolation: string",
        "fill_mode: string = 'CONSTANT'",
    ],
    shape: transform_shape,
    kernels: kernels!["dtype" => transform_kernel: u8, i32, i64, f16, bf16, f32, f64],
    ..Op::PURE
};

static PROJECTIVE_TRANSFORM_V3: Op = Op {
    name: "ImageProjectiveTransformV3",
    inputs: &["images: dtype", "transforms: float", "output_shape: int32", "fill_value: float"],
    ..PROJECTIVE_TRANSFORM_V2
};

fn glimpse_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (input, offsets) = (s.rank(0, 4)?, s.rank(2, 2)?);
    let [input, offsets] = [&input, &offsets].map(|shape| shape.dims().unwrap_or_default());
    let batch = s.merge_dims(input[0], offsets[0])?;
    s.merge_dims(offsets[1], 2)?;
    let noise: String = s.attr("noise")?;
    ensure!(
        !s.attr::<bool>("uniform_noise")? || noise.is_empty() || noise == "uniform",
        InvalidArgument,
        "The uniform_noise and noise could not be specified at the same time"
    );
    sized_image(s, batch, 1, input[3])
}

fn transform_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let images = s.rank(0, 4)?;
    let dims = images.dims().unwrap_or_default();
    sized_image(s, dims[0], 2, dims[3])
}

#[derive(Clone, Copy)]
enum Noise {
    Zero,
    Uniform,
    Gaussian,
}

#[derive(Clone, Copy)]
struct Glimpse {
    first_version: bool,
    normalized: bool,
    centered: bool,
    noise: Noise,
}

fn glimpse_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (uniform, noise): (bool, String) = (init.attr("uniform_noise")?, init.attr("noise")?);
    ensure!(
        !uniform || noise.is_empty() || noise == "uniform",
        InvalidArgument,
        "The uniform_noise and noise could not be specified at the same time"
    );
    let noise = match noise.as_str() {
        "" if uniform => Noise::Uniform,
        "" | "gaussian" => Noise::Gaussian,
        "uniform" => Noise::Uniform,
        "zero" => Noise::Zero,
        _ => bail!(InvalidArgument, "The noise could only be uniform, gaussian, or zero, got{noise}"),
    };
    let glimpse = Glimpse {
        first_version: init.op == "ExtractGlimpse",
        normalized: init.attr("normalized")?,
        centered: init.attr("centered")?,
        noise,
    };
    Kernel::sync(move |cx| {
        let (input, size, offsets) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        let Some(dims) = ImageDims::of(input.shape()) else {
            bail!(
                InvalidArgument,
                "input must be 4-dimensional (batch_size, height, width, depth){}",
                input.shape()
            );
        };
        ensure!(
            size.rank() == 1 && size.elements() == 2,
            InvalidArgument,
            "input must be a vector of size 2 (height, width){}",
            size.shape()
        );
        ensure!(offsets.rank() == 2, InvalidArgument, "input must be a matrix{}", offsets.shape());
        ensure!(
            offsets.shape().dim(0) == dims.batch,
            InvalidArgument,
            "first dimension should be batch{}",
            offsets.shape()
        );
        ensure!(
            offsets.shape().dim(1) == 2,
            InvalidArgument,
            "second dimension should be of size 2 (y,x){}",
            offsets.shape()
        );
        let size = size.flat::<i32>()?;
        ensure!(
            size[0] >= 0 && size[1] >= 0,
            InvalidArgument,
            "a glimpse has no negative size: [{},{}]",
            size[0],
            size[1]
        );
        let to = ImageDims { height: size[0] as usize, width: size[1] as usize, ..dims };
        let mut out = cx.alloc::<f32>(to.shape()?)?;
        if out.elements() == 0 {
            return Ok(out.into());
        }
        ensure!(dims.image() > 0, InvalidArgument, "input image must be of non-zero size");
        let (images, offsets) = (input.flat::<f32>()?, offsets.flat::<f32>()?.as_chunks::<2>().0);
        let outs = out.flat_mut::<f32>()?.chunks_mut(to.image());
        for ((out, image), offset) in outs.zip(images.chunks(dims.image())).zip(offsets) {
            glimpse.extract(image, &dims, *offset, &to, out);
        }
        Ok(out.into())
    })
}

impl Glimpse {
    /// The first row or column of the image that is in the glimpse.
    fn start(&self, offset: f32, image: usize, window: usize) -> i64 {
        let (image, window) = (image as f32, window as f32);
        let mut place = if self.normalized { offset * image } else { offset };
        if self.first_version {
            if self.centered {
                place = place / 2.0 + image / 2.0;
            }
            place -= window / 2.0;
        } else if self.centered && self.normalized {
            place = place / 2.0 + image / 2.0 - window / 2.0;
        } else if self.centered {
            place += image / 2.0;
        }
        place as i64
    }

    fn extract(&self, image: &[f32], dims: &ImageDims, offset: [f32; 2], to: &ImageDims, out: &mut [f32]) {
        let top = self.start(offset[0], dims.height, to.height);
        let left = self.start(offset[1], dims.width, to.width);
        // Stock fills with noise first even where the glimpse ends at the edge, and copies over it.
        self.fill(image, dims.channels, out);
        let inside = |start: i64, image: usize, window: usize| {
            let first = start.clamp(0, image as i64);
            let last = start.saturating_add(window as i64).clamp(first, image as i64);
            // The part lies at the end of the window if the window begins before the image.
            let at = if start < 0 { window as i64 - start.saturating_add(window as i64).max(0) } else { 0 };
            (first as usize, (last - first) as usize, at.min(window as i64) as usize)
        };
        let (row, rows, out_row) = inside(top, dims.height, to.height);
        let (column, columns, out_column) = inside(left, dims.width, to.width);
        let channels = dims.channels;
        for number in 0..rows {
            let from = ((row + number) * dims.width + column) * channels;
            let place = ((out_row + number) * to.width + out_column) * channels;
            out[place..][..columns * channels].copy_from_slice(&image[from..][..columns * channels]);
        }
    }

    fn fill(&self, image: &[f32], channels: usize, out: &mut [f32]) {
        let mut random = Words::new(Philox::from_seeds(fresh_seed(), fresh_seed()));
        let extremes = |values: &mut dyn Iterator<Item = f32>| {
            values.fold((f32::MAX, f32::MIN), |(low, high), x| (low.min(x), high.max(x)))
        };
        match self.noise {
            Noise::Zero => out.fill(0.0),
            Noise::Uniform => {
                let (low, high) = extremes(&mut image.iter().copied());
                for out in out.iter_mut() {
                    *out = low + uniform_f32(random.next()) * (high - low);
                }
            }
            Noise::Gaussian => {
                for channel in 0..channels {
                    let values = || image.iter().skip(channel).step_by(channels).copied();
                    let count = (image.len() / channels) as f32;
                    let mean = values().sum::<f32>() / count;
                    let sigma = (values().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count).sqrt();
                    let (low, high) = extremes(&mut values());
                    for out in out.iter_mut().skip(channel).step_by(channels) {
                        let radius = (-2.0 * uniform_f32(random.next()).max(1.0e-7).ln()).sqrt();
                        let angle = std::f32::consts::TAU * uniform_f32(random.next());
                        *out = (mean + radius * angle.cos() * sigma).min(high).max(low);
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum FillMode {
    Reflect,
    Wrap,
    Constant,
    Nearest,
}

impl FillMode {
    /// The place in an image of `size` pixels that stands for a place that may lie outside.
    fn inside(self, place: f32, size: usize) -> f32 {
        let (count, length) = (size as i64, size as f32);
        let bounded = |place: f32| place.max(0.0).min((count - 1) as f32);
        let moved = match self {
            FillMode::Constant => return place,
            FillMode::Nearest => place,
            _ if (place < 0.0 || place > (count - 1) as f32) && count <= 1 => 0.0,
            FillMode::Reflect if place < 0.0 => {
                let twice = (2 * count) as f32;
                let place = ((2 * count) as f32) * ((-place / twice) as i64 as f32) + place;
                if place < -length { place + twice } else { -place - 1.0 }
            }
            FillMode::Reflect if place > (count - 1) as f32 => {
                let twice = (2 * count) as f32;
                let place = place - twice * ((place / twice) as i64 as f32);
                if place >= length { twice - place - 1.0 } else { place }
            }
            FillMode::Wrap if place < 0.0 => {
                place + length * (((-place / (count - 1) as f32) as i64).saturating_add(1) as f32)
            }
            FillMode::Wrap if place > (count - 1) as f32 => {
                place - length * ((place / (count - 1) as f32) as i64 as f32)
            }
            _ => place,
        };
        bounded(moved)
    }
}

fn transform_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let nearest = match init.attr::<String>("interpolation")?.as_str() {
        "NEAREST" => true,
        "BILINEAR" => false,
        other => {
            bail!(InvalidArgument, "Invalid interpolation {other}. Supported types: NEAREST, BILINEAR")
        }
    };
    let mode = match init.attr::<String>("fill_mode")?.as_str() {
        "REFLECT" => FillMode::Reflect,
        "WRAP" => FillMode::Wrap,
        "CONSTANT" => FillMode::Constant,
        "NEAREST" => FillMode::Nearest,
        other => {
            bail!(InvalidArgument, "Invalid mode {other}. Supported types: REFLECT, WRAP, CONSTANT, NEAREST")
        }
    };
    Kernel::sync(move |cx| {
        let images = cx.input(0)?;
        let (from, to) = transform_dims(cx)?;
        let fill = if cx.num_inputs() > 3 {
            let fill = cx.input(3)?;
            ensure!(fill.rank() == 0, InvalidArgument, "fill_value must be a scalar{}", fill.shape());
            fill.to_scalar::<f32>()?
        } else {
            0.0
        };
        let fill = T::from_f64(f64::from(fill));
        let mut out = cx.alloc::<T>(to.shape()?)?;
        let (pixels, (transforms, _)) = (images.flat::<T>()?, cx.flat::<f32>(1)?.as_chunks::<8>());
        if out.elements() == 0 {
            return Ok(out.into());
        }
        cx.threads().parallel_rows(out.flat_mut::<T>()?, to.row(), 12, |first, rows| {
            for (number, out) in rows.chunks_mut(to.row()).enumerate() {
                let (image, y) = ((first + number) / to.height, (first + number) % to.height);
                let transform = &transforms[if transforms.len() == 1 { 0 } else { image }];
                let source =
                    Source { pixels: &pixels[image * from.image()..][..from.image()], dims: from, fill };
                for (x, out) in out.chunks_mut(to.channels).enumerate() {
                    match project(transform, x, y) {
                        Some((x, y)) => {
                            let (x, y) = (mode.inside(x, from.width), mode.inside(y, from.height));
                            source.read(x, y, nearest, out);
                        }
                        None => out.fill(fill),
                    }
                }
            }
        });
        Ok(out.into())
    })
}

fn transform_dims(cx: &KernelCx<'_>) -> Result<(ImageDims, ImageDims)> {
    let (images, transforms, size) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let Some(from) = ImageDims::of(images.shape()) else {
        bail!(InvalidArgument, "Input images must have rank 4");
    };
    ensure!(
        matches!(transforms.shape().dims(), [count, 8] if *count as usize == from.batch || *count == 1),
        InvalidArgument,
        "Input transform should be num_images x 8 or 1 x 8"
    );
    ensure!(size.rank() == 1, InvalidArgument, "output shape must be 1-dimensional{}", size.shape());
    let &[height, width] = size.flat::<i32>()? else {
        bail!(InvalidArgument, "output shape must have two elements{}", size.shape());
    };
    ensure!(height > 0 && width > 0, InvalidArgument, "output dimensions must be positive");
    Ok((from, ImageDims { height: height as usize, width: width as usize, ..from }))
}

/// The place in the original of a pixel of the result.
fn project(t: &[f32; 8], x: usize, y: usize) -> Option<(f32, f32)> {
    let (x, y) = (x as f32, y as f32);
    let depth = t[6] * x + t[7] * y + 1.0;
    if depth == 0.0 {
        return None;
    }
    Some(((t[0] * x + t[1] * y + t[2]) / depth, (t[3] * x + t[4] * y + t[5]) / depth))
}

/// An image that has a value outside of it, too.
struct Source<'a, T> {
    pixels: &'a [T],
    dims: ImageDims,
    fill: T,
}

impl<T: Real> Source<'_, T> {
    /// The pixel at a place, if the place is in the image.
    fn pixel(&self, x: f32, y: f32) -> Option<&[T]> {
        let inside = |place: f32, size: usize| place >= 0.0 && place < size as f32;
        if !(inside(x, self.dims.width) && inside(y, self.dims.height)) {
            return None;
        }
        let place = (y as usize * self.dims.width + x as usize) * self.dims.channels;
        Some(&self.pixels[place..][..self.dims.channels])
    }

    fn read(&self, x: f32, y: f32, nearest: bool, out: &mut [T]) {
        if nearest {
            match self.pixel(x.round(), y.round()) {
                Some(pixel) => out.copy_from_slice(pixel),
                None => out.fill(self.fill),
            }
            return;
        }
        let (left, top) = (x.floor(), y.floor());
        let (right, bottom) = (left + 1.0, top + 1.0);
        let corners = [
            self.pixel(left, top),
            self.pixel(right, top),
            self.pixel(left, bottom),
            self.pixel(right, bottom),
        ];
        for (channel, out) in out.iter_mut().enumerate() {
            let [top_left, top_right, bottom_left, bottom_right] =
                corners.map(|pixel| pixel.map_or(self.fill, |pixel| pixel[channel]).to_f64() as f32);
            let above = (right - x) * top_left + (x - left) * top_right;
            let below = (right - x) * bottom_left + (x - left) * bottom_right;
            *out = T::from_f64(f64::from((bottom - y) * above + (y - top) * below));
        }
    }
}

/// Gradients are transformed back.
fn transform_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let interpolation: String = g.attr("interpolation")?;
    let fill_mode: String = g.attr("fill_mode")?;
    let inverse = inverted(s, g.input(1))?;
    let size = part(s, &shape_output(s, g.input(0))?, 1, Some(3))?;
    let mut grads = InputGrads::none(g.num_inputs());
    let grad = if g.num_inputs() > 3 {
        let node = ops::ImageProjectiveTransformV3::new(&interpolation).fill_mode(&fill_mode);
        node.build(s, g.dy(0)?, inverse, size, g.input(3))?
    } else {
        let node = ops::ImageProjectiveTransformV2::new(&interpolation).fill_mode(&fill_mode);
        node.build(s, g.dy(0)?, inverse, size)?
    };
    grads.0[0] = Some(grad.into());
    Ok(grads)
}

/// The inverses of transforms, up to the scale that projections do not have: their adjugates.
fn inverted(s: &Scope, transforms: &Output) -> Result<Output> {
    let t = ops::Unpack::new(8).axis(1).build(s, transforms)?;
    let one = ops::ones_like(s, &t[0])?;
    let at = |i: usize| t.get(i).unwrap_or(&one);
    // Each entry is the determinant of what is left without a row and a column.
    const MINORS: [[usize; 4]; 9] = [
        [4, 8, 5, 7],
        [2, 7, 1, 8],
        [1, 5, 2, 4],
        [5, 6, 3, 8],
        [0, 8, 2, 6],
        [2, 3, 0, 5],
        [3, 7, 4, 6],
        [1, 6, 0, 7],
        [0, 4, 1, 3],
    ];
    let entries = MINORS
        .iter()
        .map(|[a, b, c, d]| ops::sub(s, ops::mul(s, at(*a), at(*b))?, ops::mul(s, at(*c), at(*d))?));
    let entries = entries.collect::<Result<Vec<Output>>>()?;
    let scaled = entries[..8].iter().map(|entry| ops::div(s, entry, &entries[8]));
    ops::Pack::new().axis(1).build(s, scaled.collect::<Result<Vec<Output>>>()?)
}
