//! Stateful random numbers: each kernel owns a stream and every execution takes the next part of it.

use crate::numeric::philox::{KernelStream, Philox};
use crate::support::distribution::{
    BoundedSample, Sample, bounds_inputs, fill_int, fill_normal, fill_truncated, fill_uniform,
    infer_from_shape_input, shape_input,
};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx};
use ferroflow_core::{Element, Result, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] =
    &[&RANDOM_UNIFORM, &RANDOM_STANDARD_NORMAL, &TRUNCATED_NORMAL, &RANDOM_UNIFORM_INT];

static RANDOM_UNIFORM: Op = Op {
    name: "RandomUniform",
    gradient: Gradient::Stop,
    inputs: &["shape: T"],
    outputs: &["output: dtype"],
    attrs: &[
        "seed: int = 0",
        "seed2: int = 0",
        "dtype: {half, bfloat16, float, double}",
        "T: {int32, int64}",
    ],
    shape: infer_from_shape_input,
    kernels: kernels!["dtype" => uniform_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static RANDOM_STANDARD_NORMAL: Op = Op {
    name: "RandomStandardNormal",
    gradient: Gradient::Stop,
    inputs: &["shape: T"],
    outputs: &["output: dtype"],
    attrs: &[
        "seed: int = 0",
        "seed2: int = 0",
        "dtype: {half, bfloat16, float, double}",
        "T: {int32, int64}",
    ],
    shape: infer_from_shape_input,
    kernels: kernels!["dtype" => normal_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static TRUNCATED_NORMAL: Op = Op {
    name: "TruncatedNormal",
    gradient: Gradient::Stop,
    inputs: &["shape: T"],
    outputs: &["output: dtype"],
    attrs: &[
        "seed: int = 0",
        "seed2: int = 0",
        "dtype: {half, bfloat16, float, double}",
        "T: {int32, int64}",
    ],
    shape: infer_from_shape_input,
    kernels: kernels!["dtype" => truncated_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static RANDOM_UNIFORM_INT: Op = Op {
    name: "RandomUniformInt",
    inputs: &["shape: T", "minval: Tout", "maxval: Tout"],
    outputs: &["output: Tout"],
    attrs: &["seed: int = 0", "seed2: int = 0", "Tout: {int32, int64}", "T: {int32, int64}"],
    shape: int_shape,
    kernels: kernels!["Tout" => uniform_int_kernel: i32, i64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

fn int_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(1, 0)?;
    s.rank(2, 0)?;
    infer_from_shape_input(s)
}

fn uniform_kernel<T: Sample>(init: &Init<'_>) -> Result<Kernel> {
    filled::<T>(init, fill_uniform)
}

fn normal_kernel<T: Sample>(init: &Init<'_>) -> Result<Kernel> {
    filled::<T>(init, fill_normal)
}

fn truncated_kernel<T: Sample>(init: &Init<'_>) -> Result<Kernel> {
    filled::<T>(init, fill_truncated)
}

fn filled<T: Element>(init: &Init<'_>, fill: fn(Threads<'_>, Philox, &mut [T])) -> Result<Kernel> {
    let stream = KernelStream::new(init)?;
    Kernel::sync(move |cx| {
        let shape = shape_input(cx, 0)?;
        let mut out = cx.alloc::<T>(shape)?;
        let philox = stream.reserve_outputs(out.elements());
        fill(cx.threads(), philox, out.flat_mut()?);
        Ok(out.into())
    })
}

fn uniform_int_kernel<T: BoundedSample>(init: &Init<'_>) -> Result<Kernel> {
    let stream = KernelStream::new(init)?;
    Kernel::sync(move |cx| {
        let (low, high) = bounds_inputs::<T>(cx, 1)?;
        let shape = shape_input(cx, 0)?;
        let mut out = cx.alloc::<T>(shape)?;
        let philox = stream.reserve_outputs(out.elements());
        fill_int(cx.threads(), philox, out.flat_mut()?, low, high);
        Ok(out.into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer_err};
    use ferroflow_core::{Code, DType, Tensor};

    #[test]
    fn shapes_follow_the_input() {
        let shape = Tensor::vector(vec![2i32, 3]);
        Node::new("RandomUniform").constant(0, shape).infer("[2]", "[2,3]");
        Node::new("RandomUniform").infer("[2]", "[?,?]");
        infer_err("RandomUniformInt", "[1];[1];[]", Code::InvalidArgument);
    }

    #[test]
    fn kernels_without_seeds_differ() {
        let draw = || {
            let node = Node::new("RandomUniform").attr("dtype", DType::Float);
            node.run([Tensor::vector(vec![8i32])]).unwrap()[0].flat::<f32>().unwrap().to_vec()
        };
        assert_ne!(draw(), draw());
    }
}
