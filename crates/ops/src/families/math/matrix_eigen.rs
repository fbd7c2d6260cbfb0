//! Eigenvalues, singular values and their vectors, and least squares, which are solved with them.

use crate::builders as ops;
use crate::linalg::dense::scalar::Scalar;
use crate::linalg::dense::{cholesky, general, schur, self_adjoint, svd};
use crate::linalg::product::MatrixView;
use crate::numeric::Num;
use crate::support::matrices::{
    Matrices, absent, adjoint, for_each_matrix, product, real_type, square_shape,
};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{C64, C128, DType, Element, PartialShape, Result, Shape, Tensor, bail, ensure, kernels};
use num_traits::Float as _;

pub(crate) const OPS: &[&Op] = &[
    &SELF_ADJOINT_EIG,
    &BATCH_SELF_ADJOINT_EIG,
    &SELF_ADJOINT_EIG_V2,
    &BATCH_SELF_ADJOINT_EIG_V2,
    &EIG,
    &SVD,
    &BATCH_SVD,
    &MATRIX_SOLVE_LS,
    &BATCH_MATRIX_SOLVE_LS,
];

static SELF_ADJOINT_EIG: Op = Op {
    name: "SelfAdjointEig",
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["T: {double, float, half}"],
    shape: self_adjoint_shape,
    deprecated_at: Some(11),
    kernels: kernels![self_adjoint_kernel: f64, f32],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static BATCH_SELF_ADJOINT_EIG: Op = Op {
    name: "BatchSelfAdjointEig",
    attrs: &["T: {double, float}"],
    shape: shapes::unknown,
    ..SELF_ADJOINT_EIG
};

static SELF_ADJOINT_EIG_V2: Op = Op {
    name: "SelfAdjointEigV2",
    inputs: &["input: T"],
    outputs: &["e: T", "v: T"],
    attrs: &["compute_v: bool = true", "T: {double, float, half, complex64, complex128}"],
    shape: eigen_shape,
    gradient: Gradient::Fn(self_adjoint_gradient),
    kernels: kernels![self_adjoint_v2_kernel: f64, f32, C64, C128],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static BATCH_SELF_ADJOINT_EIG_V2: Op = Op {
    name: "BatchSelfAdjointEigV2",
    attrs: &["compute_v: bool = true", "T: {double, float}"],
    shape: shapes::unknown,
    gradient: Gradient::Undefined,
    deprecated_at: Some(13),
    ..SELF_ADJOINT_EIG_V2
};

static EIG: Op = Op {
    name: "Eig",
    inputs: &["input: T"],
    outputs: &["e: Tout", "v: Tout"],
    attrs: &[
        "compute_v: bool = true",
        "T: {float, double, complex64, complex128}",
        "Tout: {complex64, complex128}",
    ],
    shape: eigen_shape,
    gradient: Gradient::Fn(eig_gradient),
    kernels: kernels![eig_kernel: f32, f64, C64, C128],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static SVD: Op = Op {
    name: "Svd",
    inputs: &["input: T"],
    outputs: &["s: T", "u: T", "v: T"],
    attrs: &[
        "compute_uv: bool = true",
        "full_matrices: bool = false",
        "T: {double, float, half, complex64, complex128}",
    ],
    shape: svd_shape,
    gradient: Gradient::Fn(svd_gradient),
    kernels: kernels![svd_kernel: f64, f32, C64, C128],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static BATCH_SVD: Op = Op {
    name: "BatchSvd",
    attrs: &[
        "compute_uv: bool = true",
        "full_matrices: bool = false",
        "T: {double, float, complex64, complex128}",
    ],
    shape: shapes::unknown,
    gradient: Gradient::Undefined,
    deprecated_at: Some(13),
    ..SVD
};

static MATRIX_SOLVE_LS: Op = Op {
    name: "MatrixSolveLs",
    inputs: &["matrix: T", "rhs: T", "l2_regularizer: double"],
    outputs: &["output: T"],
    attrs: &["T: {double, float, half, complex64, complex128}", "fast: bool = true"],
    shape: least_squares_shape,
    gradient: Gradient::Fn(least_squares_gradient),
    kernels: kernels![least_squares_kernel: f64, f32, C64, C128],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static BATCH_MATRIX_SOLVE_LS: Op = Op {
    name: "BatchMatrixSolveLs",
    attrs: &["T: {double, float}", "fast: bool = true"],
    shape: shapes::unknown,
    gradient: Gradient::Undefined,
    deprecated_at: Some(13),
    ..MATRIX_SOLVE_LS
};

fn self_adjoint_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (batch, order, shape) = square_shape(s, 0)?;
    if shape.dims().is_some() {
        let rows = if order == UNKNOWN_DIM { order } else { order + 1 };
        s.output(0, batch.into_iter().chain([rows, order]))?;
    }
    Ok(())
}

fn eigen_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (batch, order, shape) = square_shape(s, 0)?;
    if shape.dims().is_some() {
        s.output(0, batch.into_iter().chain([order]))?;
    }
    if s.attr::<bool>("compute_v")? {
        s.set(1, shape);
        Ok(())
    } else {
        s.output(1, [0])
    }
}

fn svd_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.rank_at_least(0, 2)?;
    let (vectors, full): (bool, bool) = (s.attr("compute_uv")?, s.attr("full_matrices")?);
    if !vectors {
        s.output(1, [0])?;
        s.output(2, [0])?;
    }
    let Some([batch @ .., rows, columns]) = shape.dims() else { return Ok(()) };
    let least = if [*rows, *columns].contains(&UNKNOWN_DIM) { UNKNOWN_DIM } else { *rows.min(columns) };
    s.output(0, batch.iter().copied().chain([least]))?;
    if vectors {
        s.output(1, batch.iter().copied().chain([*rows, if full { *rows } else { least }]))?;
        s.output(2, batch.iter().copied().chain([*columns, if full { *columns } else { least }]))?;
    }
    Ok(())
}

fn least_squares_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(2, 0)?;
    let (matrix, rhs) = (s.rank_at_least(0, 2)?, s.rank_at_least(1, 2)?);
    let (Some([batch @ .., rows, columns]), Some([rhs_batch @ .., rhs_rows, width])) =
        (matrix.dims(), rhs.dims())
    else {
        return Ok(());
    };
    let batch = PartialShape::new(batch.iter().copied())?;
    let batch = s.merge(&batch, &PartialShape::new(rhs_batch.iter().copied())?)?;
    s.merge_dims(*rows, *rhs_rows)?;
    let Some(batch) = batch.dims() else { return Ok(()) };
    s.output(0, batch.iter().copied().chain([*columns, *width]).collect::<Vec<i64>>())
}

/// Operations that a decomposition of this many rows takes, about.
fn work(order: usize) -> usize {
    9 * order * order * order
}

fn self_adjoint_kernel<T: Scalar<Real = T>>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let matrices = Matrices::square(cx)?;
        let order = matrices.rows;
        let mut output = cx.alloc::<T>(matrices.shape(&[order + 1, order])?)?;
        let input = cx.flat::<T>(0)?;
        let size = order * order;
        let out = (output.flat_mut::<T>()?, size + order);
        for_each_matrix(
            cx.threads(),
            (matrices.count, work(order)),
            (out, absent(), absent()),
            &|at, threads, out, _, _| {
                let (values, vectors) = out.split_at_mut(order);
                let input = &input[at * size..][..size];
                ensure!(
                    self_adjoint::decompose(threads, input, order, values, vectors),
                    InvalidArgument,
                    "Self Adjoint Eigen decomposition was not successful. The input might not be valid."
                );
                Ok(())
            },
        )?;
        Ok(output.into())
    })
}

