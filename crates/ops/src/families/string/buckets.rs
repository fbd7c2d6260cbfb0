//! Strings as bucket numbers.

use crate::hash;
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Result, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] =
    &[&STRING_TO_HASH_BUCKET, &STRING_TO_HASH_BUCKET_FAST, &STRING_TO_HASH_BUCKET_STRONG];

static STRING_TO_HASH_BUCKET: Op = Op {
    name: "StringToHashBucket",
    inputs: &["string_tensor: string"],
    outputs: &["output: int64"],
    attrs: &["num_buckets: int >= 1"],
    shape: shapes::unchanged,
    kernels: kernels![any legacy_kernel],
    ..Op::PURE
};

static STRING_TO_HASH_BUCKET_FAST: Op = Op {
    name: "StringToHashBucketFast",
    inputs: &["input: string"],
    outputs: &["output: int64"],
    attrs: &["num_buckets: int >= 1"],
    shape: shapes::unchanged,
    kernels: kernels![any fast_kernel],
    ..Op::PURE
};

static STRING_TO_HASH_BUCKET_STRONG: Op = Op {
    name: "StringToHashBucketStrong",
    inputs: &["input: string"],
    outputs: &["output: int64"],
    attrs: &["num_buckets: int >= 1", "key: list(int)"],
    shape: shapes::unchanged,
    kernels: kernels![any strong_kernel],
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
