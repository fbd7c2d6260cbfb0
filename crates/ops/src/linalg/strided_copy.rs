//! Copies a box of elements between two memories in which its dimensions have different strides. Slicing, tiling,
//! broadcasting, reversing, transposing, padding and concatenating are all such copies.
#![allow(unsafe_code)]

use crate::support::units::by_unit;
use ferroflow_core::device::Threads;
use ferroflow_core::{Result, Tensor, Unit, ensure};
use smallvec::SmallVec;

/// Strides in elements, which may be zero (repeat) or negative (reverse).
pub(crate) type Strides = SmallVec<[isize; 6]>;

/// A box of elements as its source and its destination see it. Dimensions stand from the outermost to the innermost;
/// no element of the destination may be reached twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    dims: SmallVec<[usize; 6]>,
    from: Strides,
    to: Strides,
    from_offset: isize,
    to_offset: isize,
}

/// The strides of a row-major tensor.
pub(crate) fn row_major(dims: &[i64]) -> Strides {
    let mut strides = Strides::from_elem(1, dims.len());
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i] as isize;
    }
    strides
}

impl Layout {
    /// A box of one element at these places; [`Layout::push`] adds dimensions.
    pub(crate) fn at(from_offset: isize, to_offset: isize) -> Layout {
        Layout { from_offset, to_offset, ..Layout::default() }
    }

    /// Adds an inner dimension.
    pub(crate) fn push(&mut self, dim: usize, from: isize, to: isize) {
        self.dims.push(dim);
        self.from.push(from);
        self.to.push(to);
    }

    /// Reads a strided box into row-major memory.
    pub(crate) fn reading(offset: isize, dims: impl IntoIterator<Item = (usize, isize)>) -> Layout {
        let mut layout = Layout::at(offset, 0);
        for (dim, from) in dims.into_iter() {
            layout.push(dim, from, 0);
        }
        layout.to = contiguous(&layout.dims);
        layout
    }

    /// Writes row-major memory into a strided box.
    pub(crate) fn writing(offset: isize, dims: impl IntoIterator<Item = (usize, isize)>) -> Layout {
        let mut layout = Layout::at(0, offset);
        for (dim, to) in dims.into_iter() {
            layout.push(dim, 0, to);
        }
        layout.from = contiguous(&layout.dims);
        layout
    }

    fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// The same copy with fewer dimensions: those of size one are dropped, neighbors that advance together are joined,
    /// and if the source is contiguous along another dimension than the destination, that one becomes the last but one.
    fn simplified(&self) -> Layout {
        let mut simple = Layout::at(self.from_offset, self.to_offset);
        for i in 0..self.dims.len() {
            let (dim, from, to) = (self.dims[i], self.from[i], self.to[i]);
            if dim == 1 {
                continue;
            }
            match simple.dims.len().checked_sub(1) {
                Some(last)
                    if simple.from[last] == from * dim as isize && simple.to[last] == to * dim as isize =>
                {
                    simple.dims[last] *= dim;
                    simple.from[last] = from;
                    simple.to[last] = to;
                }
                _ => simple.push(dim, from, to),
            }
        }
        let rank = simple.dims.len();
        if rank > 2
            && simple.from[rank - 1] != 1
            && let Some(near) = simple.from[..rank - 2].iter().position(|stride| *stride == 1)
        {
            simple.dims[near..rank - 1].rotate_left(1);
            simple.from[near..rank - 1].rotate_left(1);
            simple.to[near..rank - 1].rotate_left(1);
        }
        simple
    }
}

fn contiguous(dims: &[usize]) -> Strides {
    let mut strides = Strides::from_elem(1, dims.len());
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i].wrapping_mul(dims[i] as isize);
    }
    strides
}

/// Copies between tensors of one element type.
pub(crate) fn copy(threads: Threads<'_>, layout: &Layout, from: &Tensor, to: &mut Tensor) -> Result<()> {
    ensure!(from.dtype() == to.dtype(), Internal, "a copy from {} to {}", from.dtype(), to.dtype());
    by_unit!(from.dtype(), U => copy_units::<U>(threads, layout, from.units()?, to.units_mut()?))
}

