//! Einstein summation of one or two tensors.
//!
//! Each operand is seen as strides per label, which makes diagonals and permutations free. Labels of one operand alone
//! are summed first; then labels fall into four groups (in both and kept, in both and summed, left only, right only)
//! and the whole is one batched matrix product, whose result is put into the output's order.

use crate::builders as ops;
use crate::linalg::product::{Batch, Gemm, MatrixView, multiply_batch};
use crate::linalg::reduce::{Axis, Fold, Sum, fold};
use crate::linalg::strided_copy::{Layout, copy};
use crate::numeric::Num;
use crate::support::gradient::{conj, element, kept_shape, part};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{C64, C128, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&EINSUM];

static EINSUM: Op = Op {
    name: "Einsum",
    gradient: Gradient::Fn(einsum_grad),
    inputs: &["inputs: N * T"],
    outputs: &["output: T"],
    attrs: &["equation: string", "N: int >= 1", "T: type"],
    shape: einsum_shape,
    kernels: kernels![einsum_kernel: bf16, f16, f32, f64, i32, i64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// A label of an equation: a character, or the position from the right inside the ellipsis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Label {
    Named(char),
    Ellipsis(usize),
}

/// One side's subscript: labels before the ellipsis and after it.
#[derive(Clone, Debug)]
struct Subscript {
    before: Vec<char>,
    after: Option<Vec<char>>,
}

struct Equation {
    text: String,
    inputs: Vec<Subscript>,
    output: Subscript,
}

impl Equation {
    fn parse(text: &str) -> Result<Equation> {
        let sides: Vec<&str> = text.split("->").collect();
        let [inputs, output] = sides.as_slice() else {
            bail!(InvalidArgument, "Expecting exactly one '->' in einsum equation: {text}");
        };
        let inputs: Vec<&str> = inputs.split(',').collect();
        ensure!(
            inputs.len() == 1 || inputs.len() == 2,
            InvalidArgument,
            "Expecting 1 or 2 input subscripts in equation '{text}' but got: {}",
            inputs.len()
        );
        let inputs: Vec<Subscript> =
            inputs.into_iter().map(|side| Subscript::parse(side, "input")).collect::<Result<_>>()?;
        let mut output = Subscript::parse(output, "output")?;
        // Labels that no input has are left out, as stock's kernel does; clients refuse them.
        let known = |name: &char| inputs.iter().any(|input| input.names().any(|other| other == *name));
        output.before.retain(known);
        for after in output.after.iter_mut() {
            after.retain(known);
        }
        Ok(Equation { text: text.to_owned(), inputs, output })
    }

    fn check_count(&self, count: usize) -> Result<()> {
        ensure!(
            self.inputs.len() == count,
            InvalidArgument,
            "Expected {} inputs but got: {count}",
            self.inputs.len()
        );
        Ok(())
    }
}

impl Subscript {
    fn parse(text: &str, side: &str) -> Result<Subscript> {
        let periods = text.matches('.').count();
        let (before, after) = match text.split_once("...") {
            Some((before, after)) if periods == 3 => (before, Some(after)),
            None if periods == 0 => (text, None),
            _ => bail!(
                InvalidArgument,
                "Expected at most one ellipsis (...), but found {periods} periods (.) in the {side} subscript: {text}"
            ),
        };
        Ok(Subscript { before: before.chars().collect(), after: after.map(|after| after.chars().collect()) })
    }

    fn names(&self) -> impl Iterator<Item = char> {
        self.before.iter().chain(self.after.iter().flatten()).copied()
    }

    /// The number of dimensions that the ellipsis stands for in a tensor of this rank.
    fn ellipsis_rank(&self, input: usize, rank: usize) -> Result<usize> {
        let named = self.names().count();
        if self.after.is_some() {
            ensure!(
                rank >= named,
                InvalidArgument,
                "Expected input {input} to have rank at least {named} but got: {rank}"
            );
        } else {
            ensure!(
                rank == named,
                InvalidArgument,
                "Expected input {input} to have rank {named} but got: {rank}"
            );
        }
        Ok(rank - named)
    }

    fn labels(&self, ellipsis: usize) -> Vec<Label> {
        let mut labels: Vec<Label> = self.before.iter().map(|name| Label::Named(*name)).collect();
        if let Some(after) = &self.after {
            labels.extend((0..ellipsis).rev().map(Label::Ellipsis));
            labels.extend(after.iter().map(|name| Label::Named(*name)));
        }
        labels
    }
}

fn einsum_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let equation = Equation::parse(&s.attr::<String>("equation")?)?;
    equation.check_count(s.num_inputs())?;
    let mut known: Vec<(char, i64)> = Vec::new();
    let mut ellipsis = PartialShape::scalar();
    for (at, input) in equation.inputs.iter().enumerate() {
        let shape = s.input(at);
        let Some(dims) = shape.dims() else {
            // Without its rank nothing is known of what the ellipsis stands for.
            if input.after.is_some() {
                ellipsis = PartialShape::unknown();
            }
            continue;
        };
        let hidden = input.ellipsis_rank(at, dims.len())?;
        let (before, after) = (input.before.len(), input.before.len() + hidden);
        let named = dims[..before].iter().chain(&dims[after..]);
        for (name, dim) in input.names().zip(named) {
            match known.iter_mut().find(|(other, _)| *other == name) {
                Some((_, other)) => *other = s.merge_dims(*other, *dim)?,
                None => known.push((name, *dim)),
            }
        }
        if ellipsis.dims().is_some() {
            ellipsis =
                shapes::broadcast(&ellipsis, &PartialShape::new(dims[before..after].iter().copied())?)?;
        }
    }
    let Some(ellipsis) = ellipsis.dims() else {
        if equation.output.after.is_some() {
            return Ok(());
        }
        return set_output(s, &equation, &known, &[]);
    };
    set_output(s, &equation, &known, ellipsis)
}

