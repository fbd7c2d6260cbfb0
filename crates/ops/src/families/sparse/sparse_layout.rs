//! Sparse tensors rearranged: joined, cut, sorted and given another shape.

use crate::builders as ops;
use crate::numeric::Num;
use crate::support::gradient::{element, shape_output};
use crate::support::index::axis;
use crate::support::sparse::{Sparse, joined, length, picked, picked_rows, sorted_rows, sparse_outputs};
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{C64, C128, PartialShape, Result, Shape, Tensor, bf16, ensure, f16, kernels, status};

pub(crate) const OPS: &[&Op] =
    &[&SPARSE_CONCAT, &SPARSE_REORDER, &SPARSE_RESHAPE, &SPARSE_SLICE, &SPARSE_SLICE_GRAD, &SPARSE_SPLIT];

static SPARSE_CONCAT: Op = Op {
    name: "SparseConcat",
    gradient: Gradient::Stop,
    inputs: &["indices: N * int64", "values: N * T", "shapes: N * int64"],
    outputs: &["output_indices: int64", "output_values: T", "output_shape: int64"],
    attrs: &["concat_dim: int", "N: int >= 2", "T: type"],
    shape: concat_shape,
    kernels: kernels![any concat_kernel],
    ..Op::PURE
};

static SPARSE_REORDER: Op = Op {
    name: "SparseReorder",
    gradient: Gradient::Fn(reorder_grad),
    inputs: &["input_indices: int64", "input_values: T", "input_shape: int64"],
    outputs: &["output_indices: int64", "output_values: T"],
    attrs: &["T: type"],
    shape: reorder_shape,
    kernels: kernels![any reorder_kernel],
    ..Op::PURE
};

static SPARSE_RESHAPE: Op = Op {
    name: "SparseReshape",
    inputs: &["input_indices: int64", "input_shape: int64", "new_shape: int64"],
    outputs: &["output_indices: int64", "output_shape: int64"],
    shape: reshape_shape,
    kernels: kernels![any reshape_kernel],
    ..Op::PURE
};

static SPARSE_SLICE: Op = Op {
    name: "SparseSlice",
    gradient: Gradient::Fn(slice_grad),
    inputs: &["indices: int64", "values: T", "shape: int64", "start: int64", "size: int64"],
    outputs: &["output_indices: int64", "output_values: T", "output_shape: int64"],
    attrs: &["T: type"],
    shape: slice_shape,
    kernels: kernels![any slice_kernel],
    ..Op::PURE
};

static SPARSE_SLICE_GRAD: Op = Op {
    name: "SparseSliceGrad",
    inputs: &["backprop_val_grad: T", "input_indices: int64", "input_start: int64", "output_indices: int64"],
    outputs: &["val_grad: T"],
    attrs: &["T: numbertype"],
    shape: slice_grad_shape,
    kernels: kernels![
        slice_grad_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128
    ],
    ..Op::PURE
};

static SPARSE_SPLIT: Op = Op {
    name: "SparseSplit",
    inputs: &["split_dim: int64", "indices: int64", "values: T", "shape: int64"],
    outputs: &[
        "output_indices: num_split * int64",
        "output_values: num_split * T",
        "output_shape: num_split * int64",
    ],
    attrs: &["num_split: int >= 1", "T: type"],
    shape: split_shape,
    kernels: kernels![any split_kernel],
    ..Op::PURE
};

fn concat_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let count = s.num_inputs() / 3;
    let (mut rows, mut rank, mut shape) = (0, UNKNOWN_DIM, PartialShape::unknown());
    for i in 0..count {
        let (indices, values) = (s.rank(i, 2)?, s.rank(i + count, 1)?);
        shape = s.merge(&shape, &s.rank(i + 2 * count, 1)?)?;
        let indices = indices.dims().unwrap_or(&[UNKNOWN_DIM; 2]);
        let entries = s.merge_dims(indices[0], values.dims().map_or(UNKNOWN_DIM, |dims| dims[0]))?;
        rows = if rows < 0 || entries < 0 { UNKNOWN_DIM } else { rows + entries };
        rank = s.merge_dims(rank, indices[1])?;
    }
    s.output(0, [rows, rank])?;
    s.output(1, [rows])?;
    s.set(2, shape);
    Ok(())
}

