//! Adding a bias to every channel, and its gradient.

use crate::linalg::reduce::{Axis, Fold, Sum, fold_planned};
use crate::numeric::Num;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{C64, C128, Element, PartialShape, Result, Shape, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&BIAS_ADD, &BIAS_ADD_V1, &BIAS_ADD_GRAD];

const FORMAT: &str = "data_format: {'NHWC', 'NCHW'} = 'NHWC'";

static BIAS_ADD: Op = Op {
    name: "BiasAdd",
    inputs: &["value: T", "bias: T"],
    outputs: &["output: T"],
    attrs: &["T: numbertype", FORMAT],
    shape: bias_add_shape,
    kernels: kernels![bias_add_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..Op::PURE
};

static BIAS_ADD_V1: Op = Op {
    name: "BiasAddV1",
    inputs: &["value: T", "bias: T"],
    outputs: &["output: T"],
    attrs: &["T: numbertype"],
    shape: bias_add_shape,
    kernels: kernels![bias_add_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..Op::PURE
};

static BIAS_ADD_GRAD: Op = Op {
    name: "BiasAddGrad",
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
        cx.device().parallel_rows(output.flat_mut::<T>()?, width, 1, |_, rows| {
            for row in rows.chunks_mut(width) {
                if rest == 1 {
                    row.iter_mut().zip(bias).for_each(|(x, bias)| *x = x.add(*bias));
                    continue;
                }
                for (plane, bias) in row.chunks_mut(rest).zip(bias) {
                    plane.iter_mut().for_each(|x| *x = x.add(*bias));
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
        fold_planned::<Sum<T>>(cx.device(), backprop.flat::<T>()?, axes, sums.flat_mut()?);
        if <T::Wide as Element>::DTYPE == T::DTYPE {
            return Ok(sums.into());
        }
        let mut output = cx.alloc::<T>(Shape::vector(channels))?;
        let values = output.flat_mut::<T>()?.iter_mut().zip(sums.flat::<T::Wide>()?);
        values.for_each(|(out, sum)| *out = Sum::<T>::narrow(*sum));
        Ok(output.into())
    })
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
