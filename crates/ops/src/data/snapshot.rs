//! Files of snapshots and of saved datasets, in stock's formats.
//!
//! A directory has `snapshot.metadata` and one directory per run, which has one directory per shard (`00000003.shard`),
//! which has files (`00000000.snapshot`) that are read one after the other. In format 2 every component of an element
//! is a TFRecord; in formats 0 and 1 every element is one message behind its length.

use super::Element;
use crate::data::compressed::{can_copy, tensor_of_bytes};
use crate::data::files;
use bytes::Bytes;
use ferroflow_core::{DType, Result, Shape, Status, Tensor, bail, ensure, status};
use ferroflow_io::file::{self, SequentialReader};
use ferroflow_io::record::{Compression, RecordReader, RecordWriter};
use ferroflow_proto::tensorflow::TensorProto;
use ferroflow_proto::tensorflow::data::experimental::{
    SnapshotMetadataRecord, SnapshotRecord, SnapshotTensorMetadata, TensorMetadata,
};
use flate2::write::GzEncoder;
use prost::Message;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The format that is written, but by the first version of snapshots.
pub(crate) const RECORDS: i64 = 2;
/// The format of the first version of snapshots.
pub(crate) const MESSAGES: i64 = 1;

const METADATA: &str = "snapshot.metadata";
const SHARD_SUFFIX: &str = ".shard";

/// The directory of a shard within that of a run.
pub(crate) fn shard_directory(run: &Path, shard: i64) -> PathBuf {
    run.join(format!("{shard:08}{SHARD_SUFFIX}"))
}

fn file_path(shard: &Path, number: u64) -> PathBuf {
    shard.join(format!("{number:08}.snapshot"))
}

/// The shards of a run, in the order of their names.
pub(crate) fn shards(run: &Path) -> Result<Vec<String>> {
    let mut names = file::list(run)?;
    names.retain(|name| name.ends_with(SHARD_SUFFIX));
    names.sort();
    Ok(names.into_iter().map(|name| run.join(name).to_string_lossy().into_owned()).collect())
}

/// Reads the metadata of a directory; `None` if there is none.
pub(crate) fn read_metadata(directory: &Path) -> Result<Option<SnapshotMetadataRecord>> {
    let path = directory.join(METADATA);
    if !file::exists(&path)? {
        return Ok(None);
    }
    let decoded = SnapshotMetadataRecord::decode(Bytes::from(file::read(&path)?));
    match decoded {
        Ok(metadata) => Ok(Some(metadata)),
        Err(_) => bail!(DataLoss, "Can't parse {} as binary proto", path.display()),
    }
}

/// Replaces the metadata of a directory.
pub(crate) fn write_metadata(directory: &Path, metadata: &SnapshotMetadataRecord) -> Result<()> {
    file::create_directories(directory)?;
    file::write(directory.join(METADATA), &metadata.encode_to_vec())
}

/// Metadata of a run that begins now.
pub(crate) fn metadata(run_id: &str, version: i64, types: &[DType]) -> SnapshotMetadataRecord {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    SnapshotMetadataRecord {
        creation_timestamp: now.as_micros() as i64,
        run_id: run_id.to_owned(),
        version,
        dtype: types.iter().map(|dtype| dtype.to_wire()).collect(),
        ..SnapshotMetadataRecord::default()
    }
}

/// The compression of snapshots: none, `GZIP`, `SNAPPY`, or `ZLIB` with records.
pub(crate) fn compression(name: &str) -> Result<Compression> {
    match name {
        "AUTO" => Ok(Compression::Snappy),
        name => Compression::from_name(name),
    }
}

/// A writer of the first file of a shard.
pub(crate) enum Writer {
    Records(RecordWriter),
    Messages { sink: MessageSink, compression: Compression, types: Arc<[DType]> },
}

/// The file of a [`Writer::Messages`].
pub(crate) enum MessageSink {
    Plain(BufWriter<std::fs::File>),
    Gzip(GzEncoder<BufWriter<std::fs::File>>),
}

impl Writer {
    /// Creates the file.
    pub(crate) fn create(
        shard: &Path,
        number: u64,
        compression: Compression,
        version: i64,
        types: &Arc<[DType]>,
    ) -> Result<Writer> {
        file::create_directories(shard)?;
        let path = file_path(shard, number);
        if version == RECORDS {
            return Ok(Writer::Records(RecordWriter::create(path, compression)?));
        }
        let created = std::fs::File::create(&path).map_err(|error| file::status(&path, &error))?;
        let created = BufWriter::new(created);
        let sink = match compression {
            Compression::Gzip => MessageSink::Gzip(GzEncoder::new(created, flate2::Compression::default())),
            _ => MessageSink::Plain(created),
        };
        Ok(Writer::Messages { sink, compression, types: types.clone() })
    }

