//! The nearest sequence that never rises, row by row.

use crate::builders as ops;
use crate::numeric::{Num, Real};
use crate::support::gradient::{element, shape_output};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, KernelRow, Only, Op, ShapeCx};
use ferroflow_core::{DType, Result, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&ISOTONIC_REGRESSION];

static ISOTONIC_REGRESSION: Op = Op {
    name: "IsotonicRegression",
    inputs: &["input: T"],
    outputs: &["output: output_dtype", "segments: int32"],
    attrs: &[
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
        "output_dtype: {half, bfloat16, float, double} = DT_FLOAT",
    ],
    shape: isotonic_shape,
    gradient: Gradient::Fn(gradient),
    kernels: &ROWS,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

const fn row(mut rows: [KernelRow; 1], out: DType) -> KernelRow {
    rows[0] = rows[0].only("output_dtype", Only::Type(out));
    rows[0]
}

static ROWS: [KernelRow; 8] = [
    row(*kernels![same_kernel: f32], DType::Float),
    row(*kernels![same_kernel: f64], DType::Double),
    row(*kernels![same_kernel: f16], DType::Half),
    row(*kernels![same_kernel: bf16], DType::Bfloat16),
    row(*kernels![single_kernel: i8], DType::Float),
    row(*kernels![single_kernel: i16], DType::Float),
    row(*kernels![double_kernel: i32], DType::Double),
    row(*kernels![double_kernel: i64], DType::Double),
];

fn isotonic_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, s.input(0));
    s.set(1, s.input(0));
    Ok(())
}

fn same_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    kernel::<T, T>(|x| x)
}

fn single_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    kernel::<T, f32>(|x| x.to_f64() as f32)
}

fn double_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    kernel::<T, f64>(|x| x.to_f64())
}

fn kernel<T: Real, O: Real>(convert: fn(T) -> O) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        let shape = cx.input(0)?.shape().clone();
        let (mut output, mut segments) = (cx.alloc::<O>(shape.clone())?, cx.alloc::<i32>(shape.clone())?);
        let width = shape.dims().last().map_or(1, |dim| *dim as usize);
        let input = cx.flat::<T>(0)?;
        cx.threads().parallel_row_pairs(
            (output.flat_mut::<O>()?, width),
            (segments.flat_mut::<i32>()?, width),
            100 * width,
            |first, out, segments| {
                let rows = out.chunks_exact_mut(width).zip(segments.chunks_exact_mut(width));
                for (row, (out, segments)) in rows.enumerate() {
                    let input = &input[(first + row) * width..][..width];
                    let values: Vec<O> = input.iter().map(|x| convert(*x)).collect();
                    solve(&values, out, segments);
                }
            },
        );
        Ok([output, segments].into())
    })
}

/// Neighbors that rise are pooled into one segment with their mean, until none rise (Kruskal, "Nonmetric
/// multidimensional scaling: a numerical method").
fn solve<O: Real>(values: &[O], out: &mut [O], segments: &mut [i32]) {
    struct Pool<O> {
        sum: O,
        mean: O,
        count: usize,
    }
    let mut pools: Vec<Pool<O>> = Vec::new();
    for value in values {
        let mut own = Pool { sum: *value, mean: *value, count: 1 };
        while let Some(last) = pools.pop_if(|last| own.mean > last.mean) {
            let (sum, count) = (last.sum.add(own.sum), last.count + own.count);
            own = Pool { sum, mean: sum.div(<O as Num>::from_f64(count as f64)), count };
        }
        pools.push(own);
    }
    let mut start = 0;
    for (number, pool) in pools.iter().enumerate() {
        out[start..start + pool.count].fill(pool.mean);
        segments[start..start + pool.count].fill(number as i32);
        start += pool.count;
    }
}

/// A segment's elements share what arrives at any of them.
fn gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy, segments) = (g.scope(), g.dy(0)?, g.output(1)?);
    let shape = shape_output(s, &dy)?;
    let (width, total) = (element(s, &shape, -1)?, ops::prod(s, &shape, [0])?);
    // Segments of different rows get different numbers.
    let places = ops::range(s, 0, &total, 1)?;
    let rows = ops::floor_div(s, places, &width)?;
    let ids = ops::add_v2(s, ops::reshape(s, segments, [-1]), ops::mul(s, rows, &width))?;
    let flat = ops::reshape(s, &dy, [-1])?;
    let sums = ops::unsorted_segment_sum(s, &flat, &ids, &total)?;
    let counts = ops::unsorted_segment_sum(s, ops::ones_like(s, &flat), &ids, &total)?;
    let pick = |x: &ferroflow_core::scope::Output| ops::gather_v2(s, x, &ids, 0);
    let mean = ops::div(s, pick(&sums)?, pick(&counts)?)?;
    Ok([ops::reshape(s, mean, shape)?].into())
}
