//! Reductions of rows that share a segment id: sorted ids, whose segments are runs, and unsorted ones.

use crate::builders as ops;
use crate::linalg::gather::position;
use crate::linalg::reduce::{
    Axis, Finish, Fold, LateGreatest, LateLeast, Loops, Product, SPLIT_ELEMENTS, Sum,
};
use crate::numeric::{Int, Num, Real};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Dim, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{
    C64, C128, DType, Element, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, f16, kernels,
};
use std::ops::Range;

pub(crate) const OPS: &[&Op] = &[
    &SEGMENT_SUM,
    &SEGMENT_MEAN,
    &SEGMENT_PROD,
    &SEGMENT_MIN,
    &SEGMENT_MAX,
    &SEGMENT_SUM_V2,
    &SEGMENT_PROD_V2,
    &SEGMENT_MIN_V2,
    &SEGMENT_MAX_V2,
    &UNSORTED_SEGMENT_SUM,
    &UNSORTED_SEGMENT_PROD,
    &UNSORTED_SEGMENT_MIN,
    &UNSORTED_SEGMENT_MAX,
];

const SORTED: Op = Op {
    inputs: &["data: T", "segment_ids: Tindices"],
    outputs: &["output: T"],
    attrs: &["T: numbertype", "Tindices: {int32, int64}"],
    shape: sorted_shape,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static SEGMENT_SUM: Op = Op {
    name: "SegmentSum",
    gradient: Gradient::Fn(sum_grad),
    kernels: kernels![sum_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..SORTED
};

static SEGMENT_MEAN: Op = Op {
    name: "SegmentMean",
    gradient: Gradient::Fn(mean_grad),
    kernels: kernels![
        mean_kernel: f16, bf16, f32, f64, u64, C64, C128;
        int_mean_kernel: i8, i16, i32, i64, u8, u16, u32
    ],
    ..SORTED
};

static SEGMENT_PROD: Op = Op {
    name: "SegmentProd",
    gradient: Gradient::Fn(product_grad),
    kernels: kernels![product_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..SORTED
};

static SEGMENT_MIN: Op = Op {
    name: "SegmentMin",
    gradient: Gradient::Fn(extreme_grad),
    attrs: &["T: realnumbertype", "Tindices: {int32, int64}"],
    kernels: kernels![min_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..SORTED
};

static SEGMENT_MAX: Op = Op {
    name: "SegmentMax",
    gradient: Gradient::Fn(extreme_grad),
    attrs: &["T: realnumbertype", "Tindices: {int32, int64}"],
    kernels: kernels![max_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..SORTED
};

/// Stock declares the forms with a segment count for other devices only; on a CPU they have no kernel there either.
const SORTED_V2: Op = Op {
    inputs: &["data: T", "segment_ids: Tindices", "num_segments: Tnumsegments"],
    outputs: &["output: T"],
    attrs: &["T: numbertype", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = DT_INT32"],
    shape: counted_shape,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

const ORDERED_V2: &[&str] =
    &["T: realnumbertype", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = DT_INT32"];

static SEGMENT_SUM_V2: Op = Op { name: "SegmentSumV2", ..SORTED_V2 };
static SEGMENT_PROD_V2: Op = Op { name: "SegmentProdV2", ..SORTED_V2 };
static SEGMENT_MIN_V2: Op = Op { name: "SegmentMinV2", attrs: ORDERED_V2, ..SORTED_V2 };
static SEGMENT_MAX_V2: Op = Op { name: "SegmentMaxV2", attrs: ORDERED_V2, ..SORTED_V2 };

static UNSORTED_SEGMENT_SUM: Op = Op {
    name: "UnsortedSegmentSum",
    gradient: Gradient::Fn(unsorted_sum_grad),
    attrs: &["T: numbertype", "Tindices: {int16, int32, int64}", "Tnumsegments: {int32, int64} = DT_INT32"],
    kernels: kernels![
        unsorted_sum_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128
    ],
    ..SORTED_V2
};

static UNSORTED_SEGMENT_PROD: Op = Op {
    name: "UnsortedSegmentProd",
    gradient: Gradient::Fn(unsorted_product_grad),
    kernels: kernels![
        unsorted_product_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128
    ],
    ..SORTED_V2
};

static UNSORTED_SEGMENT_MIN: Op = Op {
    name: "UnsortedSegmentMin",
    gradient: Gradient::Fn(unsorted_extreme_grad),
    attrs: ORDERED_V2,
    kernels: kernels![unsorted_min_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..SORTED_V2
};

static UNSORTED_SEGMENT_MAX: Op = Op {
    name: "UnsortedSegmentMax",
    gradient: Gradient::Fn(unsorted_extreme_grad),
    attrs: ORDERED_V2,
    kernels: kernels![unsorted_max_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..SORTED_V2
};

fn sorted_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (data, _) = (s.rank_at_least(0, 1)?, s.rank(1, 1)?);
    if let Some(dims) = data.dims() {
        let rest = dims[1..].iter().copied();
        return s.output(0, std::iter::once(UNKNOWN_DIM).chain(rest).collect::<Vec<Dim>>());
    }
    Ok(())
}

/// The count of segments, then what the ids' shape leaves of the data's.
fn counted_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(2, 0)?;
    let count = match s.constant_i64(2)? {
        Some(count) if count < 0 => bail!(InvalidArgument, "Dimension size must be >= 0 but is {count}"),
        Some(count) => count,
        None => UNKNOWN_DIM,
    };
    let (data, ids) = (s.input(0), s.input(1));
    let (Some(data), Some(ids)) = (data.dims(), ids.dims()) else { return Ok(()) };
    ensure!(
        ids.len() <= data.len(),
        InvalidArgument,
        "Shape must be at least rank {} but is rank {}",
        ids.len(),
        data.len()
    );
    s.merge(
        &PartialShape::new(data[..ids.len()].iter().copied())?,
        &PartialShape::new(ids.iter().copied())?,
    )?;
    s.output(0, std::iter::once(count).chain(data[ids.len()..].iter().copied()).collect::<Vec<Dim>>())
}

fn sum_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    sorted::<Sum<T>>(T::Wide::ZERO, None)
}

fn mean_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    sorted::<Sum<T>>(T::Wide::ZERO, Some(divide::<T::Wide>))
}

/// Sums of integers wrap before they are divided, and so does the count of rows.
fn int_mean_kernel<T: Int<Wide = T>>(_: &Init<'_>) -> Result<Kernel> {
    fn divide<T: Int>(sums: &mut [T], rows: usize) {
        let count = match Int::to_i64(T::from_i64(rows as i64)) {
            0 => rows as i64,
            count => count,
        };
        for sum in sums.iter_mut() {
            *sum = T::from_i64(Int::to_i64(*sum).wrapping_div(count));
        }
    }
    sorted::<Sum<T>>(T::ZERO, Some(divide::<T>))
}

fn product_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    sorted::<Product<T>>(T::Wide::ONE, None)
}

/// Segments without rows are zero here, though not where ids are unsorted; stock's quirk. So is that a not-a-number is
/// forgotten when another row follows.
fn min_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    sorted::<LateLeast<T>>(T::ZERO, None)
}

fn max_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    sorted::<LateGreatest<T>>(T::ZERO, None)
}

fn divide<T: Num>(sums: &mut [T], rows: usize) {
    let rows = T::from_f64(rows as f64);
    for sum in sums.iter_mut() {
        *sum = sum.div(rows);
    }
}

/// A kernel that folds runs of equal ids; ids that are skipped give `missing`.
fn sorted<F: Fold>(missing: F::Acc, finish: Option<Finish<F::Acc>>) -> Result<Kernel> {
    sorted_by(Loops::of::<F>(), missing, finish)
}

fn sorted_by<I: Element + Copy, A: Element + Copy>(
    loops: Loops<I, A>,
    missing: A,
    finish: Option<Finish<A>>,
) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        let (ids, shape, width) = sorted_ids(cx)?;
        let input = cx.flat::<I>(0)?;
        let mut gathered = cx.alloc::<A>(shape)?;
        let output = gathered.flat_mut::<A>()?;
        let runs = runs(&ids)?;
        if output.is_empty() {
            return Ok(loops.narrowed(cx, gathered)?.into());
        }
        let of = |rows: &Range<usize>| &input[rows.start * width..rows.end * width];
        let finish =
            |out: &mut [A], rows: &Range<usize>| finish.iter().for_each(|finish| finish(out, rows.len()));
        let is_long = |rows: &Range<usize>| rows.len() * width >= SPLIT_ELEMENTS;
        // Threads share the ids, or the rows of a single one where they are many.
        let rows_per_id = ids.len() / (output.len() / width);
        cx.threads().parallel_rows(output, width, rows_per_id, |first, part| {
            let mut left = runs[runs.partition_point(|(id, _)| *id < first)..].iter();
            let mut next = left.next();
            for (id, out) in (first..).zip(part.chunks_exact_mut(width)) {
                match next {
                    Some((found, rows)) if *found == id => {
                        if !is_long(rows) {
                            loops.fold_rows(of(rows), out);
                            finish(out, rows);
                        }
                        next = left.next();
                    }
                    _ => out.fill(missing),
                }
            }
        });
        for (id, rows) in runs.iter().filter(|(_, rows)| is_long(rows)) {
            let out = &mut output[id * width..][..width];
            loops.fold(cx.threads(), of(rows), Axis { outer: 1, n: rows.len(), inner: width }, out);
            finish(out, rows);
        }
        Ok(loops.narrowed(cx, gathered)?.into())
    })
}

