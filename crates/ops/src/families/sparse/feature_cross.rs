//! Crosses of features: every combination of one value from each column, row by row, as texts or as hashes.

use crate::numeric::hash::{fingerprint_cat, fingerprint64, sip_hash};
use crate::support::index::int_tensor;
use crate::support::sparse::wide;
use bytes::{BufMut, BytesMut};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels, status};
use std::borrow::Cow;

pub(crate) const OPS: &[&Op] = &[&SPARSE_CROSS, &SPARSE_CROSS_V2, &SPARSE_CROSS_HASHED, &RAGGED_CROSS];

static SPARSE_CROSS: Op = Op {
    name: "SparseCross",
    inputs: &["indices: N * int64", "values: sparse_types", "shapes: N * int64", "dense_inputs: dense_types"],
    outputs: &["output_indices: int64", "output_values: out_type", "output_shape: int64"],
    attrs: &[
        "N: int >= 0",
        "hashed_output: bool",
        "num_buckets: int >= 0",
        "hash_key: int",
        "sparse_types: list({int64, string}) >= 0",
        "dense_types: list({int64, string}) >= 0",
        "out_type: {int64, string}",
        "internal_type: {int64, string}",
    ],
    shape: sparse_shape,
    kernels: kernels![any cross_kernel],
    ..Op::PURE
};

static SPARSE_CROSS_V2: Op = Op {
    name: "SparseCrossV2",
    inputs: &[
        "indices: N * int64",
        "values: sparse_types",
        "shapes: N * int64",
        "dense_inputs: dense_types",
        "sep: string",
    ],
    outputs: &["output_indices: int64", "output_values: string", "output_shape: int64"],
    attrs: &[
        "N: int >= 0",
        "sparse_types: list({int64, string}) >= 0",
        "dense_types: list({int64, string}) >= 0",
    ],
    shape: sparse_shape,
    kernels: kernels![any cross_v2_kernel],
    ..Op::PURE
};

static SPARSE_CROSS_HASHED: Op = Op {
    name: "SparseCrossHashed",
    inputs: &[
        "indices: N * int64",
        "values: sparse_types",
        "shapes: N * int64",
        "dense_inputs: dense_types",
        "num_buckets: int64",
        "strong_hash: bool",
        "salt: int64",
    ],
    outputs: &["output_indices: int64", "output_values: int64", "output_shape: int64"],
    attrs: &[
        "N: int >= 0",
        "sparse_types: list({int64, string}) >= 0",
        "dense_types: list({int64, string}) >= 0",
    ],
    shape: sparse_shape,
    kernels: kernels![any cross_hashed_kernel],
    ..Op::PURE
};

static RAGGED_CROSS: Op = Op {
    name: "RaggedCross",
    inputs: &[
        "ragged_values: ragged_values_types",
        "ragged_row_splits: ragged_splits_types",
        "sparse_indices: Nsparse * int64",
        "sparse_values: sparse_values_types",
        "sparse_shape: Nsparse * int64",
        "dense_inputs: dense_types",
    ],
    outputs: &["output_values: out_values_type", "output_row_splits: out_row_splits_type"],
    attrs: &[
        "Nsparse: int >= 0",
        "input_order: string",
        "hashed_output: bool",
        "num_buckets: int >= 0",
        "hash_key: int",
        "ragged_values_types: list({int64, string}) >= 0",
        "ragged_splits_types: list({int32, int64}) >= 0",
        "sparse_values_types: list({int64, string}) >= 0",
        "dense_types: list({int64, string}) >= 0",
        "out_values_type: {int64, string}",
        "out_row_splits_type: {int32, int64}",
    ],
    shape: ragged_shape,
    kernels: kernels![any ragged_cross_kernel],
    ..Op::PURE
};

fn sparse_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.output(0, [UNKNOWN_DIM, 2])?;
    s.output(1, [UNKNOWN_DIM])?;
    s.output(2, [2])
}

