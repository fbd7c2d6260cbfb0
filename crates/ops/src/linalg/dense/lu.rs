//! Triangular factors of square matrices with rows exchanged.

use super::panel::{Row, WIDTH, subtract_after, subtract_product};
use super::scalar::{Scalar, subtract_multiple};
use super::triangular::{Half, solve, split};
use crate::linalg::product::MatrixView;
use crate::numeric::Num;
use ferroflow_core::device::Threads;
use multiversion::multiversion;
use std::ops::Range;

/// At most this many columns are not split further.
const WHOLE: usize = 112;

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
    if last - first <= WHOLE {
        return factor_panels(matrix, order, first, last, exchanges);
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

/// Factors some columns panel by panel: each is factored by itself and reduces the columns on its right.
#[multiversion(targets("x86_64+avx2+fma"))]
fn factor_panels<T: Scalar>(
    matrix: &mut [T],
    order: usize,
    first: usize,
    last: usize,
    exchanges: &mut Exchanges,
) {
    let mut panel: Vec<Row<T>> = vec![[T::ZERO; WIDTH]; order - first];
    let mut reduced: Vec<Row<T>> = if last - first > WIDTH { panel.clone() } else { Vec::new() };
    for start in (first..last).step_by(WIDTH) {
        let end = (start + WIDTH).min(last);
        let width = end - start;
        let panel = &mut panel[..order - start];
        copy_in(matrix, order, start, start..end, panel);
        for k in 0..width {
            let best = factor_column(panel, k);
            if best != k {
                let (above, below) = matrix.split_at_mut((start + best) * order);
                above[(start + k) * order..][..order].swap_with_slice(&mut below[..order]);
                exchanges.rows.swap(start + k, start + best);
                exchanges.odd = !exchanges.odd;
            }
        }
        copy_out(panel, matrix, order, start, start..end);
        let (corner, below) = panel.split_at(width);
        for column in (end..last).step_by(WIDTH) {
            let columns = column..(column + WIDTH).min(last);
            let block = &mut reduced[..order - start];
            copy_in(matrix, order, start, columns.clone(), block);
            let (top, rest) = block.split_at_mut(width);
            for (row, factors) in corner.iter().enumerate().skip(1) {
                let (known, own) = top.split_at_mut(row);
                for (known, factor) in known.iter().zip(factors) {
                    subtract_multiple(&mut own[0], *factor, known);
                }
            }
            subtract_product(rest, |row| &below[row][..width], top);
            copy_out(block, matrix, order, start, columns);
        }
    }
}

/// Moves the row with the largest element of a column to the diagonal, where it is taken from the rows below. Returns where
/// that row was.
#[inline(always)]
fn factor_column<T: Scalar>(panel: &mut [Row<T>], column: usize) -> usize {
    let (mut best, mut pivot) = (column, panel[column][column].modulus());
    for (row, elements) in panel.iter().enumerate().skip(column + 1) {
        let size = elements[column].modulus();
        if size > pivot {
            (best, pivot) = (row, size);
        }
    }
    panel.swap(column, best);
    if pivot == T::Real::ZERO {
        return best;
    }
    let (above, below) = panel.split_at_mut(column + 1);
    let own = &above[column];
    let inverse = own[column].reciprocal();
    for row in below {
        let factor = row[column] * inverse;
        subtract_after(row, column, factor, own);
        row[column] = factor;
    }
    best
}

/// Copies some columns of rows from `first` on.
#[inline(always)]
fn copy_in<T: Scalar>(matrix: &[T], order: usize, first: usize, columns: Range<usize>, to: &mut [Row<T>]) {
    for (row, to) in matrix[first * order..].chunks_exact(order).zip(to) {
        to[..columns.len()].copy_from_slice(&row[columns.clone()]);
    }
}

/// Copies them back.
#[inline(always)]
fn copy_out<T: Scalar>(from: &[Row<T>], matrix: &mut [T], order: usize, first: usize, columns: Range<usize>) {
    for (row, from) in matrix[first * order..].chunks_exact_mut(order).zip(from) {
        row[columns.clone()].copy_from_slice(&from[..columns.len()]);
    }
}