/// An output of vectors that nobody asked for.
fn no_vectors<T: Element + crate::numeric::Num>() -> Result<Tensor> {
    Tensor::new(Shape::scalar(), vec![T::ZERO])
}

fn self_adjoint_v2_kernel<T: Scalar>(init: &Init<'_>) -> Result<Kernel> {
    let wanted: bool = init.attr("compute_v")?;
    Kernel::sync(move |cx| {
        let matrices = Matrices::square(cx)?;
        let order = matrices.rows;
        let size = order * order;
        let mut values = cx.alloc::<T>(matrices.shape(&[order])?)?;
        let mut vectors =
            if wanted { cx.alloc::<T>(matrices.shape(&[order, order])?)? } else { no_vectors::<T>()? };
        let input = cx.flat::<T>(0)?;
        let out = if wanted { (vectors.flat_mut::<T>()?, size) } else { (&mut [][..], 0) };
        for_each_matrix(
            cx.threads(),
            (matrices.count, work(order)),
            ((values.flat_mut::<T>()?, order), out, absent()),
            &|at, threads, values, vectors, _| {
                let mut found = vec![T::Real::ZERO; order];
                let input = &input[at * size..][..size];
                ensure!(
                    self_adjoint::decompose(threads, input, order, &mut found, vectors),
                    InvalidArgument,
                    "Self-adjoint eigen decomposition was not successful. The input might not be valid."
                );
                for (to, from) in values.iter_mut().zip(found) {
                    *to = T::from_real(from);
                }
                Ok(())
            },
        )?;
        Ok([values, vectors].into())
    })
}