fn set_output(
    s: &mut ShapeCx<'_>,
    equation: &Equation,
    known: &[(char, i64)],
    ellipsis: &[i64],
) -> Result<()> {
    let dim =
        |name: &char| known.iter().find(|(other, _)| other == name).map_or(UNKNOWN_DIM, |(_, dim)| *dim);
    let mut dims: Vec<i64> = equation.output.before.iter().map(dim).collect();
    if let Some(after) = &equation.output.after {
        dims.extend(ellipsis);
        dims.extend(after.iter().map(dim));
    }
    s.output(0, dims)
}

/// A dimension of an operand: its label, its size, and how far apart its elements are.
#[derive(Clone, Copy)]
struct Span {
    label: Label,
    size: usize,
    step: usize,
}

/// An operand as spans over a tensor's elements; every label once.
struct Operand {
    data: Tensor,
    spans: Vec<Span>,
}

impl Operand {
    fn new(data: Tensor, labels: &[Label]) -> Result<Operand> {
        let mut spans: Vec<Span> = Vec::with_capacity(labels.len());
        let mut step = data.elements();
        for (axis, (label, dim)) in labels.iter().zip(data.shape().dims()).enumerate() {
            let size = *dim as usize;
            step = step.checked_div(size).unwrap_or(0);
            match spans.iter_mut().find(|span| span.label == *label) {
                // A repeated label walks the diagonal.
                Some(span) => {
                    ensure!(
                        span.size == size,
                        InvalidArgument,
                        "Expected dimension {} at axis {axis} of the input shaped {} but got dimension {size}",
                        span.size,
                        data.shape()
                    );
                    span.step += step;
                }
                None => spans.push(Span { label: *label, size, step }),
            }
        }
        Ok(Operand { data, spans })
    }

    fn span(&self, label: Label) -> Option<&Span> {
        self.spans.iter().find(|span| span.label == label)
    }

    /// Sums the labels that nobody else has.
    fn sum_alone(
        &mut self,
        cx: &KernelCx<'_>,
        arithmetic: &Arithmetic,
        wanted: &dyn Fn(Label) -> bool,
    ) -> Result<()> {
        let (kept, summed): (Vec<Span>, Vec<Span>) = self.spans.iter().partition(|span| wanted(span.label));
        if summed.is_empty() {
            return Ok(());
        }
        let (outer, n) = (size_of_all(&kept), size_of_all(&summed));
        let packed = self.ordered(cx, &[&kept, &summed])?;
        self.data = (arithmetic.sum)(cx, &packed, Axis { outer, n, inner: 1 })?;
        self.spans = kept;
        let mut step = 1;
        for span in self.spans.iter_mut().rev() {
            span.step = step;
            step *= span.size;
        }
        Ok(())
    }

