//! The edit distance between sequences that are rows of sparse tensors.

use crate::support::index::{constant_ints, input_ints};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{C64, C128, Element, Result, Shape, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&EDIT_DISTANCE];

static EDIT_DISTANCE: Op = Op {
    name: "EditDistance",
    gradient: Gradient::Stop,
    inputs: &[
        "hypothesis_indices: int64",
        "hypothesis_values: T",
        "hypothesis_shape: int64",
        "truth_indices: int64",
        "truth_values: T",
        "truth_shape: int64",
    ],
    outputs: &["output: float"],
    attrs: &["normalize: bool = true", "T: type"],
    shape: edit_distance_shape,
    kernels: kernels![
        edit_distance_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128, bool, Str
    ],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn edit_distance_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    for (input, rank) in [(0, 2), (1, 1), (2, 1), (3, 2), (4, 1), (5, 1)] {
        s.rank(input, rank)?;
    }
    match (constant_ints(s, 2)?, constant_ints(s, 5)?) {
        (Some(a), Some(b)) if a.len() == b.len() && !a.is_empty() => {
            s.output(0, a.iter().zip(&b).map(|(a, b)| *a.max(b)).take(a.len() - 1))
        }
        _ => {
            let length = |input: usize| s.input(input).dims().map(|dims| dims[0]).filter(|dim| *dim > 0);
            match length(2).or_else(|| length(5)) {
                Some(rank) => s.output(0, std::iter::repeat_n(UNKNOWN_DIM, rank as usize - 1)),
                None => Ok(()),
            }
        }
    }
}

/// The sequences of a sparse tensor, each with the place of its row, in the order of the indices. A row whose elements
/// are not listed one after the other is several sequences, as in stock.
type Rows<'a, T> = Vec<(&'a [i64], &'a [T])>;

/// The sequences of a sparse tensor, and the tensor's shape.
fn rows<'a, T: Element>(cx: &'a KernelCx<'_>, first: usize, name: &str) -> Result<(Rows<'a, T>, Shape)> {
    let (indices, values, shape) = (cx.input(first)?, cx.input(first + 1)?, cx.input(first + 2)?);
    ensure!(
        indices.rank() == 2,
        InvalidArgument,
        "{name}_indices should be a matrix, but got shape: {}",
        indices.shape()
    );
    ensure!(
        values.rank() == 1,
        InvalidArgument,
        "{name}_values should be a vector, but got shape: {}",
        values.shape()
    );
    ensure!(
        shape.rank() == 1 && shape.elements() > 0,
        InvalidArgument,
        "{name}_shape should be a vector, but got shape: {}",
        shape.shape()
    );
    ensure!(
        indices.shape()[0] == values.shape()[0],
        InvalidArgument,
        "Expected {name}_values.NumElements == #rows({name}_indices), their shapes are: {} and {}",
        values.shape(),
        indices.shape()
    );
    let dims = input_ints(cx, first + 2)?;
    ensure!(
        indices.shape().dim(1) == dims.len(),
        InvalidArgument,
        "Expected {name}_shape.NumElements == #cols({name}_indices), their shapes are: {} and {}",
        shape.shape(),
        indices.shape()
    );
    let (mut rows, mut values) = (Rows::new(), values.flat::<T>()?);
    let mut places =
        indices.flat::<i64>()?.chunks_exact(dims.len()).map(|place| &place[..dims.len() - 1]).peekable();
    while let Some(place) = places.next() {
        let mut length = 1;
        while places.next_if_eq(&place).is_some() {
            length += 1;
        }
        let (row, rest) = values.split_at(length);
        rows.push((place, row));
        values = rest;
    }
    Ok((rows, Shape::new(dims)?))
}

/// The number of insertions, deletions and replacements that turn one sequence into the other.
fn distance<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + (x != y) as usize;
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn edit_distance_kernel<T: Element>(init: &Init<'_>) -> Result<Kernel> {
    let normalize: bool = init.attr("normalize")?;
    Kernel::sync(move |cx| edit_distances::<T>(cx, normalize))
}

fn edit_distances<T: Element>(cx: &mut KernelCx<'_>, normalize: bool) -> Result<Outputs> {
    let (hypothesis, shape) = rows::<T>(cx, 0, "hypothesis")?;
    let (truth, truth_shape) = rows::<T>(cx, 3, "truth")?;
    ensure!(
        shape.rank() == truth_shape.rank(),
        InvalidArgument,
        "Expected truth and hypothesis to have matching ranks, but their shapes are: {} and {}",
        cx.input(5)?.shape(),
        cx.input(2)?.shape()
    );
    let outer = shape.rank() - 1;
    let shape = Shape::new(shape.iter().zip(truth_shape.iter()).map(|(a, b)| *a.max(b)).take(outer))?;
    let elements = shape.elements();
    ensure!(elements > 0, InvalidArgument, "Got output shape {shape} which has 0 elements");
    let mut out = cx.zeros(f32::DTYPE, shape.clone())?;
    let values = out.flat_mut::<f32>()?;
    // Both lists are taken to be sorted, as in stock: the row that comes first is missing from the other tensor.
    let (mut guesses, mut truths) = (hypothesis.into_iter().peekable(), truth.into_iter().peekable());
    loop {
        let place = match (guesses.peek(), truths.peek()) {
            (Some((guess, _)), Some((real, _))) => *guess.min(real),
            (Some((place, _)), None) | (None, Some((place, _))) => *place,
            (None, None) => break,
        };
        let guess = guesses.next_if(|(row, _)| *row == place).map_or(&[][..], |(_, row)| row);
        let real = truths.next_if(|(row, _)| *row == place).map_or(&[][..], |(_, row)| row);
        let at = place.iter().zip(shape.iter());
        let at = at.fold(0i64, |at, (index, dim)| at.wrapping_mul(*dim).wrapping_add(*index));
        let value = usize::try_from(at).ok().and_then(|at| values.get_mut(at));
        let Some(value) = value else {
            bail!(
                Internal,
                "Got an inner product {at} which would require writing to outside of the buffer for the output \
                 tensor (max elements {elements})"
            )
        };
        let steps = distance(guess, real) as f32;
        // Without a true sequence the ratio is infinite.
        *value = if normalize { steps / real.len() as f32 } else { steps };
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn kitten_to_sitting_takes_three() {
        let letters = |text: &'static str| text.as_bytes();
        assert_eq!(distance(letters("kitten"), letters("sitting")), 3);
        assert_eq!(distance(letters(""), letters("ab")), 2);
    }
}
