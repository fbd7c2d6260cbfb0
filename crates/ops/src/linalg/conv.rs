//! Convolutions and their gradients as matrix products: the windows of a few positions of the result are laid out as a
//! matrix, which is multiplied by the filter, or by the gradient.
//!
//! Every thread has its own part of the positions and goes through it in tiles that stay in its cache.

use super::SUM_PARTS;
use super::product::{MatrixView, Tile};
use super::window::Grid;
use crate::numeric::Num;
use ferroflow_core::device::Threads;
use multiversion::multiversion;

/// Elements of windows that are laid out at a time: few enough to stay in a cache.
const TILE: usize = 1 << 16;
/// Products with fewer rows than this waste what is spent on preparing the filter.
const LEAST_ROWS: usize = 48;
/// Elements of partial sums of a filter's gradient, all parts together.
const PART_ELEMENTS: usize = 1 << 22;

/// A convolution of images with channels last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv {
    /// The movement of the filter.
    pub(crate) grid: Grid,
    /// Channels of the image.
    pub(crate) channels: usize,
    /// Channels of the filter, which divide those of the image into groups.
    pub(crate) filter_channels: usize,
    /// Channels of the result.
    pub(crate) outputs: usize,
}

impl Conv {
    /// Convolves `input` with `filter` (depth × height × width × channels × outputs) into `out`.
    pub(crate) fn run<T: Tile + Num>(&self, threads: Threads<'_>, input: &[T], filter: &[T], out: &mut [T]) {
        if out.is_empty() {
            return;
        }
        let groups = self.channels.checked_div(self.filter_channels).unwrap_or(1).max(1);
        if groups == 1 {
            return self.run_group(threads, input, filter, 0, out);
        }
        let (outputs, all) = (self.outputs / groups, self.outputs);
        let mut part = vec![T::ZERO; out.len() / groups];
        let mut columns = vec![T::ZERO; self.window() * outputs];
        for group in 0..groups {
            for (to, from) in columns.chunks_mut(outputs.max(1)).zip(filter.chunks(all)) {
                to.copy_from_slice(&from[group * outputs..][..outputs]);
            }
            let narrow = Conv { outputs, ..*self };
            narrow.run_group(threads, input, &columns, group * self.filter_channels, &mut part);
            for (to, from) in out.chunks_mut(all).zip(part.chunks(outputs.max(1))) {
                to[group * outputs..][..outputs].copy_from_slice(from);
            }
        }
    }

    /// Writes the gradient of the image: every element of the filter sends the gradient of the result back to where it
    /// took its value from. There is one group.
    pub(crate) fn input_gradient<T: Tile + Num>(
        &self,
        threads: Threads<'_>,
        filter: &[T],
        gradient: &[T],
        out: &mut [T],
    ) {
        let (window, outputs) = (self.window(), self.outputs);
        if out.is_empty() {
            return;
        }
        if gradient.is_empty() || window == 0 {
            return out.fill(T::ZERO);
        }
        let right = MatrixView::new(filter, window, outputs, true);
        if self.is_plain() {
            let positions = gradient.len() / outputs;
            return T::multiply(threads, MatrixView::new(gradient, positions, outputs, false), right, out);
        }
        let windows = self.grid.windows();
        let image = self.grid.pixels() * self.channels;
        let tile = self.tile(windows);
        threads.parallel_rows(out, image, windows * self.work() / image.max(1), |first, images| {
            let mut cells = vec![T::ZERO; tile * window];
            for (number, image) in images.chunks_mut(image).enumerate() {
                image.fill(T::ZERO);
                let gradient = &gradient[(first + number) * windows * outputs..][..windows * outputs];
                for (number, gradient) in gradient.chunks(tile * outputs).enumerate() {
                    let count = gradient.len() / outputs;
                    let cells = &mut cells[..count * window];
                    T::multiply_tile(MatrixView::new(gradient, count, outputs, false), right, cells, false);
                    take_back(self, number * tile, cells, image);
                }
            }
        });
    }

