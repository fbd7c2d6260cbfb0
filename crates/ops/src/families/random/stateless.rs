//! Stateless random numbers: the first version takes a pair of seeds, the second a key and a counter.

use crate::numeric::philox::{ALGORITHM_PHILOX, Philox, from_key_inputs, from_seed_input};
use crate::support::distribution::{
    BoundedSample, IntSample, Sample, bounds_inputs, fill_full_int, fill_int, fill_normal, fill_truncated,
    fill_uniform, infer_from_shape_input, infer_seed, shape_input,
};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx};
use ferroflow_core::{Element, Result, Tensor, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &STATELESS_RANDOM_UNIFORM,
    &STATELESS_RANDOM_NORMAL,
    &STATELESS_TRUNCATED_NORMAL,
    &STATELESS_RANDOM_UNIFORM_INT,
    &STATELESS_RANDOM_UNIFORM_FULL_INT,
    &STATELESS_RANDOM_UNIFORM_V2,
    &STATELESS_RANDOM_NORMAL_V2,
    &STATELESS_TRUNCATED_NORMAL_V2,
    &STATELESS_RANDOM_UNIFORM_INT_V2,
    &STATELESS_RANDOM_UNIFORM_FULL_INT_V2,
    &STATELESS_RANDOM_GET_KEY_COUNTER,
    &STATELESS_RANDOM_GET_KEY_COUNTER_ALG,
    &STATELESS_RANDOM_GET_ALG,
];

/// The declaration shared by ops that take a seed.
const SEEDED: Op = Op {
    gradient: Gradient::Stop,
    inputs: &["shape: T", "seed: Tseed"],
    outputs: &["output: dtype"],
    attrs: &[
        "dtype: {half, bfloat16, float, double} = DT_FLOAT",
        "T: {int32, int64} = DT_INT32",
        "Tseed: {int32, int64} = DT_INT64",
    ],
    shape: seeded_shape,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// The declaration shared by ops that take a key and a counter.
const KEYED: Op = Op {
    gradient: Gradient::Stop,
    inputs: &["shape: Tshape", "key: uint64", "counter: uint64", "alg: int32"],
    outputs: &["output: dtype"],
    attrs: &["dtype: {half, bfloat16, float, double} = DT_FLOAT", "Tshape: {int32, int64} = DT_INT32"],
    shape: keyed_shape,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static STATELESS_RANDOM_UNIFORM: Op = Op {
    name: "StatelessRandomUniform",
    kernels: kernels!["dtype" => uniform_kernel: f16, bf16, f32, f64],
    ..SEEDED
};

static STATELESS_RANDOM_NORMAL: Op = Op {
    name: "StatelessRandomNormal",
    kernels: kernels!["dtype" => normal_kernel: f16, bf16, f32, f64],
    ..SEEDED
};

static STATELESS_TRUNCATED_NORMAL: Op = Op {
    name: "StatelessTruncatedNormal",
    kernels: kernels!["dtype" => truncated_kernel: f16, bf16, f32, f64],
    ..SEEDED
};

static STATELESS_RANDOM_UNIFORM_INT: Op = Op {
    name: "StatelessRandomUniformInt",
    gradient: Gradient::Stop,
    inputs: &["shape: T", "seed: Tseed", "minval: dtype", "maxval: dtype"],
    outputs: &["output: dtype"],
    attrs: &["dtype: {int32, int64}", "T: {int32, int64}", "Tseed: {int32, int64} = DT_INT64"],
    shape: seeded_int_shape,
    kernels: kernels!["dtype" => int_kernel: i32, i64],
    ..Op::PURE
};

static STATELESS_RANDOM_UNIFORM_FULL_INT: Op = Op {
    name: "StatelessRandomUniformFullInt",
    gradient: Gradient::Stop,
    inputs: &["shape: T", "seed: Tseed"],
    outputs: &["output: dtype"],
    attrs: &[
        "dtype: {int32, int64, uint32, uint64} = DT_UINT64",
        "T: {int32, int64} = DT_INT32",
        "Tseed: {int32, int64, uint32, uint64} = DT_INT64",
    ],
    shape: seeded_shape,
    kernels: kernels!["dtype" => full_int_kernel: i32, i64, u32, u64],
    ..Op::PURE
};

static STATELESS_RANDOM_UNIFORM_V2: Op = Op {
    name: "StatelessRandomUniformV2",
    kernels: kernels!["dtype" => uniform_kernel: f16, bf16, f32, f64],
    ..KEYED
};

static STATELESS_RANDOM_NORMAL_V2: Op = Op {
    name: "StatelessRandomNormalV2",
    kernels: kernels!["dtype" => normal_kernel: f16, bf16, f32, f64],
    ..KEYED
};

static STATELESS_TRUNCATED_NORMAL_V2: Op = Op {
    name: "StatelessTruncatedNormalV2",
    kernels: kernels!["dtype" => truncated_kernel: f16, bf16, f32, f64],
    ..KEYED
};

static STATELESS_RANDOM_UNIFORM_INT_V2: Op = Op {
    name: "StatelessRandomUniformIntV2",
    gradient: Gradient::Stop,
    inputs: &[
        "shape: Tshape",
        "key: uint64",
        "counter: uint64",
        "alg: int32",
        "minval: dtype",
        "maxval: dtype",
    ],
    outputs: &["output: dtype"],
    attrs: &["dtype: {int32, int64, uint32, uint64}", "Tshape: {int32, int64} = DT_INT32"],
    shape: keyed_int_shape,
    kernels: kernels!["dtype" => int_kernel: i32, i64],
    ..Op::PURE
};

static STATELESS_RANDOM_UNIFORM_FULL_INT_V2: Op = Op {
    name: "StatelessRandomUniformFullIntV2",
    gradient: Gradient::Stop,
    inputs: &["shape: Tshape", "key: uint64", "counter: uint64", "alg: int32"],
    outputs: &["output: dtype"],
    attrs: &["dtype: {int32, int64, uint32, uint64} = DT_UINT64", "Tshape: {int32, int64} = DT_INT32"],
    shape: keyed_shape,
    kernels: kernels!["dtype" => full_int_kernel: i32, i64, u32, u64],
    ..Op::PURE
};

static STATELESS_RANDOM_GET_KEY_COUNTER: Op = Op {
    name: "StatelessRandomGetKeyCounter",
    inputs: &["seed: Tseed"],
    outputs: &["key: uint64", "counter: uint64"],
    attrs: &["Tseed: {int32, int64} = DT_INT64"],
    shape: key_counter_shape,
    kernels: kernels![any key_counter_kernel],
    cheap: true,
    ..Op::PURE
};

static STATELESS_RANDOM_GET_KEY_COUNTER_ALG: Op = Op {
    name: "StatelessRandomGetKeyCounterAlg",
    inputs: &["seed: Tseed"],
    outputs: &["key: uint64", "counter: uint64", "alg: int32"],
    attrs: &["Tseed: {int32, int64} = DT_INT64"],
    shape: key_counter_shape,
    kernels: kernels![any key_counter_kernel],
    cheap: true,
    ..Op::PURE
};

static STATELESS_RANDOM_GET_ALG: Op = Op {
    name: "StatelessRandomGetAlg",
    outputs: &["alg: int32"],
    shape: alg_shape,
    kernels: kernels![any algorithm_kernel],
    cheap: true,
    ..Op::STATEFUL
};

fn seeded_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    infer_seed(s, 1)?;
    infer_from_shape_input(s)
}

fn seeded_int_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(2, 0)?;
    s.rank(3, 0)?;
    seeded_shape(s)
}

