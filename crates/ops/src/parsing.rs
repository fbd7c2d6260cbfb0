//! Serialized `tf.Example` and `tf.SequenceExample` messages turned into tensors, read from the wire format without
//! building messages.
//!
//! The parse ops and datasets that parse share this module. [`example::ExampleParser`] is made once from the features
//! that are wanted; it is immutable, so any number of threads may use it at once:
//!
//! - [`example::ExampleParser::parse_batch`] parses a vector of records. Dense outputs have a leading dimension of their
//!   number, sparse ones are matrices, ragged ones have a split per record. It cuts large batches among the threads it is
//!   given.
//! - [`example::ExampleParser::parse_one`] parses one record; outputs have no batch dimension.
//!
//! Both return [`example::Parsed`], whose tensors stand in the order of the op's outputs. Errors have stock's code and
//! words. Strings may share the memory of the record they come from.

pub(crate) mod described;
pub(crate) mod described_wire;
pub(crate) mod example;
pub(crate) mod sequence;
mod values;
mod wire;

use ferroflow_core::Result;
use ferroflow_core::attr::FromAttr;
use ferroflow_core::kernel::Init;
use ferroflow_core::op::ShapeCx;

/// The attributes of a node: those of a kernel in the making, or of a shape function.
pub(crate) trait AttrSource {
    fn get<T: FromAttr>(&self, attr: &str) -> Result<T>;
}

impl AttrSource for Init<'_> {
    fn get<T: FromAttr>(&self, attr: &str) -> Result<T> {
        self.attr(attr)
    }
}

impl AttrSource for ShapeCx<'_> {
    fn get<T: FromAttr>(&self, attr: &str) -> Result<T> {
        self.attr(attr)
    }
}
