//! Joining and cutting tensors along an axis.

use crate::builders as ops;
use crate::linalg::strided_copy::{Layout, copy};
use crate::support::gradient::{element, part, shape_output};
use crate::support::index::{Ints, axis, constant_int, constant_ints, input_ints, int_tensor};
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Grad, GradCx, Gradient, IndexedSlices, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{DType, PartialShape, Result, Shape, bail, ensure, kernels};
use std::ops::Range;

pub(crate) const OPS: &[&Op] =
    &[&CONCAT, &CONCAT_V2, &CONCAT_OFFSET, &PACK, &PARALLEL_CONCAT, &UNPACK, &SPLIT, &SPLIT_V];

static CONCAT: Op = Op {
    name: "Concat",
    gradient: Gradient::Fn(concat_grad),
    inputs: &["concat_dim: int32", "values: N * T"],
    outputs: &["output: T"],
    attrs: &["N: int >= 2", "T: type"],
    shape: concat_shape,
    kernels: kernels![any concat_kernel],
    ..Op::PURE
};

static CONCAT_V2: Op = Op {
    name: "ConcatV2",
    gradient: Gradient::Fn(concat_v2_grad),
    inputs: &["values: N * T", "axis: Tidx"],
    outputs: &["output: T"],
    attrs: &["N: int >= 2", "T: type", "Tidx: {int32, int64} = DT_INT32"],
    shape: concat_v2_shape,
    kernels: kernels![any concat_v2_kernel],
    ..Op::PURE
};

static CONCAT_OFFSET: Op = Op {
    name: "ConcatOffset",
    gradient: Gradient::Stop,
    inputs: &["concat_dim: int32", "shape: N * shape_type"],
    outputs: &["offset: N * shape_type"],
    attrs: &["N: int >= 2", "shape_type: {int32, int64} = DT_INT32"],
    shape: concat_offset_shape,
    kernels: kernels![any concat_offset_kernel],
    cheap: true,
    ..Op::PURE
};

static PACK: Op = Op {
    name: "Pack",
    gradient: Gradient::Fn(pack_grad),
    inputs: &["values: N * T"],
    outputs: &["output: T"],
    attrs: &["N: int >= 1", "T: type", "axis: int = 0"],
    shape: pack_shape,
    kernels: kernels![any pack_kernel],
    ..Op::PURE
};

static PARALLEL_CONCAT: Op = Op {
    name: "ParallelConcat",
    inputs: &["values: N * T"],
    outputs: &["output: T"],
    attrs: &["N: int >= 1", "T: type", "shape: shape"],
    shape: parallel_concat_shape,
    kernels: kernels![any parallel_concat_kernel],
    ..Op::PURE
};

static UNPACK: Op = Op {
    name: "Unpack",
    gradient: Gradient::Fn(unpack_grad),
    inputs: &["value: T"],
    outputs: &["output: num * T"],
    attrs: &["num: int >= 0", "T: type", "axis: int = 0"],
    shape: unpack_shape,
    kernels: kernels![any unpack_kernel],
    ..Op::PURE
};

static SPLIT: Op = Op {
    name: "Split",
    gradient: Gradient::Fn(split_grad),
    inputs: &["split_dim: int32", "value: T"],
    outputs: &["output: num_split * T"],
    attrs: &["num_split: int >= 1", "T: type"],
    shape: split_shape,
    kernels: kernels![any split_kernel],
    ..Op::PURE
};

static SPLIT_V: Op = Op {
    name: "SplitV",
    gradient: Gradient::Fn(split_v_grad),
    inputs: &["value: T", "size_splits: Tlen", "split_dim: int32"],
    outputs: &["output: num_split * T"],
    attrs: &["num_split: int >= 1", "T: type", "Tlen: {int8, int32, int64} = DT_INT64"],
    shape: split_v_shape,
    kernels: kernels![any split_v_kernel],
    ..Op::PURE
};

fn concat_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    join_shape(s, 0, 1..s.num_inputs())
}

fn concat_v2_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    join_shape(s, s.num_inputs() - 1, 0..s.num_inputs() - 1)
}

