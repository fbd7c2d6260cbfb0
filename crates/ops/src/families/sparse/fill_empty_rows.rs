//! Rows without entries filled with one default entry, of sparse and of ragged tensors.

use crate::builders as ops;
use crate::numeric::Num;
use crate::support::sparse::length;
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{C64, C128, PartialShape, Result, Shape, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &SPARSE_FILL_EMPTY_ROWS,
    &SPARSE_FILL_EMPTY_ROWS_GRAD,
    &RAGGED_FILL_EMPTY_ROWS,
    &RAGGED_FILL_EMPTY_ROWS_GRAD,
];

static SPARSE_FILL_EMPTY_ROWS: Op = Op {
    name: "SparseFillEmptyRows",
    gradient: Gradient::Fn(sparse_grad),
    inputs: &["indices: int64", "values: T", "dense_shape: int64", "default_value: T"],
    outputs: &[
        "output_indices: int64",
        "output_values: T",
        "empty_row_indicator: bool",
        "reverse_index_map: int64",
    ],
    attrs: &["T: type"],
    shape: sparse_shape,
    kernels: kernels![any sparse_kernel],
    ..Op::PURE
};

static SPARSE_FILL_EMPTY_ROWS_GRAD: Op = Op {
    name: "SparseFillEmptyRowsGrad",
    inputs: &["reverse_index_map: int64", "grad_values: T"],
    outputs: &["d_values: T", "d_default_value: T"],
    attrs: &["T: type"],
    shape: grad_shape,
    kernels: kernels![
        grad_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128
    ],
    ..Op::PURE
};

static RAGGED_FILL_EMPTY_ROWS: Op = Op {
    name: "RaggedFillEmptyRows",
    gradient: Gradient::Fn(ragged_grad),
    inputs: &["value_rowids: int64", "values: T", "nrows: int64", "default_value: T"],
    outputs: &[
        "output_value_rowids: int64",
        "output_values: T",
        "empty_row_indicator: bool",
        "reverse_index_map: int64",
    ],
    attrs: &["T: type"],
    shape: ragged_shape,
    kernels: kernels![any ragged_kernel],
    ..Op::PURE
};

static RAGGED_FILL_EMPTY_ROWS_GRAD: Op =
    Op { name: "RaggedFillEmptyRowsGrad", ..SPARSE_FILL_EMPTY_ROWS_GRAD };

fn sparse_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (indices, values) = (s.rank(0, 2)?, s.rank(1, 1)?);
    s.rank(2, 1)?;
    s.rank(3, 0)?;
    let indices = indices.dims().unwrap_or(&[UNKNOWN_DIM; 2]);
    let entries = s.merge_dims(indices[0], values.dims().map_or(UNKNOWN_DIM, |dims| dims[0]))?;
    let rank = length(s, 2);
    s.merge_dims(indices[1], rank)?;
    ensure!(rank != 0, InvalidArgument, "dense_shape must not be empty");
    let dense = s.constant_shape(2)?;
    s.output(0, [UNKNOWN_DIM, rank])?;
    s.output(1, [UNKNOWN_DIM])?;
    s.output(2, [dense.dims().map_or(UNKNOWN_DIM, |dims| dims[0])])?;
    s.output(3, [entries])
}

fn ragged_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (rows, values) = (s.rank(0, 1)?, s.rank(1, 1)?);
    s.rank(2, 0)?;
    s.rank(3, 0)?;
    let known = |shape: &PartialShape| shape.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    let entries = s.merge_dims(known(&rows), known(&values))?;
    for output in 0..3 {
        s.output(output, [UNKNOWN_DIM])?;
    }
    s.output(3, [entries])
}

fn grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let map = s.rank(0, 1)?;
    s.rank(1, 1)?;
    s.set(0, map);
    s.set(1, PartialShape::scalar());
    Ok(())
}

fn sparse_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (indices, values, shape, default) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?);
        ensure!(shape.rank() == 1, InvalidArgument, "dense_shape must be a vector, saw: {}", shape.shape());
        ensure!(indices.rank() == 2, InvalidArgument, "indices must be a matrix, saw: {}", indices.shape());
        check_values(values, indices, "indices", default)?;
        ensure!(
            indices.shape().dim(1) == shape.elements(),
            InvalidArgument,
            "The length of `dense_shape` ({}) must match the second dimension of `indices` ({}).",
            shape.elements(),
            indices.shape().dim(1)
        );
        ensure!(shape.elements() != 0, InvalidArgument, "Dense shape cannot be empty.");
        fill(cx, shape.flat::<i64>()?[0], shape.elements(), false)
    })
}

fn ragged_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (rows, values, count, default) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?);
        ensure!(count.rank() == 0, InvalidArgument, "nrows must be a scalar, saw: {}", count.shape());
        ensure!(rows.rank() == 1, InvalidArgument, "value_rowids must be a vector, saw: {}", rows.shape());
        check_values(values, rows, "value_rowids", default)?;
        fill(cx, count.to_scalar::<i64>()?, 1, true)
    })
}

fn check_values(values: &Tensor, rows: &Tensor, name: &str, default: &Tensor) -> Result<()> {
    ensure!(values.rank() == 1, InvalidArgument, "values must be a vector, saw: {}", values.shape());
    ensure!(
        rows.shape().dim(0) == values.elements(),
        InvalidArgument,
        "The length of `values` ({}) must match the first dimension of `{name}` ({}).",
        values.elements(),
        rows.shape().dim(0)
    );
    ensure!(default.rank() == 0, InvalidArgument, "default_value must be a scalar, saw: {}", default.shape());
    Ok(())
}

