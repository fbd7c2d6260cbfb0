//! Counts of integers per row, as sparse tensors with an entry for every integer that occurs.

use crate::numeric::Num;
use crate::support::sparse::{Sparse, sparse_outputs, wide};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, Tensor, ensure, kernels};

pub(crate) const OPS: &[&Op] =
    &[&DENSE_COUNT_SPARSE_OUTPUT, &SPARSE_COUNT_SPARSE_OUTPUT, &RAGGED_COUNT_SPARSE_OUTPUT];

static DENSE_COUNT_SPARSE_OUTPUT: Op = Op {
    name: "DenseCountSparseOutput",
    inputs: &["values: T", "weights: output_type"],
    outputs: &["output_indices: int64", "output_values: output_type", "output_dense_shape: int64"],
    attrs: &[
        "T: {int32, int64}",
        "minlength: int >= -1 = -1",
        "maxlength: int >= -1 = -1",
        "binary_output: bool",
        "output_type: {int32, int64, float, double}",
    ],
    shape: dense_shape,
    kernels: kernels!["output_type" => dense_kernel: i32, i64, f32, f64],
    ..Op::PURE
};

static SPARSE_COUNT_SPARSE_OUTPUT: Op = Op {
    name: "SparseCountSparseOutput",
    inputs: &["indices: int64", "values: T", "dense_shape: int64", "weights: output_type"],
    shape: sparse_shape,
    kernels: kernels!["output_type" => sparse_kernel: i32, i64, f32, f64],
    ..DENSE_COUNT_SPARSE_OUTPUT
};

static RAGGED_COUNT_SPARSE_OUTPUT: Op = Op {
    name: "RaggedCountSparseOutput",
    inputs: &["splits: int64", "values: T", "weights: output_type"],
    shape: ragged_shape,
    kernels: kernels!["output_type" => ragged_kernel: i32, i64, f32, f64],
    ..DENSE_COUNT_SPARSE_OUTPUT
};

fn dense_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (values, weights) = (s.input(0), s.input(1));
    let none = weights.to_shape().is_some_and(|shape| shape.elements() == 0);
    let shape = if none { values } else { s.merge(&weights, &values)? };
    let rank = shape.rank().map_or(UNKNOWN_DIM, |rank| rank as i64);
    sparse_outputs(s, 0, rank)
}

fn sparse_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let indices = s.rank(0, 2)?;
    sparse_outputs(s, 0, indices.dims().map_or(UNKNOWN_DIM, |dims| dims[1]))
}

fn ragged_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let rank = s.input(1).rank().map_or(UNKNOWN_DIM, |rank| rank as i64 + 1);
    sparse_outputs(s, 0, rank)
}

/// The attributes of a count.
#[derive(Clone, Copy)]
struct Count {
    min_length: i64,
    max_length: i64,
    binary: bool,
}

impl Count {
    fn new(init: &Init<'_>) -> Result<Count> {
        Ok(Count {
            min_length: init.attr("minlength")?,
            max_length: init.attr("maxlength")?,
            binary: init.attr("binary_output")?,
        })
    }

    /// Counts `values`, whose rows `row` gives in any order; `rows` is `None` if there is but one, which has no
    /// number in the result.
    fn run<W: Num>(
        self,
        values: &Tensor,
        weights: &Tensor,
        rows: Option<i64>,
        row: impl Fn(usize) -> i64,
    ) -> Result<Outputs> {
        let values = wide(values)?;
        ensure!(
            values.iter().all(|value| *value >= 0),
            InvalidArgument,
            "Input values must all be non-negative"
        );
        let counted = |(_, value): &(usize, &i64)| self.max_length < 0 || **value < self.max_length;
        let mut keys: Vec<(i64, i64, usize)> =
            values.iter().enumerate().filter(counted).map(|(at, value)| (row(at), *value, at)).collect();
        keys.sort_unstable();
        let weights = weights.flat::<W>()?;
        let (mut indices, mut counts): (Vec<i64>, Vec<W>) = (Vec::new(), Vec::new());
        let mut last = None;
        for (row, value, at) in &keys {
            if last != Some((row, value)) {
                indices.extend(rows.map(|_| *row));
                indices.push(*value);
                counts.push(W::ZERO);
                last = Some((row, value));
            }
            if let Some(count) = counts.last_mut() {
                *count = if self.binary { W::ONE } else { count.add(*weights.get(*at).unwrap_or(&W::ONE)) };
            }
        }
        let largest = keys.iter().map(|(_, value, _)| *value).max().unwrap_or(0);
        let length = if self.max_length >= 0 {
            self.max_length
        } else {
            largest.saturating_add(1).max(self.min_length)
        };
        let rank = 1 + rows.is_some() as usize;
        let indices = Tensor::new(Shape::matrix(counts.len(), rank), indices)?;
        let shape = rows.into_iter().chain([length]).collect();
        Ok([indices, Tensor::vector(counts), Tensor::vector(shape)].into())
    }
}