fn join_shape(s: &mut ShapeCx<'_>, axis_input: usize, values: Range<usize>) -> Result<()> {
    s.rank_at_most(axis_input, 1)?;
    let rank = values.clone().find_map(|input| s.input(input).rank());
    let Some(rank) = rank else { return Ok(()) };
    ensure!(rank > 0, InvalidArgument, "Can't concatenate scalars (use tf.stack instead)");
    let Some(value) = constant_int(s, axis_input)? else {
        for input in values {
            s.rank(input, rank)?;
        }
        return s.output(0, std::iter::repeat_n(UNKNOWN_DIM, rank));
    };
    let Some(at) = axis(value, rank) else {
        bail!(
            InvalidArgument,
            "ConcatOp : Expected concatenating dimensions in the range [{}, {rank}), but got {value}",
            -(rank as i64)
        )
    };
    let mut dims = vec![UNKNOWN_DIM; rank];
    dims[at] = 0;
    for input in values {
        let shape = s.rank(input, rank)?;
        for (i, &dim) in shape.dims().unwrap_or_default().iter().enumerate() {
            dims[i] = match (i == at, dims[i], dim) {
                (true, UNKNOWN_DIM, _) | (true, _, UNKNOWN_DIM) => UNKNOWN_DIM,
                (true, sum, dim) => sum.saturating_add(dim),
                (false, known, dim) => s.merge_dims(known, dim)?,
            };
        }
    }
    s.output(0, dims)
}

fn concat_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| join(cx, 0, 1..cx.num_inputs(), "concat_dim"))
}

fn concat_v2_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| join(cx, cx.num_inputs() - 1, 0..cx.num_inputs() - 1, "axis"))
}

fn join(
    cx: &mut KernelCx<'_>,
    axis_input: usize,
    values: Range<usize>,
    name: &str,
) -> Result<ferroflow_core::kernel::Outputs> {
    let [value] = input_ints(cx, axis_input)?[..] else {
        bail!(
            InvalidArgument,
            "{name} tensor should be a scalar integer, but got shape {}",
            cx.input(axis_input)?.shape()
        )
    };
    let first = cx.input(values.start)?;
    let rank = first.rank();
    ensure!(rank > 0, InvalidArgument, "ConcatOp : Can't concatenate scalars (use tf.stack instead)");
    let Some(at) = axis(value, rank) else {
        bail!(
            InvalidArgument,
            "ConcatOp : Expected concatenating dimensions in the range [{}, {rank}), but got {value}",
            -(rank as i64)
        )
    };
    let mut dims = Ints::from_slice(first.shape());
    for (number, input) in values.clone().enumerate().skip(1) {
        let shape = cx.input(input)?.shape();
        ensure!(
            shape.rank() > 0,
            InvalidArgument,
            "ConcatOp : Can't concatenate scalars (use tf.stack instead)"
        );
        ensure!(
            shape.rank() == rank,
            InvalidArgument,
            "ConcatOp : Ranks of all input tensors should match: shape[0] = {} vs. shape[{number}] = {shape}",
            first.shape()
        );
        let differs = (0..rank).find(|i| *i != at && shape[*i] != first.shape()[*i]);
        if let Some(differs) = differs {
            bail!(
                InvalidArgument,
                "ConcatOp : Dimension {differs} in both shapes must be equal: shape[0] = {} vs. shape[{number}] = {shape}",
                first.shape()
            );
        }
        dims[at] = dims[at].saturating_add(shape[at]);
    }
    let dtype = first.dtype();
    let shape = Shape::new(dims)?;
    // If all others are empty, the one that is not is the result.
    let elements = shape.elements();
    let sole =
        values.clone().find(|input| cx.input(*input).is_ok_and(|tensor| tensor.elements() == elements));
    if let Some(sole) = sole {
        return Ok(cx.take(sole)?.reshaped(shape)?.into());
    }
    let outer = shape[..at].iter().product::<i64>() as usize;
    let width = elements / outer.max(1);
    let mut out = cx.alloc_dtype(dtype, shape)?;
    let mut offset = 0;
    for input in values {
        let part = cx.input(input)?;
        let part_width = part.elements() / outer.max(1);
        let layout = Layout::writing(offset as isize, [(outer, width as isize), (part_width, 1)]);
        copy(cx.threads(), &layout, part, &mut out)?;
        offset += part_width;
    }
    Ok(out.into())
}

