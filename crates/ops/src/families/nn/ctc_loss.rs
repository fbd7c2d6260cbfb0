//! Connectionist temporal classification: the loss of label sequences without an alignment to their inputs.

use crate::builders as ops;
use crate::numeric::Math;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&CTC_LOSS];

static CTC_LOSS: Op = Op {
    name: "CTCLoss",
    inputs: &["inputs: T", "labels_indices: int64", "labels_values: int32", "sequence_length: int32"],
    outputs: &["loss: T", "gradient: T"],
    attrs: &[
        "preprocess_collapse_repeated: bool = false",
        "ctc_merge_repeated: bool = true",
        "ignore_longer_outputs_than_inputs: bool = false",
        "T: {float, double} = DT_FLOAT",
    ],
    shape: loss_shape,
    kernels: kernels![loss_kernel: f32, f64],
    gradient: Gradient::Fn(loss_grad),
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn loss_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (inputs, indices) = (s.rank(0, 3)?, s.rank(1, 2)?);
    let (values, lengths) = (s.rank(2, 1)?, s.rank(3, 1)?);
    let dim =
        |shape: &ferroflow_core::PartialShape, at: usize| shape.dims().map_or(UNKNOWN_DIM, |dims| dims[at]);
    s.merge_dims(dim(&indices, 0), dim(&values, 0))?;
    let batch = s.merge_dims(dim(&inputs, 1), dim(&lengths, 0))?;
    s.output(0, [batch])?;
    s.output(1, [dim(&inputs, 0), batch, dim(&inputs, 2)])
}

/// The labels of every sequence, without blanks between them.
struct Labels {
    sequences: Vec<Vec<usize>>,
    /// The numbers of labels that were given, those included that are dropped.
    given: Vec<usize>,
}

/// A sequence's frames: log-probabilities are looked up as `log_y[time][class]`.
struct Frames<T> {
    y: Vec<T>,
    classes: usize,
    steps: usize,
}

impl<T: Math> Frames<T> {
    /// The softmax of the inputs of one sequence, whose frames lie `stride` apart.
    fn new(inputs: &[T], stride: usize, classes: usize, steps: usize) -> Frames<T> {
        let mut y = Vec::with_capacity(classes * steps);
        for frame in (0..steps).map(|step| &inputs[step * stride..][..classes]) {
            let max = frame.iter().copied().fold(T::neg_infinity(), |max, x| if x > max { x } else { max });
            let start = y.len();
            y.extend(frame.iter().map(|x| num_traits::Float::exp(*x - max)));
            let sum = y[start..].iter().copied().fold(<T as num_traits::Zero>::zero(), |sum, x| sum + x);
            for x in y[start..].iter_mut() {
                *x = *x / sum;
            }
        }
        Frames { y, classes, steps }
    }

    fn log(&self, step: usize, class: usize) -> T {
        num_traits::Float::ln(self.y[step * self.classes + class])
    }
}

/// The logarithm of a sum, from the logarithms of its terms; stock takes both functions in single precision.
pub(super) fn log_sum_exp<T: Math>(a: T, b: T) -> T {
    if a == T::neg_infinity() {
        return b;
    }
    if b == T::neg_infinity() {
        return a;
    }
    let (larger, smaller) = if a > b { (a, b) } else { (b, a) };
    let single = crate::numeric::Real::to_f64(smaller - larger) as f32;
    larger + <T as crate::numeric::Num>::from_f64(single.exp().ln_1p() as f64)
}

/// One sequence to align: its labels with blanks around each.
struct Alignment<'a, T> {
    frames: &'a Frames<T>,
    labels: Vec<usize>,
    blank: usize,
    merge_repeated: bool,
}