/// The ids of rows, the shape of the result and the elements of a row.
fn sorted_ids(cx: &KernelCx<'_>) -> Result<(Vec<i64>, Shape, usize)> {
    let (data, ids) = (cx.input(0)?, cx.input(1)?);
    ensure!(data.rank() >= 1, InvalidArgument, "input must be at least rank 1");
    ensure!(ids.rank() == 1, InvalidArgument, "segment_ids should be a vector.");
    ensure!(
        ids.elements() == data.shape().dim(0),
        InvalidArgument,
        "segment_ids should be the same size as dimension 0 of input."
    );
    let ids = ids.to_i64s()?;
    let segments = match ids.last() {
        Some(last) if *last < 0 => bail!(InvalidArgument, "segment ids must be >= 0"),
        Some(last) => last.saturating_add(1),
        None => 0,
    };
    let shape = Shape::new(std::iter::once(segments).chain(data.shape().dims()[1..].iter().copied()))?;
    let width = data.shape().dims()[1..].iter().product::<i64>() as usize;
    Ok((ids, shape, width))
}

/// Each id with the rows that have it.
fn runs(ids: &[i64]) -> Result<Vec<(usize, Range<usize>)>> {
    let segments = ids.last().map_or(0, |last| last.saturating_add(1));
    check_ids(ids, segments)?;
    let (mut runs, mut start) = (Vec::new(), 0);
    while start < ids.len() {
        let id = ids[start];
        let end = start + ids[start..].iter().take_while(|other| **other == id).count();
        runs.push((id as usize, start..end));
        start = end;
    }
    Ok(runs)
}

