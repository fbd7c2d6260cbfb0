//! Writes checkpoints: tensors are written to a temporary data file and the index last, so that a checkpoint with an
//! index is complete.

use super::entry::HEADER_KEY;
use super::replace::{publish, unused_shards};
use super::slice::SliceSpec;
use super::{CHUNK, check_cancelled, data_path, strings, variants};
use crate::crc;
use crate::file::Sink;
use crate::path::{checkpoint_prefix, is_remote};
use bytes::Bytes;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::tensor::Storage;
use ferroflow_core::{Result, Tensor, bail, ensure};
use ferroflow_proto::tensorflow::BundleEntryProto;
use std::collections::BTreeMap;

/// A checkpoint being written.
pub struct BundleWriter {
    prefix: String,
    /// One, or two if a checkpoint with one data file is being replaced.
    shards: usize,
    data: Sink,
    entries: BTreeMap<Vec<u8>, BundleEntryProto>,
    cancellation: Cancellation,
}

impl BundleWriter {
    /// Starts a checkpoint.
    pub fn create(prefix: &str) -> Result<BundleWriter> {
        let prefix = checkpoint_prefix(prefix)?;
        if is_remote(prefix.as_ref()) {
            ferroflow_remote::check_writable(prefix)?;
        }
        let shards = unused_shards(prefix, 1);
        Ok(BundleWriter {
            prefix: prefix.to_owned(),
            shards,
            data: Sink::create(data_path(prefix, 0, shards))?,
            entries: BTreeMap::new(),
            cancellation: Cancellation::new(),
        })
    }

    /// Makes long writes stop when this is cancelled; nothing is left on disk then.
    pub fn cancelled_by(mut self, cancellation: Cancellation) -> BundleWriter {
        self.cancellation = cancellation;
        self
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
                let mut checksum = 0;
                for chunk in buffer.as_slice().chunks(CHUNK) {
                    check_cancelled(&self.cancellation)?;
                    checksum = crc::extend(checksum, chunk);
                    self.data.write(chunk)?;
                }
                crc::mask(checksum)
            }
            Storage::Strings(values) => self.write_strings(values)?,
            Storage::Variants(values) => {
                let (bytes, checksum) = variants::encode(values)?;
                self.data.write(&bytes)?;
                crc::mask(checksum)
            }
            Storage::Resources(_) => {
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

    /// Renames the data file, then writes the index.
    pub fn finish(self) -> Result<()> {
        self.data.finish()?;
        publish(&self.prefix, 1, self.shards, &self.entries)
    }
}