    /// The elements in the order of these groups of labels, copied only if they are not in that order already.
    fn ordered(&self, cx: &KernelCx<'_>, groups: &[&[Span]]) -> Result<Tensor> {
        let spans: Vec<Span> = groups.concat();
        let size = size_of_all(&spans);
        if is_packed(&spans) && size == self.data.elements() {
            return Ok(self.data.clone());
        }
        let mut packed = cx.alloc_dtype(self.data.dtype(), Shape::vector(size))?;
        let layout = Layout::reading(0, spans.iter().map(|span| (span.size, span.step as isize)));
        copy(cx.threads(), &layout, &self.data, &mut packed)?;
        Ok(packed)
    }
}

fn size_of_all(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.size).product()
}

fn is_packed(spans: &[Span]) -> bool {
    let mut step = 1;
    spans.iter().rev().all(|span| {
        let fits = span.size == 1 || span.step == step;
        step *= span.size;
        fits
    })
}

fn einsum_kernel<T: Gemm + Num>(init: &Init<'_>) -> Result<Kernel> {
    let equation = Equation::parse(&init.attr::<String>("equation")?)?;
    equation.check_count(init.input_types.len())?;
    let arithmetic = Arithmetic { sum: sum::<T>, multiply: multiply::<T> };
    Kernel::sync(move |cx| einsum(cx, &equation, &arithmetic))
}

/// The functions that depend on the type of the elements.
struct Arithmetic {
    sum: fn(&KernelCx<'_>, &Tensor, Axis) -> Result<Tensor>,
    multiply: fn(&KernelCx<'_>, &Matrices, &Matrices, &mut Tensor) -> Result<()>,
}

/// Matrices of one size, one after the other.
struct Matrices {
    values: Tensor,
    /// Rows and columns of each as it is stored.
    stored: (usize, usize),
    transposed: bool,
}

impl Matrices {
    fn new((values, transposed): (Tensor, bool), rows: usize, columns: usize) -> Matrices {
        Matrices { values, stored: if transposed { (columns, rows) } else { (rows, columns) }, transposed }
    }

    fn view<'a, T>(&self, values: &'a [T], at: usize) -> MatrixView<'a, T> {
        let (rows, columns) = self.stored;
        let matrix = &values[at * rows * columns..][..rows * columns];
        MatrixView::new(matrix, rows, columns, self.transposed)
    }
}

/// The sums of rows, as a vector.
fn sum<T: Num>(cx: &KernelCx<'_>, packed: &Tensor, axis: Axis) -> Result<Tensor> {
    let mut sums = vec![<T::Wide as Num>::ZERO; axis.outer];
    fold::<Sum<T>>(cx.threads(), packed.flat::<T>()?, axis, &mut sums);
    Ok(Tensor::vector(sums.into_iter().map(Sum::<T>::narrow).collect()))
}

/// The products of matrices with the same number.
fn multiply<T: Gemm>(cx: &KernelCx<'_>, left: &Matrices, right: &Matrices, out: &mut Tensor) -> Result<()> {
    let count = out.shape().dim(0);
    let (left_values, right_values) = (left.values.flat::<T>()?, right.values.flat::<T>()?);
    multiply_batch(
        cx.threads(),
        Batch { dims: &[count], left: &[1], right: &[1] },
        |at| left.view(left_values, at),
        |at| right.view(right_values, at),
        out.flat_mut()?,
    );
    Ok(())
}

fn einsum(cx: &KernelCx<'_>, equation: &Equation, arithmetic: &Arithmetic) -> Result<Outputs> {
    let mut operands: Vec<Operand> = Vec::with_capacity(2);
    let mut ellipsis = 0;
    for (at, input) in equation.inputs.iter().enumerate() {
        let tensor = cx.input(at)?.clone();
        let hidden = input.ellipsis_rank(at, tensor.rank())?;
        ellipsis = ellipsis.max(hidden);
        operands.push(Operand::new(tensor, &input.labels(hidden))?);
    }
    ensure!(
        ellipsis == 0 || equation.output.after.is_some(),
        InvalidArgument,
        "Ellipsis dimensions of an input must be kept in the output of equation: {}",
        equation.text
    );
    let output = equation.output.labels(ellipsis);
    let sizes = label_sizes(cx, &operands)?;
    let size_of = |label: &Label| sizes.iter().find(|(other, _)| other == label).map_or(1, |(_, size)| *size);
    let labels: Vec<Vec<Label>> =
        operands.iter().map(|operand| operand.spans.iter().map(|span| span.label).collect()).collect();
    for (at, operand) in operands.iter_mut().enumerate() {
        let elsewhere =
            |label| labels.iter().enumerate().any(|(i, labels)| i != at && labels.contains(&label));
        operand.sum_alone(cx, arithmetic, &|label| output.contains(&label) || elsewhere(label))?;
    }
    let (result, labels) = match operands.as_slice() {
        [only] => (only.ordered(cx, &[&only.spans])?, only.spans.iter().map(|span| span.label).collect()),
        [left, right] => product(cx, (left, right), &output, &size_of, arithmetic)?,
        _ => bail!(Internal, "an equation has one or two inputs"),
    };
    arrange(cx, result, &labels, &output, &size_of)
}

