//! The Philox4x32-10 generator, split into streams exactly as stock splits them, so that equal seeds give equal values.

use ferroflow_core::Result;
use ferroflow_core::kernel::{Init, KernelCx};
use ferroflow_core::{Tensor, bail, ensure};
use multiversion::multiversion;
use std::hash::{BuildHasher, Hasher};
use std::sync::Mutex;

/// Four random words.
pub type Block = [u32; 4];

/// A counter-based generator: block `n` of a stream follows from key and counter alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox {
    counter: u128,
    key: u64,
}

/// Generators that ops may ask for by number.
pub(crate) const ALGORITHM_PHILOX: i32 = 1;
const ALGORITHM_AUTO: i32 = 3;

impl Philox {
    /// The generator that stateful ops start with.
    pub fn from_seeds(seed: u64, seed2: u64) -> Philox {
        Philox { counter: (seed2 as u128) << 64, key: seed }
    }

    /// The generator with this state, as ops and variables hold it.
    pub(crate) fn from_state(counter: [u64; 2], key: u64) -> Philox {
        Philox { counter: counter[0] as u128 | (counter[1] as u128) << 64, key }
    }

    /// The generator that stateless ops derive from a pair of seeds: the seeds are scrambled once, so that neither of
    /// them needs to be strong.
    pub(crate) fn from_stateless_seeds(seed: u64, seed2: u64) -> Philox {
        let mut mix = Philox::from_state([seed, seed2], 0x0246_1e29_3ec8_f720);
        let mix = mix.block();
        let key = mix[0] as u64 | (mix[1] as u64) << 32;
        Philox::from_state([0, mix[2] as u64 | (mix[3] as u64) << 32], key)
    }

    /// The counter, low word first.
    pub(crate) fn counter(&self) -> [u64; 2] {
        [self.counter as u64, (self.counter >> 64) as u64]
    }

    /// The key.
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// Passes over blocks.
    pub fn skip(&mut self, blocks: u64) {
        self.counter = self.counter.wrapping_add(blocks as u128);
    }

    /// The generator after passing over blocks.
    pub(crate) fn skipped(mut self, blocks: u64) -> Philox {
        self.skip(blocks);
        self
    }

    /// The next block.
    pub fn block(&mut self) -> Block {
        let mut out = [[0; 1]; 4];
        rounds(self.counter, self.key, &mut out);
        self.skip(1);
        out.map(|word| word[0])
    }

    /// Fills `out` with the next blocks; faster than one by one.
    pub(crate) fn blocks(&mut self, out: &mut [Block]) {
        fill_blocks(self.counter, self.key, out);
        self.skip(out.len() as u64);
    }
}

const LANES: usize = 8;

#[multiversion(targets("x86_64+avx2", "x86_64+avx512f+avx512vl"))]
fn fill_blocks(counter: u128, key: u64, out: &mut [Block]) {
    let mut words = [[0u32; LANES]; 4];
    for (chunk, blocks) in out.chunks_mut(LANES).enumerate() {
        rounds(counter.wrapping_add((chunk * LANES) as u128), key, &mut words);
        for (lane, block) in blocks.iter_mut().enumerate() {
            *block = [words[0][lane], words[1][lane], words[2][lane], words[3][lane]];
        }
    }
}

/// Ten rounds over `N` consecutive counters; `out[word][lane]`.
#[inline(always)]
// Four arrays are walked in step; an index says it plainly and vectorizes.
#[allow(clippy::needless_range_loop)]
fn rounds<const N: usize>(counter: u128, key: u64, out: &mut [[u32; N]; 4]) {
    for lane in 0..N {
        let counter = counter.wrapping_add(lane as u128);
        for (word, values) in out.iter_mut().enumerate() {
            values[lane] = (counter >> (32 * word)) as u32;
        }
    }
    let (mut low, mut high) = (key as u32, (key >> 32) as u32);
    for _ in 0..10 {
        for lane in 0..N {
            let a = 0xD251_1F53u64 * out[0][lane] as u64;
            let b = 0xCD9E_8D57u64 * out[2][lane] as u64;
            out[0][lane] = (b >> 32) as u32 ^ out[1][lane] ^ low;
            out[1][lane] = b as u32;
            out[2][lane] = (a >> 32) as u32 ^ out[3][lane] ^ high;
            out[3][lane] = a as u32;
        }
        low = low.wrapping_add(0x9E37_79B9);
        high = high.wrapping_add(0xBB67_AE85);
    }
}

/// Hands out a stream word by word.
pub(crate) struct Words {
    philox: Philox,
    block: Block,
    used: usize,
}

impl Words {
    pub(crate) fn new(philox: Philox) -> Words {
        Words { philox, block: [0; 4], used: 4 }
    }

