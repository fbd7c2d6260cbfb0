//! Sums over everything but the channels, and element-wise functions whose constants depend on the channel: what batch
//! normalization is made of. Elements may be 16 bits wide; sums are in single precision.

use super::SUM_PARTS;
use crate::numeric::Num;
use ferroflow_core::device::Threads;
use multiversion::multiversion;
use std::ops::Range;

/// A tensor as outer × channels × inner elements: with channels last, `inner` is 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels {
    /// Elements before the channels.
    pub(crate) outer: usize,
    /// The number of channels.
    pub(crate) channels: usize,
    /// Elements after the channels.
    pub(crate) inner: usize,
}

/// Rows that are added up before the sum joins the others, so that small terms are not lost in a large sum.
const BLOCK: usize = 128;
/// Sums of a plane that are kept side by side, and channels that are computed so.
const LANES: usize = 16;
/// Sums of fewer elements per channel have one part.
const PARTED_ELEMENTS: usize = 4096;

impl Channels {
    /// Elements of each channel.
    pub(crate) fn rest(&self) -> usize {
        self.outer * self.inner
    }

    /// Per channel, `K` sums of `term(a, b, constants)` over all elements of `a` and `b`, with the constants of the channel.
    pub(crate) fn sums<T: Num<Wide = f32>, const K: usize, const C: usize>(
        &self,
        threads: Threads<'_>,
        a: &[T],
        b: &[T],
        constants: [&[f32]; C],
        term: impl Fn(f32, f32, [f32; C]) -> [f32; K] + Sync,
    ) -> [Vec<f32>; K] {
        let width = K * self.channels;
        let mut totals = [const { Vec::new() }; K];
        if width == 0 {
            return totals;
        }
        // Every part is summed over rows of its own.
        let is_small = self.outer * self.inner < PARTED_ELEMENTS;
        let parts = if is_small { 1 } else { SUM_PARTS.min(self.outer).max(1) };
        let share = self.outer.div_ceil(parts).max(1);
        let mut sums = vec![0.0f32; parts * width];
        threads.parallel_rows(&mut sums, width, 4 * share * self.inner, |first, sums| {
            let mut block = vec![0.0f32; width];
            for (number, sum) in sums.chunks_mut(width).enumerate() {
                let mine = (first + number) * share..((first + number + 1) * share).min(self.outer);
                for start in mine.clone().step_by(BLOCK) {
                    let rows = start..(start + BLOCK).min(mine.end);
                    block.fill(0.0);
                    self.sum_rows(rows, a, b, constants, &mut block, &term);
                    for (sum, block) in sum.iter_mut().zip(&block) {
                        *sum += block;
                    }
                }
            }
        });
        for (k, total) in totals.iter_mut().enumerate() {
            *total = vec![0.0; self.channels];
            for part in sums.chunks(width) {
                let part = &part[k * self.channels..][..self.channels];
                for (total, part) in total.iter_mut().zip(part) {
                    *total += part;
                }
            }
        }
        totals
    }

    fn sum_rows<T: Num<Wide = f32>, const K: usize, const C: usize>(
        &self,
        rows: Range<usize>,
        a: &[T],
        b: &[T],
        constants: [&[f32]; C],
        sums: &mut [f32],
        term: &impl Fn(f32, f32, [f32; C]) -> [f32; K],
    ) {
        let width = self.channels * self.inner;
        if self.inner == 1 {
            let all = rows.start * width..rows.end * width;
            return add_rows(&a[all.clone()], &b[all], self.channels, constants, sums, term);
        }
        for row in rows {
            let (a, b) = (&a[row * width..][..width], &b[row * width..][..width]);
            for channel in 0..self.channels {
                let plane = channel * self.inner..(channel + 1) * self.inner;
                let constants = constants.map(|constants| constants[channel]);
                let part = sum_plane(&a[plane.clone()], &b[plane], constants, term);
                for (k, part) in part.into_iter().enumerate() {
                    sums[k * self.channels + channel] += part;
                }
            }
        }
    }

