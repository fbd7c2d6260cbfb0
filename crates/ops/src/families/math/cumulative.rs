//! Running sums, products and log-sums of exponentials along an axis.

use crate::builders as ops;
use crate::numeric::{Float, Num};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::scope::Output;
use ferroflow_core::{C64, C128, DType, Result, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&CUMSUM, &CUMPROD, &CUMULATIVE_LOGSUMEXP];

const SCAN: Op = Op {
    inputs: &["x: T", "axis: Tidx"],
    outputs: &["out: T"],
    attrs: &[
        "exclusive: bool = false",
        "reverse: bool = false",
        "T: numbertype",
        "Tidx: {int32, int64} = DT_INT32",
    ],
    shape: scan_shape,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static CUMSUM: Op = Op {
    name: "Cumsum",
    gradient: Gradient::Fn(cumsum_grad),
    kernels: kernels![sum_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..SCAN
};

static CUMPROD: Op = Op {
    name: "Cumprod",
    gradient: Gradient::Fn(cumprod_grad),
    kernels: kernels![product_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..SCAN
};

static CUMULATIVE_LOGSUMEXP: Op = Op {
    name: "CumulativeLogsumexp",
    gradient: Gradient::Fn(log_sum_exp_grad),
    attrs: &[
        "exclusive: bool = false",
        "reverse: bool = false",
        "T: {bfloat16, half, float, double}",
        "Tidx: {int32, int64} = DT_INT32",
    ],
    kernels: kernels![log_sum_exp_kernel: f16, bf16, f32, f64],
    ..SCAN
};

/// An axis that is not a scalar is left to the kernel, as in stock.
fn scan_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.input(0);
    s.set(0, shape);
    Ok(())
}

fn sum_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    scan::<T, T::Wide>(init, T::Wide::ZERO, T::widen, T::narrow, |a, b| a.add(b))
}

fn product_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    scan::<T, T::Wide>(init, T::Wide::ONE, T::widen, T::narrow, |a, b| a.mul(b))
}

fn log_sum_exp_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    scan::<T, T::Math>(init, num_traits::Float::neg_infinity(), T::to_math, T::from_math, |a, b| {
        // A not-a-number fails both comparisons and counts as another `a`, as in stock.
        let (high, low) = (if a < b { b } else { a }, if b < a { b } else { a });
        if low < num_traits::Float::min_value() {
            return high;
        }
        high + num_traits::Float::ln_1p(num_traits::Float::exp(low - high))
    })
}

/// A kernel that folds the elements up to each one, kept as `A` in between.
fn scan<T: Num, A: Copy + Send + Sync + 'static>(
    init: &Init<'_>,
    start: A,
    widen: fn(T) -> A,
    narrow: fn(A) -> T,
    join: impl Fn(A, A) -> A + Send + Sync + 'static,
) -> Result<Kernel> {
    let (exclusive, reverse): (bool, bool) = (init.attr("exclusive")?, init.attr("reverse")?);
    Kernel::sync(move |cx| {
        let (n, inner) = scanned(cx)?;
        let input = cx.input(0)?;
        let mut output = cx.alloc::<T>(input.shape().clone())?;
        let input = input.flat::<T>()?;
        cx.threads().parallel_rows(output.flat_mut()?, (n * inner).max(1), 1, |first, blocks| {
            let mut running = vec![start; inner];
            for (block, out) in blocks.chunks_mut(n * inner).enumerate() {
                let from = (first + block) * n * inner;
                let input = &input[from..from + n * inner];
                running.fill(start);
                for step in 0..n {
                    let at = if reverse { n - 1 - step } else { step } * inner;
                    let row = running.iter_mut().zip(&input[at..at + inner]).zip(&mut out[at..at + inner]);
                    for ((running, x), out) in row {
                        let next = join(*running, widen(*x));
                        *out = narrow(if exclusive { *running } else { next });
                        *running = next;
                    }
                }
            }
        });
        Ok(output.into())
    })
}

/// The length of the scanned axis and the elements after it.
fn scanned(cx: &KernelCx<'_>) -> Result<(usize, usize)> {
    let (input, axis) = (cx.input(0)?, cx.input(1)?);
    ensure!(axis.rank() == 0, InvalidArgument, "ScanOp: axis must be a scalar, not {}", axis.shape());
    let (axis, rank) = (cx.scalar_i64(1)?, input.rank() as i64);
    // An axis that is too small is shown as stock shows it, counted from the front.
    let front = if axis < 0 { axis.saturating_add(rank) } else { axis };
    ensure!(
        (0..rank).contains(&front),
        InvalidArgument,
        "ScanOp: Expected scan axis in the range [{}, {rank}), but got {front}",
        -rank
    );
    let axis = front as usize;
    let dims = input.shape().dims();
    Ok((dims[axis] as usize, dims[axis + 1..].iter().product::<i64>() as usize))
}

fn cumsum_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(summed_back(g, g.dy(0)?)?), None].into())
}

/// The cumulative sum in the other direction.
fn summed_back(g: &GradCx<'_>, values: Output) -> Result<Output> {
    let sum = ops::Cumsum::new().exclusive(g.attr("exclusive")?).reverse(!g.attr::<bool>("reverse")?);
    sum.build(g.scope(), values, g.input(1))
}

/// Undefined where an element is zero, which stock answers with zero.
fn cumprod_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x) = (g.scope(), g.input(0));
    let sum = summed_back(g, ops::mul(s, g.output(0)?, g.dy(0)?)?)?;
    Ok([Some(ops::div_no_nan(s, sum, x)?), None].into())
}

/// Splits the gradient into its positive and its negative part, because logarithms are taken of both.
fn log_sum_exp_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, y, dy) = (g.scope(), g.input(0), g.output(0)?, g.dy(0)?);
    let lowest = match dy.dtype() {
        DType::Half => f16::MIN.to_f64(),
        DType::Bfloat16 => bf16::MIN.to_f64(),
        DType::Float => f64::from(f32::MIN),
        _ => f64::MIN,
    };
    let (exclusive, reverse) = (g.attr::<bool>("exclusive")?, g.attr::<bool>("reverse")?);
    let side = |chosen: Output, part: &Output| {
        let log = ops::select_v2(s, chosen, ops::log(s, part), lowest);
        let sum = ops::CumulativeLogsumexp::new().exclusive(exclusive).reverse(!reverse);
        ops::exp(s, ops::add_v2(s, sum.build(s, ops::sub(s, log, &y), g.input(1)), x))
    };
    let positive = side(ops::greater(s, &dy, 0)?, &dy)?;
    let negative = side(ops::less(s, &dy, 0)?, &ops::neg(s, &dy)?)?;
    Ok([Some(ops::sub(s, positive, negative)?), None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn scans_run_backwards_and_leave_the_element_out() {
        let x = Tensor::new(Shape::matrix(2, 3), vec![1i32, 2, 3, 4, 5, 6]).unwrap();
        let node = || Node::new("Cumsum").attr("exclusive", true).attr("reverse", true);
        let rows = node().run([x.clone(), Tensor::scalar(1i32)]).unwrap();
        assert_eq!(rows[0].flat::<i32>().unwrap(), [5, 3, 0, 11, 6, 0]);
        let columns = node().run([x, Tensor::scalar(0i32)]).unwrap();
        assert_eq!(columns[0].flat::<i32>().unwrap(), [4, 5, 6, 0, 0, 0]);
    }
}
