//! Handles: values that name a resource and travel along graph edges.

use super::{CachedLookup, Resource};
use crate::{DType, PartialShape, Result};
use ferroflow_proto::tensorflow::{ResourceHandleProto, resource_handle_proto};
use std::fmt;
use std::sync::Arc;

/// The element type and shape of what a handle refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleShape {
    /// Element type.
    pub dtype: DType,
    /// The shape, as far as it is known.
    pub shape: PartialShape,
}

/// The name of a resource on a device. Cloning is cheap.
#[derive(Clone, Default)]
pub struct ResourceHandle(Option<Arc<Inner>>);

#[derive(Default)]
struct Inner {
    device: String,
    container: String,
    name: String,
    hash_code: u64,
    type_name: String,
    shapes: Vec<HandleShape>,
    /// The resource itself, for anonymous resources: the handle owns them, no manager knows them.
    owned: Option<Arc<dyn Resource>>,
    /// The last lookup of the name in a manager.
    cached_lookup: CachedLookup,
}

impl ResourceHandle {
    /// A handle to a resource that a manager keeps under a container and a name.
    pub fn named(
        device: &str,
        container: &str,
        name: &str,
        type_name: &str,
        shapes: Vec<HandleShape>,
    ) -> Self {
        ResourceHandle(Some(Arc::new(Inner {
            device: device.to_owned(),
            container: container.to_owned(),
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            shapes,
            ..Inner::default()
        })))
    }

    /// A handle that owns its resource; the resource ends with the last such handle.
    pub fn owned(device: &str, name: &str, shapes: Vec<HandleShape>, resource: Arc<dyn Resource>) -> Self {
        ResourceHandle(Some(Arc::new(Inner {
            device: device.to_owned(),
            name: name.to_owned(),
            type_name: resource.type_name().to_owned(),
            shapes,
            owned: Some(resource),
            ..Inner::default()
        })))
    }

    /// The device that holds the resource; empty for an empty handle.
    pub fn device(&self) -> &str {
        self.0.as_ref().map_or("", |inner| &inner.device)
    }

    /// The container.
    pub fn container(&self) -> &str {
        self.0.as_ref().map_or("", |inner| &inner.container)
    }

    /// The name within the container.
    pub fn name(&self) -> &str {
        self.0.as_ref().map_or("", |inner| &inner.name)
    }

    /// The resource's type, as on the wire.
    pub fn type_name(&self) -> &str {
        self.0.as_ref().map_or("", |inner| &inner.type_name)
    }

    /// Types and shapes of what the handle refers to.
    pub fn shapes(&self) -> &[HandleShape] {
        self.0.as_ref().map_or(&[], |inner| &inner.shapes)
    }

    /// The resource, if the handle owns it.
    pub fn owned_resource(&self) -> Option<&Arc<dyn Resource>> {
        self.0.as_ref()?.owned.as_ref()
    }

    pub(super) fn cached_lookup(&self) -> Option<&CachedLookup> {
        self.0.as_ref().map(|inner| &inner.cached_lookup)
    }

    /// Reads a handle from its wire form.
    pub fn from_proto(proto: &ResourceHandleProto) -> Result<ResourceHandle> {
        let mut shapes = Vec::new();
        for entry in &proto.dtypes_and_shapes {
            let shape = match &entry.shape {
                Some(shape) => PartialShape::from_proto(shape)?,
                None => PartialShape::unknown(),
            };
            shapes.push(HandleShape { dtype: DType::from_wire(entry.dtype)?, shape });
        }
        Ok(ResourceHandle(Some(Arc::new(Inner {
            device: proto.device.clone(),
            container: proto.container.clone(),
            name: proto.name.clone(),
            hash_code: proto.hash_code,
            type_name: proto.maybe_type_name.clone(),
            shapes,
            ..Inner::default()
        }))))
    }

    /// The wire form.
    pub fn to_proto(&self) -> ResourceHandleProto {
        let Some(inner) = &self.0 else { return ResourceHandleProto::default() };
        let shapes = inner.shapes.iter().map(|entry| resource_handle_proto::DtypeAndShape {
            dtype: entry.dtype.to_wire(),
            shape: Some(entry.shape.to_proto()),
        });
        ResourceHandleProto {
            device: inner.device.clone(),
            container: inner.container.clone(),
            name: inner.name.clone(),
            hash_code: inner.hash_code,
            maybe_type_name: inner.type_name.clone(),
            dtypes_and_shapes: shapes.collect(),
        }
    }
}

impl fmt::Debug for ResourceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} on {}", self.container(), self.name(), self.device())
    }
}
