//! Convolutions of images as matrix products: the windows of a few positions of the output are laid out as a matrix,
//! which is multiplied by the filter.

use super::product::{Gemm, MatrixView};
use crate::numeric::Num;
use ferroflow_core::device::Device;

/// Elements of windows that are laid out at a time: few enough to stay in a cache.
const TILE: usize = 1 << 18;

/// Sizes along one direction of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The image's size.
    pub input: usize,
    /// The filter's size, without what dilation adds.
    pub filter: usize,
    /// The result's size.
    pub output: usize,
    /// How far windows are apart.
    pub stride: usize,
    /// How far elements of the filter are apart.
    pub dilation: usize,
    /// Zeros before the image's first element.
    pub before: usize,
}

impl Extent {
    /// Where in the image element `k` of the filter lies in window `window`; `None` in the padding.
    fn at(&self, window: usize, k: usize) -> Option<usize> {
        (window * self.stride + k * self.dilation).checked_sub(self.before).filter(|at| *at < self.input)
    }
}

/// A convolution of images with channels last.
#[derive(Clone, Copy, Debug)]
pub struct Conv2d {
    /// The number of images.
    pub batch: usize,
    /// Along the rows.
    pub height: Extent,
    /// Along the columns.
    pub width: Extent,
    /// Channels of the image.
    pub channels: usize,
    /// Channels of the filter, which divide those of the image into groups.
    pub filter_channels: usize,
    /// Channels of the result.
    pub outputs: usize,
}

impl Conv2d {
    /// Convolves `input` with `filter` (height × width × channels × outputs) into `out`.
    pub fn run<T: Gemm + Num>(&self, device: &Device, input: &[T], filter: &[T], out: &mut [T]) {
        if out.is_empty() {
            return;
        }
        let groups = self.channels.checked_div(self.filter_channels).unwrap_or(1).max(1);
        let window = self.height.filter * self.width.filter * self.filter_channels;
        if groups == 1 {
            return self.run_group(device, input, filter, 0, out);
        }
        let (outputs, all) = (self.outputs / groups, self.outputs);
        let mut part = vec![T::ZERO; out.len() / groups];
        let mut columns = vec![T::ZERO; window * outputs];
        for group in 0..groups {
            for (to, from) in columns.chunks_mut(outputs.max(1)).zip(filter.chunks(all)) {
                to.copy_from_slice(&from[group * outputs..][..outputs]);
            }
            let narrow = Conv2d { outputs, ..*self };
            narrow.run_group(device, input, &columns, group * self.filter_channels, &mut part);
            for (to, from) in out.chunks_mut(all).zip(part.chunks(outputs.max(1))) {
                to[group * outputs..][..outputs].copy_from_slice(from);
            }
        }
    }

    /// Convolves the channels from `first` on, as many as the filter has.
    fn run_group<T: Gemm + Num>(
        &self,
        device: &Device,
        input: &[T],
        filter: &[T],
        first: usize,
        out: &mut [T],
    ) {
        let window = self.height.filter * self.width.filter * self.filter_channels;
        let right = MatrixView::new(filter, window, self.outputs, false);
        let plain =
            |extent: &Extent| extent.filter == 1 && extent.stride == 1 && extent.output == extent.input;
        if plain(&self.height) && plain(&self.width) && self.filter_channels == self.channels {
            let positions = self.batch * self.height.output * self.width.output;
            return T::multiply(device, MatrixView::new(input, positions, window, false), right, out);
        }
        let tile = (TILE / window.max(1)).clamp(1, out.len() / self.outputs);
        let mut windows = vec![T::ZERO; tile * window];
        for (number, out) in out.chunks_mut(tile * self.outputs).enumerate() {
            let count = out.len() / self.outputs;
            let windows = &mut windows[..count * window];
            device.parallel_rows(windows, window, window, |from, rows| {
                for (at, cells) in rows.chunks_mut(window.max(1)).enumerate() {
                    self.lay_out(input, first, number * tile + from + at, cells);
                }
            });
            T::multiply(device, MatrixView::new(windows, count, window, false), right, out);
        }
    }

    /// The elements under the filter at one position of the output.
    fn lay_out<T: Num>(&self, input: &[T], first: usize, position: usize, cells: &mut [T]) {
        let (row, x) = (position / self.width.output, position % self.width.output);
        let (image, y) = (row / self.height.output, row % self.height.output);
        let line_elements = self.width.input * self.channels;
        let image = &input[image * self.height.input * line_elements..];
        let mut cells = cells.chunks_mut(self.filter_channels.max(1));
        for ky in 0..self.height.filter {
            let line = self.height.at(y, ky).map(|at| &image[at * line_elements..]);
            for kx in 0..self.width.filter {
                let Some(cell) = cells.next() else { return };
                match (line, self.width.at(x, kx)) {
                    (Some(line), Some(at)) => {
                        cell.copy_from_slice(&line[at * self.channels + first..][..cell.len()]);
                    }
                    _ => cell.fill(T::ZERO),
                }
            }
        }
    }
}