    /// Writes `function(a, b, constants)` for every element, with the constants of its channel.
    pub(crate) fn map<T: Num<Wide = f32>, const K: usize>(
        &self,
        threads: Threads<'_>,
        a: &[T],
        b: &[T],
        constants: [&[f32]; K],
        out: &mut [T],
        function: impl Fn(f32, f32, [f32; K]) -> f32 + Sync,
    ) {
        let width = self.channels * self.inner;
        threads.parallel_rows(out, width, 2, |first, rows| {
            if self.inner == 1 {
                let all = first * width..first * width + rows.len();
                return map_rows(&a[all.clone()], &b[all], constants, rows, &function);
            }
            for (number, out) in rows.chunks_mut(width).enumerate() {
                let at = (first + number) * width;
                let (a, b) = (&a[at..][..width], &b[at..][..width]);
                for (channel, out) in out.chunks_mut(self.inner).enumerate() {
                    let plane = channel * self.inner..(channel + 1) * self.inner;
                    let constants = constants.map(|constants| constants[channel]);
                    map_plane(&a[plane.clone()], &b[plane], constants, out, &function);
                }
            }
        });
    }
}

/// Adds the terms of rows to the sums of channels.
#[multiversion(targets("x86_64+avx2+fma+f16c"))]
fn add_rows<T: Num<Wide = f32>, const K: usize, const C: usize, F: Fn(f32, f32, [f32; C]) -> [f32; K]>(
    a: &[T],
    b: &[T],
    channels: usize,
    constants: [&[f32]; C],
    sums: &mut [f32],
    term: &F,
) {
    let constants = constants.map(|constants| &constants[..channels]);
    let mut sums = sums.chunks_exact_mut(channels);
    let mut sums: [&mut [f32]; K] = std::array::from_fn(|_| sums.next().unwrap_or_default());
    let constant_blocks = constants.map(|constants| constants.as_chunks::<LANES>().0);
    for (a, b) in a.chunks_exact(channels).zip(b.chunks_exact(channels)) {
        // Whole blocks are computed before they are added, so that nothing but vectors is left of them.
        let blocks = a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0);
        let done = blocks.len() * LANES;
        for (block, (a, b)) in blocks.enumerate() {
            let constants = constant_blocks.map(|blocks| &blocks[block]);
            let terms: [[f32; K]; LANES] = std::array::from_fn(|lane| {
                term(a[lane].widen(), b[lane].widen(), constants.map(|block| block[lane]))
            });
            for (k, sums) in sums.iter_mut().enumerate() {
                let sums = &mut sums[block * LANES..][..LANES];
                for (sum, terms) in sums.iter_mut().zip(&terms) {
                    *sum += terms[k];
                }
            }
        }
        for channel in done..channels {
            let constants = constants.map(|constants| constants[channel]);
            let terms = term(a[channel].widen(), b[channel].widen(), constants);
            for (sums, term) in sums.iter_mut().zip(terms) {
                sums[channel] += term;
            }
        }
    }
}

#[multiversion(targets("x86_64+avx2+fma+f16c"))]
fn sum_plane<T: Num<Wide = f32>, const K: usize, const C: usize, F: Fn(f32, f32, [f32; C]) -> [f32; K]>(
    a: &[T],
    b: &[T],
    constants: [f32; C],
    term: &F,
) -> [f32; K] {
    let mut lanes = [[0.0f32; LANES]; K];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for (lane, (a, b)) in a.iter().zip(b).enumerate() {
            let terms = term(a.widen(), b.widen(), constants);
            for (lanes, term) in lanes.iter_mut().zip(terms) {
                lanes[lane] += term;
            }
        }
    }
    lanes.map(|lanes| lanes.iter().sum())
}

#[multiversion(targets("x86_64+avx2+fma+f16c"))]
fn map_rows<T: Num<Wide = f32>, const K: usize, F: Fn(f32, f32, [f32; K]) -> f32>(
    a: &[T],
    b: &[T],
    constants: [&[f32]; K],
    out: &mut [T],
    function: &F,
) {
    let channels = constants.first().map_or(1, |constants| constants.len()).max(1);
    let constants = constants.map(|constants| &constants[..channels]);
    let inputs = a.chunks_exact(channels).zip(b.chunks_exact(channels));
    for (out, (a, b)) in out.chunks_exact_mut(channels).zip(inputs) {
        for channel in 0..channels {
            let constants = constants.map(|constants| constants[channel]);
            out[channel] = T::narrow(function(a[channel].widen(), b[channel].widen(), constants));
        }
    }
}

#[multiversion(targets("x86_64+avx2+fma+f16c"))]
fn map_plane<T: Num<Wide = f32>, const K: usize, F: Fn(f32, f32, [f32; K]) -> f32>(
    a: &[T],
    b: &[T],
    constants: [f32; K],
    out: &mut [T],
    function: &F,
) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = T::narrow(function(a.widen(), b.widen(), constants));
    }
}
