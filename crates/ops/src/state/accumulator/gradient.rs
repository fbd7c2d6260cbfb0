//! Gradients as accumulators keep them: dense tensors, or rows with their indices.

use super::AccumulatorSpec;
use crate::numeric::Num;
use crate::state::variable::{add_assign, change};
use ferroflow_core::device::Device;
use ferroflow_core::{DType, Result, Shape, Tensor, ensure};
use std::cmp::Ordering;

/// The content of an accumulator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Dense,
    Sparse,
}

/// A gradient that a step brings.
pub(crate) enum Gradient {
    Dense(Tensor),
    /// Rows, their indices and, if the step knows it, the shape of the whole.
    Sparse {
        indices: Tensor,
        values: Tensor,
        shape: Option<Vec<i64>>,
    },
}

/// The arithmetic of an element type.
#[derive(Clone, Copy)]
pub(crate) struct Arithmetic {
    add: fn(&Device, &mut Tensor, &Tensor) -> Result<()>,
    /// Adds row `.1` of a tensor to row `.0` of another; both have rows of this width.
    add_row: fn(&mut Tensor, &Tensor, (usize, usize), usize) -> Result<()>,
    /// Divides consecutive rows by these counts.
    divide: fn(&Device, &mut Tensor, &[u32]) -> Result<()>,
}

impl Arithmetic {
    pub(crate) fn of<T: Num>() -> Arithmetic {
        Arithmetic { add: add::<T>, add_row: add_row::<T>, divide: divide::<T> }
    }
}

fn add<T: Num>(device: &Device, sum: &mut Tensor, gradient: &Tensor) -> Result<()> {
    change::<T>(device.threads(), sum.flat_mut()?, gradient.flat()?, add_assign);
    Ok(())
}

fn add_row<T: Num>(sum: &mut Tensor, gradient: &Tensor, rows: (usize, usize), width: usize) -> Result<()> {
    let sum = &mut sum.flat_mut::<T>()?[rows.0 * width..][..width];
    add_assign(sum, &gradient.flat::<T>()?[rows.1 * width..][..width]);
    Ok(())
}

fn divide<T: Num>(device: &Device, sum: &mut Tensor, counts: &[u32]) -> Result<()> {
    let width = sum.elements().checked_div(counts.len()).unwrap_or(0);
    device.threads().parallel_rows(sum.flat_mut::<T>()?, width, width, |first, rows| {
        for (row, count) in rows.chunks_mut(width.max(1)).zip(&counts[first..]) {
            let count = T::from_f64(f64::from(*count));
            row.iter_mut().for_each(|value| *value = value.div(count));
        }
    });
    Ok(())
}

/// The sum of the gradients so far.
pub(super) enum Sum {
    Dense(Tensor),
    /// Rows in the order of their indices, and how many gradients had each.
    Sparse {
        indices: Vec<i64>,
        counts: Vec<u32>,
        values: Tensor,
    },
}

impl Gradient {
    /// Refuses a gradient that fits neither the accumulator nor what it holds.
    pub(super) fn check(&self, spec: &AccumulatorSpec, sum: Option<&Sum>) -> Result<()> {
        match self {
            Gradient::Dense(value) => {
                ensure!(
                    spec.kind == Kind::Dense,
                    InvalidArgument,
                    "accumulator '{}' takes sparse gradients",
                    spec.name
                );
                if let Some(Sum::Dense(sum)) = sum {
                    ensure!(
                        sum.shape() == value.shape(),
                        InvalidArgument,
                        "Shape mismatch: expected {}, got {}",
                        sum.shape(),
                        value.shape()
                    );
                }
                ensure!(
                    spec.shape.admits(value.shape()),
                    InvalidArgument,
                    "Shape mismatch: expected {}, got {}",
                    spec.shape,
                    value.shape()
                );
                Ok(())
            }
            Gradient::Sparse { indices, values, shape } => {
                ensure!(
                    spec.kind == Kind::Sparse,
                    InvalidArgument,
                    "accumulator '{}' takes dense gradients",
                    spec.name
                );
                check_sparse(spec, indices, values, shape.as_deref(), sum)
            }
        }
    }
}

