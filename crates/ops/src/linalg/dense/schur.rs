//! Schur's form of complex matrices: `u · t · u*` with a triangular `t`. Computed in double precision only: callers with
//! less convert, because the method is about convergence, not about speed.

use super::reflection::Reflections;
use super::scalar::{Scalar, subtract_multiple};
use crate::numeric::Num;
use ferroflow_core::C128;
use multiversion::multiversion;

/// Steps per row in which the form must be reached.
const STEPS: usize = 30;

/// A triangular matrix, and the columns of the unitary one as rows.
pub(crate) struct Schur {
    pub(crate) order: usize,
    pub(crate) t: Vec<C128>,
    /// Empty if not wanted.
    pub(crate) u: Vec<C128>,
}

/// The form of a matrix, or nothing if it is not reached.
pub(crate) fn decompose(mut matrix: Vec<C128>, order: usize, wants_u: bool) -> Option<Schur> {
    if !matrix.iter().all(|x| Scalar::is_finite(*x)) {
        return None;
    }
    let reflections = to_hessenberg(&mut matrix, order);
    let mut u = vec![C128::ZERO; if wants_u { order * order } else { 0 }];
    if wants_u {
        reflections.columns(None, order, &mut u);
    }
    let mut schur = Schur { order, t: matrix, u };
    schur.reduce().then_some(schur)
}

/// Makes a matrix zero below the elements under its diagonal, by reflections from both sides.
#[multiversion(targets("x86_64+avx2+fma"))]
pub(super) fn to_hessenberg<T: Scalar>(matrix: &mut [T], order: usize) -> Reflections<T> {
    let mut reflections = Reflections::new(order, 1, order.saturating_sub(2));
    let mut sums = vec![T::ZERO; order];
    for k in 0..order.saturating_sub(2) {
        let image = reflections.push((k + 1..order).map(|row| matrix[row * order + k]));
        let v = reflections.vector(k);
        matrix[(k + 1) * order + k] = image;
        for row in k + 2..order {
            matrix[row * order + k] = T::ZERO;
        }
        let sums = &mut sums[k + 1..];
        sums.fill(T::ZERO);
        let (above, below) = matrix.split_at_mut((k + 1) * order);
        for (v, row) in v.iter().zip(below.chunks_exact(order)) {
            let factor = v.conj() + v.conj();
            for (sum, x) in sums.iter_mut().zip(&row[k + 1..]) {
                *sum += factor * *x;
            }
        }
        for (v, row) in v.iter().zip(below.chunks_exact_mut(order)) {
            subtract_multiple(&mut row[k + 1..], *v, sums);
        }
        for row in above.chunks_exact_mut(order).chain(below.chunks_exact_mut(order)) {
            let row = &mut row[k + 1..];
            let product = row.iter().zip(v).fold(T::ZERO, |sum, (x, v)| sum + *x * *v);
            let factor = product + product;
            for (x, v) in row.iter_mut().zip(v) {
                *x -= factor * v.conj();
            }
        }
    }
    reflections
}

/// A rotation that leaves of two elements the first.
#[derive(Clone, Copy)]
struct Turn {
    cosine: f64,
    sine: C128,
}

impl Turn {
    fn new(x: C128, y: C128) -> Turn {
        let norm = x.modulus().hypot(y.modulus());
        if norm == 0.0 {
            return Turn { cosine: 1.0, sine: C128::ZERO };
        }
        Turn { cosine: x.modulus() / norm, sine: x.phase() * Scalar::scaled(y, 1.0 / norm).conj() }
    }

    /// Rotates two rows.
    #[inline(always)]
    fn rows(self, x: &mut [C128], y: &mut [C128], sine: C128) {
        for (x, y) in x.iter_mut().zip(y) {
            let (p, q) = (*x, *y);
            *x = p.scaled(self.cosine) + sine * q;
            *y = q.scaled(self.cosine) - sine.conj() * p;
        }
    }
}

impl Schur {
    fn at(&mut self, row: usize, column: usize) -> &mut C128 {
        &mut self.t[row * self.order + column]
    }

    fn value(&self, row: usize, column: usize) -> C128 {
        self.t[row * self.order + column]
    }

    /// Whether the element below the diagonal at this column counts as zero, which it is afterwards.
    fn is_split(&mut self, column: usize) -> bool {
        let near = self.value(column, column).size() + self.value(column + 1, column + 1).size();
        let below = self.value(column + 1, column).size();
        if below <= near * f64::EPSILON {
            *self.at(column + 1, column) = C128::ZERO;
            return true;
        }
        false
    }

