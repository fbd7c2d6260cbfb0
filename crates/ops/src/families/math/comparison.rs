//! Comparisons, logic and bit operations with broadcasting.

use crate::cwise::{self, ARITHMETIC};
use crate::numeric::{Int, Real};
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{KernelRow, Op, ShapeCx, shapes};
use ferroflow_core::{C64, C128, DType, Element, PartialShape, Result, Tensor, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &EQUAL,
    &NOT_EQUAL,
    &LESS,
    &LESS_EQUAL,
    &GREATER,
    &GREATER_EQUAL,
    &LOGICAL_AND,
    &LOGICAL_OR,
    &BITWISE_AND,
    &BITWISE_OR,
    &BITWISE_XOR,
    &LEFT_SHIFT,
    &RIGHT_SHIFT,
];

const EQUALITY: Op = Op {
    inputs: &["x: T", "y: T"],
    outputs: &["z: bool"],
    attrs: &["T: type", "incompatible_shape_error: bool = true"],
    shape: equality_shape,
    commutative: true,
    ..Op::PURE
};
static EQUAL: Op = Op { name: "Equal", kernels: &EQUALITY_ROWS, ..EQUALITY };
static NOT_EQUAL: Op = Op { name: "NotEqual", kernels: &EQUALITY_ROWS, ..EQUALITY };

/// A kernel for every type that is compared by its value, and for the quantized types by their bits.
static EQUALITY_ROWS: [KernelRow; 21] = [
    row::<bf16>(),
    row::<f16>(),
    row::<f32>(),
    row::<f64>(),
    row::<u8>(),
    row::<u16>(),
    row::<u32>(),
    row::<u64>(),
    row::<i8>(),
    row::<i16>(),
    row::<i32>(),
    row::<i64>(),
    row::<C64>(),
    row::<C128>(),
    row::<bool>(),
    KernelRow { attr: "T", dtype: DType::String, make: string_equality },
    KernelRow { attr: "T", dtype: DType::Qint8, make: quantized_equality::<i8> },
    KernelRow { attr: "T", dtype: DType::Quint8, make: quantized_equality::<u8> },
    KernelRow { attr: "T", dtype: DType::Qint16, make: quantized_equality::<i16> },
    KernelRow { attr: "T", dtype: DType::Quint16, make: quantized_equality::<u16> },
    KernelRow { attr: "T", dtype: DType::Qint32, make: quantized_equality::<i32> },
];

const fn row<T: Element + Copy>() -> KernelRow {
    KernelRow { attr: "T", dtype: T::DTYPE, make: equality::<T> }
}

const ORDER: Op = Op {
    inputs: &["x: T", "y: T"],
    outputs: &["z: bool"],
    attrs: &["T: realnumbertype"],
    shape: shapes::broadcast_binary,
    ..Op::PURE
};
static LESS: Op = Op {
    name: "Less",
    kernels: kernels![less: f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64],
    ..ORDER
};
static LESS_EQUAL: Op = Op {
    name: "LessEqual",
    kernels: kernels![less_equal: f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64],
    ..ORDER
};
static GREATER: Op = Op {
    name: "Greater",
    kernels: kernels![greater: f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64],
    ..ORDER
};
static GREATER_EQUAL: Op = Op {
    name: "GreaterEqual",
    kernels: kernels![greater_equal: f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64],
    ..ORDER
};

const LOGIC: Op = Op {
    inputs: &["x: bool", "y: bool"],
    outputs: &["z: bool"],
    shape: shapes::broadcast_binary,
    commutative: true,
    ..Op::PURE
};
static LOGICAL_AND: Op = Op { name: "LogicalAnd", kernels: kernels![any logical_and], ..LOGIC };
static LOGICAL_OR: Op = Op { name: "LogicalOr", kernels: kernels![any logical_or], ..LOGIC };

const BITS: Op = Op {
    inputs: &["x: T", "y: T"],
    outputs: &["z: T"],
    attrs: &["T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}"],
    shape: shapes::broadcast_binary,
    ..Op::PURE
};
static BITWISE_AND: Op = Op {
    name: "BitwiseAnd",
    kernels: kernels![and: i8, i16, i32, i64, u8, u16, u32, u64],
    commutative: true,
    ..BITS
};
static BITWISE_OR: Op = Op {
    name: "BitwiseOr",
    kernels: kernels![or: i8, i16, i32, i64, u8, u16, u32, u64],
    commutative: true,
    ..BITS
};
static BITWISE_XOR: Op = Op {
    name: "BitwiseXor",
    kernels: kernels![xor: i8, i16, i32, i64, u8, u16, u32, u64],
    commutative: true,
    ..BITS
};
static LEFT_SHIFT: Op =
    Op { name: "LeftShift", kernels: kernels![left_shift: i8, i16, i32, i64, u8, u16, u32, u64], ..BITS };
