//! Numeric routines without op knowledge: products, broadcasting, reductions. The only place of this crate with
//! `unsafe` code.

pub(crate) mod batch_norm;
pub(crate) mod broadcast;
pub(crate) mod complex;
pub(crate) mod conv;
pub(crate) mod denormals;
pub(crate) mod dense;
pub(crate) mod depthwise;
pub(crate) mod elementary;
pub(crate) mod elementwise;
pub(crate) mod float8;
pub(crate) mod fourier;
pub(crate) mod functions;
pub(crate) mod gather;
mod plain_product;
pub(crate) mod pool;
pub(crate) mod product;
pub(crate) mod reduce;
pub(crate) mod scatter_nd;
pub(crate) mod softmax;
pub(crate) mod sparse_product;
pub(crate) mod special;
pub(crate) mod strided_copy;
pub(crate) mod window;

/// Parts in which sums over much are taken. It is the same however many threads share them, so that rounding, and with it
/// every result, does not depend on the machine.
const SUM_PARTS: usize = 8;
