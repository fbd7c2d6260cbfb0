//! Element-wise arithmetic of two tensors with broadcasting, and sums of many tensors.

use crate::cwise::{self, ARITHMETIC, FUNCTION, POLYNOMIAL};
use crate::linalg::functions::Functions;
use crate::numeric::{Float, Int, Num, Real};
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Accuracy, Op, shapes};
use ferroflow_core::{C64, C128, Result, bf16, ensure, f16, kernels};
use num_traits::Float as _;

pub(crate) const OPS: &[&Op] = &[
    &ADD, &ADD_V2, &SUB, &MUL, &MUL_NO_NAN, &DIV, &REAL_DIV, &DIV_NO_NAN, &TRUNCATE_DIV, &FLOOR_DIV, &MOD,
    &TRUNCATE_MOD, &FLOOR_MOD, &MAXIMUM, &MINIMUM, &SQUARED_DIFFERENCE, &POW, &ATAN2, &XDIVY, &XLOGY, &XLOG1PY,
    &NEXT_AFTER, &APPROXIMATE_EQUAL,
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
    attrs: &[
        "T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128, string}",
    ],
    kernels: kernels![add: bf16, f16, f32, f64, u8, i8, i16, i32, i64, C64, C128; join: Str],
    ..BINARY
};
static ADD_V2: Op = Op {
    name: "AddV2",
    attrs: &[
        "T: {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, int64, complex64, \
         complex128}",
    ],
    kernels: kernels![add: bf16, f16, f32, f64, u8, u16, u32, u64, i8, i16, i32, i64, C64, C128],
    commutative: true,
    aggregate: true,
    ..BINARY
};
static SUB: Op = Op {
    name: "Sub",
    attrs: &[
        "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, complex64, complex128, uint32, \
         uint64}",
    ],
    kernels: kernels![sub: bf16, f16, f32, f64, u8, i8, u16, i16, i32, i64, C64, C128, u32, u64],
    ..BINARY
};
/// What `Mul` and the divisions take.
const NUMBERS: Op = Op {
    attrs: &[
        "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, \
         complex128}",
    ],
    ..BINARY
};
static MUL: Op = Op {
    name: "Mul",
    kernels: kernels![mul: bf16, f16, f32, f64, u8, i8, u16, i16, i32, u32, u64, i64, C64, C128],
    commutative: true,
    ..NUMBERS
};
static DIV: Op = Op {
    name: "Div",
    kernels: kernels![div: bf16, f16, f32, f64, C64, C128; int_div: u8, i8, u16, i16, i32, u32, u64, i64],
    ..NUMBERS
};
static REAL_DIV: Op = Op { name: "RealDiv", kernels: kernels![div: bf16, f16, f32, f64, C64, C128], ..NUMBERS };
static TRUNCATE_DIV: Op = Op {
    name: "TruncateDiv",
    kernels: kernels![truncate_div: bf16, f16, f32, f64; int_truncate_div: u8, i8, u16, i16, i32, u32, u64, i64],
    ..NUMBERS
};
static FLOOR_DIV: Op = Op {
    name: "FloorDiv",
    kernels: kernels![floor_div: bf16, f16, f32, f64; int_floor_div: u8, i8, u16, i16, i32, u32, u64, i64],
    ..NUMBERS
};
static MOD: Op = Op {
    name: "Mod",
    attrs: &["T: {int32, int64, half, half, bfloat16, float, double}"],
    kernels: kernels![int_rem: i32, i64; rem: f32, f64],
    ..BINARY
};
static TRUNCATE_MOD: Op = Op {
    name: "TruncateMod",
    attrs: &["T: {int32, int64, bfloat16, half, float, double}"],
    kernels: kernels![int_truncate_mod: i32, i64; rem: f32, f64],
    ..BINARY
};
static FLOOR_MOD: Op = Op {
    name: "FloorMod",
    attrs: &["T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bfloat16, half, float, double}"],
    kernels: kernels![int_floor_mod: i8, i16, i32, i64, u8, u16, u32, u64; floor_mod: bf16, f16, f32, f64],
    ..BINARY
};

