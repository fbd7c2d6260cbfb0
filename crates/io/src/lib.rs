//! File formats: checkpoint bundles and the sorted tables that index them, V1 checkpoints, record files, lines of text,
//! event files, and the formats of images and sound.
//!
//! This crate knows tensors but nothing of graphs, ops or steps. All input is validated: arbitrary bytes give an error,
//! never a panic or an allocation out of proportion to the file's size.

pub mod bundle;
pub mod crc;
pub mod events;
pub mod file;
pub mod framed_snappy;
pub mod image;
pub mod jpeg;
pub mod lines;
pub mod path;
pub mod record;
mod spool;
pub mod table;
pub mod v1;
pub mod wav;