/// Refuses ids that are not sorted or out of range, the first one first, as stock finds them.
pub(crate) fn check_ids(ids: &[i64], segments: i64) -> Result<()> {
    for (at, id) in ids.iter().enumerate() {
        match ids.get(at + 1) {
            Some(next) if next == id => continue,
            Some(next) => ensure!(id < next, InvalidArgument, "segment ids are not increasing"),
            None => {}
        }
        ensure!(
            (0..segments).contains(id),
            InvalidArgument,
            "Segment id {id} out of range [0, {segments}), possibly because 'segment_ids' input is not sorted."
        );
    }
    Ok(())
}

fn unsorted_sum_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    unsorted::<Sum<T>>(T::Wide::ZERO)
}

fn unsorted_product_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    unsorted::<Product<T>>(T::Wide::ONE)
}

fn unsorted_min_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    unsorted::<LateLeast<T>>(finite_extreme(1.0, T::HIGHEST))
}

fn unsorted_max_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    unsorted::<LateGreatest<T>>(finite_extreme(-1.0, T::LOWEST))
}

/// The greatest or least finite value; stock starts extremes of floats there rather than at infinity.
fn finite_extreme<T: Real>(sign: f64, integer: T) -> T {
    match T::DTYPE {
        DType::Half => T::from_f64(sign * f16::MAX.to_f64()),
        DType::Bfloat16 => T::from_f64(sign * bf16::MAX.to_f64()),
        DType::Float => T::from_f64(sign * f32::MAX as f64),
        DType::Double => T::from_f64(sign * f64::MAX),
        _ => integer,
    }
}

/// A kernel that joins rows in any order; negative ids drop theirs, ids without rows give `missing`.
fn unsorted<F: Fold>(missing: F::Acc) -> Result<Kernel> {
    unsorted_by(Loops::of::<F>(), missing)
}