fn check_weights(weights: &Tensor, values: &Tensor, what: &str) -> Result<()> {
    ensure!(
        weights.elements() == 0 || weights.shape() == values.shape(),
        InvalidArgument,
        "Weights and {what} must have the same shape. Weight shape: {}; {what} shape: {}",
        weights.shape(),
        values.shape()
    );
    Ok(())
}

fn dense_kernel<W: Num>(init: &Init<'_>) -> Result<Kernel> {
    let count = Count::new(init)?;
    Kernel::sync(move |cx| {
        let (values, weights) = (cx.input(0)?, cx.input(1)?);
        let dims = values.shape().dims();
        ensure!(
            (1..=2).contains(&dims.len()),
            InvalidArgument,
            "Input must be a 1 or 2-dimensional tensor. Got: {}",
            values.shape()
        );
        check_weights(weights, values, "data")?;
        if let [rows, width] = dims {
            ensure!(*rows != 0, InvalidArgument, "Invalid input: Shapes dimension cannot be 0.");
            return count.run::<W>(values, weights, Some(*rows), |at| at as i64 / width);
        }
        count.run::<W>(values, weights, None, |_| 0)
    })
}

fn sparse_kernel<W: Num>(init: &Init<'_>) -> Result<Kernel> {
    let count = Count::new(init)?;
    Kernel::sync(move |cx| {
        let sparse = Sparse::input(cx, 0)?;
        ensure!(sparse.rank() > 0, InvalidArgument, "The shape argument requires at least one element.");
        sparse.check_bounds()?;
        let weights = cx.input(3)?;
        check_weights(weights, sparse.values, "values")?;
        if sparse.rank() == 1 {
            return count.run::<W>(sparse.values, weights, None, |_| 0);
        }
        let rows = sparse.shape[0];
        ensure!(
            (1..i32::MAX as i64).contains(&rows),
            InvalidArgument,
            "Cannot allocate {rows} batches, is the dense shape too wide?"
        );
        count.run::<W>(sparse.values, weights, Some(rows), |at| sparse.row(at)[0])
    })
}

fn ragged_kernel<W: Num>(init: &Init<'_>) -> Result<Kernel> {
    let count = Count::new(init)?;
    Kernel::sync(move |cx| {
        let (splits, values, weights) = (cx.flat::<i64>(0)?, cx.input(1)?, cx.input(2)?);
        check_weights(weights, values, "values")?;
        ensure!(
            splits.len() > 1,
            InvalidArgument,
            "Must provide at least 2 elements for the splits argument"
        );
        ensure!(splits[0] == 0, InvalidArgument, "Splits must start with 0, not with {}", splits[0]);
        let last = splits[splits.len() - 1];
        ensure!(
            last == values.elements() as i64,
            InvalidArgument,
            "Splits must end with the number of values, got {last} instead of {}",
            values.elements()
        );
        let rows = row_numbers(cx, splits, values.elements())?;
        count.run::<W>(values, weights, Some(splits.len() as i64 - 1), |at| rows[at])
    })
}

/// The row of each value: the last one whose split it has passed, however far splits go back after that.
fn row_numbers(cx: &KernelCx<'_>, splits: &[i64], values: usize) -> Result<Vec<i64>> {
    cx.step().check_cancelled()?;
    let mut rows = Vec::with_capacity(values);
    let mut passed = 0;
    for value in 0..values as i64 {
        while splits.get(passed).is_some_and(|split| value >= *split) {
            passed += 1;
        }
        rows.push(passed as i64 - 1);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn every_integer_that_occurs_has_an_entry() {
        infer("RaggedCountSparseOutput", "[4];[7];[0]", "[?,2];[?];[2]");
        let values = Tensor::new(Shape::matrix(2, 3), vec![5i32, 1, 5, 0, 0, 9]).unwrap();
        let node = Node::new("DenseCountSparseOutput").attr("binary_output", false).attr("maxlength", 9i64);
        let out = node.run([values, Tensor::vector(Vec::<i64>::new())]).unwrap();
        assert_eq!(out[0].flat::<i64>().unwrap(), [0, 1, 0, 5, 1, 0]);
        assert_eq!(out[1].flat::<i64>().unwrap(), [1, 2, 2]);
        assert_eq!(out[2].flat::<i64>().unwrap(), [2, 9]);
    }
}
