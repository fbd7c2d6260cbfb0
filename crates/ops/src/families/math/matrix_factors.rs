//! Triangular factors of matrices, and what is computed from them: solutions, inverses, determinants.

use crate::builders as ops;
use crate::linalg::dense::scalar::Scalar;
use crate::linalg::dense::{cholesky, lu};
use crate::numeric::Num;
use crate::support::gradient::conj;
use crate::support::matrices::{
    Matrices, absent, adjoint, for_each_matrix, product, square_shape, unchanged_square,
};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::scope::Output;
use ferroflow_core::{C64, C128, DType, PartialShape, Result, Shape, bail, ensure, f16, kernels};
use num_traits::Float as _;

pub(crate) const OPS: &[&Op] = &[
    &CHOLESKY,
    &BATCH_CHOLESKY,
    &CHOLESKY_GRAD,
    &BATCH_CHOLESKY_GRAD,
    &LU,
    &MATRIX_SOLVE,
    &BATCH_MATRIX_SOLVE,
    &MATRIX_INVERSE,
    &BATCH_MATRIX_INVERSE,
    &MATRIX_DETERMINANT,
    &BATCH_MATRIX_DETERMINANT,
    &LOG_MATRIX_DETERMINANT,
];

static CHOLESKY: Op = Op {
    name: "Cholesky",
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["T: {double, float, half, complex64, complex128}"],
    shape: unchanged_square,
    gradient: Gradient::Fn(cholesky_gradient),
    kernels: kernels![cholesky_kernel: f64, f32, C64, C128],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static BATCH_CHOLESKY: Op = Op {
    name: "BatchCholesky",
    attrs: &["T: {double, float}"],
    shape: unchanged_square,
    gradient: Gradient::Undefined,
    deprecated_at: Some(13),
    kernels: kernels![cholesky_kernel: f64, f32],
    ..CHOLESKY
};

static CHOLESKY_GRAD: Op = Op {
    name: "CholeskyGrad",
    inputs: &["l: T", "grad: T"],
    outputs: &["output: T"],
    attrs: &["T: {half, float, double}"],
    shape: unchanged_square,
    kernels: kernels![cholesky_grad_kernel: f32, f64],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static BATCH_CHOLESKY_GRAD: Op = Op {
    name: "BatchCholeskyGrad",
    attrs: &["T: {float, double}"],
    deprecated_at: Some(13),
    ..CHOLESKY_GRAD
};

static LU: Op = Op {
    name: "Lu",
    inputs: &["input: T"],
    outputs: &["lu: T", "p: output_idx_type"],
    attrs: &["T: {double, float, half, complex64, complex128}", "output_idx_type: {int32, int64} = DT_INT32"],
    shape: lu_shape,
    kernels: kernels![lu_kernel: f64, f32, C64, C128],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static MATRIX_SOLVE: Op = Op {
    name: "MatrixSolve",
    inputs: &["matrix: T", "rhs: T"],
    outputs: &["output: T"],
    attrs: &["adjoint: bool = false", "T: {double, float, half, complex64, complex128}"],
    shape: solve_shape,
    gradient: Gradient::Fn(solve_gradient),
    kernels: kernels![solve_kernel: f64, f32, C64, C128],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static BATCH_MATRIX_SOLVE: Op = Op {
    name: "BatchMatrixSolve",
    attrs: &["adjoint: bool = false", "T: {double, float}"],
    shape: shapes::unknown,
    gradient: Gradient::Undefined,
    deprecated_at: Some(13),
    ..MATRIX_SOLVE
};

static MATRIX_INVERSE: Op = Op {
    name: "MatrixInverse",
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["adjoint: bool = false", "T: {double, float, half, complex64, complex128}"],
    shape: unchanged_square,
    gradient: Gradient::Fn(inverse_gradient),
    kernels: kernels![inverse_kernel: f64, f32, C64, C128; any half_inverse_kernel],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static BATCH_MATRIX_INVERSE: Op = Op {
    name: "BatchMatrixInverse",
    attrs: &["adjoint: bool = false", "T: {double, float}"],
    shape: shapes::unknown,
    gradient: Gradient::Undefined,
    deprecated_at: Some(13),
    kernels: kernels![inverse_kernel: f64, f32],
    ..MATRIX_INVERSE
};

static MATRIX_DETERMINANT: Op = Op {
    name: "MatrixDeterminant",
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["T: {half, float, double, complex64, complex128}"],
    shape: determinant_shape,
    gradient: Gradient::Fn(determinant_gradient),
    kernels: kernels![determinant_kernel: f32, f64, C64, C128],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static BATCH_MATRIX_DETERMINANT: Op = Op {
    name: "BatchMatrixDeterminant",
    attrs: &["T: {float, double, complex64, complex128}"],
    shape: shapes::unknown,
    gradient: Gradient::Undefined,
    deprecated_at: Some(13),
    ..MATRIX_DETERMINANT
};

static LOG_MATRIX_DETERMINANT: Op = Op {
    name: "LogMatrixDeterminant",
    outputs: &["sign: T", "log_abs_determinant: T"],
    gradient: Gradient::Fn(log_determinant_gradient),
    kernels: kernels![log_determinant_kernel: f32, f64, C64, C128],
    ..MATRIX_DETERMINANT
};

fn cholesky_kernel<T: Scalar>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let matrices = Matrices::square(cx)?;
        let order = matrices.rows;
        let mut output = cx.alloc::<T>(cx.input(0)?.shape().clone())?;
        let input = cx.flat::<T>(0)?;
        let size = order * order;
        let out = (output.flat_mut::<T>()?, size);
        for_each_matrix(
            cx.threads(),
            (matrices.count, size * order / 3),
            (out, absent(), absent()),
            &|at, threads, out, _, _| {
                out.copy_from_slice(&input[at * size..(at + 1) * size]);
                // A failure shows in the values, as in stock.
                let failed = !cholesky::factor(threads, out, order);
                for (row, out) in out.chunks_exact_mut(order.max(1)).enumerate() {
                    if failed {
                        out[..=row].fill(T::failure());
                    } else {
                        out[row + 1..].fill(T::ZERO);
                    }
                }
                Ok(())
            },
        )?;
        Ok(output.into())
    })
}

fn cholesky_grad_kernel<T: Scalar>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let matrices = Matrices::of(cx, 0)?;
        let grad = matrices.beside(cx)?;
        ensure!(
            (matrices.rows, matrices.columns) == (grad.rows, grad.columns),
            InvalidArgument,
            "Inputs (L and grad) must have the same shape."
        );
        ensure!(matrices.rows == matrices.columns, InvalidArgument, "Inputs must be a square matrices.");
        let order = matrices.rows;
        let mut output = cx.alloc::<T>(cx.input(0)?.shape().clone())?;
        let (lower, grad) = (cx.flat::<T>(0)?, cx.flat::<T>(1)?);
        let size = order * order;
        let out = (output.flat_mut::<T>()?, size);
        for_each_matrix(
            cx.threads(),
            (matrices.count, 3 * size * order),
            (out, absent(), absent()),
            &|at, threads, out, _, _| {
                let (lower, grad) = (&lower[at * size..][..size], &grad[at * size..][..size]);
                cholesky::gradient(threads, lower, grad, order, out);
                Ok(())
            },
        )?;
        Ok(output.into())
    })
}