fn concat_offset_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    for i in 1..s.num_inputs() {
        s.set(i - 1, s.input(i));
    }
    Ok(())
}

fn concat_offset_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("shape_type")?;
    Kernel::sync(move |cx| {
        let dim = cx.input(0)?;
        ensure!(
            dim.rank() == 0,
            InvalidArgument,
            "Concat dim tensor should be a scalar integer, but got shape {}",
            dim.shape()
        );
        let value = cx.scalar_i64(0)?;
        let first = input_ints(cx, 1)?;
        let rank = first.len();
        let Some(at) = axis(value, rank) else {
            bail!(InvalidArgument, "Concat dim is out of range: {value} vs. {rank}")
        };
        let mut offsets = Vec::with_capacity(cx.num_inputs() - 1);
        let mut offset = 0;
        for i in 1..cx.num_inputs() {
            let tensor = cx.input(i)?;
            ensure!(
                tensor.rank() == 1,
                InvalidArgument,
                "input {} should be a vector, but got shape {}",
                i - 1,
                tensor.shape()
            );
            let dims = input_ints(cx, i)?;
            ensure!(
                dims.len() == rank,
                InvalidArgument,
                "input {} should contain {rank} elements, but got {}",
                i - 1,
                dims.len()
            );
            let text = |dims: &[i64]| dims.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
            ensure!(
                (0..rank).all(|d| d == at || dims[d] == first[d]),
                InvalidArgument,
                "All dimensions except {at} must match. Input {} has shape [{}] and doesn't match input 0 with shape [{}].",
                i - 1,
                text(&dims),
                text(&first)
            );
            let places = (0..rank).map(|d| if d == at { offset } else { 0 });
            offsets.push(int_tensor(dtype, Shape::vector(rank), places)?);
            offset += dims[at];
        }
        Ok(offsets.into())
    })
}

fn packed_axis(value: i64, rank: usize) -> Result<usize> {
    match axis(value, rank + 1) {
        Some(at) => Ok(at),
        None => bail!(InvalidArgument, "axis = {value} not in [{}, {})", -(rank as i64 + 1), rank + 1),
    }
}

fn pack_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let mut shape = s.input(0);
    for i in 1..s.num_inputs() {
        shape = s.merge(&shape, &s.input(i))?;
    }
    s.set_handles(0, s.handles(0).to_vec());
    let Some(dims) = shape.dims() else { return Ok(()) };
    let at = packed_axis(s.attr("axis")?, dims.len())?;
    let count = s.num_inputs() as i64;
    s.output(0, dims[..at].iter().copied().chain([count]).chain(dims[at..].iter().copied()))
}

fn pack_kernel(init: &Init<'_>) -> Result<Kernel> {
    let value: i64 = init.attr("axis")?;
    Kernel::sync(move |cx| {
        let count = cx.num_inputs();
        let first = cx.input(0)?.shape();
        for i in 1..count {
            let shape = cx.input(i)?.shape();
            ensure!(
                shape == first,
                InvalidArgument,
                "Shapes of all inputs must match: values[0].shape = {first} != values[{i}].shape = {shape}"
            );
        }
        let at = packed_axis(value, first.rank())?;
        let shape =
            Shape::new(first[..at].iter().copied().chain([count as i64]).chain(first[at..].iter().copied()))?;
        if count == 1 {
            return Ok(cx.take(0)?.reshaped(shape)?.into());
        }
        let dtype = cx.input(0)?.dtype();
        let outer = first[..at].iter().product::<i64>() as usize;
        let part = first[at..].iter().product::<i64>() as usize;
        let scalars = outer * part == 1;
        let mut out = cx.alloc_dtype(dtype, shape)?;
        if scalars {
            by_unit!(dtype, U => {
                let units = out.units_mut::<U>()?;
                for (i, unit) in units.iter_mut().enumerate() {
                    unit.clone_from(&cx.input(i)?.units::<U>()?[0]);
                }
            });
            return Ok(out.into());
        }
        for i in 0..count {
            let layout = Layout::writing((i * part) as isize, [(outer, (count * part) as isize), (part, 1)]);
            copy(cx.threads(), &layout, cx.input(i)?, &mut out)?;
        }
        Ok(out.into())
    })
}

