//! Sets: the rows of dense or sparse tensors taken as sets of values, their unions, intersections, differences, sizes.

use crate::support::sparse::{Sparse, joined, length, sparse_outputs};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::{DType, Element, PartialShape, Result, Shape, Tensor, bail, ensure, kernels};
use std::ops::Range;

pub(crate) const OPS: &[&Op] = &[
    &DENSE_TO_DENSE_SET_OPERATION,
    &DENSE_TO_SPARSE_SET_OPERATION,
    &SPARSE_TO_SPARSE_SET_OPERATION,
    &SET_SIZE,
];

static DENSE_TO_DENSE_SET_OPERATION: Op = Op {
    name: "DenseToDenseSetOperation",
    gradient: Gradient::Stop,
    inputs: &["set1: T", "set2: T"],
    outputs: &["result_indices: int64", "result_values: T", "result_shape: int64"],
    attrs: &[
        "set_operation: string",
        "validate_indices: bool = true",
        "T: {int8, int16, int32, int64, uint8, uint16, string}",
    ],
    shape: dense_dense_shape,
    kernels: kernels![any operation_kernel],
    ..Op::PURE
};

static DENSE_TO_SPARSE_SET_OPERATION: Op = Op {
    name: "DenseToSparseSetOperation",
    inputs: &["set1: T", "set2_indices: int64", "set2_values: T", "set2_shape: int64"],
    shape: dense_sparse_shape,
    ..DENSE_TO_DENSE_SET_OPERATION
};

static SPARSE_TO_SPARSE_SET_OPERATION: Op = Op {
    name: "SparseToSparseSetOperation",
    inputs: &[
        "set1_indices: int64",
        "set1_values: T",
        "set1_shape: int64",
        "set2_indices: int64",
        "set2_values: T",
        "set2_shape: int64",
    ],
    shape: sparse_sparse_shape,
    ..DENSE_TO_DENSE_SET_OPERATION
};

static SET_SIZE: Op = Op {
    name: "SetSize",
    gradient: Gradient::Stop,
    inputs: &["set_indices: int64", "set_values: T", "set_shape: int64"],
    outputs: &["size: int32"],
    attrs: &["validate_indices: bool = true", "T: {int8, int16, int32, int64, uint8, uint16, string}"],
    shape: shapes::unknown,
    kernels: kernels![any size_kernel],
    ..Op::PURE
};

fn dense_dense_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (a, b) = (s.rank_at_least(0, 2)?, s.rank_at_least(1, 2)?);
    if let (Some(a), Some(b)) = (a.dims(), b.dims()) {
        s.rank(1, a.len())?;
        let group = |dims: &[i64]| PartialShape::new(dims[..dims.len() - 1].iter().copied());
        s.merge(&group(a)?, &group(b)?)?;
    }
    let rank = a.rank().or(b.rank()).map_or(UNKNOWN_DIM, |rank| rank as i64);
    sparse_outputs(s, 0, rank)
}

/// Checks the shapes of a sparse tensor's parts against each other and returns its rank.
fn sparse_rank(s: &ShapeCx<'_>, first: usize) -> Result<i64> {
    let (indices, values) = (s.rank(first, 2)?, s.rank(first + 1, 1)?);
    s.rank(first + 2, 1)?;
    let indices = indices.dims().unwrap_or(&[UNKNOWN_DIM; 2]);
    s.merge_dims(indices[0], values.dims().map_or(UNKNOWN_DIM, |dims| dims[0]))?;
    s.merge_dims(indices[1], length(s, first + 2))
}

fn dense_sparse_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let rank = sparse_rank(s, 1)?;
    let dense = s.rank_at_least(0, 2)?.rank().map_or(UNKNOWN_DIM, |rank| rank as i64);
    let rank = s.merge_dims(rank, dense)?;
    sparse_outputs(s, 0, rank)
}

fn sparse_sparse_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (a, b) = (sparse_rank(s, 0)?, sparse_rank(s, 3)?);
    for (input, rank) in [(0, a), (1, b)] {
        ensure!(!(0..2).contains(&rank), InvalidArgument, "Input {input}, expected rank >= 2, got {rank}.");
    }
    let rank = s.merge_dims(a, b)?;
    sparse_outputs(s, 0, rank)
}

#[derive(Clone, Copy)]
enum Operation {
    AMinusB,
    BMinusA,
    Intersection,
    Union,
}

