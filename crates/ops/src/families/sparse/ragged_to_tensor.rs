//! Ragged tensors made dense: rows are cut or filled up with a default value.

use crate::builders as ops;
use crate::support::gradient::{element, part, shape_output};
use crate::support::rows::shape_from_tensor;
use crate::support::sparse::wide;
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{GradCx, Gradient, IndexedSlices, InputGrads, Op, ShapeCx};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, Unit, bail, ensure, kernels, status};

pub(crate) const OPS: &[&Op] = &[&RAGGED_TENSOR_TO_TENSOR];

static RAGGED_TENSOR_TO_TENSOR: Op = Op {
    name: "RaggedTensorToTensor",
    gradient: Gradient::Fn(to_tensor_grad),
    inputs: &[
        "shape: Tshape",
        "values: T",
        "default_value: T",
        "row_partition_tensors: num_row_partition_tensors * Tindex",
    ],
    outputs: &["result: T"],
    attrs: &[
        "T: type",
        "Tindex: {int64, int32}",
        "Tshape: {int64, int32}",
        "num_row_partition_tensors: int >= 1",
        "row_partition_types: list(string)",
    ],
    shape: to_tensor_shape,
    kernels: kernels![any to_tensor_kernel],
    ..Op::PURE
};

/// The input that is the first row partition.
const FIRST: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Partition {
    FirstDimSize,
    ValueRowids,
    RowSplits,
}

impl Partition {
    fn parse(name: &str) -> Result<Partition> {
        Ok(match name {
            "FIRST_DIM_SIZE" => Partition::FirstDimSize,
            "VALUE_ROWIDS" => Partition::ValueRowids,
            "ROW_SPLITS" => Partition::RowSplits,
            "ROW_LENGTHS" | "ROW_LIMITS" | "ROW_STARTS" => {
                bail!(InvalidArgument, "Unsupported partition type: {name}")
            }
            _ => bail!(InvalidArgument, "Unknown string for partition info type: {name}"),
        })
    }

    /// The partitions of a node, which must follow each other in a way that makes sense.
    fn parse_all(names: &[String]) -> Result<Vec<Partition>> {
        let partitions = names.iter().map(|name| Partition::parse(name)).collect::<Result<Vec<_>>>()?;
        ensure!(!partitions.is_empty(), InvalidArgument, "Partition info types should not be empty");
        ensure!(
            !partitions[1..].contains(&Partition::FirstDimSize),
            InvalidArgument,
            "FIRST_DIM_SIZE must be first"
        );
        ensure!(
            partitions[0] != Partition::FirstDimSize || partitions.get(1) == Some(&Partition::ValueRowids),
            InvalidArgument,
            "FIRST_DIM_SIZE must be followed by VALUE_ROWIDS"
        );
        ensure!(partitions[0] != Partition::ValueRowids, InvalidArgument, "VALUE_ROWIDS cannot be first");
        Ok(partitions)
    }
}

/// The number of ragged dimensions.
fn ragged_rank(partitions: &[Partition]) -> usize {
    partitions.iter().filter(|partition| **partition != Partition::FirstDimSize).count()
}

fn to_tensor_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let partitions = Partition::parse_all(&s.attr::<Vec<String>>("row_partition_types")?)?;
    let count: i64 = s.attr("num_row_partition_tensors")?;
    ensure!(
        count == partitions.len() as i64,
        InvalidArgument,
        "Number of row partition tensors ({count}) does not equal the number of row partition types({}).",
        partitions.len()
    );
    for (i, partition) in partitions.iter().enumerate() {
        let Some(rank) = s.input(FIRST + i).rank() else { continue };
        if *partition == Partition::FirstDimSize {
            ensure!(rank == 0, InvalidArgument, "FIRST_DIM_SIZE must be a scalar.");
        } else {
            ensure!(rank == 1, InvalidArgument, "Row partition must be a vector.");
        }
    }
    check_default(&s.input(2), &s.input(1))?;
    // A scalar shape stands for an unknown one.
    let shape = if s.input(0).rank() == Some(0) { PartialShape::unknown() } else { s.constant_shape(0)? };
    let shape = combined_shape(ragged_rank(&partitions), &shape, &s.input(1))?;
    s.set(0, shape);
    Ok(())
}

