//! The executor: walks a plan's dense arrays, node by node, as inputs arrive. `layout` prepares them once per plan,
//! `run` drives a step, `frames` holds the state of its loops, `turn` bounds its time on a thread, and `inbox` brings
//! results back.
//!
//! One owner drives a step and touches its state without locks: cheap kernels run in place, large ones go to other
//! compute threads if there is more to do, and kernels that wait are polled. Their completions come back through one
//! small inbox.

pub(crate) mod frames;
pub(crate) mod inbox;
pub(crate) mod layout;
pub(crate) mod run;
#[cfg(test)]
mod tests;
pub(crate) mod turn;
