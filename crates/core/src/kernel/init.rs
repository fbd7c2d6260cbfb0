//! The information that a kernel is made from when a plan is made.

use super::function::{Callable, CapturedFunction, FunctionLibrary};
use crate::attr::{Attrs, FromAttr};
use crate::device::Device;
use crate::resource::ResourceManager;
use crate::{DType, Result};
use ferroflow_proto::tensorflow::NameAttrList;
use std::sync::Arc;

/// A node as its kernel sees it when a plan is made.
pub struct Init<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The op type's name.
    pub op: &'a str,
    /// Attributes, defaults filled in.
    pub attrs: &'a Attrs,
    /// Element types of inputs.
    pub input_types: &'a [DType],
    /// Element types of outputs.
    pub output_types: &'a [DType],
    /// The device that will run the node.
    pub device: &'a Arc<Device>,
    /// State that outlives steps, as the session sees it.
    pub resources: &'a Arc<ResourceManager>,
    /// The graph's functions.
    pub library: &'a Arc<dyn FunctionLibrary>,
}

impl Init<'_> {
    /// An attribute.
    pub fn attr<T: FromAttr>(&self, name: &str) -> Result<T> {
        self.attrs.get(name)
    }

    /// A function attribute, ready to be called.
    pub fn function(&self, name: &str) -> Result<Arc<dyn Callable>> {
        self.library.instantiate(&self.attr::<NameAttrList>(name)?)
    }

    /// A function attribute for a value that outlives the plan.
    pub fn captured_function(&self, name: &str) -> Result<Arc<dyn CapturedFunction>> {
        self.library.capture(&self.attr::<NameAttrList>(name)?)
    }

    /// The name under which a resource op keeps its resource: (container, name), from the attributes `container` and
    /// `shared_name`, or the default container and the node's name.
    pub fn resource_name(&self) -> Result<(String, String)> {
        let container: String =
            if self.attrs.has("container") { self.attr("container")? } else { String::new() };
        let shared: String =
            if self.attrs.has("shared_name") { self.attr("shared_name")? } else { String::new() };
        let container = self.resources.container_or_default(&container).to_owned();
        Ok((container, if shared.is_empty() { self.node.to_owned() } else { shared }))
    }
}