fn check_sparse(
    spec: &AccumulatorSpec,
    indices: &Tensor,
    values: &Tensor,
    shape: Option<&[i64]>,
    sum: Option<&Sum>,
) -> Result<()> {
    ensure!(
        indices.rank() == 1,
        InvalidArgument,
        "Input indices should be vector but received shape: {}",
        indices.shape()
    );
    ensure!(values.rank() > 0, InvalidArgument, "Values cannot be 0-dimensional.");
    ensure!(
        values.shape().dim(0) == indices.elements(),
        InvalidArgument,
        "Expected {} non-empty input values, got {}",
        indices.elements(),
        values.shape().dim(0)
    );
    let expected = spec.shape.dims().unwrap_or_default();
    if let Some(shape) = shape {
        ensure!(
            expected.len() <= shape.len(),
            InvalidArgument,
            "Shape mismatch: expected shape rank at least {}, got {}",
            expected.len(),
            shape.len()
        );
        for (dim, (expected, got)) in expected.iter().zip(shape).enumerate() {
            ensure!(
                *expected < 0 || expected == got,
                InvalidArgument,
                "Shape mismatch: expected shape dim {dim} to be {expected}, got {got}"
            );
        }
    }
    if let Some(rows) = expected.first().filter(|rows| **rows >= 0) {
        for (at, index) in indices.flat::<i64>()?.iter().enumerate() {
            ensure!(
                index < rows,
                InvalidArgument,
                "Shape mismatch: index of slice {at} exceeded limits of shape; index is {index} exceeded {rows}"
            );
        }
    }
    let got = values.shape().dims();
    let expected = match sum {
        Some(Sum::Sparse { values: sum, .. }) => {
            ensure!(
                sum.rank() == got.len(),
                InvalidArgument,
                "Shape mismatch: expected values rank {}, got {}",
                sum.rank(),
                got.len()
            );
            sum.shape().dims()
        }
        _ => {
            ensure!(
                expected.len() <= got.len(),
                InvalidArgument,
                "Shape mismatch: expected values rank at least {}, got {}",
                expected.len(),
                got.len()
            );
            expected
        }
    };
    for (dim, (expected, got)) in expected.iter().zip(got).enumerate().skip(1) {
        ensure!(
            *expected < 0 || expected == got,
            InvalidArgument,
            "Shape mismatch: expected values dim {dim} to be {expected}, got {got}"
        );
    }
    Ok(())
}

impl Sum {
    /// The sum of one gradient, which has been checked.
    pub(super) fn new(gradient: Gradient) -> Sum {
        match gradient {
            Gradient::Dense(value) => Sum::Dense(value),
            Gradient::Sparse { indices, values, .. } => {
                let indices = indices.flat::<i64>().map(<[i64]>::to_vec).unwrap_or_default();
                Sum::Sparse { counts: vec![1; indices.len()], indices, values }
            }
        }
    }

    /// The sum with one more gradient, which has been checked.
    pub(super) fn plus(self, device: &Device, spec: &AccumulatorSpec, gradient: Gradient) -> Result<Sum> {
        match (self, gradient) {
            (Sum::Dense(mut sum), Gradient::Dense(value)) => {
                (spec.arithmetic.add)(device, &mut sum, &value)?;
                Ok(Sum::Dense(sum))
            }
            (
                Sum::Sparse { indices, counts, values },
                Gradient::Sparse { indices: more, values: rows, .. },
            ) => plus_rows(device, spec, (indices, counts, values), more.flat::<i64>()?, &rows),
            (sum, _) => Ok(sum),
        }
    }

