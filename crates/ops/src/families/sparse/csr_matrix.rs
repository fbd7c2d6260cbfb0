//! Sparse matrices by rows (CSR), one or a batch of them, as variants: made from dense and sparse tensors and back,
//! multiplied and transposed.

use crate::linalg::sparse_product::{Entries, multiply};
use crate::numeric::Num;
use crate::state::csr::Csr;
use crate::support::gradient::conj;
use crate::support::rows;
use crate::support::sparse::{Sparse, sparse_outputs, sparse_ranks};
use crate::{builders as ops, linalg::gather::position};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::resource::HandleShape;
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{C64, C128, DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[
    &DENSE_TO_CSR_SPARSE_MATRIX,
    &SPARSE_TENSOR_TO_CSR_SPARSE_MATRIX,
    &CSR_SPARSE_MATRIX_TO_DENSE,
    &CSR_SPARSE_MATRIX_TO_SPARSE_TENSOR,
    &CSR_SPARSE_MATRIX_COMPONENTS,
    &SPARSE_MATRIX_NNZ,
    &SPARSE_MATRIX_TRANSPOSE,
    &SPARSE_MATRIX_MAT_MUL,
    &SPARSE_MATRIX_SPARSE_MAT_MUL,
];

static DENSE_TO_CSR_SPARSE_MATRIX: Op = Op {
    name: "DenseToCSRSparseMatrix",
    gradient: Gradient::Fn(from_dense_grad),
    inputs: &["dense_input: T", "indices: int64"],
    outputs: &["sparse_output: variant"],
    attrs: &["T: {float, double, complex64, complex128}"],
    shape: from_dense_shape,
    kernels: kernels![from_dense_kernel: f32, f64, C64, C128],
    ..Op::PURE
};

static SPARSE_TENSOR_TO_CSR_SPARSE_MATRIX: Op = Op {
    name: "SparseTensorToCSRSparseMatrix",
    gradient: Gradient::Fn(from_sparse_grad),
    inputs: &["indices: int64", "values: T", "dense_shape: int64"],
    outputs: &["sparse_matrix: variant"],
    attrs: &["T: {float, double, complex64, complex128}"],
    shape: from_sparse_shape,
    kernels: kernels![any from_sparse_kernel],
    ..Op::PURE
};

static CSR_SPARSE_MATRIX_TO_DENSE: Op = Op {
    name: "CSRSparseMatrixToDense",
    gradient: Gradient::Fn(to_dense_grad),
    inputs: &["sparse_input: variant"],
    outputs: &["dense_output: type"],
    attrs: &["type: {float, double, complex64, complex128}"],
    shape: to_dense_shape,
    kernels: kernels!["type" => to_dense_kernel: f32, f64, C64, C128],
    ..Op::PURE
};

static CSR_SPARSE_MATRIX_TO_SPARSE_TENSOR: Op = Op {
    name: "CSRSparseMatrixToSparseTensor",
    gradient: Gradient::Fn(to_sparse_grad),
    inputs: &["sparse_matrix: variant"],
    outputs: &["indices: int64", "values: type", "dense_shape: int64"],
    attrs: &["type: {float, double, complex64, complex128}"],
    shape: to_sparse_shape,
    kernels: kernels![any to_sparse_kernel],
    ..Op::PURE
};

static CSR_SPARSE_MATRIX_COMPONENTS: Op = Op {
    name: "CSRSparseMatrixComponents",
    inputs: &["csr_sparse_matrix: variant", "index: int32"],
    outputs: &["row_ptrs: int32", "col_inds: int32", "values: type"],
    attrs: &["type: {float, double, complex64, complex128}"],
    shape: components_shape,
    kernels: kernels![any components_kernel],
    ..Op::PURE
};

static SPARSE_MATRIX_NNZ: Op = Op {
    name: "SparseMatrixNNZ",
    gradient: Gradient::Stop,
    inputs: &["sparse_matrix: variant"],
    outputs: &["nnz: int32"],
    shape: nnz_shape,
    kernels: kernels![any nnz_kernel],
    ..Op::PURE
};

static SPARSE_MATRIX_TRANSPOSE: Op = Op {
    name: "SparseMatrixTranspose",
    gradient: Gradient::Fn(transpose_grad),
    inputs: &["input: variant"],
    outputs: &["output: variant"],
    attrs: &["conjugate: bool = false", "type: {float, double, complex64, complex128}"],
    shape: transpose_shape,
    kernels: kernels!["type" => transpose_kernel: f32, f64, C64, C128],
    ..Op::PURE
};

static SPARSE_MATRIX_MAT_MUL: Op = Op {
    name: "SparseMatrixMatMul",
    gradient: Gradient::Fn(dense_product_grad),
    inputs: &["a: variant", "b: T"],
    outputs: &["output: T"],
    attrs: &[
        "T: type",
        "transpose_a: bool = false",
        "transpose_b: bool = false",
        "adjoint_a: bool = false",
        "adjoint_b: bool = false",
        "transpose_output: bool = false",
        "conjugate_output: bool = false",
    ],
    shape: dense_product_shape,
    kernels: kernels![dense_product_kernel: f32, f64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static SPARSE_MATRIX_SPARSE_MAT_MUL: Op = Op {
    name: "SparseMatrixSparseMatMul",
    gradient: Gradient::Fn(sparse_product_grad),
    inputs: &["a: variant", "b: variant"],
    outputs: &["c: variant"],
    attrs: &[
        "type: {float, double, complex64, complex128}",
        "transpose_a: bool = false",
        "transpose_b: bool = false",
        "adjoint_a: bool = false",
        "adjoint_b: bool = false",
    ],
    shape: sparse_product_shape,
    kernels: kernels!["type" => sparse_product_kernel: f32, f64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// The dimensions of a matrix behind a variant, if its rank is known.
pub(crate) fn matrix_dims(s: &ShapeCx<'_>, input: usize) -> Result<Option<Vec<i64>>> {
    s.rank(input, 0)?;
    let dims = s.handle(input).and_then(|handle| handle.shape.dims().map(<[i64]>::to_vec));
    if let Some(dims) = &dims {
        ensure!(
            (2..=3).contains(&dims.len()),
            InvalidArgument,
            "Shape must be of rank 2 or 3 but is rank {}",
            dims.len()
        );
    }
    Ok(dims)
}

/// Makes an output a variant that holds a matrix of this type and shape.
pub(crate) fn set_matrix(s: &mut ShapeCx<'_>, dtype: DType, shape: PartialShape) {
    s.set(0, PartialShape::scalar());
    s.set_handles(0, vec![HandleShape { dtype, shape }]);
}

fn from_dense_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let dense = s.input(0);
    if let Some(rank) = dense.rank() {
        ensure!(
            (2..=3).contains(&rank),
            InvalidArgument,
            "Invalid rank of dense: {rank}.  Expected a known rank of either 2 or 3."
        );
        let indices = s.rank(1, 2)?;
        s.merge_dims(indices.dims().map_or(UNKNOWN_DIM, |dims| dims[1]), rank as i64)?;
    }
    let dtype = s.attr("T")?;
    set_matrix(s, dtype, dense);
    Ok(())
}

fn from_sparse_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    sparse_ranks(s, 0)?;
    let shape = s.constant_shape(2)?;
    if let Some(rank) = shape.rank() {
        ensure!(
            (2..=3).contains(&rank),
            InvalidArgument,
            "Invalid rank: {rank}.  Expected a known rank of either 2 or 3."
        );
    }
    let dtype = s.attr("T")?;
    set_matrix(s, dtype, shape);
    Ok(())
}

fn to_dense_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if let Some(dims) = matrix_dims(s, 0)? {
        s.output(0, dims)?;
    }
    Ok(())
}

fn to_sparse_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let rank = matrix_dims(s, 0)?.map_or(UNKNOWN_DIM, |dims| dims.len() as i64);
    sparse_outputs(s, 0, rank)
}

fn components_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let rows = matrix_dims(s, 0)?.map_or(UNKNOWN_DIM, |dims| dims[dims.len() - 2]);
    s.rank(1, 0)?;
    s.output(0, [if rows < 0 { UNKNOWN_DIM } else { rows + 1 }])?;
    s.output(1, [UNKNOWN_DIM])?;
    s.output(2, [UNKNOWN_DIM])
}

