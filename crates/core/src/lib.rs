//! The shared vocabulary of Ferroflow: status, element types, shapes, tensors, devices, graphs, the declaration of an
//! op, the context a kernel runs in, resources, the rendezvous contract, and how programs build graphs.
//!
//! This crate knows no concrete op, no file, no socket and no async runtime. Modules stand in reading order.

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

pub mod attr;
pub mod op;

pub mod kernel;

pub mod graph;

pub mod scope;

pub use dtype::DType;
pub use shape::{PartialShape, Shape, ToPartialShape, ToShape};
pub use status::{Code, Result, Status};
pub use tensor::{C64, C128, Element, Tensor, Unit};

/// Numeric types that kernels name.
pub use half::{bf16, f16};

/// A future that owns what it needs and may run on any thread.
pub type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'static>>;
