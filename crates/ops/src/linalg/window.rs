//! The positions of a filter's or a pool's windows in an image.

use std::ops::Range;

/// Sizes along one direction of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The image's size.
    pub(crate) input: usize,
    /// The filter's size, without what dilation adds.
    pub(crate) filter: usize,
    /// The result's size.
    pub(crate) output: usize,
    /// The distance between windows.
    pub(crate) stride: usize,
    /// The distance between elements of the filter.
    pub(crate) dilation: usize,
    /// Elements of padding before the image's first element.
    pub(crate) before: usize,
    /// Elements of the image before the first window; there is no padding then.
    pub(crate) skipped: usize,
}

impl Extent {
    /// A direction that the image does not have.
    pub(crate) const NONE: Extent =
        Extent { input: 1, filter: 1, output: 1, stride: 1, dilation: 1, before: 0, skipped: 0 };

    /// The elements of the filter that lie in the image, not in the padding, in window `window`.
    #[inline(always)]
    pub(crate) fn inside(&self, window: usize) -> Range<usize> {
        let start = window.saturating_mul(self.stride).saturating_add(self.skipped);
        let low = self.before.saturating_sub(start);
        let high = (self.input + self.before).saturating_sub(start);
        if self.dilation == 1 {
            // Divisions would take longer than small windows do.
            return low..high.min(self.filter);
        }
        low.div_ceil(self.dilation)..high.div_ceil(self.dilation).min(self.filter)
    }

    /// The position in the image of the filter's element `k` in window `window`; only for elements inside.
    #[inline(always)]
    pub(crate) fn at(&self, window: usize, k: usize) -> usize {
        window * self.stride + k * self.dilation + self.skipped - self.before
    }

    /// The range of the image that window `window` covers; only without dilation, where that has no gaps.
    #[inline(always)]
    pub(crate) fn seen(&self, window: usize) -> Range<usize> {
        let inside = self.inside(window);
        if inside.is_empty() {
            return 0..0;
        }
        let first = self.at(window, inside.start);
        first..first + inside.len()
    }

    /// Whether every window is one element of the image, in order.
    pub(crate) fn is_plain(&self) -> bool {
        let is_whole = self.before == 0 && self.skipped == 0 && self.output == self.input;
        self.filter == 1 && self.stride == 1 && is_whole
    }
}

/// Windows over a batch of images with up to three directions, whose pixels have channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// The number of images.
    pub(crate) batch: usize,
    /// Along depth, rows and columns.
    pub(crate) extents: [Extent; 3],
}

impl Grid {
    /// The pixels of one image.
    pub(crate) fn pixels(&self) -> usize {
        self.extents.iter().map(|extent| extent.input).product()
    }

    /// The windows in one image.
    pub(crate) fn windows(&self) -> usize {
        self.extents.iter().map(|extent| extent.output).product()
    }

    /// The elements of one window; a pool's may be larger than any tensor.
    pub(crate) fn window(&self) -> usize {
        self.extents.iter().fold(1, |size: usize, extent| size.saturating_mul(extent.filter))
    }

    /// The image that a window is in, and its place there along depth, rows and columns.
    #[inline(always)]
    pub(crate) fn place(&self, window: usize) -> (usize, [usize; 3]) {
        let [depth, height, width] = &self.extents;
        let (rest, x) = (window / width.output, window % width.output);
        let (rest, y) = (rest / height.output, rest % height.output);
        (rest / depth.output, [rest % depth.output, y, x])
    }

    /// Calls `body` for `count` windows that follow each other, of which the first is window `first`, line by line of the
    /// result: with the number from zero on, the image and the place of a line's first window, and how many are in it.
    /// Always inlined, so that `body` uses the instructions that the caller may.
    #[inline(always)]
    pub(crate) fn lines(
        &self,
        first: usize,
        count: usize,
        mut body: impl FnMut(usize, usize, [usize; 3], usize),
    ) {
        let mut number = 0;
        while number < count {
            let (image, place) = self.place(first + number);
            let windows = (self.extents[2].output - place[2]).min(count - number);
            body(number, image, place, windows);
            number += windows;
        }
    }