fn ragged_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let ragged = s.attr::<Vec<DType>>("ragged_values_types")?.len();
    let dense = s.attr::<Vec<DType>>("dense_types")?.len();
    let sparse: i64 = s.attr("Nsparse")?;
    ensure!(
        s.attr::<Vec<DType>>("ragged_splits_types")?.len() == ragged,
        InvalidArgument,
        "ragged values and splits must have the same length."
    );
    ensure!(
        s.attr::<Vec<DType>>("sparse_values_types")?.len() as i64 == sparse,
        InvalidArgument,
        "sparse indices and values must have the same length"
    );
    let mut splits = PartialShape::of_rank(1)?;
    let differ = |_| status!(InvalidArgument, "inputs must all have the same batch dimension size.");
    for input in ragged..2 * ragged {
        splits = s.merge(&splits, &s.input(input)).map_err(differ)?;
    }
    let first = 2 * ragged + 3 * sparse as usize;
    for input in first..first + dense {
        let shape = s.input(input);
        let Some(dims) = shape.dims() else { continue };
        ensure!(dims.len() == 2, InvalidArgument, "tf.ragged.cross only supports inputs with rank=2");
        if dims[0] >= 0 {
            splits = s.merge(&splits, &PartialShape::new([dims[0] + 1])?).map_err(differ)?;
        }
    }
    s.output(0, [UNKNOWN_DIM])?;
    s.set(1, splits);
    Ok(())
}

/// The values of a column: row `r` has those from `splits[r]` to `splits[r + 1]`.
struct Column<'a> {
    values: &'a Tensor,
    splits: Splits<'a>,
    dense: bool,
}

enum Splits<'a> {
    Ragged(Cow<'a, [i64]>),
    /// Every row has this many values.
    Even(usize),
}

impl<'a> Column<'a> {
    fn dense(values: &'a Tensor) -> Column<'a> {
        Column { values, splits: Splits::Even(values.shape().dim(1)), dense: true }
    }

    fn begin(&self, row: usize) -> usize {
        match &self.splits {
            Splits::Ragged(splits) => splits[row] as usize,
            Splits::Even(width) => row * width,
        }
    }

    fn count(&self, row: usize) -> usize {
        self.begin(row + 1) - self.begin(row)
    }

    /// Each value as a text.
    fn texts(&self) -> Result<Cow<'a, [Str]>> {
        Ok(match self.values.dtype() {
            DType::String => Cow::Borrowed(self.values.flat::<Str>()?),
            _ => self.values.flat::<i64>()?.iter().map(|value| Str::from(value.to_string())).collect(),
        })
    }

    /// Each value as a hash; integers are their own.
    fn fingerprints(&self) -> Result<Vec<u64>> {
        Ok(match self.values.dtype() {
            DType::String => self.values.flat::<Str>()?.iter().map(|text| fingerprint64(text)).collect(),
            _ => self.values.flat::<i64>()?.iter().map(|value| *value as u64).collect(),
        })
    }

    /// Each value as a hash of `SparseCrossHashed`. Of integers it sees the lower half only, because stock measures
    /// them by the size of a type's name; without a key those of dense columns are their own hashes.
    fn keyed_hashes(&self, key: Option<[u64; 2]>) -> Result<Vec<u64>> {
        let hash = |bytes: &[u8]| key.map_or_else(|| fingerprint64(bytes), |key| sip_hash(key, bytes));
        Ok(match self.values.dtype() {
            DType::String => self.values.flat::<Str>()?.iter().map(|text| hash(text)).collect(),
            _ if self.dense && key.is_none() => self.fingerprints()?,
            _ => self.values.flat::<i64>()?.iter().map(|value| hash(&value.to_le_bytes()[..4])).collect(),
        })
    }
}

/// Columns to be crossed, and where the crosses of each row go.
struct Crosses<'a> {
    columns: Vec<Column<'a>>,
    /// The beginnings of rows among all crosses, and their end.
    splits: Vec<usize>,
}