/// The size of every label. Dimensions of the ellipsis may be one in one operand and another size in the other.
fn label_sizes(cx: &KernelCx<'_>, operands: &[Operand]) -> Result<Vec<(Label, usize)>> {
    let mut sizes: Vec<(Label, usize)> = Vec::new();
    for (at, operand) in operands.iter().enumerate() {
        for (axis, span) in operand.spans.iter().enumerate() {
            let known = sizes.iter_mut().find(|(label, _)| *label == span.label);
            match (known, span.label) {
                (None, label) => sizes.push((label, span.size)),
                (Some((_, size)), Label::Ellipsis(_)) if *size == 1 || span.size == 1 => {
                    *size = if *size == 1 { span.size } else { *size };
                }
                (Some((_, size)), _) => ensure!(
                    *size == span.size,
                    InvalidArgument,
                    "Expected dimension {size} at axis {axis} of the input shaped {} but got dimension {}",
                    cx.input(at)?.shape(),
                    span.size
                ),
            }
        }
    }
    Ok(sizes)
}

/// The product of two operands with the labels of its result.
fn product(
    cx: &KernelCx<'_>,
    (left, right): (&Operand, &Operand),
    output: &[Label],
    size_of: &dyn Fn(&Label) -> usize,
    arithmetic: &Arithmetic,
) -> Result<(Tensor, Vec<Label>)> {
    let labels = |operand: &Operand| operand.spans.iter().map(|span| span.label).collect::<Vec<_>>();
    let (shared, left_only): (Vec<Label>, Vec<Label>) =
        labels(left).into_iter().partition(|label| right.span(*label).is_some());
    let right_only: Vec<Label> =
        labels(right).into_iter().filter(|label| left.span(*label).is_none()).collect();
    let (batch, inner): (Vec<Label>, Vec<Label>) =
        shared.into_iter().partition(|label| output.contains(label));
    // Where one operand repeats along a label, its step is zero.
    let group = |operand: &Operand, labels: &[Label]| -> Vec<Span> {
        let spans = labels.iter().filter_map(|label| operand.span(*label));
        spans
            .map(|span| {
                let size = size_of(&span.label);
                Span { size, step: if span.size == size { span.step } else { 0 }, ..*span }
            })
            .collect()
    };
    let size = |labels: &[Label]| labels.iter().map(size_of).product::<usize>();
    let (count, m, k, n) = (size(&batch), size(&left_only), size(&inner), size(&right_only));
    let lefts = matrices(cx, left, &group(left, &batch), &group(left, &left_only), &group(left, &inner))?;
    let rights =
        matrices(cx, right, &group(right, &batch), &group(right, &inner), &group(right, &right_only))?;
    let mut values = cx.alloc_dtype(left.data.dtype(), Shape::new([count as i64, m as i64, n as i64])?)?;
    let (lefts, rights) = (Matrices::new(lefts, m, k), Matrices::new(rights, k, n));
    (arithmetic.multiply)(cx, &lefts, &rights, &mut values)?;
    Ok((values, [batch, left_only, right_only].concat()))
}

/// A batch of matrices with these rows and columns, and whether each is stored transposed; copied only if neither order
/// is the one in memory.
fn matrices(
    cx: &KernelCx<'_>,
    operand: &Operand,
    batch: &[Span],
    rows: &[Span],
    columns: &[Span],
) -> Result<(Tensor, bool)> {
    let transposed = [batch, columns, rows];
    if is_packed(&transposed.concat()) && !is_packed(&[batch, rows, columns].concat()) {
        return Ok((operand.ordered(cx, &transposed)?, true));
    }
    Ok((operand.ordered(cx, &[batch, rows, columns])?, false))
}

