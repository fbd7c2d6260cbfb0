//! Files that are reached over a network: `s3://bucket/key`, `gs://bucket/key`, and `http://` and `https://` for reading.
//!
//! Calls block, as those of local files do; callers are threads that may wait for disks. Every wait is bounded: a request
//! that fails is sent again for a minute, with growing pauses, and each attempt has a deadline. Credentials come from the
//! variables that other tools use (`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`, …).
//!
//! This crate knows nothing of file formats. `ferroflow-io` decides which names are URLs of it.

mod connection;
mod download;
mod failure;
mod location;
mod runtime;
mod upload;

pub use download::RemoteFile;
pub use location::{check_writable, is_remote};
pub use upload::Upload;

use ferroflow_core::Result;
use futures_util::TryStreamExt;
use location::Location;
use object_store::ObjectStoreExt;
use runtime::wait;
use std::time::SystemTime;

/// The facts that a store knows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The size in bytes.
    pub length: u64,
    /// The time of the last change.
    pub modified: SystemTime,
}

/// Returns what the store knows of a file; `NotFound` if there is none. Directories are not files.
pub fn metadata(url: &str) -> Result<Metadata> {
    let Location { store, path, .. } = Location::parse(url)?;
    let meta = wait(store.head(&path))?.map_err(|error| failure::of(url, &error))?;
    Ok(Metadata { length: meta.size, modified: meta.last_modified.into() })
}

/// Lists the files and directories in a directory by their names; none if it does not exist.
pub fn list(directory: &str) -> Result<Vec<String>> {
    let Location { store, path, .. } = Location::parse(directory)?;
    let found = wait(store.list_with_delimiter(Some(&path)))?;
    let found = found.map_err(|error| failure::of(directory, &error))?;
    let files = found.objects.iter().filter_map(|meta| meta.location.filename());
    let directories = found.common_prefixes.iter().filter_map(|prefix| prefix.filename());
    Ok(files.chain(directories).map(str::to_owned).collect())
}

/// Returns whether there is a file of this name, or a directory with files.
pub fn exists(url: &str) -> Result<bool> {
    let Location { store, path, .. } = Location::parse(url)?;
    match wait(store.head(&path))? {
        Ok(_) => return Ok(true),
        Err(object_store::Error::NotFound { .. }) => {}
        Err(error) => return Err(failure::of(url, &error)),
    }
    // Behind plain URLs there are no directories to list.
    if location::is_read_only(url) {
        return Ok(false);
    }
    let first = wait(async { store.list(Some(&path)).try_next().await })?;
    Ok(first.map_err(|error| failure::of(url, &error))?.is_some())
}

/// Removes a file.
pub fn remove(url: &str) -> Result<()> {
    check_writable(url)?;
    let Location { store, path, .. } = Location::parse(url)?;
    wait(store.delete(&path))?.map_err(|error| failure::of(url, &error))
}

/// Gives a file another name, replacing any that has it. The store copies it; for a moment both are there.
pub fn rename(from: &str, to: &str) -> Result<()> {
    check_writable(to)?;
    let (source, target) = (Location::parse(from)?, Location::parse(to)?);
    if source.root == target.root {
        let copied = wait(source.store.copy(&source.path, &target.path))?;
        copied.map_err(|error| failure::of(from, &error))?;
    } else {
        let file = RemoteFile::open(from)?;
        let mut upload = Upload::create(to)?;
        let mut part = vec![0; upload::PART];
        let mut offset = 0;
        while offset < file.length() {
            let length = (file.length() - offset).min(part.len() as u64) as usize;
            file.read_at(offset, &mut part[..length])?;
            upload.write(&part[..length])?;
            offset += length as u64;
        }
        upload.finish()?;
    }
    remove(from)
}
