//! gRPC: the wire form of the services. Nothing here decides anything; [`crate::master`] and [`crate::worker`] do.

mod grpc;
mod master_service;
mod reader;
mod rope;
pub(crate) mod server;
mod status;
pub(crate) mod tensor_codec;
mod worker_service;
