//! Ragged tensors: values cut into rows by splits. Ranges as rows, rows by index, and the sparse form.

use crate::builders as ops;
use crate::linalg::gather::position;
use crate::numeric::{Float, Int, Num};
use crate::support::gradient::{part, shape_output};
use crate::support::index::int_tensor;
use crate::support::sparse::wide;
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{GradCx, Gradient, IndexedSlices, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Shape, Tensor, ensure, kernels, status};
use std::borrow::Cow;
use std::ops::Range;

pub(crate) const OPS: &[&Op] = &[&RAGGED_RANGE, &RAGGED_GATHER, &RAGGED_TENSOR_TO_SPARSE];

static RAGGED_RANGE: Op = Op {
    name: "RaggedRange",
    gradient: Gradient::Stop,
    inputs: &["starts: T", "limits: T", "deltas: T"],
    outputs: &["rt_nested_splits: Tsplits", "rt_dense_values: T"],
    attrs: &["T: {bfloat16, float, double, int32, int64} = DT_INT32", "Tsplits: {int32, int64} = DT_INT64"],
    shape: range_shape,
    kernels: kernels![int_range_kernel: i32, i64; float_range_kernel: f32, f64],
    ..Op::PURE
};

static RAGGED_GATHER: Op = Op {
    name: "RaggedGather",
    gradient: Gradient::Fn(gather_grad),
    inputs: &[
        "params_nested_splits: PARAMS_RAGGED_RANK * Tsplits",
        "params_dense_values: Tvalues",
        "indices: Tindices",
    ],
    outputs: &["output_nested_splits: OUTPUT_RAGGED_RANK * Tsplits", "output_dense_values: Tvalues"],
    attrs: &[
        "Tvalues: type",
        "Tindices: {int32, int64}",
        "Tsplits: {int32, int64} = DT_INT64",
        "PARAMS_RAGGED_RANK: int >= 1",
        "OUTPUT_RAGGED_RANK: int >= 0",
    ],
    shape: gather_shape,
    kernels: kernels![any gather_kernel],
    ..Op::PURE
};

static RAGGED_TENSOR_TO_SPARSE: Op = Op {
    name: "RaggedTensorToSparse",
    gradient: Gradient::Fn(to_sparse_grad),
    inputs: &["rt_nested_splits: RAGGED_RANK * Tsplits", "rt_dense_values: T"],
    outputs: &["sparse_indices: int64", "sparse_values: T", "sparse_dense_shape: int64"],
    attrs: &["RAGGED_RANK: int >= 1", "T: type", "Tsplits: {int32, int64} = DT_INT64"],
    shape: to_sparse_shape,
    kernels: kernels![any to_sparse_kernel],
    ..Op::PURE
};

fn range_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let mut rows = UNKNOWN_DIM;
    let mut scalars = 0;
    for input in 0..3 {
        match s.rank_at_most(input, 1)?.dims() {
            Some([length]) => rows = s.merge_dims(rows, *length)?,
            Some(_) => scalars += 1,
            None => {}
        }
    }
    let splits = if rows >= 0 {
        rows + 1
    } else if scalars == 3 {
        2
    } else {
        UNKNOWN_DIM
    };
    s.output(0, [splits])?;
    s.output(1, [UNKNOWN_DIM])
}

fn gather_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (from, to): (i64, i64) = (s.attr("PARAMS_RAGGED_RANK")?, s.attr("OUTPUT_RAGGED_RANK")?);
    let depth = usize::try_from(to - from + 1).map_err(|_| {
        status!(InvalidArgument, "OUTPUT_RAGGED_RANK {to} is too small for PARAMS_RAGGED_RANK {from}")
    })?;
    let values = from as usize;
    s.rank(values + 1, depth)?;
    for input in 0..values {
        s.rank(input, 1)?;
    }
    let inner = s.rank_at_least(values, 1)?;
    for output in 0..to as usize {
        s.output(output, [UNKNOWN_DIM])?;
    }
    if let Some(dims) = inner.dims() {
        s.output(to as usize, [UNKNOWN_DIM].into_iter().chain(dims[1..].iter().copied()))?;
    }
    Ok(())
}

fn to_sparse_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let ragged = s.attr::<i64>("RAGGED_RANK")? as usize;
    for input in 0..ragged {
        s.rank(input, 1)?;
    }
    let values = s.rank_at_least(ragged, 1)?;
    let rank = values.rank().map_or(UNKNOWN_DIM, |rank| (rank + ragged) as i64);
    let count = values.to_shape().map_or(UNKNOWN_DIM, |shape| shape.elements() as i64);
    s.output(0, [count, rank])?;
    s.output(1, [count])?;
    s.output(2, [rank])
}

