//! Element-wise arithmetic of two tensors with broadcasting, and sums of many tensors.

use crate::builders as ops;
use crate::linalg::elementwise::Loop;
use crate::linalg::functions::Functions;
use crate::numeric::{Float, Int, Math, Num, Real};
use crate::support::cwise::{self, ARITHMETIC, FUNCTION, POLYNOMIAL, loops, rows};
use crate::support::gradient::{binary_grads, conj, unbroadcast_both};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Str};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, shapes};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{Code, DType, Result, Status, ensure};

pub(crate) const OPS: &[&Op] = &[
    &ADD,
    &ADD_V2,
    &SUB,
    &MUL,
    &MUL_NO_NAN,
    &DIV,
    &REAL_DIV,
    &DIV_NO_NAN,
    &TRUNCATE_DIV,
    &FLOOR_DIV,
    &MOD,
    &TRUNCATE_MOD,
    &FLOOR_MOD,
    &MAXIMUM,
    &MINIMUM,
    &SQUARED_DIFFERENCE,
    &POW,
    &ATAN2,
    &XDIVY,
    &XLOGY,
    &XLOG1PY,
    &NEXT_AFTER,
    &APPROXIMATE_EQUAL,
];

const BINARY: Op = Op {
    inputs: &["x: T", "y: T"],
    outputs: &["z: T"],
    shape: shapes::broadcast_binary,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static ADD: Op = Op {
    name: "Add",
    gradient: Gradient::Fn(add_grad),
    attrs: &[
        "T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128, string}",
    ],
    kernels: rows![add: Bfloat16, Half, Float, Double, Uint8, Int8, Int16, Int32, Int64, Complex64, Complex128; join: String],
    ..BINARY
};
static ADD_V2: Op = Op {
    name: "AddV2",
    gradient: Gradient::Fn(add_grad),
    attrs: &[
        "T: {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, int64, complex64, \
         complex128}",
    ],
    kernels: rows![add: Bfloat16, Half, Float, Double, Uint8, Uint16, Uint32, Uint64, Int8, Int16, Int32, Int64, Complex64, Complex128],
    commutative: true,
    aggregate: true,
    ..BINARY
};
static SUB: Op = Op {
    name: "Sub",
    gradient: Gradient::Fn(sub_grad),
    attrs: &[
        "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, complex64, complex128, uint32, \
         uint64}",
    ],
    kernels: rows![sub: Bfloat16, Half, Float, Double, Uint8, Int8, Uint16, Int16, Int32, Int64, Complex64, Complex128, Uint32, Uint64],
    ..BINARY
};
/// The declaration shared by `Mul` and the divisions.
const NUMBERS: Op = Op {
    attrs: &[
        "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, \
         complex128}",
    ],
    ..BINARY
};
static MUL: Op = Op {
    name: "Mul",
    gradient: Gradient::Fn(mul_grad),
    kernels: rows![mul: Bfloat16, Half, Float, Double, Uint8, Int8, Uint16, Int16, Int32, Uint32, Uint64, Int64, Complex64, Complex128],
    commutative: true,
    ..NUMBERS
};
static DIV: Op = Op {
    name: "Div",
    gradient: Gradient::Fn(div_grad),
    kernels: rows![div: Bfloat16, Half, Float, Double, Complex64, Complex128; int_div: Uint8, Int8, Uint16, Int16, Int32, Uint32, Uint64, Int64],
    ..NUMBERS
};
static REAL_DIV: Op = Op {
    name: "RealDiv",
    gradient: Gradient::Fn(div_grad),
    kernels: rows![div: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..NUMBERS
};
static TRUNCATE_DIV: Op = Op {
    name: "TruncateDiv",
    gradient: Gradient::Stop,
    kernels: rows![truncate_div: Bfloat16, Half, Float, Double; int_truncate_div: Uint8, Int8, Uint16, Int16, Int32, Uint32, Uint64, Int64],
    ..NUMBERS
};
static FLOOR_DIV: Op = Op {
    name: "FloorDiv",
    gradient: Gradient::Stop,
    kernels: rows![floor_div: Bfloat16, Half, Float, Double; int_floor_div: Uint8, Int8, Uint16, Int16, Int32, Uint32, Uint64, Int64],
    ..NUMBERS
};
static MOD: Op = Op {
    name: "Mod",
    attrs: &["T: {int32, int64, half, half, bfloat16, float, double}"],
    kernels: rows![int_rem: Int32, Int64; rem: Float, Double],
    ..BINARY
};
static TRUNCATE_MOD: Op = Op {
    name: "TruncateMod",
    attrs: &["T: {int32, int64, bfloat16, half, float, double}"],
    kernels: rows![int_truncate_mod: Int32, Int64; rem: Float, Double],
    ..BINARY
};
static FLOOR_MOD: Op = Op {
    name: "FloorMod",
    gradient: Gradient::Fn(floor_mod_grad),
    attrs: &["T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bfloat16, half, float, double}"],
    kernels: rows![int_floor_mod: Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64; floor_mod: Bfloat16, Half, Float, Double],
    ..BINARY
};

/// The declaration shared by functions with an exception at zero.
const NO_NAN: Op = Op { attrs: &["T: {half, bfloat16, float, double, complex64, complex128}"], ..BINARY };
static MUL_NO_NAN: Op = Op {
    name: "MulNoNan",
    gradient: Gradient::Fn(mul_no_nan_grad),
    attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
    kernels: rows![mul_no_nan: Bfloat16, Half, Float, Double, Complex64, Complex128],
    ..BINARY
};
static DIV_NO_NAN: Op = Op {
    name: "DivNoNan",
    gradient: Gradient::Fn(div_no_nan_grad),
    attrs: &["T: {half, float, bfloat16, double, complex64, complex128}"],
    kernels: rows![div_no_nan: Half, Float, Bfloat16, Double, Complex64, Complex128],
    ..BINARY
};
static XDIVY: Op = Op {
    name: "Xdivy",
    gradient: Gradient::Fn(xdivy_grad),
    kernels: rows![xdivy: Half, Bfloat16, Float, Double, Complex64, Complex128],
    ..NO_NAN
};
static XLOGY: Op = Op {
    name: "Xlogy",
    gradient: Gradient::Fn(xlogy_grad),
    kernels: rows![xlogy: Half, Bfloat16, Float, Double, Complex64, Complex128],
    ..NO_NAN
};
static XLOG1PY: Op = Op {
    name: "Xlog1py",
    gradient: Gradient::Fn(xlog1py_grad),
    kernels: rows![xlog1py: Half, Bfloat16, Float, Double, Complex64, Complex128],
    ..NO_NAN
};

/// The declaration shared by the extremes.
const ORDERED: Op = Op {
    attrs: &["T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}"],
    accuracy: Accuracy::Exact,
    ..BINARY
};
static MAXIMUM: Op = Op {
    name: "Maximum",
    gradient: Gradient::Fn(maximum_grad),
    kernels: rows![maximum: Bfloat16, Half, Float, Double, Int8, Uint8, Int16, Uint16, Int32, Uint32, Int64, Uint64],
    ..ORDERED
};
static MINIMUM: Op = Op {
    name: "Minimum",
    gradient: Gradient::Fn(minimum_grad),
    kernels: rows![minimum: Bfloat16, Half, Float, Double, Int8, Uint8, Int16, Uint16, Int32, Uint32, Int64, Uint64],
    ..ORDERED
};

static SQUARED_DIFFERENCE: Op = Op {
    name: "SquaredDifference",
    gradient: Gradient::Fn(squared_difference_grad),
    attrs: &["T: {bfloat16, half, float, double, int32, int64, complex64, complex128}"],
    kernels: rows![squared_difference: Bfloat16, Half, Float, Double, Int32, Int64, Complex64, Complex128],
    commutative: true,
    ..BINARY
};
static POW: Op = Op {
    name: "Pow",
    gradient: Gradient::Fn(pow_grad),
    attrs: &["T: {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}"],
    kernels: rows![pow: Bfloat16, Float, Half, Double, Complex64, Complex128; int_pow: Int8, Int16, Int32, Int64],
    ..BINARY
};
static ATAN2: Op = Op {
    name: "Atan2",
    gradient: Gradient::Fn(atan2_grad),
    inputs: &["y: T", "x: T"],
    attrs: &["T: {bfloat16, half, float, double}"],
    kernels: rows![atan2: Bfloat16, Half, Float, Double],
    ..BINARY
};
static NEXT_AFTER: Op = Op {
    name: "NextAfter",
    gradient: Gradient::Fn(next_after_grad),
    inputs: &["x1: T", "x2: T"],
    outputs: &["output: T"],
    attrs: &["T: {double, float} = DT_FLOAT"],
    kernels: rows![next_after: Double, Float],
    accuracy: Accuracy::Exact,
    ..BINARY
};
static APPROXIMATE_EQUAL: Op = Op {
    name: "ApproximateEqual",
    gradient: Gradient::Stop,
    outputs: &["z: bool"],
    attrs: &["T: numbertype", "tolerance: float = 0.00001"],
    shape: shapes::same,
    kernels: rows![approximate_equal: Float, Double],
    commutative: true,
    ..BINARY
};

/// Kernels that compute one expression of two elements.
macro_rules! binary_kernels {
    ($($kernel:ident: $cost:expr, $constructor:ident, [$($kind:ident),+], $T:ident => $function:expr;)+) => {$(
        fn $kernel(init: &Init<'_>) -> Result<Kernel> {
            cwise::kernel(init, $cost, loops![init; $($kind),+; $T => Loop::$constructor($function)]?)
        }
    )+};
}
binary_kernels! {
    add: ARITHMETIC, wide_zip, [floats, bits, complex], T => <T as Num>::add;
    sub: ARITHMETIC, wide_zip, [floats, bits, complex], T => <T as Num>::sub;
    mul: ARITHMETIC, wide_zip, [floats, bits, complex], T => <T as Num>::mul;
    div: ARITHMETIC, wide_zip, [floats, complex], T => <T as Num>::div;
    rem: FUNCTION, zip_each, [wide], T => |x: T, y: T| x % y;
    truncate_div: ARITHMETIC, zip, [wide, halves], T => truncated_quotient::<T>;
    floor_div: ARITHMETIC, zip, [wide, halves], T => floor_quotient::<T>;
    floor_mod: FUNCTION, zip_each, [floats], T => floor_remainder::<T>;
    mul_no_nan: ARITHMETIC, zip, [floats, complex], T => |x: T, y: T| if y.is_zero() { T::ZERO } else { x.mul(y) };
    div_no_nan: ARITHMETIC, zip, [floats, complex], T => |x: T, y: T| if y.is_zero() { T::ZERO } else { x.div(y) };
    xdivy: ARITHMETIC, zip, [floats, complex], T => |x: T, y: T| if x.is_zero() { x } else { x.div(y) };
    // Stock rounds the logarithm to 16 bits, too.
    xlogy: POLYNOMIAL, wide_zip, [wide, halves, complex], T => x_ln_y::<T>;
    xlog1py: POLYNOMIAL, wide_zip, [wide, halves, complex], T => x_ln_1p_y::<T>;
    maximum_of_wide: ARITHMETIC, wide_zip, [wide, signed, unsigned], T => <T as Real>::maximum;
    minimum_of_wide: ARITHMETIC, wide_zip, [wide, signed, unsigned], T => <T as Real>::minimum;
    // Of equals, which only zeros tell apart, 16-bit floats take the first and all others the second, as in stock.
    maximum_of_halves: ARITHMETIC, zip, [halves], T => |x: T, y: T| <T as Real>::maximum(y, x);
    minimum_of_halves: ARITHMETIC, zip, [halves], T => |x: T, y: T| <T as Real>::minimum(y, x);
    squared_difference: ARITHMETIC, wide_zip, [wide, halves, signed, complex], T => difference_squared::<T>;
    pow: FUNCTION, zip_each, [floats, complex], T => <T as Functions>::pow;
    atan2: FUNCTION, zip_each, [floats], T => |y: T, x: T| y.atan2(x);
}

fn maximum(init: &Init<'_>) -> Result<Kernel> {
    if is_half(init) { maximum_of_halves(init) } else { maximum_of_wide(init) }
}

fn minimum(init: &Init<'_>) -> Result<Kernel> {
    if is_half(init) { minimum_of_halves(init) } else { minimum_of_wide(init) }
}

fn is_half(init: &Init<'_>) -> bool {
    matches!(init.input_types[0], DType::Half | DType::Bfloat16)
}

/// Kernels of integer division, which refuse zero divisors.
macro_rules! division_kernels {
    ($($kernel:ident: $refusal:expr, $T:ident => $function:expr;)+) => {$(
        fn $kernel(init: &Init<'_>) -> Result<Kernel> {
            let function = loops![init; signed, unsigned; $T => Loop::zip_each($function)]?;
            cwise::checked_kernel(init, FUNCTION, function, |cx| {
                // Zeros are zeros in any type of the same width, which is all that this looks at.
                let divisors = cx.input(1)?;
                let width = divisors.dtype().size();
                let zero = divisors.bytes()?.chunks_exact(width).any(|x| x.iter().all(|byte| *byte == 0));
                refuse(cx, zero, $refusal)
            })
        }
    )+};
}
type Refusal = (Code, &'static str);
const BY_ZERO: Refusal = (Code::InvalidArgument, "Integer division by zero");
// Stock does not know these two among the ops that divide.
const UNEXPECTED: Refusal =
    (Code::Internal, "Unexpected error in binary operator (only integer div and mod should have errors)");
division_kernels! {
    int_div: BY_ZERO, T => <T as Num>::div;
    int_truncate_div: UNEXPECTED, T => <T as Num>::div;
    int_floor_div: BY_ZERO, T => int_floor_quotient::<T>;
    int_rem: BY_ZERO, T => <T as Int>::rem;
    int_truncate_mod: UNEXPECTED, T => <T as Int>::rem;
    int_floor_mod: BY_ZERO, T => int_floor_remainder::<T>;
}

/// Refuses operands, unless the result is empty and needs none of them. Shapes that do not fit are reported by others.
fn refuse(cx: &KernelCx<'_>, wrong: bool, (code, message): Refusal) -> Result<()> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if wrong && a.elements() > 0 && cwise::fit(a, b) {
        return Err(Status::new(code, message));
    }
    Ok(())
}

fn int_floor_quotient<T: Int>(x: T, y: T) -> T {
    let quotient = x.div(y);
    let inexact = !x.rem(y).is_zero();
    if inexact && (x < T::ZERO) != (y < T::ZERO) { quotient.sub(T::ONE) } else { quotient }
}

fn int_floor_remainder<T: Int>(x: T, y: T) -> T {
    let remainder = x.rem(y);
    if !remainder.is_zero() && (remainder < T::ZERO) != (y < T::ZERO) { remainder.add(y) } else { remainder }
}

fn truncated_quotient<T: Float>(x: T, y: T) -> T {
    T::from_math(num_traits::Float::trunc(x.div(y).to_math()))
}

fn floor_quotient<T: Float>(x: T, y: T) -> T {
    T::from_math(num_traits::Float::floor(x.div(y).to_math()))
}

fn floor_remainder<M: Math>(x: M, y: M) -> M {
    let remainder = x % y;
    let wrong_side = remainder != M::ZERO && (remainder < M::ZERO) != (y < M::ZERO);
    if wrong_side { remainder + y } else { remainder }
}

#[inline(always)]
fn x_ln_y<T: Functions>(x: T, y: T) -> T {
    if x.is_zero() { T::ZERO } else { x.mul(y.ln()) }
}

#[inline(always)]
fn x_ln_1p_y<T: Functions>(x: T, y: T) -> T {
    if x.is_zero() { T::ZERO } else { x.mul(y.ln_1p()) }
}

#[inline(always)]
fn difference_squared<T: Num>(x: T, y: T) -> T {
    let difference = x.sub(y);
    difference.conj().mul(difference)
}

fn int_pow(init: &Init<'_>) -> Result<Kernel> {
    const NEGATIVE: Refusal = (Code::InvalidArgument, "Integers to negative integer powers are not allowed");
    let function = loops![init; signed; T => Loop::zip_each(power::<T>)]?;
    cwise::checked_kernel(init, FUNCTION, function, |cx| {
        // The sign is the highest bit of the last byte of each exponent.
        let exponents = cx.input(1)?;
        let width = exponents.dtype().size();
        let negative = exponents.bytes()?.chunks_exact(width).any(|x| x[width - 1] >= 0x80);
        refuse(cx, negative, NEGATIVE)
    })
}

fn power<T: Int>(x: T, y: T) -> T {
    let (mut base, mut exponent, mut result) = (x, y.to_i64(), T::ONE);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.mul(base);
        }
        base = base.mul(base);
        exponent >>= 1;
    }
    result
}