fn reorder_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (indices, values) = (s.rank(0, 2)?, s.rank(1, 1)?);
    s.rank(2, 1)?;
    s.set(0, indices);
    s.set(1, values);
    Ok(())
}

fn reshape_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (indices, new) = (s.rank(0, 2)?, s.rank(2, 1)?);
    s.rank(1, 1)?;
    let entries = indices.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    s.output(0, [entries, new.dims().map_or(UNKNOWN_DIM, |dims| dims[0])])?;
    s.set(1, new);
    Ok(())
}

fn slice_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let rank = length(s, 2);
    sparse_outputs(s, 0, rank)?;
    s.set(2, s.input(2));
    Ok(())
}

fn slice_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let indices = s.rank(1, 2)?;
    s.output(0, [indices.dims().map_or(UNKNOWN_DIM, |dims| dims[0])])
}

fn split_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (rank, count) = (length(s, 3), s.num_outputs() / 3);
    for i in 0..count {
        s.output(i, [UNKNOWN_DIM, rank])?;
        s.output(count + i, [UNKNOWN_DIM])?;
        s.set(2 * count + i, s.input(3));
    }
    Ok(())
}

fn concat_kernel(init: &Init<'_>) -> Result<Kernel> {
    let concat_dim: i64 = init.attr("concat_dim")?;
    Kernel::sync(move |cx| concat(cx, concat_dim))
}

fn concat(cx: &KernelCx<'_>, concat_dim: i64) -> Result<Outputs> {
    let count = cx.num_inputs() / 3;
    let mut parts = Vec::with_capacity(count);
    for i in 0..count {
        let part = Sparse::new(cx.input(i)?, cx.input(count + i)?, cx.input(2 * count + i)?)?;
        // Stock meets such a shape where it expects none.
        ensure!(
            part.dense_shape().is_ok(),
            Internal,
            "Encountered overflow from large input shape. Shape [{}] at position {i}",
            joined(part.shape, ",")
        );
        parts.push(part);
    }
    let rank = parts[0].rank();
    let Some(along) = axis(concat_dim, rank) else {
        return Err(status!(
            InvalidArgument,
            "Concat dimension must be in range [-{rank}, {rank}), got {concat_dim}"
        ));
    };
    let mut shape = parts[0].shape.to_vec();
    for (i, part) in parts.iter().enumerate().skip(1) {
        ensure!(
            part.rank() == rank,
            InvalidArgument,
            "Ranks of all input tensors must match: expected {rank} but got {} at position {i}",
            part.rank()
        );
        for (j, (whole, dim)) in shape.iter_mut().zip(part.shape).enumerate() {
            if j == along {
                *whole = whole
                    .checked_add(*dim)
                    .ok_or_else(|| status!(InvalidArgument, "Concat dimension overflowed at position {i}"))?;
            } else {
                ensure!(
                    whole == dim,
                    InvalidArgument,
                    "Input shapes must match: expected {whole} for dimension {j} but got {dim} at position {i}"
                );
            }
        }
    }
    let entries = parts.iter().map(Sparse::entries).sum();
    let mut indices = cx.alloc::<i64>(Shape::matrix(entries, rank))?;
    let mut values = cx.alloc_dtype(parts[0].values.dtype(), Shape::vector(entries))?;
    let (mut rest, mut offset) = (indices.flat_mut::<i64>()?, 0);
    for part in &parts {
        let (rows, later) = rest.split_at_mut(part.indices.len());
        rows.copy_from_slice(part.indices);
        for at in rows.iter_mut().skip(along).step_by(rank) {
            *at = at.wrapping_add(offset);
        }
        (rest, offset) = (later, offset + part.shape[along]);
    }
    by_unit!(values.dtype(), U => {
        let mut rest = values.units_mut::<U>()?;
        for part in &parts {
            let (head, later) = rest.split_at_mut(part.entries());
            head.clone_from_slice(part.values.units::<U>()?);
            rest = later;
        }
    });
    let axes: Vec<usize> = (0..rank).collect();
    if let Some(order) = sorted_rows(indices.flat()?, &shape, entries, &axes) {
        indices = picked_rows(cx, indices.flat()?, rank, &order)?;
        values = picked(cx, &values, &order)?;
    }
    Ok([indices, values, Tensor::vector(shape)].into())
}

