//! Reads checkpoints: whole tensors, and any slice of a tensor however it was partitioned.

use super::entry::{Entry, HEADER_KEY, shards_of};
use super::runs::{Bounds, CopyRuns, intersection};
use super::slice::TensorSlice;
use super::{CHUNK, check_cancelled, data_path, index_path, strings, variants};
use crate::crc;
use crate::file::{self, Source};
use crate::path::checkpoint_prefix;
use crate::table::TableReader;
use bytes::Bytes;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::tensor::Buffer;
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, status};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The description of a tensor in a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTensor {
    /// The name under which it is read.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The full shape, of all slices together.
    pub shape: Shape,
    /// The number of parts that a partitioned variable was saved in; 0 if it was saved whole.
    pub slices: usize,
}

/// An open checkpoint. Any number of threads may read it.
pub struct BundleReader {
    prefix: String,
    index: TableReader,
    shards: usize,
    /// Data files by number, opened when first needed.
    sources: Mutex<HashMap<usize, Arc<Source>>>,
    cancellation: Cancellation,
}

impl BundleReader {
    /// Opens a checkpoint.
    pub fn open(prefix: &str) -> Result<BundleReader> {
        let prefix = checkpoint_prefix(prefix)?;
        let index = TableReader::open(&index_path(prefix))?;
        let header = index.get(HEADER_KEY)?;
        let header = header.ok_or_else(|| status!(DataLoss, "the checkpoint {prefix} has no header"))?;
        let shards = shards_of(&header)?;
        Ok(BundleReader {
            prefix: prefix.to_owned(),
            index,
            shards,
            sources: Mutex::default(),
            cancellation: Cancellation::new(),
        })
    }

    /// Makes long reads stop when this is cancelled.
    pub fn cancelled_by(mut self, cancellation: Cancellation) -> BundleReader {
        self.cancellation = cancellation;
        self
    }

    /// Describes every tensor, in the order of names.
    pub fn tensors(&self) -> Result<Vec<StoredTensor>> {
        let mut tensors = Vec::new();
        self.index.for_each(|key, value| {
            // The header has an empty key, and keys of slices begin with a zero.
            if key.first().is_none_or(|first| *first == 0) {
                return Ok(());
            }
            let name = String::from_utf8(key.to_vec())
                .map_err(|_| status!(DataLoss, "a name in the index of {} is not UTF-8", self.prefix))?;
            let Entry { dtype, shape, slices, .. } = Entry::decode(value)?;
            tensors.push(StoredTensor { name, dtype, shape, slices: slices.len() });
            Ok(())
        })?;
        Ok(tensors)
    }

    /// A tensor's type and full shape.
    pub fn lookup(&self, name: &str) -> Result<(DType, Shape)> {
        let entry = self.entry(name)?;
        Ok((entry.dtype, entry.shape))
    }

    /// Reads a whole tensor, assembled from its slices if it was partitioned.
    pub fn read(&self, name: &str) -> Result<Tensor> {
        let entry = self.entry(name)?;
        if entry.slices.is_empty() {
            return self.load(&entry);
        }
        self.gather(name, &entry, &TensorSlice::whole(entry.shape.rank()))
    }

    /// Reads a slice of a tensor.
    pub fn read_slice(&self, name: &str, slice: &TensorSlice) -> Result<Tensor> {
        let entry = self.entry(name)?;
        let shape = slice.shape_within(&entry.shape)?;
        if !entry.slices.is_empty() {
            return self.gather(name, &entry, slice);
        }
        if slice.is_whole(&entry.shape) {
            return self.load(&entry);
        }
        let whole = TensorSlice::whole(entry.shape.rank()).bounds(&entry.shape);
        self.check_extent(&entry)?;
        self.assemble(entry.dtype, shape, &slice.bounds(&entry.shape), &[(whole, entry)])
    }

