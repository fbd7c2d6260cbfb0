//! Pools over images with channels last, and their gradients. Loops run along the channels.

use super::window::Grid;
use crate::numeric::{Float, Num, Real};
use ferroflow_core::device::Threads;
use multiversion::multiversion;
use std::ops::Range;

/// The pixel of an element that is not in the image; images have fewer pixels.
const NOWHERE: u32 = u32::MAX;

/// A pool over windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    /// The movement of the window.
    pub(crate) grid: Grid,
    /// Channels of the image and the result.
    pub(crate) channels: usize,
}

impl Pool {
    /// The elements of one image.
    fn image(&self) -> usize {
        self.grid.pixels() * self.channels
    }

    /// The elements of the result for one image.
    fn result(&self) -> usize {
        self.grid.windows() * self.channels
    }

    /// The work per element of the image, for loops that are shared out by image.
    fn image_cost(&self) -> usize {
        self.grid.windows().saturating_mul(self.grid.window()).div_ceil(self.grid.pixels().max(1))
    }

    /// Writes the largest elements, at least the least finite value. NaN is never larger.
    pub(crate) fn largest<T: Real>(&self, threads: Threads<'_>, input: &[T], out: &mut [T]) {
        let channels = self.channels;
        threads.parallel_rows(out, channels, self.grid.window(), |first, rows| {
            largest_rows(self, first, rows, input);
        });
    }

    /// Writes the largest elements and the pixels of the image that they are in. The first one wins.
    pub(crate) fn largest_at<T: Real>(
        &self,
        threads: Threads<'_>,
        input: &[T],
        out: &mut [T],
        at: &mut [u32],
    ) {
        let (channels, image) = (self.channels, self.image());
        let cost = channels.saturating_mul(self.grid.window());
        threads.parallel_row_pairs((out, channels), (at, channels), cost, |first, rows, pixels| {
            for (number, (row, pixels)) in
                rows.chunks_mut(channels).zip(pixels.chunks_mut(channels)).enumerate()
            {
                let (at, place) = self.grid.place(first + number);
                self.find(&input[at * image..][..image], place, row, pixels);
            }
        });
    }

    /// Adds each element of `gradient` to where its window's largest element is.
    pub(crate) fn largest_gradient<T: Real>(
        &self,
        threads: Threads<'_>,
        input: &[T],
        gradient: &[T],
        out: &mut [T],
    ) {
        let (channels, image, result) = (self.channels, self.image(), self.result());
        threads.parallel_rows(out, image, self.image_cost(), |first, images| {
            let (mut best, mut at) = (vec![T::ZERO; channels], vec![0; channels]);
            for (number, out) in images.chunks_mut(image).enumerate() {
                let input = &input[(first + number) * image..][..image];
                let gradient = &gradient[(first + number) * result..][..result];
                largest_gradient_image(self, input, gradient, out, &mut best, &mut at);
            }
        });
    }

    /// Adds each element of `gradient` to every place of its window whose element is as near to the window's in `largest`
    /// as stock asks for, which infinities never are.
    pub(crate) fn near_gradient<T: Real>(
        &self,
        threads: Threads<'_>,
        input: &[T],
        largest: &[T],
        gradient: &[T],
        out: &mut [T],
    ) {
        let (channels, image, result) = (self.channels, self.image(), self.result());
        let near = T::from_f64(1e-5);
        threads.parallel_rows(out, image, self.image_cost(), |first, images| {
            for (number, out) in images.chunks_mut(image).enumerate() {
                out.fill(T::ZERO);
                let input = &input[(first + number) * image..][..image];
                let (from, to) = ((first + number) * result, (first + number + 1) * result);
                let rows = gradient[from..to].chunks(channels).zip(largest[from..to].chunks(channels));
                for (window, (row, largest)) in rows.enumerate() {
                    self.grid.each(self.grid.place(window).1, |_, pixel| {
                        let pixel = pixel * channels..(pixel + 1) * channels;
                        let places = out[pixel.clone()].iter_mut().zip(&input[pixel]);
                        for ((out, value), (largest, gradient)) in places.zip(largest.iter().zip(row)) {
                            *out = if value.sub(*largest).abs() < near { out.add(*gradient) } else { *out };
                        }
                    });
                }
            }
        });
    }

    /// Takes from `values`, which has the image's shape, what lies where each window's first element is that equals the
    /// window's in `largest`; zero where there is none.
    pub(crate) fn equal_taken<T: Real>(
        &self,
        threads: Threads<'_>,
        input: &[T],
        largest: &[T],
        values: &[T],
        out: &mut [T],
    ) {
        let (channels, image) = (self.channels, self.image());
        threads.parallel_rows(out, channels, self.grid.window(), |first, rows| {
            let mut pixels = vec![NOWHERE; channels];
            for (number, row) in rows.chunks_mut(channels).enumerate() {
                let (at, place) = self.grid.place(first + number);
                let largest = &largest[(first + number) * channels..][..channels];
                self.find_equal(&input[at * image..][..image], place, largest, &mut pixels);
                let values = &values[at * image..][..image];
                for (channel, (out, pixel)) in row.iter_mut().zip(&pixels).enumerate() {
                    let place = (*pixel != NOWHERE).then(|| *pixel as usize * channels + channel);
                    *out = place.map_or(T::ZERO, |place| values[place]);
                }
            }
        });
    }