fn keyed_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(1, 1)?;
    s.rank(2, 1)?;
    s.rank(3, 0)?;
    infer_from_shape_input(s)
}

fn keyed_int_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(4, 0)?;
    s.rank(5, 0)?;
    keyed_shape(s)
}

fn key_counter_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    infer_seed(s, 0)?;
    s.output(0, [1])?;
    s.output(1, [2])?;
    s.output(2, [])
}

fn alg_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.output(0, [])
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

fn full_int_kernel<T: IntSample>(init: &Init<'_>) -> Result<Kernel> {
    filled::<T>(init, fill_full_int)
}

fn filled<T: Element>(init: &Init<'_>, fill: fn(Threads<'_>, Philox, &mut [T])) -> Result<Kernel> {
    let source = Source::of(init);
    Kernel::sync(move |cx| {
        let philox = source.read(cx)?;
        let mut out = cx.alloc::<T>(shape_input(cx, 0)?)?;
        fill(cx.threads(), philox, out.flat_mut()?);
        Ok(out.into())
    })
}

fn int_kernel<T: BoundedSample>(init: &Init<'_>) -> Result<Kernel> {
    let source = Source::of(init);
    Kernel::sync(move |cx| {
        let philox = source.read(cx)?;
        let mut out = cx.alloc::<T>(shape_input(cx, 0)?)?;
        // Stock looks at the bounds only if there is a value to draw.
        if out.elements() > 0 {
            let (low, high) = bounds_inputs::<T>(cx, source.inputs())?;
            fill_int(cx.threads(), philox, out.flat_mut()?, low, high);
        }
        Ok(out.into())
    })
}

/// The source of an op's generator.
#[derive(Clone, Copy)]
enum Source {
    /// Input 1 is a pair of seeds.
    Seed,
    /// Inputs 1 to 3 are key, counter and algorithm.
    Key,
}

impl Source {
    /// An op that declares a type of seeds takes them.
    fn of(init: &Init<'_>) -> Source {
        if init.attrs.has("Tseed") { Source::Seed } else { Source::Key }
    }

    /// The number of inputs before the distribution's own.
    fn inputs(self) -> usize {
        match self {
            Source::Seed => 2,
            Source::Key => 4,
        }
    }

    fn read(self, cx: &KernelCx<'_>) -> Result<Philox> {
        match self {
            Source::Seed if cx.input(1)?.shape().dims() == [2] && shape_input(cx, 0)?.elements() == 0 => {
                // Stock declares types of seeds that it cannot read, and does not try to if there is nothing to draw.
                Ok(Philox::from_stateless_seeds(0, 0))
            }
            Source::Seed => from_seed_input(cx, 1),
            Source::Key => from_key_inputs(cx, 1, shape_input(cx, 0)?.elements() > 0),
        }
    }
}

fn key_counter_kernel(init: &Init<'_>) -> Result<Kernel> {
    let with_algorithm = init.output_types.len() == 3;
    Kernel::sync(move |cx| {
        let philox = from_seed_input(cx, 0)?;
        let mut outputs = vec![Tensor::vector(vec![philox.key()]), Tensor::vector(philox.counter().to_vec())];
        if with_algorithm {
            outputs.push(Tensor::scalar(ALGORITHM_PHILOX));
        }
        Ok(Outputs::from(outputs))
    })
}

fn algorithm_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|_| Ok(Tensor::scalar(ALGORITHM_PHILOX).into()))
}
