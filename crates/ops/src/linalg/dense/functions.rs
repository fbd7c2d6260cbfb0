//! The exponential, logarithm and square root of matrices, in double precision.

use super::lu;
use super::scalar::Scalar;
use super::schur::{Schur, decompose};
use crate::linalg::product::{MatrixView, Subtract};
use ferroflow_core::C128;
use num_complex::Complex;

/// Coefficients of the numerator of Padé's approximation of the exponential, of degree 13 (Higham, "The scaling and
/// squaring method for the matrix exponential revisited").
const EXPONENTIAL: [f64; 14] = [
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
];

/// The norm up to which the approximation is good to the last digit.
const EXPONENTIAL_NORM: f64 = 5.371920351148152;

/// The exponential of a matrix.
pub(crate) fn exponential<T: Scalar<Real = f64>>(matrix: &[T], order: usize) -> Vec<T> {
    let norm = (0..order)
        .map(|column| (0..order).map(|row| matrix[row * order + column].modulus()).sum::<f64>())
        .fold(0.0, f64::max);
    let squarings = if norm > EXPONENTIAL_NORM && norm.is_finite() {
        (norm / EXPONENTIAL_NORM).log2().ceil() as i32
    } else {
        0
    };
    let scale = 0.5f64.powi(squarings);
    let a: Vec<T> = matrix.iter().map(|x| x.scaled(scale)).collect();
    let a2 = product(&a, &a, order);
    let a4 = product(&a2, &a2, order);
    let a6 = product(&a4, &a2, order);
    let b = EXPONENTIAL;
    let sum = |factors: [f64; 4]| -> Vec<T> {
        let mut sum: Vec<T> = (0..order * order)
            .map(|at| a6[at].scaled(factors[3]) + a4[at].scaled(factors[2]) + a2[at].scaled(factors[1]))
            .collect();
        for at in 0..order {
            sum[at * order + at] += T::from_real(factors[0]);
        }
        sum
    };
    let mut odd = product(&a6, &sum([0.0, b[9], b[11], b[13]]), order);
    for (x, y) in odd.iter_mut().zip(sum([b[1], b[3], b[5], b[7]])) {
        *x += y;
    }
    let odd = product(&a, &odd, order);
    let mut even = product(&a6, &sum([0.0, b[8], b[10], b[12]]), order);
    for (x, y) in even.iter_mut().zip(sum([b[0], b[2], b[4], b[6]])) {
        *x += y;
    }
    let numerator: Vec<T> = even.iter().zip(&odd).map(|(even, odd)| *even + *odd).collect();
    let mut denominator: Vec<T> = even.iter().zip(&odd).map(|(even, odd)| *even - *odd).collect();
    let exchanges = lu::factor(None, &mut denominator, order);
    let mut result: Vec<T> =
        exchanges.rows.iter().flat_map(|row| &numerator[row * order..(row + 1) * order]).copied().collect();
    lu::solve_factored(None, &denominator, order, &mut result, order);
    for _ in 0..squarings {
        result = product(&result, &result, order);
    }
    result
}

fn product<T: Scalar>(x: &[T], y: &[T], order: usize) -> Vec<T> {
    let mut out = vec![T::ZERO; order * order];
    let negative: Vec<T> = x.iter().map(|x| -*x).collect();
    let (x, y) = (MatrixView::new(&negative, order, order, false), MatrixView::new(y, order, order, false));
    T::subtract_product(None, x, y, &mut out, order);
    out
}

/// The principal square root of a matrix, or nothing if it has none that can be found.
pub(crate) fn square_root(matrix: Vec<C128>, order: usize) -> Option<Vec<C128>> {
    let schur = decompose(matrix, order, true)?;
    let root = triangular_root(&schur.t, order);
    Some(turned_back(&schur, &root))
}