impl<'a> Crosses<'a> {
    fn new(cx: &KernelCx<'_>, columns: Vec<Column<'a>>, rows: usize) -> Result<Crosses<'a>> {
        cx.device().check_allocation(DType::Int64, &Shape::vector(rows))?;
        let mut splits = Vec::with_capacity(rows + 1);
        let mut total = 0usize;
        splits.push(0);
        for row in 0..rows {
            let mut counts = columns.iter().map(|column| column.count(row));
            let count = counts.try_fold(1usize, |product, count| product.checked_mul(count));
            let sum =
                count.and_then(|count| total.checked_add(count)).filter(|sum| *sum <= i64::MAX as usize);
            total = sum.ok_or_else(|| status!(InvalidArgument, "Row {row} has too many crosses"))?;
            splits.push(total);
        }
        Ok(Crosses { columns, splits })
    }

    fn rows(&self) -> usize {
        self.splits.len() - 1
    }

    fn total(&self) -> usize {
        self.splits[self.rows()]
    }

    /// Writes every cross: `write` gets a place and the values' numbers in their columns.
    fn write<T: Send>(&self, threads: Threads<'_>, out: &mut [T], write: &(dyn Fn(&mut T, &[usize]) + Sync)) {
        let rows = self.rows().max(1);
        let length = threads.part_length(rows, (self.total() / rows + 1) * self.columns.len() * 8);
        let (mut parts, mut rest) = (Vec::new(), out);
        for first in (0..self.rows()).step_by(length.max(1)) {
            let end = (first + length).min(self.rows());
            let (head, later) = rest.split_at_mut(self.splits[end] - self.splits[first]);
            parts.push((first..end, head));
            rest = later;
        }
        threads.run_each(parts, &|_, (rows, mut out)| {
            let mut chosen = vec![0; self.columns.len()];
            for row in rows {
                let (head, later) = out.split_at_mut(self.splits[row + 1] - self.splits[row]);
                for (column, at) in self.columns.iter().zip(&mut chosen) {
                    *at = column.begin(row);
                }
                for out in head {
                    write(out, &chosen);
                    // The last column moves fastest.
                    for (column, at) in self.columns.iter().zip(&mut chosen).rev() {
                        *at += 1;
                        if *at < column.begin(row + 1) {
                            break;
                        }
                        *at = column.begin(row);
                    }
                }
                out = later;
            }
        });
    }

    fn texts(&self, cx: &KernelCx<'_>, separator: &[u8]) -> Result<Tensor> {
        let columns: Vec<_> = self.columns.iter().map(Column::texts).collect::<Result<_>>()?;
        let mut out = cx.alloc::<Str>(Shape::vector(self.total()))?;
        self.write(cx.threads(), out.flat_mut::<Str>()?, &|out, chosen| {
            let parts = || columns.iter().zip(chosen).map(|(column, at)| &column[*at]);
            let length: usize = parts().map(|part| part.len() + separator.len()).sum();
            let mut text = BytesMut::with_capacity(length);
            for (number, part) in parts().enumerate() {
                if number > 0 {
                    text.put_slice(separator);
                }
                text.put_slice(part);
            }
            *out = text.freeze();
        });
        Ok(out)
    }

    /// Combined hashes, begun with `key` or with the first column's, in this many buckets.
    fn hashes(
        &self,
        cx: &KernelCx<'_>,
        columns: &[Vec<u64>],
        key: Option<u64>,
        buckets: i64,
    ) -> Result<Tensor> {
        let mut out = cx.alloc::<i64>(Shape::vector(self.total()))?;
        let buckets = if buckets > 0 { buckets as u64 } else { i64::MAX as u64 };
        self.write(cx.threads(), out.flat_mut::<i64>()?, &|out, chosen| {
            let mut hashes = columns.iter().zip(chosen).map(|(column, at)| column[*at]);
            let first = key.or_else(|| hashes.next()).unwrap_or_default();
            *out = (hashes.fold(first, fingerprint_cat) % buckets) as i64;
        });
        Ok(out)
    }

    /// The outputs of a cross that is a sparse tensor.
    fn sparse_outputs(&self, cx: &KernelCx<'_>, values: Tensor) -> Result<Outputs> {
        let mut indices = cx.alloc::<i64>(Shape::matrix(self.total(), 2))?;
        let mut places = indices.flat_mut::<i64>()?.as_chunks_mut::<2>().0.iter_mut();
        let mut widest = 0;
        for (row, ends) in self.splits.windows(2).enumerate() {
            widest = widest.max(ends[1] - ends[0]);
            let places = places.by_ref().take(ends[1] - ends[0]);
            for (at, place) in places.enumerate() {
                *place = [row as i64, at as i64];
            }
        }
        Ok([indices, values, Tensor::vector(vec![self.rows() as i64, widest as i64])].into())
    }
}

