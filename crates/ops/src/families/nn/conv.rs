//! Convolutions of images, alone and with what stock's optimizer lets follow them.

use crate::epilogue::Epilogue;
use crate::linalg::conv::{Conv2d, Extent};
use crate::linalg::elementary::Elementary;
use crate::linalg::product::Gemm;
use crate::numeric::{Float, Num};
use ferroflow_core::attr::FromAttr;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Dim, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, Tensor, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&CONV_2D, &FUSED_CONV_2D];

static CONV_2D: Op = Op {
    name: "Conv2D",
    inputs: &["input: T", "filter: T"],
    outputs: &["output: T"],
    attrs: &[
        "T: {half, bfloat16, float, double, int32}",
        "strides: list(int)",
        "use_cudnn_on_gpu: bool = true",
        "padding: {'SAME', 'VALID', 'EXPLICIT'}",
        "explicit_paddings: list(int) = []",
        "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
        "dilations: list(int) = [1, 1, 1, 1]",
    ],
    shape: conv_shape,
    kernels: kernels![conv_kernel: f16, bf16, f32, f64, i32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
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
    kernels: kernels![fused_conv_kernel: f16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// How windows lie in an image, by the attributes.
struct Windows {
    /// Along rows and columns.
    strides: [i64; 2],
    dilations: [i64; 2],
    padding: String,
    /// Before and after, along rows and columns.
    explicit: [(i64, i64); 2],
}

impl Windows {
    /// Reads the attributes of a kernel or of a shape function; `first` is the index of the rows' dimension.
    fn new(first: usize, attrs: &impl Attributes) -> Result<Windows> {
        let channel = if first == 1 { 3 } else { 1 };
        let pair = |name: &str, what: &str| -> Result<[i64; 2]> {
            let values: Vec<i64> = attrs.get(name)?;
            ensure!(
                values.len() == 4,
                InvalidArgument,
                "Sliding window {what} field must specify 4 dimensions"
            );
            ensure!(
                values[0] == 1 && values[channel] == 1,
                Unimplemented,
                "Current implementation does not yet support {what} in the batch and depth dimensions."
            );
            let pair = [values[first], values[first + 1]];
            ensure!(
                pair.iter().all(|value| *value > 0),
                InvalidArgument,
                "Sliding window {what} should be larger than 0."
            );
            Ok(pair)
        };
        let padding: String = attrs.get("padding")?;
        let given: Vec<i64> = attrs.get("explicit_paddings")?;
        let explicit = if padding == "EXPLICIT" {
            ensure!(
                given.len() == 8 && given.iter().all(|size| *size >= 0),
                InvalidArgument,
                "explicit_paddings attribute must contain 8 values that are not negative, got {given:?}"
            );
            ensure!(
                given[..2] == [0, 0] && given[2 * channel..][..2] == [0, 0],
                InvalidArgument,
                "Nonzero explicit padding in the batch or depth dimensions is not supported"
            );
            [(given[2 * first], given[2 * first + 1]), (given[2 * first + 2], given[2 * first + 3])]
        } else {
            ensure!(
                given.is_empty(),
                InvalidArgument,
                "explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT"
            );
            [(0, 0); 2]
        };
        Ok(Windows {
            strides: pair("strides", "strides")?,
            dilations: pair("dilations", "dilations")?,
            padding,
            explicit,
        })
    }

    /// The result's size and the zeros before the image, along rows (0) or columns (1).
    fn output(&self, direction: usize, input: i64, filter: i64) -> Result<(i64, i64)> {
        let (stride, dilation) = (self.strides[direction], self.dilations[direction]);
        let effective = (filter - 1).checked_mul(dilation).and_then(|size| size.checked_add(1));
        let Some(effective) = effective else { bail!(InvalidArgument, "a filter of {filter} is too large") };
        let (before, output) = match self.padding.as_str() {
            "SAME" => {
                let output = (input + stride - 1) / stride;
                let needed = ((output - 1).saturating_mul(stride)).saturating_add(effective) - input;
                (needed.max(0) / 2, output)
            }
            _ => {
                let (before, after) = self.explicit[direction];
                let padded = input.checked_add(before).and_then(|sum| sum.checked_add(after));
                let Some(padded) = padded else { bail!(InvalidArgument, "the padding is too large") };
                (before, (padded - effective + stride) / stride)
            }
        };
        ensure!(
            output >= 0,
            InvalidArgument,
            "Computed output size would be negative: {output} [input_size: {input}, effective_filter_size: \
             {effective}, stride: {stride}]"
        );
        Ok((output, before))
    }
}

/// Where attributes come from.
trait Attributes {
    fn get<T: FromAttr>(&self, name: &str) -> Result<T>;
}

impl Attributes for Init<'_> {
    fn get<T: FromAttr>(&self, name: &str) -> Result<T> {
        self.attr(name)
    }
}

impl Attributes for ShapeCx<'_> {
    fn get<T: FromAttr>(&self, name: &str) -> Result<T> {
        self.attr(name)
    }
}

fn conv_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (input, filter) = (s.rank(0, 4)?, s.rank(1, 4)?);
    let format: String = s.attr("data_format")?;
    let first = match format.as_str() {
        "NHWC" => 1,
        "NCHW" => 2,
        _ => return Ok(()),
    };
    let windows = Windows::new(first, &*s)?;
    let (input, filter) = (input.dims().unwrap_or_default(), filter.dims().unwrap_or_default());
    let size = |direction: usize| -> Result<Dim> {
        match (input[first + direction], filter[direction]) {
            (UNKNOWN_DIM, _) | (_, UNKNOWN_DIM) => Ok(UNKNOWN_DIM),
            (input, filter) => Ok(windows.output(direction, input, filter)?.0),
        }
    };
    let (rows, columns) = (size(0)?, size(1)?);
    if first == 1 {
        s.output(0, [input[0], rows, columns, filter[3]])
    } else {
        s.output(0, [input[0], filter[3], rows, columns])
    }
}

