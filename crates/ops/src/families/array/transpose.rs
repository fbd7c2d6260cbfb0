//! Reordering dimensions and elements: Transpose, Reverse, Roll, InvertPermutation.

use crate::builders as ops;
use crate::linalg::strided_copy::{Layout, copy, row_major};
use crate::support::index::{Ints, axis, constant_ints, input_ints};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::{C64, C128, DType, Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] =
    &[&TRANSPOSE, &CONJUGATE_TRANSPOSE, &INVERT_PERMUTATION, &REVERSE, &REVERSE_V2, &REVERSE_SEQUENCE, &ROLL];

static TRANSPOSE: Op = Op {
    name: "Transpose",
    gradient: Gradient::Fn(transpose_grad),
    inputs: &["x: T", "perm: Tperm"],
    outputs: &["y: T"],
    attrs: &["T: type", "Tperm: {int32, int64} = DT_INT32"],
    shape: transpose_shape,
    kernels: kernels![any transpose_kernel],
    ..Op::PURE
};

static CONJUGATE_TRANSPOSE: Op = Op {
    name: "ConjugateTranspose",
    gradient: Gradient::Fn(conjugate_transpose_grad),
    inputs: &["x: T", "perm: Tperm"],
    outputs: &["y: T"],
    attrs: &["T: type", "Tperm: {int32, int64} = DT_INT32"],
    shape: transpose_shape,
    kernels: kernels![any conjugate_transpose_kernel],
    ..Op::PURE
};

static INVERT_PERMUTATION: Op = Op {
    name: "InvertPermutation",
    gradient: Gradient::Stop,
    inputs: &["x: T"],
    outputs: &["y: T"],
    attrs: &["T: {int32, int64} = DT_INT32"],
    shape: invert_permutation_shape,
    kernels: kernels![any invert_permutation_kernel],
    ..Op::PURE
};

static REVERSE: Op = Op {
    name: "Reverse",
    gradient: Gradient::Fn(reverse_grad),
    inputs: &["tensor: T", "dims: bool"],
    outputs: &["output: T"],
    attrs: &[
        "T: {uint8, int8, uint16, int16, uint32, int32, uint64, int64, bool, bfloat16, half, float, double, complex64, complex128, string}",
    ],
    shape: shapes::unchanged,
    kernels: kernels![any reverse_kernel],
    ..Op::PURE
};

static REVERSE_V2: Op = Op {
    name: "ReverseV2",
    gradient: Gradient::Fn(reverse_v2_grad),
    inputs: &["tensor: T", "axis: Tidx"],
    outputs: &["output: T"],
    attrs: &[
        "Tidx: {int32, int64} = DT_INT32",
        "T: {uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, bfloat16, half, float, double, complex64, complex128, string}",
    ],
    shape: reverse_v2_shape,
    kernels: kernels![any reverse_v2_kernel],
    ..Op::PURE
};

static REVERSE_SEQUENCE: Op = Op {
    name: "ReverseSequence",
    gradient: Gradient::Fn(reverse_sequence_grad),
    inputs: &["input: T", "seq_lengths: Tlen"],
    outputs: &["output: T"],
    attrs: &["seq_dim: int", "batch_dim: int = 0", "T: type", "Tlen: {int32, int64} = DT_INT64"],
    shape: reverse_sequence_shape,
    kernels: kernels![any reverse_sequence_kernel],
    ..Op::PURE
};

static ROLL: Op = Op {
    name: "Roll",
    gradient: Gradient::Fn(roll_grad),
    inputs: &["input: T", "shift: Tshift", "axis: Taxis"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tshift: {int32, int64}", "Taxis: {int32, int64}"],
    shape: shapes::unchanged,
    kernels: kernels![any roll_kernel],
    ..Op::PURE
};

/// The permutation counted from the front: a value per dimension, each dimension once.
fn permutation(values: &[i64], rank: usize) -> Result<Ints> {
    ensure!(
        values.len() == rank,
        InvalidArgument,
        "transpose expects a vector of size {rank}. But input(1) is a vector of size {}",
        values.len()
    );
    let mut perm = Ints::new();
    for value in values {
        match axis(*value, rank) {
            Some(at) => perm.push(at as i64),
            None => bail!(InvalidArgument, "{value} is out of range [0 .. {rank})"),
        }
    }
    if let Some(missing) = (0..rank as i64).find(|dim| !perm.contains(dim)) {
        let text: Vec<String> = values.iter().map(i64::to_string).collect();
        bail!(InvalidArgument, "{missing} is missing from {{{}}}.", text.join(","));
    }
    Ok(perm)
}

fn transpose_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let perm = s.rank(1, 1)?;
    let length = perm.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    let input = s.input(0);
    let rank = input.rank().map(|rank| rank as i64).unwrap_or(length);
    if rank == UNKNOWN_DIM {
        return Ok(());
    }
    s.merge_dims(rank, length)?;
    let dims = s.rank(0, rank as usize)?;
    let dims = dims.dims().unwrap_or_default();
    match constant_ints(s, 1)? {
        Some(perm) => {
            let perm = permutation(&perm, rank as usize)?;
            s.output(0, perm.iter().map(|from| dims[*from as usize]))
        }
        None if rank <= 1 => s.output(0, dims.iter().copied()),
        None => s.output(0, std::iter::repeat_n(UNKNOWN_DIM, rank as usize)),
    }
}