fn nnz_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    match matrix_dims(s, 0)?.as_deref() {
        Some([count, _, _]) => s.output(0, [*count]),
        Some(_) => s.output(0, []),
        None => Ok(()),
    }
}

fn transpose_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let mut dims = matrix_dims(s, 0)?;
    if let Some(dims) = &mut dims {
        let rank = dims.len();
        dims.swap(rank - 2, rank - 1);
    }
    let shape = dims.map_or(Ok(PartialShape::unknown()), PartialShape::new)?;
    let dtype = s.attr("type")?;
    set_matrix(s, dtype, shape);
    Ok(())
}

/// Which of a product's factors are transposed, and which conjugated too.
#[derive(Clone, Copy)]
struct Adjoints {
    transpose: [bool; 2],
    conjugate: [bool; 2],
}

impl Adjoints {
    fn new(attr: impl Fn(&str) -> Result<bool>) -> Result<Adjoints> {
        let (ta, tb) = (attr("transpose_a")?, attr("transpose_b")?);
        let (aa, ab) = (attr("adjoint_a")?, attr("adjoint_b")?);
        for (name, transpose, adjoint) in [("a", ta, aa), ("b", tb, ab)] {
            ensure!(
                !(transpose && adjoint),
                InvalidArgument,
                "Only one of adjoint_{name} and transpose_{name} may be true."
            );
        }
        Ok(Adjoints { transpose: [ta || aa, tb || ab], conjugate: [aa, ab] })
    }

