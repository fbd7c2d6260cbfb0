//! Eigenvalues and eigenvectors of real matrices without symmetry, by Francis' double steps. In double precision only;
//! see [`super::schur`].

use super::schur::to_hessenberg;
use ferroflow_core::C128;
use num_complex::Complex;

/// Steps in which an eigenvalue must be found.
const STEPS: usize = 40;

/// A matrix on its way to a quasi-triangular form.
struct Iteration {
    order: usize,
    h: Vec<f64>,
    /// The columns of the orthogonal matrix, as rows; empty if vectors are not wanted.
    v: Vec<f64>,
}

/// The eigenvalues of a matrix and, if wanted, eigenvectors of length one as columns; nothing if they are not found.
pub(crate) fn decompose(
    mut matrix: Vec<f64>,
    order: usize,
    wants_vectors: bool,
) -> Option<(Vec<C128>, Vec<C128>)> {
    if !matrix.iter().all(|x| x.is_finite()) {
        return None;
    }
    let reflections = to_hessenberg(&mut matrix, order);
    let mut v = vec![0.0; if wants_vectors { order * order } else { 0 }];
    if wants_vectors {
        reflections.columns(None, order, &mut v);
    }
    let mut iteration = Iteration { order, h: matrix, v };
    let values = iteration.reduce()?;
    let vectors = if wants_vectors { iteration.vectors(&values) } else { Vec::new() };
    Some((values, vectors))
}

impl Iteration {
    fn at(&self, row: usize, column: usize) -> f64 {
        self.h[row * self.order + column]
    }

    fn set(&mut self, row: usize, column: usize, value: f64) {
        self.h[row * self.order + column] = value;
    }

    /// Makes the matrix triangular but for pairs of rows, and returns the eigenvalues.
    fn reduce(&mut self) -> Option<Vec<C128>> {
        let order = self.order;
        let norm: f64 = self.h.iter().map(|x| x.abs()).sum();
        let mut values = vec![Complex::new(0.0, 0.0); order];
        let mut shift = 0.0;
        let (mut left, mut steps) = (order, 0);
        while left > 0 {
            let n = left - 1;
            // A single small element below the diagonal splits the matrix.
            let mut l = n;
            while l > 0 {
                let near = self.at(l - 1, l - 1).abs() + self.at(l, l).abs();
                let near = if near == 0.0 { norm } else { near };
                if self.at(l, l - 1).abs() < f64::EPSILON * near {
                    break;
                }
                l -= 1;
            }
            if l == n {
                let value = self.at(n, n) + shift;
                self.set(n, n, value);
                values[n] = Complex::new(value, 0.0);
                (left, steps) = (left - 1, 0);
                continue;
            }
            if l + 1 == n {
                self.finish_pair(n, shift, &mut values);
                (left, steps) = (left - 2, 0);
                continue;
            }
            steps += 1;
            if steps > STEPS {
                return None;
            }
            let mut x = self.at(n, n);
            let (mut y, mut w) = (self.at(n - 1, n - 1), self.at(n, n - 1) * self.at(n - 1, n));
            if steps == 10 {
                // Wilkinson's shift from nowhere.
                shift += x;
                for i in 0..=n {
                    self.h[i * order + i] -= x;
                }
                let s = self.at(n, n - 1).abs() + self.at(n - 1, n - 2).abs();
                (x, y, w) = (0.75 * s, 0.75 * s, -0.4375 * s * s);
            }
            if steps == 30 {
                let s = (y - x) / 2.0;
                let s = s * s + w;
                if s > 0.0 {
                    let root = if y < x { -s.sqrt() } else { s.sqrt() };
                    let s = x - w / ((y - x) / 2.0 + root);
                    for i in 0..=n {
                        self.h[i * order + i] -= s;
                    }
                    shift += s;
                    (x, y, w) = (0.964, 0.964, 0.964);
                }
            }
            self.double_step(l, n, (x, y, w));
        }
        Some(values)
    }