    /// Appends an element.
    pub(crate) fn write(&mut self, element: &[Tensor]) -> Result<()> {
        match self {
            Writer::Records(writer) => {
                element.iter().try_for_each(|tensor| writer.write(&tensor.to_proto()?.encode_to_vec()))
            }
            Writer::Messages { sink, compression: Compression::Snappy, types } => {
                let (metadata, bytes) = uncompressed(element, types)?;
                let compressed = snap::raw::Encoder::new().compress_vec(&bytes);
                let compressed =
                    compressed.map_err(|_| status!(Internal, "Failed to compress using snappy."))?;
                sink.write(&metadata.encode_to_vec())?;
                sink.write(&compressed)
            }
            Writer::Messages { sink, .. } => {
                let tensor = element.iter().map(Tensor::to_proto).collect::<Result<_>>()?;
                sink.write(&SnapshotRecord { tensor }.encode_to_vec())
            }
        }
    }

    /// Closes the file.
    pub(crate) fn finish(self) -> Result<()> {
        let sink = match self {
            Writer::Records(writer) => return writer.finish(),
            Writer::Messages { sink, .. } => sink,
        };
        let ended = match sink {
            MessageSink::Plain(sink) => Ok(sink),
            MessageSink::Gzip(sink) => sink.finish(),
        };
        let ended = ended.and_then(|mut sink| sink.flush());
        ended.map_err(|error| file::status("a snapshot", &error))
    }
}

impl MessageSink {
    fn write(&mut self, message: &[u8]) -> Result<()> {
        let sink: &mut dyn Write = match self {
            MessageSink::Plain(sink) => sink,
            MessageSink::Gzip(sink) => sink,
        };
        let length = (message.len() as u64).to_le_bytes();
        let written = sink.write_all(&length).and_then(|()| sink.write_all(message));
        written.map_err(|error| file::status("a snapshot", &error))
    }
}

/// The bytes of an element, one component after the other, and how long each is.
fn uncompressed(element: &[Tensor], types: &[DType]) -> Result<(SnapshotTensorMetadata, Vec<u8>)> {
    let (mut metadata, mut bytes) = (SnapshotTensorMetadata::default(), Vec::new());
    for (tensor, dtype) in element.iter().zip(types) {
        let start = bytes.len();
        if can_copy(*dtype) {
            bytes.extend_from_slice(tensor.bytes()?);
        } else {
            bytes.extend_from_slice(&tensor.to_proto()?.encode_to_vec());
        }
        metadata.tensor_metadata.push(TensorMetadata {
            tensor_shape: Some(tensor.shape().to_proto()),
            tensor_size_bytes: (bytes.len() - start) as i64,
        });
    }
    Ok((metadata, bytes))
}

/// A reader of the files of a shard.
pub(crate) struct Reader {
    shard: PathBuf,
    number: u64,
    compression: Compression,
    version: i64,
    types: Arc<[DType]>,
    current: Current,
    failure: Option<Status>,
}

enum Current {
    Records(RecordReader),
    Messages(files::Input),
    Ended,
}

impl Reader {
    /// Opens the first file.
    pub(crate) fn open(
        shard: &Path,
        compression: Compression,
        version: i64,
        types: &Arc<[DType]>,
    ) -> Result<Reader> {
        ensure!(
            (0..=RECORDS).contains(&version),
            InvalidArgument,
            "Snapshot reader version: {version} is not supported."
        );
        let mut reader = Reader {
            shard: shard.to_owned(),
            number: 0,
            compression,
            version,
            types: types.clone(),
            current: Current::Ended,
            failure: None,
        };
        reader.open_current()?;
        Ok(reader)
    }

    fn path(&self) -> PathBuf {
        file_path(&self.shard, self.number)
    }

    fn open_current(&mut self) -> Result<()> {
        let path = self.path();
        self.current = if self.version == RECORDS {
            Current::Records(RecordReader::open(path, self.compression)?)
        } else {
            let framed = self.version == 0 && self.compression == Compression::Snappy;
            let stream = if self.compression == Compression::Snappy && !framed {
                Compression::None
            } else {
                self.compression
            };
            let file = BufReader::with_capacity(256 << 10, SequentialReader::open(path)?);
            Current::Messages(files::decompressed(file, stream))
        };
        Ok(())
    }

