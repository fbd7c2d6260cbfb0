//! The shape arithmetic around broadcasting.

use crate::support::index::{Ints, input_ints};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Tensor, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&BROADCAST_ARGS, &BROADCAST_GRADIENT_ARGS];

static BROADCAST_ARGS: Op = Op {
    name: "BroadcastArgs",
    inputs: &["s0: T", "s1: T"],
    outputs: &["r0: T"],
    attrs: &["T: {int32, int64} = DT_INT32"],
    shape: broadcast_args_shape,
    kernels: kernels![any broadcast_args],
    cheap: true,
    ..Op::PURE
};
static BROADCAST_GRADIENT_ARGS: Op = Op {
    name: "BroadcastGradientArgs",
    gradient: Gradient::Stop,
    inputs: &["s0: T", "s1: T"],
    outputs: &["r0: T", "r1: T"],
    attrs: &["T: {int32, int64} = DT_INT32"],
    shape: gradient_args_shape,
    kernels: kernels![any broadcast_gradient_args],
    cheap: true,
    ..Op::PURE
};

fn broadcast_args_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (x, y) = (s.rank(0, 1)?, s.rank(1, 1)?);
    let (x, y) = (x.dims().map_or(UNKNOWN_DIM, |dims| dims[0]), y.dims().map_or(UNKNOWN_DIM, |dims| dims[0]));
    s.output(0, [if x < 0 || y < 0 { UNKNOWN_DIM } else { x.max(y) }])
}

fn gradient_args_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 1)?;
    s.rank(1, 1)?;
    s.output(0, [UNKNOWN_DIM])?;
    s.output(1, [UNKNOWN_DIM])
}

fn broadcast_args(init: &Init<'_>) -> Result<Kernel> {
    let dtype = init.output_types[0];
    Kernel::sync(move |cx| {
        let (x, y) = (dims(cx, 0)?, dims(cx, 1)?);
        Ok(vector(dtype, joined(&x, &y)?.into_iter())?.into())
    })
}

fn broadcast_gradient_args(init: &Init<'_>) -> Result<Kernel> {
    let dtype = init.output_types[0];
    Kernel::sync(move |cx| {
        let (x, y) = (dims(cx, 0)?, dims(cx, 1)?);
        if x == y {
            return Ok([vector(dtype, [].into_iter())?, vector(dtype, [].into_iter())?].into());
        }
        let rank = joined(&x, &y)?.len();
        // The gradient of an operand is summed along every dimension in which the operand has one element, including
        // those in which both have one.
        let single = |dims: &[i64]| {
            let missing = rank - dims.len();
            let repeated = |i: &i64| (*i as usize) < missing || dims[*i as usize - missing] == 1;
            vector(dtype, (0..rank as i64).filter(repeated))
        };
        Ok([single(&x)?, single(&y)?].into())
    })
}

/// The dimensions that two shapes broadcast to. They are numbers only: nothing is that large, and negative ones, which
/// stand for unknown dimensions, meet like any other.
fn joined(x: &[i64], y: &[i64]) -> Result<Ints> {
    let (long, short) = if x.len() < y.len() { (y, x) } else { (x, y) };
    let mut dims = Ints::from_slice(long);
    for (dim, other) in dims.iter_mut().rev().zip(short.iter().rev()) {
        ensure!(
            *dim == *other || *dim == 1 || *other == 1,
            InvalidArgument,
            "Incompatible shapes: {x:?} vs. {y:?}"
        );
        if *dim == 1 {
            *dim = *other;
        }
    }
    Ok(dims)
}

fn dims(cx: &KernelCx<'_>, input: usize) -> Result<Ints> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() == 1, InvalidArgument, "In[{input}] must be a vector.{}", tensor.shape());
    input_ints(cx, input)
}

fn vector(dtype: DType, values: impl Iterator<Item = i64>) -> Result<Tensor> {
    Ok(match dtype {
        DType::Int32 => Tensor::vector(values.map(|value| value as i32).collect()),
        _ => Tensor::vector(values.collect()),
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{infer, infer_err};
    use ferroflow_core::Code;

    #[test]
    fn results_are_vectors() {
        infer("BroadcastArgs", "[2];[3]", "[3]");
        infer("BroadcastGradientArgs", "[2];?", "[?];[?]");
        infer_err("BroadcastArgs", "[];[3]", Code::InvalidArgument);
    }
}
