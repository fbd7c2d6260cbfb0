//! How a task learns who it is and where the others are.

pub mod pmi;
mod port;
mod topology;

pub use port::{PortChoice, ReservedPort, listen_on};
pub use topology::{Count, Topology};
