//! Windows of images and volumes, each laid out as the channels of one pixel.

use crate::builders as ops;
use crate::linalg::window::Extent;
use crate::support::gradient::{element, part, shape_as};
use crate::support::units::by_unit;
use crate::support::windows::{Padding, Windows, output_sizes};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::Output;
use ferroflow_core::{DType, Result, Shape, Unit, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&EXTRACT_IMAGE_PATCHES, &EXTRACT_VOLUME_PATCHES];

static EXTRACT_IMAGE_PATCHES: Op = Op {
    name: "ExtractImagePatches",
    inputs: &["images: T"],
    outputs: &["patches: T"],
    attrs: &[
        "ksizes: list(int) >= 4",
        "strides: list(int) >= 4",
        "rates: list(int) >= 4",
        "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128, bool}",
        "padding: {'SAME', 'VALID'}",
    ],
    shape: image_shape,
    gradient: Gradient::Fn(image_gradient),
    kernels: kernels![any image_kernel],
    ..Op::PURE
};

static EXTRACT_VOLUME_PATCHES: Op = Op {
    name: "ExtractVolumePatches",
    inputs: &["input: T"],
    attrs: &[
        "ksizes: list(int) >= 5",
        "strides: list(int) >= 5",
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
        "padding: {'SAME', 'VALID'}",
    ],
    shape: volume_shape,
    gradient: Gradient::Fn(volume_gradient),
    kernels: kernels![any volume_kernel],
    ..EXTRACT_IMAGE_PATCHES
};

/// The sizes of windows and their positions.
struct Patches {
    sizes: Vec<i64>,
    windows: Windows,
}

/// An attribute with a number per dimension; only those of the image count.
fn per_direction(values: Vec<i64>, op: &str, name: &str, directions: usize) -> Result<Vec<i64>> {
    ensure!(
        values.len() == directions + 2,
        InvalidArgument,
        "{op} requires the {name} attribute to contain {} values, but got: {}",
        directions + 2,
        values.len()
    );
    Ok(values[1..=directions].to_vec())
}

impl Patches {
    fn new(attr: &dyn Fn(&str) -> Result<Vec<i64>>, padding: &str, directions: usize) -> Result<Patches> {
        let op = if directions == 2 { "ExtractImagePatches" } else { "ExtractVolumePatches" };
        let read = |name: &str, said: &str| per_direction(attr(name)?, op, said, directions);
        let (sizes, strides) = (read("ksizes", "ksizes")?, read("strides", "stride")?);
        let dilations = if directions == 2 { read("rates", "rates")? } else { vec![1; directions] };
        let padding = if padding == "SAME" { Padding::Same } else { Padding::Valid };
        Ok(Patches { sizes, windows: Windows { strides, dilations, padding } })
    }

    fn of_kernel(init: &Init<'_>, directions: usize) -> Result<Patches> {
        let names: &[&str] =
            if directions == 2 { &["ksizes", "strides", "rates"] } else { &["ksizes", "strides"] };
        for name in names {
            let values: Vec<i64> = init.attr(name)?;
            ensure!(
                values.first() == Some(&1) && values.last() == Some(&1),
                Unimplemented,
                "Only support {name} across space."
            );
            ensure!(values.iter().all(|value| *value >= 1), OutOfRange, "{name} is out of range.");
        }
        let padding: String = init.attr("padding")?;
        Patches::new(&|name| init.attr(name), &padding, directions)
    }
}

fn image_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    shape(s, 2)
}

fn volume_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    shape(s, 3)
}

fn shape(s: &mut ShapeCx<'_>, directions: usize) -> Result<()> {
    let input = s.rank(0, directions + 2)?;
    let padding: String = s.attr("padding")?;
    let patches = Patches::new(&|name| s.attr(name), &padding, directions)?;
    let Some(dims) = input.dims() else { return Ok(()) };
    let mut output = dims.to_vec();
    let known = !dims[1..=directions].contains(&UNKNOWN_DIM);
    for direction in 0..directions {
        output[direction + 1] = if known {
            patches.windows.output_dim(direction, dims[direction + 1], patches.sizes[direction])?
        } else {
            UNKNOWN_DIM
        };
    }
    let channels = &mut output[directions + 1];
    if *channels != UNKNOWN_DIM {
        *channels = patches.sizes.iter().fold(*channels, |product, size| product.saturating_mul(*size));
    }
    s.output(0, output)
}

fn image_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, 2)
}

fn volume_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, 3)
}