/// Fills rows `0..rows`. Entries have `rank` coordinates, of which the first is the row.
fn fill(cx: &KernelCx<'_>, rows: i64, rank: usize, ragged: bool) -> Result<Outputs> {
    let (indices, values, default) = (cx.input(0)?, cx.input(1)?, cx.input(3)?);
    let (places, entries) = (indices.flat::<i64>()?, values.elements());
    let mut empty = cx.alloc::<bool>(Shape::new([rows])?)?;
    let mut reverse = cx.alloc::<i64>(Shape::vector(entries))?;
    if rows == 0 {
        ensure!(
            entries == 0,
            InvalidArgument,
            "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = {entries}"
        );
        let indices = cx.alloc::<i64>(Shape::matrix(0, rank))?;
        return Ok([indices, cx.alloc_dtype(values.dtype(), Shape::vector(0))?, empty, reverse].into());
    }
    // The number of entries per row, then the place of the next entry of each row.
    let mut next = cx.zeros(ferroflow_core::DType::Int64, Shape::new([rows])?)?;
    let next = next.flat_mut::<i64>()?;
    let (mut ordered, mut last) = (true, 0);
    for entry in 0..entries {
        let row = places[entry * rank];
        ensure!((0..rows).contains(&row), InvalidArgument, "indices({entry}, 0) is invalid: {row} >= {rows}");
        next[row as usize] += 1;
        ordered &= row >= last;
        last = row;
    }
    let (mut total, mut full) = (0, true);
    for (next, empty) in next.iter_mut().zip(empty.flat_mut::<bool>()?) {
        *empty = *next == 0;
        full &= !*empty;
        total += std::mem::replace(next, total).max(1);
    }
    let reversed = reverse.flat_mut::<i64>()?;
    if full && ordered {
        for (entry, place) in reversed.iter_mut().enumerate() {
            *place = entry as i64;
        }
        return Ok([indices.clone(), values.clone(), empty, reverse].into());
    }
    let shape = if ragged { Shape::new([total])? } else { Shape::new([total, rank as i64])? };
    let mut out = cx.zeros(ferroflow_core::DType::Int64, shape)?;
    let mut filled = cx.alloc_dtype(values.dtype(), Shape::new([total])?)?;
    let rows_out = out.flat_mut::<i64>()?;
    for (row, (next, empty)) in next.iter().zip(empty.flat::<bool>()?).enumerate() {
        if *empty {
            rows_out[*next as usize * rank] = row as i64;
        }
    }
    for (entry, place) in reversed.iter_mut().enumerate() {
        let row = &places[entry * rank..(entry + 1) * rank];
        let next = &mut next[row[0] as usize];
        rows_out[*next as usize * rank..][..rank].copy_from_slice(row);
        (*place, *next) = (*next, *next + 1);
    }
    by_unit!(values.dtype(), U => {
        let (values, default, out) = (values.units::<U>()?, &default.units::<U>()?[0], filled.units_mut::<U>()?);
        // The places of empty rows are those that no entry went to.
        for (next, empty) in next.iter().zip(empty.flat::<bool>()?) {
            if *empty {
                out[*next as usize].clone_from(default);
            }
        }
        for (place, value) in reversed.iter().zip(values) { out[*place as usize].clone_from(value); }
    });
    Ok([out, filled, empty, reverse].into())
}

fn grad_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (map, grads) = (cx.input(0)?, cx.input(1)?);
        ensure!(map.rank() == 1, InvalidArgument, "reverse_index_map must be a vector, saw: {}", map.shape());
        ensure!(grads.rank() == 1, InvalidArgument, "grad_values must be a vector, saw: {}", grads.shape());
        let (map, grads) = (map.flat::<i64>()?, grads.flat::<T>()?);
        let mut visited = vec![false; grads.len()];
        let mut out = cx.alloc::<T>(Shape::vector(map.len()))?;
        for (out, place) in out.flat_mut::<T>()?.iter_mut().zip(map) {
            ensure!(
                (0..grads.len() as i64).contains(place),
                InvalidArgument,
                "Elements in reverse index must be in [0, {}) but got {place}",
                grads.len()
            );
            *out = grads[*place as usize];
            visited[*place as usize] = true;
        }
        let unvisited = grads.iter().zip(visited).filter(|(_, visited)| !visited);
        let default = unvisited.fold(T::ZERO, |sum, (grad, _)| sum.add(*grad));
        Ok([out, Tensor::scalar(default)].into())
    })
}

fn sparse_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let grads = ops::sparse_fill_empty_rows_grad(g.scope(), g.output(3)?, g.dy(1)?)?;
    Ok([None, Some(grads.d_values), None, Some(grads.d_default_value)].into())
}

fn ragged_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let grads = ops::ragged_fill_empty_rows_grad(g.scope(), g.output(3)?, g.dy(1)?)?;
    Ok([None, Some(grads.d_values), None, Some(grads.d_default_value)].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn empty_rows_get_the_default() {
        infer("SparseFillEmptyRows", "[3,2];[3];[2];[]", "[?,2];[?];[?];[3]");
        let indices = Tensor::new(Shape::matrix(2, 2), vec![2i64, 1, 0, 3]).unwrap();
        let values = Tensor::vector(vec![1.0f32, 2.0]);
        let shape = Tensor::vector(vec![4i64, 5]);
        let out = Node::new("SparseFillEmptyRows");
        let out = out.run([indices, values, shape, Tensor::scalar(9.0f32)]).unwrap();
        assert_eq!(out[0].flat::<i64>().unwrap(), [0, 3, 1, 0, 2, 1, 3, 0]);
        assert_eq!(out[1].flat::<f32>().unwrap(), [2.0, 9.0, 1.0, 9.0]);
        assert_eq!(out[3].flat::<i64>().unwrap(), [2, 0]);
    }
}
