//! Slices, plain and strided, their gradient, and values with a slice replaced.

use crate::builders as ops;
use crate::linalg::strided_copy::{Layout, copy, row_major};
use crate::support::gradient::shape_as;
use crate::support::index::{Ints, constant_ints, input_ints};
use crate::support::strided::{Masks, StridedSlice};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&SLICE, &STRIDED_SLICE, &STRIDED_SLICE_GRAD, &TENSOR_STRIDED_SLICE_UPDATE];

static SLICE: Op = Op {
    name: "Slice",
    gradient: Gradient::Fn(slice_grad),
    inputs: &["input: T", "begin: Index", "size: Index"],
    outputs: &["output: T"],
    attrs: &["T: type", "Index: {int32, int64}"],
    shape: slice_shape,
    kernels: kernels![any slice_kernel],
    ..Op::PURE
};

static STRIDED_SLICE: Op = Op {
    name: "StridedSlice",
    gradient: Gradient::Fn(strided_slice_grad),
    inputs: &["input: T", "begin: Index", "end: Index", "strides: Index"],
    outputs: &["output: T"],
    attrs: &[
        "T: type",
        "Index: {int16, int32, int64}",
        "begin_mask: int = 0",
        "end_mask: int = 0",
        "ellipsis_mask: int = 0",
        "new_axis_mask: int = 0",
        "shrink_axis_mask: int = 0",
    ],
    shape: strided_slice_shape,
    kernels: kernels![any strided_slice_kernel],
    ..Op::PURE
};

const WITH_MASKS: &[&str] = &[
    "T: type",
    "Index: {int32, int64}",
    "begin_mask: int = 0",
    "end_mask: int = 0",
    "ellipsis_mask: int = 0",
    "new_axis_mask: int = 0",
    "shrink_axis_mask: int = 0",
];

static STRIDED_SLICE_GRAD: Op = Op {
    name: "StridedSliceGrad",
    gradient: Gradient::Fn(strided_slice_grad_grad),
    inputs: &["shape: Index", "begin: Index", "end: Index", "strides: Index", "dy: T"],
    outputs: &["output: T"],
    attrs: WITH_MASKS,
    shape: strided_slice_grad_shape,
    kernels: kernels![any strided_slice_grad_kernel],
    ..Op::PURE
};

static TENSOR_STRIDED_SLICE_UPDATE: Op = Op {
    name: "TensorStridedSliceUpdate",
    gradient: Gradient::Fn(update_grad),
    inputs: &["input: T", "begin: Index", "end: Index", "strides: Index", "value: T"],
    outputs: &["output: T"],
    attrs: WITH_MASKS,
    shape: ferroflow_core::op::shapes::unchanged,
    kernels: kernels![any tensor_strided_slice_update_kernel],
    ..Op::PURE
};

fn slice_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.input(0);
    let (begin, size) = (constant_ints(s, 1)?, constant_ints(s, 2)?);
    let lengths = [s.rank(1, 1)?, s.rank(2, 1)?];
    let known = lengths.iter().filter_map(|shape| shape.dims()?.first().copied()).find(|dim| *dim >= 0);
    let rank = input.rank().map(|rank| rank as i64).or(known);
    let Some(rank) = rank else { return Ok(()) };
    for length in &lengths {
        s.merge_dims(rank, length.dims().map_or(UNKNOWN_DIM, |dims| dims[0]))?;
    }
    let dim = |i: usize| input.dims().map_or(UNKNOWN_DIM, |dims| dims[i]);
    let mut dims = Ints::new();
    for i in 0..rank as usize {
        let size = size.as_ref().map_or(UNKNOWN_DIM - 1, |size| size[i]);
        dims.push(match (size, &begin) {
            (-1, Some(begin)) if dim(i) != UNKNOWN_DIM => {
                ensure!(
                    (0..=dim(i)).contains(&begin[i]),
                    InvalidArgument,
                    "Expected begin[{i}] in [0, {}], but got {}",
                    dim(i),
                    begin[i]
                );
                dim(i) - begin[i]
            }
            (size, _) => size.max(UNKNOWN_DIM),
        });
    }
    s.output(0, dims)
}

