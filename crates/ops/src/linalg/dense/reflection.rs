//! Householder's reflections, kept row by row and multiplied into orthogonal matrices.

use super::scalar::{Scalar, dot};
use crate::numeric::Num;
use ferroflow_core::device::Threads;
use multiversion::multiversion;

/// Reflections `1 - 2 v · v*` with vectors of length one. The vector with number `k` is zero before `k + offset`.
pub(crate) struct Reflections<T> {
    vectors: Vec<T>,
    length: usize,
    offset: usize,
}

impl<T: Scalar> Reflections<T> {
    pub(crate) fn new(length: usize, offset: usize, capacity: usize) -> Reflections<T> {
        Reflections { vectors: Vec::with_capacity(capacity * length), length, offset }
    }

    /// The number of reflections.
    pub(crate) fn len(&self) -> usize {
        self.vectors.len().checked_div(self.length).unwrap_or(0)
    }

    /// A vector from its first element on that may not be zero.
    pub(crate) fn vector(&self, number: usize) -> &[T] {
        &self.vectors[number * self.length + number + self.offset..(number + 1) * self.length]
    }

    /// Appends the reflection that leaves of a vector, which begins at the next number plus the offset, its first element
    /// only, and returns that.
    pub(crate) fn push(&mut self, vector: impl ExactSizeIterator<Item = T>) -> T {
        let start = self.vectors.len();
        let skipped = start + self.length - vector.len();
        self.vectors.resize(skipped, T::ZERO);
        self.vectors.extend(vector);
        reflect(&mut self.vectors[skipped..])
    }

    /// Writes the first `rows` columns of the product of all reflections as rows of `out`.
    pub(crate) fn columns(&self, threads: Option<Threads<'_>>, rows: usize, out: &mut [T]) {
        let length = self.length;
        let fill = |first: usize, part: &mut [T]| {
            part.fill(T::ZERO);
            for (number, row) in part.chunks_exact_mut(length).enumerate() {
                row[first + number] = T::ONE;
            }
            for (number, group) in part.chunks_mut(length * GROUP).enumerate() {
                self.apply(first + number * GROUP, group);
            }
        };
        match threads {
            Some(threads) => {
                threads.parallel_rows(&mut out[..rows * length], length, self.len(), fill);
            }
            None => fill(0, &mut out[..rows * length]),
        }
    }

    /// Reflects some unit rows, the first of which is number `first`, by all reflections that change them.
    fn apply(&self, first: usize, rows: &mut [T]) {
        let last = first + rows.len() / self.length - 1;
        // A unit vector before the first element of a reflection stays.
        let count = (last + 1).saturating_sub(self.offset).min(self.len());
        for number in (0..count).rev() {
            reflect_rows(self.vector(number), rows, self.length);
        }
    }
}

/// Rows that are reflected together, while the reflection's vector is at hand.
const GROUP: usize = 4;

/// Replaces a vector by the unit vector whose reflection leaves only its first element, and returns that element. A vector
/// that has nothing but its first element is left alone by a reflection of zero.
pub(super) fn reflect<T: Scalar>(vector: &mut [T]) -> T {
    let Some((head, tail)) = vector.split_first_mut() else { return T::ZERO };
    let rest = tail.iter().fold(T::Real::ZERO, |sum, x| sum + x.square());
    let first = *head;
    if rest == T::Real::ZERO {
        *head = T::ZERO;
        tail.fill(T::ZERO);
        return first;
    }
    let norm = num_traits::Float::sqrt(first.square() + rest);
    let image = -first.phase().scaled(norm);
    let changed = first - image;
    let scale = T::Real::ONE / num_traits::Float::sqrt(changed.square() + rest);
    *head = changed.scaled(scale);
    for x in tail.iter_mut() {
        *x = x.scaled(scale);
    }
    image
}

/// Reflects the ends of rows, as columns of a matrix, by a vector.
#[multiversion(targets("x86_64+avx2+fma"))]
fn reflect_rows<T: Scalar>(vector: &[T], rows: &mut [T], length: usize) {
    for row in rows.chunks_exact_mut(length) {
        let row = &mut row[length - vector.len()..];
        let product = if T::COMPLEX { conjugate_dot(vector, row) } else { dot(vector, row) };
        let factor = product + product;
        for (x, v) in row.iter_mut().zip(vector) {
            *x -= factor * *v;
        }
    }
}

/// The sum of products of elements, the first of each conjugated.
#[inline(always)]
pub(super) fn conjugate_dot<T: Scalar>(x: &[T], y: &[T]) -> T {
    const LANES: usize = 4;
    let ((x_lanes, x_rest), (y_lanes, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    let mut rest = T::ZERO;
    for (x, y) in x_rest.iter().zip(y_rest) {
        rest += x.conj() * *y;
    }
    let mut sums = [T::ZERO; LANES];
    for (x, y) in x_lanes.iter().zip(y_lanes) {
        for lane in 0..LANES {
            sums[lane] += x[lane].conj() * y[lane];
        }
    }
    sums.into_iter().fold(rest, |sum, x| sum + x)
}
