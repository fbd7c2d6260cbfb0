//! Tensors whose last two dimensions are matrices: checks that their ops share, a loop over the matrices, and nodes that
//! gradients are made of.

use crate::builders as ops;
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::KernelCx;
use ferroflow_core::op::{Dim, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::{Input, Output, Scope};
use ferroflow_core::{DType, PartialShape, Result, Shape, Status, ensure};
use std::sync::{Mutex, PoisonError};

/// The matrices of an input.
pub(crate) struct Matrices {
    batch: Vec<i64>,
    /// The number of matrices.
    pub(crate) count: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Matrices {
    /// The matrices of an input of rank 2 at least.
    pub(crate) fn of(cx: &KernelCx<'_>, input: usize) -> Result<Matrices> {
        let dims = cx.input(input)?.shape().dims();
        ensure!(
            dims.len() >= 2,
            InvalidArgument,
            "Input tensor {input} must have rank >= 2, got {}",
            dims.len()
        );
        let (batch, matrix) = dims.split_at(dims.len() - 2);
        let count = batch.iter().product::<i64>() as usize;
        Ok(Matrices { batch: batch.to_vec(), count, rows: matrix[0] as usize, columns: matrix[1] as usize })
    }

    /// The square matrices of the first input.
    pub(crate) fn square(cx: &KernelCx<'_>) -> Result<Matrices> {
        let matrices = Matrices::of(cx, 0)?;
        ensure!(matrices.rows == matrices.columns, InvalidArgument, "Input matrix must be square.");
        Ok(matrices)
    }

    /// The matrices of the second input, as many as those of the first and in the same dimensions.
    pub(crate) fn beside(&self, cx: &KernelCx<'_>) -> Result<Matrices> {
        let other = cx.input(1)?.shape();
        ensure!(
            other.dims().len() == self.batch.len() + 2,
            InvalidArgument,
            "All input tensors must have the same rank."
        );
        let other = Matrices::of(cx, 1)?;
        ensure!(
            other.batch == self.batch,
            InvalidArgument,
            "All input tensors must have the same outer dimensions."
        );
        Ok(other)
    }

    /// The shape of an output with these dimensions per matrix.
    pub(crate) fn shape(&self, dims: &[usize]) -> Result<Shape> {
        Shape::new(self.batch.iter().copied().chain(dims.iter().map(|dim| *dim as i64)))
    }
}

/// An output and the number of its elements per matrix.
pub(crate) type Parts<'a, T> = (&'a mut [T], usize);

/// Runs `body` for every matrix with the parts of three outputs that belong to it, on several threads if that is worth
/// `cost` operations each. A matrix that has the machine for itself gets the threads. The error of the first matrix that
/// has one counts.
pub(crate) fn for_each_matrix<A: Send, B: Send, C: Send>(
    threads: Threads<'_>,
    (count, cost): (usize, usize),
    (first, second, third): (Parts<'_, A>, Parts<'_, B>, Parts<'_, C>),
    body: &MatrixBody<'_, A, B, C>,
) -> Result<()> {
    let sizes = (first.1, second.1, third.1);
    if sizes == (0, 0, 0) {
        return Ok(());
    }
    let run = |number: usize, parts: (&mut [A], &mut [B], &mut [C]), threads: Option<Threads<'_>>| {
        body(number, threads, parts.0, parts.1, parts.2)
    };
    if count < threads.count().max(2) {
        let parts = pieces(first, count, 1).into_iter().zip(pieces(second, count, 1));
        for (number, ((a, b), c)) in parts.zip(pieces(third, count, 1)).enumerate() {
            run(number, (a, b, c), Some(threads))?;
        }
        return Ok(());
    }
    let length = threads.part_length(count, cost.max(1));
    let parts = pieces(first, count, length).into_iter().zip(pieces(second, count, length));
    let parts: Vec<_> = parts.zip(pieces(third, count, length)).collect();
    let failure: Mutex<Option<(usize, Status)>> = Mutex::new(None);
    threads.run_each(parts, &|part, ((mut a, mut b), mut c)| {
        for number in part * length..((part + 1) * length).min(count) {
            let one = (take(&mut a, sizes.0), take(&mut b, sizes.1), take(&mut c, sizes.2));
            if let Err(status) = run(number, one, None) {
                let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                if failure.as_ref().is_none_or(|(earlier, _)| number < *earlier) {
                    *failure = Some((number, status));
                }
                return;
            }
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, status)) => Err(status),
        None => Ok(()),
    }
}

/// The body of a loop over matrices: takes the number of one, the threads it may use, and its parts of three outputs.
pub(crate) type MatrixBody<'a, A, B, C> =
    dyn Fn(usize, Option<Threads<'_>>, &mut [A], &mut [B], &mut [C]) -> Result<()> + Sync + 'a;

/// An output that an op does not have.
pub(crate) fn absent() -> Parts<'static, ()> {
    (&mut [], 0)
}

fn pieces<'a, T>((all, size): Parts<'a, T>, count: usize, length: usize) -> Vec<&'a mut [T]> {
    if size == 0 {
        return (0..count.div_ceil(length)).map(|_| &mut [][..]).collect();
    }
    all.chunks_mut(size * length).collect()
}

