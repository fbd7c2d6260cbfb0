//! Sparse tensors as kernels see them: coordinates, values and the dense shape, with the checks that stock makes.

use crate::support::units::by_unit;
use ferroflow_core::kernel::KernelCx;
use ferroflow_core::op::{Dim, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

/// A sparse tensor whose parts have shapes that fit each other. Coordinates may be out of bounds, out of order or
/// repeated unless a check says otherwise.
#[derive(Clone, Copy)]
pub(crate) struct Sparse<'a> {
    /// Coordinates, `rank` per entry.
    pub(crate) indices: &'a [i64],
    /// One value per entry.
    pub(crate) values: &'a Tensor,
    /// The dense shape.
    pub(crate) shape: &'a [i64],
}

impl<'a> Sparse<'a> {
    pub(crate) fn new(indices: &'a Tensor, values: &'a Tensor, shape: &'a Tensor) -> Result<Sparse<'a>> {
        check_parts(indices, values, shape)?;
        Ok(Sparse { indices: indices.flat()?, values, shape: shape.flat()? })
    }

    /// The sparse tensor whose indices, values and shape are three consecutive inputs.
    pub(crate) fn input(cx: &'a KernelCx<'_>, first: usize) -> Result<Sparse<'a>> {
        Sparse::new(cx.input(first)?, cx.input(first + 1)?, cx.input(first + 2)?)
    }

    pub(crate) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of entries.
    pub(crate) fn entries(&self) -> usize {
        self.values.elements()
    }

    /// The coordinates of an entry.
    #[inline]
    pub(crate) fn row(&self, entry: usize) -> &'a [i64] {
        let rank = self.shape.len();
        &self.indices[entry * rank..(entry + 1) * rank]
    }

    /// The dense shape, which must be one that a tensor may have.
    pub(crate) fn dense_shape(&self) -> Result<Shape> {
        Shape::new(self.shape.iter().copied())
    }

    fn is_inside(&self, entry: usize) -> bool {
        self.row(entry).iter().zip(self.shape).all(|(at, dim)| (0..*dim).contains(at))
    }

    /// Refuses coordinates outside the dense shape.
    pub(crate) fn check_bounds(&self) -> Result<()> {
        match (0..self.entries()).find(|entry| !self.is_inside(*entry)) {
            None => Ok(()),
            Some(entry) => bail!(
                InvalidArgument,
                "Sparse index tuple indices[{entry}, :] = [{}] is out of bounds",
                joined(self.row(entry), ", ")
            ),
        }
    }

    /// Refuses coordinates outside the dense shape, out of order or repeated.
    pub(crate) fn check_order(&self) -> Result<()> {
        for entry in 0..self.entries() {
            let name = || format!("indices[{entry}] = [{}]", joined(self.row(entry), ","));
            ensure!(
                self.is_inside(entry),
                InvalidArgument,
                "{} is out of bounds: need 0 <= index < [{}]",
                name(),
                joined(self.shape, ",")
            );
            match if entry == 0 { Ordering::Less } else { self.row(entry - 1).cmp(self.row(entry)) } {
                Ordering::Less => {}
                Ordering::Equal => bail!(InvalidArgument, "{} is repeated", name()),
                Ordering::Greater => bail!(
                    InvalidArgument,
                    "{} is out of order. Many sparse ops require sorted indices.\n    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n",
                    name()
                ),
            }
        }
        Ok(())
    }

    /// The entries sorted by the coordinates in `axes`, the first of which counts most; `None` if they are sorted
    /// already. Entries with equal coordinates stay in order.
    pub(crate) fn sorted(&self, axes: &[usize]) -> Option<Vec<usize>> {
        sorted_rows(self.indices, self.shape, self.entries(), axes)
    }

    /// Ranges of consecutive entries whose coordinates in the first `axes` dimensions are equal.
    pub(crate) fn groups(&self, axes: usize) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let this = *self;
        let mut start = 0;
        std::iter::from_fn(move || {
            (start < this.entries()).then(|| {
                let key = &this.row(start)[..axes];
                let same = (start + 1..this.entries()).take_while(|entry| this.row(*entry)[..axes] == *key);
                let range = start..start + 1 + same.count();
                start = range.end;
                range
            })
        })
    }
}

/// Refuses parts of a sparse tensor that do not fit each other.
pub(crate) fn check_parts(indices: &Tensor, values: &Tensor, shape: &Tensor) -> Result<()> {
    ensure!(
        indices.rank() == 2,
        InvalidArgument,
        "Sparse indices must be rank 2 but is rank {}",
        indices.rank()
    );
    ensure!(
        values.rank() == 1,
        InvalidArgument,
        "Sparse values must be rank 1 but is rank {}",
        values.rank()
    );
    ensure!(shape.rank() == 1, InvalidArgument, "Sparse shape must be rank 1 but is rank {}", shape.rank());
    ensure!(
        indices.shape().dim(0) == values.elements(),
        InvalidArgument,
        "Number of elements in indices ({}) and values ({}) do not match",
        indices.shape().dim(0),
        values.elements()
    );
    ensure!(
        indices.shape().dim(1) == shape.elements(),
        InvalidArgument,
        "Index rank ({}) and shape rank ({}) do not match",
        indices.shape().dim(1),
        shape.elements()
    );
    Ok(())
}