fn transpose(cx: &mut KernelCx<'_>) -> Result<Tensor> {
    let (input, perm) = (cx.input(0)?, cx.input(1)?);
    ensure!(perm.rank() == 1, InvalidArgument, "perm must be rank 1, got shape {}", perm.shape());
    let dims = input.shape().dims();
    let perm = permutation(&input_ints(cx, 1)?, dims.len())?;
    let shape = Shape::new(perm.iter().map(|from| dims[*from as usize]))?;
    // Dimensions of size one may go anywhere without anything moving.
    if perm.iter().filter(|from| dims[**from as usize] != 1).is_sorted() {
        return cx.take(0)?.reshaped(shape);
    }
    let strides = row_major(dims);
    let layout =
        Layout::reading(0, perm.iter().map(|from| (dims[*from as usize] as usize, strides[*from as usize])));
    let mut out = cx.alloc_dtype(input.dtype(), shape)?;
    copy(cx.threads(), &layout, input, &mut out)?;
    Ok(out)
}

fn transpose_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(transpose(cx)?.into()))
}

fn conjugate_transpose_kernel(init: &Init<'_>) -> Result<Kernel> {
    match init.attr::<DType>("T")? {
        DType::Complex64 => Kernel::sync(|cx| {
            let mut out = transpose(cx)?;
            for value in out.flat_mut::<C64>()?.iter_mut() {
                *value = value.conj();
            }
            Ok(out.into())
        }),
        DType::Complex128 => Kernel::sync(|cx| {
            let mut out = transpose(cx)?;
            for value in out.flat_mut::<C128>()?.iter_mut() {
                *value = value.conj();
            }
            Ok(out.into())
        }),
        _ => transpose_kernel(init),
    }
}

fn invert_permutation_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.rank(0, 1)?;
    s.set(0, shape);
    Ok(())
}

fn invert_permutation_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("T")?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        ensure!(input.rank() == 1, InvalidArgument, "invert_permutation expects a 1D vector.");
        let values = input_ints(cx, 0)?;
        let mut inverse = vec![-1i64; values.len()];
        for (i, &value) in values.iter().enumerate() {
            ensure!(
                (0..values.len() as i64).contains(&value),
                InvalidArgument,
                "{value} is not between 0 and {}",
                values.len()
            );
            ensure!(inverse[value as usize] == -1, InvalidArgument, "{value} is duplicated in the input.");
            inverse[value as usize] = i as i64;
        }
        Ok(crate::support::index::int_tensor(dtype, input.shape().clone(), inverse.into_iter())?.into())
    })
}

/// Input 0 with these dimensions read backwards.
fn reversed(cx: &mut KernelCx<'_>, backwards: &[bool]) -> Result<Outputs> {
    let input = cx.input(0)?;
    let dims = input.shape().dims();
    if dims.iter().zip(backwards).all(|(dim, backwards)| !backwards || *dim <= 1) || input.elements() == 0 {
        return Ok(cx.take(0)?.into());
    }
    let mut offset = 0;
    let mut steps = Vec::with_capacity(dims.len());
    for ((dim, stride), backwards) in dims.iter().zip(row_major(dims)).zip(backwards) {
        if *backwards {
            offset += (*dim as isize - 1) * stride;
        }
        steps.push((*dim as usize, if *backwards { -stride } else { stride }));
    }
    let mut out = cx.alloc_dtype(input.dtype(), input.shape().clone())?;
    copy(cx.threads(), &Layout::reading(offset, steps), input, &mut out)?;
    Ok(out.into())
}

