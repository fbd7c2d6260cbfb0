//! The distributed half of Ferroflow: masters that keep sessions, workers that run their graphs, and the wire between
//! them.
//!
//! A server that runs alone is a cluster of one task, so there is no separate code path for it. The crate receives an
//! op registry; it knows neither kernels nor how clients build graphs. Modules are listed in reading order.

pub mod spec;

pub mod api;

pub mod eager;
pub mod master;
pub mod worker;

pub mod logged_wait;
mod presence;
mod requests;
mod transport;

pub mod client;
mod listeners;
mod local_users;
mod metrics;
pub mod probe;
pub mod server;

pub use client::MasterClient;
pub use listeners::{Listeners, PortSharer};
pub use local_users::LocalUsers;
pub use server::{Server, ServerConfig};

/// Returns a random number for names that must differ from all earlier ones.
fn random() -> ferroflow_core::Result<u64> {
    getrandom::u64()
        .map_err(|error| ferroflow_core::status!(Internal, "the system provides no random numbers: {error}"))
}