fn eig_kernel<T: Scalar>(init: &Init<'_>) -> Result<Kernel> {
    let (wanted, out_type): (bool, DType) = (init.attr("compute_v")?, init.attr("Tout")?);
    ensure!(
        out_type == T::Complex::DTYPE,
        InvalidArgument,
        "Invalid output dtype {} vs {}",
        out_type.name(),
        T::Complex::DTYPE.name()
    );
    Kernel::sync(move |cx| {
        let matrices = Matrices::square(cx)?;
        let order = matrices.rows;
        let size = order * order;
        let mut values = cx.alloc::<T::Complex>(matrices.shape(&[order])?)?;
        let mut vectors = if wanted {
            cx.alloc::<T::Complex>(matrices.shape(&[order, order])?)?
        } else {
            no_vectors::<T::Complex>()?
        };
        let input = cx.flat::<T>(0)?;
        let out = if wanted { (vectors.flat_mut::<T::Complex>()?, size) } else { (&mut [][..], 0) };
        for_each_matrix(
            cx.threads(),
            (matrices.count, 3 * work(order)),
            ((values.flat_mut::<T::Complex>()?, order), out, absent()),
            &|at, _, values, vectors, _| {
                let input = input[at * size..][..size].iter().map(|x| x.to_double());
                let found = if T::COMPLEX {
                    complex_eigen(input.collect(), order, wanted)
                } else {
                    general::decompose(input.map(|x| x.re).collect(), order, wanted)
                };
                let Some((found_values, found_vectors)) = found else {
                    bail!(
                        InvalidArgument,
                        "Eigen decomposition was not successful. The input might not be valid."
                    );
                };
                let write = |to: &mut [T::Complex], from: Vec<C128>| {
                    for (to, from) in to.iter_mut().zip(from) {
                        *to = T::Complex::from_double(from);
                    }
                };
                write(values, found_values);
                write(vectors, found_vectors);
                Ok(())
            },
        )?;
        Ok([values, vectors].into())
    })
}

/// Eigenvalues of a complex matrix, the smallest first, and their vectors.
fn complex_eigen(matrix: Vec<C128>, order: usize, wanted: bool) -> Option<(Vec<C128>, Vec<C128>)> {
    let schur = schur::decompose(matrix, order, wanted)?;
    let mut values: Vec<C128> = (0..order).map(|at| schur.t[at * order + at]).collect();
    let mut vectors = if wanted { schur.vectors() } else { Vec::new() };
    for at in 0..order {
        let smallest = (at..order)
            .fold(at, |best, other| if values[other].norm() < values[best].norm() { other } else { best });
        if smallest != at {
            values.swap(at, smallest);
            for row in vectors.chunks_exact_mut(order) {
                row.swap(at, smallest);
            }
        }
    }
    Some((values, vectors))
}