/// The square root of an upper triangular matrix (Björck and Hammarling).
fn triangular_root(t: &[C128], order: usize) -> Vec<C128> {
    let mut root = vec![C128::ZERO; order * order];
    for j in 0..order {
        root[j * order + j] = t[j * order + j].sqrt();
        for i in (0..j).rev() {
            let sum =
                (i + 1..j).fold(t[i * order + j], |sum, k| sum - root[i * order + k] * root[k * order + j]);
            root[i * order + j] =
                if sum == C128::ZERO { sum } else { sum / (root[i * order + i] + root[j * order + j]) };
        }
    }
    root
}

/// The matrix of a triangular one, with the vectors of the form that it belongs to.
fn turned_back(schur: &Schur, t: &[C128]) -> Vec<C128> {
    let order = schur.order;
    // The rows of `u` are the columns of the unitary matrix.
    let negative: Vec<C128> = schur.u.iter().map(|x| -*x).collect();
    let unitary = MatrixView::new(&negative, order, order, true);
    let mut left = vec![C128::ZERO; order * order];
    C128::subtract_product(None, unitary, MatrixView::new(t, order, order, false), &mut left, order);
    let conjugates: Vec<C128> = negative.iter().map(|x| x.conj()).collect();
    let mut out = vec![C128::ZERO; order * order];
    let (left, right) =
        (MatrixView::new(&left, order, order, false), MatrixView::new(&conjugates, order, order, false));
    C128::subtract_product(None, left, right, &mut out, order);
    out
}

/// Places and weights of Gauss' and Legendre's quadrature between zero and one, with seven places: the partial fractions
/// of Padé's approximation of the logarithm.
const QUADRATURE: [(f64, f64); 7] = [
    (0.02544604382862074, 0.06474248308443485),
    (0.12923440720030278, 0.13985269574463834),
    (0.2970774243113014, 0.19091502525255946),
    (0.5, 0.2089795918367347),
    (0.7029225756886985, 0.19091502525255946),
    (0.8707655927996972, 0.13985269574463834),
    (0.9745539561713793, 0.06474248308443485),
];

/// The distance from one up to which the approximation is good to the last digit.
const LOGARITHM_NORM: f64 = 0.25;

/// Square roots after which every matrix that has a logarithm is near one.
const MOST_ROOTS: usize = 64;

/// The principal logarithm of a matrix, or nothing if it is not found.
pub(crate) fn logarithm(matrix: Vec<C128>, order: usize) -> Option<Vec<C128>> {
    let schur = decompose(matrix, order, true)?;
    let mut t = schur.t.clone();
    let mut roots = 0;
    while roots < MOST_ROOTS && distance_from_one(&t, order) > LOGARITHM_NORM {
        t = triangular_root(&t, order);
        roots += 1;
    }
    for at in 0..order {
        t[at * order + at] -= C128::ONE;
    }
    let mut sum = vec![C128::ZERO; order * order];
    for (place, weight) in QUADRATURE {
        // (1 + place · x)⁻¹ · x, column by column from the last row up.
        let mut matrix: Vec<C128> = t.iter().map(|x| x.scaled(place)).collect();
        for at in 0..order {
            matrix[at * order + at] += C128::ONE;
        }
        let mut part = t.clone();
        let view = MatrixView::new(&matrix, order, order, false);
        super::triangular::solve(None, view, super::triangular::Half::Upper, &mut part, order);
        for (sum, x) in sum.iter_mut().zip(part) {
            *sum += x.scaled(weight);
        }
    }
    let scale = 2.0f64.powi(roots as i32);
    for x in sum.iter_mut() {
        *x = x.scaled(scale);
    }
    // The diagonal needs no approximation.
    (0..order).for_each(|at| sum[at * order + at] = Complex::ln(schur.t[at * order + at]));
    Some(turned_back(&schur, &sum))
}

fn distance_from_one(t: &[C128], order: usize) -> f64 {
    let size = |row: usize, column: usize| {
        let one = if row == column { C128::ONE } else { C128::ZERO };
        (t[row * order + column] - one).modulus()
    };
    (0..order).map(|column| (0..=column).map(|row| size(row, column)).sum::<f64>()).fold(0.0, f64::max)
}
