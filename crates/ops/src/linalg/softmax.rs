//! Rows of logits turned into probabilities, in passes that vectorize.

use super::elementary::Elementary;
use super::reduce::{Greatest, Sum, fold_row};
use crate::numeric::{Float, Num};
use multiversion::multiversion;

/// A row of logits, prepared: each logit less the greatest, and the sum of their exponentials.
pub(crate) struct Row<M> {
    /// The greatest logit.
    pub(crate) greatest: M,
    /// The sum of the exponentials of all logits less the greatest.
    pub(crate) sum: M,
}

/// Rows shorter than this are better taken many at a time, where that is possible.
pub(crate) const NARROW: usize = 32;
/// Elements of narrow rows that are taken at a time.
const TILE: usize = 1024;

/// Turns narrow rows into probabilities. Exponentials are taken over many rows at once, so that registers are full
/// whatever the width.
#[multiversion(targets("x86_64+avx+avx2+f16c"))]
pub(crate) fn narrow_rows<T, M>(logits: &[T], classes: usize, out: &mut [T])
where
    T: Float<Math = M>,
    M: Elementary,
{
    let tile = TILE / classes * classes;
    let mut powers = [M::ZERO; TILE];
    for (logits, out) in logits.chunks(tile).zip(out.chunks_mut(tile)) {
        let powers = &mut powers[..logits.len()];
        for (row, shifted) in logits.chunks_exact(classes).zip(powers.chunks_exact_mut(classes)) {
            let greatest = row.iter().fold(M::LOWEST, |greatest, x| greatest.maximum(x.to_math()));
            for (shifted, x) in shifted.iter_mut().zip(row) {
                *shifted = x.to_math() - greatest;
            }
        }
        for x in powers.iter_mut() {
            *x = x.fast_exp();
        }
        for (powers, out) in powers.chunks_exact(classes).zip(out.chunks_exact_mut(classes)) {
            let sum = powers.iter().fold(M::ZERO, |sum, x| sum + *x);
            let factor = M::one() / sum;
            for (out, x) in out.iter_mut().zip(powers) {
                *out = T::from_math(*x * factor);
            }
        }
    }
}

/// Writes `e^(x − greatest)` of each logit to `powers` and returns what the row comes to. NaN anywhere makes all of it
/// NaN, and so does an infinite logit.
pub(crate) fn exponentials<T, M>(logits: &[T], powers: &mut [M]) -> Row<M>
where
    T: Float<Math = M> + Num<Wide = M>,
    M: Elementary + Num<Wide = M>,
{
    if logits.len() < NARROW {
        return narrow_exponentials(logits, powers);
    }
    widen(logits, powers);
    let greatest = fold_row::<Greatest<M>>(powers);
    exponentials_below(powers, greatest);
    Row { greatest, sum: fold_row::<Sum<M>>(powers) }
}

/// All passes in one, because choosing between versions of each would take longer than a short row.
#[multiversion(targets("x86_64+avx+avx2+f16c"))]
fn narrow_exponentials<T, M>(logits: &[T], powers: &mut [M]) -> Row<M>
where
    T: Float<Math = M>,
    M: Elementary,
{
    let greatest = logits.iter().fold(M::LOWEST, |greatest, x| greatest.maximum(x.to_math()));
    for (power, x) in powers.iter_mut().zip(logits) {
        *power = (x.to_math() - greatest).fast_exp();
    }
    Row { greatest, sum: powers.iter().fold(M::ZERO, |sum, x| sum + *x) }
}

#[multiversion(targets("x86_64+avx+avx2+fma+f16c"))]
fn widen<T: Float>(logits: &[T], out: &mut [T::Math]) {
    for (out, x) in out.iter_mut().zip(logits) {
        *out = x.to_math();
    }
}

#[multiversion(targets("x86_64+avx+avx2+fma"))]
fn exponentials_below<M: Elementary>(values: &mut [M], greatest: M) {
    for x in values.iter_mut() {
        *x = (*x - greatest).fast_exp();
    }
}

/// Writes each power times `factor`.
#[multiversion(targets("x86_64+avx+avx2+fma+f16c"))]
pub(crate) fn scale<T: Float>(powers: &[T::Math], factor: T::Math, out: &mut [T]) {
    for (out, x) in out.iter_mut().zip(powers) {
        *out = T::from_math(*x * factor);
    }
}

/// Writes each logit less the greatest less the logarithm of the sum.
#[multiversion(targets("x86_64+avx+avx2+fma+f16c"))]
pub(crate) fn subtract<T: Float>(logits: &[T], greatest: T::Math, log_sum: T::Math, out: &mut [T]) {
    for (out, x) in out.iter_mut().zip(logits) {
        *out = T::from_math(x.to_math() - greatest - log_sum);
    }
}
