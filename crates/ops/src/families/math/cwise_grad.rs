//! Gradients of element-wise functions, computed from the function's result.

use crate::cwise::{self, ARITHMETIC};
use crate::numeric::Num;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Op, shapes};
use ferroflow_core::{C64, C128, Result, bf16, ensure, f16, kernels};

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
static SIGMOID_GRAD: Op =
    Op { name: "SigmoidGrad", kernels: kernels![sigmoid_grad: bf16, f16, f32, f64, C64, C128], ..GRADIENT };
static TANH_GRAD: Op =
    Op { name: "TanhGrad", kernels: kernels![tanh_grad: bf16, f16, f32, f64, C64, C128], ..GRADIENT };
static SQRT_GRAD: Op =
    Op { name: "SqrtGrad", kernels: kernels![sqrt_grad: bf16, f16, f32, f64, C64, C128], ..GRADIENT };
static RSQRT_GRAD: Op =
    Op { name: "RsqrtGrad", kernels: kernels![rsqrt_grad: bf16, f16, f32, f64, C64, C128], ..GRADIENT };
static INV_GRAD: Op = Op { name: "InvGrad", ..RECIPROCAL };
static RECIPROCAL_GRAD: Op = Op { name: "ReciprocalGrad", ..RECIPROCAL };
const RECIPROCAL: Op = Op { kernels: kernels![reciprocal_grad: bf16, f16, f32, f64, C64, C128], ..GRADIENT };

macro_rules! gradient_kernels {
    ($($kernel:ident: |$y:ident, $dy:ident| $value:expr;)+) => {$(
        fn $kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
            Kernel::sync(|cx| {
                same_count(cx)?;
                cwise::apply_binary::<T, _>(cx, ARITHMETIC, |$y, $dy| {
                    let $y = $y.conj();
                    $value
                })
            })
        }
    )+};
}
gradient_kernels! {
    sigmoid_grad: |y, dy| dy.mul(T::ONE.sub(y)).mul(y);
    tanh_grad: |y, dy| dy.mul(T::ONE.sub(y.mul(y)));
    sqrt_grad: |y, dy| dy.mul(T::from_f64(0.5)).div(y);
    rsqrt_grad: |y, dy| dy.mul(y.mul(y)).mul(y.mul(T::from_f64(-0.5)));
    reciprocal_grad: |y, dy| dy.mul(y.mul(y.neg()));
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
