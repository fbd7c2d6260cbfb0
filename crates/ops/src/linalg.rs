//! Numeric routines without op knowledge: products, broadcasting, reductions. The only place of this crate with
//! `unsafe` code.

pub mod batch_norm;
pub mod broadcast;
pub mod complex;
pub mod conv;
pub mod denormals;
pub mod depthwise;
pub mod elementary;
pub mod elementwise;
pub mod float8;
pub mod functions;
pub mod gather;
mod plain_product;
pub mod pool;
pub mod product;
pub mod reduce;
pub mod scatter_nd;
pub mod softmax;
pub mod special;
pub mod strided_copy;
pub mod window;

/// Parts in which sums over much are taken. It is the same however many threads share them, so that rounding, and with it
/// every result, does not depend on the machine.
const SUM_PARTS: usize = 8;
