//! Moving blocks of space into the batch or into the depth, and back.

use crate::builders as ops;
use crate::linalg::strided_copy::{Layout, copy, row_major};
use crate::support::index::{Ints, constant_ints, input_ints};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, KernelRow, Only, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[
    &SPACE_TO_BATCH,
    &SPACE_TO_BATCH_ND,
    &BATCH_TO_SPACE,
    &BATCH_TO_SPACE_ND,
    &SPACE_TO_DEPTH,
    &DEPTH_TO_SPACE,
];

static SPACE_TO_BATCH: Op = Op {
    name: "SpaceToBatch",
    gradient: Gradient::Fn(space_to_batch_grad),
    inputs: &["input: T", "paddings: Tpaddings"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tpaddings: {int32, int64} = DT_INT32", "block_size: int >= 2"],
    shape: space_to_batch_shape,
    kernels: kernels![any space_to_batch_kernel],
    ..Op::PURE
};

static SPACE_TO_BATCH_ND: Op = Op {
    name: "SpaceToBatchND",
    gradient: Gradient::Fn(space_to_batch_nd_grad),
    inputs: &["input: T", "block_shape: Tblock_shape", "paddings: Tpaddings"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tblock_shape: {int32, int64} = DT_INT32", "Tpaddings: {int32, int64} = DT_INT32"],
    shape: space_to_batch_nd_shape,
    kernels: kernels![any space_to_batch_nd_kernel],
    ..Op::PURE
};

static BATCH_TO_SPACE: Op = Op {
    name: "BatchToSpace",
    gradient: Gradient::Fn(batch_to_space_grad),
    inputs: &["input: T", "crops: Tidx"],
    outputs: &["output: T"],
    attrs: &["T: type", "block_size: int >= 2", "Tidx: {int32, int64} = DT_INT32"],
    shape: batch_to_space_shape,
    kernels: kernels![any batch_to_space_kernel],
    ..Op::PURE
};

static BATCH_TO_SPACE_ND: Op = Op {
    name: "BatchToSpaceND",
    gradient: Gradient::Fn(batch_to_space_nd_grad),
    inputs: &["input: T", "block_shape: Tblock_shape", "crops: Tcrops"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tblock_shape: {int32, int64} = DT_INT32", "Tcrops: {int32, int64} = DT_INT32"],
    shape: batch_to_space_nd_shape,
    kernels: kernels![any batch_to_space_nd_kernel],
    ..Op::PURE
};

static SPACE_TO_DEPTH: Op = Op {
    name: "SpaceToDepth",
    gradient: Gradient::Fn(space_to_depth_grad),
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["T: type", "block_size: int >= 2", "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"],
    shape: space_to_depth_shape,
    kernels: &[
        KernelRow::new("", DType::Float, space_to_depth_kernel).only("data_format", Only::Text("NHWC"))
    ],
    ..Op::PURE
};

static DEPTH_TO_SPACE: Op = Op {
    name: "DepthToSpace",
    gradient: Gradient::Fn(depth_to_space_grad),
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["T: type", "block_size: int >= 2", "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"],
    shape: depth_to_space_shape,
    kernels: &[
        KernelRow::new("", DType::Float, depth_to_space_kernel).only("data_format", Only::Text("NHWC"))
    ],
    ..Op::PURE
};

/// Dimensions after moving blocks into the batch: `dims` are batch, space and the rest, −1 where unknown.
fn blocks_to_batch(dims: &[i64], block: &[i64], paddings: &[i64]) -> Result<Ints> {
    let mut out = Ints::from_slice(dims);
    for (i, &size) in block.iter().enumerate() {
        let (before, after) = (paddings[2 * i], paddings[2 * i + 1]);
        ensure!(
            size > 0,
            InvalidArgument,
            "All values in block_shape must be positive, got value, {size} at index {i}."
        );
        ensure!(before >= 0 && after >= 0, InvalidArgument, "Paddings must be non-negative");
        out[0] = if out[0] == UNKNOWN_DIM { UNKNOWN_DIM } else { out[0].saturating_mul(size) };
        if dims[1 + i] == UNKNOWN_DIM {
            continue;
        }
        let padded = dims[1 + i].saturating_add(before).saturating_add(after);
        ensure!(
            padded % size == 0,
            InvalidArgument,
            "padded_shape[{i}]={padded} is not divisible by block_shape[{i}]={size}"
        );
        out[1 + i] = padded / size;
    }
    Ok(out)
}

/// Dimensions after moving the batch into blocks.
fn batch_to_blocks(dims: &[i64], block: &[i64], crops: &[i64]) -> Result<Ints> {
    let mut out = Ints::from_slice(dims);
    let mut product: i64 = 1;
    for (i, &size) in block.iter().enumerate() {
        ensure!(
            size > 0,
            InvalidArgument,
            "All values in block_shape must be positive, got value, {size} at index {i}."
        );
        product = product.saturating_mul(size);
    }
    if dims[0] != UNKNOWN_DIM {
        ensure!(
            dims[0] % product == 0,
            InvalidArgument,
            "Input batch dimension ({}) is not divisible by product of block sizes ({product})",
            dims[0]
        );
        out[0] = dims[0] / product;
    }
    for (i, &size) in block.iter().enumerate() {
        let (before, after) = (crops[2 * i], crops[2 * i + 1]);
        ensure!(before >= 0 && after >= 0, InvalidArgument, "Crops must be non-negative");
        if dims[1 + i] == UNKNOWN_DIM {
            continue;
        }
        let cropped = dims[1 + i].saturating_mul(size).saturating_sub(before).saturating_sub(after);
        ensure!(cropped >= 0, InvalidArgument, "cropped_shape[{i}]={cropped} must be non-negative");
        out[1 + i] = cropped;
    }
    Ok(out)
}

type Rearrange = fn(&[i64], &[i64], &[i64]) -> Result<Ints>;

fn block_shape(s: &mut ShapeCx<'_>, rearrange: Rearrange) -> Result<()> {
    s.rank(1, 1)?;
    s.rank(2, 2)?;
    let input = s.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    let (block, margins) = (constant_ints(s, 1)?, constant_ints(s, 2)?);
    let (Some(block), Some(margins)) = (block, margins) else {
        return s.output(0, std::iter::repeat_n(UNKNOWN_DIM, dims.len()));
    };
    ensure!(
        dims.len() > block.len(),
        InvalidArgument,
        "Shape must be at least rank {} but is rank {}",
        block.len() + 1,
        dims.len()
    );
    ensure!(
        margins.len() == 2 * block.len(),
        InvalidArgument,
        "Dimensions must be equal, but are {} and {}",
        margins.len() / 2,
        block.len()
    );
    let dims = rearrange(dims, &block, &margins)?;
    s.output(0, dims)
}

fn square_block_shape(s: &mut ShapeCx<'_>, rearrange: Rearrange) -> Result<()> {
    let input = s.rank(0, 4)?;
    s.rank(1, 2)?;
    let size: i64 = s.attr("block_size")?;
    match constant_ints(s, 1)? {
        Some(margins) if margins.len() == 4 => {
            let dims = rearrange(input.dims().unwrap_or_default(), &[size, size], &margins)?;
            s.output(0, dims)
        }
        Some(margins) => bail!(InvalidArgument, "expected 4 margins, got {}", margins.len()),
        None => {
            let depth = input.dims().map_or(UNKNOWN_DIM, |dims| dims[3]);
            s.output(0, [UNKNOWN_DIM, UNKNOWN_DIM, UNKNOWN_DIM, depth])
        }
    }
}

fn space_to_batch_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    square_block_shape(s, blocks_to_batch)
}

fn space_to_batch_nd_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    block_shape(s, blocks_to_batch)
}

fn batch_to_space_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    square_block_shape(s, batch_to_blocks)
}

