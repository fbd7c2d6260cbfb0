//! Calls to other tasks.

mod channel;
mod peers;
mod remote_worker;

pub(crate) use peers::{Channels, Naming, Peers};
pub(crate) use remote_worker::RemoteWorker;
