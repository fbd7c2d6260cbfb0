//! Parts that several families share: attributes and shapes as kernels see them, loops around numeric routines, gradients
//! that many ops have in common, text and messages in stock's form.

pub(crate) mod batches;
pub(crate) mod blocking;
pub(crate) mod convolution;
pub(crate) mod cwise;
pub(crate) mod declared_types;
pub(crate) mod distribution;
pub(crate) mod epilogue;
pub(crate) mod gradient;
pub(crate) mod image;
pub(crate) mod index;
pub(crate) mod matrices;
pub(crate) mod optimizer;
pub(crate) mod pooling;
pub(crate) mod re2;
pub(crate) mod rows;
pub(crate) mod sparse;
pub(crate) mod strided;
pub(crate) mod text;
pub(crate) mod timer;
pub(crate) mod unicode;
pub(crate) mod units;
pub(crate) mod variants;
pub(crate) mod widen;
pub(crate) mod windows;
pub(crate) mod wire;