fn parallel_concat_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape: PartialShape = s.attr("shape")?;
    ensure!(shape.to_shape().is_some(), InvalidArgument, "shape attr must be fully defined.");
    s.set(0, shape);
    Ok(())
}

/// Stock rewrites this op into a buffer and one update per input; joining along the first dimension is the same.
fn parallel_concat_kernel(init: &Init<'_>) -> Result<Kernel> {
    let shape: Shape = init.attr("shape")?;
    Kernel::sync(move |cx| {
        let mut out = cx.alloc_dtype(cx.input(0)?.dtype(), shape.clone())?;
        let mut offset = 0;
        for i in 0..cx.num_inputs() {
            let part = cx.input(i)?;
            ensure!(
                part.rank() > 0 && shape.rank() > 0 && part.shape()[1..] == shape[1..],
                InvalidArgument,
                "All input shapes must be [1,...] and match the output shape {shape}; input {i} has shape {}",
                part.shape()
            );
            ensure!(
                offset + part.elements() <= out.elements(),
                InvalidArgument,
                "the inputs have more elements than the output shape {shape}"
            );
            copy(cx.threads(), &Layout::writing(offset as isize, [(part.elements(), 1)]), part, &mut out)?;
            offset += part.elements();
        }
        ensure!(
            offset == out.elements(),
            InvalidArgument,
            "the inputs have fewer elements than the output shape {shape}"
        );
        Ok(out.into())
    })
}

fn unpack_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    let at = unpacked_axis(s.attr("axis")?, dims.len())?;
    let count = s.num_outputs() as i64;
    s.merge_dims(dims[at], count)?;
    for output in 0..s.num_outputs() {
        s.output(output, dims[..at].iter().chain(&dims[at + 1..]).copied())?;
        s.set_handles(output, s.handles(0).to_vec());
    }
    Ok(())
}

fn unpacked_axis(value: i64, rank: usize) -> Result<usize> {
    match axis(value, rank) {
        Some(at) => Ok(at),
        None => bail!(InvalidArgument, "axis = {value} not in [{}, {rank})", -(rank as i64)),
    }
}

fn unpack_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (value, count): (i64, usize) = (init.attr("axis")?, init.attr("num")?);
    Kernel::sync(move |cx| {
        let shape = cx.input(0)?.shape();
        let at = unpacked_axis(value, shape.rank())?;
        ensure!(
            shape.dim(at) == count,
            InvalidArgument,
            "Input shape axis {at} must equal {count}, got shape {shape}"
        );
        let part = Shape::new(shape[..at].iter().chain(&shape[at + 1..]).copied())?;
        cut(cx, 0, at, (0..count).map(|_| (1, part.clone())).collect())
    })
}

/// Cuts an input along an axis into parts of this many steps and of these shapes.
fn cut(
    cx: &mut KernelCx<'_>,
    input: usize,
    at: usize,
    parts: Vec<(usize, Shape)>,
) -> Result<ferroflow_core::kernel::Outputs> {
    if let [(_, shape)] = parts.as_slice() {
        let shape = shape.clone();
        return Ok(vec![cx.take(input)?.reshaped(shape)?].into());
    }
    let tensor = cx.input(input)?;
    let dims = tensor.shape().dims();
    let outer = dims[..at].iter().product::<i64>() as usize;
    let inner = dims[at + 1..].iter().product::<i64>() as usize;
    let width = dims[at] as usize * inner;
    let mut offset = 0;
    let mut outputs = Vec::with_capacity(parts.len());
    for (steps, shape) in parts {
        let mut out = cx.alloc_dtype(tensor.dtype(), shape)?;
        let layout = Layout::reading(offset as isize, [(outer, width as isize), (steps * inner, 1)]);
        copy(cx.threads(), &layout, tensor, &mut out)?;
        outputs.push(out);
        offset += steps * inner;
    }
    Ok(outputs.into())
}