fn batch_to_space_nd_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    block_shape(s, batch_to_blocks)
}

/// The block that an input or the attribute `block_size` gives, and the margins of the last input.
fn block_and_margins(cx: &KernelCx<'_>, square: Option<i64>, what: &str) -> Result<(Ints, Ints)> {
    let input = cx.input(0)?.shape();
    let margins_input = cx.num_inputs() - 1;
    let block: Ints = match square {
        Some(size) => {
            ensure!(
                input.rank() == 4,
                InvalidArgument,
                "Input rank should be: 4instead of: {}",
                input.rank()
            );
            [size, size].into_iter().collect()
        }
        None => {
            let block = cx.input(1)?;
            ensure!(
                block.rank() == 1,
                InvalidArgument,
                "block_shape rank should be 1 instead of {}",
                block.rank()
            );
            input_ints(cx, 1)?
        }
    };
    ensure!(
        input.rank() > block.len(),
        InvalidArgument,
        "input rank should be >= {} instead of {}",
        block.len() + 1,
        input.rank()
    );
    let given = cx.input(margins_input)?.shape();
    ensure!(
        given.dims() == [block.len() as i64, 2],
        InvalidArgument,
        "{what} should have shape [{}, 2] instead of {given}",
        block.len()
    );
    Ok((block, input_ints(cx, margins_input)?))
}

