//! The layout of several operands whose shapes are broadcast to one.
//!
//! Dimensions along which the operands behave alike are merged first, so that equal shapes are one long run whatever
//! their rank, and a row or column broadcast is two nested loops.

use ferroflow_core::Shape;
use smallvec::SmallVec;
use std::ops::Range;

/// Merged dimensions along which the same operands move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span<const N: usize> {
    size: usize,
    /// Per operand, the distance of neighbors; 0 if the operand is repeated.
    strides: [usize; N],
}

/// The broadcast of `N` operands.
#[derive(Debug)]
pub(crate) struct Broadcast<const N: usize> {
    shape: Shape,
    elements: usize,
    /// The innermost span; its strides are 0 or 1.
    inner: Span<N>,
    /// The spans around it, innermost first.
    outer: SmallVec<[Span<N>; 3]>,
}

impl<const N: usize> Broadcast<N> {
    /// The broadcast of these shapes; `None` if they do not fit each other.
    pub(crate) fn new(shapes: [&Shape; N]) -> Option<Broadcast<N>> {
        if shapes[1..].iter().all(|shape| *shape == shapes[0]) {
            let elements = shapes[0].elements();
            let inner = Span { size: elements, strides: [1; N] };
            return Some(Broadcast { shape: shapes[0].clone(), elements, inner, outer: SmallVec::new() });
        }
        let rank = shapes.iter().map(|shape| shape.rank()).max().unwrap_or(0);
        let mut dims: SmallVec<[i64; 8]> = SmallVec::from_elem(1, rank);
        let mut spans: SmallVec<[Span<N>; 4]> = SmallVec::new();
        let mut counts = [1usize; N];
        for back in 1..=rank {
            let mut sizes = [1i64; N];
            for (size, shape) in sizes.iter_mut().zip(shapes) {
                if back <= shape.rank() {
                    *size = shape[shape.rank() - back];
                }
            }
            let common = sizes.iter().copied().find(|size| *size != 1).unwrap_or(1);
            if sizes.iter().any(|size| *size != 1 && *size != common) {
                return None;
            }
            dims[rank - back] = common;
            if common == 1 {
                continue;
            }
            let mut strides = [0; N];
            for operand in 0..N {
                if sizes[operand] != 1 {
                    strides[operand] = counts[operand];
                    counts[operand] = counts[operand].saturating_mul(common as usize);
                }
            }
            let moves = |span: &Span<N>| (0..N).all(|i| (span.strides[i] != 0) == (strides[i] != 0));
            match spans.last_mut() {
                Some(last) if moves(last) => last.size = last.size.saturating_mul(common as usize),
                _ => spans.push(Span { size: common as usize, strides }),
            }
        }
        let shape = Shape::new(dims).ok()?;
        let elements = shape.elements();
        let mut spans = spans.into_iter();
        let inner = spans.next().unwrap_or(Span { size: 1, strides: [1; N] });
        Some(Broadcast { shape, elements, inner, outer: spans.collect() })
    }

    /// The result's shape.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The result's shape, when the plan is no longer needed.
    pub(crate) fn into_shape(self) -> Shape {
        self.shape
    }

    /// The number of elements of the result.
    pub(crate) fn elements(&self) -> usize {
        self.elements
    }

    /// The number of inner runs.
    pub(crate) fn rows(&self) -> usize {
        self.outer.iter().map(|span| span.size).product()
    }

    /// The length of an inner run.
    pub(crate) fn columns(&self) -> usize {
        self.inner.size
    }

    /// Per operand, whether it moves along an inner run or stays at one element.
    pub(crate) fn moves(&self) -> [bool; N] {
        self.inner.strides.map(|stride| stride != 0)
    }

    /// The number of elements that an operand must have.
    pub(crate) fn operand_elements(&self, operand: usize) -> usize {
        let spans = self.outer.iter().chain(std::iter::once(&self.inner));
        spans.filter(|span| span.strides[operand] != 0).map(|span| span.size).product()
    }

    /// Calls `body(row, offsets)` for these rows: per operand, the offset of the row's first element.
    #[inline(always)]
    pub(crate) fn for_rows(&self, rows: Range<usize>, mut body: impl FnMut(usize, [usize; N])) {
        let mut counters: SmallVec<[usize; 3]> = SmallVec::new();
        let mut offsets = [0usize; N];
        let mut rest = rows.start;
        for span in &self.outer {
            let counter = rest % span.size;
            rest /= span.size;
            for (offset, stride) in offsets.iter_mut().zip(span.strides) {
                *offset += counter * stride;
            }
            counters.push(counter);
        }
        for row in rows {
            body(row, offsets);
            for (counter, span) in counters.iter_mut().zip(&self.outer) {
                *counter += 1;
                for (offset, stride) in offsets.iter_mut().zip(span.strides) {
                    *offset += stride;
                }
                if *counter < span.size {
                    break;
                }
                *counter = 0;
                for (offset, stride) in offsets.iter_mut().zip(span.strides) {
                    *offset -= span.size * stride;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(a: &[i64], b: &[i64]) -> Option<Broadcast<2>> {
        let (a, b) = (Shape::new(a.to_vec()).unwrap(), Shape::new(b.to_vec()).unwrap());
        Broadcast::new([&a, &b])
    }

    #[test]
    fn alike_dimensions_merge() {
        let equal = plan(&[2, 3, 4], &[2, 3, 4]).unwrap();
        assert_eq!((equal.rows(), equal.columns()), (1, 24));
        let row = plan(&[2, 3, 4], &[3, 4]).unwrap();
        assert_eq!((row.rows(), row.columns()), (2, 12));
        let column = plan(&[2, 3, 4], &[2, 1, 1]).unwrap();
        assert_eq!((column.rows(), column.columns(), column.moves()), (2, 12, [true, false]));
        assert!(plan(&[2, 3], &[2]).is_none());
        assert_eq!(plan(&[0, 1], &[1, 2]).unwrap().elements(), 0);
    }

    #[test]
    fn offsets_follow_the_strides_from_any_row() {
        let outer = plan(&[2, 1, 3, 1], &[4, 1, 5]).unwrap();
        assert_eq!(outer.shape().dims(), [2, 4, 3, 5]);
        let mut all = Vec::new();
        outer.for_rows(0..outer.rows(), |_, offsets| all.push(offsets));
        let mut tail = Vec::new();
        outer.for_rows(7..outer.rows(), |_, offsets| tail.push(offsets));
        assert_eq!(all[7..], tail);
        assert_eq!((outer.operand_elements(0), outer.operand_elements(1)), (6, 20));
        assert_eq!(all.last(), Some(&[5, 15]));
    }
}
