//! gRPC: the wire form of the services. Nothing here decides anything; [`crate::master`] and [`crate::worker`] do.

pub(crate) mod client;
mod grpc;
pub(crate) mod io;
mod master_service;
mod reader;
mod rope;
pub(crate) mod server;
mod sockets;
mod status;
pub(crate) mod tensor_codec;
mod worker_service;
