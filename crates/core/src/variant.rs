//! Variants: values of op-defined types, such as tensor lists. The types themselves are defined beside their ops.

use crate::{Result, bail, ensure};
use ferroflow_proto::tensorflow::VariantTensorDataProto;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The type of datasets on the wire.
const DATASET: &str = "tensorflow::DatasetVariantWrapper";

/// The behavior of an op-defined value. Values are immutable once shared.
pub trait VariantValue: Any + Send + Sync {
    /// The name that identifies the type on the wire.
    fn type_name(&self) -> &str;

    /// The wire form; an error for values that cannot leave their process.
    fn to_proto(&self) -> Result<VariantTensorDataProto>;

    /// The zero that gradients start from.
    fn zeros_like(&self) -> Result<Variant> {
        bail!(Unimplemented, "ZerosLike is not supported for variants of type {}", self.type_name())
    }

    /// The sum of two such values.
    fn add(&self, _other: &Variant) -> Result<Variant> {
        bail!(Unimplemented, "addition is not supported for variants of type {}", self.type_name())
    }
}

/// One element of a variant tensor; empty by default.
#[derive(Clone, Default)]
pub struct Variant(Option<Arc<dyn VariantValue>>);

impl Variant {
    /// Wraps a value.
    pub fn new(value: impl VariantValue) -> Variant {
        Variant(Some(Arc::new(value)))
    }

    /// A value that has arrived over the wire; an error for one that cannot leave its process, of which stock sends no
    /// more than the type.
    pub fn received(proto: &VariantTensorDataProto) -> Result<Variant> {
        ensure!(
            proto.type_name != DATASET,
            InvalidArgument,
            "a dataset cannot be used by another task than the one that made it: make it in the function that uses it"
        );
        Ok(Variant::opaque(proto))
    }

    /// Wraps a message of unknown type; ops that know the type decode it from [`Variant::as_opaque`].
    pub fn opaque(proto: &VariantTensorDataProto) -> Variant {
        if proto.type_name.is_empty() {
            return Variant(None);
        }
        Variant::new(Opaque(proto.clone()))
    }

    /// The value, unless empty.
    pub fn get(&self) -> Option<&Arc<dyn VariantValue>> {
        self.0.as_ref()
    }

    /// The value as this type, if it is of this type.
    pub fn downcast<T: VariantValue>(&self) -> Option<&T> {
        let value: &dyn Any = self.0.as_deref()?;
        value.downcast_ref()
    }

    /// The value as this type for changing it, if it is of this type and has no other owner.
    pub fn downcast_mut<T: VariantValue>(&mut self) -> Option<&mut T> {
        let value: &mut dyn Any = Arc::get_mut(self.0.as_mut()?)?;
        value.downcast_mut()
    }

    /// The message of a value that arrived over the wire and has not been decoded.
    pub fn as_opaque(&self) -> Option<&VariantTensorDataProto> {
        self.downcast::<Opaque>().map(|opaque| &opaque.0)
    }

    /// The wire form.
    pub fn to_proto(&self) -> Result<VariantTensorDataProto> {
        match &self.0 {
            Some(value) => value.to_proto(),
            None => Ok(VariantTensorDataProto::default()),
        }
    }
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Variant<{}>", self.0.as_ref().map_or("empty", |value| value.type_name()))
    }
}

struct Opaque(VariantTensorDataProto);

impl VariantValue for Opaque {
    fn type_name(&self) -> &str {
        &self.0.type_name
    }
    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        Ok(self.0.clone())
    }
}
