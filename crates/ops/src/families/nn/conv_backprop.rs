//! The gradients of convolutions of images and volumes.

use crate::linalg::conv::Conv;
use crate::linalg::product::Tile;
use crate::linalg::window::Grid;
use crate::numeric::Num;
use crate::support::convolution::windows;
use crate::support::cwise::rows;
use crate::support::gradient::{shape_of, sibling};
use crate::support::widen::{narrowed, widened};
use crate::support::windows::{Format, Windows, described, sizes_of};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::{Code, DType, Result, Shape, Status, ensure};

pub(crate) const OPS: &[&Op] = &[
    &CONV_2D_BACKPROP_INPUT,
    &CONV_2D_BACKPROP_FILTER,
    &CONV_3D_BACKPROP_INPUT,
    &CONV_3D_BACKPROP_INPUT_V2,
    &CONV_3D_BACKPROP_FILTER,
    &CONV_3D_BACKPROP_FILTER_V2,
];

const IMAGES: Format = Format { rank: 4, channel: 3, first: 1 };
const VOLUMES: Format = Format { rank: 5, channel: 4, first: 1 };

const GRADIENT: Op = Op { outputs: &["output: T"], accuracy: Accuracy::Rounding, ..Op::PURE };

static CONV_2D_BACKPROP_INPUT: Op = Op {
    name: "Conv2DBackpropInput",
    gradient: Gradient::Fn(image_input_gradient),
    inputs: &["input_sizes: int32", "filter: T", "out_backprop: T"],
    attrs: &[
        "T: {half, bfloat16, float, double, int32}",
        "strides: list(int)",
        "use_cudnn_on_gpu: bool = true",
        "padding: {'SAME', 'VALID', 'EXPLICIT'}",
        "explicit_paddings: list(int) = []",
        "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
        "dilations: list(int) = [1, 1, 1, 1]",
    ],
    shape: image_shape,
    kernels: rows![image_input: Half, Bfloat16, Float, Double, Int32],
    ..GRADIENT
};

static CONV_2D_BACKPROP_FILTER: Op = Op {
    name: "Conv2DBackpropFilter",
    gradient: Gradient::Fn(image_filter_gradient),
    inputs: &["input: T", "filter_sizes: int32", "out_backprop: T"],
    attrs: &[
        "T: {half, bfloat16, float, double}",
        "strides: list(int)",
        "use_cudnn_on_gpu: bool = true",
        "padding: {'SAME', 'VALID', 'EXPLICIT'}",
        "explicit_paddings: list(int) = []",
        "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
        "dilations: list(int) = [1, 1, 1, 1]",
    ],
    shape: |s| described(s, 1, 4),
    kernels: rows![image_filter: Half, Bfloat16, Float, Double],
    ..GRADIENT
};

static CONV_3D_BACKPROP_INPUT: Op = Op {
    name: "Conv3DBackpropInput",
    inputs: &["input: T", "filter: T", "out_backprop: T"],
    attrs: &[
        "T: {half, float, double}",
        "strides: list(int) >= 5",
        "padding: {'SAME', 'VALID'}",
        "dilations: list(int) = [1, 1, 1, 1, 1]",
    ],
    shape: |s| like(s, 0),
    kernels: rows![volume_input: Half, Float, Double],
    deprecated_at: Some(10),
    ..GRADIENT
};

static CONV_3D_BACKPROP_INPUT_V2: Op = Op {
    name: "Conv3DBackpropInputV2",
    gradient: Gradient::Fn(volume_input_gradient),
    inputs: &["input_sizes: Tshape", "filter: T", "out_backprop: T"],
    attrs: &[
        "T: {half, bfloat16, float, double}",
        "strides: list(int) >= 5",
        "padding: {'SAME', 'VALID'}",
        "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
        "dilations: list(int) = [1, 1, 1, 1, 1]",
        "Tshape: {int32, int64} = DT_INT32",
    ],
    shape: |s| described(s, 0, 5),
    kernels: rows![volume_input: Half, Bfloat16, Float, Double],
    ..GRADIENT
};