fn kernel(init: &Init<'_>, directions: usize) -> Result<Kernel> {
    let patches = Patches::of_kernel(init, directions)?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        ensure!(
            input.rank() == directions + 2,
            InvalidArgument,
            "input must be {}-dimensional{}",
            directions + 2,
            input.shape()
        );
        let dims = input.shape().dims();
        let extents = patches.windows.extents(&dims[1..=directions], &patches.sizes)?;
        let channels = dims[directions + 1];
        let patch = patches.sizes.iter().try_fold(channels, |product, size| product.checked_mul(*size));
        let Some(patch) = patch else { bail!(InvalidArgument, "Output size would overflow") };
        let mut out_dims = vec![dims[0]];
        out_dims.extend(output_sizes(&extents, directions));
        out_dims.push(patch);
        let mut output = cx.alloc_dtype(input.dtype(), Shape::new(out_dims)?)?;
        if output.elements() > 0 {
            let (threads, channels) = (cx.threads(), channels as usize);
            by_unit!(input.dtype(), U => {
                extract::<U>(threads, &extents, channels, input.units::<U>()?, output.units_mut::<U>()?);
            });
        }
        Ok(output.into())
    })
}

/// Lays out every window; what lies outside of the image is zero.
fn extract<U: Unit + Clone + Default>(
    threads: Threads<'_>,
    extents: &[Extent; 3],
    channels: usize,
    input: &[U],
    out: &mut [U],
) {
    let [depth, height, width] = extents;
    let patch = depth.filter * height.filter * width.filter * channels;
    let image = depth.input * height.input * width.input * channels;
    let positions = depth.output * height.output * width.output;
    threads.parallel_rows(out, patch, 1, |first, part| {
        for (number, cells) in part.chunks_exact_mut(patch).enumerate() {
            let number = first + number;
            let (image, position) = (&input[number / positions * image..][..image], number % positions);
            let (z, y, x) = (
                position / (height.output * width.output),
                position / width.output % height.output,
                position % width.output,
            );
            cells.fill(U::default());
            for kz in depth.inside(z) {
                for ky in height.inside(y) {
                    let line = (kz * height.filter + ky) * width.filter;
                    let row = (depth.at(z, kz) * height.input + height.at(y, ky)) * width.input;
                    for kx in width.inside(x) {
                        let from = (row + width.at(x, kx)) * channels;
                        let to = (line + kx) * channels;
                        cells[to..to + channels].clone_from_slice(&image[from..from + channels]);
                    }
                }
            }
        }
    });
}

fn image_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    gradient(g, 2)
}

fn volume_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    gradient(g, 3)
}

/// Sends every cell of a window back to its pixel: patches of the pixels' numbers say which that is, and zero, which no
/// pixel has, is the padding.
fn gradient(g: &GradCx<'_>, directions: usize) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let input = shape_as(s, g.input(0), DType::Int64)?;
    let ends = directions as i32 + 1;
    let (batch, channels) = (element(s, &input, 0)?, element(s, &input, ends)?);
    let (space, one) = (part(s, &input, 1, Some(ends))?, s.constant(vec![1i64])?);
    let pixels = ops::prod(s, &space, [0])?;
    let numbers = ops::range(s, 1i64, ops::add_v2(s, &pixels, 1i64)?, 1i64)?;
    let numbers = ops::reshape(s, numbers, ops::concat_v2(s, [&one, &space, &one], 0))?;
    let (sizes, strides): (Vec<i64>, Vec<i64>) = (g.attr("ksizes")?, g.attr("strides")?);
    let padding: String = g.attr("padding")?;
    let numbers = if directions == 2 {
        ops::extract_image_patches(
            s,
            numbers,
            sizes.clone(),
            strides,
            g.attr::<Vec<i64>>("rates")?,
            &padding,
        )?
    } else {
        ops::extract_volume_patches(s, numbers, sizes.clone(), strides, &padding)?
    };
    let ids = ops::sub(s, ops::reshape(s, numbers, [-1]), 1i64)?;
    // Cells first, then images and channels.
    let windows = ops::prod(s, part(s, &shape_as(s, &dy, DType::Int64)?, 1, Some(ends))?, [0])?;
    let cells = ops::mul(s, windows, sizes.iter().product::<i64>())?;
    let joined = |dims: [&Output; 3]| ops::pack(s, dims);
    let cells_first =
        ops::transpose(s, ops::reshape(s, dy, joined([&batch, &cells, &channels])?), [1, 0, 2])?;
    let sums = ops::unsorted_segment_sum(s, cells_first, ids, &pixels)?;
    let back = ops::transpose(s, sums, [1, 0, 2])?;
    Ok([ops::reshape(s, back, input)?].into())
}
