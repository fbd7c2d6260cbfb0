//! Checkpoints in TensorFlow's bundle format: data files with raw values and an index table that names them.
//!
//! `<prefix>.index` maps a tensor's name to its type, shape and place; `<prefix>.data-<k>-of-<n>` hold the bytes. A
//! partitioned variable has an entry without data under its full name, and one entry per slice.
//!
//! A checkpoint becomes valid when its index gets its final name, after everything else is on disk. A checkpoint that
//! replaces another under the same prefix uses a different number of data files, adding an empty one if necessary, so
//! that data files of the two never have the same name: at whatever moment a process dies, the index and the data it
//! names belong to one checkpoint.

mod entry;
mod merge;
mod reader;
mod replace;
pub(crate) mod runs;
mod slice;
mod strings;
mod variants;
mod writer;

pub use merge::merge;
pub use reader::{BundleReader, StoredTensor};
pub use slice::{SliceSpec, TensorSlice};
pub use writer::BundleWriter;

use crate::path::checkpoint_prefix;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::{Code, Result, status};
use std::path::PathBuf;

/// The number of bytes that are read or written, and added to a checksum, at a time; fits into a cache.
const CHUNK: usize = 1 << 20;

/// Refuses to go on once the step that wants a file is cancelled.
pub fn check_cancelled(cancellation: &Cancellation) -> Result<()> {
    if !cancellation.is_cancelled() {
        return Ok(());
    }
    Err(cancellation.reason().unwrap_or_else(|| status!(Cancelled, "the step was cancelled")))
}

/// Returns whether there is a checkpoint with this prefix; false where the file system cannot be searched.
pub fn exists(prefix: &str) -> Result<bool> {
    match checkpoint_prefix(prefix) {
        Err(error) if error.code() == Code::Unimplemented => Ok(false),
        prefix => crate::file::exists(index_path(prefix?)),
    }
}

/// The path of an index.
fn index_path(prefix: &str) -> PathBuf {
    format!("{prefix}.index").into()
}

/// The path of a data file.
fn data_path(prefix: &str, shard: usize, shards: usize) -> PathBuf {
    format!("{prefix}.data-{shard:05}-of-{shards:05}").into()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod kill_tests;
