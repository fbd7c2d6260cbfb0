//! Convolutions of each channel by itself, and their gradients. A channel of the image gives `multiplier` neighboring
//! channels of the result; the filter is height × width × channels × multiplier.
//!
//! Padding is skipped. Stock multiplies it, and zero times what is no finite number is none: where there are such numbers,
//! these products are added afterwards.

use super::SUM_PARTS;
use super::window::Grid;
use crate::numeric::Num;
use ferroflow_core::device::Threads;
use multiversion::multiversion;

/// A convolution of each channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depthwise {
    /// The movement of the filter.
    pub(crate) grid: Grid,
    /// Channels of the image.
    pub(crate) channels: usize,
    /// Channels of the result for each of the image.
    pub(crate) multiplier: usize,
}

impl Depthwise {
    fn outputs(&self) -> usize {
        self.channels * self.multiplier
    }

    /// Convolves `input` with `filter` into `out`.
    pub(crate) fn run<T: Num>(&self, threads: Threads<'_>, input: &[T], filter: &[T], out: &mut [T]) {
        let outputs = self.outputs();
        threads.parallel_rows(out, outputs, self.grid.window(), |first, rows| {
            run_rows(self, first, rows, input, filter);
        });
        if outputs == 0 || is_finite(filter) {
            return;
        }
        for (window, row) in out.chunks_mut(outputs).enumerate() {
            self.grid.outside(self.grid.place(window).1, |tap| add_zeros(row, &filter[tap * outputs..]));
        }
    }

    /// Writes the gradient of the image.
    pub(crate) fn input_gradient<T: Num>(
        &self,
        threads: Threads<'_>,
        filter: &[T],
        gradient: &[T],
        out: &mut [T],
    ) {
        let (outputs, windows) = (self.outputs(), self.grid.windows());
        let image = self.grid.pixels() * self.channels;
        let cost = windows * outputs * self.grid.window() / image.max(1);
        threads.parallel_rows(out, image, cost.max(1), |first, images| {
            for (number, image) in images.chunks_mut(image).enumerate() {
                let gradient = &gradient[(first + number) * windows * outputs..][..windows * outputs];
                input_gradient_image(self, filter, gradient, image);
            }
        });
        if image == 0 || is_finite(filter) {
            return;
        }
        // Pixels that an element of the filter never takes a value from.
        let taps = self.grid.window();
        let mut is_taken = vec![false; self.grid.pixels() * taps];
        for window in 0..windows {
            self.grid.each(self.grid.place(window).1, |tap, pixel| is_taken[pixel * taps + tap] = true);
        }
        let zeros = vec![T::ZERO; outputs];
        for (number, pixel) in out.chunks_mut(self.channels).enumerate() {
            let is_taken = &is_taken[number % self.grid.pixels() * taps..][..taps];
            for (filter, _) in filter.chunks(outputs).zip(is_taken).filter(|(_, is_taken)| !**is_taken) {
                gather(pixel, &zeros, filter);
            }
        }
    }

    /// Writes the gradient of the filter.
    pub(crate) fn filter_gradient<T: Num>(
        &self,
        threads: Threads<'_>,
        input: &[T],
        gradient: &[T],
        out: &mut [T],
    ) {
        let (outputs, windows) = (self.outputs(), self.grid.windows());
        if out.is_empty() {
            return;
        }
        let image = self.grid.pixels() * self.channels;
        let parts = SUM_PARTS.min(self.grid.batch).max(1);
        let share = self.grid.batch.div_ceil(parts).max(1);
        // Every part is summed over images of its own.
        let mut sums = vec![T::ZERO; parts * out.len()];
        threads.parallel_rows(&mut sums, out.len(), share * windows, |first, sums| {
            for (number, sum) in sums.chunks_mut(out.len()).enumerate() {
                let mine = (first + number) * share..((first + number + 1) * share).min(self.grid.batch);
                for at in mine {
                    let image = &input[at * image..][..image];
                    let gradient = &gradient[at * windows * outputs..][..windows * outputs];
                    filter_gradient_image(self, image, gradient, sum);
                }
            }
        });
        out.fill(T::ZERO);
        for part in sums.chunks(out.len()) {
            for (sum, part) in out.iter_mut().zip(part) {
                *sum = sum.add(*part);
            }
        }
        if is_finite(gradient) {
            return;
        }
        for (window, row) in gradient.chunks(outputs).enumerate() {
            self.grid.outside(self.grid.place(window).1, |tap| add_zeros(&mut out[tap * outputs..], row));
        }
    }
}