fn unsorted_by<I: Element + Copy, A: Element + Copy>(loops: Loops<I, A>, missing: A) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        let (count, shape, width) = unsorted_shape(cx)?;
        let mut gathered = cx.alloc::<A>(shape)?;
        let output = gathered.flat_mut::<A>()?;
        output.fill(missing);
        let input = cx.flat::<I>(0)?;
        // Stock does not look at ids without rows.
        if !input.is_empty() {
            loops.scatter(input, &unsorted_ids(cx.input(1)?, count)?, width, output);
        }
        Ok(loops.narrowed(cx, gathered)?.into())
    })
}

/// The count of segments, the shape of the result and the elements of a row.
fn unsorted_shape(cx: &KernelCx<'_>) -> Result<(i64, Shape, usize)> {
    let (data, ids, count) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    ensure!(
        count.rank() == 0,
        InvalidArgument,
        "num_segments should be a scalar, not shape {}",
        count.shape()
    );
    ensure!(
        data.shape().dims().starts_with(ids.shape().dims()),
        InvalidArgument,
        "data.shape = {} does not start with segment_ids.shape = {}",
        data.shape(),
        ids.shape()
    );
    let count = cx.scalar_i64(2)?;
    ensure!(count >= 0, InvalidArgument, "Input num_segments == {count} must not be negative.");
    let rest = &data.shape().dims()[ids.rank()..];
    let width = rest.iter().product::<i64>() as usize;
    Ok((count, Shape::new(std::iter::once(count).chain(rest.iter().copied()))?, width))
}

fn unsorted_ids(ids: &Tensor, count: i64) -> Result<Vec<i64>> {
    let values = ids.to_i64s()?;
    if let Some(at) = values.iter().position(|id| *id >= count) {
        let (place, id) = (position(ids.shape(), at), values[at]);
        bail!(InvalidArgument, "segment_ids{place} = {id} is out of range [0, {count})");
    }
    Ok(values)
}

fn sum_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(ops::gather_v2(g.scope(), g.dy(0)?, g.input(1), 0)?), None].into())
}

fn mean_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, data, ids, dy) = (g.scope(), g.input(0), g.input(1), g.dy(0)?);
    let rest = ops::expand_dims(s, ops::sub(s, ops::rank(s, data), 1), 0);
    let shape = ops::concat_v2(s, [ops::shape(s, ids)?, ops::fill(s, rest, 1)?], 0)?;
    let ones = ops::cast(s, ops::fill(s, shape, 1.0), dy.dtype());
    let scaled = ops::real_div(s, &dy, ops::segment_sum(s, ones, ids));
    Ok([Some(ops::gather_v2(s, scaled, ids, 0)?), None].into())
}

/// Elements that are equally extreme share what arrives at their segment.
fn extreme_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, data, ids, dy) = (g.scope(), g.input(0), g.input(1), g.dy(0)?);
    let chosen = ops::equal(s, data, ops::gather_v2(s, g.output(0)?, ids, 0))?;
    let count = ops::segment_sum(s, ops::cast(s, &chosen, dy.dtype()), ids);
    let shares = ops::gather_v2(s, ops::real_div(s, &dy, count), ids, 0);
    Ok([Some(ops::select_v2(s, chosen, shares, ops::zeros_like(s, data))?), None].into())
}

/// A product divided by one of its factors. Of a segment with one zero, only that element has a slope: the product of
/// the others. With more zeros, none has.
fn product_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, data, ids, dy) = (g.scope(), g.input(0), g.input(1), g.dy(0)?);
    let is_zero = ops::equal(s, data, 0)?;
    let zeros = ops::segment_sum(s, ops::cast(s, &is_zero, DType::Int32), ids);
    let dy = ops::select_v2(s, ops::greater(s, zeros, 1), ops::zeros_like(s, &dy), &dy);
    let others = ops::select_v2(s, &is_zero, ops::ones_like(s, data), data)?;
    let without_zeros = ops::gather_v2(s, ops::segment_prod(s, &others, ids), ids, 0);
    let quotient = ops::real_div(s, ops::gather_v2(s, g.output(0)?, ids, 0), &others);
    let slope = ops::select_v2(s, is_zero, without_zeros, quotient);
    Ok([Some(ops::mul(s, ops::gather_v2(s, dy, ids, 0), slope)?), None].into())
}

/// Segments by id, where ids below zero name none.
struct Members<'a> {
    scope: &'a Scope,
    /// Ids, with zero for those below.
    clipped: Output,
    /// Whether each element of gathered rows belongs to a segment.
    in_segment: Option<Output>,
}

