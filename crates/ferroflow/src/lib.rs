//! Builds, differentiates, trains and distributes TensorFlow graphs from Rust: in one process, or on a cluster whose tasks
//! are Ferroflow or stock TensorFlow.
//!
//! Graphs, variable names, checkpoints and the protocol between tasks are TensorFlow's own. A TensorFlow program can
//! continue from a checkpoint that a Rust program wrote, and the other way around.
//!
//! # Train a classifier
//!
//! A program builds a graph once, then runs steps of it in a session. This one is complete: the digits come with the crate.
//!
//! ```
//! use ferroflow::data::digits::Digits;
//! use ferroflow::layers::{Activation, Dense};
//! use ferroflow::optimizers::{Adam, Optimizer};
//! use ferroflow::train::{MonitoredTrainingSession, StopAtStep};
//! use ferroflow::{DType, Graph, global_step, losses, ops};
//!
//! fn main() -> ferroflow::Result<()> {
//!     // The model: 64 pixels in, one score per digit out. -1 stands for any batch size.
//!     let graph = Graph::new();
//!     let s = graph.scope();
//!     let images = ops::Placeholder::new(DType::Float).shape([-1, 64]).build(&s)?;
//!     let labels = ops::Placeholder::new(DType::Int64).shape([-1]).build(&s)?;
//!     let hidden = Dense::new(32).activation(Activation::Relu).build(&s, &images)?;
//!     let logits = Dense::new(10).build(&s, &hidden)?;
//!     let loss = losses::sparse_softmax_cross_entropy(&s, &labels, &logits)?;
//!
//!     // One training step: gradients of the loss, an update of every variable, and one more on the global step.
//!     let step = global_step(&s)?;
//!     let train = Adam::new(0.01).minimize(&s, &loss, Some(&step))?;
//!
//!     // The loop: hooks decide when it ends. `.checkpoint_dir("digits")` would save checkpoints and summaries.
//!     let mut session = MonitoredTrainingSession::new(&graph).hook(StopAtStep::last(200)).build()?;
//!     let batches = Digits::bundled()?.examples()?.shuffle(1000, 42).repeat().batch(64);
//!     let mut last = f32::INFINITY;
//!     for batch in &batches {
//!         if session.should_stop() {
//!             break;
//!         }
//!         let (x, y) = batch?;
//!         let values = session.run_step(&[(&images, x), (&labels, y)], &[&loss], &[&train])?;
//!         last = values[0].to_scalar()?;
//!     }
//!     session.close()?;
//!     assert!(last < 0.5, "the loss of the last batch is {last}");
//!     Ok(())
//! }
//! ```
//!
//! # Train it on a cluster
//!
//! [`Worker`] turns the same program into a task of a cluster. Flags, `TF_CONFIG` or a scheduler say which task it is; a
//! parameter server only serves, and workers go on to build the graph and train:
//!
//! ```no_run
//! use ferroflow::{Flags, Graph, Worker};
//! # fn main() -> ferroflow::Result<()> {
//!
//! // --ps_hosts=host0:2222 --worker_hosts=host1:2222,host2:2222 --job_name=worker --task_index=0
//! let flags = Flags::from_args(&[])?;
//! let Some(worker) = Worker::start(flags.task_config()?)? else { return Ok(()) };
//! let graph = Graph::new();
//! let s = worker.scope(&graph); // variables on the parameter servers, everything else here
//! // ... the model, as above ...
//! let session = worker.training_session(&graph).build()?; // the chief initializes, the others wait for it
//! # let _ = (s, session);
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! | for | use |
//! |---|---|
//! | graphs and their nodes | [`Graph`], [`Scope`], [`Output`], [`ops`] (a builder per op), [`cond`], [`while_loop`] |
//! | models | [`Variable`], [`initializers`], [`layers`], [`losses`], [`metrics`] |
//! | optimization | [`gradients`], [`optimizers`], [`schedules`], [`clip`] |
//! | input | [`data`]: datasets from memory, CSV files, TFRecord files or any iterator |
//! | running | [`Session`], and [`train`] for checkpoints, hooks and recovery from lost tasks |
//! | clusters | [`Server`], [`ClusterSpec`], [`Worker`], [`ReplicaDeviceSetter`], [`strategy`], [`discovery`] |
//! | watching | [`summary`] for TensorBoard, [`logging`] |
//!
//! Every function that can fail returns a [`Result`] with a [`Status`], whose [`Code`] is the one that TensorFlow would
//! report. A shape or type that does not fit is an error of the line that adds the node, not of the step that runs it.
//!
//! The repository has a guide for users of TensorFlow (`docs/from-tensorflow.md`), which shows each Python idiom beside
//! the Rust one, and nine complete programs in `crates/ferroflow/examples`.

mod arithmetic;
mod graph;

mod client_session;
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

pub use client_session::ClientSession;
pub use device_setter::ReplicaDeviceSetter;
pub use ferroflow_cluster::logged_wait::LoggedWait;
pub use ferroflow_cluster::spec::{ClusterSpec, TaskName};
pub use ferroflow_cluster::{LocalUsers, ServerConfig};
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

/// TensorFlow's protobuf messages that programs meet: graphs as files hold them, and the measurements of traced steps.
pub mod proto {
    pub use ferroflow_proto::tensorflow::{
        DeviceAttributes, GraphDef, MetaGraphDef, NodeDef, RunMetadata, SaverDef, StepStats, VariableDef,
    };
}

/// Compiles the Rust code of the guide for users of TensorFlow with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/from-tensorflow.md")]
mod from_tensorflow {}

/// Compiles the Rust code of the crate's README with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