    fn find_equal<T: Real>(&self, image: &[T], place: [usize; 3], largest: &[T], at: &mut [u32]) {
        at.fill(NOWHERE);
        self.grid.each(place, |_, pixel| {
            let row = &image[pixel * self.channels..][..self.channels];
            for ((at, largest), value) in at.iter_mut().zip(largest).zip(row) {
                *at = if *at == NOWHERE && value == largest { pixel as u32 } else { *at };
            }
        });
    }

    #[inline(always)]
    fn find<T: Real>(&self, image: &[T], place: [usize; 3], best: &mut [T], at: &mut [u32]) {
        let mut first = true;
        self.grid.each(place, |_, pixel| {
            let row = &image[pixel * self.channels..][..self.channels];
            if std::mem::take(&mut first) {
                best.copy_from_slice(row);
                at.fill(pixel as u32);
            } else {
                raise_at(best, at, row, pixel as u32);
            }
        });
        if first {
            at.fill(0);
        }
    }

    /// Writes the mean of each window; padding does not count.
    pub(crate) fn mean<T: Float>(&self, threads: Threads<'_>, input: &[T], out: &mut [T]) {
        let channels = self.channels;
        threads.parallel_rows(out, channels, self.grid.window(), |first, rows| {
            mean_rows(self, first, rows, input);
        });
    }

    /// Like [`Pool::mean`], but the least finite value is padding, too.
    pub(crate) fn mean_above_least<T: Float>(&self, threads: Threads<'_>, input: &[T], out: &mut [T]) {
        if !input.contains(&T::LEAST) {
            return self.mean(threads, input, out);
        }
        let add = |(sum, count): (T::Math, usize), value: T| {
            if value == T::LEAST { (sum, count) } else { (sum + value.to_math(), count + 1) }
        };
        let mean = |(sum, count): (T::Math, usize), _: usize| {
            T::from_math(sum / <T::Math as Num>::from_f64(count as f64))
        };
        let fold = Fold { start: (T::Math::ZERO, 0), add, finish: mean };
        threads.parallel_rows(out, self.channels, self.grid.window(), |first, rows| {
            fold.rows(self, first, rows, input);
        });
    }

    /// Shares each element of `gradient` out among the pixels of its window.
    pub(crate) fn mean_gradient<T: Float>(&self, threads: Threads<'_>, gradient: &[T], out: &mut [T]) {
        let (image, result) = (self.image(), self.result());
        let tiled = self.grid.is_tiled();
        threads.parallel_rows(out, image, self.image_cost(), |first, images| {
            let mut sums = vec![T::Math::ZERO; if tiled { 0 } else { image }];
            for (number, out) in images.chunks_mut(image).enumerate() {
                let gradient = &gradient[(first + number) * result..][..result];
                if tiled {
                    mean_gradient_tiles(self, gradient, out);
                } else {
                    mean_gradient_image(self, gradient, out, &mut sums);
                }
            }
        });
    }

    /// Calls `body` with the share of a window's gradient that each of its pixels gets, and with where a row of these
    /// pixels lies in the image, in the order of the image as far as windows do not overlap. Always inlined, so that it
    /// uses the instructions that the caller may.
    #[inline(always)]
    fn share_out<T: Float>(&self, gradient: &[T], mut body: impl FnMut(&[T], Range<usize>)) {
        let (channels, [depth, height, width]) = (self.channels, &self.grid.extents);
        let mut shares = Vec::new();
        self.grid.lines(0, self.grid.windows(), |number, _, place, windows| {
            let rows = depth.inside(place[0]).len() * height.inside(place[1]).len();
            shares.clear();
            for window in 0..windows {
                let count = <T::Math as Num>::from_f64((rows * width.inside(window).len()) as f64);
                // The sum of one share: zero has no sign.
                let share =
                    |value: &T| T::from_math(T::from_math(value.to_math() / count).to_math() + T::Math::ZERO);
                shares.extend(gradient[(number + window) * channels..][..channels].iter().map(share));
            }
            self.grid.rows(place, |row| {
                for (window, share) in shares.chunks_exact(channels).enumerate() {
                    let pixels = width.seen(window);
                    body(share, (row + pixels.start) * channels..(row + pixels.end) * channels);
                }
            });
        });
    }
}

/// Channels that are folded at a time: few enough to stay in registers.
const BLOCK: usize = 16;

/// A fold of a window's elements: a start, a function that adds an element, and one that makes the result, given
/// their number.
struct Fold<A, F, G> {
    start: A,
    add: F,
    finish: G,
}