fn int_range_kernel<T: Int>(init: &Init<'_>) -> Result<Kernel> {
    range_kernel::<T>(init, |start, limit, delta, most| {
        let length = start.to_i64().abs_diff(limit.to_i64()).div_ceil(delta.to_i64().unsigned_abs());
        i64::try_from(length).ok().filter(|length| *length <= most)
    })
}

fn float_range_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    range_kernel::<T>(init, |start, limit, delta, most| {
        let length = (limit.to_math() - start.to_math()) / delta.to_math();
        let length = num_traits::Float::ceil(num_traits::Float::abs(length));
        let length = crate::numeric::Real::to_f64(length);
        (length <= most as f64).then_some(length as i64)
    })
}

/// A kernel for ranges, of which `length` gives the length unless it is above a bound.
fn range_kernel<T: Num + PartialOrd>(
    init: &Init<'_>,
    length: fn(T, T, T, i64) -> Option<i64>,
) -> Result<Kernel> {
    let splits_type: DType = init.attr("Tsplits")?;
    let most = if splits_type == DType::Int64 { i64::MAX } else { i32::MAX as i64 };
    Kernel::sync(move |cx| {
        let mut rows = None;
        for (input, name) in ["starts", "limits", "deltas"].into_iter().enumerate() {
            let tensor = cx.input(input)?;
            ensure!(tensor.rank() <= 1, InvalidArgument, "{name} must be a scalar or vector");
            if tensor.rank() == 1 {
                ensure!(
                    *rows.get_or_insert(tensor.elements()) == tensor.elements(),
                    InvalidArgument,
                    "starts, limits, and deltas must have the same shape"
                );
            }
        }
        let rows = rows.unwrap_or(1);
        let at = |values: &[T], row: usize| if values.len() == 1 { values[0] } else { values[row] };
        let (starts, limits, deltas) = (cx.flat::<T>(0)?, cx.flat::<T>(1)?, cx.flat::<T>(2)?);
        let mut splits = Vec::with_capacity(rows + 1);
        let mut total = 0i64;
        splits.push(0);
        for row in 0..rows {
            let (start, limit, delta) = (at(starts, row), at(limits, row), at(deltas, row));
            ensure!(!delta.is_zero(), InvalidArgument, "Requires delta != 0");
            let none = if delta > T::ZERO { limit < start } else { delta < T::ZERO && limit > start };
            let size = if none { Some(0) } else { length(start, limit, delta, most) };
            let size =
                size.ok_or_else(|| status!(InvalidArgument, "Requires ((limit - start) / delta) <= {most}"))?;
            ensure!(
                size <= most - total,
                InvalidArgument,
                "The total range size overflowed. Consider using int64 instead of int32 for row_splits_dtype."
            );
            total += size;
            splits.push(total);
        }
        let mut values = cx.alloc::<T>(Shape::new([total])?)?;
        let mut rest = values.flat_mut::<T>()?;
        for row in 0..rows {
            let (head, later) = rest.split_at_mut((splits[row + 1] - splits[row]) as usize);
            let (mut value, delta) = (at(starts, row), at(deltas, row));
            for out in head {
                *out = value;
                value = value.add(delta);
            }
            rest = later;
        }
        Ok([int_tensor(splits_type, Shape::vector(rows + 1), splits.into_iter())?, values].into())
    })
}

fn gather_kernel(init: &Init<'_>) -> Result<Kernel> {
    let ragged = init.attr::<i64>("PARAMS_RAGGED_RANK")? as usize;
    let outputs = init.attr::<i64>("OUTPUT_RAGGED_RANK")? as usize;
    let splits_type: DType = init.attr("Tsplits")?;
    Kernel::sync(move |cx| {
        let (values, indices) = (cx.input(ragged)?, cx.input(ragged + 1)?);
        ensure!(
            indices.rank() + ragged == outputs + 1,
            InvalidArgument,
            "Shape must be rank {} but is rank {}",
            outputs + 1 - ragged.min(outputs + 1),
            indices.rank()
        );
        let splits = nested_splits(cx, ragged)?;
        ensure!(values.rank() > 0, InvalidArgument, "params.rank must be nonzero");
        let rows = cx.input(0)?.elements() as i64 - 1;
        let picked = wide(indices)?;
        for (at, index) in picked.iter().enumerate() {
            ensure!(
                (0..rows).contains(index),
                InvalidArgument,
                "indices{} = {index} is not in [0, {rows})",
                position(indices.shape(), at)
            );
        }
        check_nested(&splits, values.shape().dim(0))?;
        let (out, slices) = gathered_splits(cx, indices.shape(), &picked, &splits)?;
        let mut results = Vec::with_capacity(outputs + 1);
        for splits in out {
            results.push(int_tensor(splits_type, Shape::vector(splits.len()), splits.into_iter())?);
        }
        results.push(gathered_values(cx, values, &slices)?);
        Ok(results.into())
    })
}

