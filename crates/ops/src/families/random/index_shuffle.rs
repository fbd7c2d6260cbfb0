//! A shuffle of numbers without a list of them: a small block cipher permutes the numbers up to a maximum.

use crate::numeric::Int;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&RANDOM_INDEX_SHUFFLE];

static RANDOM_INDEX_SHUFFLE: Op = Op {
    name: "RandomIndexShuffle",
    inputs: &["index: dtype", "seed: Tseed", "max_index: dtype"],
    outputs: &["output: dtype"],
    attrs: &[
        "rounds: int = 4",
        "dtype: {int32, uint32, int64, uint64}",
        "Tseed: {int32, uint32, int64, uint64}",
    ],
    shape: shuffle_shape,
    gradient: Gradient::Stop,
    kernels: kernels!["dtype" => shuffle_kernel: i32, i64, u32, u64],
    ..Op::PURE
};

fn shuffle_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (index, seed, max) = (s.rank_at_most(0, 1)?, s.rank_at_most(1, 2)?, s.rank_at_most(2, 1)?);
    s.rank_at_least(1, 1)?;
    if let Some([.., three]) = seed.dims() {
        s.merge_dims(*three, 3)?;
    }
    let ranks = (index.rank(), seed.rank(), max.rank());
    if ranks == (Some(0), Some(1), Some(0)) {
        s.set(0, PartialShape::scalar());
        return Ok(());
    }
    let sizes = [
        index.dims().filter(|dims| dims.len() == 1),
        seed.dims().filter(|dims| dims.len() == 2),
        max.dims().filter(|dims| dims.len() == 1),
    ];
    if sizes.iter().all(Option::is_none) {
        return Ok(());
    }
    let known = sizes.iter().flatten().map(|dims| dims[0]).find(|size| *size != UNKNOWN_DIM);
    s.output(0, [known.unwrap_or(UNKNOWN_DIM)])
}

/// The rounds' keys of a cipher of two words of `bits` each.
fn key_schedule(key: [u32; 3], bits: u32, rounds: usize) -> Vec<u64> {
    let mask = (1u64 << bits) - 1;
    let rotate = |x: u64, by: u32| ((x >> by) | (x << (bits - by))) & mask;
    let mut z = 0x7369_f885_192c_0ef5u64 & mask;
    let mut keys: Vec<u64> = key.iter().map(|word| u64::from(*word) & mask).collect();
    for i in 3..rounds {
        let last = keys[i - 1];
        let next = 0xffff_fffc ^ (z & 1) ^ keys[i - 3] ^ rotate(last, 3) ^ rotate(last, 4);
        keys.push(next & mask);
        z >>= 1;
    }
    keys
}

fn encrypt(value: u64, keys: &[u64], bits: u32) -> u64 {
    let mask = (1u64 << bits) - 1;
    let rotate = |x: u64, by: u32| ((x << by) | (x >> (bits - by))) & mask;
    let mix = |x: u64| (rotate(x, 1) & rotate(x, 8)) ^ rotate(x, 2);
    let (mut left, mut right) = ((value >> bits) & mask, value & mask);
    for pair in keys.chunks_exact(2) {
        left ^= mix(right) ^ pair[0];
        right ^= mix(left) ^ pair[1];
    }
    (left << bits) | right
}

/// Smaller blocks make patterns.
const LEAST_BITS: u32 = 16;

/// The place of a number in the shuffle of the numbers up to `max_index` that a key gives.
pub(crate) fn shuffled_index(index: u64, key: [u32; 3], max_index: u64, rounds: usize) -> u64 {
    if max_index == 0 {
        return 0;
    }
    let bits = (max_index as f64).log2().ceil() as u32;
    let block = (bits + bits % 2).clamp(LEAST_BITS, 64);
    let keys = key_schedule(key, block / 2, rounds);
    let mut place = index;
    // What lies beyond is shuffled again: a permutation of the block comes back to where it began.
    loop {
        place = encrypt(place, &keys, block / 2);
        if place <= max_index {
            return place;
        }
    }
}

fn seeds(tensor: &Tensor) -> Result<Vec<u32>> {
    Ok(match tensor.dtype() {
        DType::Int32 => tensor.flat::<i32>()?.iter().map(|x| *x as u32).collect(),
        DType::Uint32 => tensor.flat::<u32>()?.to_vec(),
        DType::Int64 => tensor.flat::<i64>()?.iter().map(|x| *x as u32).collect(),
        _ => tensor.flat::<u64>()?.iter().map(|x| *x as u32).collect(),
    })
}

fn shuffle_kernel<T: Int>(init: &Init<'_>) -> Result<Kernel> {
    let rounds: i64 = init.attr("rounds")?;
    ensure!(
        rounds >= 4 && rounds % 2 == 0,
        InvalidArgument,
        "rounds must be even and at least 4, got {rounds}"
    );
    let rounds = usize::try_from(rounds.min(1 << 16)).unwrap_or(4);
    Kernel::sync(move |cx| {
        let (index, seed, max) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        let count = index.elements().max(max.elements()).max(seed.elements() / 3);
        let fits = |tensor: &Tensor| tensor.rank() == 0 || (tensor.rank() == 1 && tensor.elements() == count);
        ensure!(fits(index), InvalidArgument, "Index bust be a scalar or vector.");
        let dims = seed.shape().dims();
        ensure!(
            dims == [3] || dims == [count as i64, 3],
            InvalidArgument,
            "Seed must be a vector of size [3] or a matrix of size [{count}, 3] but got {}.",
            seed.shape()
        );
        ensure!(
            fits(max),
            InvalidArgument,
            "Maxval must be a scalar or a vector of the same size as index but got {}",
            max.shape()
        );
        let scalar = index.rank() == 0 && seed.rank() == 1 && max.rank() == 0;
        let shape = if scalar { Shape::scalar() } else { Shape::vector(count) };
        let mut output = cx.alloc::<T>(shape)?;
        let keys = seeds(seed)?;
        let (index, max) = (index.flat::<T>()?, max.flat::<T>()?);
        for (at, out) in output.flat_mut::<T>()?.iter_mut().enumerate() {
            let (own, most) = (index[at.min(index.len() - 1)], max[at.min(max.len() - 1)]);
            ensure!(own >= T::ZERO, InvalidArgument, "index must be >= 0 but was {own:?}");
            ensure!(most >= T::ZERO, InvalidArgument, "max_index must be >= 0 but was {most:?}");
            ensure!(most >= own, InvalidArgument, "max_index must be >= index, but {most:?} < {own:?}");
            let row = if keys.len() == 3 { 0 } else { 3 * at };
            let key = [keys[row], keys[row + 1], keys[row + 2]];
            let place = shuffled_index(own.to_i64() as u64, key, most.to_i64() as u64, rounds);
            *out = T::from_i64(place as i64);
        }
        Ok(output.into())
    })
}
