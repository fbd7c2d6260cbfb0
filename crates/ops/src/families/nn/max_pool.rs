//! The largest elements under a window, where they are, and the gradients.

use crate::builders as ops;
use crate::linalg::pool::Pool;
use crate::numeric::Real;
use crate::support::gradient::sibling;
use crate::support::pooling::{BadWindow, Pooling, Rules, expect, pool_shape, pool_shape_by_inputs};
use crate::support::windows::Format;
use ferroflow_core::kernel::{Init, Kernel, Outputs};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, KernelRow, Only, Op, ShapeCx};
use ferroflow_core::scope::Output;
use ferroflow_core::{DType, Result, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &MAX_POOL,
    &MAX_POOL_V2,
    &MAX_POOL_GRAD,
    &MAX_POOL_GRAD_V2,
    &MAX_POOL_GRAD_GRAD,
    &MAX_POOL_GRAD_GRAD_V2,
    &MAX_POOL_WITH_ARGMAX,
    &MAX_POOL_GRAD_WITH_ARGMAX,
    &MAX_POOL_3D,
    &MAX_POOL_3D_GRAD,
    &MAX_POOL_3D_GRAD_GRAD,
];

const IMAGES: Format = Format { rank: 4, channel: 3, first: 1 };
const VOLUMES: Format = Format { rank: 5, channel: 4, first: 1 };

const POOLED: &str =
    "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = DT_FLOAT";
const SIZES: [&str; 2] = ["ksize: list(int) >= 4", "strides: list(int) >= 4"];
const PADDING: &str = "padding: {'SAME', 'VALID'}";
const FORMAT: &str = "data_format: {'NHWC', 'NCHW'} = 'NHWC'";
const PACKED_FORMAT: &str = "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'";
const VOLUME_SIZES: [&str; 2] = ["ksize: list(int) >= 5", "strides: list(int) >= 5"];
const VOLUME_FORMAT: &str = "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'";

static MAX_POOL: Op = Op {
    name: "MaxPool",
    gradient: Gradient::Fn(max_pool_gradient),
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &[
        POOLED,
        SIZES[0],
        SIZES[1],
        "padding: {'SAME', 'VALID', 'EXPLICIT'}",
        "explicit_paddings: list(int) = []",
        PACKED_FORMAT,
    ],
    shape: |s| pool_shape(s, "NHWC"),
    kernels: kernels![max_pool: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16],
    ..Op::PURE
};

static MAX_POOL_V2: Op = Op {
    name: "MaxPoolV2",
    gradient: Gradient::Fn(max_pool_v2_gradient),
    inputs: &["input: T", "ksize: int32", "strides: int32"],
    outputs: &["output: T"],
    attrs: &[POOLED, PADDING, PACKED_FORMAT],
    shape: pool_shape_by_inputs,
    kernels: kernels![max_pool_v2: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16],
    ..Op::PURE
};