fn slice_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let input = cx.input(0)?;
        let (begin, size) = (cx.input(1)?, cx.input(2)?);
        let dims = input.shape().dims();
        ensure!(
            begin.rank() == 1
                && size.rank() == 1
                && begin.elements() == dims.len()
                && size.elements() == dims.len(),
            InvalidArgument,
            "Expected begin and size arguments to be 1-D tensors of size {}, but got shapes {} and {} instead.",
            dims.len(),
            begin.shape(),
            size.shape()
        );
        let (begin, mut size) = (input_ints(cx, 1)?, input_ints(cx, 2)?);
        let strides = row_major(dims);
        let mut offset = 0;
        for (i, &dim) in dims.iter().enumerate() {
            ensure!(
                (0..=dim).contains(&begin[i]),
                InvalidArgument,
                "Expected begin[{i}] in [0, {dim}], but got {}",
                begin[i]
            );
            let rest = dim - begin[i];
            if size[i] == -1 {
                size[i] = rest;
            }
            ensure!(
                (0..=rest).contains(&size[i]),
                InvalidArgument,
                "Expected size[{i}] in [0, {rest}], but got {}",
                size[i]
            );
            offset += begin[i] as isize * strides[i];
        }
        if size.as_slice() == dims {
            return Ok(cx.take(0)?.into());
        }
        let layout = Layout::reading(offset, size.iter().map(|size| *size as usize).zip(strides));
        let mut out = cx.alloc_dtype(input.dtype(), Shape::new(size)?)?;
        copy(cx.threads(), &layout, input, &mut out)?;
        Ok(out.into())
    })
}

fn strided_slice_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let masks = masks(s)?;
    let input = s.input(0);
    let (Some(dims), Some(strides)) = (input.dims(), constant_ints(s, 3)?) else { return Ok(()) };
    let (begin, end) = (constant_ints(s, 1)?, constant_ints(s, 2)?);
    for values in [&begin, &end].into_iter().flatten() {
        ensure!(
            values.len() == strides.len(),
            InvalidArgument,
            "Expected begin, end, and strides to be 1D equal size tensors"
        );
    }
    let slice = StridedSlice::new(masks, dims, begin.as_deref(), end.as_deref(), &strides)?;
    s.output(0, slice.result)?;
    // A slice of a variant or resource tensor still refers to the same thing.
    s.set_handles(0, s.handles(0).to_vec());
    Ok(())
}

fn masks(s: &ShapeCx<'_>) -> Result<Masks> {
    Masks::new(|name| s.attr(name))
}

fn strided_slice_kernel(init: &Init<'_>) -> Result<Kernel> {
    let masks = Masks::new(|name| init.attr(name))?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let slice = StridedSlice::from_inputs(cx, masks, input.shape(), 1)?;
        let shape = slice.shape()?;
        if slice.whole {
            return Ok(cx.take(0)?.reshaped(shape)?.into());
        }
        let mut out = cx.alloc_dtype(input.dtype(), shape)?;
        copy(cx.threads(), &slice.reading(input.shape()), input, &mut out)?;
        Ok(out.into())
    })
}

fn strided_slice_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.constant_shape(0)?;
    s.set(0, shape);
    Ok(())
}

fn strided_slice_grad_kernel(init: &Init<'_>) -> Result<Kernel> {
    let masks = Masks::new(|name| init.attr(name))?;
    Kernel::sync(move |cx| {
        let shape = cx.input(0)?;
        ensure!(shape.rank() == 1, InvalidArgument, "shape must be 1-D, got shape.shape = {}", shape.shape());
        let shape = Shape::new(input_ints(cx, 0)?)?;
        let slice = StridedSlice::from_inputs(cx, masks, &shape, 1)?;
        let dy = cx.input(4)?;
        let want = slice.shape()?;
        ensure!(dy.shape() == &want, InvalidArgument, "shape of dy was {} instead of {want}", dy.shape());
        if slice.whole {
            return Ok(cx.take(4)?.reshaped(shape)?.into());
        }
        let layout = slice.writing(&shape);
        let mut out = cx.zeros(dy.dtype(), shape)?;
        copy(cx.threads(), &layout, dy, &mut out)?;
        Ok(out.into())
    })
}

