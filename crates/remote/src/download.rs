//! Reading a file of a store at any offset.

use crate::failure;
use crate::location::Location;
use crate::runtime::{wait, wait_for_bytes};
use bytes::Bytes;
use ferroflow_core::{Result, Status, status};
use object_store::ObjectStoreExt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Bytes fetched at once for reads that are smaller, which mostly go on where the last one ended.
const BLOCK: u64 = 4 << 20;

/// A file opened for reading at any offset, by any number of threads.
pub struct RemoteFile {
    url: String,
    location: Location,
    length: u64,
    /// The bytes fetched last, and where they begin.
    block: Mutex<(u64, Bytes)>,
}

impl RemoteFile {
    /// Opens a file.
    pub fn open(url: &str) -> Result<RemoteFile> {
        let location = Location::parse(url)?;
        let meta = wait(location.store.head(&location.path))?.map_err(|error| failure::of(url, &error))?;
        Ok(RemoteFile { url: url.to_owned(), location, length: meta.size, block: Mutex::default() })
    }

    /// The file's length when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Fills `buffer` with the bytes from `offset` on.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.length);
        let end = end.ok_or_else(|| self.too_short())?;
        if buffer.is_empty() {
            return Ok(());
        }
        if buffer.len() as u64 >= BLOCK {
            buffer.copy_from_slice(&self.fetch(offset..end)?);
            return Ok(());
        }
        let mut block = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, bytes) = &*block;
        if offset < *first || end > first + bytes.len() as u64 {
            let fetched = self.fetch(offset..(offset + BLOCK).min(self.length))?;
            *block = (offset, fetched);
        }
        let start = (offset - block.0) as usize;
        buffer.copy_from_slice(&block.1[start..start + buffer.len()]);
        Ok(())
    }

    fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        let wanted = range.end - range.start;
        let fetched = wait_for_bytes(wanted, self.location.store.get_range(&self.location.path, range))?;
        let fetched = fetched.map_err(|error| failure::of(&self.url, &error))?;
        if fetched.len() as u64 == wanted { Ok(fetched) } else { Err(self.too_short()) }
    }

    fn too_short(&self) -> Status {
        status!(OutOfRange, "Read less bytes than requested: {}", self.url)
    }
}
