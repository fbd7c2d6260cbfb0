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
const PENDING: usize = 4096;
/// Bytes of a matrix that are rotated at a time: as much as an inner cache holds.
const BLOCK_BYTES: usize = 128 * 1024;
/// The fewest elements of a row in a block.
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
        let height = self.rows.len() / self.width;
        let columns = (BLOCK_BYTES / (height * size_of::<T>())).max(LEAST_COLUMNS);
        match self.threads {
            Some(threads) if self.pending.len() * self.width >= 1 << 18 && threads.count() > 1 => {
                self.apply_by_threads(threads, columns);
            }
            _ => {
                let mut rows: Vec<&mut [T]> = self.rows.chunks_exact_mut(self.width).collect();
                rotate_pieces(&mut rows, &self.pending, columns);
            }
        }
        self.pending.clear();
    }

    /// Shares columns among threads.
    fn apply_by_threads(&mut self, threads: Threads<'_>, columns: usize) {
        let (width, pending) = (self.width, &self.pending);
        let part = width.div_ceil(threads.count()).max(LEAST_COLUMNS);
        let parts = width.div_ceil(part);
        let mut split: Vec<Vec<&mut [T]>> = (0..parts).map(|_| Vec::new()).collect();
        for row in self.rows.chunks_exact_mut(width) {
            for (parts, piece) in split.iter_mut().zip(row.chunks_mut(part)) {
                parts.push(piece);
            }
        }
        threads.run_each(split, &|_, mut rows| rotate_pieces(&mut rows, pending, columns));
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn rotate_pieces<T: Scalar>(rows: &mut [&mut [T]], rotations: &[Rotation<T::Real>], columns: usize) {
    let width = rows.first().map_or(0, |row| row.len());
    let mut start = 0;
    while start < width {
        let end = (start + columns).min(width);
        for rotation in rotations {
            let (x, y) = (rotation.x as usize, rotation.y as usize);
            let Ok([x, y]) = rows.get_disjoint_mut([x, y]) else { continue };
            let (cosine, sine) = (rotation.cosine, rotation.sine);
            for (x, y) in x[start..end].iter_mut().zip(&mut y[start..end]) {
                let (p, q) = (*x, *y);
                *x = p.scaled(cosine) + q.scaled(sine);
                *y = q.scaled(cosine) - p.scaled(sine);
            }
        }
        start = end;
    }
}
