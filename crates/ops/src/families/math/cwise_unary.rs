//! Element-wise functions of one tensor.

use crate::builders as ops;
use crate::linalg::elementary::Elementary;
use crate::linalg::elementwise::Loop;
use crate::linalg::functions::Functions;
use crate::numeric::{Int, Math, Num, Real};
use crate::support::cwise::{self, ARITHMETIC, FUNCTION, POLYNOMIAL, loops, rows};
use crate::support::gradient::{conj, unary_grads};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, Gradient, Op, shapes};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{DType, Result, kernels};
use std::f64::consts::FRAC_2_SQRT_PI;

pub(crate) const OPS: &[&Op] = &[
    &ABS,
    &NEG,
    &SIGN,
    &SQUARE,
    &INV,
    &RECIPROCAL,
    &SQRT,
    &RSQRT,
    &EXP,
    &EXPM1,
    &LOG,
    &LOG1P,
    &SIN,
    &COS,
    &TAN,
    &ASIN,
    &ACOS,
    &ATAN,
    &SINH,
    &COSH,
    &TANH,
    &ASINH,
    &ACOSH,
    &ATANH,
    &SIGMOID,
    &ERF,
    &ERFC,
    &FLOOR,
    &CEIL,
    &RINT,
    &ROUND,
    &IS_NAN,
    &IS_INF,
    &IS_FINITE,
    &LOGICAL_NOT,
    &INVERT,
    &POPULATION_COUNT,
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
    gradient: Gradient::Fn(abs_grad),
    attrs: &["T: {bfloat16, half, float, double, int8, int16, int32, int64}"],
    kernels: rows![abs: Bfloat16, Half, Float, Double, Int8, Int16, Int32, Int64],
    ..SIGNED
};
static NEG: Op = Op {
    name: "Neg",
    gradient: Gradient::Fn(neg_grad),
    kernels: rows![neg: Bfloat16, Half, Float, Double, Int8, Int16, Int32, Int64, Complex64, Complex128],
    ..SIGNED
};
static SIGN: Op = Op {
    name: "Sign",
    gradient: Gradient::Fn(sign_grad),
    kernels: rows![sign: Bfloat16, Half, Float, Double, Int8, Int16, Int32, Int64, Complex64, Complex128],
    ..SIGNED
};
static SQUARE: Op = Op {
    name: "Square",
    gradient: Gradient::Fn(square_grad),
    attrs: &[
        "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, \
         complex128}",
    ],
    kernels: rows![square: Bfloat16, Half, Float, Double, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Complex64, Complex128],
    ..SIGNED
};
static INV: Op = Op { name: "Inv", ..RECIPROCAL_LIKE };
static RECIPROCAL: Op = Op { name: "Reciprocal", ..RECIPROCAL_LIKE };
const RECIPROCAL_LIKE: Op = Op {
    gradient: Gradient::Fn(recip_grad),
    accuracy: Accuracy::Rounding,
    kernels: rows![recip: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..SIGNED
};

static SQRT: Op = Op {
    name: "Sqrt",
    gradient: Gradient::Fn(sqrt_grad),
    kernels: rows![sqrt: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static RSQRT: Op = Op {
    name: "Rsqrt",
    gradient: Gradient::Fn(rsqrt_grad),
    kernels: rows![rsqrt: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static EXP: Op = Op {
    name: "Exp",
    gradient: Gradient::Fn(exp_grad),
    kernels: rows![exp: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static EXPM1: Op = Op {
    name: "Expm1",
    gradient: Gradient::Fn(expm1_grad),
    kernels: rows![exp_m1: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static LOG: Op = Op {
    name: "Log",
    gradient: Gradient::Fn(ln_grad),
    kernels: rows![ln: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static LOG1P: Op = Op {
    name: "Log1p",
    gradient: Gradient::Fn(ln_1p_grad),
    kernels: rows![ln_1p: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static SIN: Op = Op {
    name: "Sin",
    gradient: Gradient::Fn(sin_grad),
    kernels: rows![sin: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static COS: Op = Op {
    name: "Cos",
    gradient: Gradient::Fn(cos_grad),
    kernels: rows![cos: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static TAN: Op = Op {
    name: "Tan",
    gradient: Gradient::Fn(tan_grad),
    kernels: rows![tan: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static ASIN: Op = Op {
    name: "Asin",
    gradient: Gradient::Fn(asin_grad),
    kernels: rows![asin: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static ACOS: Op = Op {
    name: "Acos",
    gradient: Gradient::Fn(acos_grad),
    kernels: rows![acos: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static ATAN: Op = Op {
    name: "Atan",
    gradient: Gradient::Fn(atan_grad),
    kernels: rows![atan: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static SINH: Op = Op {
    name: "Sinh",
    gradient: Gradient::Fn(sinh_grad),
    kernels: rows![sinh: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static COSH: Op = Op {
    name: "Cosh",
    gradient: Gradient::Fn(cosh_grad),
    kernels: rows![cosh: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static TANH: Op = Op {
    name: "Tanh",
    gradient: Gradient::Fn(tanh_grad),
    kernels: rows![tanh: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static ASINH: Op = Op {
    name: "Asinh",
    gradient: Gradient::Fn(asinh_grad),
    kernels: rows![asinh: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static ACOSH: Op = Op {
    name: "Acosh",
    gradient: Gradient::Fn(acosh_grad),
    kernels: rows![acosh: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static ATANH: Op = Op {
    name: "Atanh",
    gradient: Gradient::Fn(atanh_grad),
    kernels: rows![atanh: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};
static SIGMOID: Op = Op {
    name: "Sigmoid",
    gradient: Gradient::Fn(sigmoid_grad),
    kernels: rows![sigmoid: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..FUNCTIONS
};

static ERF: Op = Op {
    name: "Erf",
    gradient: Gradient::Fn(erf_grad),
    kernels: rows![erf: Bfloat16, Half, Float, Double],
    ..FLOATS
};
static ERFC: Op = Op {
    name: "Erfc",
    gradient: Gradient::Fn(erfc_grad),
    kernels: rows![erfc: Bfloat16, Half, Float, Double],
    ..FLOATS
};
static FLOOR: Op = Op {
    name: "Floor",
    gradient: Gradient::Stop,
    kernels: rows![floor: Bfloat16, Half, Float, Double],
    accuracy: Accuracy::Exact,
    ..FLOATS
};
static CEIL: Op = Op {
    name: "Ceil",
    gradient: Gradient::Stop,
    kernels: rows![ceil: Bfloat16, Half, Float, Double],
    accuracy: Accuracy::Exact,
    ..FLOATS
};
static RINT: Op = Op {
    name: "Rint",
    gradient: Gradient::Stop,
    kernels: rows![round: Bfloat16, Half, Float, Double],
    accuracy: Accuracy::Exact,
    ..FLOATS
};
static ROUND: Op = Op {
    name: "Round",
    gradient: Gradient::Stop,
    kernels: rows![round: Bfloat16, Half, Float, Double, Int8, Int16, Int32, Int64],
    ..SIGNED
};
static IS_NAN: Op = Op { name: "IsNan", kernels: rows![is_nan: Bfloat16, Half, Float, Double], ..CLASSES };
static IS_INF: Op = Op { name: "IsInf", kernels: rows![is_inf: Bfloat16, Half, Float, Double], ..CLASSES };
static IS_FINITE: Op =
    Op { name: "IsFinite", kernels: rows![is_finite: Bfloat16, Half, Float, Double], ..CLASSES };

static LOGICAL_NOT: Op = Op {
    name: "LogicalNot",
    gradient: Gradient::Stop,
    inputs: &["x: bool"],
    outputs: &["y: bool"],
    shape: shapes::unchanged,
    kernels: kernels![any logical_not],
    ..Op::PURE
};
static INVERT: Op = Op {
    name: "Invert",
    gradient: Gradient::Stop,
    kernels: rows![invert: Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
    ..INTEGERS
};
static POPULATION_COUNT: Op = Op {
    name: "PopulationCount",
    gradient: Gradient::Stop,
    outputs: &["y: uint8"],
    kernels: rows![population_count: Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
    ..INTEGERS
};

/// Kernels that call one method of their element type.
macro_rules! method_kernels {
    ($($kernel:ident: $cost:expr, $constructor:ident, [$($kind:ident),+], $T:ident => $function:expr;)+) => {$(
        fn $kernel(init: &Init<'_>) -> Result<Kernel> {
            cwise::kernel(init, $cost, loops![init; $($kind),+; $T => Loop::$constructor($function)]?)
        }
    )+};
}
method_kernels! {
    abs: ARITHMETIC, wide_map, [floats, signed], T => <T as Real>::abs;
    neg: ARITHMETIC, wide_map, [floats, signed, complex], T => <T as Num>::neg;
    square: ARITHMETIC, wide_map, [floats, bits, complex], T => |x: T| x.mul(x);
    recip: ARITHMETIC, wide_map, [floats, complex], T => <T as Functions>::recip;
    sqrt: ARITHMETIC, wide_map, [floats, complex], T => <T as Functions>::sqrt;
    rsqrt: ARITHMETIC, wide_map, [floats, complex], T => <T as Functions>::rsqrt;
    exp: POLYNOMIAL, wide_map, [floats, complex], T => <T as Functions>::exp;
    exp_m1: POLYNOMIAL, wide_map, [floats, complex], T => <T as Functions>::exp_m1;
    ln: POLYNOMIAL, wide_map, [floats, complex], T => <T as Functions>::ln;
    ln_1p: POLYNOMIAL, wide_map, [floats, complex], T => <T as Functions>::ln_1p;
    tan: FUNCTION, map_each, [floats, complex], T => <T as Functions>::tan;
    asin: FUNCTION, map_each, [floats, complex], T => <T as Functions>::asin;
    acos: FUNCTION, map_each, [floats, complex], T => <T as Functions>::acos;
    atan: FUNCTION, map_each, [floats, complex], T => <T as Functions>::atan;
    sinh: FUNCTION, map_each, [floats, complex], T => <T as Functions>::sinh;
    cosh: FUNCTION, map_each, [floats, complex], T => <T as Functions>::cosh;
    tanh: POLYNOMIAL, wide_map, [floats, complex], T => <T as Functions>::tanh;
    asinh: FUNCTION, map_each, [floats, complex], T => <T as Functions>::asinh;
    acosh: FUNCTION, map_each, [floats, complex], T => <T as Functions>::acosh;
    atanh: FUNCTION, map_each, [floats, complex], T => <T as Functions>::atanh;
    sigmoid: POLYNOMIAL, wide_map, [wide, halves, complex], T => <T as Functions>::sigmoid;
    erf: POLYNOMIAL, wide_map, [floats], T => <T as Elementary>::fast_erf;
    erfc: FUNCTION, map_each, [floats], T => |x: T| T::from_f64(libm::erfc(x.to_f64()));
    floor: ARITHMETIC, wide_map, [floats], T => T::floor;
    ceil: ARITHMETIC, wide_map, [floats], T => T::ceil;
    round_floats: ARITHMETIC, map, [floats], T => ties_to_even::<T>;
    is_nan: ARITHMETIC, map, [floats], T => T::is_nan;
    is_inf: ARITHMETIC, map, [floats], T => T::is_infinite;
    is_finite: ARITHMETIC, map, [floats], T => T::is_finite;
    invert: ARITHMETIC, map, [bits], T => <T as Int>::not;
    population_count: ARITHMETIC, map, [bits], T => |x: T| x.count_ones() as u8;
}

fn sign(init: &Init<'_>) -> Result<Kernel> {
    let function = match init.input_types[0] {
        dtype if dtype.is_integer() => loops![init; signed; T => Loop::map(<T as Real>::sign)],
        _ => loops![init; floats, complex; T => Loop::map(<T as Functions>::unit)],
    };
    cwise::kernel(init, ARITHMETIC, function?)
}

fn round(init: &Init<'_>) -> Result<Kernel> {
    if init.input_types[0].is_integer() {
        // Stock answers zero, whatever the integer; its Python client never asks.
        return Kernel::sync(|cx| {
            let input = cx.input(0)?;
            Ok(cx.zeros(input.dtype(), input.shape().clone())?.into())
        });
    }
    round_floats(init)
}

/// Rounds halves to the even neighbor. The sum with this constant has no fraction bits left.
#[inline(always)]
fn ties_to_even<M: Math>(x: M) -> M {
    let shift = M::one() / M::epsilon();
    let size = num_traits::Float::abs(x);
    let rounded = (size + shift) - shift;
    if size < shift { rounded.copysign(x) } else { x }
}

fn sin(init: &Init<'_>) -> Result<Kernel> {
    let any = loops![init; floats, complex; T => Loop::map_each(<T as Functions>::sin)]?;
    angle(init, any, Loop::wide_map(<f32 as Functions>::small_sin))
}

fn cos(init: &Init<'_>) -> Result<Kernel> {
    let any = loops![init; floats, complex; T => Loop::map_each(<T as Functions>::cos)]?;
    angle(init, any, Loop::wide_map(<f32 as Functions>::small_cos))
}

/// Takes the vectorized function if every angle is small enough for it.
fn angle(init: &Init<'_>, any: Loop<1>, small: Loop<1>) -> Result<Kernel> {
    let dtype = init.output_types[0];
    if dtype != DType::Float {
        return cwise::kernel(init, FUNCTION, any);
    }
    Kernel::sync(move |cx| {
        let fits = |block: &[f32]| block.iter().fold(true, |all, x| all & Elementary::is_small_angle(*x));
        if cx.flat::<f32>(0)?.chunks(4096).all(fits) {
            cwise::apply(cx, dtype, POLYNOMIAL, &small)
        } else {
            cwise::apply(cx, dtype, FUNCTION, &any)
        }
    })
}

fn logical_not(init: &Init<'_>) -> Result<Kernel> {
    cwise::kernel(init, ARITHMETIC, Loop::map(|x: bool| !x))
}

unary_grads! {
    abs_grad: |s, x, _, dy| ops::mul(s, dy, ops::sign(s, x));
    neg_grad: |s, _, _, dy| ops::neg(s, dy);
    // Nothing of what arrives gets through, but its shape is known.
    sign_grad: |s, x, _, _dy| ops::zeros_like(s, x);
    square_grad: |s, x, _, dy| ops::mul(s, dy, ops::mul(s, conj(s, x), 2));
    recip_grad: |s, _, y, dy| ops::reciprocal_grad(s, y, dy);
    sqrt_grad: |s, _, y, dy| ops::sqrt_grad(s, y, dy);
    rsqrt_grad: |s, _, y, dy| ops::rsqrt_grad(s, y, dy);
    exp_grad: |s, _, y, dy| ops::mul(s, dy, conj(s, y));
    expm1_grad: |s, x, _, dy| ops::mul(s, dy, ops::exp(s, conj(s, x)));
    ln_grad: |s, x, _, dy| ops::mul(s, dy, ops::reciprocal(s, conj(s, x)));
    ln_1p_grad: |s, x, _, dy| ops::mul(s, dy, ops::reciprocal(s, ops::add_v2(s, 1, conj(s, x))));
    sin_grad: |s, x, _, dy| ops::mul(s, dy, ops::cos(s, conj(s, x)));
    cos_grad: |s, x, _, dy| ops::mul(s, ops::neg(s, dy), ops::sin(s, conj(s, x)));
    tan_grad: |s, x, _, dy| {
        let secant = ops::reciprocal(s, ops::cos(s, conj(s, x)));
        ops::mul(s, ops::square(s, secant), dy)
    };
    asin_grad: |s, x, _, dy| ops::mul(s, dy, inverse_root(s, x));
    acos_grad: |s, x, _, dy| ops::mul(s, ops::neg(s, dy), inverse_root(s, x));
    atan_grad: |s, x, _, dy| {
        ops::mul(s, dy, ops::reciprocal(s, ops::add_v2(s, 1, ops::square(s, conj(s, x)))))
    };
    sinh_grad: |s, x, _, dy| ops::mul(s, dy, ops::cosh(s, conj(s, x)));
    cosh_grad: |s, x, _, dy| ops::mul(s, dy, ops::sinh(s, conj(s, x)));
    tanh_grad: |s, _, y, dy| ops::tanh_grad(s, conj(s, y), dy);
    asinh_grad: |s, _, y, dy| ops::real_div(s, dy, ops::cosh(s, conj(s, y)));
    acosh_grad: |s, _, y, dy| ops::real_div(s, dy, ops::sinh(s, conj(s, y)));
    atanh_grad: |s, x, _, dy| {
        ops::mul(s, dy, ops::reciprocal(s, ops::sub(s, 1, ops::square(s, conj(s, x)))))
    };
    sigmoid_grad: |s, _, y, dy| ops::sigmoid_grad(s, conj(s, y), dy);
    erf_grad: |s, x, _, dy| ops::mul(s, ops::mul(s, dy, FRAC_2_SQRT_PI), bell(s, x));
    erfc_grad: |s, x, _, dy| ops::mul(s, ops::mul(s, dy, -FRAC_2_SQRT_PI), bell(s, x));
}

/// `1 / sqrt(1 - x²)`, with the conjugate of `x`.
fn inverse_root(s: &Scope, x: &Output) -> Result<Output> {
    ops::reciprocal(s, ops::sqrt(s, ops::sub(s, 1, ops::square(s, conj(s, x)))))
}

/// `exp(-x²)`
fn bell(s: &Scope, x: &Output) -> Result<Output> {
    ops::exp(s, ops::neg(s, ops::square(s, x)))
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