fn lu_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (batch, order, shape) = square_shape(s, 0)?;
    if shape.dims().is_some() {
        s.output(1, batch.into_iter().chain([order]))?;
    }
    s.set(0, shape);
    Ok(())
}

fn lu_kernel<T: Scalar>(init: &Init<'_>) -> Result<Kernel> {
    let index_type: DType = init.attr("output_idx_type")?;
    Kernel::sync(move |cx| {
        let rank = cx.input(0)?.rank();
        ensure!(rank >= 2, InvalidArgument, "Input tensor must have rank >= 2, got {rank}");
        let matrices = Matrices::square(cx)?;
        let order = matrices.rows;
        let mut factors = cx.alloc::<T>(cx.input(0)?.shape().clone())?;
        let mut places = cx.alloc::<i64>(matrices.shape(&[order])?)?;
        let input = cx.flat::<T>(0)?;
        let size = order * order;
        for_each_matrix(
            cx.threads(),
            (matrices.count, 2 * size * order / 3),
            ((factors.flat_mut::<T>()?, size), (places.flat_mut::<i64>()?, order), absent()),
            &|at, threads, out, places, _| {
                out.copy_from_slice(&input[at * size..(at + 1) * size]);
                let exchanges = lu::factor(threads, out, order);
                ensure!(lu::is_invertible(out, order), InvalidArgument, "Input is not invertible.");
                for (place, row) in places.iter_mut().zip(exchanges.rows) {
                    *place = row as i64;
                }
                Ok(())
            },
        )?;
        if index_type == DType::Int64 {
            return Ok([factors, places].into());
        }
        let mut narrow = cx.alloc::<i32>(places.shape().clone())?;
        let pairs = narrow.flat_mut::<i32>()?.iter_mut().zip(places.flat::<i64>()?);
        for (to, from) in pairs {
            *to = *from as i32;
        }
        Ok([factors, narrow].into())
    })
}

