//! Resources without a name, which their handles own.

use ferroflow_core::kernel::{KernelCx, Outputs};
use ferroflow_core::resource::{Resource, ResourceHandle};
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, Result, Shape, Tensor, bail};
use ferroflow_proto::tensorflow::VariantTensorDataProto;
use std::sync::Arc;

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
