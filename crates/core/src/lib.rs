//! The shared vocabulary of Ferroflow: status, element types, shapes, tensors, devices, graphs, the declaration of an
//! op, the context a kernel runs in, resources, the rendezvous contract, and the types that programs build graphs with.
//!
//! This crate knows no concrete op, no file format, no socket and no async runtime. Modules are listed in reading order.

pub mod status;

pub mod dtype;
pub mod shape;

pub mod tensor;
pub mod variant;

pub mod device;
pub mod memory;
pub mod resource;

pub mod cancel;
pub mod rendezvous;
pub mod step;
pub mod turn;

pub mod attr;
pub mod op;

pub mod kernel;

pub mod graph;

pub mod scope;

pub use dtype::DType;
pub use shape::{MAX_RANK, PartialShape, Shape, ToPartialShape, ToShape};
pub use status::{Code, Result, Status};
pub use tensor::{C64, C128, Element, Tensor, Unit};

/// 16-bit floating-point types, re-exported for kernels.
pub use half::{bf16, f16};

/// A future that owns everything it uses and may run on any thread.
pub type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'static>>;