fn is_finite<T: Num>(values: &[T]) -> bool {
    // To the end in any case: such a loop takes several at a time.
    values.iter().fold(true, |is_finite, value| is_finite & value.sub(*value).is_zero())
}

/// Adds to each of `sums` zero times its factor.
fn add_zeros<T: Num>(sums: &mut [T], factors: &[T]) {
    for (sum, factor) in sums.iter_mut().zip(factors) {
        *sum = sum.add(T::ZERO.mul(*factor));
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn run_rows<T: Num>(conv: &Depthwise, first: usize, rows: &mut [T], input: &[T], filter: &[T]) {
    let (outputs, image) = (conv.outputs(), conv.grid.pixels() * conv.channels);
    for (number, row) in rows.chunks_mut(outputs).enumerate() {
        row.fill(T::ZERO);
        let (at, place) = conv.grid.place(first + number);
        let image = &input[at * image..][..image];
        conv.grid.each(place, |tap, pixel| {
            let pixel = &image[pixel * conv.channels..][..conv.channels];
            spread(row, pixel, &filter[tap * outputs..][..outputs]);
        });
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn input_gradient_image<T: Num>(conv: &Depthwise, filter: &[T], gradient: &[T], image: &mut [T]) {
    let outputs = conv.outputs();
    image.fill(T::ZERO);
    for (window, row) in gradient.chunks(outputs.max(1)).enumerate() {
        conv.grid.each(conv.grid.place(window).1, |tap, pixel| {
            let pixel = &mut image[pixel * conv.channels..][..conv.channels];
            gather(pixel, row, &filter[tap * outputs..][..outputs]);
        });
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn filter_gradient_image<T: Num>(conv: &Depthwise, image: &[T], gradient: &[T], sum: &mut [T]) {
    let outputs = conv.outputs();
    for (window, row) in gradient.chunks(outputs).enumerate() {
        conv.grid.each(conv.grid.place(window).1, |tap, pixel| {
            let pixel = &image[pixel * conv.channels..][..conv.channels];
            spread(&mut sum[tap * outputs..][..outputs], pixel, row);
        });
    }
}

/// Adds to each of `sums` its factor times the element of `values` that it belongs to; there may be several per element.
#[inline(always)]
fn spread<T: Num>(sums: &mut [T], values: &[T], factors: &[T]) {
    if sums.len() == values.len() {
        for ((sum, value), factor) in sums.iter_mut().zip(values).zip(factors) {
            *sum = sum.add(value.mul(*factor));
        }
        return;
    }
    let multiplier = sums.len() / values.len().max(1);
    let groups = sums.chunks_mut(multiplier.max(1)).zip(factors.chunks(multiplier.max(1)));
    for ((sums, factors), value) in groups.zip(values) {
        for (sum, factor) in sums.iter_mut().zip(factors) {
            *sum = sum.add(value.mul(*factor));
        }
    }
}

/// Adds to each of `sums` the products of the values and factors that belong to it.
#[inline(always)]
fn gather<T: Num>(sums: &mut [T], values: &[T], factors: &[T]) {
    if sums.len() == values.len() {
        for ((sum, value), factor) in sums.iter_mut().zip(values).zip(factors) {
            *sum = sum.add(value.mul(*factor));
        }
        return;
    }
    let multiplier = values.len() / sums.len().max(1);
    let groups = values.chunks(multiplier.max(1)).zip(factors.chunks(multiplier.max(1)));
    for ((values, factors), sum) in groups.zip(sums) {
        *sum = values.iter().zip(factors).fold(*sum, |sum, (value, factor)| sum.add(value.mul(*factor)));
    }
}
