//! Generators kept in variables (`tf.random.Generator`): counter and key as int64 words, advanced by every use.

use crate::numeric::philox::{BLOCKS_PER_OUTPUT, Philox};
use ferroflow_core::resource::Variable;
use ferroflow_core::{DType, Result, Tensor, bail, ensure};

/// Words of counter and key.
const STATE_WORDS: usize = 3;

/// Reads the generator from a state that starts at word `skip` of a variable, and moves the variable on by what
/// `outputs` values may use.
pub(crate) fn advance(variable: &Variable, skip: usize, outputs: u64) -> Result<Philox> {
    let blocks = outputs.wrapping_mul(BLOCKS_PER_OUTPUT);
    variable.update(|state| {
        check(state, skip)?;
        let words = &mut state.flat_mut::<i64>()?[skip..];
        let philox = Philox::from_state([words[0] as u64, words[1] as u64], words[2] as u64);
        let [low, high] = philox.skipped(blocks).counter();
        (words[0], words[1]) = (low as i64, high as i64);
        Ok(philox)
    })
}

/// Refuses every algorithm but Philox, or the one that leaves the choice to us.
pub(crate) fn check_algorithm(algorithm: i64) -> Result<()> {
    match algorithm {
        1 | 3 => Ok(()),
        2 => bail!(Unimplemented, "Non-XLA devices don't support the ThreeFry algorithm."),
        other => bail!(InvalidArgument, "Unsupported algorithm id: {other}"),
    }
}

/// Refuses what cannot be a state.
pub(crate) fn check(state: &Tensor, skip: usize) -> Result<()> {
    ensure!(
        state.dtype() == DType::Int64,
        InvalidArgument,
        "dtype of RNG state variable must be int64, not {}",
        state.dtype()
    );
    ensure!(
        state.rank() == 1,
        InvalidArgument,
        "RNG state must have one and only one dimension, not {}",
        state.rank()
    );
    ensure!(
        state.elements() >= skip + STATE_WORDS,
        InvalidArgument,
        "For the Philox algorithm, the size of state must be at least {}; got {}",
        skip + STATE_WORDS,
        state.elements()
    );
    Ok(())
}