fn solve_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (batch, order, shape) = square_shape(s, 0)?;
    let rhs = s.rank_at_least(1, 2)?;
    let (Some(_), Some([rhs_batch @ .., rows, columns])) = (shape.dims(), rhs.dims()) else { return Ok(()) };
    let batch = PartialShape::new(batch)?;
    let batch = s.merge(&batch, &PartialShape::new(rhs_batch.iter().copied())?)?;
    let rows = s.merge_dims(order, *rows)?;
    let Some(batch) = batch.dims() else { return Ok(()) };
    s.output(0, batch.iter().copied().chain([rows, *columns]).collect::<Vec<i64>>())
}

/// A matrix, or its adjoint.
fn oriented<T: Scalar>(matrix: &[T], order: usize, adjoint: bool) -> Vec<T> {
    if !adjoint {
        return matrix.to_vec();
    }
    (0..order * order).map(|at| matrix[at % order * order + at / order].conj()).collect()
}

fn solve_kernel<T: Scalar>(init: &Init<'_>) -> Result<Kernel> {
    let adjoint: bool = init.attr("adjoint")?;
    Kernel::sync(move |cx| {
        let matrices = Matrices::of(cx, 0)?;
        let rhs = matrices.beside(cx)?;
        let (order, width) = (matrices.rows, rhs.columns);
        ensure!(order == matrices.columns, InvalidArgument, "First input (lhs) must be a square matrix.");
        ensure!(order == rhs.rows, InvalidArgument, "Input matrix and rhs are incompatible.");
        let mut output = cx.alloc::<T>(matrices.shape(&[order, width])?)?;
        let (matrix, right) = (cx.flat::<T>(0)?, cx.flat::<T>(1)?);
        let (size, out_size) = (order * order, order * width);
        if out_size == 0 {
            return Ok(output.into());
        }
        let out = (output.flat_mut::<T>()?, out_size);
        for_each_matrix(
            cx.threads(),
            (matrices.count, size * (order + width)),
            (out, absent(), absent()),
            &|at, threads, out, _, _| {
                let mut factors = oriented(&matrix[at * size..][..size], order, adjoint);
                let exchanges = lu::factor(threads, &mut factors, order);
                ensure!(
                    lu::is_invertible(&factors, order),
                    InvalidArgument,
                    "Input matrix is not invertible."
                );
                let right = &right[at * out_size..][..out_size];
                for (out, row) in out.chunks_exact_mut(width).zip(&exchanges.rows) {
                    out.copy_from_slice(&right[row * width..][..width]);
                }
                lu::solve_factored(threads, &factors, order, out, width);
                Ok(())
            },
        )?;
        Ok(output.into())
    })
}

