//! State that ops keep between steps, or between the ops of one step: what handles and references lead to.

pub(crate) mod accumulator;
pub(crate) mod anonymous;
pub(crate) mod batcher;
pub(crate) mod csr;
pub(crate) mod queue;
pub(crate) mod reader;
pub(crate) mod ref_handle;
pub(crate) mod resource_name;
pub(crate) mod rng_state;
pub(crate) mod summary_writer;
pub(crate) mod table;
pub(crate) mod tensor_array;
pub(crate) mod tensor_list;
pub(crate) mod variable;
pub(crate) mod variant_tensors;
pub(crate) mod watched;
