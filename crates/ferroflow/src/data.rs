//! Input: datasets in Rust, from memory, CSV files, TFRecord files or any iterator.
//!
//! A [`Dataset`] is a recipe for elements: nothing is read until it is iterated, and it can be iterated any number of
//! times. Elements are ordinary Rust values. Types that stack into tensors ([`Stack`]) can be batched:
//!
//! ```
//! use ferroflow::data::Dataset;
//! use ferroflow::Tensor;
//!
//! # fn main() -> ferroflow::Result<()> {
//! let numbers = Dataset::from_fn(|| 0..10i64);
//! let batches = numbers
//!     .filter(|x| x % 3 != 0)
//!     .map(|x| (x as f32, x))
//!     .shuffle(4, 7)
//!     .batch(2)
//!     .prefetch(1);
//! for batch in &batches {
//!     let (floats, integers): (Tensor, Tensor) = batch?;
//!     assert_eq!(floats.shape().dims(), [2]);
//!     assert_eq!(integers.dtype(), ferroflow::DType::Int64);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Everything is deterministic: the same seed gives the same order, whatever the number of threads, and
//! [`Dataset::shuffle`] gives TensorFlow's order for that seed.

mod background;
mod csv;
mod dataset;
pub mod digits;
mod example;
mod interleave;
mod records;
mod shuffle;
mod stack;

pub use csv::{Column, CsvFile, csv, csv_rows};
pub use dataset::{Dataset, Elements};
pub use example::{ExampleSpec, Feature, SparseRows, encode_example, sparse_rows};
pub use ferroflow_io::record::{Compression, RecordWriter};
pub use records::{tf_record, tf_record_compressed};
pub use stack::{Slices, Stack};

use crate::Tensor;
use std::collections::BTreeMap;

/// Tensors by name: one row of a CSV file, one parsed example, or a batch of either.
pub type Features = BTreeMap<String, Tensor>;