const GRADIENT: Op = Op {
    inputs: &["orig_input: T", "orig_output: T", "grad: T"],
    outputs: &["output: T"],
    shape: like_first,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static MAX_POOL_GRAD: Op = Op {
    name: "MaxPoolGrad",
    gradient: Gradient::Fn(max_pool_grad_gradient),
    attrs: &[
        SIZES[0],
        SIZES[1],
        "padding: {'SAME', 'VALID', 'EXPLICIT'}",
        "explicit_paddings: list(int) = []",
        FORMAT,
        "T: realnumbertype = DT_FLOAT",
    ],
    kernels: kernels![max_pool_grad: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..GRADIENT
};

static MAX_POOL_GRAD_V2: Op = Op {
    name: "MaxPoolGradV2",
    gradient: Gradient::Fn(max_pool_grad_v2_gradient),
    inputs: &["orig_input: T", "orig_output: T", "grad: T", "ksize: int32", "strides: int32"],
    attrs: &[PADDING, FORMAT, "T: realnumbertype = DT_FLOAT"],
    kernels: kernels![max_pool_grad_v2: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..GRADIENT
};

static MAX_POOL_GRAD_GRAD: Op = Op {
    name: "MaxPoolGradGrad",
    gradient: Gradient::Fn(max_pool_grad_grad_gradient),
    attrs: &[SIZES[0], SIZES[1], PADDING, FORMAT, "T: realnumbertype"],
    shape: like_second,
    kernels: kernels![max_pool_grad_grad: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    accuracy: Accuracy::Exact,
    ..GRADIENT
};

static MAX_POOL_GRAD_GRAD_V2: Op = Op {
    name: "MaxPoolGradGradV2",
    inputs: &["orig_input: T", "orig_output: T", "grad: T", "ksize: int32", "strides: int32"],
    attrs: &[PADDING, FORMAT, "T: realnumbertype"],
    shape: like_second,
    kernels: kernels![max_pool_grad_grad_v2: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    accuracy: Accuracy::Exact,
    ..GRADIENT
};

static MAX_POOL_WITH_ARGMAX: Op = Op {
    name: "MaxPoolWithArgmax",
    gradient: Gradient::Fn(with_argmax_gradient),
    inputs: &["input: T"],
    outputs: &["output: T", "argmax: Targmax"],
    attrs: &[
        SIZES[0],
        SIZES[1],
        "Targmax: {int32, int64} = DT_INT64",
        PADDING,
        "include_batch_in_index: bool = false",
        "T: realnumbertype",
    ],
    shape: |s| pool_shape(s, "NHWC"),
    kernels: kernels![max_pool_with_argmax: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..Op::PURE
};

static MAX_POOL_GRAD_WITH_ARGMAX: Op = Op {
    name: "MaxPoolGradWithArgmax",
    inputs: &["input: T", "grad: T", "argmax: Targmax"],
    attrs: &[
        SIZES[0],
        SIZES[1],
        PADDING,
        "include_batch_in_index: bool = false",
        "Targmax: {int32, int64}",
        "T: realnumbertype",
    ],
    kernels: &KernelRow::each_only(
        *kernels![max_pool_grad_with_argmax: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
        "Targmax",
        Only::Type(DType::Int64),
    ),
    ..GRADIENT
};

static MAX_POOL_3D: Op = Op {
    name: "MaxPool3D",
    gradient: Gradient::Fn(max_pool_3d_gradient),
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &[VOLUME_SIZES[0], VOLUME_SIZES[1], PADDING, VOLUME_FORMAT, "T: {half, bfloat16, float}"],
    shape: |s| pool_shape(s, "NDHWC"),
    kernels: kernels![max_pool_3d: bf16, f32],
    ..Op::PURE
};

static MAX_POOL_3D_GRAD: Op = Op {
    name: "MaxPool3DGrad",
    gradient: Gradient::Fn(max_pool_3d_grad_gradient),
    inputs: &["orig_input: TInput", "orig_output: TInput", "grad: T"],
    attrs: &[
        VOLUME_SIZES[0],
        VOLUME_SIZES[1],
        PADDING,
        VOLUME_FORMAT,
        "T: {half, bfloat16, float} = DT_FLOAT",
        "TInput: {half, bfloat16, float} = DT_FLOAT",
    ],
    kernels: &[
        KernelRow::new("T", DType::Bfloat16, max_pool_3d_grad::<bf16>)
            .only("TInput", Only::Type(DType::Bfloat16)),
        KernelRow::new("T", DType::Float, max_pool_3d_grad::<f32>).only("TInput", Only::Type(DType::Float)),
    ],
    ..GRADIENT
};

static MAX_POOL_3D_GRAD_GRAD: Op = Op {
    name: "MaxPool3DGradGrad",
    gradient: Gradient::Fn(max_pool_3d_grad_grad_gradient),
    attrs: &[VOLUME_SIZES[0], VOLUME_SIZES[1], PADDING, VOLUME_FORMAT, "T: realnumbertype"],
    shape: like_second,
    kernels: kernels![max_pool_3d_grad_grad: bf16, f32],
    accuracy: Accuracy::Exact,
    ..GRADIENT
};

fn like_first(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, s.input(0));
    Ok(())
}

fn like_second(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, s.input(1));
    Ok(())
}

const LARGEST: Rules =
    Rules { kernel: "MaxPoolingOp", strides: "stride", window: BadWindow::All, depth: None };

const LARGEST_GRADIENT: Rules = Rules {
    kernel: "MaxPoolingGradOp",
    strides: "strides",
    depth: Some("MaxPoolingGrad is not yet supported on the depth dimension."),
    ..LARGEST
};

const LARGEST_SECOND_GRADIENT: Rules = Rules {
    kernel: "MaxPoolingGradGradOp",
    depth: Some("MaxPoolingGradGrad is not yet supported on the depth dimension."),
    ..LARGEST_GRADIENT
};

const ARGMAX: Rules = Rules { window: BadWindow::First, ..LARGEST };

const VOLUME: Rules = Rules {
    kernel: "Pooling3DOp",
    window: BadWindow::Volume,
    depth: Some("Pooling is not yet supported on the depth dimension."),
    ..LARGEST
};

const VOLUME_GRADIENT: Rules = Rules { kernel: "MaxPooling3dGradOp", ..VOLUME };

const VOLUME_SECOND_GRADIENT: Rules = Rules {
    kernel: "MaxPooling3dGradGradOp",
    depth: Some("MaxPooling3dGradGrad is not yet supported on the depth dimension."),
    ..VOLUME
};

fn max_pool<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    pool_kernel::<T>(Pooling::new(init, &LARGEST, IMAGES, None)?)
}

fn max_pool_v2<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    pool_kernel::<T>(Pooling::new(init, &LARGEST, IMAGES, Some(1))?)
}

fn max_pool_3d<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    pool_kernel::<T>(Pooling::new(init, &VOLUME, VOLUMES, None)?.centered())
}

/// Pools start from the least finite value, as in stock: elements that are NaN or −∞ never win.
fn pool_kernel<T: Real>(pooling: Pooling) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let placed = pooling.place(cx, input.shape())?;
        let mut out = cx.alloc::<T>(placed.output)?;
        let elements = input.flat::<T>()?;
        if placed.depth == 1 {
            placed.pool.largest::<T>(cx.threads(), elements, out.flat_mut()?);
        } else {
            let larger = |best: T, value: &T| if *value > best { *value } else { best };
            let groups = out.flat_mut::<T>()?.iter_mut().zip(elements.chunks(placed.depth));
            for (out, group) in groups {
                *out = group.iter().fold(T::LEAST, larger);
            }
        }
        Ok(out.into())
    })
}

