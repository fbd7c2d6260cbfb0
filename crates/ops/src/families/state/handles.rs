//! Handles themselves: whether they own what they refer to, and copies that do not.

use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::resource::ResourceHandle;
use ferroflow_core::{DType, Result, Shape, Tensor, kernels};

pub(crate) const OPS: &[&Op] = &[&IS_RESOURCE_HANDLE_REF_COUNTING, &MAKE_WEAK_RESOURCE_HANDLE];

static IS_RESOURCE_HANDLE_REF_COUNTING: Op = Op {
    name: "IsResourceHandleRefCounting",
    inputs: &["handle: resource"],
    outputs: &["result: bool"],
    shape: shapes::scalar,
    kernels: kernels![any is_ref_counting_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static MAKE_WEAK_RESOURCE_HANDLE: Op = Op {
    name: "MakeWeakResourceHandle",
    inputs: &["handle: resource"],
    outputs: &["dup: resource"],
    shape: shapes::scalar,
    kernels: kernels![any make_weak_kernel],
    cheap: true,
    ..Op::STATEFUL
};

fn is_ref_counting_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(cx.handle(0)?.owned_resource().is_some()).into()))
}

/// A handle by name alone, with which a resource without a name cannot be found.
fn make_weak_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let handle = cx.handle(0)?;
        let weak = ResourceHandle::named(
            handle.device(),
            handle.container(),
            handle.name(),
            handle.type_name(),
            handle.shapes().to_vec(),
        );
        Ok(Tensor::from_units(DType::Resource, Shape::scalar(), vec![weak])?.into())
    })
}
