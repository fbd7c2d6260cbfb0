//! Calls to other tasks.

mod channel;
mod inquiry;
mod lanes;
mod method;
mod peers;
mod remote_eager;
mod remote_master;
mod remote_worker;
mod when_ready;

pub(crate) use inquiry::Inquiry;
pub(crate) use peers::{Channels, Naming, Peers};
pub(crate) use remote_master::RemoteMaster;
pub(crate) use remote_worker::RemoteWorker;