    /// The dimensions of a product, of which those of the batch are given.
    fn product(self, s: &ShapeCx<'_>, a: &[i64], b: &[i64], batch: &[i64]) -> Result<Vec<i64>> {
        let last = |dims: &[i64], back: usize| dims[dims.len() - back];
        let [ta, tb] = self.transpose;
        s.merge_dims(last(a, if ta { 2 } else { 1 }), last(b, if tb { 1 } else { 2 }))?;
        let own = [last(a, if ta { 1 } else { 2 }), last(b, if tb { 2 } else { 1 })];
        Ok(batch.iter().copied().chain(own).collect())
    }
}

fn dense_product_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let adjoints = Adjoints::new(|name| s.attr(name))?;
    s.rank_at_least(1, 2)?;
    let b = s.rank_at_most(1, 3)?;
    let (Some(a), Some(b)) = (matrix_dims(s, 0)?, b.dims().map(<[i64]>::to_vec)) else { return Ok(()) };
    let batch = |dims: &[i64]| PartialShape::new(dims[..dims.len() - 2].iter().copied());
    let batch = s.merge(&batch(&a)?, &batch(&b)?)?;
    let mut dims = adjoints.product(s, &a, &b, batch.dims().unwrap_or_default())?;
    if s.attr("transpose_output")? {
        let rank = dims.len();
        dims.swap(rank - 2, rank - 1);
    }
    s.output(0, dims)
}

fn sparse_product_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let adjoints = Adjoints::new(|name| s.attr(name))?;
    let shape = match (matrix_dims(s, 0)?, matrix_dims(s, 1)?) {
        (Some(a), Some(b)) if a.len() == b.len() => {
            let batch: Vec<i64> = match (a.len(), a[0], b[0]) {
                (2, _, _) => Vec::new(),
                (_, 1, count) | (_, count, 1) => vec![count],
                (_, x, y) => vec![s.merge_dims(x, y)?],
            };
            PartialShape::new(adjoints.product(s, &a, &b, &batch)?)?
        }
        _ => PartialShape::unknown(),
    };
    let dtype = s.attr("type")?;
    set_matrix(s, dtype, shape);
    Ok(())
}

fn from_dense_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (dense, indices) = (cx.input(0)?, cx.input(1)?);
        let rank = dense.rank();
        ensure!(
            (2..=3).contains(&rank),
            InvalidArgument,
            "params must have rank == 2 or 3; but saw shape: {}",
            dense.shape()
        );
        ensure!(
            indices.rank() == 2,
            InvalidArgument,
            "indices must be a matrix, but saw shape: {}",
            indices.shape()
        );
        ensure!(
            indices.shape().dim(1) == rank,
            InvalidArgument,
            "indices.shape[1] must be equal to the rank of params, but saw: {} vs. {rank}",
            indices.shape().dim(1)
        );
        let places = indices.flat::<i64>()?;
        check_pointers(cx, dense.shape()[..rank - 1].iter().product())?;
        let mut values = cx.alloc::<T>(Shape::vector(indices.shape().dim(0)))?;
        let from = dense.flat::<T>()?;
        for (number, (value, place)) in
            values.flat_mut::<T>()?.iter_mut().zip(places.chunks_exact(rank)).enumerate()
        {
            let inside = place.iter().zip(dense.shape().iter()).all(|(at, dim)| (0..*dim).contains(at));
            ensure!(
                inside,
                InvalidArgument,
                "indices{} = {place:?} does not index into param shape {}",
                position(&Shape::vector(indices.shape().dim(0)), number),
                dense.shape()
            );
            let at = place.iter().zip(dense.shape().iter()).fold(0, |sum, (at, dim)| sum * dim + at);
            *value = from[at as usize];
        }
        Ok(Csr::from_entries(dense.shape(), places, values)?.into_tensor()?.into())
    })
}

