//! Reads tables: the index is kept in memory, blocks are read on demand.

use super::block::Block;
use super::{FOOTER_LENGTH, MAGIC, TRAILER_LENGTH};
use crate::crc;
use crate::file::Source;
use ferroflow_core::{Result, bail, ensure, status};
use prost::encoding::decode_varint;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// An open table.
pub struct TableReader {
    source: Source,
    index: Block,
    /// The block that was read last: lookups usually come in key order.
    recent: Mutex<Option<(Handle, Arc<Block>)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Handle {
    offset: u64,
    size: u64,
}

impl TableReader {
    /// Opens a table and reads its index.
    pub fn open(path: &Path) -> Result<TableReader> {
        let source = Source::open(path)?;
        let footer_length = FOOTER_LENGTH as u64;
        let long_enough = source.length() >= footer_length;
        ensure!(long_enough, DataLoss, "file is too short to be an sstable: {}", path.display());
        let footer = source.read_vec(source.length() - footer_length, footer_length)?;
        let (handles, magic) = footer.split_at(FOOTER_LENGTH - 8);
        ensure!(
            magic == MAGIC.to_le_bytes(),
            DataLoss,
            "not an sstable (bad magic number): {}",
            path.display()
        );
        let mut handles = handles;
        let _meta = Handle::parse(&mut handles)?;
        let index = Block::new(read_block(&source, Handle::parse(&mut handles)?)?)?;
        Ok(TableReader { source, index, recent: Mutex::new(None) })
    }

    /// The value under a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut handle = None;
        self.index.scan(Some(key), |last, value| {
            if last < key {
                return Ok(true);
            }
            handle = Some(Handle::parse(&mut &*value)?);
            Ok(false)
        })?;
        let Some(handle) = handle else { return Ok(None) };
        let mut found = None;
        self.block(handle)?.scan(Some(key), |candidate, value| {
            if candidate == key {
                found = Some(value.to_vec());
            }
            Ok(candidate < key)
        })?;
        Ok(found)
    }

    /// Visits every entry in order.
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.index.scan(None, |_, value| {
            let block = self.block(Handle::parse(&mut &*value)?)?;
            block.scan(None, |key, value| visit(key, value).map(|()| true))?;
            Ok(true)
        })
    }

    fn block(&self, handle: Handle) -> Result<Arc<Block>> {
        let mut recent = self.recent.lock().expect("no panic while a block is read");
        if let Some((known, block)) = &*recent
            && *known == handle
        {
            return Ok(block.clone());
        }
        let block = Arc::new(Block::new(read_block(&self.source, handle)?)?);
        *recent = Some((handle, block.clone()));
        Ok(block)
    }
}

impl Handle {
    fn parse(bytes: &mut &[u8]) -> Result<Handle> {
        let mut number = || decode_varint(bytes).map_err(|_| status!(DataLoss, "bad block handle"));
        Ok(Handle { offset: number()?, size: number()? })
    }
}

fn read_block(source: &Source, handle: Handle) -> Result<Vec<u8>> {
    let whole = handle.size.checked_add(TRAILER_LENGTH as u64);
    let end = whole.and_then(|length| length.checked_add(handle.offset));
    let (Some(whole), Some(end)) = (whole, end) else { bail!(DataLoss, "bad block handle") };
    let path = source.path().display();
    ensure!(end <= source.length(), DataLoss, "truncated block read: {path}");
    let mut bytes = source.read_vec(handle.offset, whole)?;
    let trailer = bytes.split_off(handle.size as usize);
    let stored = u32::from_le_bytes(trailer[1..].try_into().expect("a trailer has five bytes"));
    let computed = crc::mask(crc::extend(crc::extend(0, &bytes), &trailer[..1]));
    ensure!(stored == computed, DataLoss, "block checksum mismatch: {path}");
    match trailer[0] {
        0 => Ok(bytes),
        1 => snap::raw::Decoder::new()
            .decompress_vec(&bytes)
            .or_else(|_| bail!(DataLoss, "corrupted compressed block contents: {path}")),
        other => bail!(DataLoss, "bad block type {other}: {path}"),
    }
}
