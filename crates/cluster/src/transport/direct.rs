//! Direct connections between Ferroflow tasks.
//!
//! The caller, a master's task, starts parts of steps on the connection, and both sides push the tensors that the other
//! needs without a request for each. `docs/wire.md` specifies the protocol.
//!
//! A task announces that it accepts such connections when a session is opened on it. Stock's tasks never do, and
//! nothing depends on the connection: where it cannot be made, tasks use gRPC, as with stock.

mod frames;
mod incoming;
mod link;
mod memory;
mod serve;
#[cfg(test)]
mod tests;

pub(crate) use frames::{GREETING, RunPart};
pub(crate) use link::{Link, LinkHandle, connect};
pub(crate) use memory::PeerMemory;
pub(crate) use serve::serve;