fn from_sparse_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let sparse = Sparse::input(cx, 0)?;
        sparse.check_bounds()?;
        ensure!(
            (2..=3).contains(&sparse.rank()),
            InvalidArgument,
            "SparseTensor must have rank 2 or 3; but indices has rank: {}",
            sparse.rank()
        );
        let shape = sparse.dense_shape()?;
        check_pointers(cx, shape[..shape.rank() - 1].iter().product())?;
        Ok(Csr::from_entries(&shape, sparse.indices, sparse.values.clone())?.into_tensor()?.into())
    })
}

/// Refuses more pointers than memory could hold: matrices may have any number of rows without entries.
fn check_pointers(cx: &KernelCx<'_>, count: i64) -> Result<()> {
    cx.device().check_allocation(DType::Int64, &Shape::new([count])?)
}

/// The matrix of an input, which must have this type.
pub(crate) fn matrix(cx: &KernelCx<'_>, input: usize, dtype: DType) -> Result<Csr> {
    let csr = Csr::input(cx, input)?;
    ensure!(
        csr.dtype() == dtype,
        InvalidArgument,
        "Asked for a CSRSparseMatrix of type {dtype} but saw dtype: {}",
        csr.dtype()
    );
    Ok(csr)
}

fn to_dense_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let csr = matrix(cx, 0, T::DTYPE)?;
        let mut out = cx.zeros(T::DTYPE, Shape::new(csr.shape.iter().copied())?)?;
        let (dense, values, width) = (out.flat_mut::<T>()?, csr.values.flat::<T>()?, csr.num_columns());
        for batch in 0..csr.count() {
            let part = csr.part(batch);
            for row in 0..csr.num_rows() {
                let begin = (batch * csr.num_rows() + row) * width;
                for entry in part.row(row) {
                    dense[begin + part.columns[entry] as usize] = values[part.begin + entry];
                }
            }
        }
        Ok(out.into())
    })
}

fn to_sparse_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("type")?;
    Kernel::sync(move |cx| {
        let csr = matrix(cx, 0, dtype)?;
        let indices = Tensor::new(Shape::matrix(csr.columns.len(), csr.shape.len()), csr.indices())?;
        Ok([indices, csr.values, Tensor::vector(csr.shape)].into())
    })
}

fn components_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("type")?;
    Kernel::sync(move |cx| {
        let csr = matrix(cx, 0, dtype)?;
        let index = cx.input(1)?;
        ensure!(index.rank() == 0, InvalidArgument, "index should be a scalar, but saw: {}", index.shape());
        let index = index.to_scalar::<i32>()?;
        ensure!(
            (0..csr.count() as i32).contains(&index),
            InvalidArgument,
            "index ({index}) not in [0, {})",
            csr.count()
        );
        let part = csr.part(index as usize);
        let values = rows::slice(cx.device(), &csr.values, part.begin, Shape::vector(part.columns.len()))?;
        Ok([Tensor::vector(part.rows.to_vec()), Tensor::vector(part.columns.to_vec()), values].into())
    })
}

fn nnz_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let csr = Csr::input(cx, 0)?;
        let counts: Vec<i32> = csr.batches.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let shape = if csr.shape.len() == 3 { Shape::vector(counts.len()) } else { Shape::scalar() };
        Ok(Tensor::new(shape, counts)?.into())
    })
}

