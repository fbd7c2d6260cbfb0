//! Adding a bias to every channel, and its gradient.

use crate::builders as ops;
use crate::linalg::reduce::{Axis, Fold, Sum, fold_planned};
use crate::numeric::Num;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::Output;
use ferroflow_core::{C64, C128, Element, PartialShape, Result, Shape, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&BIAS_ADD, &BIAS_ADD_V1, &BIAS_ADD_GRAD];

const FORMAT: &str = "data_format: {'NHWC', 'NCHW'} = 'NHWC'";

static BIAS_ADD: Op = Op {
    name: "BiasAdd",
    gradient: Gradient::Fn(bias_add_gradient),
    inputs: &["value: T", "bias: T"],
    outputs: &["output: T"],
    attrs: &["T: numbertype", FORMAT],
    shape: bias_add_shape,
    kernels: kernels![bias_add_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..Op::PURE
};

static BIAS_ADD_V1: Op = Op {
    name: "BiasAddV1",
    gradient: Gradient::Fn(bias_add_v1_gradient),
    inputs: &["value: T", "bias: T"],
    outputs: &["output: T"],
    attrs: &["T: numbertype"],
    shape: bias_add_shape,
    kernels: kernels![bias_add_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..Op::PURE
};

static BIAS_ADD_GRAD: Op = Op {
    name: "BiasAddGrad",
    gradient: Gradient::Fn(bias_grad_gradient),
    inputs: &["out_backprop: T"],
    outputs: &["output: T"],
    attrs: &["T: numbertype", FORMAT],
    shape: bias_grad_shape,
    kernels: kernels![bias_grad_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// Whether channels come right after the batch; the first version of the op has no such attribute.
fn channels_first(attribute: Result<String>) -> bool {
    attribute.is_ok_and(|format| format == "NCHW")
}

fn bias_add_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let first = channels_first(s.attr("data_format"));
    let (value, bias) = (s.rank_at_least(0, 2)?, s.rank(1, 1)?);
    let bias = bias.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    let Some(dims) = value.dims() else { return Ok(()) };
    let channel = if first { 1 } else { dims.len() - 1 };
    let merged = s.merge_dims(dims[channel], bias)?;
    let dims = dims.iter().enumerate().map(|(axis, dim)| if axis == channel { merged } else { *dim });
    let shape = PartialShape::new(dims)?;
    s.set(0, shape);
    Ok(())
}

fn bias_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let first = channels_first(s.attr("data_format"));
    let value = s.rank_at_least(0, 2)?;
    let channel = value.dims().map_or(UNKNOWN_DIM, |dims| dims[if first { 1 } else { dims.len() - 1 }]);
    s.output(0, [channel])
}

/// A tensor as batch × channels × the rest.
fn split(shape: &Shape, channels_first: bool) -> Result<(usize, usize, usize)> {
    ensure!(shape.rank() >= 2, InvalidArgument, "Input tensor must be at least 2D: {shape}");
    let channel = if channels_first { 1 } else { shape.rank() - 1 };
    let product = |dims: &[i64]| dims.iter().product::<i64>() as usize;
    let dims = shape.dims();
    Ok((product(&dims[..channel]), dims[channel] as usize, product(&dims[channel + 1..])))
}

fn bias_add_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let first = channels_first(init.attr("data_format"));
    Kernel::sync(move |cx| {
        let (value, bias) = (cx.input(0)?, cx.input(1)?);
        let (_, channels, rest) = split(value.shape(), first)?;
        ensure!(bias.rank() == 1, InvalidArgument, "Biases must be 1D: {}", bias.shape());
        if first {
            ensure!(
                bias.elements() == channels,
                InvalidArgument,
                "Must provide as many biases as the channel dimension of the input tensor: {} vs. {channels} in {}",
                bias.shape(),
                value.shape()
            );
        }
        ensure!(
            bias.elements() == channels,
            InvalidArgument,
            "Must provide as many biases as the last dimension of the input tensor: {} vs. {}",
            bias.shape(),
            value.shape()
        );
        let bias = bias.clone();
        let bias = bias.flat::<T>()?;
        let (elements, shape) = (value.elements(), value.shape().clone());
        let mut output = match cx.take_reusable(&[0], T::DTYPE, elements) {
            Some((_, value)) => value,
            None => {
                let mut output = cx.alloc::<T>(shape)?;
                output.flat_mut::<T>()?.copy_from_slice(cx.flat::<T>(0)?);
                output
            }
        };
        let width = channels * rest;
        cx.threads().parallel_rows(output.flat_mut::<T>()?, width, 1, |_, rows| {
            for row in rows.chunks_mut(width) {
                if rest == 1 {
                    for (x, bias) in row.iter_mut().zip(bias) {
                        *x = x.add(*bias);
                    }
                    continue;
                }
                for (plane, bias) in row.chunks_mut(rest).zip(bias) {
                    for x in plane.iter_mut() {
                        *x = x.add(*bias);
                    }
                }
            }
        });
        Ok(output.into())
    })
}

fn bias_grad_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let first = channels_first(init.attr("data_format"));
    Kernel::sync(move |cx| {
        let backprop = cx.input(0)?;
        let (batch, channels, rest) = split(backprop.shape(), first)?;
        let mut sums = cx.alloc::<T::Wide>(Shape::vector(channels))?;
        let by_plane = Axis { outer: batch * channels, n: rest, inner: 1 };
        let by_batch = Axis { outer: 1, n: batch, inner: channels };
        let axes: &[Axis] = if rest == 1 { &[by_batch] } else { &[by_plane, by_batch] };
        fold_planned::<Sum<T>>(cx.threads(), backprop.flat::<T>()?, axes, sums.flat_mut()?);
        if <T::Wide as Element>::DTYPE == T::DTYPE {
            return Ok(sums.into());
        }
        let mut output = cx.alloc::<T>(Shape::vector(channels))?;
        let values = output.flat_mut::<T>()?.iter_mut().zip(sums.flat::<T::Wide>()?);
        for (out, sum) in values {
            *out = Sum::<T>::narrow(*sum);
        }
        Ok(output.into())
    })
}

