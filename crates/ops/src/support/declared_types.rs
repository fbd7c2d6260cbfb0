//! Output types of nodes that take tensors out of a collection, which may hold others than the node declares.

use ferroflow_core::kernel::Init;
use ferroflow_core::{DType, Result, Tensor, ensure};
use std::sync::Arc;

/// The types that a node declares for its outputs.
#[derive(Clone)]
pub(crate) struct DeclaredTypes {
    node: Arc<str>,
    types: Arc<[DType]>,
}

impl DeclaredTypes {
    pub(crate) fn new(init: &Init<'_>) -> DeclaredTypes {
        DeclaredTypes { node: init.node.into(), types: init.output_types.into() }
    }

    /// The number of outputs.
    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// Refuses tensors of other types, as stock's executor does.
    pub(crate) fn check(&self, outputs: &[Tensor]) -> Result<()> {
        for (i, (output, declared)) in outputs.iter().zip(&*self.types).enumerate() {
            ensure!(
                output.dtype() == *declared,
                Internal,
                "Output {i} of type {} does not match declared output type {declared} for node {{{{node {}}}}}",
                output.dtype(),
                self.node
            );
        }
        Ok(())
    }
}
