//! Rows of logits turned into probabilities, in passes that vectorize.

use super::elementary::Elementary;
use super::reduce::{Greatest, Sum, fold_row};
use crate::numeric::{Float, Num};
use multiversion::multiversion;

/// What a row of logits comes to: each logit less the greatest, and the sum of their exponentials.
pub struct Row<M> {
    /// The greatest logit.
    pub greatest: M,
    /// The sum of the exponentials of all logits less the greatest.
    pub sum: M,
}

/// Writes `e^(x − greatest)` of each logit to `powers` and returns what the row comes to. NaN anywhere makes all of it
/// NaN, and so does an infinite logit.
pub fn exponentials<T, M>(logits: &[T], powers: &mut [M]) -> Row<M>
where
    T: Float<Math = M> + Num<Wide = M>,
    M: Elementary + Num<Wide = M>,
{
    widen(logits, powers);
    let greatest = fold_row::<Greatest<M>>(powers);
    exponentials_below(powers, greatest);
    Row { greatest, sum: fold_row::<Sum<M>>(powers) }
}

#[multiversion(targets("x86_64+avx+avx2+fma+f16c"))]
fn widen<T: Float>(logits: &[T], out: &mut [T::Math]) {
    out.iter_mut().zip(logits).for_each(|(out, x)| *out = x.to_math());
}

#[multiversion(targets("x86_64+avx+avx2+fma"))]
fn exponentials_below<M: Elementary>(values: &mut [M], greatest: M) {
    values.iter_mut().for_each(|x| *x = (*x - greatest).fast_exp());
}

/// Writes each power times `factor`.
#[multiversion(targets("x86_64+avx+avx2+fma+f16c"))]
pub fn scale<T: Float>(powers: &[T::Math], factor: T::Math, out: &mut [T]) {
    out.iter_mut().zip(powers).for_each(|(out, x)| *out = T::from_math(*x * factor));
}

/// Writes each logit less the greatest less the logarithm of the sum.
#[multiversion(targets("x86_64+avx+avx2+fma+f16c"))]
pub fn subtract<T: Float>(logits: &[T], greatest: T::Math, log_sum: T::Math, out: &mut [T]) {
    out.iter_mut().zip(logits).for_each(|(out, x)| *out = T::from_math(x.to_math() - greatest - log_sum));
}
