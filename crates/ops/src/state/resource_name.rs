//! Names of queues, accumulators, tables and readers. Without a `shared_name` they belong to their node in one session, as in stock: no
//! other session sees them, and they end with the session's kernel.

use ferroflow_core::Result;
use ferroflow_core::kernel::{Init, KernelCx};
use ferroflow_core::resource::{Resource, ResourceManager};
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

/// The container and name of a kernel's resource. Dropping it removes a private resource.
pub(crate) struct ResourceName<R: Resource> {
    pub(crate) container: String,
    pub(crate) name: String,
    /// The manager of the resource, if it is private.
    keeper: Option<Weak<ResourceManager>>,
    resource: PhantomData<fn() -> R>,
}

impl<R: Resource> ResourceName<R> {
    /// The name that a node asks for, or one that nobody else has.
    pub(crate) fn new(init: &Init<'_>) -> Result<ResourceName<R>> {
        let (container, shared) = init.resource_name()?;
        // Tables may ask to be known under the name of their node.
        let by_node = init.attrs.has("use_node_name_sharing") && init.attr("use_node_name_sharing")?;
        let private = !by_node && init.attr::<String>("shared_name")?.is_empty();
        let name =
            if private { format!("_{}_{}", init.resources.unique_number(), init.node) } else { shared };
        let keeper = private.then(|| Arc::downgrade(init.resources));
        Ok(ResourceName { container, name, keeper, resource: PhantomData })
    }

    /// The resource, made if it is not there: the container may have been reset since the last step.
    pub(crate) fn lookup_or_create(
        &self,
        cx: &KernelCx<'_>,
        make: impl FnOnce() -> Result<R>,
    ) -> Result<Arc<R>> {
        cx.step().resources.lookup_or_create(&self.container, &self.name, make)
    }
}

impl<R: Resource> Drop for ResourceName<R> {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.as_ref().and_then(Weak::upgrade) {
            // It is not there if no step has made it or the container was reset.
            let _ = keeper.delete::<R>(&self.container, &self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::DType;
    use ferroflow_core::resource::ResourceManager;

    #[test]
    fn queues_without_a_shared_name_end_with_their_kernel() {
        let resources = ResourceManager::new("localhost");
        let queue = || Node::new("FIFOQueueV2").attr("component_types", vec![DType::Float]);
        queue().resources(&resources).run_values(Vec::new()).unwrap();
        assert_eq!(resources.len(), 0);
        queue().attr("shared_name", "shared").resources(&resources).run_values(Vec::new()).unwrap();
        assert_eq!(resources.len(), 1);
    }
}