fn svd_kernel<T: Scalar>(init: &Init<'_>) -> Result<Kernel> {
    let (wanted, full): (bool, bool) = (init.attr("compute_uv")?, init.attr("full_matrices")?);
    Kernel::sync(move |cx| {
        let matrices = Matrices::of(cx, 0)?;
        let (rows, columns) = (matrices.rows, matrices.columns);
        let least = rows.min(columns);
        let (u_columns, v_columns) = if full { (rows, columns) } else { (least, least) };
        let mut values = cx.alloc::<T>(matrices.shape(&[least])?)?;
        let (mut u, mut v) = if wanted {
            (
                cx.alloc::<T>(matrices.shape(&[rows, u_columns])?)?,
                cx.alloc::<T>(matrices.shape(&[columns, v_columns])?)?,
            )
        } else {
            (no_vectors::<T>()?, no_vectors::<T>()?)
        };
        let input = cx.flat::<T>(0)?;
        let size = rows * columns;
        let (u_out, v_out) = if wanted {
            ((u.flat_mut::<T>()?, rows * u_columns), (v.flat_mut::<T>()?, columns * v_columns))
        } else {
            ((&mut [][..], 0), (&mut [][..], 0))
        };
        for_each_matrix(
            cx.threads(),
            (matrices.count, 12 * rows.max(columns) * least * least),
            ((values.flat_mut::<T>()?, least), u_out, v_out),
            &|at, threads, values, u, v| {
                if size == 0 {
                    // Vectors of no values are unit vectors.
                    for (out, width) in [(u, u_columns), (v, v_columns)] {
                        out.fill(T::ZERO);
                        for i in 0..out.len().checked_div(width).unwrap_or(0) {
                            out[i * width + i] = T::ONE;
                        }
                    }
                    return Ok(());
                }
                let mut found = vec![T::Real::ZERO; least];
                let input = &input[at * size..][..size];
                let parts = svd::Parts { s: &mut found, u: &mut *u, v: &mut *v };
                if svd::decompose(threads, input, (rows, columns), full, parts) {
                    for (to, from) in values.iter_mut().zip(found) {
                        *to = T::from_real(from);
                    }
                } else {
                    // A failure shows in the values, as in stock.
                    [values, u, v].into_iter().for_each(|out| out.fill(T::failure()));
                }
                Ok(())
            },
        )?;
        Ok([values, u, v].into())
    })
}

fn least_squares_kernel<T: Scalar>(init: &Init<'_>) -> Result<Kernel> {
    let fast: bool = init.attr("fast")?;
    Kernel::sync(move |cx| {
        let matrices = Matrices::of(cx, 0)?;
        let rhs = matrices.beside(cx)?;
        let (rows, columns, width) = (matrices.rows, matrices.columns, rhs.columns);
        ensure!(rows == rhs.rows, InvalidArgument, "Input matrix and rhs are incompatible.");
        let regularizer = cx.input(2)?;
        ensure!(
            regularizer.rank() == 0,
            InvalidArgument,
            "l2_regularizer must be scalar, got shape {}",
            regularizer.shape()
        );
        let regularizer = cx.scalar::<f64>(2)?;
        ensure!(regularizer >= 0.0, InvalidArgument, "l2_regularizer must be >= 0.");
        let mut output = cx.alloc::<T>(matrices.shape(&[columns, width])?)?;
        let (matrix, right) = (cx.flat::<T>(0)?, cx.flat::<T>(1)?);
        let (size, rhs_size) = (rows * columns, rows * width);
        let out = (output.flat_mut::<T>()?, columns * width);
        if size == 0 || rhs_size == 0 {
            out.0.fill(T::ZERO);
            return Ok(output.into());
        }
        let least = rows.min(columns);
        for_each_matrix(
            cx.threads(),
            (matrices.count, rows.max(columns) * least * (least + width)),
            (out, absent(), absent()),
            &|at, threads, out, _, _| {
                let matrix = MatrixView::new(&matrix[at * size..][..size], rows, columns, false);
                let flat = &right[at * rhs_size..][..rhs_size];
                let right = MatrixView::new(flat, rows, width, false);
                out.fill(T::ZERO);
                if fast {
                    least_squares_by_normal_equations(threads, matrix, right, regularizer, out)
                } else {
                    least_squares_by_svd(threads, matrix, right, out)
                }
            },
        )?;
        Ok(output.into())
    })
}