    fn reduce(&mut self) -> bool {
        let order = self.order;
        let (mut end, mut steps, mut total) = (order.saturating_sub(1), 0, 0);
        loop {
            while end > 0 && self.is_split(end - 1) {
                (end, steps) = (end - 1, 0);
            }
            if end == 0 {
                return true;
            }
            steps += 1;
            total += 1;
            if total > STEPS * order {
                return false;
            }
            let mut start = end - 1;
            while start > 0 && !self.is_split(start - 1) {
                start -= 1;
            }
            let shift = self.shift(end, steps);
            let (x, y) = (self.value(start, start) - shift, self.value(start + 1, start));
            self.turn(start, Turn::new(x, y), start, end);
            for k in start + 1..end {
                let turn = Turn::new(self.value(k, k - 1), self.value(k + 1, k - 1));
                self.turn(k, turn, k - 1, end);
                *self.at(k + 1, k - 1) = C128::ZERO;
            }
        }
    }

    /// The eigenvalue of the last two rows of a block that is nearest to its last element.
    fn shift(&self, end: usize, steps: usize) -> C128 {
        if steps == 10 || steps == 20 {
            // A shift from nowhere, for matrices that the other one leaves as they are.
            let above = if end > 1 { self.value(end - 1, end - 2).re.abs() } else { 0.0 };
            return C128::new(self.value(end, end - 1).re.abs() + above, 0.0);
        }
        let [a, b] = [self.value(end - 1, end - 1), self.value(end - 1, end)];
        let [c, d] = [self.value(end, end - 1), self.value(end, end)];
        let norm = a.modulus() + b.modulus() + c.modulus() + d.modulus();
        let [a, b, c, d] = [a, b, c, d].map(|x| x.scaled(1.0 / norm));
        let root = ((a - d) * (a - d) + (b * c).scaled(4.0)).sqrt();
        let (determinant, trace) = (a * d - b * c, a + d);
        let (mut first, mut second) = ((trace + root).scaled(0.5), (trace - root).scaled(0.5));
        if first.size() > second.size() {
            second = determinant / first;
        } else if second != C128::ZERO {
            first = determinant / second;
        }
        let near = if (first - d).size() < (second - d).size() { first } else { second };
        near.scaled(norm)
    }

    /// Rotates the rows `k` and `k + 1` from a column on, and the columns of the same numbers.
    fn turn(&mut self, k: usize, turn: Turn, first: usize, end: usize) {
        rotate(&mut self.t, self.order, k, first, turn, turn.sine);
        let last = (k + 2).min(end);
        for row in self.t.chunks_exact_mut(self.order).take(last + 1) {
            let (x, y) = (row[k], row[k + 1]);
            row[k] = x.scaled(turn.cosine) + turn.sine.conj() * y;
            row[k + 1] = y.scaled(turn.cosine) - turn.sine * x;
        }
        if !self.u.is_empty() {
            rotate(&mut self.u, self.order, k, 0, turn, turn.sine.conj());
        }
    }

    /// The eigenvectors as columns, each of length one.
    pub(crate) fn vectors(&self) -> Vec<C128> {
        let order = self.order;
        let norm = self.t.iter().fold(0.0, |sum: f64, x| sum + x.square()).sqrt();
        // Vectors of the triangular matrix, as rows.
        let mut own = vec![C128::ZERO; order * order];
        for (k, x) in own.chunks_exact_mut(order).enumerate() {
            x[k] = C128::ONE;
            for i in (0..k).rev() {
                let row = &self.t[i * order..(i + 1) * order];
                let sum = (i + 1..=k).fold(C128::ZERO, |sum, j| sum - row[j] * x[j]);
                let gap = row[i] - self.value(k, k);
                // Equal eigenvalues are told apart by rounding alone.
                let gap = if gap == C128::ZERO { C128::new(f64::EPSILON * norm, 0.0) } else { gap };
                x[i] = sum / gap;
            }
        }
        let mut vectors = vec![C128::ZERO; order * order];
        for (k, x) in own.chunks_exact(order).enumerate() {
            let mut column = vec![C128::ZERO; order];
            for (factor, u) in x[..=k].iter().zip(self.u.chunks_exact(order)) {
                for (sum, u) in column.iter_mut().zip(u) {
                    *sum += *factor * *u;
                }
            }
            let norm = column.iter().fold(0.0, |sum: f64, x| sum + x.square()).sqrt();
            for (row, x) in column.into_iter().enumerate() {
                vectors[row * order + k] = x.scaled(1.0 / norm);
            }
        }
        vectors
    }
}

/// Rotates two neighboring rows from a column on.
#[multiversion(targets("x86_64+avx2+fma"))]
fn rotate(matrix: &mut [C128], order: usize, k: usize, first: usize, turn: Turn, sine: C128) {
    let (above, below) = matrix.split_at_mut((k + 1) * order);
    turn.rows(&mut above[k * order + first..], &mut below[first..order], sine);
}
