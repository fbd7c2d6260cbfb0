//! Eigenvalues and eigenvectors of self-adjoint matrices: reflections make the matrix tridiagonal, rotations diagonal.

use super::reflection::{Reflections, conjugate_dot};
use super::rotation::Rotations;
use super::scalar::{Scalar, dot, largest};
use crate::numeric::Num;
use ferroflow_core::device::Threads;
use multiversion::multiversion;
use num_traits::Float as _;

/// Steps that an eigenvalue may take to be found.
const STEPS: usize = 60;

/// Writes the eigenvalues of a matrix, of which only the lower half is read, in ascending order, and the eigenvectors as
/// columns of `vectors` unless that is empty. Returns false if they are not found.
pub(crate) fn decompose<T: Scalar>(
    threads: Option<Threads<'_>>,
    matrix: &[T],
    order: usize,
    values: &mut [T::Real],
    vectors: &mut [T],
) -> bool {
    let mut work: Vec<T> = Vec::with_capacity(matrix.len());
    for (row, elements) in matrix.chunks_exact(order).enumerate() {
        work.extend_from_slice(&elements[..=row]);
        work.resize((row + 1) * order, T::ZERO);
    }
    let scale = largest(&work);
    if !num_traits::Float::is_finite(scale) {
        return false;
    }
    let scale = if scale == T::Real::ZERO { T::Real::ONE } else { scale };
    let inverse = T::Real::ONE / scale;
    for x in work.iter_mut() {
        *x = x.scaled(inverse);
    }
    let mut off = vec![T::ZERO; order];
    let mut reflections = Reflections::new(order, 1, order.saturating_sub(2));
    tridiagonalize(&mut work, order, &mut off, &mut reflections);
    for (row, value) in values.iter_mut().enumerate() {
        *value = work[row * order + row].real();
    }
    // The elements beside the diagonal are made real by turning the columns.
    let mut beside = vec![T::Real::ZERO; order];
    let mut turns = vec![T::ONE; order];
    for row in 0..order.saturating_sub(1) {
        if T::COMPLEX {
            turns[row + 1] = turns[row] * off[row].phase();
            beside[row] = off[row].modulus();
        } else {
            beside[row] = off[row].real();
        }
    }
    let wanted = !vectors.is_empty();
    // The work is done; its memory holds columns of the orthogonal matrix now.
    let basis = if wanted { &mut work[..] } else { &mut [] };
    if wanted {
        reflections.columns(threads, order, basis);
        if T::COMPLEX {
            for (row, turn) in basis.chunks_exact_mut(order).zip(&turns) {
                for x in row.iter_mut() {
                    *x = *x * *turn;
                }
            }
        }
    }
    let mut rotations = Rotations::new(basis, order, threads);
    if !diagonalize(values, &mut beside, &mut rotations) {
        return false;
    }
    rotations.apply();
    let mut sorted: Vec<usize> = (0..order).collect();
    sorted.sort_by(|a, b| values[*a].partial_cmp(&values[*b]).unwrap_or(std::cmp::Ordering::Equal));
    let found = values.to_vec();
    for (value, from) in values.iter_mut().zip(&sorted) {
        *value = found[*from] * scale;
    }
    if wanted {
        for (row, out) in vectors.chunks_exact_mut(order).enumerate() {
            for (x, from) in out.iter_mut().zip(&sorted) {
                *x = work[*from * order + row];
            }
        }
    }
    true
}