fn check_default(default: &PartialShape, values: &PartialShape) -> Result<()> {
    let (Some(d), Some(v)) = (default.dims(), values.dims()) else { return Ok(()) };
    ensure!(
        d.len() < v.len(),
        InvalidArgument,
        "default_value.shape={default} and rt_input.flat_values.shape={values} are incompatible: default_value.rank = {}  must be less than rt_input.flat_values.rank = {}",
        d.len(),
        v.len()
    );
    for (i, (x, y)) in d.iter().zip(&v[1..]).enumerate() {
        let place = i as i64 - d.len() as i64;
        ensure!(
            *x < 0 || *y < 0 || *x == 1 || x == y,
            InvalidArgument,
            "default_value.shape={default} and rt_input.flat_values.shape={values} are incompatible: default_value.shape[{place}] = {x} but rt_input.flat_values.shape[{place}] = {y}"
        );
    }
    Ok(())
}

/// The shape of the result: as asked for, and with the values' inner dimensions.
fn combined_shape(ragged: usize, shape: &PartialShape, values: &PartialShape) -> Result<PartialShape> {
    let Some(inner) = values.dims() else { return Ok(shape.clone()) };
    let rank = ragged + inner.len();
    let mut dims = shape.dims().map_or_else(|| vec![-1; rank], <[i64]>::to_vec);
    ensure!(
        dims.len() == rank,
        InvalidArgument,
        "rt_input.shape and shape={shape} are incompatible: rt_input.rank = {rank} but shape.rank = {}",
        dims.len()
    );
    for (i, value) in inner.iter().enumerate().skip(1).filter(|(_, value)| **value >= 0) {
        let dim = &mut dims[ragged + i];
        ensure!(
            *dim < 0 || dim == value,
            InvalidArgument,
            "rt_input.shape and shape={shape} are incompatible: rt_input.shape[{}] = {value} but shape[{}] = {dim}",
            ragged + i,
            ragged + i
        );
        *dim = *value;
    }
    PartialShape::new(dims)
}

fn to_tensor_kernel(init: &Init<'_>) -> Result<Kernel> {
    let partitions = Partition::parse_all(&init.attr::<Vec<String>>("row_partition_types")?)?;
    let count: i64 = init.attr("num_row_partition_tensors")?;
    ensure!(
        count == partitions.len() as i64,
        InvalidArgument,
        "Number of row partition tensors ({count}) does not equal the number of row partition types({}).",
        partitions.len()
    );
    Kernel::sync(move |cx| to_tensor(cx, &partitions))
}

fn to_tensor(cx: &KernelCx<'_>, partitions: &[Partition]) -> Result<Outputs> {
    let first = cx.input(FIRST)?;
    ensure!(
        first.elements() > 0,
        InvalidArgument,
        "Invalid first partition input. Tensor requires at least one element."
    );
    let (values, default) = (cx.input(1)?, cx.input(2)?);
    let known = |shape: &Shape| PartialShape::new(shape.iter().copied());
    let skipped = (partitions[0] == Partition::FirstDimSize) as usize;
    let rows = if skipped == 1 {
        ensure!(first.elements() == 1, InvalidArgument, "FIRST_DIM_SIZE must be a scalar.");
        wide(first)?[0].max(0)
    } else {
        first.elements() as i64 - 1
    };
    check_default(&known(default.shape())?, &known(values.shape())?)?;
    let partitions = &partitions[skipped..];
    let ragged = partitions.len();
    let asked = shape_from_tensor(cx.input(0)?)?;
    let shape = combined_shape(ragged, &asked, &known(values.shape())?)?;
    let mut dims = shape.dims().unwrap_or_default().to_vec();
    if dims[0] < 0 {
        dims[0] = rows;
    }
    let tensors = (0..ragged).map(|i| wide(cx.input(FIRST + skipped + i)?)).collect::<Result<Vec<_>>>()?;
    for (i, (partition, tensor)) in partitions.iter().zip(&tensors).enumerate() {
        if dims[i + 1] < 0 {
            dims[i + 1] = widest_row(*partition, tensor);
        }
    }
    let shape = Shape::new(dims.iter().copied())?;
    let mut out = cx.alloc_dtype(values.dtype(), shape.clone())?;
    if shape.elements() == 0 {
        return Ok(out.into());
    }
    let mut stride = dims[1..=ragged].iter().product::<i64>();
    let mut places = Vec::new();
    for (i, (partition, tensor)) in partitions.iter().zip(&tensors).enumerate() {
        let width = dims[i + 1];
        stride /= width;
        let parents = match i {
            0 => Parents::First { rows, kept: dims[0], stride: stride * width },
            _ => Parents::Listed(&places),
        };
        let level = Level { parents, stride, width };
        places = match partition {
            Partition::ValueRowids => level.by_rowids(tensor)?,
            _ => level.by_splits(cx, tensor)?,
        };
    }
    ensure!(
        places.len() <= values.shape().dim(0),
        InvalidArgument,
        "Row partition size ({}) exceeds the number of values ({})",
        places.len(),
        values.shape().dim(0)
    );
    let inner = Shape::new(shape[ragged + 1..].iter().copied())?;
    by_unit!(values.dtype(), U => {
        let default = broadcast::<U>(default, &inner)?;
        place_values::<U>(values.units()?, &default, inner.elements(), &places, out.units_mut()?);
    });
    Ok(out.into())
}

