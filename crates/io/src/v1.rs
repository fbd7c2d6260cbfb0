//! Checkpoints in TensorFlow's V1 format: one table per file, with the metadata under the empty key and the values of
//! every slice, as messages, under the other keys.

mod writer;

pub use writer::V1Writer;

use crate::bundle::runs::{CopyRuns, intersection};
use crate::bundle::{self, TensorSlice};
use crate::file;
use crate::table::TableReader;
use bytes::Bytes;
use ferroflow_core::tensor::{Buffer, Storage};
use ferroflow_core::{Code, DType, Result, Shape, Status, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::{SavedSliceMeta, SavedTensorSlices};
use prost::Message;
use std::collections::BTreeMap;
use std::path::Path;

/// The key of the metadata.
const META_KEY: &[u8] = b"";

/// An open V1 checkpoint.
pub struct V1Reader {
    tables: Vec<TableReader>,
    tensors: BTreeMap<String, StoredTensor>,
}

struct StoredTensor {
    dtype: DType,
    shape: Shape,
    /// Slices, and the index of the table that holds each.
    slices: Vec<(TensorSlice, usize)>,
}

impl V1Reader {
    /// Opens all files that match the pattern.
    pub fn open(pattern: &str) -> Result<V1Reader> {
        let paths = file::matching(pattern).map_err(|error| {
            status!(
                InvalidArgument,
                "Unsuccessful TensorSliceReader constructor: Failed to get matching files on {pattern}: {}: {}",
                error.code().name(),
                error.message()
            )
        })?;
        ensure!(
            !paths.is_empty(),
            NotFound,
            "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for {pattern}"
        );
        let mut reader = V1Reader { tables: Vec::new(), tensors: BTreeMap::new() };
        for path in paths {
            reader.add_file(&path)?;
        }
        Ok(reader)
    }

    fn add_file(&mut self, path: &Path) -> Result<()> {
        let shown = path.display();
        let table = TableReader::open(path).map_err(|error| {
            let hint = match error.code() {
                Code::DataLoss => {
                    ": perhaps your file is in a different file format and you need to use a different restore operator?"
                }
                _ => "",
            };
            let code = error.code().name();
            status!(DataLoss, "Unable to open table file {shown}: {code}: {}{hint}", error.message())
        })?;
        let contents = table.get(META_KEY)?.and_then(|bytes| SavedTensorSlices::decode(&*bytes).ok());
        let contents = contents.and_then(|contents| contents.meta).ok_or_else(|| {
            status!(
                Internal,
                "Failed to find the saved tensor slices at the beginning of the checkpoint file: {shown}"
            )
        })?;
        for meta in &contents.tensor {
            self.add_tensor(meta, self.tables.len())?;
        }
        self.tables.push(table);
        Ok(())
    }

    fn add_tensor(&mut self, meta: &SavedSliceMeta, table: usize) -> Result<()> {
        let malformed =
            || status!(DataLoss, "malformed description of tensor {} in the checkpoint", meta.name);
        let dtype = DType::from_wire(meta.r#type).map_err(|_| malformed())?;
        let shape = Shape::from_proto(&meta.shape.clone().unwrap_or_default()).map_err(|_| malformed())?;
        let entry = self.tensors.entry(meta.name.clone());
        let stored =
            entry.or_insert_with(|| StoredTensor { dtype, shape: shape.clone(), slices: Vec::new() });
        ensure!(
            stored.dtype == dtype && stored.shape == shape,
            InvalidArgument,
            "Incompatible tensor shapes or types detected for tensor {}",
            meta.name
        );
        for slice in &meta.slice {
            let slice = TensorSlice::from_proto(slice)?;
            slice.shape_within(&shape).map_err(|_| malformed())?;
            let bounds = slice.bounds(&shape);
            let overlapped = stored
                .slices
                .iter()
                .find(|(known, _)| intersection(&known.bounds(&shape), &bounds).is_some());
            if let Some((known, _)) = overlapped {
                bail!(
                    Internal,
                    "Overlapping slices of tensor {}: existing slice = {known}, new slice = {slice}",
                    meta.name
                );
            }
            stored.slices.push((slice, table));
        }
        Ok(())
    }

    /// Describes every tensor, in the order of names.
    pub fn tensors(&self) -> Vec<bundle::StoredTensor> {
        let describe = |(name, stored): (&String, &StoredTensor)| bundle::StoredTensor {
            name: name.clone(),
            dtype: stored.dtype,
            shape: stored.shape.clone(),
            // One slice of everything is how this format keeps a tensor that is not partitioned.
            slices: if stored.slices.len() == 1 { 0 } else { stored.slices.len() },
        };
        self.tensors.iter().map(describe).collect()
    }

    /// A tensor's type and full shape, if the checkpoint has it.
    pub fn lookup(&self, name: &str) -> Option<(DType, &Shape)> {
        self.tensors.get(name).map(|stored| (stored.dtype, &stored.shape))
    }

    /// Reads a part of a tensor.
    pub fn read_slice(&self, name: &str, slice: &TensorSlice) -> Result<Tensor> {
        let copying = || status!(InvalidArgument, "Error copying slice data");
        let stored = self.tensors.get(name).ok_or_else(copying)?;
        let shape = slice.shape_within(&stored.shape)?;
        let wanted = slice.bounds(&stored.shape);
        let mut pieces = Vec::new();
        let mut covered = 0;
        for (part, table) in &stored.slices {
            let bounds = part.bounds(&stored.shape);
            let Some(common) = intersection(&bounds, &wanted) else { continue };
            covered += common.iter().map(|(_, length)| *length as usize).product::<usize>();
            let piece = self.load(name, stored, part, *table)?;
            if bounds == wanted {
                return Ok(piece);
            }
            pieces.push((bounds, piece));
        }
        ensure!(covered == shape.elements(), InvalidArgument, "{}", copying().message());
        if stored.dtype == DType::String {
            let mut out = vec![Bytes::new(); shape.elements()];
            for (bounds, piece) in &pieces {
                let values = piece.flat::<Bytes>()?;
                for run in CopyRuns::new(bounds, &wanted) {
                    out[run.to..][..run.length].clone_from_slice(&values[run.from..][..run.length]);
                }
            }
            return Tensor::new(shape, out);
        }
        let size = stored.dtype.size();
        let bytes = shape.elements().checked_mul(size);
        let mut out = bytes
            .and_then(Buffer::try_zeroed)
            .ok_or_else(|| status!(ResourceExhausted, "no memory for a tensor of shape {shape}"))?;
        for (bounds, piece) in &pieces {
            let Storage::Plain(values) = piece.storage() else { return Err(copying()) };
            let (values, out) = (values.as_slice(), out.make_mut());
            for run in CopyRuns::new(bounds, &wanted) {
                let (from, to, length) = (run.from * size, run.to * size, run.length * size);
                out[to..][..length].copy_from_slice(&values[from..][..length]);
            }
        }
        Tensor::from_buffer(stored.dtype, shape, out)
    }

    /// Reads the values of one slice.
    fn load(&self, name: &str, stored: &StoredTensor, slice: &TensorSlice, table: usize) -> Result<Tensor> {
        let bytes = self.tables[table].get(&slice.key(name))?;
        let bytes = bytes.ok_or_else(|| lost(name, slice))?;
        let message = SavedTensorSlices::decode(&*bytes).map_err(|_| lost(name, slice))?;
        let mut data = message.data.and_then(|saved| saved.data).ok_or_else(|| lost(name, slice))?;
        let shape = slice.shape_within(&stored.shape)?;
        if !stored.dtype.is_plain() && stored.dtype != DType::String {
            bail!(Unimplemented, "Restoring data type {} not yet supported", stored.dtype);
        }
        // A message with too few elements is padded with copies of the last one, which could turn a small file into a
        // huge tensor.
        ensure!(
            shape.elements() <= bytes.len().saturating_mul(8),
            DataLoss,
            "{}",
            lost(name, slice).message()
        );
        data.dtype = stored.dtype.to_wire();
        data.tensor_shape = Some(shape.to_proto());
        Tensor::from_proto(&data).map_err(|_| lost(name, slice))
    }
}

fn lost(name: &str, slice: &TensorSlice) -> Status {
    status!(DataLoss, "slice {slice} of tensor {name} is missing from the checkpoint or malformed")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two files written by stock, with slices of one tensor in both.
    const PATTERN: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/checkpoints/v1-?????-of-00002");

    #[test]
    fn files_that_stock_wrote_are_read() {
        let reader = V1Reader::open(PATTERN).unwrap();
        let whole = |name: &str| {
            let (_, shape) = reader.lookup(name).unwrap();
            reader.read_slice(name, &TensorSlice::whole(shape.rank())).unwrap()
        };
        let table: Vec<f32> = (0..15).map(|i| i as f32).collect();
        assert_eq!(whole("table").flat::<f32>().unwrap(), table);
        let part = reader.read_slice("table", &TensorSlice::parse("1,3:1,2").unwrap()).unwrap();
        assert_eq!(part.flat::<f32>().unwrap(), [4.0, 5.0, 7.0, 8.0, 10.0, 11.0]);
        assert_eq!(whole("step").to_scalar::<i64>().unwrap(), 7);
        assert_eq!(whole("words").flat::<Bytes>().unwrap(), ["a", "", "ccc"]);
        assert!(reader.lookup("nothing").is_none());
    }

    #[test]
    fn files_of_other_formats_are_refused() {
        let missing = V1Reader::open("/nowhere/at-*").err().unwrap();
        assert_eq!(missing.code(), Code::NotFound);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let other = V1Reader::open(source).err().unwrap();
        assert_eq!(other.code(), Code::DataLoss);
        assert!(other.message().contains("perhaps your file is in a different file format"), "{other}");
    }
}