/// The transpose of each matrix.
fn transposed<T: Num>(cx: &KernelCx<'_>, csr: &Csr, conjugate: bool) -> Result<Csr> {
    check_pointers(cx, (csr.num_columns() as i64 + 1).saturating_mul(csr.count() as i64))?;
    let (rows, columns, rank) = (csr.num_rows(), csr.num_columns(), csr.shape.len());
    let mut out = Csr {
        shape: csr.shape.clone(),
        batches: csr.batches.clone(),
        rows: Vec::with_capacity(csr.count() * (columns + 1)),
        columns: vec![0; csr.columns.len()],
        values: csr.values.deep_copy(),
    };
    out.shape.swap(rank - 2, rank - 1);
    let (from, to) = (csr.values.flat::<T>()?, out.values.flat_mut::<T>()?);
    for batch in 0..csr.count() {
        let part = csr.part(batch);
        let mut next = vec![0i32; columns + 1];
        for column in part.columns.iter() {
            next[*column as usize + 1] += 1;
        }
        for column in 0..columns {
            next[column + 1] += next[column];
        }
        out.rows.extend_from_slice(&next);
        for row in 0..rows {
            for entry in part.row(row) {
                let next = &mut next[part.columns[entry] as usize];
                let place = part.begin + *next as usize;
                *next += 1;
                out.columns[place] = row as i32;
                let value = from[part.begin + entry];
                to[place] = if conjugate { value.conj() } else { value };
            }
        }
    }
    Ok(out)
}

fn transpose_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let conjugate: bool = init.attr("conjugate")?;
    Kernel::sync(move |cx| {
        Ok(transposed::<T>(cx, &matrix(cx, 0, T::DTYPE)?, conjugate)?.into_tensor()?.into())
    })
}

/// A factor as a product takes it.
fn factor<T: Num>(cx: &KernelCx<'_>, csr: Csr, transpose: bool, conjugate: bool) -> Result<Csr> {
    if transpose { transposed::<T>(cx, &csr, conjugate) } else { Ok(csr) }
}

/// The transposes of matrices that lie one after the other.
fn transposed_dense<T: Num>(from: &[T], rows: usize, columns: usize, conjugate: bool) -> Vec<T> {
    let mut out = Vec::with_capacity(from.len());
    for matrix in from.chunks_exact((rows * columns).max(1)) {
        for column in 0..columns {
            out.extend((0..rows).map(|row| {
                let value = matrix[row * columns + column];
                if conjugate { value.conj() } else { value }
            }));
        }
    }
    out
}

fn dense_product_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let adjoints = Adjoints::new(|name| init.attr(name))?;
    let (transpose, conjugate): (bool, bool) =
        (init.attr("transpose_output")?, init.attr("conjugate_output")?);
    Kernel::sync(move |cx| {
        let (a, b) = (Csr::input(cx, 0)?, cx.input(1)?);
        let out = dense_product::<T>(cx, a, b, adjoints)?;
        let rank = out.rank();
        let (rows, columns) = (out.shape().dim(rank - 2), out.shape().dim(rank - 1));
        if transpose {
            let dims = out.shape()[..rank - 2].iter().copied().chain([columns as i64, rows as i64]);
            let shape = Shape::new(dims)?;
            return Ok(
                Tensor::new(shape, transposed_dense::<T>(out.flat()?, rows, columns, conjugate))?.into()
            );
        }
        let mut out = out;
        if conjugate {
            for value in out.flat_mut::<T>()?.iter_mut() {
                *value = value.conj();
            }
        }
        Ok(out.into())
    })
}

fn dense_product<T: Num>(cx: &KernelCx<'_>, a: Csr, b: &Tensor, adjoints: Adjoints) -> Result<Tensor> {
    ensure!(
        a.dtype() == T::DTYPE,
        InvalidArgument,
        "Input types don't match.  a.dtype == {} vs. b.dtype == {}",
        a.dtype(),
        b.dtype()
    );
    let rank = a.shape.len();
    ensure!(rank == b.rank(), InvalidArgument, "Ranks of a and b must match, saw: {rank} vs. {}.", b.rank());
    let count = if rank == 2 { 1 } else { b.shape().dim(0) };
    ensure!(
        a.count() == count,
        InvalidArgument,
        "Batch sizes of a and b must match, saw: {} vs. {count}.",
        a.count()
    );
    let dense = b.flat::<T>()?;
    let (b_rows, b_columns) = (b.shape().dim(rank - 2), b.shape().dim(rank - 1));
    let dims = a.shape.clone();
    let a = factor::<T>(cx, a, adjoints.transpose[0], adjoints.conjugate[0])?;
    let (inner, width) = if adjoints.transpose[1] { (b_columns, b_rows) } else { (b_rows, b_columns) };
    ensure!(
        a.num_columns() == inner,
        InvalidArgument,
        "Inner product dimensions of A and B do not agree. Shapes are: {} vs. {}",
        Shape::new(dims)?,
        b.shape()
    );
    let turned;
    let dense = if adjoints.transpose[1] {
        turned = transposed_dense(dense, b_rows, b_columns, adjoints.conjugate[1]);
        &turned
    } else {
        dense
    };
    let batch = b.shape()[..rank - 2].iter().copied();
    let mut out = cx.alloc::<T>(Shape::new(batch.chain([a.num_rows() as i64, width as i64]))?)?;
    let values = a.values.flat::<T>()?;
    let (size, each) = (a.num_rows() * width, inner * width);
    let results = out.flat_mut::<T>()?;
    for batch in 0..count {
        let part = a.part(batch);
        let places: Vec<[i64; 2]> = part.columns.iter().map(|column| [0, *column as i64]).collect();
        let splits: Vec<usize> = part.rows.iter().map(|pointer| *pointer as usize).collect();
        let values = &values[part.begin..part.begin + part.columns.len()];
        let entries = Entries { places: &places, values, splits: &splits, column: 1, conjugate: false };
        let dense = &dense[batch * each..(batch + 1) * each];
        multiply(cx.threads(), &entries, dense, width, &mut results[batch * size..(batch + 1) * size]);
    }
    Ok(out)
}

