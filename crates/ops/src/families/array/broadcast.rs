//! Repeating data: Tile and BroadcastTo.

use crate::builders as ops;
use crate::linalg::strided_copy::{Layout, copy, row_major};
use crate::support::gradient::shape_as;
use crate::support::index::{constant_ints, input_ints};
use crate::support::strided::broadcast;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Shape, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&TILE, &TILE_GRAD, &BROADCAST_TO];

static TILE: Op = Op {
    name: "Tile",
    gradient: Gradient::Fn(tile_grad),
    inputs: &["input: T", "multiples: Tmultiples"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tmultiples: {int32, int64} = DT_INT32"],
    shape: tile_shape,
    kernels: kernels![any tile_kernel],
    ..Op::PURE
};

/// Refused since graph version 3, and stock's kernels ask for an attribute that the op does not have: it never runs.
static TILE_GRAD: Op = Op {
    name: "TileGrad",
    inputs: &["input: T", "multiples: int32"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    deprecated_at: Some(3),
    ..Op::PURE
};

static BROADCAST_TO: Op = Op {
    name: "BroadcastTo",
    gradient: Gradient::Fn(broadcast_to_grad),
    inputs: &["input: T", "shape: Tidx"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tidx: {int32, int64} = DT_INT32"],
    shape: broadcast_to_shape,
    kernels: kernels![any broadcast_to_kernel],
    ..Op::PURE
};

fn tile_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.input(0);
    let Some(multiples) = constant_ints(s, 1)? else {
        let rank = input.rank().or_else(|| s.constant_shape(1).ok()?.rank());
        if let Some(rank) = rank {
            s.output(0, std::iter::repeat_n(UNKNOWN_DIM, rank))?;
        }
        return Ok(());
    };
    let dims = s.rank(0, multiples.len())?;
    let dims = dims.dims().unwrap_or_default().iter().zip(&multiples).map(|(dim, multiple)| {
        if *dim == UNKNOWN_DIM || *multiple < 0 { UNKNOWN_DIM } else { dim.saturating_mul(*multiple) }
    });
    s.output(0, dims)
}

fn tile_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("T")?;
    Kernel::sync(move |cx| {
        let (input, multiples) = (cx.input(0)?, cx.input(1)?);
        let dims = input.shape().dims();
        ensure!(
            multiples.rank() == 1,
            InvalidArgument,
            "Expected multiples to be 1-D, but got shape {}",
            multiples.shape()
        );
        ensure!(
            multiples.elements() == dims.len(),
            InvalidArgument,
            "Expected multiples argument to be a vector of length {} but got length {}",
            dims.len(),
            multiples.elements()
        );
        let multiples = input_ints(cx, 1)?;
        for (i, multiple) in multiples.iter().enumerate() {
            ensure!(*multiple >= 0, InvalidArgument, "Expected multiples[{i}] >= 0, but got {multiple}");
        }
        let shape = Shape::new(dims.iter().zip(&multiples).map(|(dim, n)| dim.saturating_mul(*n)))?;
        if multiples.iter().all(|multiple| *multiple == 1) {
            return Ok(cx.take(0)?.into());
        }
        // Stock registers a kernel for every type but leaves this one out inside, where it copies.
        if dtype == DType::Uint16 && shape.elements() > 0 {
            bail!(
                Unimplemented,
                "TileOp : The input data type is not supported, DataType : {dtype}, Dimension : {}",
                dims.len()
            );
        }
        let strides = row_major(dims);
        let repeated =
            (0..dims.len()).flat_map(|i| [(multiples[i] as usize, 0), (dims[i] as usize, strides[i])]);
        let mut out = cx.alloc_dtype(dtype, shape)?;
        copy(cx.threads(), &Layout::reading(0, repeated), input, &mut out)?;
        Ok(out.into())
    })
}

fn broadcast_to_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.constant_shape(1)?;
    if let (Some(have), Some(want)) = (s.input(0).rank(), shape.rank()) {
        ensure!(
            have <= want,
            InvalidArgument,
            "Rank of input ({have}) must be no greater than rank of output shape ({want})."
        );
    }
    s.set(0, shape);
    Ok(())
}

fn broadcast_to_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let input = cx.input(0)?;
        let shape = Shape::new(input_ints(cx, 1)?)?;
        if input.shape() == &shape {
            return Ok(cx.take(0)?.into());
        }
        ensure!(
            input.rank() <= shape.rank(),
            InvalidArgument,
            "Rank of input ({}) must be no greater than rank of output shape ({}).",
            input.rank(),
            shape.rank()
        );
        let layout = broadcast(input.shape(), &shape)?;
        let mut out = cx.alloc_dtype(input.dtype(), shape)?;
        copy(cx.threads(), &layout, input, &mut out)?;
        Ok(out.into())
    })
}

/// Sums over the copies: each dimension is split into copies and elements.
fn tile_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, multiples) = (g.scope(), g.input(0), g.input(1));
    let pairs = ops::pack(s, [multiples, &shape_as(s, x, multiples.dtype())?]);
    let split = ops::reshape(s, ops::transpose(s, pairs, [1, 0]), [-1])?;
    let copies = ops::range(s, 0, ops::size(s, &split), 2);
    let dx = ops::sum(s, ops::reshape(s, g.dy(0)?, split), copies)?;
    Ok([Some(dx), None].into())
}

fn broadcast_to_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, shape) = (g.scope(), g.input(1));
    let x_shape = shape_as(s, g.input(0), shape.dtype())?;
    let axes = ops::broadcast_gradient_args(s, shape, &x_shape)?.r1;
    let sum = ops::Sum::new().keep_dims(true).build(s, g.dy(0)?, axes);
    Ok([Some(ops::reshape(s, sum, x_shape)?), None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::Tensor;

    #[test]
    fn shapes_follow_constants() {
        Node::new("Tile").constant(1, Tensor::vector(vec![2i32, 3])).infer("[2,?];[2]", "[4,?]");
        infer("Tile", "[2,?];[2]", "[?,?]");
        Node::new("BroadcastTo").constant(1, Tensor::vector(vec![2i32, 3])).infer("[3];[2]", "[2,3]");
    }
}