fn reorder_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let sparse = Sparse::input(cx, 0)?;
        let axes: Vec<usize> = (0..sparse.rank()).collect();
        Ok(match sparse.sorted(&axes) {
            None => [cx.input(0)?.clone(), cx.input(1)?.clone()].into(),
            Some(order) => {
                let indices = picked_rows(cx, sparse.indices, sparse.rank(), &order)?;
                [indices, picked(cx, sparse.values, &order)?].into()
            }
        })
    })
}

fn reshape_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(reshaped(cx, cx.input(0)?, cx.input(1)?, cx.input(2)?)?.into()))
}

/// The coordinates and shape of a sparse tensor under another shape, in which one dimension may be −1.
pub(crate) fn reshaped(
    cx: &KernelCx<'_>,
    indices: &Tensor,
    shape: &Tensor,
    target: &Tensor,
) -> Result<[Tensor; 2]> {
    ensure!(
        indices.rank() == 2,
        InvalidArgument,
        "Input indices should be a matrix but received shape {}",
        indices.shape()
    );
    for (name, vector) in [("Input", shape), ("Target", target)] {
        ensure!(
            vector.rank() == 1,
            InvalidArgument,
            "{name} shape should be a vector but received shape {}",
            vector.shape()
        );
    }
    ensure!(
        indices.shape().dim(1) == shape.elements(),
        InvalidArgument,
        "Index rank ({}) and shape rank ({}) do not match",
        indices.shape().dim(1),
        shape.elements()
    );
    let old = Shape::new(shape.flat::<i64>()?.iter().copied())?;
    let new = target_shape(&old, target.flat()?)?;
    if old == new {
        return Ok([indices.clone(), shape.clone()]);
    }
    let entries = indices.shape().dim(0);
    ensure!(
        entries == 0 || old.elements() > 0,
        InvalidArgument,
        "Input tensor has {entries} non zero elements but input shape ({old}) or output shape ({new}) is empty"
    );
    let mut out = cx.alloc::<i64>(Shape::matrix(entries, new.rank()))?;
    if entries > 0 && new.rank() > 0 {
        let from = indices.flat::<i64>()?;
        for (entry, row) in out.flat_mut::<i64>()?.chunks_exact_mut(new.rank()).enumerate() {
            let place = from[entry * old.rank()..(entry + 1) * old.rank()].iter().zip(old.iter());
            let mut place = place.fold(0i64, |place, (at, dim)| place.wrapping_mul(*dim).wrapping_add(*at));
            for (at, dim) in row.iter_mut().zip(new.iter()).skip(1).rev() {
                (*at, place) = (place % dim, place / dim);
            }
            row[0] = place;
        }
    }
    Ok([out, Tensor::vector(new.dims().to_vec())])
}

fn target_shape(old: &Shape, target: &[i64]) -> Result<Shape> {
    let mut unknown = None;
    for (d, size) in target.iter().enumerate() {
        if *size == -1 {
            ensure!(
                unknown.is_none(),
                InvalidArgument,
                "only one output dimension may be -1, not both {} and {d}",
                unknown.unwrap_or_default()
            );
            unknown = Some(d);
        } else {
            ensure!(*size >= 0, InvalidArgument, "size {d} must be non-negative, not {size}");
        }
    }
    let mut dims = target.to_vec();
    if let Some(unknown) = unknown {
        dims[unknown] = 1;
        let product = Shape::new(dims.iter().copied())?.elements();
        ensure!(
            product > 0,
            InvalidArgument,
            "reshape cannot infer the missing input size for an empty tensor unless all specified input sizes are non-zero"
        );
        ensure!(
            old.elements().is_multiple_of(product),
            InvalidArgument,
            "Input to reshape is a SparseTensor with {} dense values, but the requested shape requires a multiple of {product}. input_shape={old} output_shape=[{}]",
            old.elements(),
            joined(&dims, ",")
        );
        dims[unknown] = (old.elements() / product) as i64;
    }
    let new = Shape::new(dims)?;
    ensure!(
        new.elements() == old.elements(),
        InvalidArgument,
        "Input to reshape is a tensor with {} dense values, but the requested shape has {}. input_shape={old} output_shape={new}",
        old.elements(),
        new.elements()
    );
    Ok(new)
}

