//! Triangular factors of square matrices with rows exchanged.

use super::scalar::{Scalar, subtract_multiple};
use super::triangular::{Half, solve, split};
use crate::linalg::product::MatrixView;
use crate::numeric::Num;
use ferroflow_core::device::Threads;
use multiversion::multiversion;

/// Columns that are eliminated one by one.
const PANEL: usize = 16;

/// The order of rows after a factorization.
pub(crate) struct Exchanges {
    /// The original row at each place.
    pub(crate) rows: Vec<usize>,
    /// Whether the number of exchanges was odd.
    pub(crate) odd: bool,
}

/// Replaces a matrix by its factors: below the diagonal the one with a diagonal of ones, the other above.
pub(crate) fn factor<T: Scalar>(threads: Option<Threads<'_>>, matrix: &mut [T], order: usize) -> Exchanges {
    let mut exchanges = Exchanges { rows: (0..order).collect(), odd: false };
    factor_columns(threads, matrix, order, 0, order, &mut exchanges);
    exchanges
}

/// Whether no pivot is zero.
pub(crate) fn is_invertible<T: Scalar>(factors: &[T], order: usize) -> bool {
    // What is not a number does not count as zero, as in stock.
    (0..order).all(|at| factors[at * order + at] != T::ZERO)
}

/// Solves equations with the factored matrix: `x` has the right sides in the order of the exchanged rows.
pub(crate) fn solve_factored<T: Scalar>(
    threads: Option<Threads<'_>>,
    factors: &[T],
    order: usize,
    x: &mut [T],
    width: usize,
) {
    let factors = MatrixView::new(factors, order, order, false);
    solve(threads, factors, Half::UnitLower, x, width);
    solve(threads, factors, Half::Upper, x, width);
}

fn factor_columns<T: Scalar>(
    threads: Option<Threads<'_>>,
    matrix: &mut [T],
    order: usize,
    first: usize,
    last: usize,
    exchanges: &mut Exchanges,
) {
    if last - first <= PANEL {
        return factor_panel(matrix, order, first, last, exchanges);
    }
    let middle = first + split(last - first);
    factor_columns(threads, matrix, order, first, middle, exchanges);
    let (height, width) = (middle - first, last - middle);
    let block = |matrix: &[T], rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| -> Vec<T> {
        rows.flat_map(|row| &matrix[row * order + columns.start..row * order + columns.end])
            .copied()
            .collect()
    };
    let corner = block(matrix, first..middle, first..middle);
    let mut right = block(matrix, first..middle, middle..last);
    solve(threads, MatrixView::new(&corner, height, height, false), Half::UnitLower, &mut right, width);
    for (row, solved) in (first..middle).zip(right.chunks(width)) {
        matrix[row * order + middle..row * order + last].copy_from_slice(solved);
    }
    let below = block(matrix, middle..order, first..middle);
    let below = MatrixView::new(&below, order - middle, height, false);
    let right = MatrixView::new(&right, height, width, false);
    if middle < order {
        T::subtract_product(threads, below, right, &mut matrix[middle * order + middle..], order);
    }
    factor_columns(threads, matrix, order, middle, last, exchanges);
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn factor_panel<T: Scalar>(
    matrix: &mut [T],
    order: usize,
    first: usize,
    last: usize,
    exchanges: &mut Exchanges,
) {
    for k in first..last {
        let (mut best, mut pivot) = (k, matrix[k * order + k].modulus());
        for row in k + 1..order {
            let size = matrix[row * order + k].modulus();
            if size > pivot {
                (best, pivot) = (row, size);
            }
        }
        if best != k {
            let (above, below) = matrix.split_at_mut(best * order);
            above[k * order..(k + 1) * order].swap_with_slice(&mut below[..order]);
            exchanges.rows.swap(k, best);
            exchanges.odd = !exchanges.odd;
        }
        if pivot == T::Real::ZERO {
            continue;
        }
        let (above, below) = matrix.split_at_mut((k + 1) * order);
        let own = &above[k * order..];
        let inverse = own[k].reciprocal();
        for row in below.chunks_exact_mut(order) {
            let factor = row[k] * inverse;
            row[k] = factor;
            subtract_multiple(&mut row[k + 1..last], factor, &own[k + 1..last]);
        }
    }
}