fn reverse_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (rank, dims) = (cx.input(0)?.rank(), cx.input(1)?);
        if rank == 0 {
            // Stock passes scalars on without looking at the dimensions to reverse.
            return Ok(cx.take(0)?.into());
        }
        ensure!(dims.rank() == 1, InvalidArgument, "'dims' must be 1-dimension, not {}", dims.rank());
        ensure!(
            dims.elements() == rank,
            InvalidArgument,
            "'dims' must have the same number of values as 'input' has dimensions. 'input' has {rank}'dims' has {} values",
            dims.elements()
        );
        // The second version of the op takes these.
        ensure!(cx.input(0)?.shape()[0] != 0, InvalidArgument, "Invalid input first dimension. Found 0.");
        let backwards = cx.flat::<bool>(1)?.to_vec();
        reversed(cx, &backwards)
    })
}

/// The dimensions that `values` name.
fn named_dims(values: &[i64], rank: usize) -> Result<Vec<bool>> {
    let mut named = vec![false; rank];
    for (i, value) in values.iter().enumerate() {
        let Some(at) = axis(*value, rank) else {
            bail!(InvalidArgument, "'axis'[{i}] = {value} is out of valid range [0, {}", rank as i64 - 1)
        };
        ensure!(!named[at], InvalidArgument, "axis {at} specified more than once.");
        named[at] = true;
    }
    Ok(named)
}

fn reverse_v2_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(1, 1)?;
    if let (Some(rank), Some(values)) = (s.input(0).rank(), constant_ints(s, 1)?) {
        named_dims(&values, rank)?;
    }
    s.set(0, s.input(0));
    Ok(())
}

fn reverse_v2_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (rank, dims) = (cx.input(0)?.rank(), cx.input(1)?);
        if rank == 0 || cx.input(0)?.elements() == 0 {
            // Stock passes these on without looking at the axes.
            return Ok(cx.take(0)?.into());
        }
        ensure!(dims.rank() == 1, InvalidArgument, "'dims' must be 1-dimension, not {}", dims.rank());
        let named = named_dims(&input_ints(cx, 1)?, rank)?;
        reversed(cx, &named)
    })
}

fn reverse_sequence_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(1, 1)?;
    s.set(0, s.input(0));
    Ok(())
}

fn reverse_sequence_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (seq, batch): (i64, i64) = (init.attr("seq_dim")?, init.attr("batch_dim")?);
    Kernel::sync(move |cx| {
        let (input, lengths) = (cx.input(0)?, cx.input(1)?);
        let dims = input.shape().dims();
        let rank = dims.len() as i64;
        ensure!(lengths.rank() == 1, InvalidArgument, "seq_lengths must be 1-dim, not {}", lengths.rank());
        ensure!(batch != seq, InvalidArgument, "batch_dim == seq_dim == {seq}");
        ensure!(seq >= 0 && seq < rank, InvalidArgument, "seq_dim must be < input rank ( {seq} vs. {rank})");
        ensure!(
            batch >= 0 && batch < rank,
            InvalidArgument,
            "batch_dim must be < input rank ( {batch} vs. {rank})"
        );
        let (seq, batch) = (seq as usize, batch as usize);
        ensure!(
            lengths.elements() as i64 == dims[batch],
            InvalidArgument,
            "Length of seq_lengths != input.dims({batch}), ({} vs. {})",
            lengths.elements(),
            dims[batch]
        );
        let values = input_ints(cx, 1)?;
        for (i, value) in values.iter().enumerate() {
            ensure!(*value >= 0, InvalidArgument, "seq_lens({i}) < 0");
            ensure!(*value <= dims[seq], InvalidArgument, "seq_lens({i}) > input.dims({seq})");
        }
        let strides = row_major(dims);
        let mut out = cx.alloc_dtype(input.dtype(), input.shape().clone())?;
        for (i, value) in values.iter().enumerate() {
            let (length, start) = (*value as isize, i as isize * strides[batch]);
            // The first `length` steps are read backwards, the rest forwards.
            let after = start + length * strides[seq];
            let mut head = Layout::at(start + (length - 1) * strides[seq], start);
            let mut tail = Layout::at(after, after);
            for (d, &dim) in dims.iter().enumerate() {
                let stride = strides[d];
                if d == seq {
                    head.push(length as usize, -stride, stride);
                    tail.push(dim as usize - length as usize, stride, stride);
                } else if d != batch {
                    head.push(dim as usize, stride, stride);
                    tail.push(dim as usize, stride, stride);
                }
            }
            copy(cx.threads(), &head, input, &mut out)?;
            copy(cx.threads(), &tail, input, &mut out)?;
        }
        Ok(out.into())
    })
}