/// Writes the inverse of a matrix.
fn invert<T: Scalar>(
    threads: Option<Threads<'_>>,
    matrix: &[T],
    order: usize,
    adjoint: bool,
    out: &mut [T],
) -> Result<()> {
    let mut factors = oriented(matrix, order, adjoint);
    let exchanges = lu::factor(threads, &mut factors, order);
    ensure!(lu::is_invertible(&factors, order), InvalidArgument, "Input is not invertible.");
    out.fill(T::ZERO);
    for (place, row) in exchanges.rows.iter().enumerate() {
        out[place * order + row] = T::ONE;
    }
    lu::solve_factored(threads, &factors, order, out, order);
    Ok(())
}

fn inverse_kernel<T: Scalar>(init: &Init<'_>) -> Result<Kernel> {
    let adjoint: bool = init.attr("adjoint")?;
    Kernel::sync(move |cx| {
        let matrices = Matrices::square(cx)?;
        let order = matrices.rows;
        let mut output = cx.alloc::<T>(cx.input(0)?.shape().clone())?;
        let input = cx.flat::<T>(0)?;
        let size = order * order;
        let out = (output.flat_mut::<T>()?, size);
        for_each_matrix(
            cx.threads(),
            (matrices.count, 2 * size * order),
            (out, absent(), absent()),
            &|at, threads, out, _, _| invert(threads, &input[at * size..][..size], order, adjoint, out),
        )?;
        Ok(output.into())
    })
}

/// Halves are inverted in single precision, as in stock.
fn half_inverse_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (dtype, adjoint): (DType, bool) = (init.attr("T")?, init.attr("adjoint")?);
    if dtype != DType::Half {
        bail!(Unimplemented, "MatrixInverse has no kernel for T={}", dtype.name());
    }
    Kernel::sync(move |cx| {
        let matrices = Matrices::square(cx)?;
        let order = matrices.rows;
        let mut output = cx.alloc::<f16>(cx.input(0)?.shape().clone())?;
        let input = cx.flat::<f16>(0)?;
        let size = order * order;
        let out = (output.flat_mut::<f16>()?, size);
        for_each_matrix(
            cx.threads(),
            (matrices.count, 2 * size * order),
            (out, absent(), absent()),
            &|at, threads, out, _, _| {
                let wide: Vec<f32> = input[at * size..][..size].iter().map(|x| x.to_f32()).collect();
                let mut inverse = vec![0.0; size];
                invert(threads, &wide, order, adjoint, &mut inverse)?;
                for (to, from) in out.iter_mut().zip(inverse) {
                    *to = f16::from_f32(from);
                }
                Ok(())
            },
        )?;
        Ok(output.into())
    })
}

fn determinant_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (batch, _, shape) = square_shape(s, 0)?;
    if shape.dims().is_some() {
        for output in 0..s.num_outputs() {
            s.output(output, batch.iter().copied())?;
        }
    }
    Ok(())
}

/// The direction of a determinant, and the logarithm of its absolute value.
fn log_determinant<T: Scalar>(threads: Option<Threads<'_>>, matrix: &[T], order: usize) -> (T, T::Real) {
    let mut factors = matrix.to_vec();
    let exchanges = lu::factor(threads, &mut factors, order);
    let mut sign = if exchanges.odd { -T::ONE } else { T::ONE };
    let mut sum = T::Real::ZERO;
    for at in 0..order {
        let pivot = factors[at * order + at];
        let direction = if pivot == T::ZERO { T::ZERO } else { pivot.phase() };
        sign = sign * direction;
        sum += pivot.modulus().ln();
    }
    (sign, sum)
}

fn determinant_kernel<T: Scalar>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let matrices = Matrices::square(cx)?;
        let order = matrices.rows;
        let mut output = cx.alloc::<T>(matrices.shape(&[])?)?;
        let input = cx.flat::<T>(0)?;
        let size = order * order;
        let out = (output.flat_mut::<T>()?, 1);
        for_each_matrix(
            cx.threads(),
            (matrices.count, 2 * size * order / 3),
            (out, absent(), absent()),
            &|at, threads, out, _, _| {
                let (sign, sum) = log_determinant(threads, &input[at * size..][..size], order);
                out[0] = sign.scaled(sum.exp());
                Ok(())
            },
        )?;
        Ok(output.into())
    })
}

