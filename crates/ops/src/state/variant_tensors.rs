//! Variants that are a few tensors: a tensor itself, a ragged tensor, a sparse matrix, the components of a composite one.

use crate::support::rows;
use bytes::Bytes;
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure};
use ferroflow_proto::tensorflow::VariantTensorDataProto;

/// The meaning of the tensors of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariantKind {
    /// One tensor.
    Tensor,
    /// Splits from the outermost on, then values.
    Ragged,
    /// Components of a value whose type the metadata describe.
    Composite,
    /// A sparse matrix by rows: dense shape, and pointers to batches, rows, columns and values.
    Csr,
}

impl VariantKind {
    /// The kind with this name on the wire.
    pub(crate) fn named(name: &str) -> Option<VariantKind> {
        use VariantKind::{Composite, Csr, Ragged, Tensor};
        [Tensor, Ragged, Composite, Csr].into_iter().find(|kind| kind.type_name() == name)
    }

    fn type_name(self) -> &'static str {
        match self {
            VariantKind::Tensor => "tensorflow::Tensor",
            VariantKind::Ragged => "RaggedTensorVariant",
            VariantKind::Composite => "CompositeTensorVariant",
            VariantKind::Csr => "tensorflow::CSRSparseMatrix",
        }
    }
}

/// A few tensors as one value.
#[derive(Clone)]
pub(crate) struct VariantTensors {
    pub(crate) kind: VariantKind,
    pub(crate) metadata: Bytes,
    pub(crate) tensors: Vec<Tensor>,
}

impl VariantTensors {
    pub(crate) fn new(kind: VariantKind, tensors: Vec<Tensor>) -> VariantTensors {
        VariantTensors { kind, metadata: Bytes::new(), tensors }
    }

    /// One tensor as a variant.
    pub(crate) fn tensor(tensor: Tensor) -> Variant {
        Variant::new(VariantTensors::new(VariantKind::Tensor, vec![tensor]))
    }

    /// The value of a variant, decoded if it came over the wire; `None` if it is of another kind.
    pub(crate) fn of(variant: &Variant, kind: VariantKind) -> Result<Option<VariantTensors>> {
        if let Some(value) = variant.downcast::<VariantTensors>() {
            return Ok((value.kind == kind).then(|| value.clone()));
        }
        match variant.as_opaque() {
            Some(proto) if proto.type_name == kind.type_name() => {
                let tensors = proto.tensors.iter().map(Tensor::from_proto).collect::<Result<Vec<_>>>()?;
                ensure!(
                    kind == VariantKind::Composite || !tensors.is_empty(),
                    InvalidArgument,
                    "a variant of type {} has no tensors",
                    kind.type_name()
                );
                Ok(Some(VariantTensors { kind, metadata: proto.metadata.clone(), tensors }))
            }
            _ => Ok(None),
        }
    }

    /// The tensor of a variant that is one.
    pub(crate) fn tensor_of(variant: &Variant) -> Result<Option<Tensor>> {
        Ok(VariantTensors::of(variant, VariantKind::Tensor)?.and_then(|mut value| value.tensors.pop()))
    }

    pub(crate) fn into_scalar(self) -> Result<Tensor> {
        Tensor::from_units(DType::Variant, Shape::scalar(), vec![Variant::new(self)])
    }
}

impl VariantValue for VariantTensors {
    fn type_name(&self) -> &str {
        self.kind.type_name()
    }

    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        Ok(VariantTensorDataProto {
            type_name: self.type_name().to_owned(),
            metadata: self.metadata.clone(),
            tensors: self.tensors.iter().map(Tensor::to_proto).collect::<Result<_>>()?,
        })
    }

    fn zeros_like(&self) -> Result<Variant> {
        let (VariantKind::Ragged, Some((values, splits))) = (self.kind, self.tensors.split_last()) else {
            bail!(Unimplemented, "ZerosLike is not supported for variants of type {}", self.type_name())
        };
        let tensors = splits.iter().cloned().chain([rows::zeros_like(values)?]).collect();
        Ok(Variant::new(VariantTensors::new(self.kind, tensors)))
    }

    fn add(&self, other: &Variant) -> Result<Variant> {
        let (VariantKind::Ragged, Some((values, splits))) = (self.kind, self.tensors.split_last()) else {
            bail!(Unimplemented, "addition is not supported for variants of type {}", self.type_name())
        };
        let other = VariantTensors::of(other, self.kind)?;
        let Some((other_values, other_splits)) = other.as_ref().and_then(|other| other.tensors.split_last())
        else {
            bail!(InvalidArgument, "cannot add a variant that is not a ragged tensor to one that is")
        };
        ensure!(
            values.dtype() == other_values.dtype(),
            InvalidArgument,
            "Can't add RaggedTensorVariants of different dtypes. One is {} and the other is {}",
            values.dtype(),
            other_values.dtype()
        );
        ensure!(
            splits.len() == other_splits.len(),
            InvalidArgument,
            "Can't add RaggedTensorVariants of different ragged rank. One is {} and the other is {}",
            splits.len(),
            other_splits.len()
        );
        for (a, b) in splits.iter().zip(other_splits) {
            ensure!(
                a.dtype() == b.dtype() && a.bytes()? == b.bytes()?,
                InvalidArgument,
                "Can't add RaggedTensorVariants with different row_splits."
            );
        }
        let sum = rows::add(values.clone(), other_values)?;
        let tensors = splits.iter().cloned().chain([sum]).collect();
        Ok(Variant::new(VariantTensors::new(self.kind, tensors)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_wire_and_stay_of_their_kind() {
        let value = VariantTensors::tensor(Tensor::scalar(2.0f32));
        let back = Variant::opaque(&value.to_proto().unwrap());
        let tensor = VariantTensors::tensor_of(&back).unwrap().unwrap();
        assert_eq!(tensor.to_scalar::<f32>().unwrap(), 2.0);
        assert!(VariantTensors::of(&back, VariantKind::Ragged).unwrap().is_none());
        let empty =
            VariantTensorDataProto { type_name: "RaggedTensorVariant".to_owned(), ..Default::default() };
        assert!(VariantTensors::of(&Variant::opaque(&empty), VariantKind::Ragged).is_err());
    }
}
