//! What a user of Ferroflow imports: one name for the parts of the workspace that are meant to be used from outside.
//!
//! ```no_run
//! use ferroflow::{Server, ServerConfig};
//!
//! let listener = std::net::TcpListener::bind("127.0.0.1:2222").unwrap();
//! let (config, ops) = (ServerConfig::default(), ferroflow::registry());
//! let server = Server::start(config, ops, vec![listener], std::future::pending()).unwrap();
//! println!("serving {}", server.target());
//! server.join();
//! ```
//!
//! Programs build graphs with [`Graph`], [`Scope`] and [`ops`], and differentiate them with [`gradients`].

mod graph;

pub mod data;
pub mod summary;

pub use ferroflow_cluster::spec::{ClusterSpec, TaskName};
pub use ferroflow_cluster::{Server, ServerConfig};
pub use ferroflow_core::op;
pub use ferroflow_core::op::{Grad, IndexedSlices};
pub use ferroflow_core::scope::{
    CollectionItem, Gradients, Input, OpBuilder, Operation, Output, Scope, gradients,
};
pub use ferroflow_core::{Code, DType, PartialShape, Result, Shape, Status, Tensor};
pub use ferroflow_ops::build as ops;
pub use ferroflow_ops::registry;
pub use graph::Graph;