static CONV_3D_BACKPROP_FILTER: Op = Op {
    name: "Conv3DBackpropFilter",
    inputs: &["input: T", "filter: T", "out_backprop: T"],
    attrs: &[
        "T: {half, float, double}",
        "strides: list(int) >= 5",
        "padding: {'SAME', 'VALID'}",
        "dilations: list(int) = [1, 1, 1, 1, 1]",
    ],
    shape: |s| like(s, 1),
    kernels: rows![volume_filter: Half, Float, Double],
    deprecated_at: Some(10),
    ..GRADIENT
};

static CONV_3D_BACKPROP_FILTER_V2: Op = Op {
    name: "Conv3DBackpropFilterV2",
    gradient: Gradient::Fn(volume_filter_gradient),
    inputs: &["input: T", "filter_sizes: int32", "out_backprop: T"],
    attrs: &[
        "T: {half, bfloat16, float, double}",
        "strides: list(int) >= 5",
        "padding: {'SAME', 'VALID'}",
        "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
        "dilations: list(int) = [1, 1, 1, 1, 1]",
    ],
    shape: |s| described(s, 1, 5),
    kernels: rows![volume_filter: Half, Bfloat16, Float, Double],
    ..GRADIENT
};

/// The image's shape may be given by its last sizes alone.
fn image_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.constant_shape(0)?;
    if shape.rank() != Some(2) {
        return described(s, 0, 4);
    }
    let Some(format) = Format::parse(&s.attr::<String>("data_format")?) else { return Ok(()) };
    let (filter, gradient) = (s.rank(1, 4)?, s.rank(2, 4)?);
    let (filter, gradient) = (filter.dims().unwrap_or_default(), gradient.dims().unwrap_or_default());
    let dims = format.dims(gradient[0], shape.dims().unwrap_or_default(), filter[2]);
    s.output(0, dims)
}

/// The result has the shape of an input.
fn like(s: &mut ShapeCx<'_>, input: usize) -> Result<()> {
    let shape = s.rank(input, 5)?;
    s.set(0, shape);
    Ok(())
}

fn image_input(init: &Init<'_>) -> Result<Kernel> {
    match init.output_types[0] {
        DType::Double => input_kernel::<f64>(init, IMAGES),
        DType::Int32 => input_kernel::<i32>(init, IMAGES),
        _ => input_kernel::<f32>(init, IMAGES),
    }
}

fn volume_input(init: &Init<'_>) -> Result<Kernel> {
    match init.output_types[0] {
        DType::Double => input_kernel::<f64>(init, VOLUMES),
        _ => input_kernel::<f32>(init, VOLUMES),
    }
}

fn image_filter(init: &Init<'_>) -> Result<Kernel> {
    match init.output_types[0] {
        DType::Double => filter_kernel::<f64>(init, IMAGES),
        _ => filter_kernel::<f32>(init, IMAGES),
    }
}

fn volume_filter(init: &Init<'_>) -> Result<Kernel> {
    match init.output_types[0] {
        DType::Double => filter_kernel::<f64>(init, VOLUMES),
        _ => filter_kernel::<f32>(init, VOLUMES),
    }
}

/// A gradient's attributes; stock's CPU kernels know channels last and no dilation.
fn gradient_windows(init: &Init<'_>, format: Format) -> Result<Windows> {
    if init.attrs.has("data_format") {
        let name: String = init.attr("data_format")?;
        let last = if format.rank == 4 { "NHWC" } else { "NDHWC" };
        ensure!(name == last, InvalidArgument, "{} only supports {last} on the CPU, not {name}.", init.op);
    }
    let dilations: Vec<i64> = init.attr("dilations")?;
    ensure!(
        dilations.len() == format.rank,
        InvalidArgument,
        "Sliding window dilations field must specify {} dimensions",
        format.rank
    );
    ensure!(
        dilations.iter().all(|dilation| *dilation == 1),
        InvalidArgument,
        "Current CPU implementations do not yet support dilation rates larger than 1."
    );
    windows(init, format)
}