fn sparse_product_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let adjoints = Adjoints::new(|name| init.attr(name))?;
    Kernel::sync(move |cx| {
        let (a, b) = (matrix(cx, 0, T::DTYPE)?, matrix(cx, 1, T::DTYPE)?);
        ensure!(
            a.count() == b.count() || a.count() == 1 || b.count() == 1,
            InvalidArgument,
            "Batch sizes of A and B are not compatible.  Batch sizes are: {} vs. {}",
            a.count(),
            b.count()
        );
        ensure!(
            a.shape.len() == b.shape.len(),
            InvalidArgument,
            "Ranks of A and B must match, saw: {} vs. {}.",
            a.shape.len(),
            b.shape.len()
        );
        let a = factor::<T>(cx, a, adjoints.transpose[0], adjoints.conjugate[0])?;
        let b = factor::<T>(cx, b, adjoints.transpose[1], adjoints.conjugate[1])?;
        ensure!(
            a.num_columns() == b.num_rows(),
            InvalidArgument,
            "Inner product dimensions of A and B do not agree.  Shapes are: {:?} vs. {:?}",
            a.shape,
            b.shape
        );
        Ok(sparse_product::<T>(cx, &a, &b)?.into_tensor()?.into())
    })
}

fn sparse_product<T: Num>(cx: &KernelCx<'_>, a: &Csr, b: &Csr) -> Result<Csr> {
    let count = a.count().max(b.count());
    let rank = a.shape.len();
    let mut out = Csr {
        shape: a.shape.clone(),
        batches: vec![0],
        rows: Vec::new(),
        columns: Vec::new(),
        values: Tensor::vector(Vec::<T>::new()),
    };
    out.shape[rank - 1] = b.num_columns() as i64;
    if rank == 3 {
        out.shape[0] = count as i64;
    }
    let (a_values, b_values) = (a.values.flat::<T>()?, b.values.flat::<T>()?);
    let mut values: Vec<T> = Vec::new();
    check_pointers(cx, b.num_columns() as i64)?;
    // The sums of a row by column, and which columns have one.
    let (mut sums, mut used) = (vec![T::ZERO; b.num_columns()], vec![false; b.num_columns()]);
    for batch in 0..count {
        cx.step().check_cancelled()?;
        let one = |matrix: &Csr| if matrix.count() == 1 { 0 } else { batch };
        let (left, right) = (a.part(one(a)), b.part(one(b)));
        let first = out.columns.len();
        out.rows.push(0);
        for row in 0..a.num_rows() {
            let begin = out.columns.len();
            for entry in left.row(row) {
                let value = a_values[left.begin + entry];
                for other in right.row(left.columns[entry] as usize) {
                    let column = right.columns[other];
                    let term = value.mul(b_values[right.begin + other]);
                    let sum = &mut sums[column as usize];
                    *sum = sum.add(term);
                    if !std::mem::replace(&mut used[column as usize], true) {
                        out.columns.push(column);
                    }
                }
            }
            out.columns[begin..].sort_unstable();
            for column in &out.columns[begin..] {
                values.push(std::mem::replace(&mut sums[*column as usize], T::ZERO));
                used[*column as usize] = false;
            }
            out.rows.push((out.columns.len() - first) as i32);
        }
        ensure!(
            out.columns.len() <= i32::MAX as usize,
            InvalidArgument,
            "The product has {} entries, more than a CSRSparseMatrix may have",
            out.columns.len()
        );
        out.batches.push(out.columns.len() as i32);
    }
    out.values = Tensor::vector(values);
    Ok(out)
}