fn next_after(init: &Init<'_>) -> Result<Kernel> {
    let function = match init.input_types[0] {
        DType::Float => Loop::zip_each(libm::nextafterf),
        _ => Loop::zip_each(libm::nextafter),
    };
    cwise::kernel(init, ARITHMETIC, function)
}

fn approximate_equal(init: &Init<'_>) -> Result<Kernel> {
    let tolerance: f32 = init.attr("tolerance")?;
    let function = loops![init; wide; T => {
        let tolerance = tolerance as T;
        Loop::zip(move |x: T, y: T| (x - y).abs() <= tolerance)
    }]?;
    cwise::checked_kernel(init, ARITHMETIC, function, |cx| {
        let (x, y) = (cx.input(0)?.shape(), cx.input(1)?.shape());
        ensure!(x == y, InvalidArgument, "x and y must be of the same shape. x shape: {x}. y shape: {y}");
        Ok(())
    })
}

fn join(_: &Init<'_>) -> Result<Kernel> {
    cwise::binary_owned(|x: &Str, y: &Str| Str::from([&x[..], &y[..]].concat()))
}

binary_grads! {
    add_grad: |_s, _x, _y, dy| (ok(dy), ok(dy));
    sub_grad: |s, _x, _y, dy| (ok(dy), ops::neg(s, dy));
    mul_grad: |s, x, y, dy| (ops::mul(s, dy, conj(s, y)), ops::mul(s, conj(s, x), dy));
    mul_no_nan_grad: |s, x, y, dy| (ops::mul_no_nan(s, dy, y), ops::mul_no_nan(s, x, dy));
    div_grad: |s, x, y, dy| {
        let (x, y) = (conj(s, x)?, conj(s, y)?);
        let slope = ops::real_div(s, ops::real_div(s, ops::neg(s, x), &y), &y);
        (ops::real_div(s, dy, &y), ops::mul(s, dy, slope))
    };
    div_no_nan_grad: |s, x, y, dy| {
        let (x, y) = (conj(s, x)?, conj(s, y)?);
        let slope = ops::div_no_nan(s, ops::div_no_nan(s, ops::neg(s, x), &y), &y);
        (ops::div_no_nan(s, dy, &y), ops::mul(s, dy, slope))
    };
    floor_mod_grad: |s, x, y, dy| (ok(dy), ops::mul(s, dy, ops::neg(s, ops::floor_div(s, x, y))));
    xlogy_grad: |s, x, y, dy| {
        (ops::mul(s, ops::xlogy(s, not_zero(s, x), y), dy), ops::mul(s, ops::xdivy(s, x, y), dy))
    };
    xlog1py_grad: |s, x, y, dy| {
        let slope = ops::xdivy(s, x, ops::add_v2(s, y, 1));
        (ops::mul(s, ops::xlog1py(s, not_zero(s, x), y), dy), ops::mul(s, slope, dy))
    };
    xdivy_grad: |s, x, y, dy| {
        let slope = ops::xdivy(s, ops::neg(s, x), ops::pow(s, y, 2));
        (ops::mul(s, ops::xdivy(s, not_zero(s, x), y), dy), ops::mul(s, slope, dy))
    };
    maximum_grad: |s, x, y, dy| chosen(s, &ops::greater_equal(s, x, y)?, dy);
    minimum_grad: |s, x, y, dy| chosen(s, &ops::less_equal(s, x, y)?, dy);
    squared_difference_grad: |s, x, y, dy| {
        let dx = ops::mul(s, ops::mul(s, 2, dy), ops::sub(s, x, y))?;
        (ok(&dx), ops::neg(s, &dx))
    };
    atan2_grad: |s, y, x, dz| {
        let scaled = ops::real_div(s, dz, ops::add_v2(s, ops::square(s, y), ops::square(s, x)))?;
        (ops::mul(s, x, &scaled), ops::mul(s, ops::neg(s, y), &scaled))
    };
    next_after_grad: |s, x, y, dy| {
        (ops::mul(s, ops::ones_like(s, x), dy), ops::mul(s, ops::zeros_like(s, y), dy))
    };
}