/// The adjoint of a copy of a matrix, negative, so that products can be subtracted from zeros.
fn negative_adjoint<T: Scalar>(matrix: MatrixView<'_, T>) -> Vec<T> {
    let rows = matrix.rows();
    (0..rows * matrix.columns()).map(|at| -matrix.value(at % rows, at / rows).conj()).collect()
}

fn least_squares_by_normal_equations<T: Scalar>(
    threads: Option<Threads<'_>>,
    matrix: MatrixView<'_, T>,
    right: MatrixView<'_, T>,
    regularizer: f64,
    out: &mut [T],
) -> Result<()> {
    let (rows, columns, width) = (matrix.rows(), matrix.columns(), right.columns());
    let negative = negative_adjoint(matrix);
    let adjoint = MatrixView::new(&negative, columns, rows, false);
    let order = rows.min(columns);
    let mut gramian = vec![T::ZERO; order * order];
    if rows >= columns {
        T::subtract_product(threads, adjoint, matrix, &mut gramian, order);
    } else {
        T::subtract_product(threads, matrix, adjoint, &mut gramian, order);
    }
    for at in 0..order {
        gramian[at * order + at] += T::from_f64(regularizer);
    }
    let hint = if rows >= columns { "provide a larger l2_regularizer" } else { "provide an l2_regularizer" };
    ensure!(
        cholesky::factor(threads, &mut gramian, order),
        InvalidArgument,
        "Input matrix was rank deficient or ill-conditioned. Try setting fast=False or {hint} > 0."
    );
    if rows >= columns {
        T::subtract_product(threads, adjoint, right, out, width);
        cholesky::solve_factored(&gramian, order, out, width);
    } else {
        let mut solved: Vec<T> = (0..rows * width).map(|at| right.value(at / width, at % width)).collect();
        cholesky::solve_factored(&gramian, order, &mut solved, width);
        T::subtract_product(threads, adjoint, MatrixView::new(&solved, rows, width, false), out, width);
    }
    Ok(())
}

/// The shortest solution, whatever the rank: singular values that rounding alone may have made count as zero.
fn least_squares_by_svd<T: Scalar>(
    threads: Option<Threads<'_>>,
    matrix: MatrixView<'_, T>,
    right: MatrixView<'_, T>,
    out: &mut [T],
) -> Result<()> {
    let (rows, columns, width) = (matrix.rows(), matrix.columns(), right.columns());
    let least = rows.min(columns);
    let flat: Vec<T> = (0..rows * columns).map(|at| matrix.value(at / columns, at % columns)).collect();
    let mut s = vec![T::Real::ZERO; least];
    let (mut u, mut v) = (vec![T::ZERO; rows * least], vec![T::ZERO; columns * least]);
    let parts = svd::Parts { s: &mut s, u: &mut u, v: &mut v };
    if !svd::decompose(threads, &flat, (rows, columns), false, parts) {
        out.fill(T::failure());
        return Ok(());
    }
    let cutoff = s[0] * T::Real::epsilon() * <T::Real as crate::numeric::Num>::from_f64(least as f64);
    let mut inner = vec![T::ZERO; least * width];
    T::subtract_product(threads, MatrixView::adjoint(&u, rows, least, true), right, &mut inner, width);
    for (row, s) in inner.chunks_exact_mut(width).zip(&s) {
        let factor = if *s > cutoff { T::Real::ONE / *s } else { T::Real::ZERO };
        for x in row.iter_mut() {
            *x = x.scaled(factor);
        }
    }
    // Both products are subtracted, from zeros, so that the signs cancel.
    let (v, inner) =
        (MatrixView::new(&v, columns, least, false), MatrixView::new(&inner, least, width, false));
    T::subtract_product(threads, v, inner, out, width);
    Ok(())
}

/// `1 / (x_i - x_j)` above and below the diagonal, which is zero; equal values give zero, too.
fn gaps(s: &Scope, x: &Output) -> Result<Output> {
    let difference = ops::sub(s, ops::expand_dims(s, x, -2), ops::expand_dims(s, x, -1))?;
    ops::matrix_set_diag(s, safe_reciprocal(s, &difference)?, ops::zeros_like(s, x))
}