    /// The average that a consumer of `count` gradients gets.
    pub(super) fn reduced(
        self,
        device: &Device,
        spec: &AccumulatorSpec,
        count: usize,
    ) -> Result<Vec<Tensor>> {
        match self {
            Sum::Dense(mut sum) => {
                if spec.mean {
                    (spec.arithmetic.divide)(device, &mut sum, &[u32::try_from(count).unwrap_or(u32::MAX)])?;
                }
                Ok(vec![sum])
            }
            Sum::Sparse { indices, counts, mut values } => {
                if spec.mean {
                    (spec.arithmetic.divide)(device, &mut values, &counts)?;
                }
                let rows = spec.shape.dims().and_then(|dims| dims.first()).copied().unwrap_or(-1);
                let mut shape = values.shape().dims().to_vec();
                shape[0] = rows;
                Ok(vec![Tensor::vector(indices), values, Tensor::vector(shape)])
            }
        }
    }
}

/// Merges rows as two sorted lists are merged; lists that are not sorted, or name a row twice, give what that gives in
/// stock: a row may then appear twice.
fn plus_rows(
    device: &Device,
    spec: &AccumulatorSpec,
    (indices, counts, values): (Vec<i64>, Vec<u32>, Tensor),
    more: &[i64],
    rows: &Tensor,
) -> Result<Sum> {
    if indices == more {
        let mut values = values;
        (spec.arithmetic.add)(device, &mut values, rows)?;
        return Ok(Sum::Sparse {
            indices,
            counts: counts.into_iter().map(|count| count + 1).collect(),
            values,
        });
    }
    let mut merged: Vec<(Option<usize>, Option<usize>)> = Vec::with_capacity(indices.len() + more.len());
    let (mut i, mut j) = (0, 0);
    while i < indices.len() || j < more.len() {
        let order = match (indices.get(i), more.get(j)) {
            (Some(a), Some(b)) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            _ => Ordering::Greater,
        };
        merged.push((order.is_le().then_some(i), order.is_ge().then_some(j)));
        i += usize::from(order.is_le());
        j += usize::from(order.is_ge());
    }
    let mut dims = values.shape().dims().to_vec();
    let width: usize = dims[1..].iter().product::<i64>() as usize;
    dims[0] = merged.len() as i64;
    let shape = Shape::new(dims)?;
    let mut sum = device.allocate(spec.dtype, shape)?;
    let (mut sum_indices, mut sum_counts) =
        (Vec::with_capacity(merged.len()), Vec::with_capacity(merged.len()));
    for (at, (old, new)) in merged.into_iter().enumerate() {
        match (old, new) {
            (Some(old), new) => {
                copy_row(&mut sum, &values, (at, old), width)?;
                if let Some(new) = new {
                    (spec.arithmetic.add_row)(&mut sum, rows, (at, new), width)?;
                }
                sum_indices.push(indices[old]);
                sum_counts.push(counts[old] + u32::from(new.is_some()));
            }
            (None, Some(new)) => {
                copy_row(&mut sum, rows, (at, new), width)?;
                sum_indices.push(more[new]);
                sum_counts.push(1);
            }
            (None, None) => {}
        }
    }
    Ok(Sum::Sparse { indices: sum_indices, counts: sum_counts, values: sum })
}

fn copy_row(to: &mut Tensor, from: &Tensor, rows: (usize, usize), width: usize) -> Result<()> {
    fn copy<U: ferroflow_core::Unit>(
        to: &mut Tensor,
        from: &Tensor,
        rows: (usize, usize),
        width: usize,
    ) -> Result<()> {
        to.units_mut::<U>()?[rows.0 * width..][..width]
            .clone_from_slice(&from.units::<U>()?[rows.1 * width..][..width]);
        Ok(())
    }
    let dtype: DType = to.dtype();
    crate::support::units::by_unit!(dtype, U => copy::<U>(to, from, rows, width))
}