static RIGHT_SHIFT: Op =
    Op { name: "RightShift", kernels: kernels![right_shift: i8, i16, i32, i64, u8, u16, u32, u64], ..BITS };

fn equality_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    match shapes::broadcast(&s.input(0), &s.input(1)) {
        // Shapes that do not fit may only turn out to at run time, and then the answer is a scalar.
        Ok(_) if !s.attr::<bool>("incompatible_shape_error")? && !both_known(s) => {
            s.set(0, PartialShape::unknown())
        }
        Ok(shape) => s.set(0, shape),
        Err(_) if !s.attr::<bool>("incompatible_shape_error")? => s.set(0, PartialShape::scalar()),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn both_known(s: &ShapeCx<'_>) -> bool {
    s.input(0).to_shape().is_some() && s.input(1).to_shape().is_some()
}

fn equality<T: Element + Copy>(init: &Init<'_>) -> Result<Kernel> {
    let compare = if init.op == "Equal" {
        cwise::compare(ARITHMETIC, |x: T, y: T| x == y)?
    } else {
        cwise::compare(ARITHMETIC, |x: T, y: T| x != y)?
    };
    tolerant(init, compare)
}

fn string_equality(init: &Init<'_>) -> Result<Kernel> {
    let equal = init.op == "Equal";
    tolerant(init, cwise::binary_owned(move |x: &Str, y: &Str| (x == y) == equal)?)
}

fn quantized_equality<T: Element + Copy>(init: &Init<'_>) -> Result<Kernel> {
    let Kernel::Sync(run) = equality::<T>(init)? else { return equality::<T>(init) };
    Kernel::sync(move |cx| {
        // The bits of quantized values are those of the plain type of the same width.
        for input in 0..2 {
            let plain = cx.take(input)?.bitcast(T::DTYPE)?;
            cx.put(input, plain);
        }
        run(cx)
    })
}

/// If asked to, answers shapes that cannot be broadcast with a scalar instead of an error.
fn tolerant(init: &Init<'_>, compare: Kernel) -> Result<Kernel> {
    if init.attr("incompatible_shape_error")? {
        return Ok(compare);
    }
    let differ = init.op == "NotEqual";
    let Kernel::Sync(run) = compare else { return Ok(compare) };
    Kernel::sync(move |cx| {
        if cwise::plan(cx.input(0)?, cx.input(1)?).is_err() {
            return Ok(Tensor::scalar(differ).into());
        }
        run(cx)
    })
}

macro_rules! order_kernels {
    ($($kernel:ident: $operator:tt;)+) => {$(
        fn $kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
            cwise::compare(ARITHMETIC, |x: T, y: T| x $operator y)
        }
    )+};
}
order_kernels! {
    less: <;
    less_equal: <=;
    greater: >;
    greater_equal: >=;
}

fn logical_and(_: &Init<'_>) -> Result<Kernel> {
    cwise::compare(ARITHMETIC, |x: bool, y: bool| x & y)
}

fn logical_or(_: &Init<'_>) -> Result<Kernel> {
    cwise::compare(ARITHMETIC, |x: bool, y: bool| x | y)
}

macro_rules! bit_kernels {
    ($($kernel:ident: $function:expr;)+) => {$(
        fn $kernel<T: Int>(_: &Init<'_>) -> Result<Kernel> {
            cwise::binary::<T, _>(ARITHMETIC, $function)
        }
    )+};
}
bit_kernels! {
    and: T::and;
    or: T::or;
    xor: T::xor;
    left_shift: |x, y| x.shift_left(shift(y));
    right_shift: |x, y| x.shift_right(shift(y));
}

/// The amount of a shift, clamped to what the width allows.
#[inline(always)]
fn shift<T: Int>(amount: T) -> u32 {
    let most = T::BITS - 1;
    if amount < T::ZERO {
        0
    } else if amount > T::from_i64(most as i64) {
        most
    } else {
        amount.to_i64() as u32
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Tensor};

    #[test]
    fn shapes_that_do_not_fit_compare_as_a_scalar_if_asked_to() {
        infer("Equal", "[2,1];[3]", "[2,3]");
        infer_err("Equal", "[2];[3]", Code::InvalidArgument);
        Node::new("Equal").attr("incompatible_shape_error", false).infer("[2];[3]", "[]");
        Node::new("Equal").attr("incompatible_shape_error", false).infer("[?];[3]", "?");
        let inputs = [Tensor::vector(vec![1i32, 2]), Tensor::vector(vec![1i32, 2, 3])];
        let out = Node::new("NotEqual").attr("incompatible_shape_error", false).run(inputs).unwrap();
        assert_eq!(out[0].flat::<bool>().unwrap(), [true]);
    }
}
