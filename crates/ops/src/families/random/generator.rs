//! Random numbers from a generator that a variable keeps (`tf.random.Generator`), and seeds nobody can foresee.

use crate::numeric::philox::{Philox, fresh_seed, scalar_input};
use crate::state::rng_state;
use crate::support::distribution::{
    BoundedSample, IntSample, Sample, bounds_inputs, fill_full_int, fill_int, fill_normal, fill_truncated,
    fill_uniform, shape_input,
};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Op, ShapeCx, shapes};
use ferroflow_core::{DType, Element, Result, Shape, Tensor, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &STATEFUL_UNIFORM,
    &STATEFUL_STANDARD_NORMAL,
    &STATEFUL_STANDARD_NORMAL_V2,
    &STATEFUL_TRUNCATED_NORMAL,
    &STATEFUL_UNIFORM_INT,
    &STATEFUL_UNIFORM_FULL_INT,
    &RNG_SKIP,
    &RNG_READ_AND_SKIP,
    &NON_DETERMINISTIC_INTS,
    &DUMMY_SEED_GENERATOR,
];

static STATEFUL_UNIFORM: Op = Op {
    name: "StatefulUniform",
    inputs: &["resource: resource", "algorithm: int64", "shape: shape_dtype"],
    outputs: &["output: dtype"],
    attrs: &["dtype: type = DT_FLOAT", "shape_dtype: type = DT_INT64"],
    shape: algorithm_shape,
    kernels: kernels!["dtype" => uniform_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static STATEFUL_STANDARD_NORMAL: Op = Op {
    name: "StatefulStandardNormal",
    inputs: &["resource: resource", "shape: shape_dtype"],
    outputs: &["output: dtype"],
    attrs: &["dtype: type = DT_FLOAT", "shape_dtype: type = DT_INT64"],
    shape: plain_shape,
    kernels: kernels!["dtype" => normal_v1_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Random,
    deprecated_at: Some(29),
    restartable: true,
    ..Op::STATEFUL
};

static STATEFUL_STANDARD_NORMAL_V2: Op = Op {
    name: "StatefulStandardNormalV2",
    inputs: &["resource: resource", "algorithm: int64", "shape: shape_dtype"],
    outputs: &["output: dtype"],
    attrs: &["dtype: type = DT_FLOAT", "shape_dtype: type = DT_INT64"],
    shape: algorithm_shape,
    kernels: kernels!["dtype" => normal_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static STATEFUL_TRUNCATED_NORMAL: Op = Op {
    name: "StatefulTruncatedNormal",
    inputs: &["resource: resource", "algorithm: int64", "shape: shape_dtype"],
    outputs: &["output: dtype"],
    attrs: &["dtype: type = DT_FLOAT", "shape_dtype: type = DT_INT64"],
    shape: algorithm_shape,
    kernels: kernels!["dtype" => truncated_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static STATEFUL_UNIFORM_INT: Op = Op {
    name: "StatefulUniformInt",
    inputs: &[
        "resource: resource",
        "algorithm: int64",
        "shape: shape_dtype",
        "minval: dtype",
        "maxval: dtype",
    ],
    outputs: &["output: dtype"],
    attrs: &["dtype: type = DT_INT64", "shape_dtype: type = DT_INT64"],
    shape: int_shape,
    kernels: kernels!["dtype" => int_kernel: i32, i64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static STATEFUL_UNIFORM_FULL_INT: Op = Op {
    name: "StatefulUniformFullInt",
    inputs: &["resource: resource", "algorithm: int64", "shape: shape_dtype"],
    outputs: &["output: dtype"],
    attrs: &["dtype: type = DT_UINT64", "shape_dtype: type = DT_INT64"],
    shape: algorithm_shape,
    kernels: kernels!["dtype" => full_int_kernel: i32, i64, u32, u64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static RNG_SKIP: Op = Op {
    name: "RngSkip",
    inputs: &["resource: resource", "algorithm: int64", "delta: int64"],
    shape: skip_shape,
    kernels: kernels![any skip_kernel],
    ..Op::STATEFUL
};

static RNG_READ_AND_SKIP: Op = Op {
    name: "RngReadAndSkip",
    inputs: &["resource: resource", "alg: int32", "delta: uint64"],
    outputs: &["value: int64"],
    shape: read_shape,
    kernels: kernels![any read_and_skip_kernel],
    ..Op::STATEFUL
};

static NON_DETERMINISTIC_INTS: Op = Op {
    name: "NonDeterministicInts",
    inputs: &["shape: shape_dtype"],
    outputs: &["output: dtype"],
    attrs: &["dtype: type = DT_INT64", "shape_dtype: type = DT_INT64"],
    shape: crate::support::distribution::infer_from_shape_input,
    kernels: kernels!["dtype" => fresh_kernel: i32, i64, u32, u64],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static DUMMY_SEED_GENERATOR: Op = Op {
    name: "DummySeedGenerator",
    outputs: &["handle: resource"],
    shape: shapes::scalar,
    kernels: kernels![any dummy_kernel],
    cheap: true,
    ..Op::STATEFUL
};

fn plain_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    let shape = s.constant_shape(1)?;
    s.set(0, shape);
    Ok(())
}

fn algorithm_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.rank(1, 0)?;
    let shape = s.constant_shape(2)?;
    s.set(0, shape);
    Ok(())
}

fn int_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(3, 0)?;
    s.rank(4, 0)?;
    algorithm_shape(s)
}

fn skip_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.rank(1, 0)?;
    s.rank(2, 0)?;
    Ok(())
}

fn read_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    skip_shape(s)?;
    s.output(0, [3])
}

fn uniform_kernel<T: Sample>(_: &Init<'_>) -> Result<Kernel> {
    filled::<T>(fill_uniform)
}

fn normal_kernel<T: Sample>(_: &Init<'_>) -> Result<Kernel> {
    filled::<T>(fill_normal)
}

fn truncated_kernel<T: Sample>(_: &Init<'_>) -> Result<Kernel> {
    filled::<T>(fill_truncated)
}

fn full_int_kernel<T: IntSample>(_: &Init<'_>) -> Result<Kernel> {
    filled::<T>(fill_full_int)
}

fn filled<T: Element>(fill: fn(Threads<'_>, Philox, &mut [T])) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        check_algorithm_input(cx)?;
        let mut out = cx.alloc::<T>(shape_input(cx, 2)?)?;
        let philox = rng_state::advance(&*cx.variable(0)?, 0, out.elements() as u64)?;
        fill(cx.threads(), philox, out.flat_mut()?);
        Ok(out.into())
    })
}

/// The first version keeps the algorithm's number in the state's first word.
fn normal_v1_kernel<T: Sample>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let mut out = cx.alloc::<T>(shape_input(cx, 1)?)?;
        let variable = cx.variable(0)?;
        let algorithm = variable.with(|state| {
            rng_state::check(state, 1)?;
            Ok(state.flat::<i64>()?[0])
        })?;
        rng_state::check_algorithm(algorithm)?;
        let philox = rng_state::advance(&variable, 1, out.elements() as u64)?;
        fill_normal(cx.threads(), philox, out.flat_mut::<T>()?);
        Ok(out.into())
    })
}

fn int_kernel<T: BoundedSample>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        check_algorithm_input(cx)?;
        let (low, high) = bounds_inputs::<T>(cx, 3)?;
        let mut out = cx.alloc::<T>(shape_input(cx, 2)?)?;
        let philox = rng_state::advance(&*cx.variable(0)?, 0, out.elements() as u64)?;
        fill_int(cx.threads(), philox, out.flat_mut()?, low, high);
        Ok(out.into())
    })
}