impl<T: Math> Alignment<'_, T> {
    /// Whether the label two places on may follow directly.
    fn may_skip(&self, at: usize, other: usize) -> bool {
        let repeated = self.merge_repeated && self.labels[at] == self.labels[other];
        self.labels[at] != self.blank && !repeated
    }

    fn may_stay(&self, at: usize) -> bool {
        self.merge_repeated || self.labels[at] == self.blank
    }

    /// Places that can be reached at a step and from which the end can be reached.
    fn reachable(&self, step: usize) -> std::ops::Range<usize> {
        let places = self.labels.len();
        places.saturating_sub(2 * (self.frames.steps - step))..places.min(2 * (step + 1))
    }

    /// `log α[step][place]`: the ways to be there.
    fn forward(&self) -> Vec<T> {
        let places = self.labels.len();
        let mut alpha = vec![T::neg_infinity(); places * self.frames.steps];
        for (slot, class) in alpha.iter_mut().zip(self.labels.iter().take(2)) {
            *slot = self.frames.log(0, *class);
        }
        for step in 1..self.frames.steps {
            for place in self.reachable(step) {
                let before = |place: usize| alpha[(step - 1) * places + place];
                let mut sum = if self.may_stay(place) { before(place) } else { T::neg_infinity() };
                if place > 0 {
                    sum = log_sum_exp(sum, before(place - 1));
                }
                if place > 1 && self.may_skip(place, place - 2) {
                    sum = log_sum_exp(sum, before(place - 2));
                }
                alpha[step * places + place] = self.frames.log(step, self.labels[place]) + sum;
            }
        }
        alpha
    }

    /// `log β[step][place]`: the ways from there to the end.
    fn backward(&self) -> Vec<T> {
        let places = self.labels.len();
        let mut beta = vec![T::neg_infinity(); places * self.frames.steps];
        let last = self.frames.steps - 1;
        beta[last * places + places.saturating_sub(2)..].fill(<T as num_traits::Zero>::zero());
        for step in (0..last).rev() {
            for place in self.reachable(step) {
                let after = |next: usize| {
                    beta[(step + 1) * places + next] + self.frames.log(step + 1, self.labels[next])
                };
                let mut sum = if self.may_stay(place) { after(place) } else { T::neg_infinity() };
                if place + 1 < places {
                    sum = log_sum_exp(sum, after(place + 1));
                }
                if place + 2 < places && self.may_skip(place, place + 2) {
                    sum = log_sum_exp(sum, after(place + 2));
                }
                beta[step * places + place] = sum;
            }
        }
        beta
    }

    /// The loss, and the gradient of every frame, which is passed to `store` with its step.
    fn solve(&self, store: &mut dyn FnMut(usize, &[T])) -> T {
        let (alpha, beta) = (self.forward(), self.backward());
        let (places, classes) = (self.labels.len(), self.frames.classes);
        let both = |at: usize| alpha[at] + beta[at];
        let log_p = (0..places).fold(T::neg_infinity(), |sum, at| log_sum_exp(sum, both(at)));
        let mut sums = vec![T::neg_infinity(); classes];
        for step in 0..self.frames.steps {
            let mut gradient = self.frames.y[step * classes..][..classes].to_vec();
            // Without any alignment the gradient is the frame itself.
            if log_p != T::neg_infinity() {
                sums.fill(T::neg_infinity());
                for (place, class) in self.labels.iter().enumerate() {
                    sums[*class] = log_sum_exp(sums[*class], both(step * places + place));
                }
                for (slot, sum) in gradient.iter_mut().zip(&sums) {
                    let single = crate::numeric::Real::to_f64(*sum - log_p) as f32;
                    *slot = *slot - <T as crate::numeric::Num>::from_f64(single.exp() as f64);
                }
            }
            store(step, &gradient);
        }
        <T as num_traits::Zero>::zero() - log_p
    }
}