    pub(crate) fn next(&mut self) -> u32 {
        if self.used == 4 {
            self.block = self.philox.block();
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }
}

/// The running generator of one kernel: every execution takes the next part of the stream.
pub(crate) struct KernelStream(Mutex<Philox>);

impl KernelStream {
    /// Starts from the attributes `seed` and `seed2`; if both are 0, from seeds of this kernel's own.
    pub(crate) fn new(init: &Init<'_>) -> Result<KernelStream> {
        let (mut seed, mut seed2) = (init.attr::<i64>("seed")? as u64, init.attr::<i64>("seed2")? as u64);
        if seed == 0 && seed2 == 0 {
            (seed, seed2) = (fresh_seed(), fresh_seed());
        }
        Ok(KernelStream(Mutex::new(Philox::from_seeds(seed, seed2))))
    }

    /// A stream from seeds of this kernel's own.
    pub(crate) fn fresh() -> KernelStream {
        KernelStream(Mutex::new(Philox::from_seeds(fresh_seed(), fresh_seed())))
    }

    /// Takes this many blocks off the stream.
    pub(crate) fn reserve(&self, blocks: u64) -> Philox {
        let mut philox = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let reserved = *philox;
        philox.skip(blocks);
        reserved
    }

    /// Takes as many blocks off the stream as stock reserves for this many outputs.
    pub(crate) fn reserve_outputs(&self, outputs: usize) -> Philox {
        self.reserve((outputs as u64).wrapping_mul(BLOCKS_PER_OUTPUT))
    }
}

/// The number of blocks that stock reserves per output of an op, whether used or not.
pub(crate) const BLOCKS_PER_OUTPUT: u64 = 256;

/// A seed that nobody can foresee: the standard library draws its hash keys from the system.
pub(crate) fn fresh_seed() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// The generator that a `seed` input of two numbers stands for.
pub(crate) fn from_seed_input(cx: &KernelCx<'_>, input: usize) -> Result<Philox> {
    let seed = cx.input(input)?;
    ensure!(
        seed.rank() == 1 && seed.elements() == 2,
        InvalidArgument,
        "seed must have shape [2], not {}",
        seed.shape()
    );
    let seeds = seed.to_i64s()?;
    Ok(Philox::from_stateless_seeds(seeds[0] as u64, seeds[1] as u64))
}

/// The generator that the inputs `key`, `counter` and `alg` stand for, `key` being the first of the three. Unless a value
/// is drawn from it, any algorithm will do, as in stock.
pub(crate) fn from_key_inputs(cx: &KernelCx<'_>, first: usize, draws: bool) -> Result<Philox> {
    let (key, counter, algorithm) = (cx.input(first)?, cx.input(first + 1)?, cx.input(first + 2)?);
    let algorithm = match scalar_input::<i32>(algorithm, first + 2)? {
        ALGORITHM_AUTO => ALGORITHM_PHILOX,
        other => other,
    };
    ensure!(
        key.rank() == 1 && key.elements() == 1,
        InvalidArgument,
        "key must have shape [1], not {}. (Note that batched keys are not supported yet.)",
        key.shape()
    );
    // Stock compares the length with the number of the algorithm.
    ensure!(
        counter.rank() == 1 && counter.elements() as i64 >= algorithm as i64,
        InvalidArgument,
        "counter must be a vector with length at least {algorithm}; got shape: {}. (Note that batched counters are \
         not supported yet.)",
        counter.shape()
    );
    if draws {
        check_algorithm(algorithm)?;
    }
    let words = counter.flat::<u64>()?;
    let word = |i: usize| words.get(i).copied().unwrap_or_default();
    Ok(Philox::from_state([word(0), word(1)], key.flat::<u64>()?[0]))
}

/// Refuses every algorithm but Philox.
pub(crate) fn check_algorithm(algorithm: i32) -> Result<()> {
    if algorithm != ALGORITHM_PHILOX {
        bail!(InvalidArgument, "Unsupported algorithm id: {algorithm}")
    }
    Ok(())
}

/// The only element of an input that must be a scalar.
pub(crate) fn scalar_input<T: ferroflow_core::Element>(tensor: &Tensor, input: usize) -> Result<T> {
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "input {input} (0-based) must have shape [], not {}",
        tensor.shape()
    );
    tensor.to_scalar()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_equal_single_blocks() {
        let mut one = Philox::from_seeds(7, u64::MAX).skipped(u64::MAX - 3);
        let mut many = one;
        let mut blocks = [[0; 4]; 21];
        many.blocks(&mut blocks);
        blocks.iter().for_each(|block| assert_eq!(*block, one.block()));
        assert_eq!(one, many);
    }

    #[test]
    fn the_published_test_vector() {
        // From the known-answer tests of the authors of the algorithm.
        let mut philox = Philox::from_state([u64::MAX; 2], u64::MAX);
        assert_eq!(philox.block(), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
    }
}