fn bias_add_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let dy = g.dy(0)?;
    let sums = ops::BiasAddGrad::new().data_format(&g.attr::<String>("data_format")?);
    let bias = sums.build(g.scope(), &dy)?;
    Ok([dy, bias].into())
}

fn bias_add_v1_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let rows = ops::reshape(s, &dy, ops::concat_v2(s, [&s.constant([-1])?, &ops::shape(s, g.input(1))?], 0))?;
    let bias = ops::sum(s, rows, [0])?;
    Ok([dy, bias].into())
}

/// Every element gets the gradient of its channel.
fn bias_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, mut dy) = (g.scope(), g.dy(0)?);
    let shape = ops::shape(s, g.input(0))?;
    if channels_first(g.attr("data_format")) {
        let part = |begin: i32, size: i32| -> Result<Output> {
            ops::ones_like(s, ops::slice(s, &shape, [begin], [size]))
        };
        let aligned = ops::concat_v2(s, [&part(0, 1)?, &ops::shape(s, &dy)?, &part(2, -1)?], 0)?;
        dy = ops::reshape(s, dy, aligned)?;
    }
    Ok([ops::broadcast_to(s, dy, shape)?].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Shape, Tensor};

    #[test]
    fn channels_are_last_unless_told() {
        infer("BiasAdd", "[?,3];[?]", "[?,3]");
        infer_err("BiasAdd", "[2,3];[2]", Code::InvalidArgument);
        Node::new("BiasAdd").attr("data_format", "NCHW").infer("[2,3,4];[3]", "[2,3,4]");
        Node::new("BiasAddGrad").attr("data_format", "NCHW").infer("[2,3,4]", "[3]");
    }

    #[test]
    fn gradients_add_up_every_place_of_a_channel() {
        let backprop = Tensor::new(Shape::new([2, 2, 2]).unwrap(), (1..=8).collect::<Vec<i32>>()).unwrap();
        let last = Node::new("BiasAddGrad").run([backprop.clone()]).unwrap();
        assert_eq!(last[0].flat::<i32>().unwrap(), [16, 20]);
        let first = Node::new("BiasAddGrad").attr("data_format", "NCHW").run([backprop]).unwrap();
        assert_eq!(first[0].flat::<i32>().unwrap(), [14, 22]);
    }
}
