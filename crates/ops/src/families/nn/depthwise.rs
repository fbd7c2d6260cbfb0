//! Convolutions of each channel by itself, and their gradients.

use crate::linalg::depthwise::Depthwise;
use crate::linalg::window::Grid;
use crate::numeric::{Float, Num};
use crate::support::cwise::rows;
use crate::support::epilogue::Epilogue;
use crate::support::gradient::{shape_of, sibling};
use crate::support::widen::{narrowed, widened};
use crate::support::windows::{Attributes, Format, Padding, Windows, described, output_sizes, sizes_of};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::{Input, Output};
use ferroflow_core::{DType, Result, Shape, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&DEPTHWISE, &DEPTHWISE_INPUT, &DEPTHWISE_FILTER, &FUSED_DEPTHWISE];

const IMAGES: Format = Format { rank: 4, channel: 3, first: 1 };

const LIKE: Op = Op {
    outputs: &["output: T"],
    attrs: &[
        "T: {half, bfloat16, float, double}",
        "strides: list(int)",
        "padding: {'SAME', 'VALID', 'EXPLICIT'}",
        "explicit_paddings: list(int) = []",
        "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
        "dilations: list(int) = [1, 1, 1, 1]",
    ],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static DEPTHWISE: Op = Op {
    name: "DepthwiseConv2dNative",
    gradient: Gradient::Fn(depthwise_gradient),
    inputs: &["input: T", "filter: T"],
    shape: depthwise_shape,
    kernels: rows![depthwise: Half, Bfloat16, Float, Double],
    ..LIKE
};

static DEPTHWISE_INPUT: Op = Op {
    name: "DepthwiseConv2dNativeBackpropInput",
    gradient: Gradient::Fn(depthwise_input_gradient),
    inputs: &["input_sizes: int32", "filter: T", "out_backprop: T"],
    shape: |s| described(s, 0, 4),
    kernels: rows![depthwise_input: Half, Bfloat16, Float, Double],
    ..LIKE
};

static DEPTHWISE_FILTER: Op = Op {
    name: "DepthwiseConv2dNativeBackpropFilter",
    gradient: Gradient::Fn(depthwise_filter_gradient),
    inputs: &["input: T", "filter_sizes: int32", "out_backprop: T"],
    shape: |s| described(s, 1, 4),
    kernels: rows![depthwise_filter: Half, Bfloat16, Float, Double],
    ..LIKE
};

// Made by stock's optimizer in processes with oneDNN, whose masters send it to other tasks.
static FUSED_DEPTHWISE: Op = Op {
    name: "_FusedDepthwiseConv2dNative",
    inputs: &["input: T", "filter: T", "args: num_args * T"],
    attrs: &[
        "T: {half, bfloat16, float, double}",
        "num_args: int >= 0",
        "strides: list(int)",
        "padding: {'SAME', 'VALID'}",
        "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
        "dilations: list(int) = [1, 1, 1, 1]",
        "fused_ops: list(string) = []",
        "epsilon: float = 0.0001",
        "leakyrelu_alpha: float = 0.2",
    ],
    shape: depthwise_shape,
    kernels: kernels![fused_kernel: f16, bf16, f32],
    ..LIKE
};

fn depthwise_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let Some(format) = Format::parse(&s.attr::<String>("data_format")?) else { return Ok(()) };
    let (input, filter) = (s.rank(0, 4)?, s.rank(1, 4)?);
    let (input, filter) = (input.dims().unwrap_or_default(), filter.dims().unwrap_or_default());
    let dilations: Vec<i64> = s.attr("dilations")?;
    let windows = Windows { dilations: space(&dilations, format)?, ..windows(&*s, format)? };
    s.merge_dims(input[format.channel], filter[2])?;
    let outputs = match (filter[2], filter[3]) {
        (UNKNOWN_DIM, _) | (_, UNKNOWN_DIM) => UNKNOWN_DIM,
        (channels, multiplier) => channels.saturating_mul(multiplier),
    };
    let rows = windows.output_dim(0, input[format.first], filter[0])?;
    let columns = windows.output_dim(1, input[format.first + 1], filter[1])?;
    s.output(0, format.dims(input[0], &[rows, columns], outputs))
}

fn space(values: &[i64], format: Format) -> Result<Vec<i64>> {
    ensure!(
        values.len() == 4,
        InvalidArgument,
        "Sliding window strides or dilations field must specify 4 dimensions"
    );
    Ok(values[format.first..][..2].to_vec())
}

