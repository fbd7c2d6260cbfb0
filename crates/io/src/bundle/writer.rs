//! Writes checkpoints: tensors stream to a temporary data file; the index is written last, so that a checkpoint whose
//! index exists is whole.

use super::entry::{HEADER_KEY, header};
use super::slice::SliceSpec;
use super::{data_path, index_path, strings};
use crate::crc;
use crate::file::Sink;
use crate::table::TableWriter;
use bytes::Bytes;
use ferroflow_core::tensor::Storage;
use ferroflow_core::{Result, Tensor, bail, ensure};
use ferroflow_proto::tensorflow::BundleEntryProto;
use prost::Message;
use std::collections::BTreeMap;

/// A checkpoint being written.
pub struct BundleWriter {
    prefix: String,
    data: Sink,
    entries: BTreeMap<Vec<u8>, BundleEntryProto>,
}

impl BundleWriter {
    /// Starts a checkpoint.
    pub fn create(prefix: &str) -> Result<BundleWriter> {
        Ok(BundleWriter {
            prefix: prefix.to_owned(),
            data: Sink::create(data_path(prefix, 0, 1))?,
            entries: BTreeMap::new(),
        })
    }

    /// Writes a tensor under a name.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        self.add_under(name.as_bytes().to_vec(), name, tensor)
    }

    /// Writes a slice of a partitioned tensor.
    pub fn add_slice(&mut self, name: &str, spec: &SliceSpec, tensor: &Tensor) -> Result<()> {
        ensure!(
            tensor.shape() == &spec.shape,
            InvalidArgument,
            "slice {} of {name} has shape {}, but the tensor has {}",
            spec.slice,
            spec.shape,
            tensor.shape()
        );
        let dtype = tensor.dtype().to_wire();
        let entry = self.entries.entry(name.as_bytes().to_vec()).or_insert_with(|| BundleEntryProto {
            dtype,
            shape: Some(spec.full.to_proto()),
            ..Default::default()
        });
        ensure!(
            entry.dtype == dtype && entry.shape.as_ref() == Some(&spec.full.to_proto()) && entry.size == 0,
            InvalidArgument,
            "slices of {name} disagree about its type or shape"
        );
        entry.slices.push(spec.slice.to_proto());
        self.add_under(spec.slice.key(name), name, tensor)
    }

    fn add_under(&mut self, key: Vec<u8>, name: &str, tensor: &Tensor) -> Result<()> {
        ensure!(key != HEADER_KEY, InvalidArgument, "a tensor in a checkpoint needs a name");
        ensure!(!self.entries.contains_key(&key), InvalidArgument, "Adding duplicate key: {name}");
        let offset = self.data.written();
        let checksum = match tensor.storage() {
            Storage::Plain(buffer) => {
                self.data.write(buffer.as_slice())?;
                crc::masked(buffer.as_slice())
            }
            Storage::Strings(values) => self.write_strings(values)?,
            Storage::Resources(_) | Storage::Variants(_) => {
                bail!(Unimplemented, "tensors of type {} cannot be saved: {name}", tensor.dtype())
            }
        };
        let entry = BundleEntryProto {
            dtype: tensor.dtype().to_wire(),
            shape: Some(tensor.shape().to_proto()),
            shard_id: 0,
            offset: offset as i64,
            size: (self.data.written() - offset) as i64,
            crc32c: checksum,
            slices: Vec::new(),
        };
        self.entries.insert(key, entry);
        Ok(())
    }

    fn write_strings(&mut self, values: &[Bytes]) -> Result<u32> {
        let (lengths, mut checksum) = strings::encode_lengths(values);
        self.data.write(&lengths)?;
        for value in values {
            self.data.write(value)?;
            checksum = crc::extend(checksum, value);
        }
        Ok(crc::mask(checksum))
    }

    /// Puts the data file in place, then the index.
    pub fn finish(self) -> Result<()> {
        self.data.finish()?;
        let mut table = TableWriter::create(&index_path(&self.prefix))?;
        table.add(HEADER_KEY, &header(1))?;
        for (key, entry) in &self.entries {
            table.add(key, &entry.encode_to_vec())?;
        }
        table.finish()
    }
}