    fn gather(&self, name: &str, entry: &Entry, slice: &TensorSlice) -> Result<Tensor> {
        let (shape, wanted) = (slice.shape_within(&entry.shape)?, slice.bounds(&entry.shape));
        let mut pieces = Vec::new();
        let mut covered = 0;
        for stored in &entry.slices {
            let bounds = stored.bounds(&entry.shape);
            let Some(common) = intersection(&bounds, &wanted) else { continue };
            covered += common.iter().map(|(_, length)| *length as usize).product::<usize>();
            let bytes = self.index.get(&stored.key(name))?;
            let piece = Entry::decode(&bytes.ok_or_else(|| missing(name))?)?;
            ensure!(
                piece.dtype == entry.dtype && piece.shape == stored.shape_within(&entry.shape)?,
                DataLoss,
                "slice {stored} of {name} does not have the type and shape given in the tensor's entry"
            );
            self.check_extent(&piece)?;
            pieces.push((bounds, piece));
        }
        ensure!(
            covered == shape.elements(),
            InvalidArgument,
            "Does not have sufficient slices for partitioned tensor {name} to restore in slice_spec: {slice}"
        );
        if let [(bounds, piece)] = pieces.as_slice()
            && *bounds == wanted
        {
            return self.load(piece);
        }
        self.assemble(entry.dtype, shape, &wanted, &pieces)
    }

    /// Fills the region `wanted` from pieces with the given bounds. Pieces must have been checked against the sizes of
    /// their files.
    fn assemble(
        &self,
        dtype: DType,
        shape: Shape,
        wanted: &Bounds,
        pieces: &[(Vec<(i64, i64)>, Entry)],
    ) -> Result<Tensor> {
        if dtype == DType::String {
            let mut out = vec![Bytes::new(); shape.elements()];
            for (bounds, piece) in pieces {
                let tensor = self.load(piece)?;
                let values = tensor.flat::<Bytes>()?;
                for run in CopyRuns::new(bounds, wanted) {
                    out[run.to..][..run.length].clone_from_slice(&values[run.from..][..run.length]);
                }
            }
            return Tensor::new(shape, out);
        }
        let bytes = shape.elements().checked_mul(dtype.size());
        let bytes =
            bytes.ok_or_else(|| status!(DataLoss, "a {dtype} tensor of shape {shape} is too large"))?;
        let mut out = allocate(bytes)?;
        for (bounds, piece) in pieces {
            self.copy_part(piece, bounds, wanted, out.make_mut())?;
        }
        Tensor::from_buffer(dtype, shape, out)
    }

    /// Copies the intersection of a piece and the region `wanted` into `out`, which holds that region. All of the piece
    /// is read, through a small buffer, because its checksum covers all of it.
    fn copy_part(&self, piece: &Entry, bounds: &Bounds, wanted: &Bounds, out: &mut [u8]) -> Result<()> {
        let (source, size) = (self.check_extent(piece)?, piece.dtype.size());
        let mut runs = CopyRuns::new(bounds, wanted)
            .map(|run| (run.from * size, run.to * size, run.length * size))
            .peekable();
        let mut chunk = vec![0; CHUNK.min(piece.size as usize)];
        let (mut start, mut checksum) = (0, 0);
        while start < piece.size as usize {
            check_cancelled(&self.cancellation)?;
            let end = (start + CHUNK).min(piece.size as usize);
            let bytes = &mut chunk[..end - start];
            source.read(piece.offset + start as u64, bytes)?;
            checksum = crc::extend(checksum, bytes);
            while let Some((from, to, length)) = runs.peek_mut() {
                if *from >= end {
                    break;
                }
                let here = (*length).min(end - *from);
                out[*to..][..here].copy_from_slice(&bytes[*from - start..][..here]);
                (*from, *to, *length) = (*from + here, *to + here, *length - here);
                if *length > 0 {
                    break;
                }
                runs.next();
            }
            start = end;
        }
        self.check_sum(piece, crc::mask(checksum))
    }

