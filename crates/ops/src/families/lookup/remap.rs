//! Rows of a trained matrix put where another vocabulary has their words: for models that start from another's weights.

use super::table_init::{LINE_NUMBER, Layout, WHOLE_LINE};
use crate::state::table::Table;
use crate::support::blocking;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::device::Device;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Str};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels, status};
use ferroflow_io::bundle::{BundleReader, TensorSlice};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[&GENERATE_VOCAB_REMAPPING, &LOAD_AND_REMAP_MATRIX];

static GENERATE_VOCAB_REMAPPING: Op = Op {
    name: "GenerateVocabRemapping",
    gradient: Gradient::Stop,
    inputs: &["new_vocab_file: string", "old_vocab_file: string"],
    outputs: &["remapping: int64", "num_present: int32"],
    attrs: &["new_vocab_offset: int >= 0", "num_new_vocab: int >= 0", "old_vocab_size: int >= -1 = -1"],
    shape: vocabulary_shape,
    kernels: kernels![any vocabulary_kernel],
    ..Op::PURE
};

static LOAD_AND_REMAP_MATRIX: Op = Op {
    name: "LoadAndRemapMatrix",
    gradient: Gradient::Stop,
    inputs: &[
        "ckpt_path: string",
        "old_tensor_name: string",
        "row_remapping: int64",
        "col_remapping: int64",
        "initializing_values: float",
    ],
    outputs: &["output_matrix: float"],
    attrs: &["num_rows: int >= 0", "num_cols: int >= 1", "max_rows_in_memory: int = -1"],
    shape: matrix_shape,
    kernels: kernels![any matrix_kernel],
    ..Op::STATEFUL
};

fn vocabulary_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.rank(1, 0)?;
    s.output(0, [s.attr::<i64>("num_new_vocab")?])?;
    s.set(1, PartialShape::scalar());
    Ok(())
}

fn matrix_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(2, 1)?;
    s.rank_at_most(3, 1)?;
    let rows = match s.input(2).dims() {
        Some([rows]) => *rows,
        _ => UNKNOWN_DIM,
    };
    let rows = s.merge_dims(rows, s.attr("num_rows")?)?;
    s.output(0, [rows, s.attr::<i64>("num_cols")?])
}

fn name_of(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<String> {
    let tensor = cx.input(input)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "{name} should be a single string, but got {}",
        tensor.shape()
    );
    let text = tensor.to_scalar::<Str>()?;
    ensure!(!text.is_empty(), InvalidArgument, "new vocab filename cannot be empty.");
    String::from_utf8(text.to_vec())
        .map_err(|_| status!(InvalidArgument, "the name of a file must be UTF-8 text"))
}

fn vocabulary_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (offset, count): (usize, usize) = (init.attr("new_vocab_offset")?, init.attr("num_new_vocab")?);
    let old_size: i64 = init.attr("old_vocab_size")?;
    Kernel::future(move |mut cx| async move {
        let (new, old) = {
            let cx = cx.cx();
            (name_of(&cx, 0, "new_vocab_file")?, name_of(&cx, 1, "old_vocab_file")?)
        };
        let device = cx.step().device.clone();
        let outputs = blocking::run("read vocabularies", move |cancellation| {
            remapping(&device, &new, &old, offset, count, old_size, &cancellation)
        });
        Ok(outputs.await?.into())
    })
}

fn remapping(
    device: &Arc<Device>,
    new: &str,
    old: &str,
    offset: usize,
    count: usize,
    old_size: i64,
    cancellation: &Cancellation,
) -> Result<[Tensor; 2]> {
    let table = |key_index, value_index, size, types: (DType, DType), name: &str| -> Result<Table> {
        let table = Table::new_static(types.0, types.1);
        let layout = Layout { key_index, value_index, size, delimiter: b'\t', offset: 0 };
        layout.fill(&table, name, cancellation)?;
        Ok(table)
    };
    let words = table(LINE_NUMBER, WHOLE_LINE, -1, (DType::Int64, DType::String), new)?;
    ensure!(
        offset.saturating_add(count) <= words.size(),
        InvalidArgument,
        "lookup table size must be larger than last new vocab entry's line"
    );
    let ids = table(WHOLE_LINE, LINE_NUMBER, old_size, (DType::String, DType::Int64), old)?;
    let new_ids = Tensor::vector((offset as i64..(offset + count) as i64).collect::<Vec<i64>>());
    let words = words.find(device.threads(), &new_ids, &Tensor::scalar(Str::new()))?;
    let remapping = ids.find(device.threads(), &words, &Tensor::scalar(-1i64))?;
    let present = remapping.flat::<i64>()?.iter().filter(|id| **id != -1).count();
    Ok([remapping, Tensor::scalar(present as i32)])
}

/// A matrix to load, and where its rows and columns go.
struct Remap {
    path: String,
    name: String,
    rows: Vec<i64>,
    columns: Vec<i64>,
    values: Tensor,
    width: usize,
    /// Rows that are read at once; all if it is not positive.
    most_rows: i64,
}

fn matrix_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (height, width): (usize, usize) = (init.attr("num_rows")?, init.attr("num_cols")?);
    let most_rows: i64 = init.attr("max_rows_in_memory")?;
    Kernel::future(move |mut cx| async move {
        let remap = matrix_inputs(&cx.cx(), height, width, most_rows)?;
        let device = cx.step().device.clone();
        let loaded = blocking::run("remap matrix", move |cancellation| remap.load(&device, cancellation));
        Ok(loaded.await?.into())
    })
}