    /// Calls `body` for every row of the image that the windows at `place` see, with the number of its first pixel. Always
    /// inlined.
    #[inline(always)]
    pub(crate) fn rows(&self, place: [usize; 3], mut body: impl FnMut(usize)) {
        let [depth, height, width] = &self.extents;
        let [z, y, _] = place;
        for kz in depth.inside(z) {
            for ky in height.inside(y) {
                body((depth.at(z, kz) * height.input + height.at(y, ky)) * width.input);
            }
        }
    }

    /// These windows in the middle of images that have more pixels than they reach.
    pub(crate) fn centered(mut self) -> Grid {
        for extent in &mut self.extents {
            let windows = extent.output.saturating_sub(1).saturating_mul(extent.stride);
            let window = extent.filter.saturating_sub(1).saturating_mul(extent.dilation).saturating_add(1);
            extent.skipped = extent.input.saturating_sub(windows.saturating_add(window)) / 2;
        }
        self
    }

    /// These windows as stock's gradients of pools take them: those larger than the image reach its end wherever they
    /// begin.
    pub(crate) fn stretched(mut self) -> Grid {
        for extent in self.extents.iter_mut().filter(|extent| extent.filter > extent.input) {
            extent.filter = extent.filter.max(extent.input.saturating_add(extent.before));
        }
        self
    }

    /// Whether every pixel lies in exactly one window.
    pub(crate) fn is_tiled(&self) -> bool {
        let tiles = |extent: &Extent| {
            let covered = extent.output.saturating_mul(extent.stride) >= extent.input;
            extent.before == 0
                && extent.skipped == 0
                && extent.dilation == 1
                && extent.stride == extent.filter
                && covered
        };
        self.extents.iter().all(tiles)
    }

    /// Calls `body` for every element of a window that lies in the image: its number in the window and its pixel's
    /// number in the image. The first means nothing in windows larger than any tensor, which only pools have and no pool
    /// asks for. Always inlined, so that `body` uses the instructions that the caller may.
    #[inline(always)]
    pub(crate) fn each(&self, place: [usize; 3], mut body: impl FnMut(usize, usize)) {
        let [depth, height, width] = &self.extents;
        let [z, y, x] = place;
        let columns = width.inside(x);
        for kz in depth.inside(z) {
            for ky in height.inside(y) {
                let filter = kz.wrapping_mul(height.filter).wrapping_add(ky).wrapping_mul(width.filter);
                let line = (depth.at(z, kz) * height.input + height.at(y, ky)) * width.input;
                for kx in columns.clone() {
                    body(filter.wrapping_add(kx), line + width.at(x, kx));
                }
            }
        }
    }

    /// Calls `body` with the number of every element of a window that lies in the padding.
    pub(crate) fn outside(&self, place: [usize; 3], body: impl FnMut(usize)) {
        let mut is_inside = vec![false; self.window()];
        self.each(place, |tap, _| is_inside[tap] = true);
        (0..is_inside.len()).filter(|tap| !is_inside[*tap]).for_each(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_outside() {
        let extent = Extent { input: 4, filter: 3, output: 4, stride: 1, dilation: 1, before: 1, skipped: 0 };
        assert_eq!([0, 1, 3].map(|window| extent.inside(window)), [1..3, 0..3, 0..2]);
        let dilated = Extent { dilation: 2, before: 2, ..extent };
        assert_eq!([0, 1, 2, 3].map(|window| dilated.inside(window)), [1..3, 1..3, 0..2, 0..2]);
        assert_eq!(dilated.at(0, 1), 0);
    }

    #[test]
    fn windows_beyond_the_image_are_empty() {
        let extent = Extent { input: 4, filter: 2, output: 9, stride: 2, dilation: 1, before: 0, skipped: 0 };
        assert!(extent.inside(2).is_empty());
        assert!(extent.inside(8).is_empty());
    }
}