    fn entry(&self, name: &str) -> Result<Entry> {
        let bytes = self.index.get(name.as_bytes())?;
        match bytes {
            Some(bytes) if !name.is_empty() => Entry::decode(&bytes),
            _ => Err(missing(name)),
        }
    }

    /// Refuses an entry whose data file is too short for it, before anything is allocated.
    fn check_extent(&self, entry: &Entry) -> Result<Arc<Source>> {
        let source = self.source(entry.shard)?;
        if entry.offset.checked_add(entry.size).is_none_or(|end| end > source.length()) {
            return Err(file::too_short(source.path()));
        }
        if entry.dtype.is_plain() {
            let want = entry.shape.elements().checked_mul(entry.dtype.size());
            ensure!(
                want == Some(entry.size as usize),
                DataLoss,
                "Invalid size in bundle entry: stored size {}; expected size {}; dtype {}",
                entry.size,
                want.unwrap_or(usize::MAX),
                entry.dtype
            );
        }
        Ok(source)
    }

    fn check_sum(&self, entry: &Entry, computed: u32) -> Result<()> {
        ensure!(
            computed == entry.checksum,
            DataLoss,
            "TensorBundle at {} shard {} ({} bytes): Checksum does not match: stored {} vs. calculated on the restored \
             bytes {}",
            self.prefix,
            entry.shard,
            entry.size,
            crc::unmask(entry.checksum),
            crc::unmask(computed)
        );
        Ok(())
    }

    fn load(&self, entry: &Entry) -> Result<Tensor> {
        let source = self.check_extent(entry)?;
        match entry.dtype {
            DType::String => {
                let bytes = Bytes::from(source.read_vec(entry.offset, entry.size)?);
                let (values, checksum) = strings::decode(bytes, entry.shape.elements())?;
                self.check_sum(entry, crc::mask(checksum))?;
                Tensor::new(entry.shape.clone(), values)
            }
            DType::Variant => {
                let bytes = Bytes::from(source.read_vec(entry.offset, entry.size)?);
                let (values, checksum) = variants::decode(bytes, entry.shape.elements())?;
                self.check_sum(entry, crc::mask(checksum))?;
                Tensor::from_units(DType::Variant, entry.shape.clone(), values)
            }
            dtype if dtype.is_plain() => {
                let mut buffer = allocate(entry.size as usize)?;
                let (mut offset, mut checksum) = (entry.offset, 0);
                for chunk in buffer.make_mut().chunks_mut(CHUNK) {
                    check_cancelled(&self.cancellation)?;
                    source.read(offset, chunk)?;
                    checksum = crc::extend(checksum, chunk);
                    offset += chunk.len() as u64;
                }
                self.check_sum(entry, crc::mask(checksum))?;
                Tensor::from_buffer(dtype, entry.shape.clone(), buffer)
            }
            other => bail!(Unimplemented, "tensors of type {other} cannot be restored"),
        }
    }

    fn source(&self, shard: usize) -> Result<Arc<Source>> {
        ensure!(shard < self.shards, DataLoss, "the index names data file {shard} of {}", self.shards);
        let mut sources = self.sources.lock().expect("no panic while files are opened");
        if let Some(source) = sources.get(&shard) {
            return Ok(source.clone());
        }
        let source = Arc::new(Source::open(data_path(&self.prefix, shard, self.shards))?);
        sources.insert(shard, source.clone());
        Ok(source)
    }
}

fn missing(name: &str) -> ferroflow_core::Status {
    status!(NotFound, "Key {name} not found in checkpoint")
}

/// Allocates memory for a tensor.
fn allocate(bytes: usize) -> Result<Buffer> {
    Buffer::try_zeroed(bytes)
        .ok_or_else(|| status!(ResourceExhausted, "no memory for a tensor of {bytes} bytes"))
}
