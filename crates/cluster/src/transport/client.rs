//! The client side of the wire: calls to the masters and workers of other processes.

mod channel;
mod lanes;
mod method;
mod peers;
mod remote_coordination;
mod remote_eager;
mod remote_master;
mod remote_worker;
mod status_client;
mod when_ready;

pub(crate) use peers::{Channels, Naming, Peers};
pub(crate) use remote_master::RemoteMaster;
pub(crate) use remote_worker::RemoteWorker;
pub(crate) use status_client::StatusClient;
