//! Writes tables, key by key in ascending order.

use super::block::BlockBuilder;
use super::{FOOTER_LENGTH, MAGIC};
use crate::crc;
use crate::file::Sink;
use ferroflow_core::{Result, ensure};
use prost::encoding::encode_varint;
use std::path::Path;

/// The size at which blocks are closed, as in stock.
const BLOCK_SIZE: usize = 256 * 1024;

/// A writer of a table whose keys arrive in ascending order. The file appears when it is finished.
pub struct TableWriter {
    sink: Sink,
    block: BlockBuilder,
    index: BlockBuilder,
    last_key: Option<Vec<u8>>,
}

impl TableWriter {
    /// Starts a table.
    pub fn create(path: &Path) -> Result<TableWriter> {
        Ok(TableWriter {
            sink: Sink::create(path)?,
            block: BlockBuilder::default(),
            index: BlockBuilder::default(),
            last_key: None,
        })
    }

    /// Adds an entry; its key must be greater than the one before.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        ensure!(
            self.last_key.as_deref().is_none_or(|last| last < key),
            InvalidArgument,
            "keys of a table must ascend, got {:?} after {:?}",
            String::from_utf8_lossy(key),
            String::from_utf8_lossy(self.last_key.as_deref().unwrap_or_default())
        );
        self.block.add(key, value);
        self.last_key = Some(key.to_vec());
        if self.block.size() >= BLOCK_SIZE { self.close_block() } else { Ok(()) }
    }

    fn close_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let bytes = self.block.finish();
        let handle = self.write_block(&bytes)?;
        // The last key itself separates a block from the next one; a shorter separator would save a few bytes.
        self.index.add(self.last_key.as_deref().unwrap_or_default(), &handle);
        Ok(())
    }

    fn write_block(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        const UNCOMPRESSED: u8 = 0;
        let mut handle = Vec::new();
        encode_varint(self.sink.written(), &mut handle);
        encode_varint(bytes.len() as u64, &mut handle);
        let checksum = crc::mask(crc::extend(crc::extend(0, bytes), &[UNCOMPRESSED]));
        self.sink.write(bytes)?;
        self.sink.write(&[UNCOMPRESSED])?;
        self.sink.write(&checksum.to_le_bytes())?;
        Ok(handle)
    }

    /// Writes the index and the footer, and gives the file its name.
    pub fn finish(mut self) -> Result<()> {
        self.close_block()?;
        let empty = BlockBuilder::default().finish();
        let mut footer = self.write_block(&empty)?;
        let index = self.index.finish();
        footer.extend(self.write_block(&index)?);
        footer.resize(FOOTER_LENGTH - 8, 0);
        footer.extend_from_slice(&MAGIC.to_le_bytes());
        self.sink.write(&footer)?;
        self.sink.finish()
    }
}