/// The columns of a sparse cross, whose inputs are `count` sparse matrices and some dense ones before the last `others`.
fn sparse_columns<'a>(
    cx: &'a KernelCx<'_>,
    count: usize,
    others: usize,
    texts_only: bool,
) -> Result<Crosses<'a>> {
    let dense = 3 * count..cx.num_inputs() - others;
    for i in 0..count {
        let (indices, values, shape) = (cx.input(i)?, cx.input(count + i)?, cx.input(2 * count + i)?);
        ensure!(
            indices.rank() == 2,
            InvalidArgument,
            "Input indices should be a matrix but received shape {} at position {i}",
            indices.shape()
        );
        ensure!(
            indices.shape().dim(1) == 2,
            InvalidArgument,
            "Expected D2 of index to be 2 got {} at position {i}",
            indices.shape().dim(1)
        );
        check_internal_type(values, texts_only, "Input values")?;
        ensure!(
            values.rank() == 1,
            InvalidArgument,
            "Input values should be a vector but received shape {} at position {i}",
            values.shape()
        );
        ensure!(
            indices.shape().dim(0) == values.elements(),
            InvalidArgument,
            "Expected size of values to be {} got {} at position {i}",
            indices.shape().dim(0),
            values.elements()
        );
        ensure!(
            shape.rank() == 1,
            InvalidArgument,
            "Input shapes should be a vector but received shape {} at position {i}",
            shape.shape()
        );
        ensure!(
            shape.elements() == 2,
            InvalidArgument,
            "shape should imply a 2D tensor, but got {} at position {i}",
            shape.shape()
        );
    }
    for (i, input) in dense.clone().enumerate() {
        let tensor = cx.input(input)?;
        check_internal_type(tensor, texts_only, "Dense inputs")?;
        ensure!(
            tensor.rank() == 2,
            InvalidArgument,
            "Dense inputs should be a matrix but received shape {} at position {i}",
            tensor.shape()
        );
    }
    let rows = if count > 0 {
        cx.flat::<i64>(2 * count)?[0]
    } else if dense.is_empty() {
        0
    } else {
        cx.input(dense.start)?.shape()[0]
    };
    for i in 0..count {
        let have = cx.flat::<i64>(2 * count + i)?[0];
        ensure!(have == rows, InvalidArgument, "Expected batch size {rows} got {have} at position {i}");
    }
    for (i, input) in dense.clone().enumerate() {
        let have = cx.input(input)?.shape()[0];
        ensure!(have == rows, InvalidArgument, "Expected batch size {rows} got {have} at dense tensor {i}");
    }
    let rows = Shape::new([rows])?.elements();
    let mut columns = Vec::with_capacity(count + dense.len());
    for i in 0..count {
        // A row is a run of entries; those out of order belong to none, as in stock.
        let entries = cx.flat::<i64>(i)?.as_chunks::<2>().0;
        let splits = row_splits(cx, entries.len(), rows, |entry, row| entries[entry][0] == row as i64)?;
        columns.push(Column { values: cx.input(count + i)?, splits, dense: false });
    }
    for input in dense {
        columns.push(Column::dense(cx.input(input)?));
    }
    Crosses::new(cx, columns, rows)
}

fn check_internal_type(tensor: &Tensor, texts_only: bool, what: &str) -> Result<()> {
    ensure!(
        !texts_only || tensor.dtype() == DType::String,
        InvalidArgument,
        "{what} should be of internal type string but received {}",
        tensor.dtype()
    );
    Ok(())
}

/// The beginnings of rows among entries that `belongs` assigns to them.
fn row_splits<'a>(
    cx: &KernelCx<'_>,
    entries: usize,
    rows: usize,
    belongs: impl Fn(usize, usize) -> bool,
) -> Result<Splits<'a>> {
    cx.device().check_allocation(DType::Int64, &Shape::vector(rows))?;
    let mut splits = Vec::with_capacity(rows + 1);
    let mut entry = 0;
    splits.push(0);
    for row in 0..rows {
        while entry < entries && belongs(entry, row) {
            entry += 1;
        }
        splits.push(entry as i64);
    }
    Ok(Splits::Ragged(Cow::Owned(splits)))
}