fn tensor_strided_slice_update_kernel(init: &Init<'_>) -> Result<Kernel> {
    let masks = Masks::new(|name| init.attr(name))?;
    Kernel::sync(move |cx| {
        let slice = StridedSlice::from_inputs(cx, masks, cx.input(0)?.shape(), 1)?;
        let mut out = cx.take(0)?;
        slice.assign(cx.threads(), cx.input(4)?, &mut out)?;
        Ok(out.into())
    })
}

/// Pads with zeros where the input was cut off.
fn slice_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, begin) = (g.scope(), g.input(0), g.input(1));
    let dtype = begin.dtype();
    let column = ops::pack(s, [ops::rank(s, x)?, s.constant(1i32)?])?;
    let before = ops::reshape(s, begin, &column)?;
    let rest = ops::sub(s, shape_as(s, x, dtype)?, shape_as(s, &g.output(0)?, dtype)?);
    let after = ops::reshape(s, ops::sub(s, rest, begin), column)?;
    let dx = ops::pad(s, g.dy(0)?, ops::concat_v2(s, [before, after], 1))?;
    Ok([Some(dx), None, None].into())
}

/// Sets the masks of a slice's operation on a node that is to cut the same way.
macro_rules! with_masks {
    ($g:expr, $node:expr) => {
        $node
            .begin_mask($g.attr("begin_mask")?)
            .end_mask($g.attr("end_mask")?)
            .ellipsis_mask($g.attr("ellipsis_mask")?)
            .new_axis_mask($g.attr("new_axis_mask")?)
            .shrink_axis_mask($g.attr("shrink_axis_mask")?)
    };
}

fn strided_slice_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, begin) = (g.scope(), g.input(1));
    let shape = shape_as(s, g.input(0), begin.dtype())?;
    let node = with_masks!(g, ops::StridedSliceGrad::new());
    let dx = node.build(s, shape, begin, g.input(2), g.input(3), g.dy(0)?)?;
    Ok([Some(dx), None, None, None].into())
}

fn strided_slice_grad_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = with_masks!(g, ops::StridedSlice::new());
    let dy = node.build(g.scope(), g.dy(0)?, g.input(1), g.input(2), g.input(3))?;
    Ok([None, None, None, None, Some(dy)].into())
}

fn update_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy, value) = (g.scope(), g.dy(0)?, g.input(4));
    let (begin, end, strides) = (g.input(1), g.input(2), g.input(3));
    let cut = with_masks!(g, ops::StridedSlice::new()).build(s, &dy, begin, end, strides)?;
    let node = with_masks!(g, ops::TensorStridedSliceUpdate::new());
    let dx = node.build(s, &dy, begin, end, strides, ops::zeros_like(s, &cut))?;
    // The value may have been repeated to fill the slice.
    let value_shape = shape_as(s, value, begin.dtype())?;
    let axes = ops::broadcast_gradient_args(s, shape_as(s, &cut, begin.dtype())?, &value_shape)?.r1;
    let summed = ops::Sum::new().keep_dims(true).build(s, cut, axes);
    Ok([Some(dx), None, None, None, Some(ops::reshape(s, summed, value_shape)?)].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer_err};
    use ferroflow_core::{Code, Tensor};

    #[test]
    fn shapes_follow_constants() {
        let ints = |values: &[i32]| Tensor::vector(values.to_vec());
        Node::new("Slice")
            .constant(1, ints(&[1, 0]))
            .constant(2, ints(&[-1, 2]))
            .infer("[3,?];[2];[2]", "[2,2]");
        Node::new("Slice").infer("?;[2];[2]", "[?,?]");
        infer_err("Slice", "[3];[2];[2]", Code::InvalidArgument);
        Node::new("StridedSlice")
            .attr("shrink_axis_mask", 1)
            .attr("begin_mask", 2)
            .attr("end_mask", 2)
            .constant(1, ints(&[0, 0]))
            .constant(2, ints(&[1, 0]))
            .constant(3, ints(&[1, 2]))
            .infer("[3,5];[2];[2];[2]", "[3]");
        Node::new("StridedSlice").constant(3, ints(&[1])).infer("[3,5];[1];[1];[1]", "[?,5]");
    }
}
