//! Writing a file of a store: it appears under its name when it is complete.

use crate::failure;
use crate::location::{Location, check_writable};
use crate::runtime::{wait, wait_for_bytes};
use bytes::BytesMut;
use ferroflow_core::{Result, Status};
use object_store::{MultipartUpload, ObjectStoreExt};

/// Bytes of one part. S3 allows 10,000 parts, so that a file may have 160 GB.
pub(crate) const PART: usize = 16 << 20;

/// A file being written. If dropped before it is finished, it leaves nothing behind under its name.
pub struct Upload {
    url: String,
    location: Location,
    /// Bytes that are not sent yet, less than a part.
    pending: BytesMut,
    /// The upload in parts, if the file is larger than one.
    parts: Option<Box<dyn MultipartUpload>>,
}

impl Upload {
    /// Begins a file, which replaces any of this name once it is finished.
    pub fn create(url: &str) -> Result<Upload> {
        check_writable(url)?;
        let location = Location::parse(url)?;
        Ok(Upload { url: url.to_owned(), location, pending: BytesMut::new(), parts: None })
    }

    /// Appends bytes.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while self.pending.len() + bytes.len() >= PART {
            let (now, later) = bytes.split_at(PART - self.pending.len());
            self.pending.extend_from_slice(now);
            bytes = later;
            self.send_part()?;
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn send_part(&mut self) -> Result<()> {
        let Location { store, path, .. } = &self.location;
        let part = self.pending.split().freeze();
        let parts = match &mut self.parts {
            Some(parts) => parts,
            None => {
                let begun = wait(store.put_multipart(path))?;
                self.parts.insert(begun.map_err(|error| failure::of(&self.url, &error))?)
            }
        };
        wait_for_bytes(PART as u64, parts.put_part(part.into()))?
            .map_err(|error| failure::of(&self.url, &error))
    }

    /// Sends what is left and gives the file its name.
    pub fn finish(mut self) -> Result<()> {
        if self.parts.is_none() {
            let Location { store, path, .. } = &self.location;
            let whole = self.pending.split().freeze();
            let put = wait_for_bytes(PART as u64, store.put(path, whole.into()))?;
            return put.map(drop).map_err(|error| failure::of(&self.url, &error));
        }
        if !self.pending.is_empty() {
            self.send_part()?;
        }
        let Some(mut parts) = self.parts.take() else { return Ok(()) };
        let completed = wait(parts.complete())?;
        completed.map(drop).map_err(|error| self.abort(parts, failure::of(&self.url, &error)))
    }

    /// Gives back the room of parts that were sent.
    fn abort(&self, mut parts: Box<dyn MultipartUpload>, cause: Status) -> Status {
        // The store removes them after some days if it cannot be told.
        let _ = wait(parts.abort());
        cause
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(mut parts) = self.parts.take() {
            let _ = wait(parts.abort());
        }
    }
}
