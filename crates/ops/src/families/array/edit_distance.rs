//! The edit distance between sequences that are rows of sparse tensors.

use crate::support::index::{Ints, constant_ints, input_ints};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{C64, C128, Element, Result, Shape, bf16, ensure, f16, kernels};
use std::collections::BTreeMap;

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

/// The sequences of a sparse tensor by the place of their row, as positions of their values.
type Rows = BTreeMap<Ints, Vec<usize>>;

/// The sequences of a sparse tensor, and its shape.
fn rows(cx: &KernelCx<'_>, first: usize, name: &str) -> Result<(Rows, Ints)> {
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
    let mut rows = Rows::new();
    for (at, place) in indices.flat::<i64>()?.chunks_exact(dims.len()).enumerate() {
        ensure!(
            place.iter().zip(&dims).all(|(at, dim)| (0..*dim).contains(at)),
            InvalidArgument,
            "{name}_indices are out of bounds of {name}_shape"
        );
        rows.entry(Ints::from_slice(&place[..dims.len() - 1])).or_default().push(at);
    }
    Ok((rows, dims))
}

/// The number of insertions, deletions and replacements that turn one sequence of positions into the other, given whether
/// the values at two positions differ.
fn distance(a: &[usize], b: &[usize], differ: &dyn Fn(usize, usize) -> bool) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(differ(*x, *y));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn edit_distance_kernel<T: Element>(init: &Init<'_>) -> Result<Kernel> {
    let normalize: bool = init.attr("normalize")?;
    Kernel::sync(move |cx| {
        let (guessed, real) = (cx.flat::<T>(1)?, cx.flat::<T>(4)?);
        edit_distances(cx, normalize, &|x, y| guessed[x] != real[y])
    })
}

fn edit_distances(
    cx: &KernelCx<'_>,
    normalize: bool,
    differ: &dyn Fn(usize, usize) -> bool,
) -> Result<Outputs> {
    let (hypothesis, shape) = rows(cx, 0, "hypothesis")?;
    let (truth, truth_shape) = rows(cx, 3, "truth")?;
    ensure!(
        shape.len() == truth_shape.len(),
        InvalidArgument,
        "Expected truth and hypothesis to have matching ranks, but their shapes are: {} and {}",
        cx.input(5)?.shape(),
        cx.input(2)?.shape()
    );
    let outer = shape.len() - 1;
    let shape = Shape::new(shape.iter().zip(&truth_shape).map(|(a, b)| *a.max(b)).take(outer))?;
    let mut out = cx.zeros(f32::DTYPE, shape.clone())?;
    let values = out.flat_mut::<f32>()?;
    let nothing = Vec::new();
    for place in hypothesis.keys().chain(truth.keys()) {
        let (guess, real) = (hypothesis.get(place).unwrap_or(&nothing), truth.get(place).unwrap_or(&nothing));
        let steps = distance(guess, real, differ) as f32;
        let at = place.iter().zip(shape.iter()).fold(0, |at, (index, dim)| at * dim + index) as usize;
        // Without a true sequence the ratio is infinite.
        values[at] = if normalize { steps / real.len() as f32 } else { steps };
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn kitten_to_sitting_takes_three() {
        let steps = |a: &str, b: &str| {
            let (all_a, all_b): (Vec<usize>, Vec<usize>) = ((0..a.len()).collect(), (0..b.len()).collect());
            distance(&all_a, &all_b, &|x, y| a.as_bytes()[x] != b.as_bytes()[y])
        };
        assert_eq!(steps("kitten", "sitting"), 3);
        assert_eq!(steps("", "ab"), 2);
    }
}
