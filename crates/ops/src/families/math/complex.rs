//! Complex numbers and their parts.

use crate::builders as ops;
use crate::linalg::elementwise::Loop;
use crate::support::cwise::{self, ARITHMETIC, FUNCTION};
use crate::support::gradient::{binary_grads, unary_grads};
use crate::support::variants;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, Gradient, KernelRow, Only, Op, no_kernel, shapes};
use ferroflow_core::scope::{Input, Output, Scope};
use ferroflow_core::variant::Variant;
use ferroflow_core::{C64, C128, DType, Result, Tensor, kernels};

pub(crate) const OPS: &[&Op] = &[&COMPLEX, &REAL, &IMAG, &CONJ, &ANGLE, &COMPLEX_ABS];

static COMPLEX: Op = Op {
    name: "Complex",
    gradient: Gradient::Fn(complex_grad),
    inputs: &["real: T", "imag: T"],
    outputs: &["out: Tout"],
    attrs: &["T: {float, double} = DT_FLOAT", "Tout: {complex64, complex128} = DT_COMPLEX64"],
    shape: shapes::broadcast_binary,
    kernels: &[
        KernelRow::new("T", DType::Float, complex).only("Tout", Only::Type(DType::Complex64)),
        KernelRow::new("T", DType::Double, complex).only("Tout", Only::Type(DType::Complex128)),
    ],
    ..Op::PURE
};

const PART: Op = Op {
    inputs: &["input: T"],
    outputs: &["output: Tout"],
    attrs: &["T: {complex64, complex128} = DT_COMPLEX64", "Tout: {float, double} = DT_FLOAT"],
    shape: shapes::unchanged,
    ..Op::PURE
};

/// A part has the precision of the number.
const fn part_rows(make: fn(&Init<'_>) -> Result<Kernel>) -> [KernelRow; 2] {
    [
        KernelRow::new("T", DType::Complex64, make).only("Tout", Only::Type(DType::Float)),
        KernelRow::new("T", DType::Complex128, make).only("Tout", Only::Type(DType::Double)),
    ]
}

static REAL: Op = Op { name: "Real", gradient: Gradient::Fn(real_grad), kernels: &part_rows(real), ..PART };
static IMAG: Op = Op { name: "Imag", gradient: Gradient::Fn(imag_grad), kernels: &part_rows(imag), ..PART };
static ANGLE: Op = Op {
    name: "Angle",
    gradient: Gradient::Fn(angle_grad),
    kernels: &part_rows(angle),
    accuracy: Accuracy::Rounding,
    ..PART
};
static COMPLEX_ABS: Op = Op {
    name: "ComplexAbs",
    gradient: Gradient::Fn(complex_abs_grad),
    inputs: &["x: T"],
    outputs: &["y: Tout"],
    kernels: kernels![any complex_abs],
    accuracy: Accuracy::Rounding,
    ..PART
};
static CONJ: Op = Op {
    name: "Conj",
    gradient: Gradient::Fn(conj_grad),
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["T: {complex64, complex128, variant} = DT_COMPLEX64"],
    shape: shapes::unchanged,
    kernels: &[
        KernelRow::new("T", DType::Complex64, conj_single),
        KernelRow::new("T", DType::Complex128, conj_double),
        KernelRow::new("T", DType::Variant, conj_variant),
    ],
    ..Op::PURE
};

fn complex(init: &Init<'_>) -> Result<Kernel> {
    match (init.input_types[0], init.output_types[0]) {
        (DType::Float, DType::Complex64) => cwise::kernel(init, ARITHMETIC, Loop::zip(C64::new)),
        (DType::Double, DType::Complex128) => cwise::kernel(init, ARITHMETIC, Loop::zip(C128::new)),
        (from, to) => mismatch(init, from, to),
    }
}

/// Kernels that take one part of each number, in the precision of the parts.
macro_rules! part_kernels {
    ($($kernel:ident: $cost:expr, |$x:ident| $part:expr;)+) => {$(
        fn $kernel(init: &Init<'_>) -> Result<Kernel> {
            match (init.input_types[0], init.output_types[0]) {
                (DType::Complex64, DType::Float) => cwise::kernel(init, $cost, Loop::map(|$x: C64| $part)),
                (DType::Complex128, DType::Double) => cwise::kernel(init, $cost, Loop::map(|$x: C128| $part)),
                (from, to) => mismatch(init, from, to),
            }
        }
    )+};
}
part_kernels! {
    real: ARITHMETIC, |x| x.re;
    imag: ARITHMETIC, |x| x.im;
    angle: FUNCTION, |x| x.im.atan2(x.re);
    complex_abs: FUNCTION, |x| x.re.hypot(x.im);
}

fn mismatch(init: &Init<'_>, from: DType, to: DType) -> Result<Kernel> {
    Err(no_kernel(init.op, init.node, &format!("T={from}, Tout={to}")))
}

fn conj_single(init: &Init<'_>) -> Result<Kernel> {
    cwise::kernel(init, ARITHMETIC, Loop::map(|x: C64| x.conj()))
}

fn conj_double(init: &Init<'_>) -> Result<Kernel> {
    cwise::kernel(init, ARITHMETIC, Loop::map(|x: C128| x.conj()))
}

fn conj_variant(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let input = cx.input(0)?;
        let conjugates: Result<Vec<Variant>> =
            input.units::<Variant>()?.iter().map(variants::conjugate).collect();
        Ok(Tensor::from_units(DType::Variant, input.shape().clone(), conjugates?)?.into())
    })
}

/// The complex number of two parts.
fn joined(s: &Scope, real: impl Into<Input>, imag: impl Into<Input>, part: DType) -> Result<Output> {
    let whole = if part == DType::Double { DType::Complex128 } else { DType::Complex64 };
    ops::Complex::new().tout(whole).build(s, real, imag)
}

/// The type of the parts of a complex number.
fn part_of(whole: &Output) -> DType {
    if whole.dtype() == DType::Complex128 { DType::Double } else { DType::Float }
}

binary_grads! {
    complex_grad: |s, _x, _y, dz| {
        let part = part_of(dz);
        (ops::Real::new().tout(part).build(s, dz), ops::Imag::new().tout(part).build(s, dz))
    };
}
unary_grads! {
    real_grad: |s, _, _, dy| joined(s, dy, 0, dy.dtype());
    imag_grad: |s, _, _, dy| joined(s, 0, dy, dy.dtype());
    angle_grad: |s, x, _, dy| {
        let part = part_of(x);
        let (real, imag) = (ops::Real::new().tout(part).build(s, x), ops::Imag::new().tout(part).build(s, x));
        let turned = ops::reciprocal(s, joined(s, imag, real, part));
        ops::mul(s, ops::neg(s, joined(s, dy, 0, part)), turned)
    };
    complex_abs_grad: |s, x, y, dy| {
        let part = part_of(x);
        let numerator = ops::mul(s, joined(s, dy, ops::zeros_like(s, dy), part), x);
        ops::div_no_nan(s, numerator, joined(s, y, ops::zeros_like(s, y), part))
    };
    conj_grad: |s, _, _, dy| ops::conj(s, dy);
}

#[cfg(test)]
mod tests {
    use crate::testing::infer;

    #[test]
    fn parts_broadcast_into_numbers() {
        infer("Complex", "[2,1];[3]", "[2,3]");
        infer("Real", "[2,1]", "[2,1]");
    }
}
