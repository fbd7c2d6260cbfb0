//! Gradients of element-wise functions, computed from the function's result.

use crate::builders as ops;
use crate::linalg::elementwise::Loop;
use crate::numeric::Num;
use crate::support::cwise::{self, ARITHMETIC, loops, rows};
use crate::support::gradient::conj;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, shapes};
use ferroflow_core::scope::Output;
use ferroflow_core::{Result, ensure};

pub(crate) const OPS: &[&Op] =
    &[&SIGMOID_GRAD, &TANH_GRAD, &SQRT_GRAD, &RSQRT_GRAD, &INV_GRAD, &RECIPROCAL_GRAD];

const GRADIENT: Op = Op {
    inputs: &["y: T", "dy: T"],
    outputs: &["z: T"],
    attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
    shape: shapes::unchanged,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};
static SIGMOID_GRAD: Op = Op {
    name: "SigmoidGrad",
    gradient: Gradient::Fn(sigmoid_grad_grad),
    kernels: rows![sigmoid_grad: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..GRADIENT
};
static TANH_GRAD: Op = Op {
    name: "TanhGrad",
    gradient: Gradient::Fn(tanh_grad_grad),
    kernels: rows![tanh_grad: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..GRADIENT
};
static SQRT_GRAD: Op = Op {
    name: "SqrtGrad",
    gradient: Gradient::Fn(sqrt_grad_grad),
    kernels: rows![sqrt_grad: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..GRADIENT
};
static RSQRT_GRAD: Op = Op {
    name: "RsqrtGrad",
    gradient: Gradient::Fn(rsqrt_grad_grad),
    kernels: rows![rsqrt_grad: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..GRADIENT
};
static INV_GRAD: Op = Op { name: "InvGrad", ..RECIPROCAL };
static RECIPROCAL_GRAD: Op = Op { name: "ReciprocalGrad", ..RECIPROCAL };
const RECIPROCAL: Op = Op {
    gradient: Gradient::Fn(reciprocal_grad_grad),
    kernels: rows![reciprocal_grad: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..GRADIENT
};

macro_rules! gradient_kernels {
    ($($kernel:ident: $T:ident => |$y:ident, $dy:ident| $value:expr;)+) => {$(
        fn $kernel(init: &Init<'_>) -> Result<Kernel> {
            gradient(init, loops![init; wide, halves, complex; $T => Loop::wide_zip(|$y: $T, $dy: $T| $value)]?)
        }
    )+};
}
gradient_kernels! {
    sigmoid_grad: T => |y, dy| y.mul(T::ONE.sub(y)).mul(dy);
    tanh_grad: T => |y, dy| dy.mul(T::ONE.sub(y.mul(y)));
    // In stock's order, which shows in the last bit.
    sqrt_grad: T => |y, dy| unless_zero(dy, || T::from_f64(0.5).div(y.conj()).mul(dy));
    rsqrt_grad: T => |y, dy| unless_zero(dy, || {
        let y = y.conj();
        T::from_f64(-0.5).mul(dy.mul(y)).mul(y.mul(y))
    });
    reciprocal_grad: T => |y, dy| unless_zero(dy, || {
        let y = y.conj();
        dy.neg().mul(y.mul(y))
    });
}

/// A gradient of zero stays zero, even if the function's slope is infinite.
#[inline(always)]
fn unless_zero<T: Num>(dy: T, gradient: impl Fn() -> T) -> T {
    if dy.is_zero() { T::ZERO } else { gradient() }
}

fn gradient(init: &Init<'_>, function: Loop<2>) -> Result<Kernel> {
    let dtype = init.output_types[0];
    Kernel::sync(move |cx| {
        same_count(cx)?;
        cwise::apply(cx, dtype, ARITHMETIC, &function)
    })
}

/// Refuses operands of different counts; there is no broadcasting here. The result has the first one's shape.
fn same_count(cx: &mut KernelCx<'_>) -> Result<()> {
    let (y, dy) = (cx.input(0)?, cx.input(1)?);
    ensure!(
        y.elements() == dy.elements(),
        InvalidArgument,
        "The two arguments to a cwise op must have same number of elements, got {} and {}",
        y.elements(),
        dy.elements()
    );
    if y.shape() != dy.shape() {
        let shape = y.shape().clone();
        let dy = cx.take(1)?.reshaped(shape)?;
        cx.put(1, dy);
    }
    Ok(())
}

/// Gradients of gradients: pairs of expressions of the scope, both inputs, the output and the gradient that arrives.
macro_rules! second_grads {
    ($($name:ident: |$s:ident, $a:ident, $b:ident, $y:pat, $dy:ident| $grads:expr;)+) => {$(
        fn $name(g: &GradCx<'_>) -> Result<InputGrads> {
            let ($s, $a, $b, $y, $dy) = (g.scope(), g.input(0), g.input(1), &g.output(0)?, &g.dy(0)?);
            let (da, db): (Result<Output>, Result<Output>) = $grads;
            Ok([da?, db?].into())
        }
    )+};
}
second_grads! {
    sigmoid_grad_grad: |s, a, b, _, dy| {
        let a = conj(s, a)?;
        let scaled = ops::mul(s, dy, conj(s, b))?;
        let da = ops::sub(s, &scaled, ops::mul(s, ops::mul(s, 2, &scaled), &a));
        (da, ops::sigmoid_grad(s, &a, dy))
    };
    tanh_grad_grad: |s, a, b, _, dy| {
        let a = conj(s, a)?;
        let da = ops::mul(s, ops::mul(s, ops::mul(s, dy, -2), conj(s, b)), &a);
        (da, ops::tanh_grad(s, &a, dy))
    };
    sqrt_grad_grad: |s, a, _b, y, dy| {
        let scaled = ops::real_div(s, dy, a)?;
        (ops::mul(s, ops::neg(s, conj(s, &scaled)), y), ops::mul(s, 0.5, &scaled))
    };
    rsqrt_grad_grad: |s, a, b, _, dy| {
        let a = conj(s, a)?;
        let da = ops::mul(s, ops::mul(s, ops::mul(s, -1.5, conj(s, dy)), b), ops::square(s, &a));
        (da, ops::rsqrt_grad(s, &a, dy))
    };
    reciprocal_grad_grad: |s, a, b, _, dy| {
        let a = conj(s, a)?;
        let da = ops::mul(s, ops::mul(s, ops::mul(s, conj(s, dy), -2), b), &a);
        (da, ops::reciprocal_grad(s, &a, dy))
    };
}