    /// Writes the gradient of the filter. There is one group.
    pub(crate) fn filter_gradient<T: Tile + Num>(
        &self,
        threads: Threads<'_>,
        input: &[T],
        gradient: &[T],
        out: &mut [T],
    ) {
        let (window, outputs) = (self.window(), self.outputs);
        if out.is_empty() {
            return;
        }
        let positions = gradient.len() / outputs;
        let tile = self.tile(positions);
        // Every part is summed over positions of its own, in memory of its own, which large filters have little of.
        let most = SUM_PARTS.min(PART_ELEMENTS / out.len()).max(2);
        let parts = if positions.saturating_mul(self.work()) < 1 << 19 { 1 } else { most };
        let parts = parts.min(positions.div_ceil(tile)).max(1);
        let share = positions.div_ceil(parts).max(1);
        let mut sums = vec![T::ZERO; parts * out.len()];
        threads.parallel_rows(&mut sums, out.len(), share, |first, sums| {
            let mut cells = if self.is_plain() { Vec::new() } else { vec![T::ZERO; tile * window] };
            for (number, sum) in sums.chunks_mut(out.len()).enumerate() {
                let mine =
                    ((first + number) * share).min(positions)..((first + number + 1) * share).min(positions);
                for start in mine.clone().step_by(tile) {
                    let count = tile.min(mine.end - start);
                    let gradient = &gradient[start * outputs..][..count * outputs];
                    let left = if self.is_plain() {
                        &input[start * window..][..count * window]
                    } else {
                        let cells = &mut cells[..count * window];
                        self.lay_out(input, 0, start, cells);
                        &*cells
                    };
                    let left = MatrixView::new(left, count, window, true);
                    T::multiply_tile(left, MatrixView::new(gradient, count, outputs, false), sum, true);
                }
            }
        });
        let (first, rest) = sums.split_at(out.len());
        out.copy_from_slice(first);
        for part in rest.chunks(out.len()) {
            for (sum, part) in out.iter_mut().zip(part) {
                *sum = sum.add(*part);
            }
        }
    }

    /// The elements of a window, channels included.
    fn window(&self) -> usize {
        self.grid.window() * self.filter_channels
    }

    /// The work for one position of the result.
    fn work(&self) -> usize {
        self.window() * self.outputs
    }

    /// Whether windows are the pixels themselves, so that nothing needs to be laid out.
    fn is_plain(&self) -> bool {
        self.grid.extents.iter().all(|extent| extent.is_plain()) && self.filter_channels == self.channels
    }

    /// The positions that are laid out at a time, of `positions`.
    fn tile(&self, positions: usize) -> usize {
        (TILE / self.window().max(1)).max(LEAST_ROWS).min(positions.max(1))
    }

    /// Convolves the channels from `first` on, as many as the filter has.
    fn run_group<T: Tile + Num>(
        &self,
        threads: Threads<'_>,
        input: &[T],
        filter: &[T],
        first: usize,
        out: &mut [T],
    ) {
        let (window, outputs) = (self.window(), self.outputs);
        if outputs == 0 {
            return;
        }
        let right = MatrixView::new(filter, window, outputs, false);
        if self.is_plain() {
            let left = MatrixView::new(input, out.len() / outputs, window, false);
            return T::multiply(threads, left, right, out);
        }
        let tile = self.tile(out.len() / outputs);
        threads.parallel_rows(out, outputs, window, |position, out| {
            let mut cells = vec![T::ZERO; tile.min(out.len() / outputs) * window];
            for (number, out) in out.chunks_mut(tile * outputs).enumerate() {
                let count = out.len() / outputs;
                let cells = &mut cells[..count * window];
                self.lay_out(input, first, position + number * tile, cells);
                T::multiply_tile(MatrixView::new(cells, count, window, false), right, out, false);
            }
        });
    }

    /// Lays out the windows from `position` on, one after the other, with zeros for the padding.
    fn lay_out<T: Num>(&self, input: &[T], first: usize, position: usize, cells: &mut [T]) {
        let window = self.window();
        if window == 0 {
            return;
        }
        let image = self.grid.pixels() * self.channels;
        self.lines(position, cells.len() / window, |number, place, xs, taps| {
            let cells = &mut cells[number * window..][..xs.len() * window];
            let image = &input[place * image..][..image];
            self.lay_out_line(image, first, xs, taps, cells);
        });
    }