fn widest_row(partition: Partition, tensor: &[i64]) -> i64 {
    match partition {
        Partition::ValueRowids => {
            tensor.chunk_by(|a, b| a == b).map(|run| run.len() as i64).max().unwrap_or(0)
        }
        _ => tensor.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(0).max(0),
    }
}

/// The places that rows go to; −1 if none.
enum Parents<'a> {
    /// Rows of the result itself, of which the first ones are kept.
    First {
        rows: i64,
        kept: i64,
        stride: i64,
    },
    Listed(&'a [i64]),
}

impl Parents<'_> {
    fn len(&self) -> usize {
        match self {
            Parents::First { rows, .. } => *rows as usize,
            Parents::Listed(places) => places.len(),
        }
    }

    fn get(&self, row: usize) -> Option<i64> {
        match self {
            Parents::First { rows, kept, stride } => {
                let row = row as i64;
                (row < *rows).then(|| if row < *kept { row * stride } else { -1 })
            }
            Parents::Listed(places) => places.get(row).copied(),
        }
    }
}

/// One ragged dimension: where the rows above it go, how far apart its elements are and how many fit.
struct Level<'a> {
    parents: Parents<'a>,
    stride: i64,
    width: i64,
}

impl Level<'_> {
    fn by_splits(&self, cx: &KernelCx<'_>, splits: &[i64]) -> Result<Vec<i64>> {
        let rows = splits.len().saturating_sub(1);
        ensure!(
            rows <= self.parents.len(),
            InvalidArgument,
            "Row partition size is greater than output size: {rows} > {}",
            self.parents.len()
        );
        let total = splits.last().copied().unwrap_or(0);
        ensure!(
            splits.is_sorted() && splits.first().is_none_or(|first| *first == 0),
            InvalidArgument,
            "Invalid row split size."
        );
        cx.device().check_allocation(DType::Int64, &Shape::new([total])?)?;
        let mut places = Vec::with_capacity(total as usize);
        for (row, pair) in splits.windows(2).enumerate() {
            let parent = self.parents.get(row).unwrap_or(-1);
            let length = pair[1] - pair[0];
            let kept = if parent < 0 { 0 } else { length.min(self.width) };
            places.extend((0..kept).map(|at| parent + at * self.stride));
            places.extend((kept..length).map(|_| -1));
        }
        Ok(places)
    }

    fn by_rowids(&self, rowids: &[i64]) -> Result<Vec<i64>> {
        let mut places = Vec::with_capacity(rowids.len());
        let (mut last, mut column) = (None, 0);
        for rowid in rowids {
            if let Some(last) = last {
                ensure!(
                    *rowid >= last,
                    InvalidArgument,
                    "value_rowids must be monotonically increasing, but got {rowid} after {last}"
                );
            }
            column = if last == Some(*rowid) { column + 1 } else { 0 };
            last = Some(*rowid);
            let parent = usize::try_from(*rowid).ok().and_then(|row| self.parents.get(row));
            let parent = parent.ok_or_else(|| {
                status!(
                    InvalidArgument,
                    "Got current_value_rowid={rowid} which is not less than {}",
                    self.parents.len()
                )
            })?;
            let inside = parent >= 0 && column < self.width;
            places.push(if inside { parent + column * self.stride } else { -1 });
        }
        Ok(places)
    }
}

/// The default value repeated to the shape of one element of the result; a single element stays one.
fn broadcast<U: Unit>(default: &Tensor, inner: &Shape) -> Result<Vec<U>> {
    let units = default.units::<U>()?;
    if units.len() == 1 || units.len() == inner.elements() {
        return Ok(units.to_vec());
    }
    let dims = default.shape().dims();
    let tail = inner.rank().checked_sub(dims.len()).map(|skipped| &inner[skipped..]);
    let fits = tail.is_some_and(|tail| dims.iter().zip(tail).all(|(x, y)| *x == 1 || x == y));
    ensure!(fits, InvalidArgument, "Error broadcasting default_value");
    let tail = tail.unwrap_or_default();
    let mut out = Vec::with_capacity(inner.elements());
    for element in 0..inner.elements() as i64 {
        let (mut rest, mut place, mut stride) = (element, 0, 1);
        for (dim, whole) in dims.iter().zip(tail).rev() {
            place += if *dim == 1 { 0 } else { rest % whole * stride };
            (rest, stride) = (rest / whole, stride * dim);
        }
        out.push(units[place as usize].clone());
    }
    Ok(out)
}

