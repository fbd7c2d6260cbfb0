//! Strings, and numbers written as such, as bucket numbers.

use crate::numeric::Int;
use crate::numeric::hash;
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Gradient, Op, shapes};
use ferroflow_core::{Result, Tensor, bail, ensure, kernels};
use std::fmt::Write;

pub(crate) const OPS: &[&Op] = &[
    &STRING_TO_HASH_BUCKET,
    &STRING_TO_HASH_BUCKET_FAST,
    &STRING_TO_HASH_BUCKET_STRONG,
    &TENSOR_TO_HASH_BUCKET_FAST,
];

static STRING_TO_HASH_BUCKET: Op = Op {
    name: "StringToHashBucket",
    gradient: Gradient::Stop,
    inputs: &["string_tensor: string"],
    outputs: &["output: int64"],
    attrs: &["num_buckets: int >= 1"],
    shape: shapes::unchanged,
    kernels: kernels![any legacy_kernel],
    ..Op::PURE
};

static STRING_TO_HASH_BUCKET_FAST: Op = Op {
    name: "StringToHashBucketFast",
    gradient: Gradient::Stop,
    inputs: &["input: string"],
    outputs: &["output: int64"],
    attrs: &["num_buckets: int >= 1"],
    shape: shapes::unchanged,
    kernels: kernels![any fast_kernel],
    ..Op::PURE
};

static STRING_TO_HASH_BUCKET_STRONG: Op = Op {
    name: "StringToHashBucketStrong",
    gradient: Gradient::Stop,
    inputs: &["input: string"],
    outputs: &["output: int64"],
    attrs: &["num_buckets: int >= 1", "key: list(int)"],
    shape: shapes::unchanged,
    kernels: kernels![any strong_kernel],
    ..Op::PURE
};

/// The op that stock's optimizer puts in place of numbers that become strings only to be hashed.
static TENSOR_TO_HASH_BUCKET_FAST: Op = Op {
    name: "_TensorToHashBucketFast",
    inputs: &["input: T"],
    outputs: &["output: int64"],
    attrs: &["T: {int8, uint8, int16, uint16, int32, uint32, int64, uint64}", "num_buckets: int >= 1"],
    shape: shapes::unchanged,
    kernels: kernels![number_kernel: i8, u8, i16, u16, i32, u32, i64, u64],
    ..Op::PURE
};

fn bucket(init: &Init<'_>, hash: impl Fn(&[u8]) -> u64 + Send + Sync + 'static) -> Result<Kernel> {
    let buckets: i64 = init.attr("num_buckets")?;
    ensure!(buckets >= 1, InvalidArgument, "num_buckets must be positive, got {buckets}");
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let buckets = input.flat::<Str>()?.iter().map(|text| (hash(text) % buckets as u64) as i64);
        let buckets = buckets.collect::<Vec<i64>>();
        Ok(Tensor::new(input.shape().clone(), buckets)?.into())
    })
}

fn number_kernel<T: Int + std::fmt::Display>(init: &Init<'_>) -> Result<Kernel> {
    let buckets: i64 = init.attr("num_buckets")?;
    ensure!(buckets >= 1, InvalidArgument, "num_buckets must be positive, got {buckets}");
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let mut text = String::new();
        let mut out = Vec::with_capacity(input.elements());
        for value in input.flat::<T>()? {
            text.clear();
            write!(text, "{value}").expect("strings take all");
            out.push((hash::fingerprint64(text.as_bytes()) % buckets as u64) as i64);
        }
        Ok(Tensor::new(input.shape().clone(), out)?.into())
    })
}

fn legacy_kernel(init: &Init<'_>) -> Result<Kernel> {
    bucket(init, hash::murmur64)
}

fn fast_kernel(init: &Init<'_>) -> Result<Kernel> {
    bucket(init, hash::fingerprint64)
}

fn strong_kernel(init: &Init<'_>) -> Result<Kernel> {
    let key: Vec<i64> = init.attr("key")?;
    let [first, second] = key[..] else { bail!(InvalidArgument, "Key must have 2 elements") };
    bucket(init, move |text| hash::sip_hash([first as u64, second as u64], text))
}
