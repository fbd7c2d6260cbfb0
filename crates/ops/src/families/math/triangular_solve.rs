//! Linear equations with triangular matrices.

use crate::builders as ops;
use crate::numeric::Num;
use crate::support::batches::{Batches, leading, unbroadcast};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, Dim, GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::{C64, C128, Result, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&MATRIX_TRIANGULAR_SOLVE, &BATCH_MATRIX_TRIANGULAR_SOLVE];

static MATRIX_TRIANGULAR_SOLVE: Op = Op {
    name: "MatrixTriangularSolve",
    gradient: Gradient::Fn(solve_grad),
    inputs: &["matrix: T", "rhs: T"],
    outputs: &["output: T"],
    attrs: &[
        "lower: bool = true",
        "adjoint: bool = false",
        "T: {bfloat16, double, float, half, complex64, complex128}",
    ],
    shape: solve_shape,
    kernels: kernels![solve_kernel: f64, f32, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static BATCH_MATRIX_TRIANGULAR_SOLVE: Op = Op {
    name: "BatchMatrixTriangularSolve",
    gradient: Gradient::Undefined,
    attrs: &["lower: bool = true", "adjoint: bool = false", "T: {double, float}"],
    shape: shapes::unknown,
    deprecated_at: Some(13),
    kernels: kernels![solve_kernel: f64, f32],
    ..MATRIX_TRIANGULAR_SOLVE
};

fn solve_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (matrix, rhs) = (s.rank_at_least(0, 2)?, s.rank_at_least(1, 2)?);
    let (Some(matrix), Some(rhs)) = (matrix.dims(), rhs.dims()) else { return Ok(()) };
    let order = s.merge_dims(matrix[matrix.len() - 2], matrix[matrix.len() - 1])?;
    let rows = s.merge_dims(order, rhs[rhs.len() - 2])?;
    let batch = shapes::broadcast(&leading(matrix)?, &leading(rhs)?)?;
    let Some(batch) = batch.dims() else { return Ok(()) };
    s.output(0, batch.iter().copied().chain([rows, rhs[rhs.len() - 1]]).collect::<Vec<Dim>>())
}

fn solve_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let (lower, adjoint): (bool, bool) = (init.attr("lower")?, init.attr("adjoint")?);
    Kernel::sync(move |cx| {
        let (matrix, rhs) = (cx.input(0)?, cx.input(1)?);
        ensure!(matrix.rank() >= 2, InvalidArgument, "In[0] ndims must be >= 2: {}", matrix.rank());
        ensure!(rhs.rank() >= 2, InvalidArgument, "In[1] ndims must be >= 2: {}", rhs.rank());
        let (matrix_dims, rhs_dims) = (matrix.shape().dims(), rhs.shape().dims());
        let (rows, columns) = (matrix_dims[matrix.rank() - 2], matrix_dims[matrix.rank() - 1]);
        ensure!(
            rows == columns,
            InvalidArgument,
            "In[0] matrices in the last dimensions must be square ({columns} =/= {rows})"
        );
        let batches = Batches::new(matrix.shape(), rhs.shape())?;
        let (rhs_rows, width) = (rhs_dims[rhs.rank() - 2], rhs_dims[rhs.rank() - 1]);
        ensure!(
            rows == rhs_rows,
            InvalidArgument,
            "In[0] mismatch In[1] shape: {rows} vs. {rhs_rows}: {} {} {} {}",
            matrix.shape(),
            rhs.shape(),
            lower as u8,
            adjoint as u8
        );
        let mut output = cx.alloc::<T>(batches.shape_of(rows, width)?)?;
        let out = output.flat_mut::<T>()?;
        let (order, width) = (rows as usize, width as usize);
        let size = order * width;
        if !out.is_empty() {
            let (matrices, right, layout) = (matrix.flat::<T>()?, rhs.flat::<T>()?, batches.layout());
            cx.threads().parallel_rows(out, size, size * order, |first, part| {
                for (number, x) in part.chunks_exact_mut(size).enumerate() {
                    let (a, b) = layout.find(first + number);
                    x.copy_from_slice(&right[b * size..][..size]);
                    solve(&matrices[a * order * order..][..order * order], order, lower, adjoint, x, width);
                }
            });
        }
        Ok(output.into())
    })
}

/// Solves in place for the columns of `x`, row by row. What is on the other side of the diagonal counts as zero.
fn solve<T: Num>(matrix: &[T], order: usize, lower: bool, adjoint: bool, x: &mut [T], width: usize) {
    let entry = |row: usize, column: usize| {
        if adjoint { matrix[column * order + row].conj() } else { matrix[row * order + column] }
    };
    let is_forward = lower != adjoint;
    for step in 0..order {
        let row = if is_forward { step } else { order - 1 - step };
        let (before, rest) = x.split_at_mut(row * width);
        let (own, after) = rest.split_at_mut(width);
        let (known, first) = if is_forward { (before, 0) } else { (after, row + 1) };
        for (number, known) in known.chunks_exact(width).enumerate() {
            let factor = entry(row, first + number);
            for (x, known) in own.iter_mut().zip(known) {
                *x = x.sub(factor.mul(*known));
            }
        }
        // Stock multiplies, too.
        let factor = entry(row, row).reciprocal();
        for x in own.iter_mut() {
            *x = x.mul(factor);
        }
    }
}

fn solve_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, matrix, solution) = (g.scope(), g.input(0), g.output(0)?);
    let (lower, adjoint): (bool, bool) = (g.attr("lower")?, g.attr("adjoint")?);
    let rhs_grad =
        ops::MatrixTriangularSolve::new().lower(lower).adjoint(!adjoint).build(s, matrix, g.dy(0)?)?;
    let (left, right) = if adjoint { (&solution, &rhs_grad) } else { (&rhs_grad, &solution) };
    let product = ops::neg(s, ops::BatchMatMulV2::new().adj_y(true).build(s, left, right))?;
    let (below, above) = if lower { (-1, 0) } else { (0, -1) };
    let matrix_grad = ops::matrix_band_part(s, product, below, above)?;
    unbroadcast(g, matrix_grad, rhs_grad)
}

#[cfg(test)]
mod tests {
    use crate::testing::{infer, infer_err};
    use ferroflow_core::Code;

    #[test]
    fn batches_broadcast() {
        infer("MatrixTriangularSolve", "[3,3];[3,2]", "[3,2]");
        infer("MatrixTriangularSolve", "[2,1,3,?];[5,3,2]", "[2,5,3,2]");
        infer_err("MatrixTriangularSolve", "[3,2];[3,2]", Code::InvalidArgument);
        infer_err("MatrixTriangularSolve", "[3,3];[2,2]", Code::InvalidArgument);
    }
}