    /// The next element; `None` at the end of the last file. A damaged file fails again and again, as in stock.
    pub(crate) fn next(&mut self) -> Result<Option<Element>> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let next = self.next_of_any();
        self.failure = next.as_ref().err().cloned();
        next
    }

    fn next_of_any(&mut self) -> Result<Option<Element>> {
        loop {
            if let Some(element) = self.next_here()? {
                return Ok(Some(element));
            }
            if matches!(self.current, Current::Ended) {
                return Ok(None);
            }
            self.number += 1;
            self.current = Current::Ended;
            if file::exists(self.path())? {
                self.open_current()?;
            }
        }
    }

    /// The next element of the current file.
    fn next_here(&mut self) -> Result<Option<Element>> {
        let path = self.path();
        match &mut self.current {
            Current::Ended => Ok(None),
            Current::Records(reader) => {
                let mut element = Vec::with_capacity(self.types.len());
                for _ in 0..self.types.len() {
                    let position = RecordReader::position(reader);
                    let Some(record) = reader.read()? else { return Ok(None) };
                    let tensor =
                        TensorProto::decode(record).ok().and_then(|proto| Tensor::from_proto(&proto).ok());
                    element.push(tensor.ok_or_else(|| {
                        status!(
                            DataLoss,
                            "Unable to parse tensor from stored proto in file: {}, record {position}",
                            path.display()
                        )
                    })?);
                }
                Ok(Some(element))
            }
            Current::Messages(input) => {
                let Some(message) = read_message(input, &path)? else { return Ok(None) };
                if self.version == MESSAGES && self.compression == Compression::Snappy {
                    let Some(compressed) = read_message(input, &path)? else { return Ok(None) };
                    return decompressed(message, &compressed, &self.types, &path).map(Some);
                }
                let record = SnapshotRecord::decode(message).unwrap_or_default();
                let tensors = record.tensor.iter().map(Tensor::from_proto).collect::<Result<Element>>();
                match tensors {
                    Ok(element) => Ok(Some(element)),
                    Err(_) => bail!(DataLoss, "Unable to parse tensor from proto in {}.", path.display()),
                }
            }
        }
    }
}

/// A message behind its length; `None` where the file ends, within a message, too, as in stock.
fn read_message(input: &mut files::Input, path: &Path) -> Result<Option<Bytes>> {
    let broken = |error: std::io::Error| files::broken(&path.to_string_lossy(), &error);
    let mut header = Vec::with_capacity(8);
    input.by_ref().take(8).read_to_end(&mut header).map_err(broken)?;
    let Ok(length) = <[u8; 8]>::try_from(header.as_slice()) else { return Ok(None) };
    let length = u64::from_le_bytes(length);
    // The buffer grows with the data that is there, not with the length that the message claims.
    let mut message = Vec::with_capacity(length.min(1 << 16) as usize);
    input.by_ref().take(length).read_to_end(&mut message).map_err(broken)?;
    Ok((message.len() as u64 == length).then(|| message.into()))
}

fn decompressed(message: Bytes, compressed: &[u8], types: &[DType], path: &Path) -> Result<Element> {
    let path = path.display();
    let Ok(metadata) = SnapshotTensorMetadata::decode(message) else {
        bail!(DataLoss, "Could not parse SnapshotTensorMetadata of {path}")
    };
    let components = &metadata.tensor_metadata;
    ensure!(
        components.len() == types.len(),
        DataLoss,
        "Number of tensors in snapshot metadata ({}) does not match number of tensors in dataset elements ({}).",
        components.len(),
        types.len()
    );
    let bytes = snap::raw::Decoder::new().decompress_vec(compressed);
    let bytes = Bytes::from(
        bytes.map_err(|_| status!(Internal, "Failed to perform snappy decompression of {path}."))?,
    );
    let expected: i64 = components.iter().map(|component| component.tensor_size_bytes).sum();
    ensure!(
        components.iter().all(|component| component.tensor_size_bytes >= 0) && bytes.len() as i64 == expected,
        Internal,
        "Uncompressed size mismatch. Snappy expects {} whereas the tensor metadata suggests {expected}",
        bytes.len()
    );
    let mut at = 0;
    let mut element = Vec::with_capacity(types.len());
    for (component, dtype) in components.iter().zip(types) {
        let piece = bytes.slice(at..at + component.tensor_size_bytes as usize);
        at += piece.len();
        element.push(if can_copy(*dtype) {
            let shape = Shape::from_proto(&component.tensor_shape.clone().unwrap_or_default())?;
            tensor_of_bytes(*dtype, shape, &piece)?
        } else {
            let proto =
                TensorProto::decode(piece).map_err(|_| status!(Internal, "Could not parse TensorProto"))?;
            Tensor::from_proto(&proto)?
        });
    }
    Ok(element)
}