fn matrix_inputs(cx: &KernelCx<'_>, height: usize, width: usize, most_rows: i64) -> Result<Remap> {
    let (rows, columns) = (cx.input(2)?, cx.input(3)?);
    ensure!(
        rows.rank() == 1,
        InvalidArgument,
        "The `row_remapping` tensor must be 1-D, got a tensor of shape {}",
        rows.shape()
    );
    ensure!(
        rows.elements() == height,
        InvalidArgument,
        "Size of row_remapping is {} instead of being equal to num_rows={height}",
        rows.elements()
    );
    ensure!(
        columns.elements() == 0 || columns.elements() == width,
        InvalidArgument,
        "Provided col_remapping, but its size is {} instead of being equal to num_cols={width}",
        columns.elements()
    );
    let single = |input: usize, name: &str| -> Result<String> {
        let tensor = cx.input(input)?;
        ensure!(
            tensor.elements() == 1,
            InvalidArgument,
            "The `{name}` tensor must have exactly one element, got tensor of shape {}",
            tensor.shape()
        );
        let text = tensor.to_scalar::<Str>()?;
        String::from_utf8(text.to_vec()).map_err(|_| status!(InvalidArgument, "{name} must be UTF-8 text"))
    };
    Ok(Remap {
        path: single(0, "ckpt_path")?,
        name: single(1, "old_tensor_name")?,
        rows: rows.flat::<i64>()?.to_vec(),
        columns: columns.flat::<i64>()?.to_vec(),
        values: cx.input(4)?.clone(),
        width,
        most_rows,
    })
}

/// New places by old ones; an old one has at most one.
fn places(remapping: &[i64], bound: i64, what: &str, plural: &str) -> Result<HashMap<i64, usize>> {
    let mut places = HashMap::with_capacity(remapping.len());
    for (new, old) in remapping.iter().enumerate().filter(|(_, old)| **old >= 0) {
        ensure!(
            *old < bound,
            InvalidArgument,
            "{what} remapping index {old} is out of bounds for old tensor with {bound} {plural}."
        );
        if let Some(other) = places.insert(*old, new) {
            bail!(
                Unimplemented,
                "Old ID {old} is mapped to both new ID {other} and {new}, which is not supported."
            );
        }
    }
    Ok(places)
}

impl Remap {
    fn load(&self, device: &Arc<Device>, cancellation: Cancellation) -> Result<Tensor> {
        let reader = BundleReader::open(&self.path)?.cancelled_by(cancellation);
        let (name, (dtype, shape)) = (&self.name, reader.lookup(&self.name)?);
        ensure!(
            dtype == DType::Float,
            InvalidArgument,
            "Tensor {name} has invalid type {dtype} instead of expected type float"
        );
        let [height, width] = *shape.dims() else {
            bail!(
                InvalidArgument,
                "Tensor {name} has shape {shape} of invalid rank {} instead of expected shape of rank 2.",
                shape.rank()
            );
        };
        let rows = places(&self.rows, height, "Row", "rows")?;
        let columns = places(&self.columns, width, "Col", "columns")?;
        ensure!(
            !self.columns.is_empty() || self.width as i64 == width,
            InvalidArgument,
            "Tensor {name} has shape {shape}, where the size of its 2nd dimension is {width} instead of being equal to \
             num_cols={}",
            self.width
        );
        let mut matrix = device.allocate(DType::Float, Shape::matrix(self.rows.len(), self.width))?;
        let out = matrix.flat_mut::<f32>()?;
        let (first, last) = (rows.keys().min().copied(), rows.keys().max().copied());
        let mut start = first.unwrap_or(0);
        while let Some(left) = last.map(|last| last - start + 1).filter(|left| *left > 0) {
            let length = if self.most_rows <= 0 { left } else { left.min(self.most_rows) };
            let slice = TensorSlice::parse(&format!("{start},{length}:-"))?;
            let loaded = reader.read_slice(name, &slice)?;
            for (row, values) in loaded.flat::<f32>()?.chunks_exact(width.max(1) as usize).enumerate() {
                let Some(new_row) = rows.get(&(start + row as i64)) else { continue };
                for (column, value) in values.iter().enumerate() {
                    let new_column =
                        if self.columns.is_empty() { Some(&column) } else { columns.get(&(column as i64)) };
                    if let Some(new_column) = new_column {
                        out[new_row * self.width + new_column] = *value;
                    }
                }
            }
            start += length;
        }
        self.fill(out)?;
        Ok(matrix)
    }

    /// Fills what the old matrix has no values for.
    fn fill(&self, out: &mut [f32]) -> Result<()> {
        let values = self.values.flat::<f32>()?;
        let mut used = 0;
        for (row, cells) in out.chunks_exact_mut(self.width.max(1)).enumerate() {
            for (column, cell) in cells.iter_mut().enumerate() {
                let has_column = self.columns.get(column).is_none_or(|old| *old >= 0);
                if self.rows[row] >= 0 && has_column {
                    continue;
                }
                *cell = *values.get(used).ok_or_else(|| {
                    status!(
                        InvalidArgument,
                        "initializing_values contained {} elements, but more missing values remain.",
                        values.len()
                    )
                })?;
                used += 1;
            }
        }
        ensure!(
            used == values.len(),
            InvalidArgument,
            "initializing_values contained {} elements, but only {used} elements were used to fill in missing values.",
            values.len()
        );
        Ok(())
    }
}
