//! Handles to tensors that a session would keep between steps. Stock's servers keep none: such steps fail there, and
//! programs that meet it fall back to fetching and feeding.

use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Gradient, Op, shapes};
use ferroflow_core::{Result, bail, kernels};

pub(crate) const OPS: &[&Op] =
    &[&GET_SESSION_HANDLE, &GET_SESSION_HANDLE_V2, &GET_SESSION_TENSOR, &DELETE_SESSION_TENSOR];

static GET_SESSION_HANDLE: Op = Op {
    name: "GetSessionHandle",
    gradient: Gradient::Stop,
    inputs: &["value: T"],
    outputs: &["handle: string"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any refuse_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static GET_SESSION_HANDLE_V2: Op = Op {
    name: "GetSessionHandleV2",
    gradient: Gradient::Stop,
    inputs: &["value: T"],
    outputs: &["handle: resource"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any refuse_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static GET_SESSION_TENSOR: Op = Op {
    name: "GetSessionTensor",
    gradient: Gradient::Stop,
    inputs: &["handle: string"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type"],
    kernels: kernels![any refuse_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static DELETE_SESSION_TENSOR: Op = Op {
    name: "DeleteSessionTensor",
    gradient: Gradient::Stop,
    inputs: &["handle: string"],
    kernels: kernels![any refuse_kernel],
    cheap: true,
    ..Op::STATEFUL
};

fn refuse_kernel(init: &Init<'_>) -> Result<Kernel> {
    // Both forms of the first op have one kernel in stock.
    let op = init.op.trim_end_matches("V2").to_owned();
    Kernel::sync(move |_| bail!(FailedPrecondition, "{op} called on null session state"))
}
