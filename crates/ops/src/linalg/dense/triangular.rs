//! Equations with triangular matrices, split in halves so that most of the work is matrix products.

use super::SMALL;
use super::scalar::{Scalar, subtract_multiple};
use crate::linalg::product::MatrixView;
use ferroflow_core::device::Threads;
use multiversion::multiversion;

/// The half of a square matrix that is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Lower,
    /// With ones on the diagonal, whatever is stored there.
    UnitLower,
    Upper,
}

/// Replaces the right sides in `x`, of `width` columns, by the solutions of the equations with a triangular matrix.
pub(crate) fn solve<T: Scalar>(
    threads: Option<Threads<'_>>,
    matrix: MatrixView<'_, T>,
    half: Half,
    x: &mut [T],
    width: usize,
) {
    let order = matrix.rows();
    if order <= SMALL || width == 0 {
        return solve_small(matrix, half, x, width);
    }
    let middle = split(order);
    let (top, bottom) = x[..order * width].split_at_mut(middle * width);
    let (first, last) = (matrix.block(0..middle, 0..middle), matrix.block(middle..order, middle..order));
    if half == Half::Upper {
        solve(threads, last, half, bottom, width);
        let known = MatrixView::new(bottom, order - middle, width, false);
        T::subtract_product(threads, matrix.block(0..middle, middle..order), known, top, width);
        solve(threads, first, half, top, width);
    } else {
        solve(threads, first, half, top, width);
        let known = MatrixView::new(top, middle, width, false);
        T::subtract_product(threads, matrix.block(middle..order, 0..middle), known, bottom, width);
        solve(threads, last, half, bottom, width);
    }
}

/// The place to split a matrix at: near the middle, where rows of blocks stay aligned.
pub(super) fn split(order: usize) -> usize {
    (order / 2).next_multiple_of(16)
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn solve_small<T: Scalar>(matrix: MatrixView<'_, T>, half: Half, x: &mut [T], width: usize) {
    let order = matrix.rows();
    if width == 1 {
        return solve_column(matrix, half, x);
    }
    for step in 0..order {
        let row = if half == Half::Upper { order - 1 - step } else { step };
        let (before, rest) = x.split_at_mut(row * width);
        let (own, after) = rest.split_at_mut(width);
        let (known, first) = if half == Half::Upper { (&*after, row + 1) } else { (&*before, 0) };
        let columns = if half == Half::Upper { row + 1..order } else { 0..row };
        for column in columns {
            subtract_multiple(own, matrix.value(row, column), &known[(column - first) * width..][..width]);
        }
        if half != Half::UnitLower {
            let factor = matrix.value(row, row).reciprocal();
            for x in own.iter_mut() {
                *x = *x * factor;
            }
        }
    }
}

#[inline(always)]
fn solve_column<T: Scalar>(matrix: MatrixView<'_, T>, half: Half, x: &mut [T]) {
    let order = matrix.rows();
    for step in 0..order {
        let row = if half == Half::Upper { order - 1 - step } else { step };
        let columns = if half == Half::Upper { row + 1..order } else { 0..row };
        let sum = columns.fold(x[row], |sum, column| sum - matrix.value(row, column) * x[column]);
        x[row] = if half == Half::UnitLower { sum } else { sum / matrix.value(row, row) };
    }
}

/// Replaces each of the rows of `x`, `stride` elements apart, by the row that times the adjoint of `lower` gives it.
pub(super) fn divide_by_adjoint<T: Scalar>(
    threads: Option<Threads<'_>>,
    lower: MatrixView<'_, T>,
    x: &mut [T],
    stride: usize,
    rows: usize,
) {
    let order = lower.rows();
    if rows == 0 {
        return;
    }
    if order <= SMALL {
        return divide_small(lower, x, stride, rows);
    }
    let middle = split(order);
    divide_by_adjoint(threads, lower.block(0..middle, 0..middle), x, stride, rows);
    let known: Vec<T> = x.chunks(stride).take(rows).flat_map(|row| &row[..middle]).copied().collect();
    let below: Vec<T> = (0..middle * (order - middle))
        .map(|at| lower.value(middle + at % (order - middle), at / (order - middle)).conj())
        .collect();
    let known = MatrixView::new(&known, rows, middle, false);
    let below = MatrixView::new(&below, middle, order - middle, false);
    T::subtract_product(threads, known, below, &mut x[middle..], stride);
    divide_by_adjoint(threads, lower.block(middle..order, middle..order), &mut x[middle..], stride, rows);
}

/// Rows that are divided side by side: what is subtracted from one does not wait for another.
const SIDE_BY_SIDE: usize = 16;

#[multiversion(targets("x86_64+avx2+fma"))]
fn divide_small<T: Scalar>(lower: MatrixView<'_, T>, x: &mut [T], stride: usize, rows: usize) {
    let order = lower.rows();
    let adjoint: Vec<T> = (0..order * order).map(|at| lower.value(at % order, at / order).conj()).collect();
    let inverses: Vec<T> = (0..order).map(|at| adjoint[at * order + at].reciprocal()).collect();
    let mut tile = [[T::ZERO; SIDE_BY_SIDE]; SMALL];
    for first in (0..rows).step_by(SIDE_BY_SIDE) {
        let count = SIDE_BY_SIDE.min(rows - first);
        for row in 0..count {
            let own = &x[(first + row) * stride..][..order];
            for (x, tile) in own.iter().zip(&mut tile) {
                tile[row] = *x;
            }
        }
        for at in 0..order {
            let (known, rest) = tile[..order].split_at_mut(at + 1);
            let own = &mut known[at];
            for x in own.iter_mut() {
                *x = *x * inverses[at];
            }
            for (rest, factor) in rest.iter_mut().zip(&adjoint[at * order + at + 1..]) {
                for row in 0..SIDE_BY_SIDE {
                    rest[row] -= own[row] * *factor;
                }
            }
        }
        for row in 0..count {
            let own = &mut x[(first + row) * stride..][..order];
            for (x, tile) in own.iter_mut().zip(&tile) {
                *x = tile[row];
            }
        }
    }
}
