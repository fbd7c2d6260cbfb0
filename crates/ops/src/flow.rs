//! Conditionals and loops from Rust closures, and the gradients of calls, conditionals and loops.
//!
//! Branches and bodies become functions of the graph, in the form that stock's second control flow has (`If`, `While`):
//! stock's runtime and ours both run it, and both may turn it into switches and loop frames.

mod branches;
mod calls;
mod conditionals;
mod frames;
mod loops;
mod region;
mod while_gradient;

pub use branches::{Cond, cond};
pub use loops::{WhileLoop, while_loop};

pub(crate) use branches::{case_grad, if_grad};
pub(crate) use calls::call_grad;
pub(crate) use conditionals::{merge_grad, replace_conditional, switch_grad};
pub(crate) use frames::{in_frame_grad, replace_loop};
pub(crate) use while_gradient::while_grad;

use ferroflow_core::scope::{FunctionGraph, Output};

/// The attribute with which a conditional or a loop asks to be turned into switches and merges where that pays.
const LOWER: &str = "_lower_using_switch_merge";

/// Outputs that any of the bodies uses from around it, each once.
fn joint_captures(bodies: &[&FunctionGraph]) -> Vec<Output> {
    let mut joint: Vec<Output> = Vec::new();
    for capture in bodies.iter().flat_map(|body| body.captures()) {
        if !joint.contains(&capture) {
            joint.push(capture);
        }
    }
    joint
}
