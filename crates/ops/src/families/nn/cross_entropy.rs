//! Cross-entropy of logits with labels, and its gradient, in one pass.

use crate::builders as ops;
use crate::linalg::elementary::Elementary;
use crate::linalg::softmax::{exponentials, scale};
use crate::numeric::{Float, Num};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::scope::Output;
use ferroflow_core::{PartialShape, Result, Shape, bail, bf16, ensure, f16, kernels};
use std::fmt::Write as _;

pub(crate) const OPS: &[&Op] = &[&CROSS_ENTROPY, &SPARSE_CROSS_ENTROPY];

static CROSS_ENTROPY: Op = Op {
    name: "SoftmaxCrossEntropyWithLogits",
    gradient: Gradient::Fn(cross_entropy_gradient),
    inputs: &["features: T", "labels: T"],
    outputs: &["loss: T", "backprop: T"],
    attrs: &["T: {half, bfloat16, float, double}"],
    shape: cross_entropy_shape,
    kernels: kernels![cross_entropy_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static SPARSE_CROSS_ENTROPY: Op = Op {
    name: "SparseSoftmaxCrossEntropyWithLogits",
    gradient: Gradient::Fn(sparse_cross_entropy_gradient),
    inputs: &["features: T", "labels: Tlabels"],
    outputs: &["loss: T", "backprop: T"],
    attrs: &["T: {half, bfloat16, float, double}", "Tlabels: {int32, int64} = DT_INT64"],
    shape: sparse_shape,
    kernels: kernels![sparse_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn cross_entropy_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let both = shapes::broadcast(&s.input(0), &s.input(1))?;
    match both.dims() {
        None => {
            s.output(0, [UNKNOWN_DIM])?;
            s.output(1, [UNKNOWN_DIM; 2])
        }
        Some([rows, _]) => {
            let rows = *rows;
            s.set(1, both);
            s.output(0, [rows])
        }
        Some(dims) => bail!(InvalidArgument, "Shape must be rank 2 but is rank {}", dims.len()),
    }
}

fn sparse_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let features = s.rank(0, 2)?;
    let labels = s.rank(1, 1)?;
    let [rows, classes] = features.dims().unwrap_or_default() else { return Ok(()) };
    let [labels] = labels.dims().unwrap_or_default() else { return Ok(()) };
    let rows = s.merge_dims(*rows, *labels)?;
    s.output(0, [rows])?;
    s.output(1, [rows, *classes])
}

fn cross_entropy_kernel<T: Float + Num<Wide = <T as Float>::Math>>(_: &Init<'_>) -> Result<Kernel>
where
    <T as Float>::Math: Elementary + Num<Wide = <T as Float>::Math>,
{
    Kernel::sync(|cx| {
        let (logits, labels) = (cx.input(0)?, cx.input(1)?);
        let both =
            shapes::broadcast(&PartialShape::from(logits.shape()), &PartialShape::from(labels.shape()));
        let Some(shape) = both.ok().and_then(|both| both.to_shape()) else {
            bail!(
                InvalidArgument,
                "logits and labels must be broadcastable: logits_size={} labels_size={}",
                logits.shape(),
                labels.shape()
            );
        };
        ensure!(
            shape.rank() == 2,
            InvalidArgument,
            "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional"
        );
        let (logits, labels) = (View::<T>::new(cx, 0)?, View::<T>::new(cx, 1)?);
        losses::<T>(cx, shape.dim(0), shape.dim(1), |row, out_row| {
            let Row { wide, powers, backprop } = out_row;
            logits.read(row, backprop);
            let sums = exponentials(backprop, powers);
            let (log_sum, factor) =
                (num_traits::Float::ln(sums.sum), <T::Math as num_traits::One>::one() / sums.sum);
            for (out, x) in wide.iter_mut().zip(backprop.iter()) {
                *out = log_sum - (x.to_math() - sums.greatest);
            }
            labels.read(row, backprop);
            // A label of zero times an infinite term is NaN, as in stock.
            let mut loss = T::Math::ZERO;
            for ((out, term), power) in backprop.iter_mut().zip(wide.iter()).zip(powers.iter()) {
                let label = out.to_math();
                // Products are rounded before they are summed: labels of many thousands exceed a half there, as in stock.
                loss = loss + T::from_math(label * *term).to_math();
                *out = T::from_math(*power * factor - label);
            }
            T::from_math(loss)
        })
    })
}

/// An operand of at most two dimensions, either of which may be repeated.
struct View<'a, T> {
    data: &'a [T],
    row_step: usize,
    one_column: bool,
}

impl<'a, T: Float> View<'a, T> {
    fn new(cx: &'a KernelCx<'_>, input: usize) -> Result<View<'a, T>> {
        let tensor = cx.input(input)?;
        let (rows, columns) = match tensor.shape().dims() {
            [] => (1, 1),
            [columns] => (1, *columns),
            [rows, columns, ..] => (*rows, *columns),
        };
        let row_step = if rows == 1 { 0 } else { columns as usize };
        Ok(View { data: tensor.flat()?, row_step, one_column: columns == 1 })
    }

    fn read(&self, row: usize, out: &mut [T]) {
        let from = row * self.row_step;
        if self.one_column {
            return out.fill(self.data[from]);
        }
        out.copy_from_slice(&self.data[from..from + out.len()]);
    }
}

/// Scratch memory and the gradient of one row.
struct Row<'a, T: Float> {
    wide: &'a mut [T::Math],
    powers: &'a mut [T::Math],
    backprop: &'a mut [T],
}

