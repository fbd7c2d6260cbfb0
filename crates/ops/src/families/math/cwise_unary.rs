//! Element-wise functions of one tensor.

use crate::cwise::{self, ARITHMETIC, FUNCTION, POLYNOMIAL};
use crate::linalg::elementary::Elementary;
use crate::linalg::functions::Functions;
use crate::numeric::{Float, Int, Num, Real};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, Op, shapes};
use ferroflow_core::{C64, C128, Result, bf16, f16, kernels};
use num_traits::Float as _;

pub(crate) const OPS: &[&Op] = &[
    &ABS, &NEG, &SIGN, &SQUARE, &INV, &RECIPROCAL, &SQRT, &RSQRT, &EXP, &EXPM1, &LOG, &LOG1P, &SIN, &COS, &TAN,
    &ASIN, &ACOS, &ATAN, &SINH, &COSH, &TANH, &ASINH, &ACOSH, &ATANH, &SIGMOID, &ERF, &ERFC, &FLOOR, &CEIL, &RINT,
    &ROUND, &IS_NAN, &IS_INF, &IS_FINITE, &LOGICAL_NOT, &INVERT, &POPULATION_COUNT,
];

/// Functions of floats and complex numbers.
const FUNCTIONS: Op = Op {
    inputs: &["x: T"],
    outputs: &["y: T"],
    attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
    shape: shapes::unchanged,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// Functions of signed numbers.
const SIGNED: Op = Op {
    attrs: &["T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"],
    accuracy: Accuracy::Exact,
    ..FUNCTIONS
};

/// Functions of floats.
const FLOATS: Op = Op { attrs: &["T: {bfloat16, half, float, double}"], ..FUNCTIONS };

/// Questions about floats.
const CLASSES: Op = Op { outputs: &["y: bool"], accuracy: Accuracy::Exact, ..FLOATS };

/// Functions of integers.
const INTEGERS: Op = Op {
    attrs: &["T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}"],
    accuracy: Accuracy::Exact,
    ..FUNCTIONS
};

static ABS: Op = Op {
    name: "Abs",
    attrs: &["T: {bfloat16, half, float, double, int8, int16, int32, int64}"],
    kernels: kernels![abs: bf16, f16, f32, f64, i8, i16, i32, i64],
    ..SIGNED
};
static NEG: Op = Op {
    name: "Neg",
    kernels: kernels![neg: bf16, f16, f32, f64, i8, i16, i32, i64, C64, C128],
    ..SIGNED
};
static SIGN: Op = Op {
    name: "Sign",
    kernels: kernels![sign: i8, i16, i32, i64; unit: bf16, f16, f32, f64, C64, C128],
    ..SIGNED
};
static SQUARE: Op = Op {
    name: "Square",
    attrs: &[
        "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, \
         complex128}",
    ],
    kernels: kernels![square: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..SIGNED
};
static INV: Op = Op { name: "Inv", ..RECIPROCAL_LIKE };
static RECIPROCAL: Op = Op { name: "Reciprocal", ..RECIPROCAL_LIKE };
const RECIPROCAL_LIKE: Op = Op {
    accuracy: Accuracy::Rounding,
    kernels: kernels![recip: bf16, f16, f32, f64, C64, C128],
    ..SIGNED
};

static SQRT: Op = Op { name: "Sqrt", kernels: kernels![sqrt: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static RSQRT: Op = Op { name: "Rsqrt", kernels: kernels![rsqrt: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static EXP: Op = Op { name: "Exp", kernels: kernels![exp: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static EXPM1: Op = Op { name: "Expm1", kernels: kernels![exp_m1: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static LOG: Op = Op { name: "Log", kernels: kernels![ln: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static LOG1P: Op = Op { name: "Log1p", kernels: kernels![ln_1p: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static SIN: Op = Op { name: "Sin", kernels: kernels![sin: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static COS: Op = Op { name: "Cos", kernels: kernels![cos: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static TAN: Op = Op { name: "Tan", kernels: kernels![tan: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static ASIN: Op = Op { name: "Asin", kernels: kernels![asin: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static ACOS: Op = Op { name: "Acos", kernels: kernels![acos: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static ATAN: Op = Op { name: "Atan", kernels: kernels![atan: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static SINH: Op = Op { name: "Sinh", kernels: kernels![sinh: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static COSH: Op = Op { name: "Cosh", kernels: kernels![cosh: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static TANH: Op = Op { name: "Tanh", kernels: kernels![tanh: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static ASINH: Op = Op { name: "Asinh", kernels: kernels![asinh: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static ACOSH: Op = Op { name: "Acosh", kernels: kernels![acosh: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static ATANH: Op = Op { name: "Atanh", kernels: kernels![atanh: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };
static SIGMOID: Op = Op { name: "Sigmoid", kernels: kernels![sigmoid: bf16, f16, f32, f64, C64, C128], ..FUNCTIONS };

static ERF: Op = Op { name: "Erf", kernels: kernels![erf: bf16, f16, f32, f64], ..FLOATS };
static ERFC: Op = Op { name: "Erfc", kernels: kernels![erfc: bf16, f16, f32, f64], ..FLOATS };
static FLOOR: Op =
    Op { name: "Floor", kernels: kernels![floor: bf16, f16, f32, f64], accuracy: Accuracy::Exact, ..FLOATS };
static CEIL: Op =
    Op { name: "Ceil", kernels: kernels![ceil: bf16, f16, f32, f64], accuracy: Accuracy::Exact, ..FLOATS };
static RINT: Op =
    Op { name: "Rint", kernels: kernels![round: bf16, f16, f32, f64], accuracy: Accuracy::Exact, ..FLOATS };
static ROUND: Op = Op {
    name: "Round",
    kernels: kernels![round: bf16, f16, f32, f64; identity: i8, i16, i32, i64],
    ..SIGNED
};
static IS_NAN: Op = Op { name: "IsNan", kernels: kernels![is_nan: bf16, f16, f32, f64], ..CLASSES };
static IS_INF: Op = Op { name: "IsInf", kernels: kernels![is_inf: bf16, f16, f32, f64], ..CLASSES };
static IS_FINITE: Op = Op { name: "IsFinite", kernels: kernels![is_finite: bf16, f16, f32, f64], ..CLASSES };

static LOGICAL_NOT: Op = Op {
    name: "LogicalNot",
    inputs: &["x: bool"],
    outputs: &["y: bool"],
    shape: shapes::unchanged,
    kernels: kernels![any logical_not],
    ..Op::PURE
};
static INVERT: Op =
    Op { name: "Invert", kernels: kernels![invert: i8, i16, i32, i64, u8, u16, u32, u64], ..INTEGERS };
static POPULATION_COUNT: Op = Op {
    name: "PopulationCount",
    outputs: &["y: uint8"],
    kernels: kernels![population_count: i8, i16, i32, i64, u8, u16, u32, u64],
    ..INTEGERS
};

/// Kernels that call one method of their element type.
macro_rules! method_kernels {
    ($($kernel:ident: $bound:path, $cost:expr, $function:expr;)+) => {$(
        fn $kernel<T: $bound>(_: &Init<'_>) -> Result<Kernel> {
            cwise::unary::<T, _>($cost, $function)
        }
    )+};
}
method_kernels! {
    abs: Real, ARITHMETIC, T::abs;
    neg: Num, ARITHMETIC, T::neg;
    sign: Real, ARITHMETIC, T::sign;
    unit: Functions, ARITHMETIC, T::unit;
    square: Num, ARITHMETIC, |x| x.mul(x);
    recip: Functions, ARITHMETIC, T::recip;
    sqrt: Functions, ARITHMETIC, T::sqrt;
    rsqrt: Functions, ARITHMETIC, T::rsqrt;
    exp: Functions, POLYNOMIAL, T::exp;
    exp_m1: Functions, POLYNOMIAL, T::exp_m1;
    ln: Functions, POLYNOMIAL, T::ln;
    ln_1p: Functions, POLYNOMIAL, T::ln_1p;
    tan: Functions, FUNCTION, T::tan;
    asin: Functions, FUNCTION, T::asin;
    acos: Functions, FUNCTION, T::acos;
    atan: Functions, FUNCTION, T::atan;
    sinh: Functions, FUNCTION, T::sinh;
    cosh: Functions, FUNCTION, T::cosh;
    tanh: Functions, POLYNOMIAL, T::tanh;
    asinh: Functions, FUNCTION, T::asinh;
    acosh: Functions, FUNCTION, T::acosh;
    atanh: Functions, FUNCTION, T::atanh;
    sigmoid: Functions, POLYNOMIAL, T::sigmoid;
    floor: Float, ARITHMETIC, |x| T::from_math(x.to_math().floor());
    ceil: Float, ARITHMETIC, |x| T::from_math(x.to_math().ceil());
    round: Float, ARITHMETIC, |x| T::from_math(ties_to_even(x.to_math()));
    invert: Int, ARITHMETIC, T::not;
}

fn sin<T: Functions>(_: &Init<'_>) -> Result<Kernel> {
    cwise::unary_guarded(T::is_small_angle, T::small_sin, T::sin)
}

fn cos<T: Functions>(_: &Init<'_>) -> Result<Kernel> {
    cwise::unary_guarded(T::is_small_angle, T::small_cos, T::cos)
}

fn erf<T: Float<Math: Elementary>>(_: &Init<'_>) -> Result<Kernel> {
    #[inline(always)]
    fn function<T: Float<Math: Elementary>>(x: T) -> T {
        T::from_math(x.to_math().fast_erf())
    }
    cwise::unary(POLYNOMIAL, function::<T>)
}

fn erfc<T: Float>(_: &Init<'_>) -> Result<Kernel> {
    cwise::unary(FUNCTION, |x: T| T::from_f64(libm::erfc(x.to_f64())))
}

/// Rounds halves to the even neighbor. The sum with this constant has no fraction bits left.
#[inline(always)]
fn ties_to_even<M: crate::numeric::Math>(x: M) -> M {
    let shift = M::one() / M::epsilon();
    let size = num_traits::Float::abs(x);
    let rounded = (size + shift) - shift;
    if size < shift { rounded.copysign(x) } else { x }
}

fn identity<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(cx.take(0)?.into()))
}

fn is_nan<T: Float>(_: &Init<'_>) -> Result<Kernel> {
    cwise::convert(ARITHMETIC, T::is_nan)
}

fn is_inf<T: Float>(_: &Init<'_>) -> Result<Kernel> {
    cwise::convert(ARITHMETIC, |x: T| !x.is_finite() && !x.is_nan())
}

fn is_finite<T: Float>(_: &Init<'_>) -> Result<Kernel> {
    cwise::convert(ARITHMETIC, |x: T| x.is_finite())
}

fn logical_not(_: &Init<'_>) -> Result<Kernel> {
    cwise::unary(ARITHMETIC, |x: bool| !x)
}

fn population_count<T: Int>(_: &Init<'_>) -> Result<Kernel> {
    cwise::convert(ARITHMETIC, |x: T| x.count_ones() as u8)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn the_shape_is_the_input_s() {
        infer("Exp", "[2,?]", "[2,?]");
        infer("IsNan", "?", "?");
    }

    #[test]
    fn long_inputs_agree_with_short_ones() {
        let values: Vec<f32> = (0..100).map(|i| i as f32 * 0.37 - 20.0).collect();
        let long = Node::new("Tanh").run([Tensor::vector(values.clone())]).unwrap();
        for (x, y) in values.iter().zip(long[0].flat::<f32>().unwrap()) {
            let one = Node::new("Tanh").run([Tensor::scalar(*x)]).unwrap();
            assert_eq!(one[0].flat::<f32>().unwrap(), [*y]);
            assert!((y - x.tanh()).abs() < 1e-6);
        }
    }

    #[test]
    fn an_input_that_others_hold_is_left_alone() {
        let input = Tensor::new(Shape::matrix(2, 2), vec![1i32, -2, 3, -4]).unwrap();
        let out = Node::new("Neg").run([input.clone()]).unwrap();
        assert_eq!(out[0].flat::<i32>().unwrap(), [-1, 2, -3, 4]);
        assert_eq!(input.flat::<i32>().unwrap(), [1, -2, 3, -4]);
    }
}
