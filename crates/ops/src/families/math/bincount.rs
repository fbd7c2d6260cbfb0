//! Counting how often each small integer occurs, per tensor or per row of a dense, ragged or sparse tensor.

use crate::numeric::Num;
use crate::support::sparse::Sparse;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&BINCOUNT, &DENSE_BINCOUNT, &RAGGED_BINCOUNT, &SPARSE_BINCOUNT];

static BINCOUNT: Op = Op {
    name: "Bincount",
    inputs: &["arr: int32", "size: int32", "weights: T"],
    outputs: &["bins: T"],
    attrs: &["T: {int32, int64, float, double}"],
    shape: bincount_shape,
    kernels: kernels![flat_kernel: i32, i64, f32, f64],
    ..Op::PURE
};

static DENSE_BINCOUNT: Op = Op {
    name: "DenseBincount",
    inputs: &["input: Tidx", "size: Tidx", "weights: T"],
    outputs: &["output: T"],
    attrs: &["Tidx: {int32, int64}", "T: {int32, int64, float, double}", "binary_output: bool = false"],
    shape: dense_shape,
    kernels: kernels![dense_kernel: i32, i64, f32, f64],
    ..Op::PURE
};

static RAGGED_BINCOUNT: Op = Op {
    name: "RaggedBincount",
    inputs: &["splits: int64", "values: Tidx", "size: Tidx", "weights: T"],
    outputs: &["output: T"],
    attrs: &["Tidx: {int32, int64}", "T: {int32, int64, float, double}", "binary_output: bool = false"],
    shape: ragged_shape,
    kernels: kernels![ragged_kernel: i32, i64, f32, f64],
    ..Op::PURE
};

static SPARSE_BINCOUNT: Op = Op {
    name: "SparseBincount",
    inputs: &["indices: int64", "values: Tidx", "dense_shape: int64", "size: Tidx", "weights: T"],
    shape: sparse_shape,
    kernels: kernels![sparse_kernel: i32, i64, f32, f64],
    ..DENSE_BINCOUNT
};

/// The number of bins, if known before running.
fn bins(s: &ShapeCx<'_>, input: usize) -> Result<i64> {
    s.rank(input, 0)?;
    match s.constant_i64(input)? {
        Some(size) if size < 0 => bail!(InvalidArgument, "size ({size}) must be non-negative"),
        size => Ok(size.unwrap_or(UNKNOWN_DIM)),
    }
}

fn bincount_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let size = bins(s, 1)?;
    s.output(0, [size])
}

fn dense_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.rank_at_most(0, 2)?;
    let size = bins(s, 1)?;
    match input.dims() {
        None => Ok(()),
        Some([rows, _]) => s.output(0, [*rows, size]),
        Some(_) => s.output(0, [size]),
    }
}

fn ragged_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let size = bins(s, 2)?;
    s.output(0, [UNKNOWN_DIM, size])
}

fn sparse_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let size = bins(s, 3)?;
    let shape = s.constant_shape(2)?;
    match shape.dims() {
        None => Ok(()),
        Some([_]) => s.output(0, [size]),
        Some(dims) => s.output(0, [dims.first().copied().unwrap_or(UNKNOWN_DIM), size]),
    }
}

fn flat_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let size = size(cx, 1)?;
        let values = cx.i64s(0)?;
        let weights = weights::<T>(cx, 2, values.len())?;
        if let Some(value) = values.iter().find(|value| **value < 0) {
            bail!(InvalidArgument, "Input arr must be non-negative!: found {value}");
        }
        counted(cx, Shape::vector(size), |bins| count(&values, weights, false, bins))
    })
}

fn dense_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let binary: bool = init.attr("binary_output")?;
    Kernel::sync(move |cx| {
        let (input, size) = (cx.input(0)?, size(cx, 1)?);
        ensure!(
            input.rank() <= 2,
            InvalidArgument,
            "Shape must be at most rank 2 but is rank {}",
            input.rank()
        );
        let values = input.to_i64s()?;
        let weights = weights::<T>(cx, 2, values.len())?;
        ensure!(values.iter().all(|value| *value >= 0), InvalidArgument, "Input must be non-negative");
        if input.rank() < 2 {
            return counted(cx, Shape::vector(size), |bins| count(&values, weights, binary, bins));
        }
        let (rows, columns) = (input.shape().dim(0), input.shape().dim(1));
        let shape = Shape::new([rows as i64, size as i64])?;
        counted(cx, shape, |bins| {
            for (row, bins) in bins.chunks_mut(size.max(1)).enumerate() {
                let range = row * columns..(row + 1) * columns;
                let weights = if weights.is_empty() { weights } else { &weights[range.clone()] };
                count(&values[range], weights, binary, bins);
            }
        })
    })
}