impl<A: Copy, F, G> Fold<A, F, G> {
    /// Folds each window, channel by channel. The image is read in the order of its memory, row by row, into as many
    /// partial results as a line of windows has: half the time of going from window to window. Always inlined, so that it
    /// uses the instructions that the caller may.
    #[inline(always)]
    fn rows<T: Copy>(&self, pool: &Pool, first: usize, rows: &mut [T], input: &[T])
    where
        F: Fn(A, T) -> A,
        G: Fn(A, usize) -> T,
    {
        let (channels, image, width) = (pool.channels, pool.image(), &pool.grid.extents[2]);
        let mut folded = Vec::new();
        pool.grid.lines(first, rows.len() / channels, |number, at, place, windows| {
            let image = &input[at * image..][..image];
            let mut seen = 0;
            folded.clear();
            folded.resize(windows * channels, self.start);
            pool.grid.rows(place, |row| {
                seen += 1;
                for (window, folded) in folded.chunks_exact_mut(channels).enumerate() {
                    let pixels = width.seen(place[2] + window);
                    let pixels = &image[(row + pixels.start) * channels..(row + pixels.end) * channels];
                    self.pixels(pixels, folded);
                }
            });
            let line = rows[number * channels..][..windows * channels].chunks_exact_mut(channels);
            for (window, (out, folded)) in line.zip(folded.chunks_exact(channels)).enumerate() {
                let count = seen * width.inside(place[2] + window).len();
                for (out, folded) in out.iter_mut().zip(folded) {
                    *out = (self.finish)(*folded, count);
                }
            }
        });
    }

    /// Adds a row of pixels to what was folded of their window. Blocks of channels stay in registers meanwhile: a choice
    /// that is stored at once would be compiled to a masked store, which some processors are slow at.
    #[inline(always)]
    fn pixels<T: Copy>(&self, pixels: &[T], folded: &mut [A])
    where
        F: Fn(A, T) -> A,
    {
        let channels = folded.len();
        let (blocks, rest) = folded.as_chunks_mut::<BLOCK>();
        let done = blocks.len() * BLOCK;
        for (number, block) in blocks.iter_mut().enumerate() {
            let mut sums = *block;
            for pixel in pixels.chunks_exact(channels) {
                let values = &pixel[number * BLOCK..][..BLOCK];
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum = (self.add)(*sum, *value);
                }
            }
            *block = sums;
        }
        for pixel in pixels.chunks_exact(channels) {
            for (sum, value) in rest.iter_mut().zip(&pixel[done..]) {
                *sum = (self.add)(*sum, *value);
            }
        }
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn largest_rows<T: Real>(pool: &Pool, first: usize, rows: &mut [T], input: &[T]) {
    let larger = |best: T, value: T| if value > best { value } else { best };
    Fold { start: T::LEAST, add: larger, finish: |best, _| best }.rows(pool, first, rows, input);
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn largest_gradient_image<T: Real>(
    pool: &Pool,
    input: &[T],
    gradient: &[T],
    out: &mut [T],
    best: &mut [T],
    at: &mut [u32],
) {
    let channels = pool.channels;
    out.fill(T::ZERO);
    for (window, row) in gradient.chunks(channels).enumerate() {
        pool.find(input, pool.grid.place(window).1, best, at);
        for (channel, (value, pixel)) in row.iter().zip(at.iter()).enumerate() {
            let out = &mut out[*pixel as usize * channels + channel];
            *out = out.add(*value);
        }
    }
}

#[multiversion(targets("x86_64+avx2+fma+f16c"))]
fn mean_rows<T: Float>(pool: &Pool, first: usize, rows: &mut [T], input: &[T]) {
    let add = |sum: T::Math, value: T| sum + value.to_math();
    let mean = |sum: T::Math, count: usize| T::from_math(sum / <T::Math as Num>::from_f64(count as f64));
    Fold { start: T::Math::ZERO, add, finish: mean }.rows(pool, first, rows, input);
}

/// Each pixel gets the share of its only window.
#[multiversion(targets("x86_64+avx2+fma+f16c"))]
fn mean_gradient_tiles<T: Float>(pool: &Pool, gradient: &[T], out: &mut [T]) {
    pool.share_out(gradient, |share, pixels| {
        for pixel in out[pixels].chunks_exact_mut(share.len()) {
            pixel.copy_from_slice(share);
        }
    });
}

#[multiversion(targets("x86_64+avx2+fma+f16c"))]
fn mean_gradient_image<T: Float>(pool: &Pool, gradient: &[T], out: &mut [T], sums: &mut [T::Math]) {
    sums.fill(T::Math::ZERO);
    pool.share_out(gradient, |share, pixels| {
        for sums in sums[pixels].chunks_exact_mut(share.len()) {
            for (sum, value) in sums.iter_mut().zip(share) {
                *sum = *sum + value.to_math();
            }
        }
    });
    for (out, sum) in out.iter_mut().zip(sums.iter()) {
        *out = T::from_math(*sum);
    }
}

#[inline(always)]
fn raise_at<T: Real>(best: &mut [T], at: &mut [u32], row: &[T], pixel: u32) {
    for ((best, at), value) in best.iter_mut().zip(at).zip(row) {
        let larger = *value > *best;
        *best = if larger { *value } else { *best };
        *at = if larger { pixel } else { *at };
    }
}
