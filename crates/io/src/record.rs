//! TFRecord files: a sequence of byte strings, each with its length and two checksums, plain or compressed.
//!
//! A record is its length (8 bytes, little endian), the masked checksum of these 8 bytes, the data, and the masked
//! checksum of the data. Offsets in errors refer to uncompressed data.

use crate::crc;
use crate::file::{self, SequentialReader};
use crate::framed_snappy::{FramedReader, FramedWriter};
use crate::path::resolve_path;
use crate::spool::Destination;
use bytes::Bytes;
use ferroflow_core::{Result, Status, bail, ensure, status};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const HEADER: usize = 12;
const FOOTER: usize = 4;

/// The compression of a record file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// The gzip format.
    Gzip,
    /// The zlib format.
    Zlib,
    /// Blocks of snappy, each behind its length.
    Snappy,
}

impl Compression {
    /// The compression with stock's name for it: empty, `GZIP`, `ZLIB` or `SNAPPY`.
    pub fn from_name(name: &str) -> Result<Compression> {
        match name {
            "" => Ok(Compression::None),
            "GZIP" => Ok(Compression::Gzip),
            "ZLIB" => Ok(Compression::Zlib),
            "SNAPPY" => Ok(Compression::Snappy),
            other => bail!(InvalidArgument, "Unsupported compression_type: {other}"),
        }
    }
}

/// A reader of the records of one file, in order.
pub struct RecordReader {
    source: Box<dyn Read + Send>,
    path: PathBuf,
    position: u64,
    /// Set after an error or the end: data after a corrupt record cannot be trusted.
    ended: bool,
}

impl RecordReader {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>, compression: Compression) -> Result<RecordReader> {
        let path = resolve_path(path)?;
        let file = BufReader::with_capacity(1 << 18, SequentialReader::open(&path)?);
        Ok(RecordReader { path, ..RecordReader::new(file, compression) })
    }

    /// Reads records from any source.
    pub fn new(source: impl std::io::BufRead + Send + 'static, compression: Compression) -> RecordReader {
        let source: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(source),
            Compression::Gzip => Box::new(BufReader::new(MultiGzDecoder::new(source))),
            Compression::Zlib => Box::new(BufReader::new(ZlibDecoder::new(source))),
            Compression::Snappy => Box::new(FramedReader::new(source)),
        };
        RecordReader { source, path: PathBuf::from("records"), position: 0, ended: false }
    }

    /// The size of the records read so far, in bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next record; `None` at the end.
    ///
    /// A file that ends within a record is data loss, even if it ends in the record's first twelve bytes, where stock
    /// sees a normal end.
    pub fn read(&mut self) -> Result<Option<Bytes>> {
        if self.ended {
            return Ok(None);
        }
        let record = self.read_record();
        self.ended = !matches!(record, Ok(Some(_)));
        record
    }

    fn read_record(&mut self) -> Result<Option<Bytes>> {
        let start = self.position;
        let mut header = [0; HEADER];
        let got = self.fill(&mut header)?;
        if got == 0 {
            return Ok(None);
        }
        ensure!(got == HEADER, DataLoss, "truncated record at {start}");
        let (length, sum) = header.split_at(8);
        if crc::masked(length).to_le_bytes() != *sum {
            let hint = if start == 0 { " (Is this even a TFRecord file?)" } else { "" };
            bail!(DataLoss, "corrupted record at {start}{hint}");
        }
        let length = u64::from_le_bytes(length.try_into().expect("a header starts with eight bytes"));
        // The buffer grows with the data that is there, not with the length that the record claims.
        let mut data = Vec::with_capacity(length.min(1 << 16) as usize);
        let got = self.source.by_ref().take(length).read_to_end(&mut data);
        let got = got.map_err(|error| self.broken(&error))?;
        let mut sum = [0; FOOTER];
        let whole = got as u64 == length && self.fill(&mut sum)? == FOOTER;
        ensure!(whole, DataLoss, "truncated record at {start}' failed with Read less bytes than requested");
        let data_start = start + HEADER as u64;
        ensure!(crc::masked(&data).to_le_bytes() == sum, DataLoss, "corrupted record at {data_start}");
        self.position = data_start + length + FOOTER as u64;
        Ok(Some(data.into()))
    }

    /// Reads until `buffer` is full or the file ends.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.source.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(&error)),
            }
        }
        Ok(filled)
    }

    fn broken(&self, error: &std::io::Error) -> Status {
        use std::io::ErrorKind;
        let position = self.position;
        match error.kind() {
            // The error kinds of decoders for invalid input.
            ErrorKind::InvalidData | ErrorKind::InvalidInput => {
                status!(DataLoss, "inflate() failed at record {position}: {error}")
            }
            ErrorKind::UnexpectedEof => {
                status!(DataLoss, "truncated record at {position}' failed with EOF reached")
            }
            _ => file::status(&self.path, error),
        }
    }
}

impl Iterator for RecordReader {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        self.read().transpose()
    }
}

enum Output {
    Plain(BufWriter<Destination>),
    Gzip(GzEncoder<BufWriter<Destination>>),
    Zlib(ZlibEncoder<BufWriter<Destination>>),
    Snappy(FramedWriter<BufWriter<Destination>>),
}