    /// Calls `body` for every line of the result that `count` positions from `position` on lie in: how many positions
    /// came before it, the image, the range of columns, and the place along depth and rows.
    #[inline(always)]
    fn lines(
        &self,
        mut position: usize,
        count: usize,
        mut body: impl FnMut(usize, usize, std::ops::Range<usize>, [usize; 2]),
    ) {
        let (start, end) = (position, position + count);
        let width = self.grid.extents[2].output;
        while position < end {
            let (image, [z, y, x]) = self.grid.place(position);
            let columns = (width - x).min(end - position);
            body(position - start, image, x..x + columns, [z, y]);
            position += columns;
        }
    }

    /// The windows of neighboring columns of one line of the result.
    fn lay_out_line<T: Num>(
        &self,
        image: &[T],
        first: usize,
        xs: std::ops::Range<usize>,
        [z, y]: [usize; 2],
        cells: &mut [T],
    ) {
        let [depth, height, width] = &self.grid.extents;
        let (window, channels) = (self.window(), self.filter_channels);
        let (planes, rows) = (depth.inside(z), height.inside(y));
        let line = width.filter * channels;
        let whole = channels == self.channels && width.dilation == 1;
        for kz in 0..depth.filter {
            for ky in 0..height.filter {
                let to = (kz * height.filter + ky) * line;
                if !planes.contains(&kz) || !rows.contains(&ky) {
                    for cell in cells.chunks_exact_mut(window) {
                        cell[to..to + line].fill(T::ZERO);
                    }
                    continue;
                }
                let at = (depth.at(z, kz) * height.input + height.at(y, ky)) * width.input;
                let from = &image[at * self.channels..][..width.input * self.channels];
                for (x, cell) in xs.clone().zip(cells.chunks_exact_mut(window)) {
                    let cell = &mut cell[to..to + line];
                    let inside = width.inside(x);
                    if inside.len() < width.filter {
                        cell.fill(T::ZERO);
                    }
                    if inside.is_empty() {
                        continue;
                    }
                    if whole {
                        // Neighbors in the window are neighbors in the image.
                        let length = inside.len() * channels;
                        let from = &from[width.at(x, inside.start) * channels..][..length];
                        copy(&mut cell[inside.start * channels..][..length], from);
                        continue;
                    }
                    for kx in inside {
                        let from = &from[width.at(x, kx) * self.channels + first..][..channels];
                        copy(&mut cell[kx * channels..][..channels], from);
                    }
                }
            }
        }
    }
}

/// Adds what the windows from `position` of one image on hold to the pixels under them.
#[multiversion(targets("x86_64+avx2+fma"))]
fn take_back<T: Num>(conv: &Conv, position: usize, cells: &[T], image: &mut [T]) {
    let [depth, height, width] = &conv.grid.extents;
    let (window, channels) = (conv.window(), conv.channels);
    let line = width.filter * channels;
    conv.lines(position, cells.len() / window, |number, _, xs, [z, y]| {
        let cells = &cells[number * window..][..xs.len() * window];
        for kz in depth.inside(z) {
            for ky in height.inside(y) {
                let from = (kz * height.filter + ky) * line;
                let at = (depth.at(z, kz) * height.input + height.at(y, ky)) * width.input;
                let to = &mut image[at * channels..][..width.input * channels];
                for (x, cell) in xs.clone().zip(cells.chunks_exact(window)) {
                    let inside = width.inside(x);
                    if inside.is_empty() {
                        continue;
                    }
                    if width.dilation == 1 {
                        let length = inside.len() * channels;
                        let cell = &cell[from + inside.start * channels..][..length];
                        add(&mut to[width.at(x, inside.start) * channels..][..length], cell);
                        continue;
                    }
                    for kx in inside {
                        let cell = &cell[from + kx * channels..][..channels];
                        add(&mut to[width.at(x, kx) * channels..][..channels], cell);
                    }
                }
            }
        }
    });
}

/// Copies a few elements; a call would take longer than the shortest copies.
#[inline(always)]
fn copy<T: Copy>(to: &mut [T], from: &[T]) {
    if from.len() <= 8 {
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
    } else {
        to.copy_from_slice(from);
    }
}

#[inline(always)]
fn add<T: Num>(to: &mut [T], from: &[T]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = to.add(*from);
    }
}
