//! Reading rows of a tensor by index, along an axis and within batches.

use crate::support::units::by_unit;
use ferroflow_core::device::Threads;
use ferroflow_core::{DType, Result, Shape, Tensor, Unit, bail, ensure};

/// The slices `params[.., indices, ..]` at `axis`, where the first `batch_dims` dimensions of both go together.
/// `axis` and `batch_dims` must be within the ranks, with `batch_dims <= axis`.
pub(crate) fn gather(
    threads: Threads<'_>,
    params: &Tensor,
    indices: &Tensor,
    axis: usize,
    batch_dims: usize,
) -> Result<Tensor> {
    let (dims, index_dims) = (params.shape().dims(), indices.shape().dims());
    ensure!(
        axis < dims.len() && batch_dims <= axis && batch_dims <= index_dims.len(),
        Internal,
        "axis {axis} and {batch_dims} batch dimensions do not fit shapes {} and {}",
        params.shape(),
        indices.shape()
    );
    let shape = dims[..axis].iter().chain(&index_dims[batch_dims..]).chain(&dims[axis + 1..]).copied();
    let shape = Shape::new(shape)?;
    let mut out = threads.device().allocate(params.dtype(), shape)?;
    let count = |dims: &[i64]| dims.iter().product::<i64>() as usize;
    let extents = Extents {
        outer: count(&dims[batch_dims..axis]),
        limit: dims[axis] as usize,
        inner: count(&dims[axis + 1..]),
        count: count(&index_dims[batch_dims..]),
    };
    let bad = by_unit!(params.dtype(), U => extents.rows::<U>(threads, params.units()?, indices, out.units_mut()?)?);
    let Some(bad) = bad else { return Ok(out) };
    bail!(
        InvalidArgument,
        "indices{} = {} is not in [0, {})",
        position(indices.shape(), bad),
        crate::support::index::ints(indices)?[bad],
        dims[axis]
    )
}

/// The place of an element as error texts give it: `[1,2]`, nothing for a scalar.
pub(crate) fn position(shape: &Shape, flat: usize) -> String {
    if shape.is_scalar() {
        return String::new();
    }
    let mut rest = flat;
    let mut places: Vec<String> = shape
        .dims()
        .iter()
        .rev()
        .map(|dim| {
            let place = rest % (*dim).max(1) as usize;
            rest /= (*dim).max(1) as usize;
            place.to_string()
        })
        .collect();
    places.reverse();
    format!("[{}]", places.join(","))
}

struct Extents {
    /// Slices of `limit` rows per batch.
    outer: usize,
    /// Rows that an index may name.
    limit: usize,
    /// Elements per row.
    inner: usize,
    /// Indices per batch.
    count: usize,
}

impl Extents {
    /// Copies the rows; returns the place of the first index that is out of range, if any.
    fn rows<U: Unit>(
        &self,
        threads: Threads<'_>,
        params: &[U],
        indices: &Tensor,
        out: &mut [U],
    ) -> Result<Option<usize>> {
        match indices.dtype() {
            DType::Int32 => Ok(self.rows_by(threads, params, indices.flat::<i32>()?, out)),
            DType::Int64 => Ok(self.rows_by(threads, params, indices.flat::<i64>()?, out)),
            _ => Ok(self.rows_by(threads, params, &crate::support::index::ints(indices)?, out)),
        }
    }

    fn rows_by<U: Unit, I: Copy + Into<i64> + Sync>(
        &self,
        threads: Threads<'_>,
        params: &[U],
        indices: &[I],
        out: &mut [U],
    ) -> Option<usize> {
        // Nobody looks at indices when there is nothing to read, as in stock.
        if out.is_empty() {
            return None;
        }
        let limit = self.limit as u64;
        let bad = indices.iter().position(|index| (*index).into() as u64 >= limit);
        if bad.is_some() {
            return bad;
        }
        let inner = self.inner;
        threads.parallel_rows(out, inner, 1, |first, rows| {
            // Row `r` of the output belongs to index `r % count` of slice `r / count`.
            let (mut slice, mut at) = (first / self.count, first % self.count);
            let mut batch = slice / self.outer;
            for row in rows.chunks_exact_mut(inner) {
                let index = indices[batch * self.count + at].into() as usize;
                let start = (slice * self.limit + index) * inner;
                match row {
                    [unit] => *unit = params[start].clone(),
                    row => row.clone_from_slice(&params[start..start + inner]),
                }
                at += 1;
                if at == self.count {
                    at = 0;
                    slice += 1;
                    batch = slice / self.outer;
                }
            }
        });
        None
    }
}
