//! How a task learns who it is and where the others are.

mod topology;

pub use topology::{Count, Topology};
