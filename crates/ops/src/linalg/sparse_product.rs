//! The product of a sparse matrix and a dense one: rows of the dense matrix, scaled and added up.

use crate::numeric::Num;
use ferroflow_core::device::Threads;
use multiversion::multiversion;

/// The entries of a sparse matrix, row by row: coordinates within bounds, and values.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a, T> {
    /// Two coordinates per entry.
    pub(crate) places: &'a [[i64; 2]],
    pub(crate) values: &'a [T],
    /// The first entry of each row, and the end of the last row.
    pub(crate) splits: &'a [usize],
    /// Which of both coordinates is the column: 1, or 0 if the matrix is transposed.
    pub(crate) column: usize,
    /// Whether values are conjugated.
    pub(crate) conjugate: bool,
}

/// Writes the product with `dense`, which has rows of `width` elements.
pub(crate) fn multiply<T: Num>(
    threads: Threads<'_>,
    entries: &Entries<'_, T>,
    dense: &[T],
    width: usize,
    out: &mut [T],
) {
    let rows = entries.splits.len().saturating_sub(1).max(1);
    let cost = 1 + entries.values.len() / rows;
    threads.parallel_rows(out, width, cost, |first, out| {
        let splits = &entries.splits[first..=first + out.len() / width];
        multiply_rows(&Entries { splits, ..*entries }, dense, width, out);
    });
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn multiply_rows<T: Num>(entries: &Entries<'_, T>, dense: &[T], width: usize, out: &mut [T]) {
    for (ends, out) in entries.splits.windows(2).zip(out.chunks_exact_mut(width)) {
        let range = ends[0]..ends[1];
        let row =
            Entries { places: &entries.places[range.clone()], values: &entries.values[range], ..*entries };
        // Sums stay in registers over all entries of the row.
        let mut first = 0;
        while first + 32 <= width {
            add_block::<T, 32>(&row, dense, width, first, out);
            first += 32;
        }
        while first + 8 <= width {
            add_block::<T, 8>(&row, dense, width, first, out);
            first += 8;
        }
        if first + 4 <= width {
            add_block::<T, 4>(&row, dense, width, first, out);
            first += 4;
        }
        while first < width {
            add_block::<T, 1>(&row, dense, width, first, out);
            first += 1;
        }
    }
}

#[inline(always)]
fn add_block<T: Num, const N: usize>(
    row: &Entries<'_, T>,
    dense: &[T],
    width: usize,
    first: usize,
    out: &mut [T],
) {
    let mut sums = [T::Wide::ZERO; N];
    for (place, value) in row.places.iter().zip(row.values) {
        let at = place[row.column] as usize * width + first;
        let value = if row.conjugate { value.conj() } else { *value }.widen();
        let terms = &dense[at..at + N];
        for (sum, term) in sums.iter_mut().zip(terms) {
            *sum = sum.add(value.mul(term.widen()));
        }
    }
    for (out, sum) in out[first..first + N].iter_mut().zip(sums) {
        *out = T::narrow(sum);
    }
}