fn operation_kernel(init: &Init<'_>) -> Result<Kernel> {
    let operation = match init.attr::<String>("set_operation")?.to_ascii_lowercase().as_str() {
        "a-b" => Operation::AMinusB,
        "b-a" => Operation::BMinusA,
        "intersection" => Operation::Intersection,
        "union" => Operation::Union,
        other => bail!(InvalidArgument, "Invalid set_operation {other}."),
    };
    let validate: bool = init.attr("validate_indices")?;
    let (a, b): (Kind, Kind) = match init.op {
        "DenseToDenseSetOperation" => (Kind::Dense(0), Kind::Dense(1)),
        "DenseToSparseSetOperation" => (Kind::Dense(0), Kind::Sparse(1)),
        _ => (Kind::Sparse(0), Kind::Sparse(3)),
    };
    Kernel::sync(move |cx| {
        let (a, b) = (a.read(cx, validate)?, b.read(cx, validate)?);
        for shape in [a.shape(), b.shape()] {
            ensure!(
                shape.len() >= 2,
                InvalidArgument,
                "Shape [{}] has rank {} < 2",
                joined(shape, ","),
                shape.len()
            );
        }
        ensure!(
            a.outer() == b.outer(),
            InvalidArgument,
            "Mismatched shapes [{}] vs [{}]",
            joined(a.outer(), ","),
            joined(b.outer(), ",")
        );
        match a.values().dtype() {
            DType::String => combined::<Str>(cx, operation, &a, &b, a.values().flat()?, b.values().flat()?),
            _ => combined::<i64>(cx, operation, &a, &b, &widened(a.values())?, &widened(b.values())?),
        }
    })
}

/// An operand by its first input.
#[derive(Clone, Copy)]
enum Kind {
    Dense(usize),
    Sparse(usize),
}

impl Kind {
    fn read<'a>(self, cx: &'a KernelCx<'_>, validate: bool) -> Result<Operand<'a>> {
        Ok(match self {
            Kind::Dense(input) => Operand::Dense(cx.input(input)?),
            Kind::Sparse(first) => Operand::Sparse(sparse_sets(cx, first, validate)?),
        })
    }
}

fn sparse_sets<'a>(cx: &'a KernelCx<'_>, first: usize, validate: bool) -> Result<Sparse<'a>> {
    ensure!(cx.input(first + 2)?.rank() == 1, InvalidArgument, "Shape must be a 1D tensor.");
    let sparse = Sparse::input(cx, first)?;
    sparse.dense_shape()?;
    ensure!(sparse.rank() >= 2, InvalidArgument, "Invalid rank {}.", sparse.rank());
    if validate {
        sparse.check_order()?;
    } else {
        check_groups(&sparse)?;
        sparse.check_bounds()?;
    }
    Ok(sparse)
}

/// Refuses coordinates beyond the dense shape as stock does where it was not asked to validate them: group by group.
fn check_groups(sparse: &Sparse<'_>) -> Result<()> {
    for group in sparse.groups(sparse.rank() - 1) {
        for (axis, dim) in sparse.shape.iter().enumerate() {
            for (i, entry) in group.clone().enumerate() {
                let at = sparse.row(entry)[axis];
                ensure!(at < *dim, Internal, "indices[{i}, {axis}] expected < {dim}, got {at}.");
            }
        }
    }
    Ok(())
}

enum Operand<'a> {
    Dense(&'a Tensor),
    Sparse(Sparse<'a>),
}

impl Operand<'_> {
    fn shape(&self) -> &[i64] {
        match self {
            Operand::Dense(tensor) => tensor.shape().dims(),
            Operand::Sparse(sparse) => sparse.shape,
        }
    }

    /// The dimensions that number the sets.
    fn outer(&self) -> &[i64] {
        &self.shape()[..self.shape().len() - 1]
    }

    fn values(&self) -> &Tensor {
        match self {
            Operand::Dense(tensor) => tensor,
            Operand::Sparse(sparse) => sparse.values,
        }
    }

    /// The sets that may have elements: the number of each among all, and the range of its values.
    fn sets(&self) -> Vec<(i64, Range<usize>)> {
        match self {
            Operand::Dense(tensor) => {
                let width = tensor.shape().dims().last().map_or(0, |dim| *dim as usize);
                let count = self.outer().iter().product::<i64>();
                if width == 0 {
                    return Vec::new();
                }
                (0..count).map(|set| (set, set as usize * width..(set as usize + 1) * width)).collect()
            }
            Operand::Sparse(sparse) => {
                let outer = self.outer();
                let number = |range: &Range<usize>| {
                    let row = sparse.row(range.start).iter().zip(outer);
                    row.fold(0, |number, (at, dim)| number * dim + at)
                };
                sparse.groups(outer.len()).map(|range| (number(&range), range)).collect()
            }
        }
    }
}

/// Elements of any integer type, widened.
fn widened(tensor: &Tensor) -> Result<Vec<i64>> {
    Ok(crate::support::index::ints(tensor)?.into_vec())
}