fn ragged_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let binary: bool = init.attr("binary_output")?;
    Kernel::sync(move |cx| {
        let splits = cx.flat::<i64>(0)?;
        let values = cx.i64s(1)?;
        let size = size(cx, 2)?;
        let weights = weights::<T>(cx, 3, values.len())?;
        ensure!(!splits.is_empty(), InvalidArgument, "Splits must be non-empty");
        ensure!(splits[0] == 0, InvalidArgument, "Splits must start with 0, not with {}", splits[0]);
        let last = splits[splits.len() - 1];
        ensure!(
            last == values.len() as i64,
            InvalidArgument,
            "Splits must end with the number of values, got {last} instead of {}",
            values.len()
        );
        ensure!(values.iter().all(|value| *value >= 0), InvalidArgument, "Input must be non-negative");
        let rows = splits.len() - 1;
        let shape = Shape::new([rows as i64, size as i64])?;
        counted(cx, shape, |bins| {
            for (row, bins) in bins.chunks_mut(size.max(1)).enumerate() {
                // Splits that go back give empty rows.
                let bound = |split: i64| split.clamp(0, values.len() as i64) as usize;
                let (from, to) = (bound(splits[row]), bound(splits[row + 1]));
                let range = from..to.max(from);
                let weights = if weights.is_empty() { weights } else { &weights[range.clone()] };
                count(&values[range], weights, binary, bins);
            }
        })
    })
}

fn sparse_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let binary: bool = init.attr("binary_output")?;
    Kernel::sync(move |cx| {
        let size = size(cx, 3)?;
        let sparse = Sparse::input(cx, 0)?;
        sparse.check_bounds()?;
        ensure!(sparse.rank() > 0, InvalidArgument, "dense_shape must have at least 1 dimension, got 0");
        let values = sparse.values.to_i64s()?;
        let weights = weights::<T>(cx, 4, values.len())?;
        if sparse.rank() == 1 {
            ensure!(values.iter().all(|value| *value >= 0), InvalidArgument, "Input must be non-negative");
            return counted(cx, Shape::vector(size), |bins| count(&values, weights, binary, bins));
        }
        counted(cx, Shape::new([sparse.shape[0], size as i64])?, |bins| {
            for (entry, value) in values.iter().enumerate() {
                let row = sparse.row(entry)[0] as usize;
                let weights = weights.get(entry).map_or(&[] as &[T], std::slice::from_ref);
                count(&[*value], weights, binary, &mut bins[row * size..(row + 1) * size]);
            }
        })
    })
}

fn size(cx: &KernelCx<'_>, input: usize) -> Result<usize> {
    let size = cx.input(input)?;
    ensure!(size.rank() == 0, InvalidArgument, "Shape must be rank 0 but is rank {}", size.rank());
    let size = cx.scalar_i64(input)?;
    ensure!(size >= 0, InvalidArgument, "size ({size}) must be non-negative");
    Ok(size as usize)
}

fn weights<'a, T: Num>(cx: &'a KernelCx<'_>, input: usize, values: usize) -> Result<&'a [T]> {
    let weights = cx.flat::<T>(input)?;
    ensure!(
        weights.is_empty() || weights.len() == values,
        InvalidArgument,
        "`weights` must be the same shape as `arr` or a length-0 `Tensor`, in which case it acts as all weights equal \
         to 1. Received {}",
        cx.input(input)?.shape()
    );
    Ok(weights)
}

fn counted<T: Num>(cx: &KernelCx<'_>, shape: Shape, fill: impl FnOnce(&mut [T])) -> Result<Outputs> {
    let mut output = cx.zeros(T::DTYPE, shape)?;
    fill(output.flat_mut()?);
    Ok(output.into())
}

/// Values beyond the last bin are not counted.
fn count<T: Num>(values: &[i64], weights: &[T], binary: bool, bins: &mut [T]) {
    for (at, value) in values.iter().enumerate() {
        if let Some(bin) = bins.get_mut(*value as usize) {
            *bin = if binary { T::ONE } else { bin.add(*weights.get(at).unwrap_or(&T::ONE)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn one_row_of_bins_per_row_of_values() {
        infer("DenseBincount", "[4,2];[];?", "[4,?]");
        infer("RaggedBincount", "[4];[7];[];?", "[?,?]");
        let input = Tensor::new(Shape::matrix(2, 2), vec![1i32, 1, 0, 9]).unwrap();
        let weights = Tensor::vector(Vec::<f32>::new());
        let out = Node::new("DenseBincount").run([input, Tensor::scalar(2i32), weights]).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [0.0, 2.0, 1.0, 0.0]);
    }
}