fn space_to_batch_kernel(init: &Init<'_>) -> Result<Kernel> {
    let size: i64 = init.attr("block_size")?;
    Kernel::sync(move |cx| Ok(space_to_batch(cx, Some(size))?.into()))
}

fn space_to_batch_nd_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(space_to_batch(cx, None)?.into()))
}

fn space_to_batch(cx: &mut KernelCx<'_>, square: Option<i64>) -> Result<Tensor> {
    let (block, paddings) = block_and_margins(cx, square, "paddings")?;
    let input = cx.input(0)?;
    let dims = input.shape().dims();
    let shape = Shape::new(blocks_to_batch(dims, &block, &paddings)?)?;
    let mut padded_dims = Ints::from_slice(dims);
    for i in 0..block.len() {
        padded_dims[1 + i] += paddings[2 * i] + paddings[2 * i + 1];
    }
    let strides = row_major(&padded_dims);
    let mut padded = None;
    if padded_dims.as_slice() != dims {
        let offset = (0..block.len()).map(|i| paddings[2 * i] as isize * strides[1 + i]).sum();
        let layout =
            Layout::writing(offset, dims.iter().map(|dim| *dim as usize).zip(strides.iter().copied()));
        let mut space = cx.zeros(input.dtype(), Shape::new(padded_dims.iter().copied())?)?;
        copy(cx.threads(), &layout, input, &mut space)?;
        padded = Some(space);
    }
    // Output dimensions: the places within a block, the batch, the blocks, the rest.
    let mut steps: Vec<(usize, isize)> =
        (0..block.len()).map(|i| (block[i] as usize, strides[1 + i])).collect();
    steps.push((dims[0] as usize, strides[0]));
    steps.extend((0..block.len()).map(|i| (shape.dim(1 + i), strides[1 + i] * block[i] as isize)));
    steps.extend((1 + block.len()..dims.len()).map(|i| (dims[i] as usize, strides[i])));
    let mut out = cx.alloc_dtype(input.dtype(), shape)?;
    copy(cx.threads(), &Layout::reading(0, steps), padded.as_ref().unwrap_or(input), &mut out)?;
    Ok(out)
}

fn batch_to_space_kernel(init: &Init<'_>) -> Result<Kernel> {
    let size: i64 = init.attr("block_size")?;
    Kernel::sync(move |cx| Ok(batch_to_space(cx, Some(size))?.into()))
}

fn batch_to_space_nd_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(batch_to_space(cx, None)?.into()))
}