/// The splits of a ragged tensor, which are the first inputs.
fn nested_splits<'a>(cx: &'a KernelCx<'_>, ragged: usize) -> Result<Vec<Cow<'a, [i64]>>> {
    (0..ragged)
        .map(|input| {
            let splits = cx.input(input)?;
            ensure!(splits.rank() > 0, InvalidArgument, "Split tensors must not be scalars");
            wide(splits)
        })
        .collect()
}

fn check_nested(splits: &[Cow<'_, [i64]>], values: usize) -> Result<()> {
    for (dim, inner) in splits.iter().enumerate() {
        let most = splits.get(dim + 1).map_or(values, |next| next.len().saturating_sub(1)) as i64;
        let (Some(first), Some(last)) = (inner.first(), inner.last()) else {
            return Err(status!(InvalidArgument, "Ragged splits may not be empty"));
        };
        ensure!(*first >= 0, InvalidArgument, "Ragged splits must be non-negative");
        ensure!(*last <= most, InvalidArgument, "Ragged splits must not point past values");
        ensure!(inner.is_sorted(), InvalidArgument, "Ragged splits must be sorted");
    }
    Ok(())
}

/// Splits by level, and the ranges of values that they cut.
type Gathered = (Vec<Vec<i64>>, Vec<Range<usize>>);

/// The splits of the rows that `picked` names, and the values of each.
fn gathered_splits(
    cx: &KernelCx<'_>,
    indices: &Shape,
    picked: &[i64],
    splits: &[Cow<'_, [i64]>],
) -> Result<Gathered> {
    let outer = indices.rank().saturating_sub(1);
    let mut out = vec![vec![0i64]; indices.rank() + splits.len() - 1];
    let mut rows = 1;
    for (dim, out) in out.iter_mut().enumerate().take(outer) {
        rows *= indices[dim];
        // There may be any number of rows without indices.
        cx.device().check_allocation(DType::Int64, &Shape::new([rows])?)?;
        out.extend((1..=rows).map(|row| row * indices[dim + 1]));
    }
    let mut slices = Vec::with_capacity(picked.len());
    for index in picked {
        let (mut start, mut limit) = (*index as usize, *index as usize + 1);
        for (dim, splits) in splits.iter().enumerate() {
            // A single index names one row, whose own splits the result does not have.
            if let Some(place) = (dim + indices.rank()).checked_sub(1) {
                let out = &mut out[place];
                let delta = out.last().copied().unwrap_or_default() - splits[start];
                out.extend(splits[start + 1..=limit].iter().map(|split| split + delta));
            }
            (start, limit) = (splits[start] as usize, splits[limit] as usize);
        }
        if start != limit {
            slices.push(start..limit);
        }
    }
    Ok((out, slices))
}

fn gathered_values(cx: &KernelCx<'_>, values: &Tensor, slices: &[Range<usize>]) -> Result<Tensor> {
    let rows: usize = slices.iter().map(Range::len).sum();
    let shape = Shape::new([rows as i64].into_iter().chain(values.shape()[1..].iter().copied()))?;
    let width = values.shape()[1..].iter().product::<i64>() as usize;
    let mut out = cx.alloc_dtype(values.dtype(), shape)?;
    by_unit!(values.dtype(), U => {
        let (from, mut rest) = (values.units::<U>()?, out.units_mut::<U>()?);
        for slice in slices {
            let (head, later) = rest.split_at_mut(slice.len() * width);
            head.clone_from_slice(&from[slice.start * width..slice.end * width]);
            rest = later;
        }
    });
    Ok(out)
}

fn to_sparse_kernel(init: &Init<'_>) -> Result<Kernel> {
    let ragged = init.attr::<i64>("RAGGED_RANK")? as usize;
    Kernel::sync(move |cx| to_sparse(cx, ragged))
}

fn to_sparse(cx: &KernelCx<'_>, ragged: usize) -> Result<Outputs> {
    const FINAL: &str = "Final value of ragged splits must match the length the corresponding ragged values.";
    let splits = nested_splits(cx, ragged)?;
    let values = cx.input(ragged)?;
    ensure!(values.rank() > 0, InvalidArgument, "rt_dense_values must be at least a vector");
    for (level, inner) in splits.iter().enumerate() {
        ensure!(!inner.is_empty(), InvalidArgument, "ragged splits may not be empty.");
        ensure!(inner[0] == 0, InvalidArgument, "First value of ragged splits must be 0.");
        if let Some(pair) = inner.windows(2).find(|pair| pair[1] < pair[0]) {
            let message = "Ragged splits should be non decreasing, but we got";
            return Err(status!(InvalidArgument, "{message} {} followed by {}", pair[0], pair[1]));
        }
        let count = splits.get(level + 1).map_or(values.shape().dim(0), |next| next.len().saturating_sub(1));
        ensure!(inner.last() == Some(&(count as i64)), InvalidArgument, "{FINAL}");
    }
    let rank = ragged + values.rank();
    let mut indices = cx.alloc::<i64>(Shape::matrix(values.elements(), rank))?;
    let inner = &values.shape()[1..];
    let width = inner.iter().product::<i64>() as usize;
    // The row of each level that the current row of the last level lies in.
    let mut rows = vec![0usize; ragged];
    let mut places = indices.flat_mut::<i64>()?.chunks_exact_mut(rank);
    // Values without elements may be any number.
    let last_rows = if values.elements() == 0 { 0 } else { splits[ragged - 1].len() - 1 };
    for row in 0..last_rows {
        rows[ragged - 1] = row;
        for level in (0..ragged - 1).rev() {
            while rows[level + 1] as i64 >= splits[level][rows[level] + 1] {
                rows[level] += 1;
            }
        }
        let begin = |level: usize| if level == 0 { 0 } else { splits[level - 1][rows[level - 1]] };
        for at in 0..splits[ragged - 1][row + 1] - splits[ragged - 1][row] {
            for (element, place) in places.by_ref().take(width).enumerate() {
                for (level, row) in rows.iter().enumerate() {
                    place[level] = *row as i64 - begin(level);
                }
                place[ragged] = at;
                let mut rest = element as i64;
                for (place, dim) in place[ragged + 1..].iter_mut().zip(inner).rev() {
                    (*place, rest) = (rest % dim, rest / dim);
                }
            }
        }
    }
    let widest = |splits: &Cow<'_, [i64]>| splits.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let shape = [splits[0].len() as i64 - 1].into_iter();
    let shape = shape.chain(splits.iter().map(widest)).chain(inner.iter().copied()).collect();
    let values = values.clone().reshaped(Shape::vector(values.elements()))?;
    Ok([indices, values, Tensor::vector(shape)].into())
}

/// Rows of values go back to where they were gathered from.
fn gather_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let ragged = g.num_inputs() - 2;
    let (values, indices) = (g.input(ragged), g.input(ragged + 1));
    let mut splits = g.input(0).clone();
    for level in 1..ragged {
        splits = ops::gather_v2(s, g.input(level), splits, 0)?;
    }
    let rows = ops::reshape(s, indices, [-1])?;
    let starts = ops::gather_v2(s, &splits, &rows, 0)?;
    let limits = ops::gather_v2(s, part(s, &splits, 1, None)?, &rows, 0)?;
    let ones = ops::ones_like(s, &starts)?;
    let places = ops::ragged_range(s, starts, limits, ones)?.rt_dense_values;
    let slices = IndexedSlices {
        values: g.dy(g.num_outputs() - 1)?,
        indices: places,
        dense_shape: Some(shape_output(s, values)?),
    };
    let mut grads = InputGrads::none(ragged + 2);
    grads.0[ragged] = Some(slices.into());
    Ok(grads)
}

fn to_sparse_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let values = g.num_inputs() - 1;
    let mut grads = InputGrads::none(values + 1);
    let grad = ops::reshape(s, g.dy(1)?, shape_output(s, g.input(values))?)?;
    grads.0[values] = Some(grad.into());
    Ok(grads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Node, infer};

    #[test]
    fn ranges_are_rows() {
        infer("RaggedRange", "[3];[];[]", "[4];[?]");
        infer("RaggedRange", "[];[];[]", "[2];[?]");
        let limits = Tensor::vector(vec![2i32, 0, 3]);
        let out = Node::new("RaggedRange").run([Tensor::scalar(0i32), limits, Tensor::scalar(1i32)]).unwrap();
        assert_eq!(out[0].flat::<i64>().unwrap(), [0, 2, 2, 5]);
        assert_eq!(out[1].flat::<i32>().unwrap(), [0, 1, 0, 1, 2]);
    }

    #[test]
    fn splits_that_point_past_their_values_are_refused() {
        let splits = Tensor::vector(vec![0i64, 9]);
        let node = Node::new("RaggedGather").attr("OUTPUT_RAGGED_RANK", 1i64);
        let values = Tensor::vector(vec![1.0f32]);
        let error = node.run([splits, values, Tensor::vector(vec![0i32])]).unwrap_err();
        assert!(error.message().contains("past values"), "{error}");
    }
}
