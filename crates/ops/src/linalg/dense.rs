//! Decompositions of dense matrices, stored row by row.
//!
//! The algorithms are the classic ones, arranged so that the innermost loops run along rows and large matrices are
//! left to matrix products: factorizations split in halves, rotations are collected and applied many at a time. A
//! library was measured first: `faer` is faster on matrices of hundreds of rows but several times slower on small ones,
//! and costs a minute of compilation; `nalgebra` neither blocks nor dispatches on the processor.

pub(crate) mod cholesky;
pub(crate) mod functions;
pub(crate) mod general;
pub(crate) mod lu;
mod panel;
pub(crate) mod reflection;
pub(crate) mod rotation;
pub(crate) mod scalar;
pub(crate) mod schur;
pub(crate) mod self_adjoint;
pub(crate) mod svd;
pub(crate) mod triangular;

/// Matrices of at most this many rows are not split further.
const SMALL: usize = 32;