/// Strides and padding, without dilation: stock's CPU kernels have none, and its gradients do not look at it.
fn windows(attrs: &impl Attributes, format: Format) -> Result<Windows> {
    let given: Vec<i64> = attrs.get("strides")?;
    let strides = space(&given, format)?;
    ensure!(
        strides[0] == strides[1],
        InvalidArgument,
        "Current implementation only supports equal length strides in the row and column dimensions."
    );
    ensure!(
        given[0] == 1 && given[format.channel] == 1,
        InvalidArgument,
        "Current implementation does not yet support strides in the batch and depth dimensions."
    );
    ensure!(strides[0] > 0, InvalidArgument, "Stride must be > 0, but got {}", strides[0]);
    Ok(Windows { strides, dilations: vec![1, 1], padding: Padding::read(attrs, format)? })
}

fn kernel_windows(init: &Init<'_>) -> Result<Windows> {
    let (format, strides): (String, Vec<i64>) = (init.attr("data_format")?, init.attr("strides")?);
    space(&strides, IMAGES)?;
    ensure!(
        format == "NHWC",
        Unimplemented,
        "Depthwise convolution on CPU is only supported for NHWC format"
    );
    windows(init, IMAGES)
}

/// The convolution of images and filters of these shapes.
fn convolution(windows: &Windows, image: &Shape, filter: &Shape) -> Result<Depthwise> {
    ensure!(image.rank() == 4, InvalidArgument, "input must be 4-dimensional: {image}");
    ensure!(filter.rank() == 4, InvalidArgument, "filter must be 4-dimensional: {filter}");
    ensure!(
        image[3] == filter[2],
        InvalidArgument,
        "input and filter must have the same depth: {} vs {}",
        image[3],
        filter[2]
    );
    let extents = windows.extents(&image[1..3], &filter[..2])?;
    let grid = Grid { batch: image.dim(0), extents };
    Ok(Depthwise { grid, channels: image.dim(3), multiplier: filter.dim(3) })
}

/// The shape of the convolution's result.
fn result(conv: &Depthwise) -> Result<Shape> {
    let sizes = output_sizes(&conv.grid.extents, 2);
    let outputs = conv.channels.saturating_mul(conv.multiplier) as i64;
    Shape::new(IMAGES.dims(conv.grid.batch as i64, &sizes, outputs))
}

/// Like [`convolution`], for a gradient of this shape.
fn gradient_convolution(
    windows: &Windows,
    image: &Shape,
    filter: &Shape,
    gradient: &Shape,
) -> Result<Depthwise> {
    let conv = convolution(windows, image, filter)?;
    let expected = result(&conv)?;
    ensure!(
        *gradient == expected,
        InvalidArgument,
        "the shape of out_backprop doesn't match computed: actual = {gradient}, computed = {expected}"
    );
    Ok(conv)
}

fn check_dilations(init: &Init<'_>) -> Result<()> {
    let dilations: Vec<i64> = init.attr("dilations")?;
    ensure!(
        space(&dilations, IMAGES)? == [1, 1],
        Unimplemented,
        "Current kernel implementation does not support dilations, received {dilations:?}"
    );
    Ok(())
}

fn depthwise(init: &Init<'_>) -> Result<Kernel> {
    check_dilations(init)?;
    match init.output_types[0] {
        DType::Double => depthwise_kernel::<f64>(init),
        _ => depthwise_kernel::<f32>(init),
    }
}

fn depthwise_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let windows = kernel_windows(init)?;
    Kernel::sync(move |cx| Ok(convolve::<T>(cx, &windows)?.into()))
}

/// Convolves the first input with the second one; sums are kept in `T`.
fn convolve<T: Num>(cx: &KernelCx<'_>, windows: &Windows) -> Result<Tensor> {
    let (input, filter) = (cx.input(0)?, cx.input(1)?);
    let dtype = input.dtype();
    let conv = convolution(windows, input.shape(), filter.shape())?;
    let mut out = cx.alloc::<T>(result(&conv)?)?;
    let (input, filter) = (widened(cx, input)?, widened(cx, filter)?);
    conv.run::<T>(cx.threads(), input.flat()?, filter.flat()?, out.flat_mut()?);
    narrowed(cx, out, dtype)
}

fn fused_kernel<T: Float<Math = f32>>(init: &Init<'_>) -> Result<Kernel> {
    check_dilations(init)?;
    let windows = kernel_windows(init)?;
    let epilogue = Epilogue::new(init, "DepthwiseConv2dNative")?;
    Kernel::sync(move |cx| {
        let mut out = convolve::<f32>(cx, &windows)?;
        let arguments = (0..epilogue.arguments).map(|i| cx.input(2 + i)).collect::<Result<Vec<_>>>()?;
        let width = out.shape().dim(3);
        epilogue.apply::<T>(cx.threads(), out.flat_mut()?, width, &arguments)?;
        Ok(out.into())
    })
}

fn depthwise_input(init: &Init<'_>) -> Result<Kernel> {
    match init.output_types[0] {
        DType::Double => input_kernel::<f64>(init),
        _ => input_kernel::<f32>(init),
    }
}