/// A node of a CSR op with the type of its values.
fn typed(s: &Scope, op: &str, attr: &str, dtype: DType, inputs: &[&Output]) -> Result<Vec<Output>> {
    let node = inputs.iter().fold(s.op(op), |node, input| node.input(*input));
    let node = node.attr(attr, dtype).build()?;
    let outputs = if op == "CSRSparseMatrixToSparseTensor" { 3 } else { 1 };
    (0..outputs).map(|output| node.output(output)).collect()
}

/// The coordinates of the entries of a matrix.
fn entries(s: &Scope, csr: &Output, dtype: DType) -> Result<[Output; 2]> {
    let parts = typed(s, "CSRSparseMatrixToSparseTensor", "type", dtype, &[csr])?;
    Ok([parts[0].clone(), parts[2].clone()])
}

/// A matrix with the entries of another one, whose values come from a dense tensor.
fn pruned(s: &Scope, dense: &Output, pattern: &Output) -> Result<Output> {
    let [indices, shape] = entries(s, pattern, dense.dtype())?;
    let values = ops::gather_nd(s, dense, &indices)?;
    let made = typed(s, "SparseTensorToCSRSparseMatrix", "T", dense.dtype(), &[&indices, &values, &shape])?;
    Ok(made[0].clone())
}

fn from_dense_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let dtype = g.input(0).dtype();
    let dense = typed(g.scope(), "CSRSparseMatrixToDense", "type", dtype, &[&g.dy(0)?])?;
    Ok([Some(dense[0].clone()), None].into())
}

fn from_sparse_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let dtype = g.input(1).dtype();
    let parts = typed(g.scope(), "CSRSparseMatrixToSparseTensor", "type", dtype, &[&g.dy(0)?])?;
    Ok([None, Some(parts[1].clone()), None].into())
}

fn to_dense_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([pruned(g.scope(), &g.dy(0)?, g.input(0))?].into())
}

fn to_sparse_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (values, dtype) = (g.dy(1)?, g.output(1)?.dtype());
    let inputs = [&g.output(0)?, &values, &g.output(2)?];
    let made = typed(g.scope(), "SparseTensorToCSRSparseMatrix", "T", dtype, &inputs)?;
    Ok([made[0].clone()].into())
}

fn transpose_node(s: &Scope, csr: &Output, dtype: DType, conjugate: bool) -> Result<Output> {
    let node = s.op("SparseMatrixTranspose").input(csr).attr("type", dtype).attr("conjugate", conjugate);
    node.build()?.output(0)
}

fn transpose_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([transpose_node(g.scope(), &g.dy(0)?, g.attr("type")?, g.attr("conjugate")?)?].into())
}

/// A dense matrix or batch of them, transposed.
fn turned(s: &Scope, x: &Output) -> Result<Output> {
    match x.shape().rank() {
        Some(3) => ops::transpose(s, x, [0, 2, 1]),
        Some(2) => ops::transpose(s, x, [1, 0]),
        _ => bail!(
            InvalidArgument,
            "the gradient of '{}' needs the rank of '{}', which is not known",
            "SparseMatrixMatMul",
            x.name()
        ),
    }
}

