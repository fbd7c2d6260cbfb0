//! Snappy in blocks, as stock frames it in record files: the compressed length of each block (4 bytes, big endian), and
//! the block.

use std::io::{Error, ErrorKind, Read, Result, Write};

/// The most uncompressed bytes in a block that is written.
const BLOCK: usize = 256 << 10;
/// The longest block that is read. Stock's writer has buffers of this size at most.
const MAX_BLOCK: usize = 64 << 20;

/// Reads what [`FramedWriter`] or stock wrote.
pub struct FramedReader<R> {
    source: R,
    block: Vec<u8>,
    next: usize,
}

impl<R: Read> FramedReader<R> {
    /// Reads from a source of blocks.
    pub fn new(source: R) -> FramedReader<R> {
        FramedReader { source, block: Vec::new(), next: 0 }
    }

    /// Reads the next block; false at the end.
    fn fill(&mut self) -> Result<bool> {
        let mut length = [0; 4];
        let got = self.source.by_ref().take(4).read(&mut length)?;
        if got == 0 {
            return Ok(false);
        }
        self.source.read_exact(&mut length[got..])?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_BLOCK {
            return Err(Error::new(ErrorKind::InvalidData, format!("a snappy block of {length} bytes")));
        }
        // The buffer grows with the data that is there, not with the length that the block claims.
        let mut compressed = Vec::with_capacity(length.min(1 << 16));
        self.source.by_ref().take(length as u64).read_to_end(&mut compressed)?;
        if compressed.len() < length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let invalid = |error: snap::Error| Error::new(ErrorKind::InvalidData, error);
        if snap::raw::decompress_len(&compressed).map_err(invalid)? > MAX_BLOCK {
            return Err(Error::new(ErrorKind::InvalidData, "a snappy block is too long"));
        }
        self.block = snap::raw::Decoder::new().decompress_vec(&compressed).map_err(invalid)?;
        self.next = 0;
        Ok(true)
    }
}

impl<R: Read> Read for FramedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        while self.next == self.block.len() {
            if !self.fill()? {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.block.len() - self.next);
        buffer[..count].copy_from_slice(&self.block[self.next..self.next + count]);
        self.next += count;
        Ok(count)
    }
}

/// Writes blocks when enough bytes have come, and when it is flushed.
pub struct FramedWriter<W: Write> {
    sink: W,
    block: Vec<u8>,
}

impl<W: Write> FramedWriter<W> {
    /// Writes blocks to a sink.
    pub fn new(sink: W) -> FramedWriter<W> {
        FramedWriter { sink, block: Vec::new() }
    }

    /// Writes what is left.
    pub fn finish(mut self) -> Result<W> {
        self.write_block()?;
        Ok(self.sink)
    }

    fn write_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let compressed = snap::raw::Encoder::new().compress_vec(&self.block).map_err(Error::other)?;
        self.block.clear();
        self.sink.write_all(&(compressed.len() as u32).to_be_bytes())?;
        self.sink.write_all(&compressed)
    }
}

impl<W: Write> Write for FramedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let count = bytes.len().min(BLOCK - self.block.len());
        self.block.extend_from_slice(&bytes[..count]);
        if self.block.len() == BLOCK {
            self.write_block()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<()> {
        self.write_block()?;
        self.sink.flush()
    }
}
