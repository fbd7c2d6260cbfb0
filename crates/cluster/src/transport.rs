//! The wire: gRPC for everybody, and a direct path between tasks of our own. Nothing here decides anything; [`crate::master`] and [`crate::worker`] do.

pub(crate) mod caller;
pub(crate) mod client;
pub(crate) mod direct;
mod eager_service;
mod greeting;
mod grpc;
pub(crate) mod intake;
pub(crate) mod introduction;
pub(crate) mod io;
mod keys;
pub(crate) mod local;
mod master_service;
mod reader;
mod rope;
pub(crate) mod server;
mod sockets;
mod status;
pub(crate) mod tensor_codec;
mod wire_cost;
mod worker_service;
