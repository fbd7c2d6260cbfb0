//! Singular values and vectors: reflections from both sides make a matrix bidiagonal, rotations diagonal.

use super::reflection::{Reflections, conjugate_dot};
use super::rotation::Rotations;
use super::scalar::{Scalar, dot, largest, subtract_multiple};
use crate::numeric::Num;
use ferroflow_core::device::Threads;
use multiversion::multiversion;
use num_traits::Float as _;

/// Steps that a singular value may take to be found.
const STEPS: usize = 75;

/// The outputs of a decomposition `u · s · v*`, row by row; without vectors both are empty.
pub(crate) struct Parts<'a, T: Scalar> {
    pub(crate) s: &'a mut [T::Real],
    /// As many rows as the matrix.
    pub(crate) u: &'a mut [T],
    /// As many rows as the matrix has columns.
    pub(crate) v: &'a mut [T],
}

/// Decomposes a matrix of at least one element. `full` asks for square matrices of vectors. Returns false if the parts are
/// not found, as of matrices with elements that are not finite.
pub(crate) fn decompose<T: Scalar>(
    threads: Option<Threads<'_>>,
    matrix: &[T],
    (rows, columns): (usize, usize),
    full: bool,
    parts: Parts<'_, T>,
) -> bool {
    let scale = largest(matrix);
    if !num_traits::Float::is_finite(scale) {
        return false;
    }
    let scale = if scale == T::Real::ZERO { T::Real::ONE } else { scale };
    let inverse = T::Real::ONE / scale;
    // A wide matrix is the adjoint of a tall one, with the vectors exchanged.
    let wide = rows < columns;
    let (tall, least) = (rows.max(columns), rows.min(columns));
    let mut work: Vec<T> = if wide {
        (0..tall * least).map(|at| matrix[at % least * tall + at / least].conj().scaled(inverse)).collect()
    } else {
        matrix.iter().map(|x| x.scaled(inverse)).collect()
    };
    let wanted = !parts.u.is_empty() || !parts.v.is_empty();
    let mut left = Reflections::new(tall, 0, least);
    let mut right = Reflections::new(least, 1, least);
    let (mut diagonal, mut above) = (vec![T::ZERO; least], vec![T::ZERO; least]);
    bidiagonalize(&mut work, (tall, least), (&mut diagonal, &mut above), (&mut left, &mut right));
    drop(work);
    // Both diagonals are made real by turning vectors.
    let (mut left_turns, mut right_turns) = (vec![T::ONE; least], vec![T::ONE; least]);
    let mut beside = vec![T::Real::ZERO; least];
    for k in 0..least {
        if !T::COMPLEX {
            (parts.s[k], beside[k]) = (diagonal[k].real(), above[k].real());
            continue;
        }
        let element = diagonal[k] * right_turns[k];
        left_turns[k] = element.phase();
        parts.s[k] = element.modulus();
        if k + 1 < least {
            let element = left_turns[k].conj() * above[k];
            right_turns[k + 1] = element.phase().conj();
            beside[k] = element.modulus();
        }
    }
    let count = if full { tall } else { least };
    let (mut u, mut v) = (Vec::new(), Vec::new());
    if wanted {
        u.resize(count * tall, T::ZERO);
        v.resize(least * least, T::ZERO);
        left.columns(threads, count, &mut u);
        right.columns(threads, least, &mut v);
        if T::COMPLEX {
            turn(&mut u, tall, &left_turns);
            turn(&mut v, least, &right_turns);
        }
    }
    let mut u_rotations = Rotations::new(&mut u, tall, threads);
    let mut v_rotations = Rotations::new(&mut v, least, threads);
    if !diagonalize(parts.s, &mut beside, &mut u_rotations, &mut v_rotations) {
        return false;
    }
    u_rotations.apply();
    v_rotations.apply();
    let mut sorted: Vec<usize> = (0..least).collect();
    let sizes: Vec<T::Real> = parts.s.iter().map(|s| s.abs()).collect();
    sorted.sort_by(|a, b| sizes[*b].partial_cmp(&sizes[*a]).unwrap_or(std::cmp::Ordering::Equal));
    if wanted {
        for (row, s) in v.chunks_exact_mut(least).zip(&*parts.s) {
            if s.is_sign_negative() {
                for x in row.iter_mut() {
                    *x = -*x;
                }
            }
        }
        let (u_out, v_out) = if wide { (parts.v, parts.u) } else { (parts.u, parts.v) };
        let u_order: Vec<usize> = sorted.iter().copied().chain(least..count).collect();
        columns_of(&u, tall, &u_order, u_out);
        columns_of(&v, least, &sorted, v_out);
    }
    for (s, from) in parts.s.iter_mut().zip(&sorted) {
        *s = sizes[*from] * scale;
    }
    true
}

fn turn<T: Scalar>(rows: &mut [T], width: usize, turns: &[T]) {
    for (row, turn) in rows.chunks_exact_mut(width).zip(turns) {
        for x in row.iter_mut() {
            *x = *x * *turn;
        }
    }
}