fn safe_reciprocal(s: &Scope, x: &Output) -> Result<Output> {
    let square = ops::add_v2(s, ops::mul(s, x, x), 1e-20)?;
    ops::mul(s, x, ops::reciprocal(s, square))
}

fn self_adjoint_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let values = ops::matrix_diag(s, g.dy(0)?)?;
    let (vectors, middle) = if g.attr::<bool>("compute_v")? {
        let v = g.output(1)?;
        let inner = ops::mul(s, gaps(s, &g.output(0)?)?, product(s, &v, g.dy(1)?, (true, false)))?;
        (v, ops::add_v2(s, values, inner)?)
    } else {
        (ops::self_adjoint_eig_v2(s, g.input(0))?.v, values)
    };
    let right = product(s, middle, &vectors, (false, true))?;
    let grad = product(s, &vectors, right, (false, false))?;
    // Only the lower half is an input.
    let both = ops::add_v2(s, &grad, adjoint(s, &grad)?)?;
    let lower = ops::matrix_band_part(s, both, -1, 0)?;
    let diagonal = ops::mul(s, ops::matrix_diag_part(s, &lower), 0.5)?;
    Ok([ops::matrix_set_diag(s, lower, diagonal)?].into())
}

/// Boeddeker et al., "On the computation of complex-valued gradients with application to statistically optimum
/// beamforming", equation 4.77.
fn eig_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let values = ops::matrix_diag(s, g.dy(0)?)?;
    let (vectors, middle) = if g.attr::<bool>("compute_v")? {
        let (v, dtype) = (g.output(1)?, g.output(1)?.dtype());
        let f = ops::conj(s, gaps(s, &g.output(0)?)?)?;
        let inner = product(s, &v, g.dy(1)?, (true, false))?;
        let real = ops::Real::new().tout(real_type(dtype)).build(s, &inner)?;
        let diagonal = ops::matrix_diag(s, ops::matrix_diag_part(s, ops::cast(s, real, dtype)))?;
        let norms = product(s, product(s, &v, &v, (true, false))?, diagonal, (false, false))?;
        let beside = ops::mul(s, f, ops::sub(s, inner, norms))?;
        (v, ops::add_v2(s, values, beside)?)
    } else {
        let out = g.output(0)?.dtype();
        (ops::eig(s, g.input(0), out)?.v, values)
    };
    let right = product(s, middle, &vectors, (false, true))?;
    let grad = ops::matrix_solve(s, adjoint(s, &vectors)?, right)?;
    Ok([ops::cast(s, grad, g.input(0).dtype())?].into())
}

