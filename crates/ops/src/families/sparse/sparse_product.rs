//! The product of a sparse matrix and a dense one.

use crate::builders as ops;
use crate::linalg::sparse_product::{Entries, multiply};
use crate::numeric::Num;
use crate::support::gradient::conj;
use crate::support::sparse::wide;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::scope::Output;
use ferroflow_core::{C64, C128, PartialShape, Result, Shape, Tensor, bf16, ensure, f16, kernels};
use std::borrow::Cow;

pub(crate) const OPS: &[&Op] = &[&SPARSE_TENSOR_DENSE_MAT_MUL];

static SPARSE_TENSOR_DENSE_MAT_MUL: Op = Op {
    name: "SparseTensorDenseMatMul",
    gradient: Gradient::Fn(product_grad),
    inputs: &["a_indices: Tindices", "a_values: T", "a_shape: int64", "b: T"],
    outputs: &["product: T"],
    attrs: &[
        "T: type",
        "Tindices: {int32, int64} = DT_INT64",
        "adjoint_a: bool = false",
        "adjoint_b: bool = false",
    ],
    shape: product_shape,
    kernels: kernels![product_kernel: bf16, f16, f32, f64, i32, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn product_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 2)?;
    s.rank(1, 1)?;
    let a = s.merge(&s.constant_shape(2)?, &PartialShape::of_rank(2)?)?;
    let b = s.rank(3, 2)?;
    let (a, b) = (a.dims().unwrap_or_default(), b.dims().unwrap_or_default());
    let (ta, tb) = (s.attr::<bool>("adjoint_a")? as usize, s.attr::<bool>("adjoint_b")? as usize);
    s.merge_dims(a[1 - ta], b[tb])?;
    s.output(0, [a[ta], b[1 - tb]])
}

fn product_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let (ta, tb): (bool, bool) = (init.attr("adjoint_a")?, init.attr("adjoint_b")?);
    Kernel::sync(move |cx| Ok(product::<T>(cx, ta, tb)?.into()))
}

/// The sizes of a product's factors.
struct Sizes {
    rows: usize,
    inner: usize,
    columns: usize,
}

fn sizes(cx: &KernelCx<'_>, ta: bool, tb: bool) -> Result<(Sizes, Shape)> {
    let (indices, values, shape, b) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?.shape());
    ensure!(b.rank() == 2, InvalidArgument, "Tensor 'b' is not a matrix");
    ensure!(shape.rank() == 1, InvalidArgument, "Tensor 'a_shape' is not a vector");
    ensure!(shape.elements() == 2, InvalidArgument, "Tensor 'a_shape' must have 2 elements");
    ensure!(values.rank() == 1, InvalidArgument, "Tensor 'a_values' is not a vector");
    ensure!(indices.rank() == 2, InvalidArgument, "Tensor 'a_indices' is not a matrix");
    ensure!(
        indices.shape().dim(0) == values.elements(),
        InvalidArgument,
        "Number of rows of a_indices does not match number of entries in a_values"
    );
    ensure!(
        indices.shape().dim(1) == 2,
        InvalidArgument,
        "Number of columns of a_indices does not match number of entries in a_shape"
    );
    let a = shape.flat::<i64>()?;
    let (inner, b_inner) = (a[1 - ta as usize], b[tb as usize]);
    ensure!(
        inner == b_inner,
        InvalidArgument,
        "Cannot multiply A and B because inner dimension does not match: {inner} vs. {b_inner}.  Did you forget a transpose?  Dimensions of A: [{}, {}).  Dimensions of B: {b}",
        a[0],
        a[1]
    );
    let shape = Shape::new([a[ta as usize], b[1 - tb as usize]])?;
    Ok((Sizes { rows: shape.dim(0), inner: inner as usize, columns: shape.dim(1) }, shape))
}

fn product<T: Num>(cx: &KernelCx<'_>, ta: bool, tb: bool) -> Result<Tensor> {
    let (sizes, shape) = sizes(cx, ta, tb)?;
    let (values, dense) = (cx.flat::<T>(1)?, cx.flat::<T>(3)?);
    if shape.elements() == 0 || values.is_empty() {
        return cx.zeros(T::DTYPE, shape);
    }
    let indices = wide(cx.input(0)?)?;
    let places = indices.as_chunks::<2>().0;
    let (splits, sorted) = row_splits(places, ta as usize, &sizes)?;
    let mut out = cx.alloc::<T>(shape)?;
    let dense =
        if tb { Cow::Owned(adjoint(dense, sizes.columns, sizes.inner)) } else { Cow::Borrowed(dense) };
    let (in_order, ordered);
    let (places, values) = if sorted {
        (places, values)
    } else {
        let order = row_order(places, ta as usize, &splits);
        in_order = order.iter().map(|entry| places[*entry]).collect::<Vec<_>>();
        ordered = order.iter().map(|entry| values[*entry]).collect::<Vec<_>>();
        (in_order.as_slice(), ordered.as_slice())
    };
    let entries = Entries { places, values, splits: &splits, column: 1 - ta as usize, conjugate: ta };
    multiply(cx.threads(), &entries, &dense, sizes.columns, out.flat_mut()?);
    Ok(out)
}