/// The convolution whose gradient is wanted, by the shapes of image, filter and gradient.
fn convolution(
    op: &str,
    format: Format,
    windows: &Windows,
    image: &Shape,
    filter: &Shape,
    gradient: &Shape,
) -> Result<Conv> {
    let rank = format.rank;
    for (what, shape) in [("input", image), ("filter", filter), ("out_backprop", gradient)] {
        ensure!(shape.rank() == rank, InvalidArgument, "{op}: {what} must be {rank}-dimensional");
    }
    ensure!(
        image[0] == gradient[0],
        InvalidArgument,
        "{op}: input and out_backprop must have the same batch size. Input batch: {}, outbackprop batch: {}, \
         batch_dim: 0",
        image[0],
        gradient[0]
    );
    let (channels, filter_channels) = (image.dim(rank - 1), filter.dim(rank - 2));
    ensure!(filter_channels > 0, InvalidArgument, "{op}: filter depth must be positive");
    ensure!(
        channels % filter_channels == 0,
        InvalidArgument,
        "{op}: input depth must be evenly divisible by filter depth"
    );
    ensure!(
        filter[rank - 1] == gradient[rank - 1],
        InvalidArgument,
        "{op}: filter and out_backprop must have the same out_depth"
    );
    let extents = windows.extents(&image[1..rank - 1], &filter[..rank - 2])?;
    for (direction, extent) in extents[5 - rank..].iter().enumerate() {
        ensure!(
            extent.output as i64 == gradient[1 + direction],
            InvalidArgument,
            "{op}: Size of out_backprop doesn't match computed: actual = {}, computed = {} spatial_dim: {} input: {} \
             filter: {} output: {} stride: {} dilation: 1",
            gradient[1 + direction],
            extent.output,
            1 + direction,
            extent.input,
            extent.filter,
            gradient[1 + direction],
            extent.stride
        );
    }
    ensure!(
        channels == filter_channels,
        InvalidArgument,
        "Gradients for grouped convolutions are not supported on CPU. Computed input depth {channels} doesn't match \
         filter input depth {filter_channels}"
    );
    let grid = Grid { batch: image.dim(0), extents };
    Ok(Conv { grid, channels, filter_channels, outputs: filter.dim(rank - 1) })
}

/// The first version of the volumes' gradients, which has no format, takes a tensor for its shape.
fn is_described(init: &Init<'_>) -> bool {
    init.attrs.has("data_format")
}

fn input_kernel<T: Tile + Num>(init: &Init<'_>, format: Format) -> Result<Kernel> {
    let (windows, op) = (gradient_windows(init, format)?, init.op.to_owned());
    let (described, dtype) = (is_described(init), init.output_types[0]);
    Kernel::sync(move |cx| {
        let (filter, gradient) = (cx.input(1)?, cx.input(2)?);
        let image = if described { image_sizes(cx, format, &op)? } else { cx.input(0)?.shape().clone() };
        let conv = convolution(&op, format, &windows, &image, filter.shape(), gradient.shape())?;
        let (filter, gradient) = (widened(cx, filter)?, widened(cx, gradient)?);
        let mut out = cx.alloc::<T>(image)?;
        conv.input_gradient::<T>(cx.threads(), filter.flat()?, gradient.flat()?, out.flat_mut()?);
        Ok(narrowed(cx, out, dtype)?.into())
    })
}

/// The image's shape; of images, the last sizes alone may be given.
fn image_sizes(cx: &KernelCx<'_>, format: Format, op: &str) -> Result<Shape> {
    let shape = sizes_of(cx.input(0)?, &format!("{op}: input_sizes"))?;
    let (filter, gradient) = (cx.input(1)?.shape(), cx.input(2)?.shape());
    if format.rank == 4 && shape.rank() == 2 && filter.rank() == 4 && gradient.rank() == 4 {
        return Shape::new([gradient[0], shape[0], shape[1], filter[2]]);
    }
    ensure!(
        shape.rank() == format.rank,
        InvalidArgument,
        "{op} requires input_sizes to contain {} values, but got: {}",
        if format.rank == 4 { "4 values or 2" } else { "5" },
        shape.rank()
    );
    Ok(shape)
}

