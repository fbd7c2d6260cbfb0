//! Rotations of pairs of rows, collected and applied many at a time while columns of the matrix are in a cache.

use super::scalar::Scalar;
use ferroflow_core::device::Threads;
use multiversion::multiversion;

/// A rotation of two rows `x` and `y` into `cosine · x + sine · y` and `cosine · y - sine · x`.
#[derive(Clone, Copy, Debug)]
struct Rotation<R> {
    x: u32,
    y: u32,
    cosine: R,
    sine: R,
}

/// Rotations of the rows of a matrix that are still to be applied.
pub(crate) struct Rotations<'a, T: Scalar> {
    /// The rotated matrix; empty if nobody wants it.
    rows: &'a mut [T],
    width: usize,
    pending: Vec<Rotation<T::Real>>,
    threads: Option<Threads<'a>>,
}

/// Rotations that are collected, at most.
const PENDING: usize = 8192;
/// The fewest elements of a row that a thread is given.
const LEAST_COLUMNS: usize = 32;

impl<'a, T: Scalar> Rotations<'a, T> {
    pub(crate) fn new(rows: &'a mut [T], width: usize, threads: Option<Threads<'a>>) -> Rotations<'a, T> {
        Rotations { rows, width, pending: Vec::new(), threads }
    }

    /// Adds a rotation.
    #[inline]
    pub(crate) fn push(&mut self, x: usize, y: usize, cosine: T::Real, sine: T::Real) {
        if self.rows.is_empty() {
            return;
        }
        self.pending.push(Rotation { x: x as u32, y: y as u32, cosine, sine });
        if self.pending.len() >= PENDING {
            self.apply();
        }
    }

    /// Applies what was collected.
    pub(crate) fn apply(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        match self.threads {
            Some(threads) if self.pending.len() * self.width >= 1 << 18 && threads.count() > 1 => {
                self.apply_by_threads(threads);
            }
            _ => {
                let mut rows: Vec<&mut [T]> = self.rows.chunks_exact_mut(self.width).collect();
                rotate(&mut rows, &self.pending);
            }
        }
        self.pending.clear();
    }

    /// Shares columns among threads.
    fn apply_by_threads(&mut self, threads: Threads<'_>) {
        let (width, pending) = (self.width, &self.pending);
        let part = width.div_ceil(threads.count()).max(LEAST_COLUMNS);
        let parts = width.div_ceil(part);
        let mut split: Vec<Vec<&mut [T]>> = (0..parts).map(|_| Vec::new()).collect();
        for row in self.rows.chunks_exact_mut(width) {
            for (parts, piece) in split.iter_mut().zip(row.chunks_mut(part)) {
                parts.push(piece);
            }
        }
        threads.run_each(split, &|_, mut rows| rotate(&mut rows, pending));
    }
}

/// Rotates pieces of rows, some 128 bytes of each at a time if they have as many.
fn rotate<T: Scalar>(rows: &mut [&mut [T]], rotations: &[Rotation<T::Real>]) {
    match (size_of::<T>(), rows.first().map_or(0, |row| row.len())) {
        (4, 32..) => rotate_packed::<T, 32>(rows, rotations),
        (8, 16..) => rotate_packed::<T, 16>(rows, rotations),
        (16, 8..) => rotate_packed::<T, 8>(rows, rotations),
        _ => rotate_pieces(rows, rotations),
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn rotate_pieces<T: Scalar>(rows: &mut [&mut [T]], rotations: &[Rotation<T::Real>]) {
    for rotation in rotations {
        let Ok([x, y]) = rows.get_disjoint_mut([rotation.x as usize, rotation.y as usize]) else { continue };
        for (x, y) in x.iter_mut().zip(y.iter_mut()) {
            let (p, q) = (*x, *y);
            *x = p.scaled(rotation.cosine) + q.scaled(rotation.sine);
            *y = q.scaled(rotation.cosine) - p.scaled(rotation.sine);
        }
    }
}

/// Copies columns side by side, so that they stay in a cache while all rotations pass over them.
#[multiversion(targets("x86_64+avx2+fma"))]
fn rotate_packed<T: Scalar, const W: usize>(rows: &mut [&mut [T]], rotations: &[Rotation<T::Real>]) {
    let width = rows.first().map_or(0, |row| row.len());
    let mut packed = vec![[T::ZERO; W]; rows.len()];
    for start in (0..width).step_by(W) {
        let end = (start + W).min(width);
        for (packed, row) in packed.iter_mut().zip(&*rows) {
            packed[..end - start].copy_from_slice(&row[start..end]);
        }
        // The second row of a rotation is most often the first of the next one, and is kept.
        let (mut kept, mut number) = ([T::ZERO; W], None);
        for rotation in rotations {
            let (x_at, y_at) = (rotation.x as usize, rotation.y as usize);
            let mut x = if number == Some(x_at) {
                kept
            } else {
                if let Some(number) = number {
                    packed[number] = kept;
                }
                packed[x_at]
            };
            let mut y = packed[y_at];
            for column in 0..W {
                let (p, q) = (x[column], y[column]);
                x[column] = p.scaled(rotation.cosine) + q.scaled(rotation.sine);
                y[column] = q.scaled(rotation.cosine) - p.scaled(rotation.sine);
            }
            packed[x_at] = x;
            (kept, number) = (y, Some(y_at));
        }
        if let Some(number) = number {
            packed[number] = kept;
        }
        for (packed, row) in packed.iter().zip(rows.iter_mut()) {
            row[start..end].copy_from_slice(&packed[..end - start]);
        }
    }
}