fn ok(output: &Output) -> Result<Output> {
    Ok(output.clone())
}

/// One where `x` is not zero.
fn not_zero(s: &Scope, x: &Output) -> Result<Output> {
    ops::cast(s, ops::not_equal(s, x, 0), x.dtype())
}

/// The gradient, given to the first input where the mask is set and to the second elsewhere.
fn chosen(s: &Scope, mask: &Output, dy: &Output) -> (Result<Output>, Result<Output>) {
    let zeros = match ops::zeros_like(s, dy) {
        Ok(zeros) => zeros,
        Err(error) => return (Err(error.clone()), Err(error)),
    };
    (ops::select_v2(s, mask, dy, &zeros), ops::select_v2(s, mask, &zeros, dy))
}

fn pow_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy, z) = (g.scope(), g.dy(0)?, conj(g.scope(), &g.output(0)?)?);
    let (x, y) = (conj(s, g.input(0))?, conj(s, g.input(1))?);
    let dx = ops::mul(s, ops::mul(s, &dy, &y), ops::pow(s, &x, ops::sub(s, &y, 1)))?;
    // The logarithm of what has none counts as zero.
    let mask = if x.dtype().is_complex() { ops::not_equal(s, &x, 0)? } else { ops::greater(s, &x, 0)? };
    let safe = ops::select(s, &mask, &x, ops::ones_like(s, &x));
    let log = ops::select(s, &mask, ops::log(s, safe), ops::zeros_like(s, &x));
    unbroadcast_both(g, dx, ops::mul(s, ops::mul(s, dy, z), log)?)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Shape, Tensor};

    #[test]
    fn shapes_broadcast() {
        infer("AddV2", "[2,1];[3]", "[2,3]");
        infer("AddV2", "?;[3]", "?");
        infer_err("AddV2", "[2];[3]", Code::InvalidArgument);
    }

    #[test]
    fn long_rows_and_columns() {
        let matrix: Vec<i32> = (0..40).collect();
        let a = Tensor::new(Shape::matrix(2, 20), matrix.clone()).unwrap();
        let column = Tensor::new(Shape::matrix(2, 1), vec![100, 200]).unwrap();
        let row = Tensor::vector((0..20).map(|i| i * 1000).collect::<Vec<i32>>());
        let sum = Node::new("AddV2").run([a.clone(), column.clone()]).unwrap();
        let want: Vec<i32> = matrix.iter().map(|x| x + if *x < 20 { 100 } else { 200 }).collect();
        assert_eq!(sum[0].flat::<i32>().unwrap(), want);
        let difference = Node::new("Sub").run([column, a.clone()]).unwrap();
        let want: Vec<i32> = matrix.iter().map(|x| if *x < 20 { 100 } else { 200 } - x).collect();
        assert_eq!(difference[0].flat::<i32>().unwrap(), want);
        let difference = Node::new("Sub").run([row, a]).unwrap();
        let want: Vec<i32> = matrix.iter().map(|x| x % 20 * 1000 - x).collect();
        assert_eq!(difference[0].flat::<i32>().unwrap(), want);
    }
}
