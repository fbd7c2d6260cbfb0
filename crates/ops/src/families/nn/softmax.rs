//! Softmax and its logarithm over the last dimension.

use crate::builders as ops;
use crate::linalg::elementary::Elementary;
use crate::linalg::softmax::{NARROW, exponentials, narrow_rows, scale, subtract};
use crate::numeric::{Float, Num};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::{Result, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&SOFTMAX, &LOG_SOFTMAX];

static SOFTMAX: Op = Op {
    name: "Softmax",
    gradient: Gradient::Fn(softmax_gradient),
    inputs: &["logits: T"],
    outputs: &["softmax: T"],
    attrs: &["T: {half, bfloat16, float, double}"],
    shape: softmax_shape,
    kernels: kernels![softmax_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static LOG_SOFTMAX: Op = Op {
    name: "LogSoftmax",
    gradient: Gradient::Fn(log_softmax_gradient),
    inputs: &["logits: T"],
    outputs: &["logsoftmax: T"],
    attrs: &["T: {half, bfloat16, float, double}"],
    shape: softmax_shape,
    kernels: kernels![log_softmax_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn softmax_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.rank_at_least(0, 1)?;
    s.set(0, shape);
    Ok(())
}

fn softmax_kernel<T: Float + Num<Wide = <T as Float>::Math>>(_: &Init<'_>) -> Result<Kernel>
where
    <T as Float>::Math: Elementary + Num<Wide = <T as Float>::Math>,
{
    Kernel::sync(|cx| {
        let classes = cx.input(0)?.shape().last().copied().unwrap_or(0) as usize;
        if (1..NARROW).contains(&classes) {
            return narrow::<T>(cx, classes);
        }
        rows::<T>(cx, |logits, powers, out| {
            let row = exponentials(logits, powers);
            scale(powers, <T::Math as num_traits::One>::one() / row.sum, out);
        })
    })
}

fn log_softmax_kernel<T: Float + Num<Wide = <T as Float>::Math>>(_: &Init<'_>) -> Result<Kernel>
where
    <T as Float>::Math: Elementary + Num<Wide = <T as Float>::Math>,
{
    Kernel::sync(|cx| {
        rows::<T>(cx, |logits, powers, out| {
            let row = exponentials(logits, powers);
            subtract(logits, row.greatest, num_traits::Float::ln(row.sum), out);
        })
    })
}

/// Softmax of rows of few classes.
fn narrow<T: Float>(cx: &mut KernelCx<'_>, classes: usize) -> Result<Outputs>
where
    T::Math: Elementary,
{
    let logits = cx.input(0)?;
    let mut output = cx.alloc::<T>(logits.shape().clone())?;
    let logits = logits.flat::<T>()?;
    cx.threads().parallel_rows(output.flat_mut()?, classes, EXPONENTIAL, |first, part| {
        narrow_rows(&logits[first * classes..][..part.len()], classes, part);
    });
    Ok(output.into())
}

/// Runs `body(logits, scratch, out)` for each row.
fn rows<T: Float>(
    cx: &mut KernelCx<'_>,
    body: impl Fn(&[T], &mut [T::Math], &mut [T]) + Sync,
) -> Result<Outputs> {
    let logits = cx.input(0)?;
    ensure!(logits.rank() >= 1, InvalidArgument, "logits must have >= 1 dimension, got {}", logits.shape());
    let classes = logits.shape().dim(logits.rank() - 1);
    let mut output = cx.alloc::<T>(logits.shape().clone())?;
    let logits = logits.flat::<T>()?;
    cx.threads().parallel_rows(output.flat_mut()?, classes, EXPONENTIAL, |first, part| {
        let mut powers = vec![T::Math::ZERO; classes];
        for (row, out) in part.chunks_mut(classes).enumerate() {
            body(&logits[(first + row) * classes..][..classes], &mut powers, out);
        }
    });
    Ok(output.into())
}

/// The work per logit, in units of a simple operation.
const EXPONENTIAL: usize = 8;

fn softmax_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy, softmax) = (g.scope(), g.dy(0)?, g.output(0)?);
    let sums = ops::Sum::new().keep_dims(true).build(s, ops::mul(s, &dy, &softmax), [-1])?;
    Ok([ops::mul(s, ops::sub(s, dy, sums), softmax)?].into())
}

fn log_softmax_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let sums = ops::Sum::new().keep_dims(true).build(s, &dy, [-1])?;
    let share = ops::mul(s, sums, ops::exp(s, g.output(0)?))?;
    Ok([ops::sub(s, dy, share)?].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Shape, Tensor};

    #[test]
    fn scalars_have_no_classes() {
        infer("Softmax", "[2,?]", "[2,?]");
        infer_err("LogSoftmax", "[]", Code::InvalidArgument);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let logits = Tensor::new(Shape::matrix(1, 2), vec![1000.0f32, 1000.0]).unwrap();
        let out = Node::new("Softmax").run([logits]).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [0.5, 0.5]);
    }
}
