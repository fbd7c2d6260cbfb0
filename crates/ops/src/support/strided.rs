//! The selection of a strided slice: begin, end and stride per dimension, with the masks of Python's indexing (`...`,
//! `newaxis`, a single index). Shared by slices of values and assignments to slices of variables.

use crate::linalg::strided_copy::{Layout, copy, row_major};
use crate::support::index::{Ints, input_ints};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::KernelCx;
use ferroflow_core::op::UNKNOWN_DIM;
use ferroflow_core::{Result, Shape, Tensor, bail, ensure};
use smallvec::SmallVec;

/// The mask attributes; bit `i` speaks of the `i`th index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Masks {
    begin: i64,
    end: i64,
    ellipsis: i64,
    new_axis: i64,
    shrink_axis: i64,
}

impl Masks {
    /// Reads the masks by attribute name.
    pub(crate) fn new(attr: impl Fn(&str) -> Result<i64>) -> Result<Masks> {
        Ok(Masks {
            begin: attr("begin_mask")?,
            end: attr("end_mask")?,
            ellipsis: attr("ellipsis_mask")?,
            new_axis: attr("new_axis_mask")?,
            shrink_axis: attr("shrink_axis_mask")?,
        })
    }
}

/// A slice of a tensor of a known or partly known shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct StridedSlice {
    /// The first element of each input dimension.
    begin: Ints,
    strides: Ints,
    /// The number of selected elements of each input dimension.
    sizes: Ints,
    /// The result's dimensions; single indices are gone, new axes are there.
    pub(crate) result: Ints,
    /// Whether everything is selected in its order.
    pub(crate) whole: bool,
}

/// One index after the ellipsis has been spelled out: it speaks of one input dimension.
#[derive(Clone, Copy)]
struct Index {
    begin: i64,
    end: i64,
    stride: i64,
    begin_masked: bool,
    end_masked: bool,
    shrink: bool,
}

/// The source of a dimension of the result.
#[derive(Clone, Copy)]
enum ResultDim {
    Input(usize),
    New,
}

impl StridedSlice {
    /// The slice of a tensor of shape `dims` (−1 where unknown). Unknown `begin` or `end` leave sizes unknown.
    pub(crate) fn new(
        masks: Masks,
        dims: &[i64],
        begin: Option<&[i64]>,
        end: Option<&[i64]>,
        strides: &[i64],
    ) -> Result<StridedSlice> {
        let (indices, result) = spell_out(masks, dims.len(), begin, end, strides)?;
        let mut slice = StridedSlice { whole: true, ..StridedSlice::default() };
        for (i, (index, &dim)) in indices.iter().zip(dims).enumerate() {
            let Index { stride, shrink, .. } = *index;
            ensure!(stride != 0, InvalidArgument, "strides[{i}] must be non-zero");
            ensure!(!shrink || stride > 0, InvalidArgument, "only stride 1 allowed on non-range indexing.");
            let values_known = begin.is_some() && end.is_some();
            let (first, size) = if dim == UNKNOWN_DIM {
                slice.whole &= index.begin_masked && index.end_masked && stride == 1;
                (0, if shrink { 1 } else { UNKNOWN_DIM })
            } else if shrink && begin.is_some() {
                let first = if index.begin < 0 { dim + index.begin } else { index.begin };
                ensure!(
                    (0..dim).contains(&first),
                    InvalidArgument,
                    "slice index {} of dimension {i} out of bounds.",
                    index.begin
                );
                (first, 1)
            } else if shrink {
                (0, 1)
            } else if values_known || (index.begin_masked && index.end_masked) {
                index.range(dim)
            } else {
                (0, UNKNOWN_DIM)
            };
            slice.whole &= stride == 1 && first == 0 && size == dim;
            slice.begin.push(first);
            slice.strides.push(stride);
            slice.sizes.push(size);
        }
        slice.result = result
            .iter()
            .map(|dim| match dim {
                ResultDim::Input(dim) => slice.sizes[*dim],
                ResultDim::New => 1,
            })
            .collect();
        Ok(slice)
    }

    /// The slice that `begin`, `end` and `strides`, three inputs from `first` on, select of a value of this shape.
    pub(crate) fn from_inputs(
        cx: &KernelCx<'_>,
        masks: Masks,
        shape: &Shape,
        first: usize,
    ) -> Result<StridedSlice> {
        let inputs = [cx.input(first)?, cx.input(first + 1)?, cx.input(first + 2)?];
        let count = inputs[2].elements();
        ensure!(
            inputs.iter().all(|input| input.rank() == 1 && input.elements() == count) && count < 32,
            InvalidArgument,
            "Expected begin, end, and strides to be 1D equal size tensors, but got shapes {}, {}, and {} instead.",
            inputs[0].shape(),
            inputs[1].shape(),
            inputs[2].shape()
        );
        let (begin, end) = (input_ints(cx, first)?, input_ints(cx, first + 1)?);
        StridedSlice::new(masks, shape, Some(&begin), Some(&end), &input_ints(cx, first + 2)?)
    }

    /// The shape of the result, if every dimension is known.
    pub(crate) fn shape(&self) -> Result<Shape> {
        Shape::new(self.result.iter().copied())
    }

    fn steps(&self, dims: &[i64]) -> (isize, impl Iterator<Item = (usize, isize)>) {
        let memory = row_major(dims);
        let offset = self.begin.iter().zip(&memory).map(|(begin, stride)| *begin as isize * stride).sum();
        let steps = (0..self.sizes.len())
            .map(move |i| (self.sizes[i].max(0) as usize, memory[i] * self.strides[i] as isize));
        (offset, steps)
    }