fn svd_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let (a, dtype) = (g.input(0), g.input(0).dtype());
    let ds = ops::matrix_diag(s, g.dy(0)?)?;
    if !g.attr::<bool>("compute_uv")? {
        let parts = ops::svd(s, a)?;
        let right = product(s, ds, parts.v, (false, true))?;
        return Ok([product(s, parts.u, right, (false, false))?].into());
    }
    let full: bool = g.attr("full_matrices")?;
    let shape = a.shape();
    let (rows, columns) = match shape.dims() {
        Some([.., rows, columns]) if ![*rows, *columns].contains(&UNKNOWN_DIM) => (*rows, *columns),
        _ => bail!(
            Unimplemented,
            "SVD gradient has not been implemented for input with unknown inner matrix shape."
        ),
    };
    // Of a tall matrix, the gradient of the adjoint, whose parts are exchanged.
    let tall = rows > columns;
    let (m, n) = (rows.min(columns), rows.max(columns));
    let [mut u, mut v, mut du, mut dv] = [g.output(1)?, g.output(2)?, g.dy(1)?, g.dy(2)?];
    if tall {
        (u, v, du, dv) = (v, u, dv, du);
    }
    ensure!(
        !full || n - m <= 1,
        Unimplemented,
        "svd gradient is not implemented for abs(m - n) > 1 when full_matrices is True. Received: m={rows} and n={columns}"
    );
    let values = g.output(0)?;
    let (diagonal, squares) = (ops::matrix_diag(s, &values)?, ops::square(s, &values)?);
    let f = gaps(s, &squares)?;
    let inverse = ops::matrix_diag(s, safe_reciprocal(s, &values)?)?;
    let split = |x: &Output| -> Result<(Output, Option<Output>)> {
        if !full || m == n {
            return Ok((x.clone(), None));
        }
        let mut parts = ops::split_v(s, x, [m, n - m], -1, 2)?;
        let rest = parts.pop();
        Ok((parts.swap_remove(0), rest))
    };
    let ((v1, v2), (dv1, dv2)) = (split(&v)?, split(&dv)?);
    let both = |x: &Output| ops::add_v2(s, x, adjoint(s, x)?);
    let (udu, vdv) = (product(s, &u, &du, (true, false))?, product(s, &v1, &dv1, (true, false))?);
    let left = product(s, both(&ops::mul(s, &f, udu)?)?, &diagonal, (false, false))?;
    let right = product(s, &diagonal, both(&ops::mul(s, &f, &vdv)?)?, (false, false))?;
    let middle = ops::add_v2(s, ops::add_v2(s, ds, left), right)?;
    let mut grad = product(s, &u, product(s, middle, &v1, (false, true))?, (false, false))?;
    if m != n {
        let dv1_adjoint = adjoint(s, &dv1)?;
        let inner = product(s, &dv1_adjoint, &v1, (false, false))?;
        let mut beside = ops::sub(s, dv1_adjoint, product(s, inner, &v1, (false, true)))?;
        if let (Some(v2), Some(dv2)) = (v2, dv2) {
            let inner = product(s, &v1, dv2, (true, false))?;
            beside = ops::sub(s, beside, product(s, inner, v2, (false, true)))?;
        }
        let scaled = product(s, &u, &inverse, (false, false))?;
        grad = ops::add_v2(s, grad, product(s, scaled, beside, (false, false)))?;
    }
    if dtype.is_complex() {
        // The phases of vectors are free, so that the imaginary diagonal belongs to both sides.
        let own = ops::matrix_diag(s, ops::matrix_diag_part(s, &vdv))?;
        let turn = product(s, &inverse, ops::sub(s, adjoint(s, &own)?, &own)?, (false, false))?;
        let turned = product(s, &u, product(s, turn, &v1, (false, true))?, (false, false))?;
        grad = ops::add_v2(s, grad, ops::mul(s, turned, 0.5))?;
    }
    Ok([if tall { adjoint(s, &grad)? } else { grad }].into())
}