/// Puts a packed result into the output's order; labels that the output repeats fill its diagonal.
fn arrange(
    cx: &KernelCx<'_>,
    result: Tensor,
    labels: &[Label],
    output: &[Label],
    size_of: &dyn Fn(&Label) -> usize,
) -> Result<Outputs> {
    let shape = Shape::new(output.iter().map(|label| size_of(label) as i64))?;
    if labels == output {
        return Ok(result.reshaped(shape)?.into());
    }
    // How far a step along each label moves in the output; diagonals move in several dimensions at once.
    let mut steps = vec![0isize; labels.len()];
    let mut step = 1;
    for label in output.iter().rev() {
        if let Some(at) = labels.iter().position(|other| other == label) {
            steps[at] += step;
        }
        step *= size_of(label) as isize;
    }
    let mut tensor = cx.zeros(result.dtype(), shape)?;
    let layout = Layout::writing(0, labels.iter().map(size_of).zip(steps));
    copy(cx.threads(), &layout, &result, &mut tensor)?;
    Ok(tensor.into())
}

const ELLIPSIS: &str = "...";

/// The gradient of a sum over products is such a sum again, with the equation turned around.
fn einsum_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy, equation) = (g.scope(), g.dy(0)?, g.attr::<String>("equation")?);
    let Some((inputs, output)) = equation.split_once("->") else {
        bail!(InvalidArgument, "Expecting exactly one '->' in einsum equation: {equation}")
    };
    let Some((x_labels, y_labels)) = inputs.split_once(',') else {
        let shape = ops::shape(s, g.input(0))?;
        return Ok([summed_grad(s, dy, output, inputs, &shape, &missing_from(inputs, &[output]))?].into());
    };
    // An operand without batch dimensions broadcasts, but its gradient has them.
    let with_ellipsis = |labels: &str| {
        if output.contains(ELLIPSIS) && !labels.contains(ELLIPSIS) {
            format!("{labels}{ELLIPSIS}")
        } else {
            labels.to_owned()
        }
    };
    let (x_labels, y_labels) = (with_ellipsis(x_labels), with_ellipsis(y_labels));
    let (x, y) = (conj(s, g.input(0))?, conj(s, g.input(1))?);
    let (x_shape, y_shape) = (ops::shape(s, &x)?, ops::shape(s, &y)?);
    let operand = |labels: &str, shape: &Output, other: &Output, other_labels: &str| {
        let summed = missing_from(labels, &[output, other_labels]);
        let left: String = labels.chars().filter(|label| !summed.contains(*label)).collect();
        let product = ops::einsum(s, [&dy, other], &format!("{output},{other_labels}->{left}"))?;
        if summed.is_empty() { Ok(product) } else { summed_grad(s, product, &left, labels, shape, &summed) }
    };
    let dx = operand(&x_labels, &x_shape, &y, &y_labels)?;
    let dy = operand(&y_labels, &y_shape, &x, &x_labels)?;
    let (x_batch, y_batch) = (batch_range(&x_labels), batch_range(&y_labels));
    let known = |shape: PartialShape, (begin, end): (i32, Option<i32>)| {
        let dims = shape.to_shape()?.dims().to_vec();
        let end = (dims.len() as i64 + i64::from(end.unwrap_or(0))).max(0) as usize;
        dims.get(begin as usize..end).map(<[_]>::to_vec)
    };
    let same = match (known(x.shape(), x_batch), known(y.shape(), y_batch)) {
        (Some(x), Some(y)) => x == y,
        _ => false,
    };
    if same || !output.contains(ELLIPSIS) {
        return Ok([dx, dy].into());
    }
    let x_dims = part(s, &x_shape, x_batch.0, x_batch.1)?;
    let y_dims = part(s, &y_shape, y_batch.0, y_batch.1)?;
    let axes = ops::broadcast_gradient_args(s, x_dims, y_dims)?;
    let dx = ops::sum(s, dx, ops::add_v2(s, x_batch.0, axes.r0));
    let dy = ops::sum(s, dy, ops::add_v2(s, y_batch.0, axes.r1));
    Ok([ops::reshape(s, dx, x_shape)?, ops::reshape(s, dy, y_shape)?].into())
}