/// The conjugate transpose of a matrix.
fn adjoint<T: Num>(matrix: &[T], rows: usize, columns: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(matrix.len());
    for column in 0..columns {
        out.extend((0..rows).map(|row| matrix[row * columns + column].conj()));
    }
    out
}

/// Checks all coordinates and counts the entries of rows: the first of each, and whether they are in order.
fn row_splits(places: &[[i64; 2]], row: usize, sizes: &Sizes) -> Result<(Vec<usize>, bool)> {
    let mut splits = vec![0; sizes.rows + 1];
    let (mut last, mut sorted) = (0, true);
    for (entry, place) in places.iter().enumerate() {
        let (m, k) = (place[row], place[1 - row]);
        ensure!(
            (k as u64) < sizes.inner as u64,
            InvalidArgument,
            "k ({k}) from index[{entry},{}] out of bounds (>={})",
            1 - row,
            sizes.inner
        );
        ensure!(
            (m as u64) < sizes.rows as u64,
            InvalidArgument,
            "m ({m}) from index[{entry},{row}] out of bounds (>={})",
            sizes.rows
        );
        splits[m as usize + 1] += 1;
        sorted &= m >= last;
        last = m;
    }
    for row in 0..sizes.rows {
        splits[row + 1] += splits[row];
    }
    Ok((splits, sorted))
}

/// The entries by row; those of a row stay in order.
fn row_order(places: &[[i64; 2]], row: usize, splits: &[usize]) -> Vec<usize> {
    let mut next = splits.to_vec();
    let mut order = vec![0; places.len()];
    for (entry, place) in places.iter().enumerate() {
        let next = &mut next[place[row] as usize];
        order[*next] = entry;
        *next += 1;
    }
    order
}

/// The dense factor gets the product of the other one's adjoint and what arrives; each entry of the sparse one the
/// product of the row and the column that meet at it.
fn product_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let (indices, values, shape, b) = (g.input(0), g.input(1), g.input(2), g.input(3));
    let (ta, tb): (bool, bool) = (g.attr("adjoint_a")?, g.attr("adjoint_b")?);
    let db = ops::SparseTensorDenseMatMul::new().adjoint_a(!ta).build(s, indices, values, shape, &dy)?;
    let db = if tb { conj(s, &ops::transpose(s, db, [1, 0])?)? } else { db };
    let column = |at: i32| -> Result<Output> {
        let slice = ops::StridedSlice::new().begin_mask(1).end_mask(1).shrink_axis_mask(2);
        slice.build(s, indices, [0, at], [0, at + 1], [1, 1])
    };
    let (rows, columns) = (column(0)?, column(1)?);
    let (rows, columns) = if ta { (columns, rows) } else { (rows, columns) };
    let parts_dy = ops::gather_v2(s, &dy, rows, 0)?;
    let b = if tb { ops::transpose(s, b, [1, 0])? } else { b.clone() };
    let parts_b = ops::gather_v2(s, b, columns, 0)?;
    // Without adjoints this is `dy[r, :] * conj(b[c, :])`.
    let parts_b = if tb { parts_b } else { conj(s, &parts_b)? };
    let da = ops::sum(s, ops::mul(s, parts_dy, parts_b), [-1])?;
    let da = if ta { conj(s, &da)? } else { da };
    Ok([None, Some(da), None, Some(db)].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Shape, Tensor};

    #[test]
    fn shapes_follow_the_adjoints() {
        infer("SparseTensorDenseMatMul", "[4,2];[4];[2];[3,5]", "[?,5]");
        infer_err("SparseTensorDenseMatMul", "[4,2];[4];[3];[3,5]", Code::InvalidArgument);
    }

    #[test]
    fn entries_may_come_in_any_order() {
        let indices = Tensor::new(Shape::matrix(3, 2), vec![2i64, 0, 0, 1, 2, 1]).unwrap();
        let values = Tensor::vector(vec![1.0f32, 2.0, 3.0]);
        let dense = Tensor::new(Shape::matrix(2, 2), vec![1.0f32, 10.0, 2.0, 20.0]).unwrap();
        let shape = Tensor::vector(vec![3i64, 2]);
        let out = Node::new("SparseTensorDenseMatMul").run([indices, values, shape, dense]).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [4.0, 40.0, 0.0, 0.0, 7.0, 70.0]);
    }
}