    /// Reads the slice of a tensor with these dimensions.
    pub(crate) fn reading(&self, dims: &[i64]) -> Layout {
        let (offset, steps) = self.steps(dims);
        Layout::reading(offset, steps)
    }

    /// Writes `value`, which has the slice's shape or broadcasts to it, into the slice of `target`.
    pub(crate) fn assign(&self, threads: Threads<'_>, value: &Tensor, target: &mut Tensor) -> Result<()> {
        let shape = self.shape()?;
        if value.shape() == &shape {
            let layout = self.writing(&target.shape().clone());
            return copy(threads, &layout, value, target);
        }
        if shape.elements() == 0 {
            return Ok(());
        }
        // Dimensions of one element in front do not count, as in stock.
        let surplus = value.rank().saturating_sub(shape.rank());
        let ones = value.shape().iter().take(surplus).take_while(|dim| **dim == 1).count();
        let spread = broadcast(&Shape::new(value.shape()[ones..].iter().copied())?, &shape)?;
        let mut whole = threads.device().allocate(value.dtype(), shape)?;
        copy(threads, &spread, value, &mut whole)?;
        let layout = self.writing(&target.shape().clone());
        copy(threads, &layout, &whole, target)
    }

    /// Writes the slice of a tensor with these dimensions.
    pub(crate) fn writing(&self, dims: &[i64]) -> Layout {
        let (offset, steps) = self.steps(dims);
        Layout::writing(offset, steps)
    }
}

/// Repeats a tensor of shape `from` until it has shape `to`.
pub(crate) fn broadcast(from: &Shape, to: &Shape) -> Result<Layout> {
    let strides = row_major(from);
    let fits = from.rank() <= to.rank()
        && from.iter().rev().zip(to.iter().rev()).all(|(from, to)| from == to || *from == 1);
    ensure!(fits, InvalidArgument, "Incompatible shapes: {from} vs. {to}");
    let missing = to.rank() - from.rank();
    let dims = to.iter().enumerate().map(|(i, dim)| match i.checked_sub(missing) {
        Some(at) if from[at] == *dim => (*dim as usize, strides[at]),
        _ => (*dim as usize, 0),
    });
    Ok(Layout::reading(0, dims))
}

impl Index {
    /// The first element and the number of elements of a range within a dimension.
    fn range(self, dim: i64) -> (i64, i64) {
        let forward = self.stride > 0;
        let (low, high) = if forward { (0, dim) } else { (-1, dim - 1) };
        let place = |value: i64| (if value < 0 { dim.saturating_add(value) } else { value }).clamp(low, high);
        let begin = match (self.begin_masked, forward) {
            (true, true) => low,
            (true, false) => high,
            (false, _) => place(self.begin),
        };
        let end = match (self.end_masked, forward) {
            (true, true) => high,
            (true, false) => low,
            (false, _) => place(self.end),
        };
        let length = end - begin;
        if length == 0 || (length < 0) == forward {
            return (begin.clamp(0, (dim - 1).max(0)), 0);
        }
        (begin, length / self.stride + (length % self.stride != 0) as i64)
    }
}

type Indices = SmallVec<[Index; 4]>;
type ResultDims = SmallVec<[ResultDim; 4]>;

/// One index per input dimension, and where the result's dimensions come from.
fn spell_out(
    masks: Masks,
    rank: usize,
    begin: Option<&[i64]>,
    end: Option<&[i64]>,
    strides: &[i64],
) -> Result<(Indices, ResultDims)> {
    ensure!(
        masks.ellipsis == 0 || masks.ellipsis & (masks.ellipsis.wrapping_sub(1)) == 0,
        InvalidArgument,
        "Multiple ellipses in slice spec not allowed"
    );
    let bit = |mask: i64, i: usize| mask >> i & 1 != 0;
    let mut count = strides.len();
    let mut ellipsis = masks.ellipsis;
    let explicit = (0..count).find(|i| bit(ellipsis, *i));
    let new_after_ellipsis = explicit
        .map_or(0, |at| (at..count).filter(|i| bit(masks.new_axis, *i) && !bit(ellipsis, *i)).count());
    if explicit.is_none() {
        ellipsis |= 1 << count;
        count += 1;
    }
    let masked = Index { begin: 0, end: 0, stride: 1, begin_masked: true, end_masked: true, shrink: false };
    let (mut indices, mut result) = (Indices::new(), ResultDims::new());
    for i in 0..count {
        if bit(ellipsis, i) {
            // The ellipsis stands for every dimension that no later index speaks of.
            let until = (rank + 1 + new_after_ellipsis).saturating_sub(count - i).min(rank);
            while indices.len() < until {
                result.push(ResultDim::Input(indices.len()));
                indices.push(masked);
            }
        } else if bit(masks.new_axis, i) {
            result.push(ResultDim::New);
        } else {
            if indices.len() == rank {
                ensure!(rank > 0, InvalidArgument, "Attempting to slice scalar input.");
                bail!(
                    InvalidArgument,
                    "Index out of range using input dim {rank}; input has only {rank} dims"
                );
            }
            let shrink = bit(masks.shrink_axis, i);
            if !shrink {
                result.push(ResultDim::Input(indices.len()));
            }
            indices.push(Index {
                begin: begin.map_or(0, |values| values[i]),
                end: end.map_or(0, |values| values[i]),
                stride: strides[i],
                begin_masked: bit(masks.begin, i),
                end_masked: bit(masks.end, i),
                shrink,
            });
        }
    }
    Ok((indices, result))
}