/// What the functions with an exception at zero take.
const NO_NAN: Op = Op { attrs: &["T: {half, bfloat16, float, double, complex64, complex128}"], ..BINARY };
static MUL_NO_NAN: Op = Op {
    name: "MulNoNan",
    attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
    kernels: kernels![mul_no_nan: bf16, f16, f32, f64, C64, C128],
    ..BINARY
};
static DIV_NO_NAN: Op = Op {
    name: "DivNoNan",
    attrs: &["T: {half, float, bfloat16, double, complex64, complex128}"],
    kernels: kernels![div_no_nan: f16, f32, bf16, f64, C64, C128],
    ..BINARY
};
static XDIVY: Op = Op { name: "Xdivy", kernels: kernels![xdivy: f16, bf16, f32, f64, C64, C128], ..NO_NAN };
static XLOGY: Op = Op { name: "Xlogy", kernels: kernels![xlogy: f16, bf16, f32, f64, C64, C128], ..NO_NAN };
static XLOG1PY: Op = Op { name: "Xlog1py", kernels: kernels![xlog1py: f16, bf16, f32, f64, C64, C128], ..NO_NAN };

/// What the extremes take.
const ORDERED: Op = Op {
    attrs: &["T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}"],
    accuracy: Accuracy::Exact,
    ..BINARY
};
static MAXIMUM: Op = Op {
    name: "Maximum",
    kernels: kernels![maximum: bf16, f16, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64],
    ..ORDERED
};
static MINIMUM: Op = Op {
    name: "Minimum",
    kernels: kernels![minimum: bf16, f16, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64],
    ..ORDERED
};

static SQUARED_DIFFERENCE: Op = Op {
    name: "SquaredDifference",
    attrs: &["T: {bfloat16, half, float, double, int32, int64, complex64, complex128}"],
    kernels: kernels![squared_difference: bf16, f16, f32, f64, i32, i64, C64, C128],
    commutative: true,
    ..BINARY
};
static POW: Op = Op {
    name: "Pow",
    attrs: &["T: {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}"],
    kernels: kernels![pow: bf16, f32, f16, f64, C64, C128; int_pow: i8, i16, i32, i64],
    ..BINARY
};
static ATAN2: Op = Op {
    name: "Atan2",
    inputs: &["y: T", "x: T"],
    attrs: &["T: {bfloat16, half, float, double}"],
    kernels: kernels![atan2: bf16, f16, f32, f64],
    ..BINARY
};
static NEXT_AFTER: Op = Op {
    name: "NextAfter",
    inputs: &["x1: T", "x2: T"],
    outputs: &["output: T"],
    attrs: &["T: {double, float} = DT_FLOAT"],
    kernels: kernels![next_after: f64, f32],
    accuracy: Accuracy::Exact,
    ..BINARY
};
static APPROXIMATE_EQUAL: Op = Op {
    name: "ApproximateEqual",
    outputs: &["z: bool"],
    attrs: &["T: numbertype", "tolerance: float = 0.00001"],
    shape: shapes::same,
    kernels: kernels![approximate_equal: f32, f64],
    commutative: true,
    ..BINARY
};

/// Kernels that compute one expression of two elements.
macro_rules! binary_kernels {
    ($($kernel:ident: $bound:path, $cost:expr, $function:expr;)+) => {$(
        fn $kernel<T: $bound>(_: &Init<'_>) -> Result<Kernel> {
            cwise::binary::<T, _>($cost, $function)
        }
    )+};
}
binary_kernels! {
    add: Num, ARITHMETIC, T::add;
    sub: Num, ARITHMETIC, T::sub;
    mul: Num, ARITHMETIC, T::mul;
    div: Num, ARITHMETIC, T::div;
    rem: Float, FUNCTION, float_rem::<T>;
    truncate_div: Float, ARITHMETIC, |x, y| T::from_math(x.div(y).to_math().trunc());
    floor_div: Float, ARITHMETIC, |x, y| T::from_math(x.div(y).to_math().floor());
    floor_mod: Float, FUNCTION, float_floor_mod::<T>;
    mul_no_nan: Num, ARITHMETIC, |x, y| if y.is_zero() { T::ZERO } else { x.mul(y) };
    div_no_nan: Num, ARITHMETIC, |x, y| if y.is_zero() { T::ZERO } else { x.div(y) };
    xdivy: Num, ARITHMETIC, |x, y| if x.is_zero() { T::ZERO } else { x.div(y) };
    xlogy: Functions, POLYNOMIAL, |x, y| if x.is_zero() { T::ZERO } else { x.mul(y.ln()) };
    xlog1py: Functions, POLYNOMIAL, |x, y| if x.is_zero() { T::ZERO } else { x.mul(y.ln_1p()) };
    maximum: Real, ARITHMETIC, |x, y| if x < y || y.is_nan() { y } else { x };
    minimum: Real, ARITHMETIC, |x, y| if x > y || y.is_nan() { y } else { x };
    squared_difference: Num, ARITHMETIC, |x, y| { let d = x.sub(y); d.mul(d.conj()) };
    pow: Functions, FUNCTION, T::pow;
    atan2: Float, FUNCTION, |y, x| T::from_math(y.to_math().atan2(x.to_math()));
    next_after: Float, ARITHMETIC, next_toward::<T>;
}