/// Channels must be last: stock's CPU kernels know nothing else.
fn windows_of(init: &Init<'_>) -> Result<Windows> {
    let format: String = init.attr("data_format")?;
    ensure!(
        format == "NHWC",
        Unimplemented,
        "The Conv2D op currently only supports the NHWC tensor format on the CPU. The op was given the format: {format}"
    );
    Windows::new(1, init)
}

fn convolve<T: Gemm + Num>(cx: &KernelCx<'_>, windows: &Windows) -> Result<Tensor> {
    let (input, filter) = (cx.input(0)?, cx.input(1)?);
    let (shape, kernel) = (input.shape(), filter.shape());
    ensure!(shape.rank() == 4, InvalidArgument, "input must be 4-dimensional: {shape}");
    ensure!(kernel.rank() == 4, InvalidArgument, "filter must be 4-dimensional: {kernel}");
    let (depth, filter_depth) = (shape.dim(3), kernel.dim(2));
    ensure!(
        depth > 0 && filter_depth > 0,
        InvalidArgument,
        "the depths of input and filter must be positive: {shape} and {kernel}"
    );
    ensure!(
        depth % filter_depth == 0,
        InvalidArgument,
        "input depth must be evenly divisible by filter depth: {depth} vs {filter_depth}"
    );
    let groups = depth / filter_depth;
    ensure!(
        kernel.dim(3) % groups == 0,
        InvalidArgument,
        "output depth must be evenly divisible by number of groups: {} vs {groups}",
        kernel.dim(3)
    );
    let extent = |direction: usize| -> Result<Extent> {
        let (input, filter) = (shape[1 + direction], kernel[direction]);
        let (output, before) = windows.output(direction, input, filter)?;
        Ok(Extent {
            input: input as usize,
            filter: filter as usize,
            output: output as usize,
            stride: windows.strides[direction] as usize,
            dilation: windows.dilations[direction] as usize,
            before: before as usize,
        })
    };
    let conv = Conv2d {
        batch: shape.dim(0),
        height: extent(0)?,
        width: extent(1)?,
        channels: depth,
        filter_channels: filter_depth,
        outputs: kernel.dim(3),
    };
    let (rows, columns) = (conv.height.output as i64, conv.width.output as i64);
    let mut out = cx.alloc::<T>(Shape::new([shape[0], rows, columns, kernel[3]])?)?;
    if out.elements() == 0 {
        return Ok(out);
    }
    ensure!(
        filter.elements() > 0,
        InvalidArgument,
        "filter must not have zero elements (i.e. all dimensions must be non-zero)"
    );
    conv.run::<T>(cx.device(), input.flat()?, filter.flat()?, out.flat_mut()?);
    Ok(out)
}

fn conv_kernel<T: Gemm + Num>(init: &Init<'_>) -> Result<Kernel> {
    let windows = windows_of(init)?;
    Kernel::sync(move |cx| Ok(convolve::<T>(cx, &windows)?.into()))
}

fn fused_conv_kernel<T: Gemm + Float>(init: &Init<'_>) -> Result<Kernel>
where
    T::Math: Elementary,
{
    let windows = windows_of(init)?;
    let filter_format: String = init.attr("filter_format")?;
    ensure!(
        filter_format == "HWIO" && init.attr::<i64>("num_host_args")? == 0,
        Unimplemented,
        "_FusedConv2D with filter_format {filter_format} or host_args is not supported on the CPU"
    );
    let epilogue = Epilogue::new(init, "Conv2D")?;
    Kernel::sync(move |cx| {
        let mut out = convolve::<T>(cx, &windows)?;
        let arguments = (0..epilogue.arguments).map(|i| cx.input(2 + i)).collect::<Result<Vec<_>>>()?;
        let width = out.shape().dim(3);
        epilogue.apply::<T>(cx.device(), out.flat_mut()?, width, &arguments)?;
        Ok(out.into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;

    fn conv(padding: &str, strides: [i64; 4]) -> Node {
        Node::new("Conv2D").attr("padding", padding).attr("strides", strides.to_vec())
    }

    #[test]
    fn shapes_follow_the_padding() {
        conv("SAME", [1, 2, 2, 1]).infer("[?,5,6,3];[3,3,3,8]", "[?,3,3,8]");
        conv("VALID", [1, 1, 1, 1]).infer("[2,5,?,3];[3,3,3,8]", "[2,3,?,8]");
    }
}
