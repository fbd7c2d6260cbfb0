//! The product of a sparse matrix and a dense one: rows of the dense matrix, scaled and added up.

use crate::numeric::Num;
use ferroflow_core::device::Threads;
use multiversion::multiversion;

/// The entries of a sparse matrix, which may be transposed: coordinates within bounds, and values.
pub(crate) struct Entries<'a, T> {
    /// Two coordinates per entry.
    pub(crate) indices: &'a [i64],
    pub(crate) values: &'a [T],
    /// Which of both coordinates is the row: 0, or 1 if the matrix is transposed.
    pub(crate) row: usize,
    /// Whether values are conjugated.
    pub(crate) conjugate: bool,
    /// Entries sorted by row; `None` if they are already.
    pub(crate) order: Option<&'a [usize]>,
}

impl<T: Num> Entries<'_, T> {
    #[inline(always)]
    fn entry(&self, at: usize) -> usize {
        self.order.map_or(at, |order| order[at])
    }

    /// The row, the column and the value of an entry, in order of rows.
    #[inline(always)]
    fn get(&self, at: usize) -> (usize, usize, T) {
        let entry = self.entry(at);
        let place = [self.indices[2 * entry], self.indices[2 * entry + 1]];
        let value = self.values[entry];
        let value = if self.conjugate { value.conj() } else { value };
        (place[self.row] as usize, place[1 - self.row] as usize, value)
    }

    /// The first entry whose row is not less.
    fn begin(&self, row: usize) -> usize {
        let (mut low, mut high) = (0, self.values.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle).0 < row {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Writes the product with `dense`, which has rows of `width` elements.
pub(crate) fn multiply<T: Num>(
    threads: Threads<'_>,
    entries: &Entries<'_, T>,
    dense: &[T],
    width: usize,
    out: &mut [T],
) {
    let rows = (out.len() / width.max(1)).max(1);
    // Zeroing and writing a row costs about as much as adding one entry.
    let cost = 1 + entries.values.len() / rows;
    threads.parallel_rows(out, width, cost, |first, out| {
        multiply_rows(entries, dense, width, entries.begin(first), first, out);
    });
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn multiply_rows<T: Num>(
    entries: &Entries<'_, T>,
    dense: &[T],
    width: usize,
    begin: usize,
    first: usize,
    out: &mut [T],
) {
    let mut sums = vec![T::Wide::ZERO; width];
    let mut at = begin;
    for (row, out) in out.chunks_exact_mut(width).enumerate() {
        sums.fill(T::Wide::ZERO);
        while at < entries.values.len() {
            let (entry_row, column, value) = entries.get(at);
            if entry_row != first + row {
                break;
            }
            let value = value.widen();
            let terms = &dense[column * width..(column + 1) * width];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum = sum.add(value.mul(term.widen())));
            at += 1;
        }
        out.iter_mut().zip(&sums).for_each(|(out, sum)| *out = T::narrow(*sum));
    }
}