fn batch_to_space(cx: &mut KernelCx<'_>, square: Option<i64>) -> Result<Tensor> {
    let (block, crops) = block_and_margins(cx, square, "crops")?;
    let input = cx.input(0)?;
    let dims = input.shape().dims();
    let shape = Shape::new(batch_to_blocks(dims, &block, &crops)?)?;
    let mut whole_dims = Ints::from_slice(dims);
    whole_dims[0] = shape[0];
    for i in 0..block.len() {
        whole_dims[1 + i] = dims[1 + i].saturating_mul(block[i]);
    }
    let whole = Shape::new(whole_dims)?;
    let strides = row_major(&whole);
    // Input dimensions: the places within a block, the batch, the blocks, the rest.
    let mut steps: Vec<(usize, isize)> =
        (0..block.len()).map(|i| (block[i] as usize, strides[1 + i])).collect();
    steps.push((whole.dim(0), strides[0]));
    steps.extend((0..block.len()).map(|i| (dims[1 + i] as usize, strides[1 + i] * block[i] as isize)));
    steps.extend((1 + block.len()..dims.len()).map(|i| (dims[i] as usize, strides[i])));
    let mut out = cx.alloc_dtype(input.dtype(), whole.clone())?;
    copy(cx.threads(), &Layout::writing(0, steps), input, &mut out)?;
    if shape == whole {
        return Ok(out);
    }
    let offset = (0..block.len()).map(|i| crops[2 * i] as isize * strides[1 + i]).sum();
    let mut cropped = cx.alloc_dtype(input.dtype(), shape.clone())?;
    let layout = Layout::reading(offset, shape.iter().map(|dim| *dim as usize).zip(strides));
    copy(cx.threads(), &layout, &out, &mut cropped)?;
    Ok(cropped)
}

fn space_to_depth_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    depth_shape(
        s,
        |size, dim| if dim % size == 0 { Some(dim / size) } else { None },
        |size, depth| Some(depth.saturating_mul(size * size)),
    )
}

fn depth_to_space_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    depth_shape(
        s,
        |size, dim| Some(dim.saturating_mul(size)),
        |size, depth| {
            if depth % (size * size) == 0 { Some(depth / (size * size)) } else { None }
        },
    )
}

fn depth_shape(
    s: &mut ShapeCx<'_>,
    space: fn(i64, i64) -> Option<i64>,
    depth: fn(i64, i64) -> Option<i64>,
) -> Result<()> {
    let format: String = s.attr("data_format")?;
    let size = s.attr::<i64>("block_size")?.min(1 << 20);
    // The packed format has a fifth dimension of four channels.
    let (rank, first, last) = match format.as_str() {
        "NHWC" => (4, 1, 3),
        "NCHW" => (4, 2, 1),
        _ => (5, 2, 1),
    };
    let input = s.rank(0, rank)?;
    let mut dims = input.dims().unwrap_or_default().to_vec();
    for i in [first, first + 1, last] {
        if dims[i] == UNKNOWN_DIM {
            continue;
        }
        let change = if i == last { depth } else { space };
        dims[i] = match change(size, dims[i]) {
            Some(dim) => dim,
            None => bail!(
                InvalidArgument,
                "Dimension size must be evenly divisible by the block, but dimension {i} is {}",
                dims[i]
            ),
        };
    }
    s.output(0, dims)
}

fn depth_block(init: &Init<'_>) -> Result<i64> {
    let size: i64 = init.attr("block_size")?;
    ensure!(
        size <= 1 << 20,
        InvalidArgument,
        "Block size should be smaller than {}, but was {size}",
        1 << 20
    );
    Ok(size)
}

fn image(shape: &Shape) -> Result<[i64; 4]> {
    match shape.dims().try_into() {
        Ok(dims) => Ok(dims),
        Err(_) => bail!(InvalidArgument, "Input rank should be 4 instead of {}", shape.rank()),
    }
}

