//! Handles of the first generation of resource ops: a reference to a string vector that names container and resource.

use ferroflow_core::kernel::{KernelCx, Str, Value};
use ferroflow_core::resource::{Resource, ResourceHandle, ResourceManager, Variable};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, status};
use std::sync::Arc;

/// A handle to a resource: an ordinary one, or a reference to the two names.
pub(crate) fn make(
    device: &str,
    container: &str,
    name: &str,
    resource: &dyn Resource,
    by_reference: bool,
) -> Result<Value> {
    if by_reference {
        let variable = Variable::new(DType::String, name);
        variable.assign(names(container, name))?;
        return Ok(Value::Ref(Arc::new(variable)));
    }
    let handle = ResourceHandle::named(device, container, name, resource.type_name(), Vec::new());
    Ok(Value::Tensor(Tensor::from_units(DType::Resource, Shape::scalar(), vec![handle])?))
}

/// The two names as a value, which is the handle of the second generation.
pub(crate) fn names(container: &str, name: &str) -> Tensor {
    Tensor::vector([container, name].map(|text| Str::copy_from_slice(text.as_bytes())).to_vec())
}

/// The container and name that an input stands for, in any form.
pub(crate) fn names_of(cx: &KernelCx<'_>, input: usize) -> Result<(String, String)> {
    let names = match cx.input(input) {
        Ok(tensor) if tensor.dtype() == DType::Resource => {
            let handle = cx.handle(input)?;
            return Ok((handle.container().to_owned(), handle.name().to_owned()));
        }
        Ok(tensor) => tensor.clone(),
        Err(_) => cx.variable(input)?.read()?,
    };
    let [container, name] = names.flat::<Str>()? else {
        bail!(InvalidArgument, "Resource handle must have 2 elements, but had shape: {}", names.shape());
    };
    let text = |bytes: &Str| {
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| status!(InvalidArgument, "a resource handle must be UTF-8 text"))
    };
    Ok((text(container)?, text(name)?))
}

/// The resource behind input 0, in any form.
pub(crate) fn resolve<R: Resource>(cx: &KernelCx<'_>, manager: &ResourceManager) -> Result<Arc<R>> {
    resolve_input(cx, 0, manager)
}

/// The resource behind an input, in any form.
pub(crate) fn resolve_input<R: Resource>(
    cx: &KernelCx<'_>,
    input: usize,
    manager: &ResourceManager,
) -> Result<Arc<R>> {
    if let Ok(tensor) = cx.input(input)
        && tensor.dtype() == DType::Resource
    {
        return manager.resolve(cx.handle(input)?);
    }
    let (container, name) = names_of(cx, input)?;
    manager.lookup(&container, &name)
}
