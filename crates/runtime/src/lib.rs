//! Planning and execution within one process: plans a graph for a set of feeds and fetches, and runs it step after
//! step.
//!
//! The crate receives a registry and knows no concrete op, no gRPC and no cluster membership. Modules are listed in
//! reading order.

pub mod env;
pub mod pool;

pub mod plan;

mod exec;
pub mod executable;
pub mod functions;

pub mod partial;
pub mod rendezvous;
pub mod trace;

pub mod cost;

#[cfg(test)]
mod testing;

pub use cost::cost_nodes;
pub use env::{OtherDevices, RuntimeEnv};
pub use executable::{Executable, StepRun};
pub use partial::PartialHub;
pub use plan::{PlanOptions, Signature};
pub use pool::ComputePool;
pub use rendezvous::LocalRendezvous;
pub use trace::StepTrace;
