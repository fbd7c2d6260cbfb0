//! Convolutions with more around them: any number of batch dimensions, and images that are resized and mirrored at
//! their borders first.

use crate::linalg::product::Tile;
use crate::numeric::Num;
use crate::support::convolution::convolve;
use crate::support::cwise::rows;
use crate::support::widen::{narrowed, widened};
use crate::support::windows::{Format, Padding, Windows};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, ensure};

pub(crate) const OPS: &[&Op] = &[&CONV, &FUSED_PAD_CONV_2D, &FUSED_RESIZE_AND_PAD_CONV_2D];

const IMAGES: Format = Format { rank: 4, channel: 3, first: 1 };
const VOLUMES: Format = Format { rank: 5, channel: 4, first: 1 };

static CONV: Op = Op {
    name: "Conv",
    inputs: &["input: T", "filter: T"],
    outputs: &["output: T"],
    attrs: &[
        "T: {half, bfloat16, float, double, int32}",
        "strides: list(int)",
        "padding: {'SAME', 'VALID', 'EXPLICIT'}",
        "explicit_paddings: list(int) = []",
        "data_format: {'CHANNELS_FIRST', 'CHANNELS_LAST'} = 'CHANNELS_LAST'",
        "dilations: list(int) = []",
        "batch_dims: int = 1",
        "groups: int = 1",
    ],
    shape: conv_shape,
    kernels: rows![conv_kernel: Half, Bfloat16, Float, Double, Int32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static FUSED_PAD_CONV_2D: Op = Op {
    name: "FusedPadConv2D",
    inputs: &["input: T", "paddings: int32", "filter: T"],
    outputs: &["output: T"],
    attrs: &[
        "T: {half, bfloat16, float, double}",
        "mode: {'REFLECT', 'SYMMETRIC'}",
        "strides: list(int)",
        "padding: {'SAME', 'VALID'}",
    ],
    shape: padded_shape,
    kernels: rows![padded_kernel: Half, Bfloat16, Float, Double],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static FUSED_RESIZE_AND_PAD_CONV_2D: Op = Op {
    name: "FusedResizeAndPadConv2D",
    inputs: &["input: T", "size: int32", "paddings: int32", "filter: T"],
    attrs: &[
        "T: {half, float, double}",
        "resize_align_corners: bool = false",
        "mode: {'REFLECT', 'SYMMETRIC'}",
        "strides: list(int)",
        "padding: {'SAME', 'VALID'}",
    ],
    kernels: rows![padded_kernel: Half, Float, Double],
    ..FUSED_PAD_CONV_2D
};

fn conv_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let batch_dims: i64 = s.attr("batch_dims")?;
    let (input, filter) = (s.input(0), s.input(1));
    let (Some(input), Some(filter)) = (input.dims(), filter.dims()) else { return Ok(()) };
    let batches = usize::try_from(batch_dims).unwrap_or_default();
    ensure!(
        matches!(filter.len(), 4 | 5) && input.len() + 1 == filter.len() + batches,
        InvalidArgument,
        "an input of {} dimensions and {batch_dims} batch dimensions does not fit a filter of {}",
        input.len(),
        filter.len()
    );
    let first: bool = s.attr::<String>("data_format")? == "CHANNELS_FIRST";
    let directions = filter.len() - 2;
    let space = if first { batches + 1 } else { batches };
    let windows = settings(
        directions,
        first,
        s.attr("strides")?,
        s.attr("dilations")?,
        &s.attr::<String>("padding")?,
        &s.attr::<Vec<i64>>("explicit_paddings")?,
    )?;
    let mut output = input.to_vec();
    for direction in 0..directions {
        output[space + direction] =
            windows.output_dim(direction, input[space + direction], filter[direction])?;
    }
    output[if first { batches } else { input.len() - 1 }] = filter[filter.len() - 1];
    s.output(0, output)
}

/// Strides, dilations and padding per direction of the image.
fn settings(
    directions: usize,
    channels_first: bool,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    padding: &str,
    explicit: &[i64],
) -> Result<Windows> {
    let rank = directions + 2;
    let start = if channels_first { 2 } else { 1 };
    let dilations = if dilations.is_empty() { vec![1; rank] } else { dilations };
    for (name, values) in [("strides", &strides), ("dilations", &dilations)] {
        ensure!(
            values.len() == rank,
            InvalidArgument,
            "Sliding window {name} field must specify {rank} dimensions"
        );
        let outer = values.iter().enumerate().filter(|(at, _)| !(start..start + directions).contains(at));
        ensure!(
            outer.into_iter().all(|(_, value)| *value == 1),
            InvalidArgument,
            "Current implementation does not support {name} in the batch and depth dimensions."
        );
        ensure!(
            values.iter().all(|value| *value > 0),
            InvalidArgument,
            "Spatial {name} should be larger than 0."
        );
    }
    let inner = |values: &[i64]| values[start..start + directions].to_vec();
    let padding = match padding {
        "SAME" => Padding::Same,
        "VALID" => Padding::Valid,
        _ => {
            ensure!(
                explicit.len() == 2 * rank && explicit.iter().all(|size| *size >= 0),
                InvalidArgument,
                "explicit_paddings attribute must contain {} values that are not negative",
                2 * rank
            );
            let pairs = explicit.chunks(2).skip(start).take(directions);
            Padding::Explicit(pairs.map(|pair| (pair[0], pair[1])).collect())
        }
    };
    Ok(Windows { strides: inner(&strides), dilations: inner(&dilations), padding })
}

/// The kernel for a type: sums of 16-bit floats are kept in 32 bits.
fn conv_kernel(init: &Init<'_>) -> Result<Kernel> {
    match init.input_types[0] {
        DType::Double => general::<f64>(init),
        DType::Int32 => general::<i32>(init),
        _ => general::<f32>(init),
    }
}

fn general<T: Tile + Num>(init: &Init<'_>) -> Result<Kernel> {
    let groups: i64 = init.attr("groups")?;
    ensure!(groups == 1, Unimplemented, "Grouped/Depthwise Convolutions are not supported yet.");
    let first = init.attr::<String>("data_format")? == "CHANNELS_FIRST";
    let batch_dims: i64 = init.attr("batch_dims")?;
    let (strides, dilations): (Vec<i64>, Vec<i64>) = (init.attr("strides")?, init.attr("dilations")?);
    let (padding, explicit): (String, Vec<i64>) = (init.attr("padding")?, init.attr("explicit_paddings")?);
    Kernel::sync(move |cx| {
        let (input, filter) = (cx.input(0)?, cx.input(1)?);
        let directions = input.rank() as i64 - 1 - batch_dims;
        ensure!(
            matches!(directions, 2 | 3) && batch_dims >= 0,
            InvalidArgument,
            "The input must have 2 or 3 spatial dimensions but got {directions}"
        );
        ensure!(
            filter.elements() > 0,
            InvalidArgument,
            "filter must not have zero elements (i.e. all dimensions must be non-zero)"
        );
        ensure!(
            matches!(filter.rank(), 4 | 5),
            InvalidArgument,
            "The filter must be rank 4 or 5 but got {}",
            filter.rank()
        );
        let directions = directions as usize;
        let windows = settings(directions, first, strides.clone(), dilations.clone(), &padding, &explicit)?;
        let format = if directions == 2 { IMAGES } else { VOLUMES };
        ensure!(
            !first,
            Unimplemented,
            "The Conv op currently only supports the CHANNELS_LAST tensor format on the CPU"
        );
        let (depth, own) = (filter.shape().dims()[filter.rank() - 2], input.shape().dims()[input.rank() - 1]);
        ensure!(
            filter.rank() == directions + 2 && depth == own,
            InvalidArgument,
            "Input depth must be equal to filter depth: {own} vs {depth}"
        );
        let (outer, inner) = input.shape().dims().split_at(batch_dims as usize);
        let outer = outer.to_vec();
        if outer.len() != 1 {
            let flat = Shape::new([outer.iter().product()].into_iter().chain(inner.iter().copied()))?;
            let input = cx.take(0)?.reshaped(flat)?;
            cx.put(0, input);
        }
        let output = convolve::<T>(cx, format, &windows)?;
        let dims = output.shape().dims()[1..].to_vec();
        Ok(output.reshaped(Shape::new(outer.into_iter().chain(dims))?)?.into())
    })
}

fn padded_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (input, last) = (s.rank(0, 4)?, s.num_inputs() - 1);
    let (paddings, filter) = (s.rank(last - 1, 2)?, s.rank(last, 4)?);
    if let Some([rows, columns]) = paddings.dims() {
        s.merge_dims(*rows, 4)?;
        s.merge_dims(*columns, 2)?;
    }
    let batch = input.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    let outputs = filter.dims().map_or(UNKNOWN_DIM, |dims| dims[3]);
    s.set(0, PartialShape::new([batch, UNKNOWN_DIM, UNKNOWN_DIM, outputs])?);
    Ok(())
}

fn padded_kernel(init: &Init<'_>) -> Result<Kernel> {
    match init.input_types[0] {
        DType::Double => padded::<f64>(init),
        _ => padded::<f32>(init),
    }
}

/// A float that pixels are interpolated in.
trait Pixel: Tile + Num {}
impl Pixel for f32 {}
impl Pixel for f64 {}

fn padded<T: Pixel>(init: &Init<'_>) -> Result<Kernel> {
    // Without its own border, a reflection leaves it out.
    let offset = usize::from(init.attr::<String>("mode")? == "REFLECT");
    let resizes = init.input_types.len() == 4;
    let align: bool = resizes && init.attr("resize_align_corners")?;
    let strides: Vec<i64> = init.attr("strides")?;
    ensure!(strides.len() == 4, InvalidArgument, "Sliding window strides field must specify 4 dimensions");
    let windows = settings(2, false, strides, Vec::new(), &init.attr::<String>("padding")?, &[])?;
    Kernel::sync(move |cx| {
        let filter_at = if resizes { 3 } else { 2 };
        let input = cx.input(0)?;
        ensure!(input.elements() > 0, InvalidArgument, "Input tensor can't be empty");
        ensure!(input.rank() == 4, InvalidArgument, "input must be 4-dimensional{}", input.shape());
        let dtype = input.dtype();
        let dims: Vec<usize> = input.shape().dims().iter().map(|dim| *dim as usize).collect();
        let (mut rows, mut columns) = (dims[1], dims[2]);
        if resizes {
            let size = cx.input(1)?;
            ensure!(
                size.rank() == 1 && size.elements() == 2,
                InvalidArgument,
                "shape_t must be 1-dimensional with two elements, got {}",
                size.shape()
            );
            let size = size.to_i64s()?;
            ensure!(size[0] > 0 && size[1] > 0, InvalidArgument, "output dimensions must be positive");
            (rows, columns) = (size[0] as usize, size[1] as usize);
        }
        let pads = mirrored_sizes(cx.input(filter_at - 1)?, [dims[0], rows, columns, dims[3]], offset)?;
        let filter = cx.input(filter_at)?.clone();
        ensure!(filter.rank() == 4, InvalidArgument, "filter must be 4-dimensional: {}", filter.shape());
        let depth = filter.shape().dim(2);
        ensure!(
            dims[3] == depth,
            InvalidArgument,
            "input and filter must have the same depth: {} vs {depth}",
            dims[3]
        );
        let source = widened(cx, cx.input(0)?)?;
        let vertical = taps(dims[1], rows, pads[0], offset, align);
        let horizontal = taps(dims[2], columns, pads[1], offset, align);
        let padded = sample::<T>(cx, source.flat::<T>()?, &dims, &vertical, &horizontal)?;
        drop(source);
        let filter = widened(cx, &filter)?;
        cx.put(0, padded);
        cx.put(1, filter);
        let output = convolve::<T>(cx, IMAGES, &windows)?;
        ensure!(output.elements() > 0, InvalidArgument, "Output tensor can't be empty");
        Ok(narrowed(cx, output, dtype)?.into())
    })
}

/// The numbers of rows and columns around an image.
fn mirrored_sizes(paddings: &Tensor, sizes: [usize; 4], offset: usize) -> Result<[(usize, usize); 2]> {
    let dims = paddings.shape().dims();
    ensure!(
        dims.len() == 2 && dims[1] == 2,
        InvalidArgument,
        "paddings must be a matrix with 2 columns: {}",
        paddings.shape()
    );
    ensure!(
        dims[0] == 4,
        InvalidArgument,
        "The first dimension of paddings must be the rank of inputs: 4 {}",
        paddings.shape()
    );
    let values = paddings.to_i64s()?;
    for (pair, size) in values.chunks(2).zip(sizes) {
        let (before, after) = (pair[0], pair[1]);
        ensure!(
            before >= 0 && after >= 0,
            InvalidArgument,
            "paddings must be non-negative: {before} {after}"
        );
        let most = size as i64 - offset as i64;
        ensure!(
            before <= most && after <= most,
            InvalidArgument,
            "paddings must be {} the dimension size: {before}, {after} {} {size}",
            if offset == 0 { "no greater than" } else { "less than" },
            if offset == 0 { "greater than" } else { "not less than" }
        );
    }
    ensure!(
        values[..2] == [0, 0] && values[6..] == [0, 0],
        InvalidArgument,
        "Fused mirror padding only support spatial padding, not batches or channels: {values:?}"
    );
    let pair = |at: usize| (values[at] as usize, values[at + 1] as usize);
    Ok([pair(2), pair(4)])
}

/// Two places of the image per place of the padded one, and how far between them it lies.
fn taps(
    input: usize,
    resized: usize,
    (before, after): (usize, usize),
    offset: usize,
    align: bool,
) -> Vec<(usize, usize, f32)> {
    let scale = if align && resized > 1 {
        (input - 1) as f32 / (resized - 1) as f32
    } else {
        input as f32 / resized as f32
    };
    (0..before + resized + after)
        .map(|place| {
            let place = if place < before {
                before - 1 - place + offset
            } else if place >= before + resized {
                2 * resized - 1 - (place - before) - offset
            } else {
                place - before
            };
            let exact = place as f32 * scale;
            let low = (exact.floor() as usize).min(input - 1);
            (low, (low + 1).min(input - 1), exact - low as f32)
        })
        .collect()
}

/// The image at these places.
fn sample<T: Pixel>(
    cx: &KernelCx<'_>,
    source: &[T],
    dims: &[usize],
    vertical: &[(usize, usize, f32)],
    horizontal: &[(usize, usize, f32)],
) -> Result<Tensor> {
    let (height, width, depth) = (dims[1], dims[2], dims[3]);
    let shape = [dims[0], vertical.len(), horizontal.len(), depth].map(|size| size as i64);
    let mut padded = cx.alloc::<T>(Shape::new(shape)?)?;
    let line = horizontal.len() * depth;
    cx.threads().parallel_rows(padded.flat_mut::<T>()?, line, 4, |first, part| {
        for (number, out) in part.chunks_exact_mut(line).enumerate() {
            let (image, y) = ((first + number) / vertical.len(), (first + number) % vertical.len());
            let (top, bottom, down) = vertical[y];
            let row = |y: usize| &source[(image * height + y) * width * depth..][..width * depth];
            let (top, bottom, down) = (row(top), row(bottom), T::from_f64(down.into()));
            for (out, (left, right, across)) in out.chunks_exact_mut(depth).zip(horizontal) {
                let across = T::from_f64((*across).into());
                for (channel, out) in out.iter_mut().enumerate() {
                    let at = |row: &[T], x: usize| row[x * depth + channel];
                    let between = |a: T, b: T, part: T| a.add(b.sub(a).mul(part));
                    let upper = between(at(top, *left), at(top, *right), across);
                    let lower = between(at(bottom, *left), at(bottom, *right), across);
                    *out = between(upper, lower, down);
                }
            }
        }
    });
    Ok(padded)
}
