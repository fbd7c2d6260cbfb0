//! Comparisons, logic and bit operations with broadcasting.

use crate::linalg::elementwise::Loop;
use crate::numeric::Int;
use crate::support::cwise::{self, ARITHMETIC, loops, rows};
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Gradient, KernelRow, Op, ShapeCx, shapes};
use ferroflow_core::{DType, PartialShape, Result, Tensor, kernels};

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
    gradient: Gradient::Stop,
    inputs: &["x: T", "y: T"],
    outputs: &["z: bool"],
    attrs: &["T: type", "incompatible_shape_error: bool = true"],
    shape: equality_shape,
    commutative: true,
    ..Op::PURE
};
static EQUAL: Op = Op { name: "Equal", kernels: EQUALITY_ROWS, ..EQUALITY };
static NOT_EQUAL: Op = Op { name: "NotEqual", kernels: EQUALITY_ROWS, ..EQUALITY };
const EQUALITY_ROWS: &[KernelRow] = rows![
    equality: Bfloat16, Half, Float, Double, Uint8, Uint16, Uint32, Uint64, Int8, Int16, Int32, Int64, Complex64,
        Complex128, Bool, Qint8, Quint8, Qint16, Quint16, Qint32;
    string_equality: String
];

const ORDER: Op = Op {
    gradient: Gradient::Stop,
    inputs: &["x: T", "y: T"],
    outputs: &["z: bool"],
    attrs: &["T: realnumbertype"],
    shape: shapes::broadcast_binary,
    ..Op::PURE
};
static LESS: Op = Op {
    name: "Less",
    kernels: rows![less: Float, Double, Int32, Uint8, Int16, Int8, Int64, Bfloat16, Uint16, Half, Uint32, Uint64],
    ..ORDER
};
static LESS_EQUAL: Op = Op {
    name: "LessEqual",
    kernels: rows![less_equal: Float, Double, Int32, Uint8, Int16, Int8, Int64, Bfloat16, Uint16, Half, Uint32, Uint64],
    ..ORDER
};
static GREATER: Op = Op {
    name: "Greater",
    kernels: rows![greater: Float, Double, Int32, Uint8, Int16, Int8, Int64, Bfloat16, Uint16, Half, Uint32, Uint64],
    ..ORDER
};
static GREATER_EQUAL: Op = Op {
    name: "GreaterEqual",
    kernels: rows![greater_equal: Float, Double, Int32, Uint8, Int16, Int8, Int64, Bfloat16, Uint16, Half, Uint32, Uint64],
    ..ORDER
};

const LOGIC: Op = Op {
    gradient: Gradient::Stop,
    inputs: &["x: bool", "y: bool"],
    outputs: &["z: bool"],
    shape: shapes::broadcast_binary,
    commutative: true,
    ..Op::PURE
};
static LOGICAL_AND: Op = Op { name: "LogicalAnd", kernels: kernels![any logical_and], ..LOGIC };
static LOGICAL_OR: Op = Op { name: "LogicalOr", kernels: kernels![any logical_or], ..LOGIC };

