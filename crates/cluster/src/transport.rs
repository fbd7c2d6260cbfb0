//! The wire: gRPC for every client and task, and direct connections between Ferroflow tasks.
//!
//! Nothing here makes decisions; [`crate::master`] and [`crate::worker`] do. `docs/wire.md` specifies the direct
//! protocol and the fields that Ferroflow adds to stock's messages.

pub(crate) mod caller;
pub(crate) mod client;
mod coordination_service;
pub(crate) mod direct;
mod eager_service;
mod greeting;
mod grpc;
mod http1;
pub(crate) mod intake;
pub(crate) mod io;
mod keys;
pub(crate) mod local;
mod master_service;
mod reader;
mod rope;
pub(crate) mod server;
pub(crate) mod socket_owner;
mod sockets;
mod status;
pub(crate) mod task_status;
pub(crate) mod tensor_codec;
mod wire_cost;
mod worker_service;