fn least_squares_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    if !g.attr::<bool>("fast")? {
        bail!(InvalidArgument, "Gradient not defined for fast=False");
    }
    let (a, b, x, dx) = (g.input(0), g.input(1), g.output(0)?, g.dy(0)?);
    let (rows, columns) = match a.shape().dims() {
        Some([.., rows, columns]) if ![*rows, *columns].contains(&UNKNOWN_DIM) => (*rows, *columns),
        _ => bail!(Unimplemented, "the gradient of MatrixSolveLs needs matrices of known shape"),
    };
    let tall = rows >= columns;
    let regularizer = ops::cast(s, g.input(2), a.dtype())?;
    let gramian = product(s, a, a, (tall, !tall))?;
    let diagonal = ops::add_v2(s, ops::matrix_diag_part(s, &gramian), regularizer)?;
    let lower = ops::cholesky(s, ops::matrix_set_diag(s, gramian, diagonal))?;
    let solve = |right: Output| -> Result<Output> {
        let half = ops::MatrixTriangularSolve::new().build(s, &lower, right)?;
        ops::MatrixTriangularSolve::new().adjoint(true).build(s, &lower, half)
    };
    let (da, db) = if tall {
        let z = solve(dx)?;
        let xz = product(s, &x, &z, (false, true))?;
        let both = ops::add_v2(s, &xz, adjoint(s, &xz)?)?;
        let from_b = product(s, b, &z, (false, true))?;
        let da = ops::sub(s, from_b, product(s, a, both, (false, false)))?;
        (da, product(s, a, &z, (false, false))?)
    } else {
        let db = solve(product(s, a, &dx, (false, false))?)?;
        let z = solve(b.clone())?;
        let first = product(s, &db, product(s, &z, a, (true, false))?, (false, false))?;
        let rest = ops::sub(s, dx, product(s, a, &db, (true, false)))?;
        (ops::sub(s, product(s, &z, rest, (false, true)), first)?, db)
    };
    Ok([Some(da), Some(db), None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{C128, Code, Shape, Tensor};

    #[test]
    fn shapes_follow_the_vectors() {
        infer("Svd", "[5,3,2]", "[5,2];[5,3,2];[5,2,2]");
        infer("Svd", "[3,?]", "[?];[3,?];[?,?]");
        infer("SelfAdjointEigV2", "[?,3,3]", "[?,3];[?,3,3]");
        infer("MatrixSolveLs", "[4,2];[4,3];[]", "[2,3]");
        infer_err("SelfAdjointEigV2", "[2,3]", Code::InvalidArgument);
    }

    /// Numbers without a pattern.
    fn drawn(count: usize) -> Vec<C128> {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as f64 / f64::from(1u32 << 31) - 0.5
        };
        (0..count).map(|_| C128::new(next(), next())).collect()
    }

    /// The largest element of `left · right* - expected`, of matrices with as many columns as `inner`.
    fn distance(left: &[C128], right: &[C128], inner: usize, expected: &dyn Fn(usize, usize) -> C128) -> f64 {
        let mut most: f64 = 0.0;
        for (i, x) in left.chunks(inner).enumerate() {
            for (j, y) in right.chunks(inner).enumerate() {
                let sum: C128 = x.iter().zip(y).map(|(x, y)| x * y.conj()).sum();
                most = most.max((sum - expected(i, j)).norm());
            }
        }
        most
    }

    fn transposed(matrix: &[C128], columns: usize) -> Vec<C128> {
        let rows = matrix.len() / columns;
        (0..matrix.len()).map(|at| matrix[at % rows * columns + at / rows].conj()).collect()
    }

    #[test]
    fn parts_of_a_matrix_that_several_threads_share_make_it_again() {
        for (rows, columns) in [(150, 110), (110, 150), (130, 130)] {
            let a = drawn(rows * columns);
            let input = Tensor::new(Shape::matrix(rows, columns), a.clone()).unwrap();
            let out = Node::new("Svd").run([input]).unwrap();
            let [s, u, v] = [0, 1, 2].map(|i| out[i].flat::<C128>().unwrap());
            let least = rows.min(columns);
            let scaled: Vec<C128> = u.iter().enumerate().map(|(at, x)| x * s[at % least]).collect();
            assert!(distance(&scaled, v, least, &|i, j| a[i * columns + j]) < 1e-12);
            let one = |i: usize, j: usize| C128::new(if i == j { 1.0 } else { 0.0 }, 0.0);
            let (u, v) = (transposed(u, least), transposed(v, least));
            assert!(distance(&u, &u, rows, &one) < 1e-12 && distance(&v, &v, columns, &one) < 1e-12);
            assert!(s.windows(2).all(|pair| pair[0].re >= pair[1].re));
        }
    }

    #[test]
    fn eigenvectors_of_a_matrix_that_several_threads_share_make_it_again() {
        let order = 130;
        let a = drawn(order * order);
        let both: Vec<C128> =
            (0..order * order).map(|at| a[at] + a[at % order * order + at / order].conj()).collect();
        let input = Tensor::new(Shape::matrix(order, order), both.clone()).unwrap();
        let out = Node::new("SelfAdjointEigV2").run([input]).unwrap();
        let (e, v) = (out[0].flat::<C128>().unwrap(), out[1].flat::<C128>().unwrap());
        let scaled: Vec<C128> = v.iter().enumerate().map(|(at, x)| x * e[at % order]).collect();
        assert!(distance(&scaled, v, order, &|i, j| both[i * order + j]) < 1e-11);
        assert!(e.windows(2).all(|pair| pair[0].re <= pair[1].re));
    }
}
