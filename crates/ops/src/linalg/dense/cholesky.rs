//! Cholesky's decomposition of self-adjoint positive matrices, and its gradient.

use super::panel::{Row, WIDTH, subtract_after, subtract_product};
use super::scalar::{Scalar, subtract_multiple};
use super::triangular::{Half, divide_by_adjoint, solve, split};
use crate::linalg::product::MatrixView;
use crate::numeric::Num;
use ferroflow_core::device::Threads;
use multiversion::multiversion;

/// Matrices of at most this many rows are not split further.
const WHOLE: usize = 256;
/// Rows of a product of which only the lower half is wanted.
const BAND: usize = 128;

/// Replaces the lower half of a matrix by its factor, or returns false if the matrix is not positive. The other half is
/// neither read nor written.
pub(crate) fn factor<T: Scalar>(threads: Option<Threads<'_>>, matrix: &mut [T], order: usize) -> bool {
    factor_block(threads, matrix, order, order)
}

fn factor_block<T: Scalar>(
    threads: Option<Threads<'_>>,
    matrix: &mut [T],
    stride: usize,
    order: usize,
) -> bool {
    if order <= WIDTH {
        return factor_small(matrix, stride, order);
    }
    if order <= WHOLE {
        return factor_panels(matrix, stride, order);
    }
    let middle = split(order);
    if !factor_block(threads, matrix, stride, middle) {
        return false;
    }
    let (top, bottom) = matrix.split_at_mut(middle * stride);
    let corner = MatrixView::strided(top, (middle, middle), (stride, 1), false);
    divide_by_adjoint(threads, corner, bottom, stride, order - middle);
    let rows = order - middle;
    let panel: Vec<T> = bottom.chunks(stride).take(rows).flat_map(|row| &row[..middle]).copied().collect();
    for first in (0..rows).step_by(BAND) {
        let last = (first + BAND).min(rows);
        let left = MatrixView::new(&panel[first * middle..last * middle], last - first, middle, false);
        let right = MatrixView::adjoint(&panel[..last * middle], last, middle, true);
        T::subtract_product(threads, left, right, &mut bottom[first * stride + middle..], stride);
    }
    factor_block(threads, &mut bottom[middle..], stride, rows)
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn factor_small<T: Scalar>(matrix: &mut [T], stride: usize, order: usize) -> bool {
    let mut column = [T::ZERO; WIDTH];
    for k in 0..order {
        let pivot = matrix[k * stride + k].real();
        // What is not a number goes on, as in stock.
        if pivot <= T::Real::ZERO {
            return false;
        }
        let pivot = num_traits::Float::sqrt(pivot);
        matrix[k * stride + k] = T::from_real(pivot);
        let inverse = T::Real::ONE / pivot;
        for row in k + 1..order {
            let x = matrix[row * stride + k].scaled(inverse);
            (matrix[row * stride + k], column[row]) = (x, x.conj());
        }
        for row in k + 1..order {
            let factor = matrix[row * stride + k];
            let own = &mut matrix[row * stride + k + 1..row * stride + row + 1];
            subtract_multiple(own, factor, &column[k + 1..=row]);
        }
    }
    true
}

/// Factors a matrix panel by panel: columns are reduced by all columns on their left, then among themselves.
#[multiversion(targets("x86_64+avx2+fma"))]
fn factor_panels<T: Scalar>(matrix: &mut [T], stride: usize, order: usize) -> bool {
    let mut known: Vec<Row<T>> = vec![[T::ZERO; WIDTH]; order.saturating_sub(1) / WIDTH * WIDTH];
    let mut panel: Vec<Row<T>> = vec![[T::ZERO; WIDTH]; order];
    for first in (0..order).step_by(WIDTH) {
        let width = WIDTH.min(order - first);
        for (row, panel) in panel[first..].iter_mut().enumerate() {
            panel[..width].copy_from_slice(&matrix[(first + row) * stride + first..][..width]);
        }
        for (at, row) in (first..first + width).enumerate() {
            let row = &matrix[row * stride..][..first];
            for (known, x) in known.iter_mut().zip(row) {
                known[at] = x.conj();
            }
        }
        subtract_product(
            &mut panel[first..],
            |row| &matrix[(first + row) * stride..][..first],
            &known[..first],
        );
        if !factor_columns(&mut panel[first..], width) {
            return false;
        }
        for (row, panel) in panel[first..].iter().enumerate() {
            let width = width.min(row + 1);
            matrix[(first + row) * stride + first..][..width].copy_from_slice(&panel[..width]);
        }
    }
    true
}

/// Factors the first `width` columns, of which the rows begin at the diagonal.
#[inline(always)]
fn factor_columns<T: Scalar>(panel: &mut [Row<T>], width: usize) -> bool {
    let mut inverses = [T::Real::ZERO; WIDTH];
    let mut adjoint = [[T::ZERO; WIDTH]; WIDTH];
    let (corner, below) = panel.split_at_mut(width);
    for k in 0..width {
        let pivot = corner[k][k].real();
        // What is not a number goes on, as in stock.
        if pivot <= T::Real::ZERO {
            return false;
        }
        let pivot = num_traits::Float::sqrt(pivot);
        corner[k][k] = T::from_real(pivot);
        inverses[k] = T::Real::ONE / pivot;
        for row in k + 1..width {
            let x = corner[row][k].scaled(inverses[k]);
            (corner[row][k], adjoint[k][row]) = (x, x.conj());
        }
        for row in &mut corner[k + 1..] {
            subtract_after(row, k, row[k], &adjoint[k]);
        }
    }
    // Columns of rows side by side: what is subtracted from one row does not wait for another.
    for rows in below.chunks_mut(WIDTH) {
        let mut columns = [[T::ZERO; WIDTH]; WIDTH];
        for (at, row) in rows.iter().enumerate() {
            for (column, x) in columns.iter_mut().zip(row) {
                column[at] = *x;
            }
        }
        for k in 0..width {
            let (known, rest) = columns[..width].split_at_mut(k + 1);
            let own = &mut known[k];
            for x in own.iter_mut() {
                *x = x.scaled(inverses[k]);
            }
            for (column, factor) in rest.iter_mut().zip(&adjoint[k][k + 1..]) {
                for at in 0..WIDTH {
                    column[at] -= own[at] * *factor;
                }
            }
        }
        for (at, row) in rows.iter_mut().enumerate() {
            for (x, column) in row.iter_mut().zip(&columns) {
                *x = column[at];
            }
        }
    }
    true
}

/// Solves equations with a matrix whose factor is `lower`, in place of the right sides.
pub(crate) fn solve_factored<T: Scalar>(lower: &[T], order: usize, x: &mut [T], width: usize) {
    solve(None, MatrixView::new(lower, order, order, false), Half::Lower, x, width);
    solve(None, MatrixView::adjoint(lower, order, order, true), Half::Upper, x, width);
}

/// The gradient of the matrix whose factor is `lower`, from that of the factor; halves of both above their diagonals are
/// not read. Written as matrix products: `½ (S + Sᵀ)` with `S = L⁻ᵀ · Φ(Lᵀ · grad) · L⁻¹`, where Φ takes the lower half
/// and halves the diagonal (Murray, "Differentiation of the Cholesky decomposition").
pub(crate) fn gradient<T: Scalar>(
    threads: Option<Threads<'_>>,
    lower: &[T],
    grad: &[T],
    order: usize,
    out: &mut [T],
) {
    let below = |from: &[T]| -> Vec<T> {
        let mut matrix = from.to_vec();
        for (row, x) in matrix.chunks_mut(order).enumerate() {
            x[row + 1..].fill(T::ZERO);
        }
        matrix
    };
    let (lower, mut phi) = (below(lower), below(grad));
    let mut product = vec![T::ZERO; order * order];
    let (left, right) =
        (MatrixView::adjoint(&lower, order, order, true), MatrixView::new(&phi, order, order, false));
    T::subtract_product(threads, left, right, &mut product, order);
    let half = T::from_f64(-0.5);
    for row in 0..order {
        for column in 0..order {
            let value = match row.cmp(&column) {
                std::cmp::Ordering::Less => T::ZERO,
                std::cmp::Ordering::Equal => product[row * order + column] * half,
                std::cmp::Ordering::Greater => -product[row * order + column],
            };
            phi[row * order + column] = value;
        }
    }
    // From the left, then from the right as from the left of the transposed matrix.
    let adjoint = MatrixView::adjoint(&lower, order, order, true);
    solve(threads, adjoint, Half::Upper, &mut phi, order);
    transpose(&phi, order, &mut product);
    solve(threads, adjoint, Half::Upper, &mut product, order);
    let half = T::from_f64(0.5);
    for row in 0..order {
        for column in 0..order {
            out[row * order + column] =
                (product[row * order + column] + product[column * order + row]) * half;
        }
    }
}

fn transpose<T: Scalar>(from: &[T], order: usize, to: &mut [T]) {
    for (at, x) in to.iter_mut().enumerate() {
        *x = from[at % order * order + at / order];
    }
}
