//! Many processes: masters that keep sessions, workers that run their graphs, and the gRPC services that carry both.
//!
//! One server is a cluster of one task; everything here already speaks of tasks and devices in the plural. The crate
//! receives an op registry and knows no kernel, nor how clients build graphs. Modules stand in reading order.

pub mod spec;

pub mod api;

pub mod eager;
pub mod master;
pub mod worker;

mod requests;
mod transport;
pub mod waiting;

pub mod client;
pub mod probe;
pub mod server;

pub use client::MasterClient;
pub use server::{Server, ServerConfig};

/// A random number for names that must differ from all earlier ones.
fn random() -> ferroflow_core::Result<u64> {
    getrandom::u64().map_err(|error| ferroflow_core::status!(Internal, "no random numbers: {error}"))
}
