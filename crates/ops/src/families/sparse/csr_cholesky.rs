//! The Cholesky factor of a sparse matrix whose rows and columns are permuted first, so that it has fewer entries.

use super::csr_matrix::{matrix, matrix_dims, set_matrix};
use crate::numeric::Num;
use crate::state::csr::Csr;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Op, ShapeCx};
use ferroflow_core::{C64, C128, PartialShape, Result, Tensor, ensure, kernels, status};
use std::collections::BTreeMap;

pub(crate) const OPS: &[&Op] = &[&SPARSE_MATRIX_SPARSE_CHOLESKY];

static SPARSE_MATRIX_SPARSE_CHOLESKY: Op = Op {
    name: "SparseMatrixSparseCholesky",
    inputs: &["input: variant", "permutation: int32"],
    outputs: &["output: variant"],
    attrs: &["type: {float, double, complex64, complex128}"],
    shape: cholesky_shape,
    kernels: kernels!["type" => cholesky_kernel: f32, f64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn cholesky_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let dims = matrix_dims(s, 0)?;
    s.rank_at_least(1, 1)?;
    let permutation = s.rank_at_most(1, 2)?;
    if let Some(dims) = &dims {
        let size = s.merge_dims(dims[dims.len() - 2], dims[dims.len() - 1])?;
        if let Some(last) = permutation.dims().and_then(<[i64]>::last) {
            s.merge_dims(size, *last)?;
        }
    }
    let shape = dims.map_or(Ok(PartialShape::unknown()), PartialShape::new)?;
    let dtype = s.attr("type")?;
    set_matrix(s, dtype, shape);
    Ok(())
}

/// Numbers that diagonals are made of.
trait Pivot: Num {
    /// The square root of the real part, unless that is not positive.
    fn root(self) -> Option<Self>;
}

macro_rules! pivots {
    ($($type:ty, |$x:ident| $real:expr, |$root:ident| $made:expr;)+) => {$(
        impl Pivot for $type {
            fn root(self) -> Option<$type> {
                let $x = self;
                let real = $real;
                if real <= 0.0 {
                    return None;
                }
                let $root = real.sqrt();
                Some($made)
            }
        }
    )+};
}
pivots! {
    f32, |x| x, |root| root;
    f64, |x| x, |root| root;
    C64, |x| x.re, |root| C64::new(root, 0.0);
    C128, |x| x.re, |root| C128::new(root, 0.0);
}

fn cholesky_kernel<T: Pivot>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let csr = matrix(cx, 0, T::DTYPE)?;
        let permutation = cx.input(1)?;
        let (size, rank) = (csr.num_rows(), csr.shape.len());
        ensure!(
            size == csr.num_columns(),
            InvalidArgument,
            "sparse matrix must be square; got: {size} != {}",
            csr.num_columns()
        );
        ensure!(
            permutation.rank() + 1 == rank,
            InvalidArgument,
            "sparse matrix must have the same rank as permutation; got: {rank} != {} + 1.",
            permutation.rank()
        );
        ensure!(
            permutation.shape().dim(rank - 2) == size,
            InvalidArgument,
            "permutation must have the same number of elements in each batch as the number of rows in sparse matrix; got: {} != {size}",
            permutation.shape().dim(rank - 2)
        );
        ensure!(
            permutation.elements() == size * csr.count(),
            InvalidArgument,
            "permutation must have the same batch size as sparse matrix; got: {} != {}",
            permutation.shape()[0],
            csr.count()
        );
        Ok(factor::<T>(cx, &csr, permutation.flat()?)?.into_tensor()?.into())
    })
}

fn factor<T: Pivot>(cx: &KernelCx<'_>, csr: &Csr, permutations: &[i32]) -> Result<Csr> {
    let size = csr.num_rows();
    let mut out = Csr {
        shape: csr.shape.clone(),
        batches: vec![0],
        rows: Vec::with_capacity(csr.rows.len()),
        columns: Vec::new(),
        values: Tensor::vector(Vec::<T>::new()),
    };
    let mut values = Vec::new();
    for batch in 0..csr.count() {
        cx.step().check_cancelled()?;
        let lower = permuted_lower::<T>(csr, batch, &permutations[batch * size..(batch + 1) * size])?;
        let first = out.columns.len();
        let rows = factor_rows(&lower).ok_or_else(|| {
            status!(
                InvalidArgument,
                "Sparse Cholesky factorization failed for batch index {batch}. The input might not be valid."
            )
        })?;
        out.rows.push(0);
        for row in rows {
            for (column, value) in row {
                out.columns.push(column as i32);
                values.push(value);
            }
            out.rows.push((out.columns.len() - first) as i32);
        }
        ensure!(
            out.columns.len() <= i32::MAX as usize,
            InvalidArgument,
            "The factor has {} entries, more than a CSRSparseMatrix may have",
            out.columns.len()
        );
        out.batches.push(out.columns.len() as i32);
    }
    out.values = Tensor::vector(values);
    Ok(out)
}