fn check_inputs(cx: &KernelCx<'_>) -> Result<Vec<usize>> {
    let (inputs, indices) = (cx.input(0)?, cx.input(1)?);
    let (values, lengths) = (cx.input(2)?, cx.input(3)?);
    ensure!(inputs.rank() == 3, InvalidArgument, "inputs is not a 3-Tensor");
    ensure!(lengths.rank() == 1, InvalidArgument, "sequence_length is not a vector");
    ensure!(indices.rank() == 2, InvalidArgument, "labels_indices is not a matrix");
    let columns = indices.shape().dim(1);
    ensure!(columns > 1, InvalidArgument, "labels_indices second dimension must be >= 1. Received {columns}");
    ensure!(values.rank() == 1, InvalidArgument, "labels_values is not a vector");
    let (steps, batch) = (inputs.shape().dim(0), inputs.shape().dim(1));
    ensure!(steps != 0, InvalidArgument, "Max time or first dimension of input cannot be 0.");
    ensure!(
        batch == lengths.elements(),
        InvalidArgument,
        "len(sequence_length) != batch_size.  len(sequence_length):  {} batch_size: {batch}",
        lengths.elements()
    );
    ensure!(
        indices.shape().dim(0) == values.elements(),
        InvalidArgument,
        "labels_indices and labels_values must contain the same number of rows, but saw shapes: {} vs. {}",
        indices.shape(),
        values.shape()
    );
    ensure!(batch != 0, InvalidArgument, "batch_size must not be 0");
    let mut checked = Vec::with_capacity(batch);
    for (sequence, length) in lengths.flat::<i32>()?.iter().enumerate() {
        ensure!(*length as i64 <= steps as i64, InvalidArgument, "sequence_length({sequence}) <= {steps}");
        ensure!(*length >= 0, InvalidArgument, "seq_len({sequence}) < 0");
        checked.push(*length as usize);
    }
    Ok(checked)
}

/// The labels of every sequence, from a sparse matrix whose indices must be in order.
fn sparse_labels(cx: &KernelCx<'_>, batch: usize) -> Result<Vec<Vec<i32>>> {
    let (indices, values) = (cx.input(1)?, cx.flat::<i32>(2)?);
    let columns = indices.shape().dim(1);
    ensure!(
        columns == 2,
        InvalidArgument,
        "label SparseTensor is not valid: indices have {columns} columns where 2 were expected"
    );
    let mut labels = vec![Vec::new(); batch];
    let mut previous: Option<&[i64]> = None;
    for (row, (index, value)) in indices.flat::<i64>()?.chunks(2).zip(values).enumerate() {
        ensure!(
            (0..batch as i64).contains(&index[0]) && index[1] >= 0,
            InvalidArgument,
            "label SparseTensor is not valid: indices[{row}] = [{},{}] is out of bounds",
            index[0],
            index[1]
        );
        if let Some(previous) = previous {
            let problem = if previous == index { "repeated" } else { "out of order" };
            ensure!(
                previous < index,
                InvalidArgument,
                "label SparseTensor is not valid: indices[{row}] = [{},{}] is {problem}",
                index[0],
                index[1]
            );
        }
        previous = Some(index);
        labels[index[0] as usize].push(*value);
    }
    Ok(labels)
}

struct Options {
    collapse_repeated: bool,
    merge_repeated: bool,
    ignore_longer: bool,
}

impl Options {
    fn labels(&self, sparse: &[Vec<i32>], lengths: &[usize], classes: usize) -> Result<Labels> {
        let blank = classes as i64 - 1;
        let comma = |labels: &[i32]| labels.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        let mut sequences = Vec::with_capacity(sparse.len());
        for (batch, (labels, length)) in sparse.iter().zip(lengths).enumerate() {
            ensure!(!labels.is_empty(), InvalidArgument, "Labels length is zero in batch {batch}");
            let (mut kept, mut finished): (Vec<i32>, bool) = (Vec::new(), false);
            for (at, label) in labels.iter().enumerate() {
                if at > 0 && self.collapse_repeated && *label == labels[at - 1] {
                    continue;
                }
                if *label as i64 >= blank {
                    finished = true;
                    continue;
                }
                if finished {
                    bail!(
                        InvalidArgument,
                        "Saw a non-null label (index >= num_classes - 1) following a null label, batch: {batch} \
                         num_classes: {classes} labels: {} labels seen so far: {}",
                        comma(labels),
                        comma(&kept)
                    );
                }
                kept.push(*label);
            }
            ensure!(
                kept.iter().all(|label| *label >= 0),
                InvalidArgument,
                "All labels must be nonnegative integers, batch: {batch} labels: {}",
                comma(&kept)
            );
            ensure!(
                self.ignore_longer || labels.len() <= *length,
                InvalidArgument,
                "Not enough time for target transition sequence (required: {}, available: {length}){batch}You can \
                 turn this error into a warning by using the flag ignore_longer_outputs_than_inputs",
                labels.len()
            );
            sequences.push(kept.into_iter().map(|label| label as usize).collect());
        }
        Ok(Labels { sequences, given: sparse.iter().map(Vec::len).collect() })
    }
}

