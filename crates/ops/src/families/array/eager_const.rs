//! Constants that a client places on one of several devices of a task.

use super::identity::identity_grad;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Gradient, Op, shapes};
use ferroflow_core::{Result, kernels};

pub(crate) const OPS: &[&Op] = &[&EAGER_CONST];

static EAGER_CONST: Op = Op {
    name: "_EagerConst",
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    shape: shapes::unchanged,
    kernels: kernels![any pass_kernel],
    gradient: Gradient::Fn(identity_grad),
    cheap: true,
    ..Op::PURE
};

fn pass_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(cx.take(0)?.into()))
}
