//! Convolutions of images and volumes, alone and with what stock's optimizer lets follow them.

use crate::linalg::elementary::Elementary;
use crate::linalg::product::Tile;
use crate::numeric::{Float, Num};
use crate::support::convolution::{conv_shape, convolve, kernel_windows};
use crate::support::cwise::rows;
use crate::support::epilogue::Epilogue;
use crate::support::gradient::{shape_of, sibling};
use crate::support::windows::Format;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op};
use ferroflow_core::{DType, Result, Tensor, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&CONV_2D, &FUSED_CONV_2D, &CONV_3D, &FUSED_CONV_3D];

const IMAGES: Format = Format { rank: 4, channel: 3, first: 1 };
const VOLUMES: Format = Format { rank: 5, channel: 4, first: 1 };

/// The declaration shared by convolutions of images and volumes.
const CONVOLUTION: Op = Op {
    inputs: &["input: T", "filter: T"],
    outputs: &["output: T"],
    shape: conv_shape,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static CONV_2D: Op = Op {
    name: "Conv2D",
    gradient: Gradient::Fn(conv_2d_gradient),
    attrs: &[
        "T: {half, bfloat16, float, double, int32}",
        "strides: list(int)",
        "use_cudnn_on_gpu: bool = true",
        "padding: {'SAME', 'VALID', 'EXPLICIT'}",
        "explicit_paddings: list(int) = []",
        "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
        "dilations: list(int) = [1, 1, 1, 1]",
    ],
    kernels: rows![conv_2d: Half, Bfloat16, Float, Double, Int32],
    ..CONVOLUTION
};

static CONV_3D: Op = Op {
    name: "Conv3D",
    gradient: Gradient::Fn(conv_3d_gradient),
    attrs: &[
        "T: {half, bfloat16, float, double}",
        "strides: list(int) >= 5",
        "padding: {'SAME', 'VALID'}",
        "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
        "dilations: list(int) = [1, 1, 1, 1, 1]",
    ],
    kernels: rows![conv_3d: Half, Bfloat16, Float, Double],
    ..CONVOLUTION
};

static FUSED_CONV_2D: Op = Op {
    name: "_FusedConv2D",
    inputs: &["input: T", "filter: T", "args: TArgs", "host_args: num_host_args * float"],
    outputs: &["output: T"],
    attrs: &[
        "T: {half, float, double, int8, qint8}",
        "TArgs: list(type) >= 1",
        "num_args: int >= 0",
        "num_host_args: int >= 0 = 0",
        "strides: list(int)",
        "padding: {'SAME', 'VALID', 'EXPLICIT'}",
        "explicit_paddings: list(int) = []",
        "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
        "filter_format: {'HWIO', 'OIHW', 'OIHW_VECT_I'} = 'HWIO'",
        "dilations: list(int) = [1, 1, 1, 1]",
        "use_cudnn_on_gpu: bool = true",
        "fused_ops: list(string) = []",
        "epsilon: float = 0.0001",
        "leakyrelu_alpha: float = 0.2",
    ],
    shape: conv_shape,
    kernels: rows![fused_conv_2d: Half, Float, Double, Int8, Qint8],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

// Made by stock's optimizer in processes with oneDNN, whose masters send it to other tasks.
static FUSED_CONV_3D: Op = Op {
    name: "_FusedConv3D",
    inputs: &["input: T", "filter: T", "args: num_args * T"],
    outputs: &["output: T"],
    attrs: &[
        "T: {bfloat16, float, half}",
        "num_args: int >= 0",
        "strides: list(int) >= 5",
        "padding: {'SAME', 'VALID'}",
        "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
        "dilations: list(int) = [1, 1, 1, 1, 1]",
        "padding_list: list(int) = []",
        "fused_ops: list(string) = []",
        "epsilon: float = 0.0001",
        "leakyrelu_alpha: float = 0.2",
    ],
    shape: conv_shape,
    kernels: kernels![fused_conv_3d_kernel: bf16, f16, f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn conv_2d(init: &Init<'_>) -> Result<Kernel> {
    by_type(init, IMAGES)
}

fn conv_3d(init: &Init<'_>) -> Result<Kernel> {
    by_type(init, VOLUMES)
}

fn by_type(init: &Init<'_>, format: Format) -> Result<Kernel> {
    match init.input_types[0] {
        DType::Double => conv_kernel::<f64>(init, format),
        DType::Int32 => conv_kernel::<i32>(init, format),
        _ => conv_kernel::<f32>(init, format),
    }
}

fn conv_kernel<T: Tile + Num>(init: &Init<'_>, format: Format) -> Result<Kernel> {
    let windows = kernel_windows(init, format)?;
    Kernel::sync(move |cx| Ok(convolve::<T>(cx, format, &windows)?.into()))
}

fn fused_conv_2d(init: &Init<'_>) -> Result<Kernel> {
    let filter_format: String = init.attr("filter_format")?;
    ensure!(
        filter_format == "HWIO",
        Unimplemented,
        "_FusedConv2D with filter_format {filter_format} is not supported on the CPU"
    );
    let dtype = init.input_types[0];
    if matches!(dtype, DType::Int8 | DType::Qint8) {
        return quantized_conv_kernel(init, dtype);
    }
    let host_args: i64 = init.attr("num_host_args")?;
    ensure!(host_args == 0, Unimplemented, "_FusedConv2D of {dtype} with host_args is not supported");
    match dtype {
        DType::Half => fused_conv_kernel::<f16>(init, IMAGES, "Conv2D"),
        DType::Double => fused_conv_kernel::<f64>(init, IMAGES, "Conv2D"),
        _ => fused_conv_kernel::<f32>(init, IMAGES, "Conv2D"),
    }
}

fn fused_conv_3d_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel>
where
    T::Math: Elementary + Tile,
{
    let padding: Vec<i64> = init.attr("padding_list")?;
    ensure!(padding.is_empty(), Unimplemented, "_FusedConv3D with padding_list {padding:?} is not supported");
    fused_conv_kernel::<T>(init, VOLUMES, "Conv3D")
}

fn fused_conv_kernel<T: Float>(init: &Init<'_>, format: Format, product: &str) -> Result<Kernel>
where
    T::Math: Elementary + Tile,
{
    let windows = kernel_windows(init, format)?;
    let epilogue = Epilogue::new(init, product)?;
    Kernel::sync(move |cx| {
        let mut out = convolve::<T::Math>(cx, format, &windows)?;
        let arguments = (0..epilogue.arguments).map(|i| cx.input(2 + i)).collect::<Result<Vec<_>>>()?;
        let width = out.shape().dim(format.rank - 1);
        epilogue.apply::<T>(cx.threads(), out.flat_mut()?, width, &arguments)?;
        Ok(out.into())
    })
}

/// A convolution of bytes whose sums are scaled, shifted and rounded to bytes again.
fn quantized_conv_kernel(init: &Init<'_>, dtype: DType) -> Result<Kernel> {
    let (fused, arguments): (Vec<String>, i64) = (init.attr("fused_ops")?, init.attr("num_args")?);
    let lowest = match fused.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["BiasAdd"] => -128.0f32,
        ["BiasAdd", "Relu"] => 0.0,
        _ => bail!(
            Unimplemented,
            "Fused conv implementation for int8/qint8 on CPU only supports BiasAdd + None or BiasAdd + Relu."
        ),
    };
    let given = init.input_types.len();
    ensure!(
        given == 6,
        InvalidArgument,
        "Fused Conv2D with BiasAdd must have 4 extra arguments: bias, side_input, conv_input_scale and \
         side_input_scale; num_args is {arguments} and there are {given} inputs"
    );
    let windows = kernel_windows(init, IMAGES)?;
    ensure!(
        windows.dilations == [1, 1],
        Unimplemented,
        "Fused conv implementation for int8/qint8 on CPU only supports dilation of 1 for rows and cols."
    );
    Kernel::sync(move |cx| {
        for input in [0, 1] {
            let bytes = cx.take(input)?;
            let numbers: Vec<f32> = bytes.units::<u8>()?.iter().map(|byte| *byte as i8 as f32).collect();
            cx.put(input, Tensor::new(bytes.shape().clone(), numbers)?);
        }
        let sums = convolve::<f32>(cx, IMAGES, &windows)?;
        let width = sums.shape().dim(3);
        let (bias, side) = (cx.flat::<f32>(2)?, cx.input(3)?.units::<u8>()?);
        let (scales, side_scale): (&[f32], f32) = (cx.flat(4)?, cx.scalar(5)?);
        ensure!(
            bias.len() == width && (scales.len() == 1 || scales.len() == width),
            InvalidArgument,
            "_FusedConv2D with {width} output channels needs as many values of bias and one or as many of \
             conv_input_scale, got {} and {}",
            bias.len(),
            scales.len()
        );
        ensure!(
            side.is_empty() || side.len() == sums.elements(),
            InvalidArgument,
            "side_input must be empty or have the shape of the output {}, got {}",
            sums.shape(),
            cx.input(3)?.shape()
        );
        let rounded = |(at, sum): (usize, &f32)| {
            let channel = at % width;
            let mut value = sum * scales[channel % scales.len()];
            if side_scale != 0.0 && !side.is_empty() {
                value = (side[at] as i8 as f32).mul_add(side_scale, value);
            }
            (value + bias[channel]).round_ties_even().clamp(lowest, 127.0) as i8 as u8
        };
        let out = sums.flat::<f32>()?.iter().enumerate().map(rounded).collect();
        Ok(Tensor::from_units(dtype, sums.shape().clone(), out)?.into())
    })
}

fn conv_2d_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let lists = ["strides", "dilations", "explicit_paddings"];
    gradient(g, ["Conv2DBackpropInput", "Conv2DBackpropFilter"], &lists)
}

fn conv_3d_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    gradient(g, ["Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"], &["strides", "dilations"])
}

/// By the ops for the gradients of images and of filters.
fn gradient(g: &GradCx<'_>, [image, filter]: [&str; 2], lists: &[&str]) -> Result<InputGrads> {
    let (s, dy, texts) = (g.scope(), g.dy(0)?, ["padding", "data_format"]);
    let (x, weights) = (g.input(0), g.input(1));
    // The gradient of images costs as much as the convolution, and nobody wants that of the data.
    let dx = if g.needs(0) {
        let node = sibling(g, image, lists, &texts)?.input(shape_of(s, x)?).input(weights).input(&dy);
        Some(node.build()?.output(0)?)
    } else {
        None
    };
    let node = sibling(g, filter, lists, &texts)?.input(x).input(shape_of(s, weights)?).input(&dy);
    Ok([dx, Some(node.build()?.output(0)?)].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{Shape, Tensor};

    fn conv(padding: &str, strides: [i64; 4]) -> Node {
        Node::new("Conv2D").attr("padding", padding).attr("strides", strides.to_vec())
    }

    #[test]
    fn shapes_follow_the_padding() {
        conv("SAME", [1, 2, 2, 1]).infer("[?,5,6,3];[3,3,3,8]", "[?,3,3,8]");
        conv("VALID", [1, 1, 1, 1]).infer("[2,5,?,3];[3,3,3,8]", "[2,3,?,8]");
        conv("SAME", [1, 1, 2, 2]).attr("data_format", "NCHW").infer("[?,3,5,6];[3,3,3,8]", "[?,8,3,3]");
    }

    #[test]
    fn volumes_have_one_direction_more() {
        let node = Node::new("Conv3D").attr("padding", "VALID").attr("strides", vec![1i64, 1, 1, 2, 1]);
        node.infer("[?,5,6,7,3];[3,3,3,3,8]", "[?,3,4,3,8]");
    }

    /// Stock makes this op only with oneDNN, which no golden is made with; its parts have goldens.
    #[test]
    fn a_fused_convolution_of_volumes_is_its_parts() {
        let numbers = |count: usize| (0..count).map(|i| (i % 7) as f32 / 4.0 - 0.7).collect::<Vec<f32>>();
        let tensor = |dims: [i64; 5]| {
            let shape = Shape::new(dims).unwrap();
            Tensor::new(shape.clone(), numbers(shape.elements())).unwrap()
        };
        let (image, filter, bias) =
            (tensor([1, 3, 4, 5, 2]), tensor([2, 2, 2, 2, 3]), Tensor::vector(vec![0.5f32, -1.0, 0.25]));
        let settings = |node: Node| node.attr("padding", "SAME").attr("strides", vec![1i64; 5]);
        let plain = settings(Node::new("Conv3D")).run([image.clone(), filter.clone()]).unwrap();
        let added = Node::new("BiasAdd").run([plain[0].clone(), bias.clone()]).unwrap();
        let parts = Node::new("Relu").run([added[0].clone()]).unwrap();
        let fused = settings(Node::new("_FusedConv3D")).attr("num_args", 1i64);
        let fused = fused.attr("fused_ops", vec!["BiasAdd".to_owned(), "Relu".to_owned()]);
        let fused = fused.run([image, filter, bias]).unwrap();
        assert_eq!(fused[0].flat::<f32>().unwrap(), parts[0].flat::<f32>().unwrap());
    }
}