fn slice_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let sparse = Sparse::input(cx, 0)?;
        let rank = sparse.rank();
        for (name, input) in [("start", 3), ("size", 4)] {
            let vector = cx.input(input)?;
            ensure!(
                vector.rank() == 1,
                InvalidArgument,
                "Input {name} should be a vector but received shape {}",
                vector.shape()
            );
            ensure!(
                vector.elements() == rank,
                InvalidArgument,
                "Expected {name} to be a vector of length {rank} but got length {}",
                vector.elements()
            );
        }
        let (start, size) = (cx.flat::<i64>(3)?, cx.flat::<i64>(4)?);
        let dense = sparse.dense_shape()?;
        let mut dims = Vec::with_capacity(rank);
        for ((dim, start), size) in dense.iter().zip(start).zip(size) {
            dims.push(if *start < dim.saturating_sub(*size) {
                *size
            } else {
                (dim.saturating_sub(*start)).max(0)
            });
        }
        let shape = Shape::new(dims)?;
        let inside = |entry: &usize| {
            let row = sparse.row(*entry).iter().zip(start.iter().zip(size));
            row.into_iter().all(|(at, (start, size))| (*start..start.saturating_add(*size)).contains(at))
        };
        let kept: Vec<usize> = (0..sparse.entries()).filter(inside).collect();
        let mut indices = picked_rows(cx, sparse.indices, rank, &kept)?;
        if rank > 0 {
            for row in indices.flat_mut::<i64>()?.chunks_exact_mut(rank) {
                for (at, start) in row.iter_mut().zip(start) {
                    *at -= start;
                }
            }
        }
        Ok([indices, picked(cx, sparse.values, &kept)?, Tensor::vector(shape.dims().to_vec())].into())
    })
}

fn slice_grad_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let arriving = cx.input(0)?;
        let places = slice_grad_places(cx)?;
        let mut out = cx.zeros(T::DTYPE, Shape::vector(cx.input(1)?.shape().dim(0)))?;
        let grads = out.flat_mut::<T>()?;
        for (place, grad) in places.into_iter().zip(arriving.flat::<T>()?) {
            grads[place] = *grad;
        }
        Ok(out.into())
    })
}

/// The entry of the input that each entry of the slice came from.
fn slice_grad_places(cx: &KernelCx<'_>) -> Result<Vec<usize>> {
    let (arriving, input, start, output) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?);
    ensure!(
        input.rank() == 2 && output.rank() == 2,
        InvalidArgument,
        "Input and output indices should be matrices but received shapes: {} and {}",
        input.shape(),
        output.shape()
    );
    ensure!(
        arriving.rank() == 1,
        InvalidArgument,
        "Input backprop_val_grad should be a vector but received shape: {}",
        arriving.shape()
    );
    let (rank, rows, kept) = (input.shape().dim(1), input.shape().dim(0), output.shape().dim(0));
    ensure!(
        output.shape().dim(1) == rank,
        InvalidArgument,
        "The input and output should have the same ndims: got: {rank} and {}",
        output.shape().dim(1)
    );
    ensure!(
        kept <= rows,
        InvalidArgument,
        "# rows of output_indices should be not greater than of input_indices, got {kept} and {rows}"
    );
    ensure!(
        arriving.elements() == kept,
        InvalidArgument,
        "# elements of backprop_val_grad and # rows of output_indices should match (#nnz of sum): got {} and {kept}",
        arriving.elements()
    );
    ensure!(
        start.rank() == 1,
        InvalidArgument,
        "The input_start should be a vector but received shape {}",
        start.shape()
    );
    ensure!(
        start.elements() == rank,
        InvalidArgument,
        "Expected input_start to be a vector of length {rank} but got length {}",
        start.elements()
    );
    let (input, start, output) = (input.flat::<i64>()?, start.flat::<i64>()?, output.flat::<i64>()?);
    let mut places = Vec::with_capacity(kept);
    for entry in 0..rows {
        let next = places.len();
        if next == kept {
            break;
        }
        let (from, to) = (&input[entry * rank..(entry + 1) * rank], &output[next * rank..(next + 1) * rank]);
        if from.iter().zip(to.iter().zip(start)).all(|(from, (to, start))| *from == to.wrapping_add(*start)) {
            places.push(entry);
        }
    }
    ensure!(
        places.len() == kept,
        Internal,
        "Elements of backprop_val_grad aren't all propagated. Num elements:{kept}, used: {}",
        places.len()
    );
    Ok(places)
}

