//! Functions of whole matrices: exponential, logarithm, square root.

use crate::builders as ops;
use crate::linalg::dense::functions::{exponential, logarithm, square_root};
use crate::linalg::dense::scalar::Scalar;
use crate::support::gradient::{element, part, shape_output};
use crate::support::matrices::{Matrices, absent, for_each_matrix, unchanged_square};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{C64, C128, Result, Tensor, kernels};

pub(crate) const OPS: &[&Op] = &[&MATRIX_EXPONENTIAL, &MATRIX_LOGARITHM, &MATRIX_SQUARE_ROOT];

static MATRIX_EXPONENTIAL: Op = Op {
    name: "MatrixExponential",
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["T: {double, float, half, complex64, complex128}"],
    shape: unchanged_square,
    deprecated_at: Some(27),
    kernels: kernels![exponential_kernel: f64, f32, C64, C128],
    accuracy: Accuracy::Rounding,
    large_from: Op::LARGE_IF_COSTLY,
    ..Op::PURE
};

static MATRIX_LOGARITHM: Op = Op {
    name: "MatrixLogarithm",
    attrs: &["T: {complex64, complex128}"],
    deprecated_at: None,
    kernels: kernels![logarithm_kernel: C64, C128],
    ..MATRIX_EXPONENTIAL
};

static MATRIX_SQUARE_ROOT: Op = Op {
    name: "MatrixSquareRoot",
    gradient: Gradient::Fn(square_root_gradient),
    deprecated_at: None,
    kernels: kernels![square_root_kernel: f64, f32, C64, C128],
    ..MATRIX_EXPONENTIAL
};

/// Applies a function in double precision to every matrix.
fn map<T: Scalar>(
    cx: &KernelCx<'_>,
    function: &(dyn Fn(Vec<C128>, usize) -> Vec<C128> + Sync),
) -> Result<Tensor> {
    let matrices = Matrices::square(cx)?;
    let order = matrices.rows;
    let mut output = cx.alloc::<T>(cx.input(0)?.shape().clone())?;
    let input = cx.flat::<T>(0)?;
    let size = order * order;
    let out = (output.flat_mut::<T>()?, size);
    for_each_matrix(
        cx.threads(),
        (matrices.count, 30 * size * order),
        (out, absent(), absent()),
        &|at, _, out, _, _| {
            let wide: Vec<C128> = input[at * size..][..size].iter().map(|x| x.to_double()).collect();
            for (to, from) in out.iter_mut().zip(function(wide, order)) {
                *to = T::from_double(from);
            }
            Ok(())
        },
    )?;
    Ok(output)
}

fn exponential_kernel<T: Scalar>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let output = map::<T>(cx, &|matrix, order| {
            if T::COMPLEX {
                return exponential(&matrix, order);
            }
            let real: Vec<f64> = matrix.into_iter().map(|x| x.re).collect();
            exponential(&real, order).into_iter().map(|x| C128::new(x, 0.0)).collect()
        })?;
        Ok(output.into())
    })
}

/// The matrix of failures.
fn not_numbers(order: usize) -> Vec<C128> {
    vec![C128::new(f64::NAN, f64::NAN); order * order]
}

fn logarithm_kernel<T: Scalar>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let output =
            map::<T>(cx, &|matrix, order| logarithm(matrix, order).unwrap_or_else(|| not_numbers(order)))?;
        Ok(output.into())
    })
}

fn square_root_kernel<T: Scalar>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let output = map::<T>(cx, &|matrix, order| {
            let root = square_root(matrix, order).unwrap_or_else(|| not_numbers(order));
            let size: f64 = root.iter().map(|x| x.norm()).sum();
            // A real matrix may have no real root.
            let is_complex = root.iter().any(|x| x.im.abs() > 1e-8 * size);
            if T::COMPLEX || !is_complex { root } else { not_numbers(order) }
        })?;
        Ok(output.into())
    })
}

/// The root `r` of `a` changes by the solution of `r · dr + dr · r = da`, which is one of linear equations with the
/// elements of `dr` as unknowns.
fn square_root_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, root) = (g.scope(), g.output(0)?);
    let shape = shape_output(s, &root)?;
    let order = element(s, &shape, -1)?;
    let batch = part(s, &shape, 0, Some(-2))?;
    let one = s.constant(1i32)?;
    let joined = |dims: &[&Output]| -> Result<Output> {
        let dims = ops::pack(s, dims.iter().copied())?;
        ops::concat_v2(s, [&batch, &dims], 0)
    };
    let ones = ops::fill(s, part(s, &shape, 0, Some(-1))?, constant_one(s, &root)?)?;
    let unit = ops::matrix_diag(s, ones)?;
    let kronecker = |x: &Output, y: &Output| -> Result<Output> {
        let x = ops::reshape(s, x, joined(&[&order, &one, &order, &one])?)?;
        let y = ops::reshape(s, y, joined(&[&one, &order, &one, &order])?)?;
        let square = ops::mul(s, &order, &order)?;
        ops::reshape(s, ops::mul(s, x, y), joined(&[&square, &square])?)
    };
    let transposed = |x: &Output| -> Result<Output> {
        let adjoint = crate::support::matrices::adjoint(s, x)?;
        crate::support::gradient::conj(s, &adjoint)
    };
    let sum = ops::add_v2(s, kronecker(&unit, &transposed(&root)?), kronecker(&root, &unit))?;
    let square = ops::mul(s, &order, &order)?;
    let right = ops::reshape(s, transposed(&g.dy(0)?)?, joined(&[&square, &one])?)?;
    let solved = ops::reshape(s, ops::matrix_solve(s, sum, right), &shape)?;
    Ok([transposed(&solved)?].into())
}

fn constant_one(s: &Scope, like: &Output) -> Result<Output> {
    ops::cast(s, s.constant(1.0f32)?, like.dtype())
}