impl<'a> Members<'a> {
    fn new(scope: &'a Scope, ids: &Output) -> Result<Members<'a>> {
        let clipped = ops::maximum(scope, ids, ops::zeros_like(scope, ids))?;
        Ok(Members { scope, clipped, in_segment: None })
    }

    /// The row of each element's segment, zero for those of none.
    fn gather(&mut self, rows: &Output, ids: &Output) -> Result<Output> {
        let s = self.scope;
        let gathered = ops::gather_v2(s, rows, &self.clipped, 0)?;
        let mask = match &self.in_segment {
            Some(mask) => mask.clone(),
            None => {
                let mask = ops::greater_equal(s, ids, 0)?;
                let missing = ops::sub(s, ops::rank(s, &gathered), ops::rank(s, &mask));
                let ones = ops::fill(s, ops::expand_dims(s, missing, 0), 1)?;
                let shape = ops::concat_v2(s, [ops::shape(s, &mask)?, ones], 0);
                let whole = ops::cast(s, ops::ones_like(s, &gathered), DType::Bool);
                ops::logical_and(s, ops::reshape(s, mask, shape), whole)?
            }
        };
        self.in_segment = Some(mask.clone());
        ops::select_v2(s, mask, &gathered, ops::zeros_like(s, &gathered))
    }
}

fn unsorted_sum_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let ids = g.input(1);
    let dx = Members::new(g.scope(), ids)?.gather(&g.dy(0)?, ids)?;
    Ok([Some(dx), None, None].into())
}

fn unsorted_extreme_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, data, ids, segments, dy) = (g.scope(), g.input(0), g.input(1), g.input(2), g.dy(0)?);
    let mut members = Members::new(s, ids)?;
    let chosen = ops::equal(s, data, members.gather(&g.output(0)?, ids))?;
    let mask = members.in_segment.clone().map_or_else(|| ops::ones_like(s, &chosen), Ok)?;
    let chosen = ops::logical_and(s, chosen, mask)?;
    let count = ops::unsorted_segment_sum(s, ops::cast(s, &chosen, dy.dtype()), ids, segments);
    let shares = members.gather(&ops::real_div(s, &dy, count)?, ids)?;
    let dx = ops::select_v2(s, chosen, &shares, ops::zeros_like(s, &shares))?;
    Ok([Some(dx), None, None].into())
}

/// See [`product_grad`].
fn unsorted_product_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, data, ids, segments, dy) = (g.scope(), g.input(0), g.input(1), g.input(2), g.dy(0)?);
    let is_zero = ops::equal(s, data, 0)?;
    let zeros = ops::unsorted_segment_sum(s, ops::cast(s, &is_zero, DType::Int32), ids, segments);
    let dy = ops::select_v2(s, ops::greater(s, zeros, 1), ops::zeros_like(s, &dy), &dy)?;
    let others = ops::select_v2(s, &is_zero, ops::ones_like(s, data), data);
    let without_zeros = ops::unsorted_segment_prod(s, others, ids, segments)?;
    let mut members = Members::new(s, ids)?;
    let rows = |rows: &Output, members: &Members<'_>| ops::gather_v2(s, rows, &members.clipped, 0);
    let quotient = ops::real_div(s, rows(&g.output(0)?, &members), data);
    let slope = ops::select_v2(s, is_zero, rows(&without_zeros, &members), quotient);
    let dx = ops::mul(s, members.gather(&dy, ids), slope)?;
    Ok([Some(dx), None, None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Tensor};

    #[test]
    fn shapes_replace_the_leading_dimensions() {
        infer("SegmentSum", "[4,2];[4]", "[?,2]");
        infer_err("SegmentSum", "[];[4]", Code::InvalidArgument);
        Node::new("UnsortedSegmentSum").constant(2, Tensor::scalar(5i32)).infer("[4,2,3];[4,2];[]", "[5,3]");
        infer_err("UnsortedSegmentSum", "[4,2];[3];[]", Code::InvalidArgument);
    }

    #[test]
    fn gaps_between_runs_are_filled() {
        let data = Tensor::vector(vec![1.0f32, 2.0, 3.0]);
        let ids = Tensor::vector(vec![1i32, 1, 4]);
        let out = Node::new("SegmentProd").run([data, ids]).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [1.0, 2.0, 1.0, 1.0, 3.0]);
    }
}