fn max_pool_grad<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    gradient_kernel::<T>(Pooling::new(init, &LARGEST_GRADIENT, IMAGES, None)?)
}

fn max_pool_grad_v2<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    gradient_kernel::<T>(Pooling::new(init, &LARGEST_GRADIENT, IMAGES, Some(3))?)
}

fn max_pool_3d_grad<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    gradient_kernel::<T>(Pooling::new(init, &VOLUME_GRADIENT, VOLUMES, None)?)
}

/// In images, the first of the largest elements gets the gradient; in volumes, every one that is near the pool's result.
/// Stock does the same.
fn gradient_kernel<T: Real>(pooling: Pooling) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        let (input, output, gradient) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        for (what, tensor) in [("tensor_in", input), ("tensor_out", output), ("out_backprop", gradient)] {
            let rank = pooling.rank();
            ensure!(tensor.rank() == rank, InvalidArgument, "{what} must be {rank}-dimensional");
        }
        let placed = pooling.place(cx, input.shape())?;
        expect("orig_output", output, &placed.output)?;
        expect("grad", gradient, &placed.output)?;
        let mut out = cx.alloc::<T>(input.shape().clone())?;
        let (image, largest, gradient) = (input.flat()?, output.flat()?, gradient.flat()?);
        if pooling.rank() == 4 {
            placed.pool.largest_gradient::<T>(cx.threads(), image, gradient, out.flat_mut()?);
        } else {
            let pool = Pool { grid: placed.pool.grid.stretched(), ..placed.pool };
            pool.near_gradient::<T>(cx.threads(), image, largest, gradient, out.flat_mut()?);
        }
        Ok(out.into())
    })
}

fn max_pool_grad_grad<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    second_gradient_kernel::<T>(Pooling::new(init, &LARGEST_SECOND_GRADIENT, IMAGES, None)?)
}

fn max_pool_grad_grad_v2<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    second_gradient_kernel::<T>(Pooling::new(init, &LARGEST_SECOND_GRADIENT, IMAGES, Some(3))?)
}

fn max_pool_3d_grad_grad<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    second_gradient_kernel::<T>(Pooling::new(init, &VOLUME_SECOND_GRADIENT, VOLUMES, None)?)
}

