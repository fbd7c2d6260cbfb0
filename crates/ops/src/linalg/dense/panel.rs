//! Blocks of matrices that factorizations hold in registers and in the nearest cache: some rows of [`WIDTH`] columns. For
//! matrices of a hundred rows, calls of the matrix product would cost more than the products.

use super::scalar::Scalar;

/// Columns that are eliminated together.
pub(super) const WIDTH: usize = 16;

/// Rows that a product is subtracted from together.
const GROUP: usize = 4;

/// A row of a block.
pub(super) type Row<T> = [T; WIDTH];

/// Subtracts from rows of a block the product of `left`, which has a row of factors for each, and `right`. The rows of a
/// group are summed in registers while one row of `right` after the other is loaded.
#[inline(always)]
pub(super) fn subtract_product<'a, T: Scalar>(
    block: &mut [Row<T>],
    left: impl Fn(usize) -> &'a [T],
    right: &[Row<T>],
) {
    let Some(last) = block.len().checked_sub(1) else { return };
    for first in (0..=last).step_by(GROUP) {
        // A group that would end after the last row repeats that one.
        let rows: [usize; GROUP] = std::array::from_fn(|at| (first + at).min(last));
        let factors: [&[T]; GROUP] = rows.map(|row| &left(row)[..right.len()]);
        let mut sums: [Row<T>; GROUP] = rows.map(|row| block[row]);
        for (at, right) in right.iter().enumerate() {
            for (sum, factors) in sums.iter_mut().zip(&factors) {
                for column in 0..WIDTH {
                    sum[column] -= factors[at] * right[column];
                }
            }
        }
        for (row, sum) in rows.into_iter().zip(sums) {
            block[row] = sum;
        }
    }
}

/// Subtracts a multiple of one row from another, right of a column. What is left of it is not touched by numbers that are
/// infinite or none.
#[inline(always)]
pub(super) fn subtract_after<T: Scalar>(row: &mut Row<T>, column: usize, factor: T, other: &Row<T>) {
    for at in 0..WIDTH {
        let reduced = row[at] - factor * other[at];
        row[at] = if at > column { reduced } else { row[at] };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::dense::{cholesky, lu};
    use crate::numeric::Num;
    use ferroflow_core::{C64, C128};

    /// Orders below and above the widths of panels and the sizes at which matrices are split.
    const ORDERS: [usize; 11] = [1, 4, 15, 16, 17, 32, 33, 63, 100, 129, 260];

    fn numbers<T: Scalar>(count: usize) -> Vec<T> {
        let mut state = 1u32;
        let mut draw = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            T::Real::from_f64(f64::from(state >> 8) / f64::from(1 << 24) - 0.5)
        };
        (0..count).map(|_| T::from_parts(draw(), draw())).collect()
    }

    type Elements<'a, T> = &'a dyn Fn(usize, usize) -> T;

    /// Some elements of a product, with their places: all of a small one.
    fn product<T: Scalar>(order: usize, x: Elements<'_, T>, y: Elements<'_, T>) -> Vec<(usize, T)> {
        let element = |at: usize| {
            let (row, column) = (at / order, at % order);
            (at, (0..order).fold(T::ZERO, |sum, k| sum + x(row, k) * y(k, column)))
        };
        let step = if order > 64 { 37 } else { 1 };
        (0..order * order).step_by(step).map(element).collect()
    }

    fn is_near<T: Scalar>(x: T, y: T, order: usize) -> bool {
        let (x, y) = (x.to_double(), y.to_double());
        let epsilon = if size_of::<T::Real>() == 4 { 1e-6 } else { 1e-14 };
        (x - y).norm() <= epsilon * order as f64 * (1.0 + y.norm())
    }

    fn factors_give_the_matrix_back<T: Scalar>() {
        for order in ORDERS {
            let random: Vec<T> = numbers(order * order);
            let mut factors = random.clone();
            let exchanges = lu::factor(None, &mut factors, order);
            let factors = &factors;
            let lower = |row: usize, column: usize| match row.cmp(&column) {
                std::cmp::Ordering::Less => T::ZERO,
                std::cmp::Ordering::Equal => T::ONE,
                std::cmp::Ordering::Greater => factors[row * order + column],
            };
            let upper = |row: usize, column: usize| {
                if row <= column { factors[row * order + column] } else { T::ZERO }
            };
            for (at, x) in product(order, &lower, &upper) {
                let expected = random[exchanges.rows[at / order] * order + at % order];
                assert!(is_near(x, expected, order), "element {at} of order {order}: {x:?} {expected:?}");
            }

            // A matrix with a diagonal that is larger than all else in a row is positive.
            let at = |row: usize, column: usize| random[row * order + column];
            let sum = |row: usize, column: usize| at(row, column) + at(column, row).conj();
            let mut matrix: Vec<T> = (0..order * order).map(|at| sum(at / order, at % order)).collect();
            let more = T::from_f64(2.0 * order as f64);
            (0..order).for_each(|row| matrix[row * order + row] += more);
            let mut factor = matrix.clone();
            // What is above the diagonal is neither read nor written.
            let nothing = T::from_real(num_traits::Float::nan());
            (0..order).for_each(|row| factor[row * order + row + 1..(row + 1) * order].fill(nothing));
            assert!(cholesky::factor(None, &mut factor, order));
            let lower = |row: usize, column: usize| {
                if row >= column { factor[row * order + column] } else { T::ZERO }
            };
            let back = product(order, &lower, &|row, column| lower(column, row).conj());
            for (at, x) in back {
                let expected = matrix[at];
                assert!(is_near(x, expected, order), "element {at} of order {order}: {x:?} {expected:?}");
                let is_above = at / order < at % order;
                assert_eq!(is_above, factor[at].to_double().is_nan(), "element {at} of order {order}");
            }

            matrix[order * order - 1] = T::from_f64(-1.0);
            assert!(!cholesky::factor(None, &mut matrix, order), "the last pivot is negative");
        }
    }

    #[test]
    fn factors_of_all_types_give_the_matrix_back() {
        factors_give_the_matrix_back::<f32>();
        factors_give_the_matrix_back::<f64>();
        factors_give_the_matrix_back::<C64>();
        factors_give_the_matrix_back::<C128>();
    }

    #[test]
    fn what_is_not_a_number_stays_right_of_its_column() {
        let order = 40;
        let mut matrix = vec![0.0f32; order * order];
        (0..order).for_each(|row| matrix[row * order + row] = 4.0);
        matrix[20 * order + 20] = f32::NAN;
        assert!(cholesky::factor(None, &mut matrix, order));
        for row in 0..order {
            for column in 0..row.min(20) {
                assert_eq!(matrix[row * order + column], 0.0, "element {row}, {column}");
            }
        }
        assert!(matrix[20 * order + 20].is_nan());
    }
}
