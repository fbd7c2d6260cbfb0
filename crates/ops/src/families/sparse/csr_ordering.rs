//! Orders of rows and columns in which sparse matrices have sparse Cholesky factors.

use super::csr_matrix::matrix_dims;
use crate::numeric::minimum_degree::minimum_degree;
use crate::state::csr::Csr;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, ShapeCx};
use ferroflow_core::{Result, Shape, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&SPARSE_MATRIX_ORDERING_AMD];

static SPARSE_MATRIX_ORDERING_AMD: Op = Op {
    name: "SparseMatrixOrderingAMD",
    inputs: &["input: variant"],
    outputs: &["output: int32"],
    shape: ordering_shape,
    kernels: kernels![any ordering_kernel],
    ..Op::PURE
};

fn ordering_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let Some(dims) = matrix_dims(s, 0)? else { return Ok(()) };
    let size = s.merge_dims(dims[dims.len() - 2], dims[dims.len() - 1])?;
    let batches = dims[..dims.len() - 2].iter().copied();
    s.output(0, batches.chain([size]))
}

fn ordering_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let csr = Csr::input(cx, 0)?;
        let size = csr.num_rows();
        ensure!(
            size == csr.num_columns(),
            InvalidArgument,
            "sparse matrix must be square; got: {size} != {}",
            csr.num_columns()
        );
        let dims = csr.shape[..csr.shape.len() - 1].iter().copied();
        let mut out = cx.alloc::<i32>(Shape::new(dims)?)?;
        let orders = out.flat_mut::<i32>()?;
        for batch in 0..csr.count() {
            let order = minimum_degree(symmetric(&csr, batch), || cx.step().check_cancelled())?;
            for (place, row) in orders[batch * size..(batch + 1) * size].iter_mut().zip(order) {
                *place = row as i32;
            }
        }
        Ok(out.into())
    })
}

/// The entries of both triangles by column; those of the lower one count.
fn symmetric(csr: &Csr, batch: usize) -> Vec<Vec<usize>> {
    let (part, size) = (csr.part(batch), csr.num_rows());
    let mut columns = vec![Vec::new(); size];
    for row in 0..size {
        for entry in part.row(row) {
            let column = part.columns[entry] as usize;
            if column <= row {
                columns[row].push(column);
            }
            if column < row {
                columns[column].push(row);
            }
        }
    }
    columns
}
