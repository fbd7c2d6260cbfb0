//! The executor: walks a plan's dense arrays, node by node, as inputs arrive.
//!
//! One owner drives a step and touches its state without locks: cheap kernels run in place, large ones go to other
//! compute threads when there is more to do, and kernels that wait are polled. What they complete comes back through
//! one small inbox.

pub(crate) mod frames;
pub(crate) mod inbox;
pub(crate) mod layout;
pub(crate) mod run;
#[cfg(test)]
mod tests;
pub(crate) mod turn;
