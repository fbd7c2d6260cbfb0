//! Files that grow while others read them. A local file is written in place. Remote files cannot be appended to: bytes
//! gather in a temporary file of this machine, and every flush uploads all of it, as stock does.

use crate::file;
use crate::path::remote_url;
use ferroflow_core::{Result, status};
use ferroflow_remote::Upload;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes read at once from the temporary file.
const CHUNK: usize = 1 << 20;

/// A file being appended to.
pub(crate) enum Destination {
    Local(File),
    Remote(Spool),
}

/// The bytes of a remote file.
pub(crate) struct Spool {
    url: String,
    file: File,
    length: u64,
    /// True if bytes came since the last upload.
    changed: bool,
}

impl Destination {
    /// Creates a file, replacing any existing one.
    pub(crate) fn create(path: &Path) -> Result<Destination> {
        match remote_url(path) {
            Some(url) => Ok(Destination::Remote(Spool::new(url)?)),
            None => File::create(path).map(Destination::Local).map_err(|error| file::status(path, &error)),
        }
    }

    /// Creates a file; an error if it exists.
    pub(crate) fn create_new(path: &Path) -> Result<Destination> {
        if let Some(url) = remote_url(path) {
            let taken = ferroflow_remote::exists(url)?;
            return if taken {
                Err(status!(AlreadyExists, "{url}; File exists"))
            } else {
                Ok(Destination::Remote(Spool::new(url)?))
            };
        }
        File::create_new(path).map(Destination::Local).map_err(|error| file::status(path, &error))
    }
}

impl Spool {
    fn new(url: &str) -> Result<Spool> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("ferroflow-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let created = File::options().read(true).write(true).create_new(true).open(&path);
        let file = created.map_err(|error| file::status(&path, &error))?;
        // It goes with the last handle, however the process ends.
        fs::remove_file(&path).map_err(|error| file::status(&path, &error))?;
        // An empty file is there from the start, as a local one is.
        Ok(Spool { url: url.to_owned(), file, length: 0, changed: true })
    }

    fn upload(&mut self) -> Result<()> {
        if !self.changed {
            return Ok(());
        }
        let mut upload = Upload::create(&self.url)?;
        let mut chunk = vec![0; CHUNK.min(self.length as usize)];
        let mut offset = 0;
        while offset < self.length {
            let length = ((self.length - offset) as usize).min(CHUNK);
            let read = self.file.read_exact_at(&mut chunk[..length], offset);
            read.map_err(|error| file::status(&self.url, &error))?;
            upload.write(&chunk[..length])?;
            offset += length as u64;
        }
        upload.finish()?;
        self.changed = false;
        Ok(())
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Destination::Local(file) => file.write(bytes),
            Destination::Remote(spool) => {
                let written = spool.file.write(bytes)?;
                spool.length += written as u64;
                spool.changed = true;
                Ok(written)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Destination::Local(file) => file.flush(),
            Destination::Remote(spool) => spool.upload().map_err(io::Error::other),
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // Writers that want to know of failures flush before.
        let _ = self.upload();
    }
}