/// Runs `body`, which writes a row's gradient and returns its loss, for every row.
fn losses<T: Float>(
    cx: &KernelCx<'_>,
    rows: usize,
    classes: usize,
    body: impl Fn(usize, Row<'_, T>) -> T + Sync,
) -> Result<Outputs> {
    let mut loss = cx.alloc::<T>(Shape::vector(rows))?;
    let mut backprop = cx.alloc::<T>(Shape::matrix(rows, classes))?;
    if classes == 0 {
        loss.flat_mut::<T>()?.fill(T::ZERO);
        return Ok([loss, backprop].into());
    }
    let (losses, gradients) = (loss.flat_mut::<T>()?, backprop.flat_mut::<T>()?);
    cx.threads().parallel_row_pairs(
        (losses, 1),
        (gradients, classes),
        12 * classes,
        |first, losses, gradients| {
            let mut scratch = vec![T::Math::ZERO; 2 * classes];
            let (wide, powers) = scratch.split_at_mut(classes);
            for (row, (loss, backprop)) in losses.iter_mut().zip(gradients.chunks_mut(classes)).enumerate() {
                *loss = body(first + row, Row { wide, powers, backprop });
            }
        },
    );
    Ok([loss, backprop].into())
}

fn sparse_kernel<T: Float + Num<Wide = <T as Float>::Math>>(_: &Init<'_>) -> Result<Kernel>
where
    <T as Float>::Math: Elementary + Num<Wide = <T as Float>::Math>,
{
    Kernel::sync(|cx| {
        let (logits, labels) = (cx.input(0)?, cx.input(1)?);
        ensure!(logits.rank() == 2, InvalidArgument, "logits must be 2-D, but got shape {}", logits.shape());
        ensure!(labels.rank() == 1, InvalidArgument, "labels must be 1-D, but got shape {}", labels.shape());
        ensure!(
            logits.shape().dim(0) == labels.elements(),
            InvalidArgument,
            "logits and labels must have the same first dimension, got logits shape {} and labels shape {}",
            logits.shape(),
            labels.shape()
        );
        let (rows, classes) = (logits.shape().dim(0), logits.shape().dim(1));
        ensure!(
            classes > 0,
            InvalidArgument,
            "Must have at least one class, but got logits shape {}",
            logits.shape()
        );
        let labels = labels.to_i64s()?;
        if let Some(label) = labels.iter().find(|label| !(0..classes as i64).contains(*label)) {
            let mut values = String::new();
            for label in &labels {
                write!(values, " {label}").expect("strings take all");
            }
            bail!(
                InvalidArgument,
                "Received a label value of {label} which is outside the valid range of [0, {classes}).  Label values:{values}"
            );
        }
        let logits = logits.flat::<T>()?;
        losses::<T>(cx, rows, classes, |row, out_row| {
            let Row { powers, backprop, .. } = out_row;
            let logits = &logits[row * classes..][..classes];
            let label = labels[row] as usize;
            let sums = exponentials(logits, powers);
            let one = <T::Math as num_traits::One>::one();
            scale(powers, one / sums.sum, backprop);
            backprop[label] = T::from_math(powers[label] / sums.sum - one);
            T::from_math(num_traits::Float::ln(sums.sum) - (logits[label].to_math() - sums.greatest))
        })
    })
}

fn cross_entropy_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let labels = ops::neg(s, ops::log_softmax(s, g.input(0)))?;
    let labels = ops::mul(s, ops::expand_dims(s, g.dy(0)?, -1), labels)?;
    Ok([logits_gradient(g)?, labels].into())
}

fn sparse_cross_entropy_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(logits_gradient(g)?), None].into())
}

/// The op's second output is the slope of its first one; its own slope is that of the softmax.
fn logits_gradient(g: &GradCx<'_>) -> Result<Output> {
    let s = g.scope();
    let first = ops::mul(s, ops::expand_dims(s, g.dy(0)?, -1), g.output(1)?)?;
    let Some(second) = g.grad(1) else { return Ok(first) };
    let second = second.to_dense(s)?;
    let softmax = ops::softmax(s, g.input(0))?;
    let product =
        ops::batch_mat_mul_v2(s, ops::expand_dims(s, &second, 1), ops::expand_dims(s, &softmax, 2))?;
    let sums = ops::Squeeze::new().squeeze_dims([1i64]).build(s, product)?;
    ops::add_v2(s, first, ops::mul(s, ops::sub(s, second, sums), softmax))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Shape, Tensor};

    #[test]
    fn one_loss_per_row() {
        infer("SoftmaxCrossEntropyWithLogits", "[2,3];[1,3]", "[2];[2,3]");
        infer("SparseSoftmaxCrossEntropyWithLogits", "[?,3];[2]", "[2];[2,3]");
        infer_err("SoftmaxCrossEntropyWithLogits", "[3];[3]", Code::InvalidArgument);
    }

    #[test]
    fn labels_of_both_kinds_agree() {
        let logits = Tensor::new(Shape::matrix(2, 2), vec![0.0f32, 0.0, 1.0, 3.0]).unwrap();
        let dense = Tensor::new(Shape::matrix(2, 2), vec![1.0f32, 0.0, 0.0, 1.0]).unwrap();
        let a = Node::new("SoftmaxCrossEntropyWithLogits").run([logits.clone(), dense]).unwrap();
        let labels = Tensor::vector(vec![0i64, 1]);
        let b = Node::new("SparseSoftmaxCrossEntropyWithLogits").run([logits, labels]).unwrap();
        for (a, b) in a.iter().zip(&b) {
            for (a, b) in a.flat::<f32>().unwrap().iter().zip(b.flat::<f32>().unwrap()) {
                assert!((a - b).abs() < 1e-6, "{a} and {b}");
            }
        }
        assert!((a[0].flat::<f32>().unwrap()[0] - 2f32.ln()).abs() < 1e-6);
    }
}