fn roll_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (input, shift, axes) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        let dims = input.shape().dims();
        ensure!(!dims.is_empty(), InvalidArgument, "input must be 1-D or higher");
        for (tensor, name) in [(shift, "shift"), (axes, "axis")] {
            ensure!(
                tensor.rank() <= 1,
                InvalidArgument,
                "{name} must be a scalar or a 1-D vector. Found: {}",
                tensor.shape()
            );
        }
        ensure!(shift.shape() == axes.shape(), InvalidArgument, "shift and axis must have the same size");
        let mut shifts = vec![0i64; dims.len()];
        for (shift, value) in input_ints(cx, 1)?.iter().zip(input_ints(cx, 2)?) {
            let Some(at) = axis(value, dims.len()) else {
                bail!(InvalidArgument, "axis {value} is out of range")
            };
            let dim = dims[at].max(1);
            shifts[at] = (shifts[at] + shift.rem_euclid(dim)) % dim;
        }
        if shifts.iter().all(|shift| *shift == 0) || input.elements() == 0 {
            return Ok(cx.take(0)?.into());
        }
        let strides = row_major(dims);
        let mut out = cx.alloc_dtype(input.dtype(), input.shape().clone())?;
        // Each shifted dimension falls into two parts, so the tensor falls into a box per choice of parts.
        let shifted: Vec<usize> = (0..dims.len()).filter(|i| shifts[*i] != 0).collect();
        for choice in 0..1u64 << shifted.len() {
            let (mut from, mut to) = (0, 0);
            let mut sizes: Vec<usize> = dims.iter().map(|dim| *dim as usize).collect();
            for (bit, &d) in shifted.iter().enumerate() {
                let (dim, shift) = (dims[d], shifts[d]);
                if choice >> bit & 1 == 0 {
                    sizes[d] = (dim - shift) as usize;
                    to += shift as isize * strides[d];
                } else {
                    sizes[d] = shift as usize;
                    from += (dim - shift) as isize * strides[d];
                }
            }
            let mut layout = Layout::at(from, to);
            for d in 0..dims.len() {
                layout.push(sizes[d], strides[d], strides[d]);
            }
            copy(cx.threads(), &layout, input, &mut out)?;
        }
        Ok(out.into())
    })
}

fn transpose_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, back) = (g.scope(), ops::invert_permutation(g.scope(), g.input(1)));
    Ok([Some(ops::transpose(s, g.dy(0)?, back)?), None].into())
}

fn conjugate_transpose_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, back) = (g.scope(), ops::invert_permutation(g.scope(), g.input(1)));
    Ok([Some(ops::conjugate_transpose(s, g.dy(0)?, back)?), None].into())
}

fn reverse_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(ops::reverse(g.scope(), g.dy(0)?, g.input(1))?), None].into())
}

fn reverse_v2_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(ops::reverse_v2(g.scope(), g.dy(0)?, g.input(1))?), None].into())
}

fn reverse_sequence_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = ops::ReverseSequence::new(g.attr::<i64>("seq_dim")?).batch_dim(g.attr("batch_dim")?);
    Ok([Some(node.build(g.scope(), g.dy(0)?, g.input(1))?), None].into())
}

fn roll_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    Ok([Some(ops::roll(s, g.dy(0)?, ops::neg(s, g.input(1)), g.input(2))?), None, None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Shape, Tensor};

    #[test]
    fn shapes_follow_the_permutation() {
        Node::new("Transpose").constant(1, Tensor::vector(vec![1i32, 0])).infer("[2,?];[2]", "[?,2]");
        infer("Transpose", "[2,3];[2]", "[?,?]");
        infer_err("Transpose", "[2,3];[3]", Code::InvalidArgument);
    }

    #[test]
    fn a_large_transpose_in_parallel_blocks() {
        let (rows, columns) = (1030usize, 701usize);
        let values: Vec<i32> = (0..(rows * columns) as i32).collect();
        let input = Tensor::new(Shape::matrix(rows, columns), values).unwrap();
        let out = Node::new("Transpose").run([input, Tensor::vector(vec![1i32, 0])]).unwrap();
        let flat = out[0].flat::<i32>().unwrap();
        for column in 0..columns {
            for row in 0..rows {
                assert_eq!(flat[column * rows + row], (row * columns + column) as i32);
            }
        }
    }
}