fn space_to_depth_kernel(init: &Init<'_>) -> Result<Kernel> {
    let size = depth_block(init)?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let [batch, height, width, depth] = image(input.shape())?;
        ensure!(
            height % size == 0 && width % size == 0,
            InvalidArgument,
            "Image width {width} and height {height} should be divisible by block_size: {size}"
        );
        let shape = Shape::new([batch, height / size, width / size, depth.saturating_mul(size * size)])?;
        let (pixel, row) = (depth, width * depth);
        let steps = [
            (batch, height * row),
            (height / size, size * row),
            (width / size, size * pixel),
            (size, row),
            (size, pixel),
            (depth, 1),
        ];
        rearrange(cx, input, shape, steps)
    })
}

fn depth_to_space_kernel(init: &Init<'_>) -> Result<Kernel> {
    let size = depth_block(init)?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let [batch, height, width, depth] = image(input.shape())?;
        ensure!(
            depth % (size * size) == 0,
            InvalidArgument,
            "Input depth dimension {depth} should be divisible by: {}",
            size * size
        );
        let out_depth = depth / (size * size);
        let shape = Shape::new([batch, height.saturating_mul(size), width.saturating_mul(size), out_depth])?;
        let row = width * depth;
        let steps = [
            (batch, height * row),
            (height, row),
            (size, size * out_depth),
            (width, depth),
            (size, out_depth),
            (out_depth, 1),
        ];
        rearrange(cx, input, shape, steps)
    })
}

fn rearrange(
    cx: &KernelCx<'_>,
    input: &Tensor,
    shape: Shape,
    steps: [(i64, i64); 6],
) -> Result<ferroflow_core::kernel::Outputs> {
    let mut out = cx.alloc_dtype(input.dtype(), shape)?;
    let steps = steps.map(|(count, stride)| (count as usize, stride as isize));
    copy(cx.threads(), &Layout::reading(0, steps), input, &mut out)?;
    Ok(out.into())
}

fn space_to_batch_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(ops::batch_to_space(g.scope(), g.dy(0)?, g.input(1), g.attr("block_size")?)?), None].into())
}

fn batch_to_space_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(ops::space_to_batch(g.scope(), g.dy(0)?, g.input(1), g.attr("block_size")?)?), None].into())
}

fn space_to_batch_nd_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(ops::batch_to_space_nd(g.scope(), g.dy(0)?, g.input(1), g.input(2))?), None, None].into())
}

fn batch_to_space_nd_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(ops::space_to_batch_nd(g.scope(), g.dy(0)?, g.input(1), g.input(2))?), None, None].into())
}

fn space_to_depth_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = ops::DepthToSpace::new(g.attr::<i64>("block_size")?).data_format(&layout(g)?);
    Ok([node.build(g.scope(), g.dy(0)?)?].into())
}

fn depth_to_space_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = ops::SpaceToDepth::new(g.attr::<i64>("block_size")?).data_format(&layout(g)?);
    Ok([node.build(g.scope(), g.dy(0)?)?].into())
}

/// The order of dimensions, which must be one for floating-point numbers.
fn layout(g: &GradCx<'_>) -> Result<String> {
    let format: String = g.attr("data_format")?;
    ensure!(format != "NCHW_VECT_C", InvalidArgument, "NCHW_VECT_C is for qint8, which has no gradient");
    Ok(format)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer_err};
    use ferroflow_core::{Code, Shape, Tensor};

    #[test]
    fn shapes_follow_the_blocks() {
        Node::new("SpaceToDepth").attr("block_size", 2).infer("[1,4,6,3]", "[1,2,3,12]");
        Node::new("DepthToSpace").attr("block_size", 2).infer("[1,2,3,12]", "[1,4,6,3]");
        let paddings = Tensor::new(Shape::matrix(1, 2), vec![1i32, 1]).unwrap();
        Node::new("SpaceToBatchND")
            .constant(1, Tensor::vector(vec![3i32]))
            .constant(2, paddings)
            .infer("[2,4,?];[1];[1,2]", "[6,2,?]");
        infer_err("SpaceToBatchND", "[2,4];[1,1];[1,2]", Code::InvalidArgument);
    }
}