fn log_determinant_kernel<T: Scalar>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let matrices = Matrices::square(cx)?;
        let order = matrices.rows;
        let shape: Shape = matrices.shape(&[])?;
        let (mut signs, mut sums) = (cx.alloc::<T>(shape.clone())?, cx.alloc::<T>(shape)?);
        let input = cx.flat::<T>(0)?;
        let size = order * order;
        for_each_matrix(
            cx.threads(),
            (matrices.count, 2 * size * order / 3),
            ((signs.flat_mut::<T>()?, 1), (sums.flat_mut::<T>()?, 1), absent()),
            &|at, threads, signs, sums, _| {
                let (sign, sum) = log_determinant(threads, &input[at * size..][..size], order);
                (signs[0], sums[0]) = (sign, T::from_real(sum));
                Ok(())
            },
        )?;
        Ok([signs, sums].into())
    })
}

/// Murray, "Differentiation of the Cholesky decomposition".
fn cholesky_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, lower) = (g.scope(), g.output(0)?);
    let middle = product(s, &lower, g.dy(0)?, (true, false))?;
    let half = ops::mul(s, ops::matrix_diag_part(s, &middle), 0.5)?;
    let middle = ops::matrix_band_part(s, ops::matrix_set_diag(s, &middle, half), -1, 0)?;
    let solve = ops::MatrixTriangularSolve::new().adjoint(true);
    let left = solve.build(s, &lower, middle)?;
    let solve = ops::MatrixTriangularSolve::new().adjoint(true);
    let grad = solve.build(s, &lower, adjoint(s, &left)?)?;
    Ok([ops::mul(s, ops::add_v2(s, &grad, adjoint(s, &grad)?), 0.5)?].into())
}

fn solve_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, solution) = (g.scope(), g.output(0)?);
    let adjoint: bool = g.attr("adjoint")?;
    let rhs = ops::MatrixSolve::new().adjoint(!adjoint).build(s, g.input(0), g.dy(0)?)?;
    let (left, right) = if adjoint { (&solution, &rhs) } else { (&rhs, &solution) };
    Ok([ops::neg(s, product(s, left, right, (false, true)))?, rhs].into())
}

fn inverse_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, inverse) = (g.scope(), g.output(0)?);
    let adjoint: bool = g.attr("adjoint")?;
    let right = product(s, g.dy(0)?, &inverse, (adjoint, !adjoint))?;
    Ok([ops::neg(s, product(s, &inverse, right, (!adjoint, false)))?].into())
}

/// A factor per matrix, times the matrices.
fn scaled(g: &GradCx<'_>, factor: Output, x: Output) -> Result<InputGrads> {
    let s = g.scope();
    let factor = ops::expand_dims(s, ops::expand_dims(s, factor, -1), -1)?;
    Ok([ops::mul(s, factor, x)?].into())
}

fn determinant_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let inverse = ops::MatrixInverse::new().adjoint(true).build(s, g.input(0))?;
    let determinant = conj(s, &g.output(0)?)?;
    scaled(g, ops::mul(s, g.dy(0)?, determinant)?, inverse)
}

fn log_determinant_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let inverse = ops::MatrixInverse::new().adjoint(true).build(s, g.input(0))?;
    scaled(g, g.dy(1)?, inverse)
}

#[cfg(test)]
mod tests {
    use crate::testing::{infer, infer_err};
    use ferroflow_core::Code;

    #[test]
    fn shapes_are_of_square_matrices() {
        infer("Cholesky", "[2,3,?]", "[2,3,3]");
        infer("Lu", "[5,?,3]", "[5,3,3];[5,3]");
        infer("MatrixDeterminant", "[5,3,3]", "[5]");
        infer("MatrixSolve", "[2,3,3];[2,?,4]", "[2,3,4]");
        infer_err("MatrixInverse", "[3,2]", Code::InvalidArgument);
        infer_err("MatrixSolve", "[3,3];[2,4]", Code::InvalidArgument);
    }
}