/// Writes values of `width` units to their places, and the default where no value goes.
fn place_values<U: Unit>(values: &[U], default: &[U], width: usize, places: &[i64], out: &mut [U]) {
    let fill = |out: &mut [U]| {
        if let [value] = default {
            out.fill(value.clone());
        } else {
            for out in out.chunks_exact_mut(width) {
                out.clone_from_slice(default);
            }
        }
    };
    let mut filled = 0;
    for (value, place) in places.iter().enumerate().filter(|(_, place)| **place >= 0) {
        let place = *place as usize * width;
        if place > filled {
            fill(&mut out[filled..place]);
        }
        out[place..place + width].clone_from_slice(&values[value * width..(value + 1) * width]);
        filled = place + width;
    }
    fill(&mut out[filled..]);
}

/// Elements of the first dimension at which a vector of truth values is true.
fn masked(s: &Scope, values: &Output, mask: &Output) -> Result<Output> {
    let places = ops::where_(s, mask)?;
    let places = ops::Squeeze::new().squeeze_dims([1i64]).build(s, places)?;
    ops::gather_v2(s, values, places, 0)
}

/// Elements that came from values go back to them, all others to the default.
fn to_tensor_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let (values, default) = (g.input(1), g.input(2));
    let types: Vec<String> = g.attr("row_partition_types")?;
    let ragged = types.iter().filter(|name| *name != "FIRST_DIM_SIZE").count() as i32;
    let (dy_shape, values_shape) = (shape_output(s, &dy)?, shape_output(s, values)?);
    let outer = part(s, &dy_shape, 0, Some(1 + ragged))?;
    let numbers = ops::range(s, 0, element(s, &values_shape, 0)?, 1)?;
    let node = s.op("RaggedTensorToTensor").input(outer).input(numbers).input(-1i32);
    let node = node.inputs(g.inputs()[FIRST..].iter());
    let places = node.attr("row_partition_types", types).build()?.output(0)?;
    let places = ops::reshape(s, places, [-1])?;
    let mask = ops::not_equal(s, &places, -1)?;
    let inner = part(s, &dy_shape, 1 + ragged, None)?;
    let any = s.constant(vec![-1i32])?;
    let flat = ops::reshape(s, &dy, ops::concat_v2(s, [&any, &inner], 0))?;
    let slices = IndexedSlices {
        values: masked(s, &flat, &mask)?,
        indices: masked(s, &places, &mask)?,
        dense_shape: Some(values_shape),
    };
    let rest = masked(s, &flat, &ops::logical_not(s, &mask)?)?;
    let default_shape = shape_output(s, default)?;
    let ones = ops::cast(s, ops::equal(s, &default_shape, 1), DType::Int32)?;
    // Leading dimensions of one element were repeated like those that the default does not have.
    let leading = ops::sum(s, ops::cumprod(s, ones, 0), [0])?;
    let own = ops::sub(s, ops::size(s, &default_shape), leading)?;
    let repeated = ops::range(s, 0, ops::sub(s, ops::rank(s, &rest), own), 1)?;
    let sum = ops::reshape(s, ops::sum(s, rest, repeated), default_shape)?;
    let mut grads = InputGrads::none(g.num_inputs());
    grads.0[1] = Some(slices.into());
    grads.0[2] = Some(sum.into());
    Ok(grads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Node;

    #[test]
    fn rows_are_filled_up_and_cut() {
        let node = || {
            let node = Node::new("RaggedTensorToTensor").attr("num_row_partition_tensors", 1i64);
            node.attr("row_partition_types", vec!["ROW_SPLITS".to_owned()])
        };
        node().constant(0, Tensor::vector(vec![-1i64, 3])).infer("[2];[6];[];[4]", "[?,3]");
        let inputs = |shape: Vec<i64>| {
            let values = Tensor::vector(vec![1.0f32, 2.0, 3.0]);
            [Tensor::vector(shape), values, Tensor::scalar(9.0f32), Tensor::vector(vec![0i64, 2, 2, 3])]
        };
        let out = node().run(inputs(vec![-1, -1])).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [1.0, 2.0, 9.0, 9.0, 3.0, 9.0]);
        let out = node().run(inputs(vec![4, 1])).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [1.0, 9.0, 3.0, 9.0]);
    }
}