fn dense_product_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, a, b, dtype) = (g.scope(), g.input(0), g.input(1), g.input(1).dtype());
    let adjoints = Adjoints::new(|name| g.attr(name))?;
    let mut dy = g.dy(0)?;
    if g.attr("conjugate_output")? {
        dy = conj(s, &dy)?;
    }
    if g.attr("transpose_output")? {
        dy = turned(s, &dy)?;
    }
    // With `x = op(a)`, `y = op(b)` and the product `x y`: `dx = dy y*` and `dy = x* dy`.
    let product = |x: &Output, flags: &[&str]| {
        let node = s.op("SparseMatrixMatMul").input(a).input(x);
        flags.iter().fold(node, |node, flag| node.attr(flag, true)).build()?.output(0)
    };
    let back = match (adjoints.transpose[1], adjoints.conjugate[1]) {
        (false, _) => vec![],
        (true, false) => vec!["transpose_output"],
        (true, true) => vec!["transpose_output", "conjugate_output"],
    };
    let db = match (adjoints.transpose[0], adjoints.conjugate[0]) {
        (false, _) => product(&dy, &[&["adjoint_a"], back.as_slice()].concat())?,
        (true, true) => product(&dy, &back)?,
        // The conjugate of `a` itself: conjugates around a product with `a`.
        (true, false) => {
            let conjugated = adjoints.conjugate[1];
            let flags: &[&str] = match (adjoints.transpose[1], conjugated) {
                (false, _) => &["conjugate_output"],
                (true, false) => &["transpose_output", "conjugate_output"],
                (true, true) => &["transpose_output"],
            };
            product(&conj(s, &dy)?, flags)?
        }
    };
    let [indices, shape] = entries(s, a, dtype)?;
    let y = if adjoints.transpose[1] { turned(s, b)? } else { b.clone() };
    let y = if adjoints.conjugate[1] { conj(s, &y)? } else { y };
    let batched = match y.shape().rank() {
        Some(rank) => rank == 3,
        None => bail!(InvalidArgument, "the rank of '{}' is not known", b.name()),
    };
    let columns = |picked: &[i32]| ops::gather_v2(s, &indices, picked.to_vec(), 1);
    let (rows, columns) =
        if batched { (columns(&[0, 1])?, columns(&[0, 2])?) } else { (columns(&[0])?, columns(&[1])?) };
    let (rows, columns) = if adjoints.transpose[0] { (columns, rows) } else { (rows, columns) };
    let left = ops::gather_nd(s, &dy, rows)?;
    let right = conj(s, &ops::gather_nd(s, y, columns)?)?;
    let values = ops::sum(s, ops::mul(s, left, right), [-1])?;
    let values = if adjoints.conjugate[0] { conj(s, &values)? } else { values };
    let da = typed(s, "SparseTensorToCSRSparseMatrix", "T", dtype, &[&indices, &values, &shape])?;
    Ok([da[0].clone(), db].into())
}

fn sparse_product_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, a, b, dy) = (g.scope(), g.input(0), g.input(1), g.dy(0)?);
    let dtype: DType = g.attr("type")?;
    let adjoints = Adjoints::new(|name| g.attr(name))?;
    // The adjoints of both factors as the product saw them, made by transposing.
    let adjoint = |x: &Output, side: usize| match (adjoints.transpose[side], adjoints.conjugate[side]) {
        (false, _) => transpose_node(s, x, dtype, true),
        (true, true) => Ok(x.clone()),
        (true, false) if dtype.is_complex() => {
            transpose_node(s, &transpose_node(s, x, dtype, true)?, dtype, false)
        }
        (true, false) => Ok(x.clone()),
    };
    let product = |x: &Output, y: &Output| {
        let node = s.op("SparseMatrixSparseMatMul").input(x).input(y).attr("type", dtype);
        node.build()?.output(0)
    };
    let finish = |grad: Output, x: &Output, side: usize| {
        let grad = if adjoints.transpose[side] {
            transpose_node(s, &grad, dtype, adjoints.conjugate[side])?
        } else {
            grad
        };
        let dense = typed(s, "CSRSparseMatrixToDense", "type", dtype, &[&grad])?;
        pruned(s, &dense[0], x)
    };
    let da = finish(product(&dy, &adjoint(b, 1)?)?, a, 0)?;
    let db = finish(product(&adjoint(a, 0)?, &dy)?, b, 1)?;
    Ok([da, db].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{DType, Shape, Tensor};

    #[test]
    fn a_matrix_squared() {
        let indices = Tensor::new(Shape::matrix(2, 2), vec![0i64, 1, 1, 0]).unwrap();
        let values = Tensor::vector(vec![2.0f32, 3.0]);
        let csr = Node::new("SparseTensorToCSRSparseMatrix");
        let csr = csr.run([indices, values, Tensor::vector(vec![2i64, 2])]).unwrap().remove(0);
        let square = Node::new("SparseMatrixSparseMatMul").attr("type", DType::Float);
        let square = square.run([csr.clone(), csr]).unwrap().remove(0);
        let dense = Node::new("CSRSparseMatrixToDense").attr("type", DType::Float).run([square]).unwrap();
        assert_eq!(dense[0].flat::<f32>().unwrap(), [6.0, 0.0, 0.0, 6.0]);
    }
}