    /// The eigenvalues of the last two rows of a block, which are made triangular if both are real.
    fn finish_pair(&mut self, n: usize, shift: f64, values: &mut [C128]) {
        let w = self.at(n, n - 1) * self.at(n - 1, n);
        let p = (self.at(n - 1, n - 1) - self.at(n, n)) / 2.0;
        let q = p * p + w;
        let mut z = q.abs().sqrt();
        let x = self.at(n, n) + shift;
        self.set(n, n, x);
        self.set(n - 1, n - 1, self.at(n - 1, n - 1) + shift);
        if q < 0.0 {
            values[n - 1] = Complex::new(x + p, z);
            values[n] = Complex::new(x + p, -z);
            return;
        }
        z = if p >= 0.0 { p + z } else { p - z };
        values[n - 1] = Complex::new(x + z, 0.0);
        values[n] = Complex::new(if z != 0.0 { x - w / z } else { x + z }, 0.0);
        let below = self.at(n, n - 1);
        let scale = below.abs() + z.abs();
        let (p, q) = (below / scale, z / scale);
        let r = p.hypot(q);
        let (p, q) = (p / r, q / r);
        let order = self.order;
        let (above, own) = self.h.split_at_mut(n * order);
        rotate(&mut above[(n - 1) * order + n - 1..], &mut own[n - 1..order], p, q);
        for row in self.h.chunks_exact_mut(order).take(n + 1) {
            let z = row[n - 1];
            row[n - 1] = q * z + p * row[n];
            row[n] = q * row[n] - p * z;
        }
        if !self.v.is_empty() {
            let (above, own) = self.v.split_at_mut(n * order);
            rotate(&mut above[(n - 1) * order..], &mut own[..order], p, q);
        }
    }

    /// A double step on the rows `l` to `n`.
    fn double_step(&mut self, l: usize, n: usize, (x, y, w): (f64, f64, f64)) {
        let order = self.order;
        // Two small elements in a row let the step begin later.
        let mut m = n - 2;
        let (mut p, mut q, mut r);
        loop {
            let z = self.at(m, m);
            let (from_x, from_y) = (x - z, y - z);
            p = (from_x * from_y - w) / self.at(m + 1, m) + self.at(m, m + 1);
            q = self.at(m + 1, m + 1) - z - from_x - from_y;
            r = self.at(m + 2, m + 1);
            let scale = p.abs() + q.abs() + r.abs();
            (p, q, r) = (p / scale, q / scale, r / scale);
            if m == l {
                break;
            }
            let small = self.at(m, m - 1).abs() * (q.abs() + r.abs());
            let near = self.at(m - 1, m - 1).abs() + z.abs() + self.at(m + 1, m + 1).abs();
            if small < f64::EPSILON * p.abs() * near {
                break;
            }
            m -= 1;
        }
        for i in m + 2..=n {
            self.set(i, i - 2, 0.0);
            if i > m + 2 {
                self.set(i, i - 3, 0.0);
            }
        }
        for k in m..n {
            let has_third = k + 1 != n;
            let mut scale = 1.0;
            if k != m {
                p = self.at(k, k - 1);
                q = self.at(k + 1, k - 1);
                r = if has_third { self.at(k + 2, k - 1) } else { 0.0 };
                scale = p.abs() + q.abs() + r.abs();
                if scale == 0.0 {
                    continue;
                }
                (p, q, r) = (p / scale, q / scale, r / scale);
            }
            let s = (p * p + q * q + r * r).sqrt();
            let s = if p < 0.0 { -s } else { s };
            if s == 0.0 {
                continue;
            }
            if k != m {
                self.set(k, k - 1, -s * scale);
            } else if l != m {
                self.set(k, k - 1, -self.at(k, k - 1));
            }
            p += s;
            let reflection = Reflection3 { x: p / s, y: q / s, z: r / s, q: q / p, r: r / p };
            (q, r) = (q / p, r / p);
            reflection.rows(&mut self.h[k * order..], order, k, has_third);
            let last = n.min(k + 3);
            for row in self.h.chunks_exact_mut(order).take(last + 1) {
                let mut sum = reflection.x * row[k] + reflection.y * row[k + 1];
                if has_third {
                    sum += reflection.z * row[k + 2];
                    row[k + 2] -= sum * r;
                }
                row[k] -= sum;
                row[k + 1] -= sum * q;
            }
            if !self.v.is_empty() {
                reflection.columns(&mut self.v[k * order..], order, has_third);
            }
        }
    }

    /// The eigenvectors as columns, each of length one.
    fn vectors(&self, values: &[C128]) -> Vec<C128> {
        let order = self.order;
        let norm: f64 = self.h.iter().map(|x| x.abs()).sum::<f64>().max(f64::MIN_POSITIVE);
        let mut vectors = vec![Complex::new(0.0, 0.0); order * order];
        for (k, value) in values.iter().enumerate() {
            if value.im < 0.0 {
                continue;
            }
            // Of a pair the first is solved for, and the second is its conjugate.
            let own = self.triangular_vector(k, values, norm);
            let mut column = vec![Complex::new(0.0, 0.0); order];
            for (factor, v) in own.iter().zip(self.v.chunks_exact(order)) {
                for (sum, v) in column.iter_mut().zip(v) {
                    *sum += *factor * *v;
                }
            }
            let length = column.iter().map(|x| x.norm_sqr()).sum::<f64>().sqrt();
            for (row, x) in column.into_iter().enumerate() {
                let x = x / length;
                vectors[row * order + k] = x;
                if value.im > 0.0 && k + 1 < order {
                    vectors[row * order + k + 1] = x.conj();
                }
            }
        }
        vectors
    }