fn second_gradient_kernel<T: Real>(pooling: Pooling) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        let (input, output, gradient) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        for (what, tensor) in [("tensor_in", input), ("tensor_out", output), ("out_grad_backprop", gradient)]
        {
            let rank = pooling.rank();
            ensure!(tensor.rank() == rank, InvalidArgument, "{what} must be {rank}-dimensional");
        }
        let placed = pooling.place(cx, input.shape())?;
        ensure!(
            pooling.rank() == 4 || output.elements() > 0,
            InvalidArgument,
            "received empty tensor tensor_out: {output:?}"
        );
        expect("orig_output", output, &placed.output)?;
        expect("grad", gradient, input.shape())?;
        let mut out = cx.alloc::<T>(placed.output)?;
        let (input, largest, gradient) = (input.flat()?, output.flat()?, gradient.flat()?);
        placed.pool.equal_taken::<T>(cx.threads(), input, largest, gradient, out.flat_mut()?);
        Ok(out.into())
    })
}

fn max_pool_with_argmax<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let pooling = Pooling::new(init, &ARGMAX, IMAGES, None)?;
    let whole: bool = init.attr("include_batch_in_index")?;
    let dtype: DType = init.attr("Targmax")?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        ensure!(input.rank() == 4, InvalidArgument, "tensor_in must be 4-dimensional (2)");
        ensure!(input.elements() > 0, InvalidArgument, "tensor_in must not be empty (2)");
        let placed = pooling.place(cx, input.shape())?;
        // A window along the channels is checked and then ignored, as in stock.
        let shape = &placed.output;
        let shape = ferroflow_core::Shape::new([shape[0], shape[1], shape[2], input.shape()[3]])?;
        let mut out = cx.alloc::<T>(shape.clone())?;
        let mut pixels = vec![0u32; out.elements()];
        placed.pool.largest_at::<T>(cx.threads(), input.flat()?, out.flat_mut()?, &mut pixels);
        let channels = placed.pool.channels;
        let (image, result) = (placed.pool.grid.pixels(), placed.pool.grid.windows() * channels);
        let index = |(at, pixel): (usize, &u32)| {
            let before = if whole { at / result.max(1) * image } else { 0 };
            ((before + *pixel as usize) * channels + at % channels) as i64
        };
        let indices = pixels.iter().enumerate().map(index);
        let indices = match dtype {
            DType::Int32 => Tensor::new(shape, indices.map(|index| index as i32).collect())?,
            _ => Tensor::new(shape, indices.collect::<Vec<i64>>())?,
        };
        Ok(Outputs::from(vec![out, indices]))
    })
}

/// Adds each gradient to where the largest element was.
fn max_pool_grad_with_argmax<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let pooling = Pooling::new(init, &ARGMAX, IMAGES, None)?;
    let whole: bool = init.attr("include_batch_in_index")?;
    Kernel::sync(move |cx| {
        let (input, gradient, argmax) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        let placed = pooling.place(cx, input.shape())?;
        expect("grad", gradient, &placed.output)?;
        expect("argmax", argmax, &placed.output)?;
        let mut out = cx.zeros(T::DTYPE, input.shape().clone())?;
        let elements = out.flat_mut::<T>()?;
        let batch = placed.pool.grid.batch.max(1);
        let (image, result) = (elements.len() / batch, gradient.elements() / batch);
        let pairs = gradient.flat::<T>()?.iter().zip(argmax.flat::<i64>()?);
        for (at, (value, index)) in pairs.enumerate() {
            let first = if whole { 0 } else { at / result.max(1) * image };
            let element = usize::try_from(*index).ok().and_then(|index| elements.get_mut(first + index));
            let Some(element) = element else {
                ferroflow_core::bail!(
                    InvalidArgument,
                    "invalid input_backprop_index: {index} for an image of {image} elements"
                );
            };
            *element = element.add(*value);
        }
        Ok(out.into())
    })
}

/// A node that takes the same windows: by attributes, or by the operation's inputs from `first` on.
fn node(g: &GradCx<'_>, op: &Op, inputs: &[&Output], first: Option<usize>) -> Result<Output> {
    let mut lists = if first.is_none() { vec!["ksize", "strides"] } else { Vec::new() };
    let has = |op: &Op| op.attrs.iter().any(|attr| attr.starts_with("explicit_paddings"));
    if has(op) && g.attr::<Vec<i64>>("explicit_paddings").is_ok() {
        lists.push("explicit_paddings");
    }
    let mut node = sibling(g, op.name, &lists, &["padding", "data_format"])?;
    node = inputs.iter().fold(node, |node, input| node.input(*input));
    if let Some(first) = first {
        node = node.input(g.input(first)).input(g.input(first + 1));
    }
    node.build()?.output(0)
}