fn filter_kernel<T: Tile + Num>(init: &Init<'_>, format: Format) -> Result<Kernel> {
    // Stock has another code for this than for the image's gradient.
    let windows = gradient_windows(init, format).map_err(|status| match status.code() {
        Code::Unimplemented => Status::new(Code::InvalidArgument, status.message()),
        _ => status,
    })?;
    let (described, op, dtype) = (is_described(init), init.op.to_owned(), init.output_types[0]);
    Kernel::sync(move |cx| {
        let (image, gradient) = (cx.input(0)?, cx.input(2)?);
        let sizes = cx.input(1)?;
        let filter =
            if described { sizes_of(sizes, &format!("{op}: filter_sizes"))? } else { sizes.shape().clone() };
        let conv = convolution(&op, format, &windows, image.shape(), &filter, gradient.shape())?;
        let (image, gradient) = (widened(cx, image)?, widened(cx, gradient)?);
        let mut out = cx.alloc::<T>(filter)?;
        conv.filter_gradient::<T>(cx.threads(), image.flat()?, gradient.flat()?, out.flat_mut()?);
        Ok(narrowed(cx, out, dtype)?.into())
    })
}

fn image_input_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    input_gradient(g, ["Conv2D", "Conv2DBackpropFilter"], &["strides", "dilations", "explicit_paddings"])
}

fn volume_input_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    input_gradient(g, ["Conv3D", "Conv3DBackpropFilterV2"], &["strides", "dilations"])
}

/// The image's gradient is linear in the filter and in the result's gradient.
fn input_gradient(g: &GradCx<'_>, [conv, filter]: [&str; 2], lists: &[&str]) -> Result<InputGrads> {
    let (s, dy, texts) = (g.scope(), g.dy(0)?, ["padding", "data_format"]);
    let sizes = shape_of(s, g.input(1))?;
    let filter = sibling(g, filter, lists, &texts)?.input(&dy).input(sizes).input(g.input(2)).build()?;
    let result = sibling(g, conv, lists, &texts)?.input(&dy).input(g.input(1)).build()?;
    Ok([None, Some(filter.output(0)?), Some(result.output(0)?)].into())
}

fn image_filter_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    filter_gradient(g, ["Conv2D", "Conv2DBackpropInput"], &["strides", "dilations", "explicit_paddings"])
}

fn volume_filter_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    filter_gradient(g, ["Conv3D", "Conv3DBackpropInputV2"], &["strides", "dilations"])
}

fn filter_gradient(g: &GradCx<'_>, [conv, input]: [&str; 2], lists: &[&str]) -> Result<InputGrads> {
    let (s, dy, texts) = (g.scope(), g.dy(0)?, ["padding", "data_format"]);
    let sizes = shape_of(s, g.input(0))?;
    let image = sibling(g, input, lists, &texts)?.input(sizes).input(&dy).input(g.input(2)).build()?;
    let result = sibling(g, conv, lists, &texts)?.input(g.input(0)).input(&dy).build()?;
    Ok([Some(image.output(0)?), None, Some(result.output(0)?)].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::Tensor;

    #[test]
    fn shapes_are_described_by_inputs() {
        let node = |op: &str| Node::new(op).attr("padding", "SAME").attr("strides", vec![1i64; 4]);
        let sizes = Tensor::vector(vec![2i32, 5, 4, 3]);
        node("Conv2DBackpropInput").constant(0, sizes).infer("[4];[3,3,3,8];[2,5,4,8]", "[2,5,4,3]");
        node("Conv2DBackpropInput").infer("[4];[3,3,3,8];[2,5,4,8]", "[?,?,?,?]");
        let short = Tensor::vector(vec![5i32, 4]);
        node("Conv2DBackpropInput").constant(0, short).infer("[2];[3,3,3,8];[?,5,4,8]", "[?,5,4,3]");
        let sizes = Tensor::vector(vec![3i32, 3, 3, 8]);
        node("Conv2DBackpropFilter").constant(1, sizes).infer("[2,5,4,3];[4];[2,5,4,8]", "[3,3,3,8]");
    }
}
