//! The direct path between two of our own tasks: a connection on which the caller starts parts of steps and both sides
//! push the tensors that the other one needs, without being asked for each.
//!
//! A task says that it takes such connections when a session is opened on it; stock's tasks never do, and neither side
//! needs the path: whoever cannot be reached so is called as stock's tasks are.

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