/// The rows of a matrix of coordinates sorted by some of their columns; `None` if they are sorted already.
pub(crate) fn sorted_rows(indices: &[i64], shape: &[i64], rows: usize, axes: &[usize]) -> Option<Vec<usize>> {
    let rank = shape.len();
    let row = |entry: usize| &indices[entry * rank..(entry + 1) * rank];
    let compare = |a: usize, b: usize| {
        let (a, b) = (row(a), row(b));
        axes.iter().map(|axis| a[*axis].cmp(&b[*axis])).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    if (1..rows).all(|entry| compare(entry - 1, entry).is_le()) {
        return None;
    }
    // One number per row sorts faster than its coordinates, if they are all within bounds.
    let size = shape.iter().try_fold(1i64, |size, dim| size.checked_mul(*dim));
    let inside = size.is_some()
        && (0..rows).all(|entry| row(entry).iter().zip(shape).all(|(at, dim)| (0..*dim).contains(at)));
    if inside {
        let key = |entry: usize| axes.iter().fold(0, |key, axis| key * shape[*axis] + row(entry)[*axis]);
        let mut keys: Vec<(i64, usize)> = (0..rows).map(|entry| (key(entry), entry)).collect();
        keys.sort_unstable();
        return Some(keys.into_iter().map(|(_, entry)| entry).collect());
    }
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_by(|a, b| compare(*a, *b));
    Some(order)
}

/// Rows of a matrix of coordinates, in this order.
pub(crate) fn picked_rows(
    cx: &KernelCx<'_>,
    indices: &[i64],
    rank: usize,
    order: &[usize],
) -> Result<Tensor> {
    let mut out = cx.alloc::<i64>(Shape::matrix(order.len(), rank))?;
    if rank > 0 {
        let rows = out.flat_mut::<i64>()?.chunks_exact_mut(rank);
        for (out, entry) in rows.zip(order) {
            out.copy_from_slice(&indices[entry * rank..(entry + 1) * rank]);
        }
    }
    Ok(out)
}

/// Elements of a vector of any type, in this order.
pub(crate) fn picked(cx: &KernelCx<'_>, values: &Tensor, order: &[usize]) -> Result<Tensor> {
    let mut out = cx.alloc_dtype(values.dtype(), Shape::vector(order.len()))?;
    by_unit!(values.dtype(), U => {
        let values = values.units::<U>()?;
        for (out, entry) in out.units_mut::<U>()?.iter_mut().zip(order) { out.clone_from(&values[*entry]); }
    });
    Ok(out)
}

/// The elements of an int32 or int64 tensor, widened; borrowed if they are wide already.
pub(crate) fn wide(tensor: &Tensor) -> Result<Cow<'_, [i64]>> {
    Ok(match tensor.dtype() {
        DType::Int64 => Cow::Borrowed(tensor.flat::<i64>()?),
        _ => Cow::Owned(tensor.to_i64s()?),
    })
}

/// Numbers with a separator between them.
pub(crate) fn joined(numbers: &[i64], separator: &str) -> String {
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(separator)
}

/// Requires the ranks that the three parts of a sparse tensor have, from input `first` on.
pub(crate) fn sparse_ranks(s: &ShapeCx<'_>, first: usize) -> Result<()> {
    for (part, rank) in [2, 1, 1].into_iter().enumerate() {
        s.rank(first + part, rank)?;
    }
    Ok(())
}

/// The length of a vector input; unknown unless it is a vector of known length.
pub(crate) fn length(s: &ShapeCx<'_>, input: usize) -> Dim {
    match s.input(input).dims() {
        Some([length]) => *length,
        _ => UNKNOWN_DIM,
    }
}

/// Three outputs that are a sparse tensor of this rank with any number of entries, from output `first` on.
pub(crate) fn sparse_outputs(s: &mut ShapeCx<'_>, first: usize, rank: Dim) -> Result<()> {
    s.output(first, [UNKNOWN_DIM, rank])?;
    s.output(first + 1, [UNKNOWN_DIM])?;
    s.output(first + 2, [rank])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_by_the_axes_that_count() {
        let indices = [1, 0, 0, 1, 0, 0];
        assert_eq!(sorted_rows(&indices, &[2, 2], 3, &[0, 1]), Some(vec![2, 1, 0]));
        assert_eq!(sorted_rows(&indices, &[2, 2], 3, &[1, 0]), Some(vec![2, 0, 1]));
        // Out of bounds.
        assert_eq!(sorted_rows(&indices, &[1, 1], 3, &[0, 1]), Some(vec![2, 1, 0]));
        assert_eq!(sorted_rows(&[0, 1], &[2], 2, &[0]), None);
        assert_eq!(sorted_rows(&[], &[], 2, &[]), None);
    }
}