fn input_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let (windows, dtype) = (kernel_windows(init)?, init.output_types[0]);
    Kernel::sync(move |cx| {
        let (filter, gradient) = (cx.input(1)?, cx.input(2)?);
        let image = sizes_of(cx.input(0)?, "input_sizes")?;
        let conv = gradient_convolution(&windows, &image, filter.shape(), gradient.shape())?;
        let mut out = cx.alloc::<T>(image)?;
        let (filter, gradient) = (widened(cx, filter)?, widened(cx, gradient)?);
        conv.input_gradient::<T>(cx.threads(), filter.flat()?, gradient.flat()?, out.flat_mut()?);
        Ok(narrowed(cx, out, dtype)?.into())
    })
}

fn depthwise_filter(init: &Init<'_>) -> Result<Kernel> {
    match init.output_types[0] {
        DType::Double => filter_kernel::<f64>(init),
        _ => filter_kernel::<f32>(init),
    }
}

fn filter_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let (windows, dtype) = (kernel_windows(init)?, init.output_types[0]);
    Kernel::sync(move |cx| {
        let (image, gradient) = (cx.input(0)?, cx.input(2)?);
        let filter = sizes_of(cx.input(1)?, "filter_sizes")?;
        let conv = gradient_convolution(&windows, image.shape(), &filter, gradient.shape())?;
        let mut out = cx.alloc::<T>(filter)?;
        let (image, gradient) = (widened(cx, image)?, widened(cx, gradient)?);
        conv.filter_gradient::<T>(cx.threads(), image.flat()?, gradient.flat()?, out.flat_mut()?);
        Ok(narrowed(cx, out, dtype)?.into())
    })
}

/// A node of the convolution or of one of its gradients, with the operation's attributes.
fn node<const N: usize>(g: &GradCx<'_>, op: &Op, inputs: [Input; N]) -> Result<Output> {
    let lists = ["strides", "dilations", "explicit_paddings"];
    let node = sibling(g, op.name, &lists, &["padding", "data_format"])?;
    inputs.into_iter().fold(node, |node, input| node.input(input)).build()?.output(0)
}

fn depthwise_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let (x, filter) = (g.input(0), g.input(1));
    let dx = node(g, &DEPTHWISE_INPUT, [shape_of(s, x)?, filter.into(), (&dy).into()])?;
    let weights = node(g, &DEPTHWISE_FILTER, [x.into(), shape_of(s, filter)?, (&dy).into()])?;
    Ok([dx, weights].into())
}

fn depthwise_input_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let (filter, gradient) = (g.input(1), g.input(2));
    let weights = node(g, &DEPTHWISE_FILTER, [(&dy).into(), shape_of(s, filter)?, gradient.into()])?;
    let result = node(g, &DEPTHWISE, [(&dy).into(), filter.into()])?;
    Ok([None, Some(weights), Some(result)].into())
}

fn depthwise_filter_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let (x, gradient) = (g.input(0), g.input(2));
    let dx = node(g, &DEPTHWISE_INPUT, [shape_of(s, x)?, (&dy).into(), gradient.into()])?;
    let result = node(g, &DEPTHWISE, [x.into(), (&dy).into()])?;
    Ok([Some(dx), None, Some(result)].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn channels_multiply() {
        let node =
            Node::new("DepthwiseConv2dNative").attr("padding", "SAME").attr("strides", vec![1i64, 2, 2, 1]);
        node.infer("[?,5,6,3];[3,3,3,2]", "[?,3,3,6]");
    }

    /// Stock makes this op only with oneDNN, which no golden is made with; its parts have goldens.
    #[test]
    fn a_fused_depthwise_convolution_is_its_parts() {
        let tensor = |dims: [i64; 4]| {
            let shape = Shape::new(dims).unwrap();
            let numbers = (0..shape.elements()).map(|i| (i % 5) as f32 / 3.0 - 0.6).collect();
            Tensor::new(shape, numbers).unwrap()
        };
        let (image, filter, bias) =
            (tensor([2, 4, 5, 2]), tensor([2, 3, 2, 2]), Tensor::vector(vec![0.5f32, -1.0, 0.25, 0.0]));
        let settings = |node: Node| node.attr("padding", "VALID").attr("strides", vec![1i64; 4]);
        let plain =
            settings(Node::new("DepthwiseConv2dNative")).run([image.clone(), filter.clone()]).unwrap();
        let added = Node::new("BiasAdd").run([plain[0].clone(), bias.clone()]).unwrap();
        let parts = Node::new("Relu6").run([added[0].clone()]).unwrap();
        let fused = settings(Node::new("_FusedDepthwiseConv2dNative")).attr("num_args", 1i64);
        let fused = fused.attr("fused_ops", vec!["BiasAdd".to_owned(), "Relu6".to_owned()]);
        let fused = fused.run([image, filter, bias]).unwrap();
        assert_eq!(fused[0].flat::<f32>().unwrap(), parts[0].flat::<f32>().unwrap());
    }
}
