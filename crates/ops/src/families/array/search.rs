//! Searching sorted rows, and counting values by range.

use crate::numeric::Real;
use crate::support::index::{constant_int, int_tensor};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Shape, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&UPPER_BOUND, &LOWER_BOUND, &HISTOGRAM_FIXED_WIDTH];

const BOUND: Op = Op {
    inputs: &["sorted_inputs: T", "values: T"],
    outputs: &["output: out_type"],
    attrs: &["T: type", "out_type: {int32, int64} = DT_INT32"],
    shape: bound_shape,
    ..Op::PURE
};

static UPPER_BOUND: Op = Op {
    name: "UpperBound",
    kernels: kernels![upper_bound_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..BOUND
};

static LOWER_BOUND: Op = Op {
    name: "LowerBound",
    kernels: kernels![lower_bound_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..BOUND
};

static HISTOGRAM_FIXED_WIDTH: Op = Op {
    name: "HistogramFixedWidth",
    inputs: &["values: T", "value_range: T", "nbins: int32"],
    outputs: &["out: dtype"],
    attrs: &["T: {int32, int64, float, double}", "dtype: {int32, int64} = DT_INT32"],
    shape: histogram_shape,
    kernels: kernels![histogram_kernel: i32, i64, f32, f64],
    ..Op::PURE
};

fn bound_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 2)?;
    let values = s.rank(1, 2)?;
    s.set(0, values);
    Ok(())
}

/// Elements of a row to search, and values that are looked for in it.
fn row_lengths(sorted: &Tensor, values: &Tensor, dtype: DType) -> Result<(usize, usize)> {
    for (tensor, name) in [(sorted, "sorted_inputs"), (values, "values")] {
        ensure!(
            tensor.rank() == 2,
            InvalidArgument,
            "Shape must be rank 2 but is rank {} for `{name}` argument",
            tensor.rank()
        );
    }
    ensure!(
        sorted.shape()[0] == values.shape()[0],
        InvalidArgument,
        "Leading dim_size of both tensors must match."
    );
    let (length, count) = (sorted.shape().dim(1), values.shape().dim(1));
    ensure!(
        dtype == DType::Int64 || length < i32::MAX as usize,
        InvalidArgument,
        "trailing dim_size must less than INT_MAX for int32 output type, was {length}"
    );
    Ok((length, count))
}

/// For each value, how many elements of its row come before it, where `before(element, value)` decides.
fn search<T: Real>(cx: &KernelCx<'_>, dtype: DType, before: impl Fn(T, T) -> bool + Copy) -> Result<Outputs> {
    let (sorted, values) = (cx.input(0)?, cx.input(1)?);
    let (length, count) = row_lengths(sorted, values, dtype)?;
    let (rows, wanted) = (sorted.flat::<T>()?, values.flat::<T>()?);
    let mut places = Vec::with_capacity(wanted.len());
    for (i, value) in wanted.iter().enumerate() {
        let row = &rows[i / count * length..][..length];
        places.push(place(row, |element| before(element, *value)));
    }
    Ok(int_tensor(dtype, values.shape().clone(), places.into_iter())?.into())
}

/// The number of elements that are `before`. Elements are tried in stock's order, which shows in rows that are not
/// sorted.
fn place<T: Copy>(row: &[T], before: impl Fn(T) -> bool) -> i64 {
    let (mut first, mut count) = (0, row.len());
    while count > 0 {
        let half = count / 2;
        if before(row[first + half]) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    first as i64
}

fn upper_bound_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("out_type")?;
    // Written as "not less" so that NaN comes after everything.
    #[allow(clippy::neg_cmp_op_on_partial_ord)]
    Kernel::sync(move |cx| search::<T>(cx, dtype, |element, value| !(value < element)))
}

fn lower_bound_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("out_type")?;
    Kernel::sync(move |cx| search::<T>(cx, dtype, |element, value| element < value))
}

fn histogram_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(1, 1)?;
    s.rank(2, 0)?;
    let bins = constant_int(s, 2)?;
    if let Some(bins) = bins {
        ensure!(bins > 0, InvalidArgument, "Requires nbins > 0: {bins}");
    }
    s.output(0, [bins.unwrap_or(UNKNOWN_DIM)])
}

fn histogram_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("dtype")?;
    Kernel::sync(move |cx| {
        let (range, bins) = (cx.input(1)?, cx.input(2)?);
        ensure!(
            range.rank() == 1 && range.elements() == 2,
            InvalidArgument,
            "value_range should be a vector of 2 elements."
        );
        ensure!(bins.rank() == 0, InvalidArgument, "nbins should be a scalar.");
        let (low, high) = (range.flat::<T>()?[0], range.flat::<T>()?[1]);
        ensure!(
            low < high,
            InvalidArgument,
            "value_range should satisfy value_range[0] < value_range[1], but got '[{}, {}]'",
            low.to_f64(),
            high.to_f64()
        );
        let bins = cx.scalar_i64(2)?;
        ensure!(bins > 0, InvalidArgument, "nbins should be a positive number, but got '{bins}'");
        let step = high.sub(low).to_f64() / bins as f64;
        let mut counts = vec![0i64; bins as usize];
        for value in cx.flat::<T>(0)? {
            ensure!(bins == 1 || !value.is_nan(), InvalidArgument, "Histogram values must not contain NaN");
            let (value, distance) = (value.maximum(low), value.maximum(low).sub(low).to_f64());
            // The distance of integers may wrap.
            let distance = if distance < 0.0 { value.to_f64() - low.to_f64() } else { distance };
            let place = distance / step;
            counts[place.min(bins as f64 - 1.0) as usize] += 1;
        }
        Ok(int_tensor(dtype, Shape::vector(counts.len()), counts.into_iter())?.into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{infer, infer_err};
    use ferroflow_core::Code;

    #[test]
    fn places_have_the_shape_of_values() {
        infer("UpperBound", "[2,5];[2,3]", "[2,3]");
        infer("LowerBound", "[2,5];[3,3]", "[3,3]");
        infer_err("LowerBound", "[2,5];[3]", Code::InvalidArgument);
    }
}