fn with_dim(shape: &Shape, at: usize, dim: i64) -> Result<Shape> {
    Shape::new(shape.iter().enumerate().map(|(i, have)| if i == at { dim } else { *have }))
}

fn split_axis(cx: &KernelCx<'_>, input: usize, rank: usize) -> Result<usize> {
    let value = input_ints(cx, input)?[0];
    match axis(value, rank) {
        Some(at) => Ok(at),
        None => {
            bail!(InvalidArgument, "-input rank(-{rank}) <= split_dim < input rank ({rank}), but got {value}")
        }
    }
}

fn split_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let count = s.num_outputs() as i64;
    let input = s.input(1);
    let Some(dims) = input.dims() else { return Ok(()) };
    let mut dims = dims.to_vec();
    match constant_int(s, 0)? {
        None => dims.fill(UNKNOWN_DIM),
        Some(value) => {
            let Some(at) = axis(value, dims.len()) else {
                bail!(
                    InvalidArgument,
                    "-input rank(-{0}) <= split_dim < input rank ({0}), but got {value}",
                    dims.len()
                )
            };
            if dims[at] != UNKNOWN_DIM {
                ensure!(
                    dims[at] % count == 0,
                    InvalidArgument,
                    "Number of ways to split should evenly divide the split dimension, but got split_dim {at} (size = {}) and num_split {count}",
                    dims[at]
                );
                dims[at] /= count;
            }
        }
    }
    for output in 0..s.num_outputs() {
        s.output(output, dims.iter().copied())?;
    }
    Ok(())
}

fn split_kernel(init: &Init<'_>) -> Result<Kernel> {
    let count: usize = init.attr("num_split")?;
    Kernel::sync(move |cx| {
        let shape = cx.input(1)?.shape();
        let axis = cx.input(0)?;
        ensure!(axis.rank() == 0, InvalidArgument, "split_dim must be a scalar but has rank {}", axis.rank());
        let at = split_axis(cx, 0, shape.rank())?;
        let size = shape.dim(at);
        ensure!(
            size % count == 0,
            InvalidArgument,
            "Number of ways to split should evenly divide the split dimension, but got split_dim {at} (size = {size}) and num_split {count}"
        );
        let part = with_dim(shape, at, (size / count) as i64)?;
        cut(cx, 1, at, (0..count).map(|_| (size / count, part.clone())).collect())
    })
}

fn split_v_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    let (value, sizes) = (constant_int(s, 2)?, constant_ints(s, 1)?);
    for output in 0..s.num_outputs() {
        let mut dims = dims.to_vec();
        match value {
            None => dims.fill(UNKNOWN_DIM),
            Some(value) => {
                let Some(at) = axis(value, dims.len()) else {
                    bail!(
                        InvalidArgument,
                        "-input rank(-{0}) <= split_dim < input rank ({0}), but got {value}",
                        dims.len()
                    )
                };
                dims[at] = match &sizes {
                    Some(sizes) => {
                        let sizes = complete(sizes, s.num_outputs(), dims[at])?;
                        sizes[output]
                    }
                    None if s.num_outputs() == 1 => dims[at],
                    None => UNKNOWN_DIM,
                };
            }
        }
        s.output(output, dims)?;
    }
    Ok(())
}