/// The labels that none of the others has, each once.
fn missing_from(labels: &str, others: &[&str]) -> String {
    let mut missing = String::new();
    for label in labels.chars().filter(|label| *label != '.') {
        if !missing.contains(label) && !others.iter().any(|other| other.contains(label)) {
            missing.push(label);
        }
    }
    missing
}

/// The first dimension of the ellipsis, and its end counted from the back.
fn batch_range(labels: &str) -> (i32, Option<i32>) {
    match labels.split_once(ELLIPSIS) {
        Some((before, "")) => (before.len() as i32, None),
        Some((before, after)) => (before.len() as i32, Some(-(after.len() as i32))),
        None => (0, Some(0)),
    }
}

/// The first axis with this label; from the back, if it is behind an ellipsis.
fn axis_of(labels: &str, label: char) -> i32 {
    let (before, after) = labels.split_once(ELLIPSIS).unwrap_or((labels, ""));
    let behind = || after.find(label).map_or(0, |at| at as i32 - after.len() as i32);
    before.find(label).map_or_else(behind, |at| at as i32)
}

/// The gradient of an equation with one input, of which some labels were summed over.
fn summed_grad(
    s: &Scope,
    dy: Output,
    output: &str,
    input: &str,
    shape: &Output,
    summed: &str,
) -> Result<Output> {
    if summed.is_empty() {
        return ops::einsum(s, [dy], &format!("{output}->{input}"));
    }
    let axes: Vec<i32> = summed.chars().map(|label| axis_of(input, label)).collect();
    let repeats = |labels: &str| labels.char_indices().any(|(at, label)| labels[..at].contains(label));
    let left: String = input.chars().filter(|label| !summed.contains(*label)).collect();
    if !repeats(input) && !repeats(output) && left == output {
        let kept = kept_shape(s, shape, &s.constant(axes)?)?;
        return ops::broadcast_to(s, ops::reshape(s, dy, kept), shape);
    }
    // Traces and transpositions are undone by another equation, which finds the summed labels in front.
    let dims = axes.iter().map(|axis| element(s, shape, *axis)).collect::<Result<Vec<_>>>()?;
    let dy_shape = ops::shape(s, &dy)?;
    let whole = ops::concat_v2(s, [&ops::pack(s, dims)?, &dy_shape], 0);
    let kept = ops::concat_v2(s, [&s.constant(vec![1i32; axes.len()])?, &dy_shape], 0);
    let repeated = ops::broadcast_to(s, ops::reshape(s, dy, kept), whole)?;
    ops::einsum(s, [repeated], &format!("{summed}{output}->{input}"))
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{Shape, Tensor};

    fn infer(equation: &str, inputs: &str, output: &str) {
        Node::new("Einsum").attr("equation", equation).infer(inputs, output);
    }

    #[test]
    fn shapes_follow_the_labels() {
        infer("ij,jk->ik", "[2,3];[3,?]", "[2,?]");
        infer("...ij,...jk->...ik", "[5,1,2,3];[4,3,2]", "[5,4,2,2]");
        infer("ii->i", "[3,?]", "[3]");
        infer("ij->", "?", "[]");
        infer("i...->...", "?", "?");
        infer("ij->k", "[2,3]", "[]");
        assert!(Node::new("Einsum").attr("equation", "ij").infer_shapes("[2,3]").is_err());
    }

    #[test]
    fn diagonals_are_read_and_written() {
        let run = |equation: &str, inputs: Vec<Tensor>| {
            let out = Node::new("Einsum").attr("equation", equation).run(inputs).unwrap();
            out[0].flat::<f32>().unwrap().to_vec()
        };
        let matrix = Tensor::new(Shape::matrix(2, 2), vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(run("ii->i", vec![matrix.clone()]), [1.0, 4.0]);
        assert_eq!(run("ij->jj", vec![matrix.clone()]), [4.0, 0.0, 0.0, 6.0]);
        assert_eq!(run("ij,kj->ki", vec![matrix.clone(), matrix.clone()]), [5.0, 11.0, 11.0, 25.0]);
        assert_eq!(
            run("...i,...i->...", vec![matrix.clone(), Tensor::vector(vec![1.0f32, 1.0])]),
            [3.0, 7.0]
        );
        assert_eq!(run("ij,->ji", vec![matrix, Tensor::scalar(2.0f32)]), [2.0, 6.0, 4.0, 8.0]);
    }
}