fn take<'a, T>(from: &mut &'a mut [T], size: usize) -> &'a mut [T] {
    let (head, rest) = std::mem::take(from).split_at_mut(size);
    *from = rest;
    head
}

/// The first input's shape, which is of square matrices.
pub(crate) fn square_shape(s: &ShapeCx<'_>, input: usize) -> Result<(Vec<Dim>, Dim, PartialShape)> {
    let shape = s.rank_at_least(input, 2)?;
    let Some([batch @ .., rows, columns]) = shape.dims() else {
        return Ok((Vec::new(), UNKNOWN_DIM, PartialShape::unknown()));
    };
    let order = s.merge_dims(*rows, *columns)?;
    let batch = batch.to_vec();
    let shape = PartialShape::new(batch.iter().copied().chain([order, order]))?;
    Ok((batch, order, shape))
}

/// Gives every output the shape of the first input, which is of square matrices.
pub(crate) fn unchanged_square(s: &mut ShapeCx<'_>) -> Result<()> {
    let (_, _, shape) = square_shape(s, 0)?;
    for output in 0..s.num_outputs() {
        s.set(output, shape.clone());
    }
    Ok(())
}

/// A product of matrices, either of which may be taken adjoint.
pub(crate) fn product(
    s: &Scope,
    x: impl Into<Input>,
    y: impl Into<Input>,
    (adj_x, adj_y): (bool, bool),
) -> Result<Output> {
    ops::BatchMatMulV2::new().adj_x(adj_x).adj_y(adj_y).build(s, x.into(), y.into())
}

/// The conjugate transpose of matrices.
pub(crate) fn adjoint(s: &Scope, x: &Output) -> Result<Output> {
    let order: Input = match x.shape().rank() {
        Some(rank) => {
            let rank = rank as i32;
            (0..rank - 2).chain([rank - 1, rank - 2]).collect::<Vec<i32>>().into()
        }
        None => {
            let rank = ops::rank(s, x)?;
            let outer = ops::range(s, 0, ops::sub(s, &rank, 2)?, 1)?;
            let swapped = ops::reshape(s, ops::sub(s, &rank, s.constant(vec![1, 2])?)?, [2])?;
            ops::concat_v2(s, [&outer, &swapped], 0)?.into()
        }
    };
    if x.dtype().is_complex() { ops::conjugate_transpose(s, x, order) } else { ops::transpose(s, x, order) }
}

/// The type of the real part.
pub(crate) fn real_type(dtype: DType) -> DType {
    match dtype {
        DType::Complex64 => DType::Float,
        DType::Complex128 => DType::Double,
        other => other,
    }
}