/// The sizes of parts, with the one that stands for the rest filled in if the whole is known.
fn complete(sizes: &[i64], count: usize, whole: i64) -> Result<Ints> {
    ensure!(
        sizes.len() == count,
        InvalidArgument,
        "size of the split_tensor must be 1-D and have the same elements as outputs got 1 -D and {} elements",
        sizes.len()
    );
    // The rest of nothing is not worked out by stock, either.
    ensure!(
        count > 1 || whole == UNKNOWN_DIM || sizes[0] == whole,
        InvalidArgument,
        "If there is only one output, it must have the same size as the input. Input size: {whole} output size: {}",
        sizes[0]
    );
    let mut out = Ints::from_slice(sizes);
    let mut rest = None;
    let mut sum: i64 = 0;
    for (i, &size) in sizes.iter().enumerate() {
        if size == -1 {
            ensure!(rest.is_none(), InvalidArgument, "There can only be one -1 in the input.");
            rest = Some(i);
        } else {
            sum = sum.saturating_add(size);
        }
    }
    if whole == UNKNOWN_DIM {
        for size in out.iter_mut() {
            *size = (*size).max(UNKNOWN_DIM);
        }
        return Ok(out);
    }
    ensure!(
        sum == whole || (rest.is_some() && sum < whole),
        InvalidArgument,
        "Determined shape must either match input shape along split_dim exactly if fully specified, or be less than the size of the input along split_dim if not fully specified.  Got: {sum}"
    );
    if let Some(rest) = rest {
        out[rest] = whole - sum;
    }
    if let Some((i, size)) = out.iter().enumerate().find(|(_, size)| **size < 0) {
        bail!(InvalidArgument, "Split size at index {i} must be >= 0. Got: {size}");
    }
    Ok(out)
}

fn split_v_kernel(init: &Init<'_>) -> Result<Kernel> {
    let count: usize = init.attr("num_split")?;
    Kernel::sync(move |cx| {
        let shape = cx.input(0)?.shape();
        // A vector of one axis will do, as in stock.
        ensure!(
            cx.input(2)?.elements() == 1,
            InvalidArgument,
            "split_dim_tensor must have exactly one element."
        );
        let at = split_axis(cx, 2, shape.rank())?;
        let splits = cx.input(1)?;
        ensure!(
            splits.rank() == 1 && splits.elements() == count,
            InvalidArgument,
            "size of the split_tensor must be 1-D and have the same elements as outputs got {} -D and {} elements",
            splits.rank(),
            splits.elements()
        );
        let sizes = complete(&input_ints(cx, 1)?, count, shape[at])?;
        let parts: Result<Vec<(usize, Shape)>> =
            sizes.iter().map(|size| Ok((*size as usize, with_dim(shape, at, *size)?))).collect();
        cut(cx, 0, at, parts?)
    })
}

fn pack_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let unpack = ops::Unpack::new(g.attr::<i64>("N")?).axis(g.attr("axis")?);
    Ok(unpack.build(g.scope(), g.dy(0)?)?.into())
}

fn unpack_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let dys = (0..g.num_outputs()).map(|output| g.dy(output)).collect::<Result<Vec<_>>>()?;
    Ok([ops::Pack::new().axis(g.attr("axis")?).build(g.scope(), dys)?].into())
}

/// The gradients of a split's parts, joined.
fn joined(g: &GradCx<'_>, axis: &Output) -> Result<Output> {
    let mut dys = (0..g.num_outputs()).map(|output| g.dy(output)).collect::<Result<Vec<_>>>()?;
    match dys.len() {
        1 => Ok(dys.remove(0)),
        _ => ops::concat_v2(g.scope(), dys, axis),
    }
}

fn split_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([None, Some(joined(g, g.input(0))?)].into())
}

fn split_v_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(joined(g, g.input(2))?), None, None].into())
}

fn concat_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let mut grads = parts_of(g, g.input(0), &g.inputs()[1..])?;
    grads.insert(0, None);
    Ok(InputGrads(grads))
}

fn concat_v2_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let last = g.num_inputs() - 1;
    let mut grads = parts_of(g, g.input(last), &g.inputs()[..last])?;
    grads.push(None);
    Ok(InputGrads(grads))
}

/// Each part gets the rows that are its own.
fn rows_apart(s: &Scope, rows: &IndexedSlices, sizes: Vec<Output>) -> Result<Vec<Option<Grad>>> {
    let (indices, dtype) = (&rows.indices, rows.indices.dtype());
    let mut start = ops::zeros_like(s, ops::cast(s, element(s, &sizes[0], 0), dtype))?;
    let mut grads = Vec::with_capacity(sizes.len());
    for size in sizes {
        let end = ops::add_v2(s, &start, ops::cast(s, element(s, &size, 0), dtype))?;
        let own = ops::logical_and(s, ops::greater_equal(s, indices, &start), ops::less(s, indices, &end));
        let own = ops::Squeeze::new().squeeze_dims([1]).build(s, ops::where_(s, own))?;
        let indices = ops::sub(s, ops::gather_v2(s, indices, &own, 0), start)?;
        let values = ops::gather_v2(s, &rows.values, own, 0)?;
        grads.push(Some(IndexedSlices { values, indices, dense_shape: Some(size) }.into()));
        start = end;
    }
    Ok(grads)
}