/// Copies between slices.
pub(crate) fn copy_units<U: Unit>(
    threads: Threads<'_>,
    layout: &Layout,
    from: &[U],
    to: &mut [U],
) -> Result<()> {
    if layout.elements() == 0 {
        return Ok(());
    }
    let simple = layout.simplified();
    let inside = |offset: isize, strides: &[isize], length: usize| {
        let (mut low, mut high) = (offset, offset);
        for (dim, stride) in simple.dims.iter().zip(strides) {
            let reach = stride * (*dim as isize - 1);
            if reach < 0 { low += reach } else { high += reach }
        }
        low >= 0 && high < length as isize
    };
    ensure!(
        inside(simple.from_offset, &simple.from, from.len())
            && inside(simple.to_offset, &simple.to, to.len()),
        Internal,
        "a copy reaches outside its tensors"
    );
    // SAFETY: every element that the box reaches lies inside both slices, as just checked, so these places do, too.
    let (source, target) =
        unsafe { (from.as_ptr().offset(simple.from_offset), to.as_mut_ptr().offset(simple.to_offset)) };
    let Some((&outer, inner)) = simple.dims.split_first() else {
        // SAFETY: as above.
        unsafe { *target = (*source).clone() };
        return Ok(());
    };
    let (source, target) = (Source(source), Target(target));
    threads.parallel_for(outer, inner.iter().product(), |part| {
        // Capture the wrappers whole, not the pointers in them.
        let (source, target) = (&source, &target);
        if part.is_empty() {
            return;
        }
        // SAFETY: parts are disjoint ranges of the outermost dimension, no element of the destination belongs to two
        // of them, and all are inside the slices, which stay borrowed until every part is done.
        unsafe {
            let source = source.0.offset(simple.from[0] * part.start as isize);
            let target = target.0.offset(simple.to[0] * part.start as isize);
            let mut dims = simple.dims.clone();
            dims[0] = part.len();
            walk(&dims, &simple.from, &simple.to, source, target);
        }
    });
    Ok(())
}

struct Source<U>(*const U);
// SAFETY: shared reading of `U: Sync` elements.
unsafe impl<U: Sync> Sync for Source<U> {}

struct Target<U>(*mut U);
// SAFETY: each thread writes elements of its own.
unsafe impl<U: Send> Sync for Target<U> {}

/// # Safety
/// Every element that the dimensions reach from `source` and `target` must be valid.
unsafe fn walk<U: Unit>(dims: &[usize], from: &[isize], to: &[isize], source: *const U, target: *mut U) {
    // SAFETY: the caller's.
    unsafe {
        match *dims {
            [] => *target = (*source).clone(),
            [dim] => line(dim, source, from[0], target, to[0]),
            [rows, columns] if from[0] == 1 && to[1] == 1 && from[1] != 1 => {
                turn(rows, columns, source, from[1], target, to[0]);
            }
            [outer, ..] => {
                for i in 0..outer as isize {
                    let (source, target) = (source.offset(i * from[0]), target.offset(i * to[0]));
                    walk(&dims[1..], &from[1..], &to[1..], source, target);
                }
            }
        }
    }
}

/// Runs shorter than this are copied by a loop, which beats a call to `memcpy`.
const SHORT_RUN: usize = 8;

/// # Safety
/// As for [`walk`].
#[inline]
unsafe fn line<U: Unit>(dim: usize, source: *const U, from: isize, target: *mut U, to: isize) {
    // SAFETY: the caller's.
    unsafe {
        match (from, to) {
            (1, 1) if dim >= SHORT_RUN => std::slice::from_raw_parts_mut(target, dim)
                .clone_from_slice(std::slice::from_raw_parts(source, dim)),
            (0, 1) => std::slice::from_raw_parts_mut(target, dim).fill((*source).clone()),
            _ => {
                for i in 0..dim as isize {
                    *target.offset(i * to) = (*source.offset(i * from)).clone();
                }
            }
        }
    }
}

/// Transposes a matrix whose rows are contiguous in the destination and whose columns are in the source, in blocks
/// that stay in the cache.
///
/// # Safety
/// As for [`walk`].
unsafe fn turn<U: Unit>(
    rows: usize,
    columns: usize,
    source: *const U,
    from: isize,
    target: *mut U,
    to: isize,
) {
    let block = (64 / size_of::<U>()).clamp(8, 32);
    for first_column in (0..columns).step_by(block) {
        let last_column = (first_column + block).min(columns);
        for first_row in (0..rows).step_by(block) {
            for row in first_row..(first_row + block).min(rows) {
                // SAFETY: the caller's.
                unsafe {
                    let line = target.offset(row as isize * to);
                    for column in first_column..last_column {
                        *line.add(column) = (*source.offset(column as isize * from + row as isize)).clone();
                    }
                }
            }
        }
    }
}