/// Kernels of integer division, which refuse zero divisors.
macro_rules! division_kernels {
    ($($kernel:ident: $code:expr, $function:expr;)+) => {$(
        fn $kernel<T: Int>(_: &Init<'_>) -> Result<Kernel> {
            cwise::binary_checked::<T, _, _>(FUNCTION, |y| !y.is_zero(), $code, $function)
        }
    )+};
}
const BY_ZERO: cwise::Refusal = (ferroflow_core::Code::InvalidArgument, "Integer division by zero");
// Stock does not know these two among the ops that divide.
const UNEXPECTED: cwise::Refusal = (
    ferroflow_core::Code::Internal,
    "Unexpected error in binary operator (only integer div and mod should have errors)",
);
division_kernels! {
    int_div: BY_ZERO, T::div;
    int_truncate_div: UNEXPECTED, T::div;
    int_floor_div: BY_ZERO, int_floor_quotient::<T>;
    int_rem: BY_ZERO, T::rem;
    int_truncate_mod: UNEXPECTED, T::rem;
    int_floor_mod: BY_ZERO, int_floor_remainder::<T>;
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

fn float_rem<T: Float>(x: T, y: T) -> T {
    T::from_math(x.to_math() % y.to_math())
}

fn float_floor_mod<T: Float>(x: T, y: T) -> T {
    let remainder = float_rem(x, y);
    if !remainder.is_zero() && (remainder < T::ZERO) != (y < T::ZERO) { remainder.add(y) } else { remainder }
}

fn int_pow<T: Int>(_: &Init<'_>) -> Result<Kernel> {
    const NEGATIVE: cwise::Refusal =
        (ferroflow_core::Code::InvalidArgument, "Integers to negative integer powers are not allowed");
    cwise::binary_checked::<T, _, _>(
        FUNCTION,
        |y| y >= T::ZERO,
        NEGATIVE,
        |x, y| {
            let (mut base, mut exponent, mut result) = (x, y.to_i64(), T::ONE);
            while exponent > 0 {
                if exponent & 1 == 1 {
                    result = result.mul(base);
                }
                base = base.mul(base);
                exponent >>= 1;
            }
            result
        },
    )
}

fn next_toward<T: Float>(x: T, y: T) -> T {
    // Only f32 and f64 have this kernel; the neighbor of a wider float is found by its own bits.
    if T::DTYPE == ferroflow_core::DType::Float {
        return T::from_f64(libm::nextafterf(x.to_f64() as f32, y.to_f64() as f32) as f64);
    }
    T::from_f64(libm::nextafter(x.to_f64(), y.to_f64()))
}

fn approximate_equal<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    let tolerance = T::from_f64(init.attr::<f32>("tolerance")? as f64);
    let compare = cwise::compare::<T, bool, _>(ARITHMETIC, move |x, y| x.sub(y).abs() < tolerance)?;
    let Kernel::Sync(run) = compare else { return Ok(compare) };
    Kernel::sync(move |cx| {
        let (x, y) = (cx.input(0)?.shape(), cx.input(1)?.shape());
        ensure!(
            x == y,
            InvalidArgument,
            "x and y must be of the same shape. x shape: {x}. y shape: {y}"
        );
        run(cx)
    })
}

fn join<T: ferroflow_core::Element>(_: &Init<'_>) -> Result<Kernel> {
    cwise::binary_owned(|x: &Str, y: &Str| Str::from([&x[..], &y[..]].concat()))
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