fn loss_kernel<T: Math>(init: &Init<'_>) -> Result<Kernel> {
    let options = Options {
        collapse_repeated: init.attr("preprocess_collapse_repeated")?,
        merge_repeated: init.attr("ctc_merge_repeated")?,
        ignore_longer: init.attr("ignore_longer_outputs_than_inputs")?,
    };
    Kernel::sync(move |cx| {
        let lengths = check_inputs(cx)?;
        let inputs = cx.input(0)?;
        let (batch, classes) = (inputs.shape().dim(1), inputs.shape().dim(2));
        let labels = options.labels(&sparse_labels(cx, batch)?, &lengths, classes)?;
        let mut gradient = cx.zeros(T::DTYPE, inputs.shape().clone())?;
        let data = inputs.flat::<T>()?;
        let mut losses: Vec<(T, Vec<T>)> = Vec::new();
        losses.resize_with(batch, || (<T as num_traits::Zero>::zero(), Vec::new()));
        let work = inputs.elements() / batch * 20;
        cx.threads().parallel_rows(&mut losses, 1, work, |first, rows| {
            for (row, (loss, gradients)) in (first..).zip(rows) {
                let steps = lengths[row];
                if steps == 0 || (options.ignore_longer && labels.given[row] > steps) {
                    continue;
                }
                let frames = Frames::new(&data[row * classes..], batch * classes, classes, steps);
                let blank = classes - 1;
                let with_blanks = labels.sequences[row].iter().flat_map(|label| [blank, *label]);
                let alignment = Alignment {
                    frames: &frames,
                    labels: with_blanks.chain([blank]).collect(),
                    blank,
                    merge_repeated: options.merge_repeated,
                };
                gradients.reserve(steps * classes);
                *loss = alignment.solve(&mut |_, gradient| gradients.extend_from_slice(gradient));
            }
        });
        let out = gradient.flat_mut::<T>()?;
        for (row, (_, gradients)) in losses.iter().enumerate() {
            for (step, frame) in gradients.chunks(classes).enumerate() {
                out[(step * batch + row) * classes..][..classes].copy_from_slice(frame);
            }
        }
        let losses = Tensor::new(Shape::vector(batch), losses.into_iter().map(|(loss, _)| loss).collect())?;
        Ok([losses, gradient].into())
    })
}

/// The op's second output is the gradient of the first, which cannot be differentiated again.
fn loss_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let message = "Currently there is no way to take the second derivative of ctc_loss due to the fused \
                   implementation's interaction with tf.gradients()";
    let gradient = ops::PreventGradient::new().message(message).build(s, g.output(1)?)?;
    let by_sequence = ops::reshape(s, dy, [1i32, -1, 1])?;
    Ok([Some(ops::mul(s, by_sequence, gradient)?), None, None, None].into())
}

#[cfg(test)]
mod tests {
    use super::log_sum_exp;
    use crate::testing::{infer, infer_err};
    use ferroflow_core::Code;

    #[test]
    fn shapes() {
        infer("CTCLoss", "[5,?,4];[?,2];[3];[2]", "[2];[5,2,4]");
        infer_err("CTCLoss", "[5,3,4];[4,2];[3];[3]", Code::InvalidArgument);
    }

    #[test]
    fn sums_of_logarithms() {
        let sum = log_sum_exp(2.0f64.ln(), 3.0f64.ln());
        assert!((sum - 5.0f64.ln()).abs() < 1e-6, "{sum}");
        assert_eq!(log_sum_exp(f32::NEG_INFINITY, 1.0), 1.0);
    }
}