/// Elements as a tensor of one of the integer types.
fn narrowed(cx: &KernelCx<'_>, dtype: DType, values: &[i64]) -> Result<Tensor> {
    fn fill<T: crate::numeric::Int>(out: &mut Tensor, values: &[i64]) -> Result<()> {
        for (out, value) in out.flat_mut::<T>()?.iter_mut().zip(values) {
            *out = T::from_i64(*value);
        }
        Ok(())
    }
    let mut out = cx.alloc_dtype(dtype, Shape::vector(values.len()))?;
    match dtype {
        DType::Int8 => fill::<i8>(&mut out, values)?,
        DType::Int16 => fill::<i16>(&mut out, values)?,
        DType::Int32 => fill::<i32>(&mut out, values)?,
        DType::Int64 => fill::<i64>(&mut out, values)?,
        DType::Uint8 => fill::<u8>(&mut out, values)?,
        _ => fill::<u16>(&mut out, values)?,
    }
    Ok(out)
}

/// The elements of a set, sorted, each once.
fn sorted<T: Ord + Clone>(values: &[T]) -> Vec<T> {
    let mut set = values.to_vec();
    set.sort_unstable();
    set.dedup();
    set
}

fn combined<T: Element + Ord>(
    cx: &KernelCx<'_>,
    operation: Operation,
    a: &Operand<'_>,
    b: &Operand<'_>,
    a_values: &[T],
    b_values: &[T],
) -> Result<Outputs> {
    let outer = a.outer();
    let (mut left, mut right) = (a.sets().into_iter().peekable(), b.sets().into_iter().peekable());
    let (mut indices, mut results): (Vec<i64>, Vec<T>) = (Vec::new(), Vec::new());
    let mut widest = 0;
    loop {
        let next = [left.peek(), right.peek()].into_iter().flatten().map(|(number, _)| *number).min();
        let Some(number) = next else { break };
        let of = |sets: &mut std::iter::Peekable<std::vec::IntoIter<(i64, Range<usize>)>>, values: &[T]| {
            sets.next_if(|(set, _)| *set == number).map_or(Vec::new(), |(_, range)| sorted(&values[range]))
        };
        let (x, y) = (of(&mut left, a_values), of(&mut right, b_values));
        let in_set = |set: &[T], value: &T| set.binary_search(value).is_ok();
        let result: Vec<T> = match operation {
            Operation::AMinusB => x.into_iter().filter(|value| !in_set(&y, value)).collect(),
            Operation::BMinusA => y.into_iter().filter(|value| !in_set(&x, value)).collect(),
            Operation::Intersection => x.into_iter().filter(|value| in_set(&y, value)).collect(),
            Operation::Union => sorted(&[x, y].concat()),
        };
        widest = widest.max(result.len());
        for (at, value) in result.into_iter().enumerate() {
            let begin = indices.len();
            indices.resize(begin + outer.len() + 1, at as i64);
            let mut rest = number;
            for (place, dim) in indices[begin..begin + outer.len()].iter_mut().zip(outer).rev() {
                (*place, rest) = (rest % dim, rest / dim);
            }
            results.push(value);
        }
    }
    let indices = Tensor::new(Shape::matrix(results.len(), outer.len() + 1), indices)?;
    let dtype = a.values().dtype();
    let values = match dtype {
        DType::String => Tensor::vector(results),
        // The elements were widened.
        _ => narrowed(cx, dtype, Tensor::vector(results).flat()?)?,
    };
    let shape = outer.iter().copied().chain([widest as i64]).collect();
    Ok([indices, values, Tensor::vector(shape)].into())
}

fn size_kernel(init: &Init<'_>) -> Result<Kernel> {
    let validate: bool = init.attr("validate_indices")?;
    Kernel::sync(move |cx| {
        let sparse = sparse_sets(cx, 0, validate)?;
        let sets = Operand::Sparse(sparse);
        let mut out = cx.zeros(DType::Int32, Shape::new(sets.outer().iter().copied())?)?;
        let sizes = out.flat_mut::<i32>()?;
        let texts = sparse.values.dtype() == DType::String;
        let numbers = if texts { Vec::new() } else { widened(sparse.values)? };
        for (number, range) in sets.sets() {
            sizes[number as usize] = if texts {
                sorted(&sparse.values.flat::<Str>()?[range]).len()
            } else {
                sorted(&numbers[range]).len()
            } as i32;
        }
        Ok(out.into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Shape, Tensor};

    #[test]
    fn rows_are_sets() {
        infer("DenseToDenseSetOperation", "[2,3];[2,5]", "[?,2];[?];[2]");
        infer_err("DenseToDenseSetOperation", "[2,3];[3,3]", Code::InvalidArgument);
        let a = Tensor::new(Shape::matrix(2, 2), vec![3i32, 1, 2, 2]).unwrap();
        let b = Tensor::new(Shape::matrix(2, 1), vec![1i32, 5]).unwrap();
        let out = Node::new("DenseToDenseSetOperation").attr("set_operation", "union").run([a, b]).unwrap();
        assert_eq!(out[0].flat::<i64>().unwrap(), [0, 0, 0, 1, 1, 0, 1, 1]);
        assert_eq!(out[1].flat::<i32>().unwrap(), [1, 3, 2, 5]);
        assert_eq!(out[2].flat::<i64>().unwrap(), [2, 2]);
    }
}