/// Leaves the diagonal of a tridiagonal matrix in `matrix`, and what is below it in `off`.
#[multiversion(targets("x86_64+avx2+fma"))]
fn tridiagonalize<T: Scalar>(
    matrix: &mut [T],
    order: usize,
    off: &mut [T],
    reflections: &mut Reflections<T>,
) {
    if order < 2 {
        return;
    }
    // Of each step, the update of the rest is left to the next one, which goes through the rows anyway.
    let (mut last_v, mut last_w) = (vec![T::ZERO; order], vec![T::ZERO; order]);
    let (mut v, mut w) = (vec![T::ZERO; order], vec![T::ZERO; order]);
    for k in 0..order - 1 {
        if k > 0 {
            // The column that the next reflection is made of.
            for row in k..order {
                let change = last_v[row] * last_w[k].conj() + last_w[row] * last_v[k].conj();
                matrix[row * order + k] -= change;
            }
        }
        if k == order - 2 {
            off[k] = matrix[(k + 1) * order + k];
            let corner = (k + 1) * order + k + 1;
            if k > 0 {
                let change = last_v[k + 1] * last_w[k + 1].conj();
                matrix[corner] -= change + change.conj();
            }
            break;
        }
        off[k] = reflections.push((k + 1..order).map(|row| matrix[row * order + k]));
        v[k + 1..].copy_from_slice(reflections.vector(k));
        w[k + 1..].fill(T::ZERO);
        for row in k + 1..order {
            let own = &mut matrix[row * order + k + 1..row * order + row + 1];
            let (head, factor) = (&v[k + 1..=row], v[row]);
            if k > 0 {
                let (x, y) = (last_v[row], last_w[row]);
                let others = last_w[k + 1..=row].iter().zip(&last_v[k + 1..=row]);
                for (a, (w, v)) in own.iter_mut().zip(others) {
                    *a -= x * w.conj() + y * v.conj();
                }
            }
            // The row times the vector, and the same elements mirrored.
            let length = own.len() - 1;
            // The diagonal is real, whatever rounding left beside.
            let sum = dot(&own[..length], &head[..length]) + factor.scaled(own[length].real());
            for (w, a) in w[k + 1..row].iter_mut().zip(&own[..length]) {
                *w += a.conj() * factor;
            }
            w[row] += sum;
        }
        // With p = 2 A v: w = p - (v* p) v, and A - v w* - w v* is the reflected matrix.
        let inner = conjugate_dot(&v[k + 1..], &w[k + 1..]);
        let two = T::Real::ONE + T::Real::ONE;
        for (w, v) in w[k + 1..].iter_mut().zip(&v[k + 1..]) {
            *w = (*w - inner * *v).scaled(two);
        }
        std::mem::swap(&mut last_v, &mut v);
        std::mem::swap(&mut last_w, &mut w);
    }
}

/// The length of a vector, whose elements are not near the largest numbers: the matrix was scaled.
#[inline(always)]
fn length<R: Scalar<Real = R> + num_traits::Float>(x: R, y: R) -> R {
    let square = x * x + y * y;
    // Squares of small numbers have lost digits.
    if square > R::min_positive_value() / R::epsilon() { num_traits::Float::sqrt(square) } else { x.hypot(y) }
}

/// Diagonalizes a real tridiagonal matrix by the implicit QL method.
fn diagonalize<T: Scalar>(
    diagonal: &mut [T::Real],
    beside: &mut [T::Real],
    rotations: &mut Rotations<'_, T>,
) -> bool {
    let (zero, one) = (T::Real::ZERO, T::Real::ONE);
    let two = one + one;
    let epsilon = T::Real::epsilon();
    let order = diagonal.len();
    for l in 0..order {
        let mut steps = 0;
        loop {
            let mut m = l;
            while m + 1 < order {
                let near = diagonal[m].abs() + diagonal[m + 1].abs();
                if beside[m].abs() <= epsilon * near {
                    beside[m] = zero;
                    break;
                }
                m += 1;
            }
            if m == l {
                break;
            }
            if steps == STEPS {
                return false;
            }
            steps += 1;
            let mut g = (diagonal[l + 1] - diagonal[l]) / (two * beside[l]);
            let mut r = length(g, one);
            g = diagonal[m] - diagonal[l] + beside[l] / (g + if g >= zero { r.abs() } else { -r.abs() });
            let (mut s, mut c, mut p) = (one, one, zero);
            let mut underflow = false;
            for i in (l..m).rev() {
                let f = s * beside[i];
                let b = c * beside[i];
                r = length(f, g);
                beside[i + 1] = r;
                if r == zero {
                    diagonal[i + 1] -= p;
                    beside[m] = zero;
                    underflow = true;
                    break;
                }
                s = f / r;
                c = g / r;
                g = diagonal[i + 1] - p;
                r = (diagonal[i] - g) * s + two * c * b;
                p = s * r;
                diagonal[i + 1] = g + p;
                g = c * r - b;
                rotations.push(i + 1, i, c, s);
            }
            if underflow {
                continue;
            }
            diagonal[l] -= p;
            beside[l] = g;
            beside[m] = zero;
        }
    }
    true
}
