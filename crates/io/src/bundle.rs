//! Checkpoints in TensorFlow's bundle format: data files with raw values and an index table that names them.
//!
//! `<prefix>.index` maps a tensor's name to its type, shape and place; `<prefix>.data-<k>-of-<n>` hold the bytes. A
//! partitioned variable has an entry without data under its full name, and one entry per slice.

mod entry;
mod merge;
mod reader;
mod slice;
mod strings;
mod writer;

pub use merge::merge;
pub use reader::BundleReader;
pub use slice::{SliceSpec, TensorSlice};
pub use writer::BundleWriter;

use std::path::PathBuf;

/// The path of an index.
pub fn index_path(prefix: &str) -> PathBuf {
    format!("{prefix}.index").into()
}

/// The path of a data file.
pub fn data_path(prefix: &str, shard: usize, shards: usize) -> PathBuf {
    format!("{prefix}.data-{shard:05}-of-{shards:05}").into()
}

#[cfg(test)]
mod tests;
