//! What a user of Ferroflow imports: one name for the parts of the workspace that are meant to be used from outside.
//!
//! Programs build graphs with [`Graph`], [`Scope`] and [`ops`], differentiate them with [`gradients`], and run them in a
//! [`Session`]: in this process, or on servers.
//!
//! ```
//! use ferroflow::{Graph, Server, Session};
//!
//! let graph = Graph::new();
//! let sum = (&graph.scope().constant([1.0f32, 2.0])? + 1.0)?;
//! assert_eq!(Session::new(&graph)?.eval(&sum)?.flat::<f32>()?, [2.0, 3.0]);
//!
//! // A server that TensorFlow's own clients use as well.
//! let server = Server::local()?;
//! assert_eq!(Session::connect(server.target(), &graph)?.eval(&sum)?.flat::<f32>()?, [2.0, 3.0]);
//! # Ok::<(), ferroflow::Status>(())
//! ```

mod arithmetic;
mod graph;

pub mod clip;
pub mod data;
pub mod device_setter;
mod flags;
pub mod initializers;
pub mod layers;
pub mod logging;
pub mod losses;
pub mod metrics;
pub mod optimizers;
mod reduce;
pub mod schedules;
pub mod server;
mod session;
pub mod strategy;
pub mod summary;
mod target;
pub mod train;
pub mod variables;
mod worker;

pub use device_setter::ReplicaDeviceSetter;
pub use ferroflow_cluster::ServerConfig;
pub use ferroflow_cluster::spec::{ClusterSpec, TaskName};
pub use ferroflow_cluster::waiting::Waiting;
pub use ferroflow_core::op;
pub use ferroflow_core::op::{Grad, IndexedSlices};
pub use ferroflow_core::scope::{
    CollectionItem, Function, Gradients, Import, Input, MetaGraph, OpBuilder, Operation, Output, Scope,
    TensorSpec, gradients, import_meta_graph,
};
pub use ferroflow_core::{Code, DType, PartialShape, Result, Shape, Status, Tensor, ToPartialShape, ToShape};
pub use ferroflow_discovery as discovery;
pub use ferroflow_ops::builders as ops;
pub use ferroflow_ops::flow::{Cond, WhileLoop, cond, while_loop};
pub use ferroflow_ops::registry;
pub use flags::Flags;
pub use graph::Graph;
pub use server::Server;
pub use session::{Callable, PartialRun, RunOptions, Session, SessionOptions, Step, StepOutcome};
pub use target::Target;
pub use variables::{Variable, global_step};
pub use worker::Worker;

/// TensorFlow's own messages that programs meet: graphs as they are written to files, what a traced step tells.
pub mod proto {
    pub use ferroflow_proto::tensorflow::{
        DeviceAttributes, GraphDef, MetaGraphDef, NodeDef, RunMetadata, SaverDef, StepStats, VariableDef,
    };
}

/// The pieces of the guide for users of TensorFlow are compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/from-tensorflow.md")]
mod from_tensorflow {}