impl Output {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Output::Plain(writer) => writer,
            Output::Gzip(writer) => writer,
            Output::Zlib(writer) => writer,
            Output::Snappy(writer) => writer,
        }
    }
}

/// A writer of a record file. Records are in the file after [`RecordWriter::flush`] or [`RecordWriter::finish`], or
/// when the writer is dropped, which ignores failures.
pub struct RecordWriter {
    output: Output,
    path: PathBuf,
}

impl RecordWriter {
    /// Creates a file, replacing any existing one.
    pub fn create(path: impl AsRef<Path>, compression: Compression) -> Result<RecordWriter> {
        let path = resolve_path(path)?;
        let file = Destination::create(&path)?;
        Ok(RecordWriter::new(file, path, compression))
    }

    /// Creates a file; an error if it exists.
    pub fn create_new(path: impl AsRef<Path>, compression: Compression) -> Result<RecordWriter> {
        let path = resolve_path(path)?;
        let file = Destination::create_new(&path)?;
        Ok(RecordWriter::new(file, path, compression))
    }

    fn new(file: Destination, path: PathBuf, compression: Compression) -> RecordWriter {
        let file = BufWriter::with_capacity(1 << 16, file);
        let level = flate2::Compression::default();
        let output = match compression {
            Compression::None => Output::Plain(file),
            Compression::Gzip => Output::Gzip(GzEncoder::new(file, level)),
            Compression::Zlib => Output::Zlib(ZlibEncoder::new(file, level)),
            Compression::Snappy => Output::Snappy(FramedWriter::new(file)),
        };
        RecordWriter { output, path }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record.
    pub fn write(&mut self, record: &[u8]) -> Result<()> {
        let length = (record.len() as u64).to_le_bytes();
        let sums = [crc::masked(&length), crc::masked(record)].map(u32::to_le_bytes);
        let writer = self.output.writer();
        let parts = [&length[..], &sums[0], record, &sums[1]];
        let written = parts.into_iter().try_for_each(|part| writer.write_all(part));
        written.map_err(|error| file::status(&self.path, &error))
    }

    /// Flushes all records to the file.
    pub fn flush(&mut self) -> Result<()> {
        self.output.writer().flush().map_err(|error| file::status(&self.path, &error))
    }

    /// Closes the file.
    pub fn finish(self) -> Result<()> {
        let ended = match self.output {
            Output::Plain(writer) => Ok(writer),
            Output::Gzip(writer) => writer.finish(),
            Output::Zlib(writer) => writer.finish(),
            Output::Snappy(writer) => writer.finish(),
        };
        ended.and_then(|mut writer| writer.flush()).map_err(|error| file::status(&self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;
    use std::io::Cursor;

    const RECORDS: [&[u8]; 3] = [b"hello", b"", &[7; 300]];

    fn written(compression: Compression) -> Vec<u8> {
        let name = format!("ferroflow-record-{}-{compression:?}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut writer = RecordWriter::create(&path, compression).unwrap();
        RECORDS.iter().for_each(|record| writer.write(record).unwrap());
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        bytes
    }

    fn read(bytes: Vec<u8>, compression: Compression) -> (usize, Option<Status>) {
        let mut reader = RecordReader::new(Cursor::new(bytes), compression);
        let mut count = 0;
        loop {
            match reader.read() {
                Ok(Some(record)) => assert_eq!(record, RECORDS[count]),
                Ok(None) => return (count, None),
                Err(status) => return (count, Some(status)),
            }
            count += 1;
        }
    }

    #[test]
    fn records_survive_a_round_trip() {
        for compression in [Compression::None, Compression::Gzip, Compression::Zlib, Compression::Snappy] {
            let (count, end) = read(written(compression), compression);
            assert_eq!((count, end), (RECORDS.len(), None));
        }
    }

    #[test]
    fn a_cut_at_any_byte_is_data_loss_with_a_position() {
        let bytes = written(Compression::None);
        let ends = [0, 21, 37, bytes.len()];
        for cut in 0..bytes.len() {
            let (count, end) = read(bytes[..cut].to_vec(), Compression::None);
            assert_eq!(count, ends.iter().rposition(|end| *end <= cut).unwrap());
            match end {
                None => assert!(ends.contains(&cut)),
                Some(status) => {
                    assert_eq!(status.code(), Code::DataLoss);
                    let start = format!("truncated record at {}", ends[count]);
                    assert!(status.message().starts_with(&start), "{status:?}");
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_data_loss() {
        let bytes = written(Compression::None);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            let (_, end) = read(damaged, Compression::None);
            assert_eq!(end.unwrap().code(), Code::DataLoss);
        }
        for compression in [Compression::Gzip, Compression::Zlib, Compression::Snappy] {
            let bytes = written(compression);
            let (_, end) = read(bytes[..bytes.len() / 2].to_vec(), compression);
            assert_eq!(end.unwrap().code(), Code::DataLoss);
            let (_, end) = read(written(Compression::None), compression);
            assert_eq!(end.unwrap().code(), Code::DataLoss);
        }
    }

    #[test]
    fn a_length_beyond_the_file_takes_no_memory() {
        let length = (u64::MAX / 2).to_le_bytes();
        let bytes = [&length[..], &crc::masked(&length).to_le_bytes(), b"little"].concat();
        let (_, end) = read(bytes, Compression::None);
        assert_eq!(end.unwrap().code(), Code::DataLoss);
    }
}
