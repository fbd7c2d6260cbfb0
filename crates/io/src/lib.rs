//! Bytes on disk: checkpoint bundles and the sorted tables that index them, checkpoints of the first format, record
//! files and event files.
//!
//! This crate knows tensors but nothing of graphs, ops or steps. Everything read is checked: arbitrary bytes give an
//! error, never a panic or an allocation beyond what the file's own size justifies.

pub mod bundle;
pub mod crc;
pub mod events;
pub mod file;
pub mod image;
pub mod path;
pub mod record;
pub mod table;
pub mod v1;
