//! Resources without a name, which their handles own.

use ferroflow_core::kernel::{KernelCx, Outputs};
use ferroflow_core::resource::{Resource, ResourceHandle};
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, Result, Shape, Tensor, bail};
use ferroflow_proto::tensorflow::VariantTensorDataProto;
use std::sync::{Arc, Weak};

/// A handle that owns a resource.
pub(crate) fn handle(cx: &KernelCx<'_>, name: &str, resource: Arc<dyn Resource>) -> Result<Tensor> {
    let name = format!("{name}{}", cx.step().resources.unique_number());
    let handle = ResourceHandle::owned(cx.device().name(), &name, Vec::new(), resource);
    Tensor::from_units(DType::Resource, Shape::scalar(), vec![handle])
}

/// A handle that owns a resource, and the value with which older clients delete it.
pub(crate) fn with_deleter(cx: &KernelCx<'_>, name: &str, resource: Arc<dyn Resource>) -> Result<Outputs> {
    let deleter = Tensor::from_units(DType::Variant, Shape::scalar(), vec![Variant::new(Deleter)])?;
    Ok([handle(cx, name, resource)?, deleter].into())
}

/// A name for a resource without one, for handles that are written as strings. It does not keep the resource alive.
struct Alias<R>(Weak<R>);

impl<R: Resource> Resource for Alias<R> {
    fn type_name(&self) -> &'static str {
        "Alias"
    }
}

/// Gives a resource that its handles own a name under which [`resolve`] finds it as long as it lives.
pub(crate) fn alias<R: Resource>(cx: &KernelCx<'_>, handle: &ResourceHandle, resource: &Arc<R>) {
    if handle.owned_resource().is_some() {
        let alias = Arc::new(Alias(Arc::downgrade(resource)));
        // It may have been named before.
        let _ = cx.step().resources.create(handle.container(), handle.name(), alias);
    }
}

/// The resource that a handle from a string names, and a handle that keeps it alive if nothing else does.
pub(crate) fn resolve<R: Resource>(
    cx: &KernelCx<'_>,
    handle: ResourceHandle,
) -> Result<(ResourceHandle, Arc<R>)> {
    let resources = &cx.step().resources;
    let alias = resources.lookup::<Alias<R>>(handle.container(), handle.name());
    let Some(resource) = alias.ok().and_then(|alias| alias.0.upgrade()) else {
        let resource = resources.resolve(&handle)?;
        return Ok((handle, resource));
    };
    let owner = ResourceHandle::owned(handle.device(), handle.name(), Vec::new(), resource.clone());
    Ok((owner, resource))
}

/// The value that a client keeps beside a handle and passes to the op that deletes the resource.
struct Deleter;

impl VariantValue for Deleter {
    fn type_name(&self) -> &str {
        "tensorflow::ResourceDeleter"
    }

    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        bail!(Unimplemented, "the deleter of a resource cannot leave its device")
    }
}