/// Each part gets its columns of every row.
fn rows_cut(s: &Scope, rows: &IndexedSlices, axis: &Output, sizes: Vec<Output>) -> Result<Vec<Option<Grad>>> {
    let offsets = ops::concat_offset(s, axis, &sizes)?;
    let cut = |(offset, size): (Output, Output)| {
        let whole = ops::concat_v2(s, [&s.constant([-1i32])?, &part(s, &size, 1, None)?], 0);
        let values = ops::slice(s, &rows.values, offset, whole)?;
        Ok(Some(IndexedSlices { values, indices: rows.indices.clone(), dense_shape: Some(size) }.into()))
    };
    offsets.into_iter().zip(sizes).map(cut).collect()
}

/// From this many parts on one `SplitV` cuts what arrives, as in stock.
const MANY_PARTS: usize = 17;

/// The gradient, cut into the parts that came from each value.
fn parts_of(g: &GradCx<'_>, axis: &Output, values: &[Output]) -> Result<Vec<Option<Grad>>> {
    let s = g.scope();
    let sizes = if values.iter().all(|value| value.shape().to_shape().is_some()) {
        values.iter().map(|value| shape_output(s, value)).collect::<Result<Vec<_>>>()?
    } else {
        ops::shape_n(s, values)?
    };
    let axis_value = axis.value();
    let axis = if axis.dtype() == DType::Int32 { axis.clone() } else { ops::cast(s, axis, DType::Int32)? };
    let axis = ops::floor_mod(s, axis, ops::rank(s, &values[0]))?;
    if let Some(Grad::Sparse(rows)) = g.grad(0) {
        let known = axis_value.and_then(|value| value.to_i64s().ok()?.first().copied());
        let known = match (known, values[0].shape().rank()) {
            (Some(axis), _) if axis >= 0 => axis,
            (Some(axis), Some(rank)) => axis + rank as i64,
            _ => bail!(InvalidArgument, "rows can only be cut along an axis that is known while building"),
        };
        return if known == 0 { rows_apart(s, rows, sizes) } else { rows_cut(s, rows, &axis, sizes) };
    }
    let dy = g.dy(0)?;
    let parts = if values.len() >= MANY_PARTS {
        let lengths =
            sizes.iter().map(|size| ops::gather_v2(s, size, &axis, 0)).collect::<Result<Vec<_>>>()?;
        ops::split_v(s, dy, ops::pack(s, lengths), &axis, values.len() as i64)?
    } else {
        let offsets = ops::concat_offset(s, axis, &sizes)?;
        let parts = offsets.iter().zip(&sizes).map(|(offset, size)| ops::slice(s, &dy, offset, size));
        parts.collect::<Result<_>>()?
    };
    Ok(parts.into_iter().map(|part| Some(part.into())).collect())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Tensor};

    #[test]
    fn shapes_follow_the_axis() {
        Node::new("ConcatV2").constant(2, Tensor::scalar(1i32)).infer("[2,3];[?,4];[]", "[2,7]");
        infer("ConcatV2", "[2,3];[?,4];[]", "[?,?]");
        infer("Pack", "[2,?];[2,3]", "[2,2,3]");
        infer_err("Pack", "[2];[3]", Code::InvalidArgument);
        Node::new("Split")
            .attr("num_split", 2)
            .constant(0, Tensor::scalar(1i32))
            .infer("[];[2,6]", "[2,3];[2,3]");
        Node::new("SplitV")
            .attr("num_split", 2)
            .constant(1, Tensor::vector(vec![1i64, -1]))
            .constant(2, Tensor::scalar(0i32))
            .infer("[5];[2];[]", "[1];[4]");
    }
}