const BITS: Op = Op {
    gradient: Gradient::Stop,
    inputs: &["x: T", "y: T"],
    outputs: &["z: T"],
    attrs: &["T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}"],
    shape: shapes::broadcast_binary,
    ..Op::PURE
};
static BITWISE_AND: Op = Op {
    name: "BitwiseAnd",
    kernels: rows![and: Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
    commutative: true,
    ..BITS
};
static BITWISE_OR: Op = Op {
    name: "BitwiseOr",
    kernels: rows![or: Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
    commutative: true,
    ..BITS
};
static BITWISE_XOR: Op = Op {
    name: "BitwiseXor",
    kernels: rows![xor: Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
    commutative: true,
    ..BITS
};
static LEFT_SHIFT: Op = Op {
    name: "LeftShift",
    kernels: rows![left_shift: Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
    ..BITS
};
static RIGHT_SHIFT: Op = Op {
    name: "RightShift",
    kernels: rows![right_shift: Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
    ..BITS
};

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

fn equality(init: &Init<'_>) -> Result<Kernel> {
    // Integers of either sign and quantized values are equal if their bits are.
    let function = match (init.input_types[0].size(), init.op) {
        _ if init.input_types[0].is_floating() || init.input_types[0].is_complex() => match init.op {
            "Equal" => loops![init; floats, complex; T => Loop::zip(|x: T, y: T| x == y)]?,
            _ => loops![init; floats, complex; T => Loop::zip(|x: T, y: T| x != y)]?,
        },
        (1, "Equal") if init.input_types[0] == DType::Bool => Loop::zip(|x: bool, y: bool| x == y),
        (1, _) if init.input_types[0] == DType::Bool => Loop::zip(|x: bool, y: bool| x != y),
        (1, "Equal") => Loop::zip(|x: u8, y: u8| x == y),
        (1, _) => Loop::zip(|x: u8, y: u8| x != y),
        (2, "Equal") => Loop::zip(|x: u16, y: u16| x == y),
        (2, _) => Loop::zip(|x: u16, y: u16| x != y),
        (4, "Equal") => Loop::zip(|x: u32, y: u32| x == y),
        (4, _) => Loop::zip(|x: u32, y: u32| x != y),
        (_, "Equal") => Loop::zip(|x: u64, y: u64| x == y),
        (_, _) => Loop::zip(|x: u64, y: u64| x != y),
    };
    tolerant(init, cwise::kernel(init, ARITHMETIC, function)?)
}

fn string_equality(init: &Init<'_>) -> Result<Kernel> {
    let equal = init.op == "Equal";
    tolerant(init, cwise::binary_owned(move |x: &Str, y: &Str| (x == y) == equal)?)
}

/// If asked to, answers shapes that cannot be broadcast with a scalar instead of an error.
fn tolerant(init: &Init<'_>, compare: Kernel) -> Result<Kernel> {
    if init.attr("incompatible_shape_error")? {
        return Ok(compare);
    }
    let differ = init.op == "NotEqual";
    let Kernel::Sync(run) = compare else { return Ok(compare) };
    Kernel::sync(move |cx| {
        if !cwise::fit(cx.input(0)?, cx.input(1)?) {
            return Ok(Tensor::scalar(differ).into());
        }
        run(cx)
    })
}

macro_rules! order_kernels {
    ($($kernel:ident: $operator:tt;)+) => {$(
        fn $kernel(init: &Init<'_>) -> Result<Kernel> {
            let function = loops![init; floats, signed, unsigned; T => Loop::zip(|x: T, y: T| x $operator y)]?;
            cwise::kernel(init, ARITHMETIC, function)
        }
    )+};
}
order_kernels! {
    less: <;
    less_equal: <=;
    greater: >;
    greater_equal: >=;
}

fn logical_and(init: &Init<'_>) -> Result<Kernel> {
    cwise::kernel(init, ARITHMETIC, Loop::zip(|x: bool, y: bool| x & y))
}

fn logical_or(init: &Init<'_>) -> Result<Kernel> {
    cwise::kernel(init, ARITHMETIC, Loop::zip(|x: bool, y: bool| x | y))
}

macro_rules! bit_kernels {
    ($($kernel:ident: [$($kind:ident),+], $T:ident => $function:expr;)+) => {$(
        fn $kernel(init: &Init<'_>) -> Result<Kernel> {
            cwise::kernel(init, ARITHMETIC, loops![init; $($kind),+; $T => Loop::zip($function)]?)
        }
    )+};
}
bit_kernels! {
    and: [bits], T => <T as Int>::and;
    or: [bits], T => <T as Int>::or;
    xor: [bits], T => <T as Int>::xor;
    left_shift: [signed, unsigned], T => |x: T, y: T| x.shift_left(shift(y));
    right_shift: [signed, unsigned], T => |x: T, y: T| x.shift_right(shift(y));
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