fn cross_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (count, buckets, key): (i64, i64, i64) =
        (init.attr("N")?, init.attr("num_buckets")?, init.attr("hash_key")?);
    let (out, internal): (DType, DType) = (init.attr("out_type")?, init.attr("internal_type")?);
    // The type of the output decides whether it is hashed, as in stock, not the attribute.
    Kernel::sync(move |cx| {
        let crosses = sparse_columns(cx, count as usize, 0, internal == DType::String)?;
        let values = match out {
            DType::String => crosses.texts(cx, b"_X_")?,
            _ => {
                let hashes = crosses.columns.iter().map(Column::fingerprints).collect::<Result<Vec<_>>>()?;
                crosses.hashes(cx, &hashes, Some(key as u64), buckets)?
            }
        };
        crosses.sparse_outputs(cx, values)
    })
}

fn cross_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    let count: i64 = init.attr("N")?;
    Kernel::sync(move |cx| {
        let crosses = sparse_columns(cx, count as usize, 1, false)?;
        let separator = cx.input(cx.num_inputs() - 1)?;
        ensure!(
            separator.rank() == 0,
            InvalidArgument,
            "Input separator should be a scalar. Received shape: {}",
            separator.shape()
        );
        let values = crosses.texts(cx, &separator.flat::<Str>()?[0])?;
        crosses.sparse_outputs(cx, values)
    })
}

fn cross_hashed_kernel(init: &Init<'_>) -> Result<Kernel> {
    let count: i64 = init.attr("N")?;
    Kernel::sync(move |cx| {
        let crosses = sparse_columns(cx, count as usize, 3, false)?;
        let last = cx.num_inputs();
        let (buckets, strong) = (cx.scalar::<i64>(last - 3)?, cx.scalar::<bool>(last - 2)?);
        let salt = cx.flat::<i64>(last - 1)?;
        let [first, second] = salt else {
            bail!(InvalidArgument, "Input \"salt\" must have length 2 but has length {}", salt.len())
        };
        let key = strong.then_some([*first as u64, *second as u64]);
        let hashes =
            crosses.columns.iter().map(|column| column.keyed_hashes(key)).collect::<Result<Vec<_>>>()?;
        let values = crosses.hashes(cx, &hashes, None, buckets)?;
        crosses.sparse_outputs(cx, values)
    })
}

/// The attributes of a ragged cross.
struct RaggedCross {
    ragged: usize,
    sparse: usize,
    order: String,
}

fn ragged_cross_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (buckets, key): (i64, i64) = (init.attr("num_buckets")?, init.attr("hash_key")?);
    let (out, splits): (DType, DType) = (init.attr("out_values_type")?, init.attr("out_row_splits_type")?);
    let plan = RaggedCross {
        ragged: init.attr::<Vec<DType>>("ragged_values_types")?.len(),
        sparse: init.attr::<Vec<DType>>("sparse_values_types")?.len(),
        order: init.attr("input_order")?,
    };
    let dense = init.attr::<Vec<DType>>("dense_types")?.len();
    ensure!(
        plan.ragged + plan.sparse + dense == plan.order.len(),
        InvalidArgument,
        "Invalid length for input_order"
    );
    Kernel::sync(move |cx| {
        let crosses = plan.columns(cx)?;
        let values = match out {
            DType::String => crosses.texts(cx, b"_X_")?,
            _ => {
                let hashes = crosses.columns.iter().map(Column::fingerprints).collect::<Result<Vec<_>>>()?;
                crosses.hashes(cx, &hashes, Some(key as u64), buckets)?
            }
        };
        let ends = crosses.splits.iter().map(|split| *split as i64);
        Ok([values, int_tensor(splits, Shape::vector(crosses.splits.len()), ends)?].into())
    })
}