    /// A vector of the quasi-triangular matrix, by substitution from its last element on.
    fn triangular_vector(&self, k: usize, values: &[C128], norm: f64) -> Vec<C128> {
        let value = values[k];
        let zero = Complex::new(0.0, 0.0);
        let tiny = Complex::new(f64::EPSILON * norm, 0.0);
        let top = if value.im > 0.0 { k + 1 } else { k };
        let mut x = vec![zero; top + 1];
        let mut row = top as isize;
        if value.im > 0.0 {
            // From the second row of the pair: h(k+1,k) x(k) + (h(k+1,k+1) - value) x(k+1) = 0.
            x[k + 1] = Complex::new(1.0, 0.0);
            x[k] = (value - self.at(k + 1, k + 1)) / self.at(k + 1, k);
            // Both are brought to a size near one.
            let size = x[k].norm().max(1.0);
            (x[k], x[k + 1]) = (x[k] / size, x[k + 1] / size);
            row = k as isize;
        } else {
            x[k] = Complex::new(1.0, 0.0);
        }
        row -= 1;
        while row >= 0 {
            let i = row as usize;
            let sum = |i: usize, x: &[C128], from: usize| {
                (from..x.len()).fold(zero, |sum, j| sum - x[j] * self.at(i, j))
            };
            if i > 0 && values[i].im < 0.0 {
                // Two rows of a pair at once.
                let (a, b) = (self.at(i - 1, i - 1) - value, self.at(i - 1, i));
                let (c, d) = (self.at(i, i - 1), self.at(i, i) - value);
                let (first, second) = (sum(i - 1, &x, i + 1), sum(i, &x, i + 1));
                let determinant = a * d - b * c;
                let determinant = if determinant == zero { tiny } else { determinant };
                x[i - 1] = (first * d - second * b) / determinant;
                x[i] = (a * second - first * c) / determinant;
                row -= 2;
            } else {
                let gap = Complex::new(self.at(i, i), 0.0) - value;
                let gap = if gap == zero { tiny } else { gap };
                x[i] = sum(i, &x, i + 1) / gap;
                row -= 1;
            }
        }
        x
    }
}

/// Rotates two rows into `q x + p y` and `q y - p x`.
fn rotate(x: &mut [f64], y: &mut [f64], p: f64, q: f64) {
    for (x, y) in x.iter_mut().zip(y) {
        let z = *x;
        *x = q * z + p * *y;
        *y = q * *y - p * z;
    }
}

/// A reflection of three neighboring rows or columns.
#[derive(Clone, Copy)]
struct Reflection3 {
    x: f64,
    y: f64,
    z: f64,
    q: f64,
    r: f64,
}

impl Reflection3 {
    /// Reflects the first two or three of `rows`, from a column on.
    fn rows(self, rows: &mut [f64], order: usize, from: usize, has_third: bool) {
        let (first, rest) = rows.split_at_mut(order);
        let (second, rest) = rest.split_at_mut(order);
        let (first, second) = (&mut first[from..], &mut second[from..]);
        if !has_third {
            for (a, b) in first.iter_mut().zip(second) {
                let sum = *a + self.q * *b;
                *a -= sum * self.x;
                *b -= sum * self.y;
            }
            return;
        }
        let third = &mut rest[from..order];
        for ((a, b), c) in first.iter_mut().zip(second).zip(third) {
            let sum = *a + self.q * *b + self.r * *c;
            *a -= sum * self.x;
            *b -= sum * self.y;
            *c -= sum * self.z;
        }
    }

    /// Reflects columns of the orthogonal matrix, which are rows here.
    fn columns(self, rows: &mut [f64], order: usize, has_third: bool) {
        let (first, rest) = rows.split_at_mut(order);
        let (second, rest) = rest.split_at_mut(order);
        if !has_third {
            for (a, b) in first.iter_mut().zip(second) {
                let sum = self.x * *a + self.y * *b;
                *a -= sum;
                *b -= sum * self.q;
            }
            return;
        }
        for ((a, b), c) in first.iter_mut().zip(second).zip(&mut rest[..order]) {
            let sum = self.x * *a + self.y * *b + self.z * *c;
            *a -= sum;
            *b -= sum * self.q;
            *c -= sum * self.r;
        }
    }
}