fn max_pool_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([node(g, &MAX_POOL_GRAD, &[g.input(0), &g.output(0)?, &g.dy(0)?], None)?].into())
}

fn max_pool_v2_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let dx = node(g, &MAX_POOL_GRAD_V2, &[g.input(0), &g.output(0)?, &g.dy(0)?], Some(1))?;
    Ok([Some(dx), None, None].into())
}

fn max_pool_3d_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([node(g, &MAX_POOL_3D_GRAD, &[g.input(0), &g.output(0)?, &g.dy(0)?], None)?].into())
}

fn with_argmax_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = sibling(g, MAX_POOL_GRAD_WITH_ARGMAX.name, &["ksize", "strides"], &["padding"])?;
    let node = node.attr("include_batch_in_index", g.attr::<bool>("include_batch_in_index")?);
    let node = node.input(g.input(0)).input(g.dy(0)?).input(g.output(1)?);
    Ok([node.build()?.output(0)?].into())
}

/// The gradients of a gradient: where the largest elements are does not change with small changes of them.
fn of_gradient(g: &GradCx<'_>, op: &Op, first: Option<usize>) -> Result<InputGrads> {
    let (s, input, output) = (g.scope(), g.input(0), g.input(1));
    let taken = node(g, op, &[input, output, &g.dy(0)?], first)?;
    let mut grads = vec![Some(ops::zeros_like(s, input)?), Some(ops::zeros_like(s, output)?), Some(taken)];
    grads.resize(g.num_inputs(), None);
    Ok(grads.into())
}

fn max_pool_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    of_gradient(g, &MAX_POOL_GRAD_GRAD, None)
}

fn max_pool_grad_v2_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    of_gradient(g, &MAX_POOL_GRAD_GRAD_V2, Some(3))
}

fn max_pool_grad_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    of_gradient(g, &MAX_POOL_GRAD, None)
}

fn max_pool_3d_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    of_gradient(g, &MAX_POOL_3D_GRAD_GRAD, None)
}

fn max_pool_3d_grad_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    of_gradient(g, &MAX_POOL_3D_GRAD, None)
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{Code, Shape, Tensor};

    fn pool(op: &str) -> Node {
        let sizes = vec![1i64, 2, 2, 1];
        Node::new(op).attr("ksize", sizes.clone()).attr("strides", sizes).attr("padding", "VALID")
    }

    #[test]
    fn shapes_follow_the_window() {
        pool("MaxPool").infer("[?,5,6,3]", "[?,2,3,3]");
        pool("MaxPoolWithArgmax").infer("[2,5,?,3]", "[2,2,?,3];[2,2,?,3]");
        Node::new("MaxPoolV2").attr("padding", "SAME").infer("[2,5,5,3];[4];[4]", "[?,?,?,?]");
    }

    #[test]
    fn windows_may_be_larger_than_any_image() {
        let image = Tensor::new(Shape::new([1, 2, 2, 1]).unwrap(), vec![1.0f32, 4.0, 3.0, 2.0]).unwrap();
        let node = Node::new("MaxPool").attr("ksize", vec![1i64, 1 << 40, 1 << 40, 1]);
        let node = node.attr("strides", vec![1i64, 1, 1, 1]).attr("padding", "SAME");
        assert_eq!(node.run([image]).unwrap()[0].flat::<f32>().unwrap(), [4.0; 4]);
    }

    /// Stock writes outside its memory here.
    #[test]
    fn indices_outside_the_image_are_refused() {
        let image = Tensor::new(Shape::new([1, 2, 2, 1]).unwrap(), vec![0.0f32; 4]).unwrap();
        let gradient = Tensor::new(Shape::new([1, 1, 1, 1]).unwrap(), vec![1.0f32]).unwrap();
        for index in [-1i64, 4] {
            let argmax = Tensor::new(Shape::new([1, 1, 1, 1]).unwrap(), vec![index]).unwrap();
            let run = pool("MaxPoolGradWithArgmax").run([image.clone(), gradient.clone(), argmax]);
            assert_eq!(run.err().unwrap().code(), Code::InvalidArgument);
        }
    }
}
