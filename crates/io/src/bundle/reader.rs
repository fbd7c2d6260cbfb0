//! Reads checkpoints: whole tensors, and any box out of however a tensor was cut.

use super::entry::{Entry, HEADER_KEY, shards_of};
use super::slice::TensorSlice;
use super::{data_path, index_path, strings};
use crate::crc;
use crate::file::Source;
use crate::table::TableReader;
use bytes::Bytes;
use ferroflow_core::tensor::{Buffer, Storage};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, status};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// An open checkpoint. Any number of threads may read.
pub struct BundleReader {
    prefix: String,
    index: TableReader,
    shards: usize,
    /// Data files by number, opened when first needed.
    sources: Mutex<HashMap<usize, Arc<Source>>>,
}

impl BundleReader {
    /// Opens a checkpoint.
    pub fn open(prefix: &str) -> Result<BundleReader> {
        let index = TableReader::open(&index_path(prefix))?;
        let header = index.get(HEADER_KEY)?;
        let header = header.ok_or_else(|| status!(DataLoss, "the checkpoint {prefix} has no header"))?;
        let shards = shards_of(&header)?;
        Ok(BundleReader { prefix: prefix.to_owned(), index, shards, sources: Mutex::default() })
    }

    /// A tensor's type and full shape.
    pub fn lookup(&self, name: &str) -> Result<(DType, Shape)> {
        let entry = self.entry(name)?;
        Ok((entry.dtype, entry.shape))
    }

    /// A whole tensor, put together from its slices if it was cut.
    pub fn read(&self, name: &str) -> Result<Tensor> {
        let entry = self.entry(name)?;
        if entry.slices.is_empty() {
            return self.load(&entry);
        }
        self.gather(name, &entry, &TensorSlice::whole(entry.shape.rank()))
    }

    /// A part of a tensor.
    pub fn read_slice(&self, name: &str, slice: &TensorSlice) -> Result<Tensor> {
        let entry = self.entry(name)?;
        let shape = slice.shape_within(&entry.shape)?;
        if !entry.slices.is_empty() {
            return self.gather(name, &entry, slice);
        }
        let whole = self.load(&entry)?;
        if slice.is_whole(&entry.shape) {
            return Ok(whole);
        }
        let mut out = Assembly::new(whole.dtype(), shape)?;
        out.copy(
            &whole,
            &TensorSlice::whole(entry.shape.rank()).bounds(&entry.shape),
            &slice.bounds(&entry.shape),
        )?;
        out.finish()
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
                "slice {stored} of {name} does not have the type and shape that the tensor promises"
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
        let mut out = Assembly::new(entry.dtype, shape)?;
        for (bounds, piece) in &pieces {
            out.copy(&self.load(piece)?, bounds, &wanted)?;
        }
        out.finish()
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
        let end = entry.offset.checked_add(entry.size);
        ensure!(end.is_some_and(|end| end <= source.length()), OutOfRange, "Read less bytes than requested");
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

    fn load(&self, entry: &Entry) -> Result<Tensor> {
        let source = self.check_extent(entry)?;
        let check = |computed: u32| {
            ensure!(
                computed == entry.checksum,
                DataLoss,
                "TensorBundle at {} shard {} ({} bytes): Checksum does not match: stored {} vs. calculated on the \
                 restored bytes {}",
                self.prefix,
                entry.shard,
                entry.size,
                crc::unmask(entry.checksum),
                crc::unmask(computed)
            );
            Ok(())
        };
        match entry.dtype {
            DType::String => {
                let bytes = Bytes::from(source.read_vec(entry.offset, entry.size)?);
                let (values, checksum) = strings::decode(bytes, entry.shape.elements())?;
                check(crc::mask(checksum))?;
                Tensor::new(entry.shape.clone(), values)
            }
            dtype if dtype.is_plain() => {
                let mut buffer = Buffer::zeroed(entry.size as usize);
                source.read(entry.offset, buffer.make_mut())?;
                check(crc::masked(buffer.as_slice()))?;
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

/// The box that two boxes share.
fn intersection(a: &[(i64, i64)], b: &[(i64, i64)]) -> Option<Vec<(i64, i64)>> {
    let common = |(a, b): (&(i64, i64), &(i64, i64))| {
        let (start, end) = (a.0.max(b.0), (a.0 + a.1).min(b.0 + b.1));
        (end > start).then_some((start, end - start))
    };
    a.iter().zip(b).map(common).collect()
}

/// A tensor put together from parts of others.
enum Assembly {
    Plain(DType, Shape, Buffer),
    Strings(Shape, Vec<Bytes>),
}

impl Assembly {
    fn new(dtype: DType, shape: Shape) -> Result<Assembly> {
        match dtype {
            DType::String => {
                let values = vec![Bytes::new(); shape.elements()];
                Ok(Assembly::Strings(shape, values))
            }
            _ => {
                let bytes = shape.elements().checked_mul(dtype.size());
                let bytes = bytes.ok_or_else(|| status!(DataLoss, "{dtype} tensor of shape {shape}"))?;
                Ok(Assembly::Plain(dtype, shape, Buffer::zeroed(bytes)))
            }
        }
    }

    /// Copies what a tensor standing at `from` has of the box `to`, which is this assembly.
    fn copy(&mut self, tensor: &Tensor, from: &[(i64, i64)], to: &[(i64, i64)]) -> Result<()> {
        let Some(common) = intersection(from, to) else { return Ok(()) };
        match (self, tensor.storage()) {
            (Assembly::Plain(dtype, _, out), Storage::Plain(source)) => {
                let (size, source, out) = (dtype.size(), source.as_slice(), out.make_mut());
                for_each_run(&common, from, to, |at, target, length| {
                    out[target * size..][..length * size]
                        .copy_from_slice(&source[at * size..][..length * size]);
                });
            }
            (Assembly::Strings(_, out), Storage::Strings(source)) => {
                for_each_run(&common, from, to, |at, target, length| {
                    out[target..][..length].clone_from_slice(&source[at..][..length]);
                });
            }
            _ => bail!(DataLoss, "slices of one tensor have different types"),
        }
        Ok(())
    }

    fn finish(self) -> Result<Tensor> {
        match self {
            Assembly::Plain(dtype, shape, buffer) => Tensor::from_buffer(dtype, shape, buffer),
            Assembly::Strings(shape, values) => Tensor::new(shape, values),
        }
    }
}

/// Visits the rows of `common` as (offset in `from`, offset in `to`, length), counted in elements.
fn for_each_run(
    common: &[(i64, i64)],
    from: &[(i64, i64)],
    to: &[(i64, i64)],
    mut visit: impl FnMut(usize, usize, usize),
) {
    let Some(((_, length), outer)) = common.split_last() else { return visit(0, 0, 1) };
    let offset = |point: &[i64], bounds: &[(i64, i64)]| {
        point.iter().zip(bounds).fold(0, |sum, (at, (start, length))| sum * length + at - start) as usize
    };
    let mut point: Vec<i64> = common.iter().map(|(start, _)| *start).collect();
    loop {
        visit(offset(&point, from), offset(&point, to), *length as usize);
        let mut dim = outer.len();
        loop {
            let Some(next) = dim.checked_sub(1) else { return };
            dim = next;
            point[dim] += 1;
            if point[dim] < outer[dim].0 + outer[dim].1 {
                break;
            }
            point[dim] = outer[dim].0;
        }
    }
}
