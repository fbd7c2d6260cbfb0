//! Calls of functions on a device that is known only when the step runs.

use ferroflow_core::device::DeviceSpec;
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Result, bail, kernels};

pub(crate) const OPS: &[&Op] = &[&REMOTE_CALL];

static REMOTE_CALL: Op = Op {
    name: "RemoteCall",
    inputs: &["target: string", "args: Tin"],
    outputs: &["output: Tout"],
    attrs: &["Tin: list(type) >= 1", "Tout: list(type) >= 1", "f: func"],
    shape: shapes::unknown,
    kernels: kernels![any remote_call_kernel],
    ..Op::STATEFUL
};

/// Input pipelines of strategies ask for elements this way, on the device that has the iterator.
fn remote_call_kernel(init: &Init<'_>) -> Result<Kernel> {
    let function = init.function("f")?;
    Kernel::future(move |mut cx| {
        let function = function.clone();
        async move {
            let mut arguments = cx.take_all()?;
            let target: Str = arguments.remove(0).to_scalar()?;
            let target = String::from_utf8_lossy(&target).into_owned();
            let parsed = DeviceSpec::parse(&target);
            let Ok(wanted) = parsed else {
                bail!(InvalidArgument, "Could not parse {target} into a device specification.")
            };
            let step = cx.step().clone();
            let outputs = if wanted.matches(step.device.spec()) {
                function.call(arguments, step).await?
            } else {
                function.call_on(target, arguments, step).await?
            };
            Ok(outputs.into())
        }
    })
}