fn split_kernel(init: &Init<'_>) -> Result<Kernel> {
    let count: i64 = init.attr("num_split")?;
    Kernel::sync(move |cx| split(cx, count))
}

fn split(cx: &KernelCx<'_>, count: i64) -> Result<Outputs> {
    let split_dim = cx.input(0)?;
    ensure!(
        split_dim.rank() == 0,
        InvalidArgument,
        "Input axis should be a scalar but received shape {}",
        split_dim.shape()
    );
    let split_dim = split_dim.to_scalar::<i64>()?;
    let sparse = Sparse::input(cx, 1)?;
    sparse.check_bounds()?;
    let rank = sparse.rank();
    let Some(along) = axis(split_dim, rank) else {
        return Err(status!(
            InvalidArgument,
            "Input axis should be in range [-{rank}, {rank}), got {split_dim}"
        ));
    };
    let whole = sparse.dense_shape()?[along];
    ensure!(
        (1..=whole).contains(&count),
        InvalidArgument,
        "Input num_split should be between 1 and the splitting dimension size ({whole}), got {count}"
    );
    // The first parts are longer by one if the whole cannot be divided evenly.
    let (size, longer) = (whole / count, whole % count);
    let begin = |part: i64| part * size + part.min(longer);
    let part_of = |at: i64| {
        let head = longer * (size + 1);
        if at < head { at / (size + 1) } else { longer + (at - head) / size }
    };
    let mut kept = vec![Vec::new(); count as usize];
    for entry in 0..sparse.entries() {
        kept[part_of(sparse.row(entry)[along]) as usize].push(entry);
    }
    let (mut indices, mut values, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
    for (part, kept) in (0..count).zip(&kept) {
        let mut rows = picked_rows(cx, sparse.indices, rank, kept)?;
        for at in rows.flat_mut::<i64>()?.iter_mut().skip(along).step_by(rank) {
            *at -= begin(part);
        }
        let mut shape = sparse.shape.to_vec();
        shape[along] = begin(part + 1) - begin(part);
        indices.push(rows);
        values.push(picked(cx, sparse.values, kept)?);
        shapes.push(Tensor::vector(shape));
    }
    Ok(indices.into_iter().chain(values).chain(shapes).collect::<Vec<_>>().into())
}

/// Returns the arriving gradient in the order in which the input's entries were.
fn reorder_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, indices) = (g.scope(), g.input(0));
    let entries = element(s, &shape_output(s, indices)?, 0)?;
    let numbers = ops::range(s, 0, entries, 1)?;
    let order = ops::sparse_reorder(s, indices, numbers, g.input(2))?.output_values;
    let back = ops::invert_permutation(s, order)?;
    Ok([None, Some(ops::gather_v2(s, g.dy(1)?, back, 0)?), None].into())
}

fn slice_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let grad = ops::sparse_slice_grad(g.scope(), g.dy(1)?, g.input(0), g.input(3), g.output(0)?)?;
    Ok([None, Some(grad), None, None, None].into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{infer, infer_err};
    use ferroflow_core::Code;

    #[test]
    fn counts_of_entries_add_up() {
        infer("SparseConcat", "[3,2];[4,2];[3];[4];[2];[2]", "[7,2];[7];[2]");
        infer("SparseReshape", "[3,2];[2];[4]", "[3,4];[4]");
        infer_err("SparseConcat", "[3,2];[4,3];[3];[4];[2];[2]", Code::InvalidArgument);
    }

    #[test]
    fn one_dimension_follows_from_the_others() {
        let old = Shape::matrix(2, 6);
        assert_eq!(target_shape(&old, &[3, -1]).unwrap().dims(), [3, 4]);
        for bad in [&[5, -1][..], &[-1, -1], &[0, -1], &[7], &[-2]] {
            assert_eq!(target_shape(&old, bad).unwrap_err().code(), Code::InvalidArgument, "{bad:?}");
        }
    }
}