/// The rows of the lower triangle after permuting; of the input, too, only the lower triangle counts.
fn permuted_lower<T: Num>(csr: &Csr, batch: usize, permutation: &[i32]) -> Result<Vec<BTreeMap<usize, T>>> {
    let size = permutation.len();
    let mut places = vec![usize::MAX; size];
    for (place, row) in permutation.iter().enumerate() {
        let taken = usize::try_from(*row).ok().and_then(|row| places.get_mut(row));
        match taken {
            Some(taken) if *taken == usize::MAX => *taken = place,
            _ => {
                return Err(status!(
                    InvalidArgument,
                    "permutation[{place}] = {row} is not a permutation of {size} rows"
                ));
            }
        }
    }
    let (part, values) = (csr.part(batch), csr.values.flat::<T>()?);
    let mut lower: Vec<BTreeMap<usize, T>> = vec![BTreeMap::new(); size];
    for row in 0..size {
        for entry in part.row(row) {
            let column = part.columns[entry] as usize;
            if column > row {
                continue;
            }
            let value = values[part.begin + entry];
            let (p, q) = (places[row], places[column]);
            let (p, q, value) = if p >= q { (p, q, value) } else { (q, p, value.conj()) };
            let sum = lower[p].entry(q).or_insert(T::ZERO);
            *sum = sum.add(value);
        }
    }
    Ok(lower)
}

/// The rows of the factor; `None` if the matrix is not positive definite. Entries that the elimination fills are part
/// of it even if they are zero.
fn factor_rows<T: Pivot>(lower: &[BTreeMap<usize, T>]) -> Option<Vec<Vec<(usize, T)>>> {
    let size = lower.len();
    // The next column that a column's elimination fills.
    let mut parents = vec![usize::MAX; size];
    let mut seen = vec![usize::MAX; size];
    let mut work = vec![T::ZERO; size];
    let mut rows: Vec<Vec<(usize, T)>> = Vec::with_capacity(size);
    for (row, entries) in lower.iter().enumerate() {
        let mut pattern = Vec::new();
        seen[row] = row;
        for (column, value) in entries {
            work[*column] = *value;
            let mut at = *column;
            while at < row && seen[at] != row {
                seen[at] = row;
                pattern.push(at);
                if parents[at] == usize::MAX {
                    parents[at] = row;
                }
                at = parents[at];
            }
        }
        pattern.sort_unstable();
        let mut diagonal = work[row];
        let mut out = Vec::with_capacity(pattern.len() + 1);
        for column in pattern {
            let (pivot, before) = rows[column].split_last()?;
            let sum = before.iter().fold(work[column], |sum, (k, value)| sum.sub(work[*k].mul(value.conj())));
            let value = sum.div(pivot.1);
            work[column] = value;
            diagonal = diagonal.sub(value.mul(value.conj()));
            out.push((column, value));
        }
        out.push((row, diagonal.root()?));
        for (column, _) in out.iter() {
            work[*column] = T::ZERO;
        }
        rows.push(out);
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_times_its_transpose() {
        let lower: Vec<BTreeMap<usize, f64>> = vec![
            BTreeMap::from([(0, 4.0)]),
            BTreeMap::from([(1, 9.0)]),
            BTreeMap::from([(0, 2.0), (1, 3.0), (2, 3.0)]),
        ];
        let rows = factor_rows(&lower).unwrap();
        assert_eq!(rows, [vec![(0, 2.0)], vec![(1, 3.0)], vec![(0, 1.0), (1, 1.0), (2, 1.0)]]);
        assert!(factor_rows(&[BTreeMap::from([(0, -1.0)])]).is_none());
    }
}
