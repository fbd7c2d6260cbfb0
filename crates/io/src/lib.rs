//! Bytes on disk: checkpoint bundles and the sorted tables that index them, and checkpoints of the first format.
//!
//! This crate knows tensors but nothing of graphs, ops or steps. Everything read is checked: arbitrary bytes give an
//! error, never a panic or an allocation beyond what the file's own size justifies.

pub mod bundle;
pub mod crc;
pub mod file;
pub mod table;
pub mod v1;