fn skip_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        check_algorithm_input(cx)?;
        let delta = scalar_input::<i64>(cx.input(2)?, 2)?;
        rng_state::advance(&*cx.variable(0)?, 0, delta as u64)?;
        Ok(().into())
    })
}

/// Returns the state as it was, then moves it on.
fn read_and_skip_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let algorithm = scalar_input::<i32>(cx.input(1)?, 1)?;
        rng_state::check_algorithm(algorithm as i64)?;
        let delta = scalar_input::<u64>(cx.input(2)?, 2)?;
        let before = rng_state::advance(&*cx.variable(0)?, 0, delta)?;
        let [low, high] = before.counter();
        Ok(Tensor::vector(vec![low as i64, high as i64, before.key() as i64]).into())
    })
}

fn check_algorithm_input(cx: &KernelCx<'_>) -> Result<()> {
    rng_state::check_algorithm(scalar_input::<i64>(cx.input(1)?, 1)?)
}

/// A handle that stands for "no seed generator".
fn dummy_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|_| Ok(Tensor::zeros(DType::Resource, Shape::scalar()).into()))
}

/// Takes the low bits of a fresh seed.
trait FromSeed: Element {
    fn from_seed(seed: u64) -> Self;
}

macro_rules! from_seed {
    ($($type:ty),+) => {$(
        impl FromSeed for $type {
            fn from_seed(seed: u64) -> $type {
                seed as $type
            }
        }
    )+};
}
from_seed!(i32, i64, u32, u64);

fn fresh_kernel<T: FromSeed>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let mut out = cx.alloc::<T>(shape_input(cx, 0)?)?;
        out.flat_mut::<T>()?.iter_mut().for_each(|slot| *slot = T::from_seed(fresh_seed()));
        Ok(out.into())
    })
}