impl RaggedCross {
    fn columns<'a>(&self, cx: &'a KernelCx<'_>) -> Result<Crosses<'a>> {
        const RANK: &str = "tf.ragged.cross only supports inputs with rank=2.";
        let (ragged, sparse) = (self.ragged, self.sparse);
        let first_dense = 2 * ragged + 3 * sparse;
        let mut sizes = Vec::with_capacity(self.order.len());
        for i in 0..ragged {
            let (values, splits) = (cx.input(i)?, cx.input(ragged + i)?);
            ensure!(values.rank() == 1 && splits.rank() == 1, InvalidArgument, "{RANK}");
            check_splits(&wide(splits)?, values.elements())?;
            sizes.push(splits.elements() as i64 - 1);
        }
        for input in first_dense..cx.num_inputs() {
            let tensor = cx.input(input)?;
            ensure!(tensor.rank() == 2, InvalidArgument, "{RANK}");
            sizes.push(tensor.shape()[0]);
        }
        for i in 0..sparse {
            let part = |part: usize| cx.input(2 * ragged + part * sparse + i);
            let (indices, values, shape) = (part(0)?, part(1)?, part(2)?);
            ensure!(
                indices.rank() == 2
                    && indices.shape().dim(1) == 2
                    && values.rank() == 1
                    && shape.rank() == 1
                    && indices.shape().dim(0) == values.elements(),
                InvalidArgument,
                "Invalid SparseTensor {i}"
            );
            ensure!(shape.elements() == 2, InvalidArgument, "{RANK}");
            sizes.push(shape.flat::<i64>()?[0]);
        }
        let rows = sizes.first().copied().unwrap_or(0);
        ensure!(
            sizes.iter().all(|size| *size == rows),
            InvalidArgument,
            "inputs must all have the same batch dimension size."
        );
        let rows = Shape::new([rows])?.elements();
        let mut columns = Vec::with_capacity(self.order.len());
        let mut next = [0usize; 3];
        for kind in self.order.bytes() {
            let counts = [ragged, sparse, cx.num_inputs() - first_dense];
            let Some(kind) = b"RSD".iter().position(|known| *known == kind) else {
                bail!(InvalidArgument, "Unexpected input_order value.")
            };
            let i = next[kind];
            ensure!(
                i < counts[kind],
                InvalidArgument,
                "input_order \"{}\" specifies reading a {} tensor value at index {i} from a list of {} values.",
                self.order,
                ["ragged", "sparse", "dense"][kind],
                counts[kind]
            );
            next[kind] += 1;
            columns.push(match kind {
                0 => Column {
                    values: cx.input(i)?,
                    splits: Splits::Ragged(wide(cx.input(ragged + i)?)?),
                    dense: false,
                },
                1 => {
                    let entries = cx.flat::<i64>(2 * ragged + i)?.as_chunks::<2>().0;
                    let belongs = |entry: usize, row: usize| entries[entry][0] <= row as i64;
                    let splits = row_splits(cx, entries.len(), rows, belongs)?;
                    Column { values: cx.input(2 * ragged + sparse + i)?, splits, dense: false }
                }
                _ => Column::dense(cx.input(first_dense + i)?),
            });
        }
        Crosses::new(cx, columns, rows)
    }
}

/// Refuses splits that are not the beginnings and the end of rows of this many values.
pub(crate) fn check_splits(splits: &[i64], values: usize) -> Result<()> {
    let (Some(first), Some(last)) = (splits.first(), splits.last()) else {
        bail!(
            InvalidArgument,
            "Invalid ragged splits: ragged splits must have at least one splits, but is empty"
        )
    };
    ensure!(
        *first == 0,
        InvalidArgument,
        "Invalid ragged splits: first element of ragged splits  must be 0 but is {first}"
    );
    if let Some(at) = splits.windows(2).position(|pair| pair[1] < pair[0]) {
        bail!(
            InvalidArgument,
            "Invalid ragged splits: ragged splits must be monotonically increasing, but ragged_splits[{}]={} is smaller than row_splits[{at}]={}",
            at + 1,
            splits[at + 1],
            splits[at]
        );
    }
    ensure!(
        *last == values as i64,
        InvalidArgument,
        "Invalid ragged splits: last element of ragged splits must be the number of ragged values({values}) but is {last}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Node;

    #[test]
    fn the_last_column_moves_fastest() {
        let texts =
            |texts: &[&'static str]| texts.iter().map(|text| Str::from_static(text.as_bytes())).collect();
        let a = Tensor::new(Shape::matrix(1, 2), texts(&["a", "b"])).unwrap();
        let b = Tensor::new(Shape::matrix(1, 2), texts(&["c", "d"])).unwrap();
        let node = Node::new("SparseCrossV2").attr("N", 0i64).attr("sparse_types", Vec::<DType>::new());
        let node = node.attr("dense_types", vec![DType::String, DType::String]);
        let out = node.run([a, b, Tensor::scalar(Str::from_static(b"_"))]).unwrap();
        assert_eq!(out[1].flat::<Str>().unwrap(), &texts(&["a_c", "a_d", "b_c", "b_d"]) as &[Str]);
        assert_eq!(out[2].flat::<i64>().unwrap(), [1, 4]);
    }
}