/// Writes rows, in this order, as columns.
fn columns_of<T: Scalar>(rows: &[T], width: usize, order: &[usize], out: &mut [T]) {
    for (at, out) in out.chunks_exact_mut(order.len()).enumerate() {
        for (x, from) in out.iter_mut().zip(order) {
            *x = rows[*from * width + at];
        }
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn bidiagonalize<T: Scalar>(
    matrix: &mut [T],
    (rows, columns): (usize, usize),
    (diagonal, above): (&mut [T], &mut [T]),
    (left, right): (&mut Reflections<T>, &mut Reflections<T>),
) {
    let mut sums = vec![T::ZERO; columns];
    let mut conjugated = vec![T::ZERO; columns];
    for k in 0..columns {
        diagonal[k] = left.push((k..rows).map(|row| matrix[row * columns + k]));
        if k + 1 == columns {
            break;
        }
        let v = left.vector(k);
        let sums = &mut sums[k + 1..];
        sums.fill(T::ZERO);
        for (v, row) in v.iter().zip(matrix[k * columns..].chunks_exact(columns)) {
            let factor = v.conj() + v.conj();
            for (sum, x) in sums.iter_mut().zip(&row[k + 1..]) {
                *sum += factor * *x;
            }
        }
        let own = &mut matrix[k * columns + k + 1..(k + 1) * columns];
        subtract_multiple(own, v[0], sums);
        above[k] = right.push(own.iter().map(|x| x.conj())).conj();
        let w = right.vector(k);
        let conjugated = &mut conjugated[k + 1..];
        for (to, from) in conjugated.iter_mut().zip(w) {
            *to = from.conj();
        }
        for (v, row) in v[1..].iter().zip(matrix[(k + 1) * columns..].chunks_exact_mut(columns)) {
            let row = &mut row[k + 1..];
            subtract_multiple(row, *v, sums);
            let product = if T::COMPLEX { conjugate_dot(conjugated, row) } else { dot(w, row) };
            subtract_multiple(row, product + product, conjugated);
        }
    }
}

/// Diagonalizes a real bidiagonal matrix by Golub's and Kahan's method; values may end up negative.
fn diagonalize<T: Scalar>(
    s: &mut [T::Real],
    e: &mut [T::Real],
    u: &mut Rotations<'_, T>,
    v: &mut Rotations<'_, T>,
) -> bool {
    let (zero, one) = (T::Real::ZERO, T::Real::ONE);
    let two = one + one;
    let (epsilon, tiny) = (T::Real::epsilon(), T::Real::min_positive_value());
    let mut p = s.len();
    let mut steps = 0;
    while p > 0 {
        // The block that ends at p and has nothing to neglect above its diagonal begins at `start`.
        let mut start = p - 1;
        while start > 0 {
            let k = start - 1;
            if e[k].abs() <= tiny + epsilon * (s[k].abs() + s[k + 1].abs()) {
                e[k] = zero;
                break;
            }
            start -= 1;
        }
        if start == p - 1 {
            p -= 1;
            steps = 0;
            continue;
        }
        if steps == STEPS {
            return false;
        }
        steps += 1;
        // A value that counts as zero.
        let negligible = (start..p).rev().find(|k| {
            let near =
                if *k + 1 < p { e[*k].abs() } else { zero } + if *k > start { e[*k - 1].abs() } else { zero };
            s[*k].abs() <= tiny + epsilon * near
        });
        match negligible {
            Some(k) if k == p - 1 => {
                s[k] = zero;
                let mut f = e[p - 2];
                e[p - 2] = zero;
                for j in (start..p - 1).rev() {
                    let t = s[j].hypot(f);
                    let (cosine, sine) = if t == zero { (one, zero) } else { (s[j] / t, f / t) };
                    s[j] = t;
                    if j > start {
                        f = -sine * e[j - 1];
                        e[j - 1] = cosine * e[j - 1];
                    }
                    v.push(j, p - 1, cosine, sine);
                }
            }
            Some(k) => {
                s[k] = zero;
                let mut f = e[k];
                e[k] = zero;
                for j in k + 1..p {
                    let t = s[j].hypot(f);
                    let (cosine, sine) = (s[j] / t, f / t);
                    s[j] = t;
                    f = -sine * e[j];
                    if j + 1 < p {
                        e[j] = cosine * e[j];
                    }
                    u.push(j, k, cosine, sine);
                }
            }
            None => {
                let top = [s[p - 1].abs(), s[p - 2].abs(), e[p - 2].abs(), s[start].abs(), e[start].abs()];
                let scale = top.into_iter().fold(zero, |most, x| most.max(x));
                let (sp, spm1, epm1) = (s[p - 1] / scale, s[p - 2] / scale, e[p - 2] / scale);
                let (sk, ek) = (s[start] / scale, e[start] / scale);
                let b = ((spm1 + sp) * (spm1 - sp) + epm1 * epm1) / two;
                let c = (sp * epm1) * (sp * epm1);
                let mut shift = zero;
                if b != zero || c != zero {
                    let root = (b * b + c).sqrt();
                    shift = c / (b + if b < zero { -root } else { root });
                }
                let mut f = (sk + sp) * (sk - sp) + shift;
                let mut g = sk * ek;
                for j in start..p - 1 {
                    let t = f.hypot(g);
                    let (cosine, sine) = if t == zero { (one, zero) } else { (f / t, g / t) };
                    if j > start {
                        e[j - 1] = t;
                    }
                    f = cosine * s[j] + sine * e[j];
                    e[j] = cosine * e[j] - sine * s[j];
                    g = sine * s[j + 1];
                    s[j + 1] = cosine * s[j + 1];
                    v.push(j, j + 1, cosine, sine);
                    let t = f.hypot(g);
                    let (cosine, sine) = if t == zero { (one, zero) } else { (f / t, g / t) };
                    s[j] = t;
                    f = cosine * e[j] + sine * s[j + 1];
                    s[j + 1] = cosine * s[j + 1] - sine * e[j];
                    g = sine * e[j + 1];
                    e[j + 1] = cosine * e[j + 1];
                    u.push(j, j + 1, cosine, sine);
                }
                e[p - 2] = f;
            }
        }
    }
    true
}
