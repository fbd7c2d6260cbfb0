//! Tensor lists: values with copy semantics that loops build up, and their wire form.

use crate::support::rows;
use bytes::{BufMut, Bytes, BytesMut};
use ferroflow_core::device::Device;
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::{TensorShapeProto, VariantTensorDataProto};
use prost::Message;
use prost::encoding::{decode_varint, encode_varint};

pub(crate) const TYPE_NAME: &str = "tensorflow::TensorList";

/// A list of tensors of one type; elements that were never set are `None`.
#[derive(Clone)]
pub(crate) struct TensorList {
    pub(crate) dtype: DType,
    pub(crate) element_shape: PartialShape,
    /// The most elements the list takes; −1 for any number.
    pub(crate) max_elements: i32,
    pub(crate) tensors: Vec<Option<Tensor>>,
}

impl TensorList {
    pub(crate) fn new(dtype: DType, element_shape: PartialShape, tensors: Vec<Option<Tensor>>) -> TensorList {
        TensorList { dtype, element_shape, max_elements: -1, tensors }
    }

    /// Changes the length; elements gained are not set. Refuses lengths that memory could not hold.
    pub(crate) fn resize(&mut self, device: &Device, length: usize) -> Result<()> {
        device.check_allocation(DType::Variant, &Shape::vector(length))?;
        self.tensors.resize(length, None);
        Ok(())
    }

    /// Refuses elements of another type.
    pub(crate) fn check_dtype(&self, dtype: DType) -> Result<()> {
        ensure!(
            self.dtype == dtype,
            InvalidArgument,
            "Invalid data types; op elements {dtype} but list elements {}",
            self.dtype
        );
        Ok(())
    }

    pub(crate) fn into_tensor(self) -> Tensor {
        let variants = vec![Variant::new(self)];
        Tensor::from_units(DType::Variant, Shape::scalar(), variants).expect("one variant is a scalar")
    }

    /// A list out of a variant, decoded if it came over the wire.
    pub(crate) fn from_variant(variant: &Variant) -> Result<TensorList> {
        if let Some(list) = variant.downcast::<TensorList>() {
            return Ok(list.clone());
        }
        match variant.as_opaque() {
            Some(proto) if proto.type_name == TYPE_NAME => TensorList::from_proto(proto),
            _ => bail!(InvalidArgument, "Input handle is not a list. Saw: '{variant:?}'"),
        }
    }

    /// The list in a scalar variant tensor; not copied if nobody else holds it.
    pub(crate) fn take(mut tensor: Tensor) -> Result<TensorList> {
        ensure!(tensor.rank() == 0, InvalidArgument, "Input list must be a scalar saw: {}", tensor.shape());
        let variant = &mut tensor.units_mut::<Variant>()?[0];
        if let Some(list) = variant.downcast_mut::<TensorList>() {
            let tensors = std::mem::take(&mut list.tensors);
            return Ok(TensorList { tensors, element_shape: list.element_shape.clone(), ..*list });
        }
        TensorList::from_variant(variant)
    }

    /// Looks at the list in a scalar variant tensor.
    pub(crate) fn with<R>(tensor: &Tensor, look: impl FnOnce(&TensorList) -> Result<R>) -> Result<R> {
        ensure!(tensor.rank() == 0, InvalidArgument, "Input list must be a scalar saw: {}", tensor.shape());
        let variant = &tensor.units::<Variant>()?[0];
        match variant.downcast::<TensorList>() {
            Some(list) => look(list),
            None => look(&TensorList::from_variant(variant)?),
        }
    }

    pub(crate) fn from_proto(proto: &VariantTensorDataProto) -> Result<TensorList> {
        let short = || status!(InvalidArgument, "malformed metadata of a tensor list");
        let mut metadata = proto.metadata.clone();
        let mut number = || decode_varint(&mut metadata).map_err(|_| short());
        let missing = number()?;
        // Elements that were never set take no room on the wire, so their number is not to be trusted.
        ensure!(missing <= proto.metadata.len() as u64, InvalidArgument, "{}", short().message());
        let mut missing: Vec<u64> = (0..missing).map(|_| number()).collect::<Result<_>>()?;
        missing.sort_unstable();
        let dtype = DType::from_wire(i32::try_from(number()?).map_err(|_| short())?)?;
        let max_elements = number()? as i64 as i32;
        let shape = TensorShapeProto::decode(metadata).map_err(|_| short())?;
        let total = missing.len() + proto.tensors.len();
        let mut tensors = Vec::with_capacity(total);
        let mut given = proto.tensors.iter();
        for index in 0..total as u64 {
            if missing.binary_search(&index).is_ok() {
                tensors.push(None);
                continue;
            }
            let tensor = Tensor::from_proto(given.next().ok_or_else(short)?)?;
            tensors.push(Some(tensor));
        }
        Ok(TensorList { dtype, element_shape: PartialShape::from_proto(&shape)?, max_elements, tensors })
    }
}

impl VariantValue for TensorList {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        let mut metadata = BytesMut::new();
        let missing: Vec<usize> =
            self.tensors.iter().enumerate().filter(|(_, tensor)| tensor.is_none()).map(|(i, _)| i).collect();
        encode_varint(missing.len() as u64, &mut metadata);
        for index in missing {
            encode_varint(index as u64, &mut metadata);
        }
        encode_varint(self.dtype.to_wire() as u64, &mut metadata);
        encode_varint(self.max_elements as i64 as u64, &mut metadata);
        metadata.put_slice(&self.element_shape.to_proto().encode_to_vec());
        let tensors: Result<Vec<_>> = self.tensors.iter().flatten().map(Tensor::to_proto).collect();
        Ok(VariantTensorDataProto {
            type_name: TYPE_NAME.to_owned(),
            metadata: Bytes::from(metadata),
            tensors: tensors?,
        })
    }

    fn zeros_like(&self) -> Result<Variant> {
        let zeros = |tensor: &Option<Tensor>| tensor.as_ref().map(rows::zeros_like).transpose();
        let tensors = self.tensors.iter().map(zeros).collect::<Result<_>>()?;
        Ok(Variant::new(TensorList { tensors, element_shape: self.element_shape.clone(), ..*self }))
    }

    fn add(&self, other: &Variant) -> Result<Variant> {
        let other = TensorList::from_variant(other)?;
        ensure!(
            self.dtype == other.dtype,
            InvalidArgument,
            "Trying to add two lists of tensors of different dtypes. One is {} and the other is {}",
            self.dtype,
            other.dtype
        );
        ensure!(
            self.tensors.len() == other.tensors.len(),
            InvalidArgument,
            "Trying to add two lists of tensors with different lengths. One is {} and the other is {}",
            self.tensors.len(),
            other.tensors.len()
        );
        let element_shape = rows::merge_shapes(&self.element_shape, &other.element_shape)?;
        let sum = |(a, b): (&Option<Tensor>, Option<Tensor>)| match (a, b) {
            // The sum is a new value, so the temporary list's element gives its memory if it can.
            (Some(a), Some(b)) => rows::add(b, a).map(Some),
            (a, b) => Ok(b.or_else(|| a.clone())),
        };
        let tensors = self.tensors.iter().zip(other.tensors).map(sum).collect::<Result<_>>()?;
        Ok(Variant::new(TensorList { tensors, element_shape, ..*self }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_the_wire() {
        let tensors = vec![None, Some(Tensor::scalar(2.0f32)), None];
        let list = TensorList::new(DType::Float, PartialShape::scalar(), tensors);
        let back = TensorList::from_proto(&list.to_proto().unwrap()).unwrap();
        assert_eq!((back.dtype, back.max_elements, back.tensors.len()), (DType::Float, -1, 3));
        assert!(back.tensors[0].is_none());
        assert_eq!(back.tensors[1].as_ref().unwrap().to_scalar::<f32>().unwrap(), 2.0);
    }

    #[test]
    fn hostile_metadata_is_refused() {
        for metadata in [&[][..], &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1], &[0, 77], &[1, 0, 1]] {
            let proto = VariantTensorDataProto {
                type_name: TYPE_NAME.to_owned(),
                metadata: Bytes::copy_from_slice(metadata),
                tensors: Vec::new(),
            };
            assert!(TensorList::from_proto(&proto).is_err(), "{metadata:?}");
        }
    }

    #[test]
    fn elements_that_were_never_set_count_as_zero_in_a_sum() {
        let one = TensorList::new(
            DType::Float,
            PartialShape::scalar(),
            vec![Some(Tensor::scalar(2.0f32)), None, Some(Tensor::scalar(1.0f32))],
        );
        let two = TensorList::new(
            DType::Float,
            PartialShape::scalar(),
            vec![Some(Tensor::scalar(3.0f32)), None, None],
        );
        let sum = TensorList::from_variant(&one.add(&Variant::new(two)).unwrap()).unwrap();
        assert_eq!(sum.tensors[0].as_ref().unwrap().to_scalar::<f32>().unwrap(), 5.0);
        assert!(sum.tensors[1].is_none());
        assert_eq!(sum.tensors[2].as_ref().unwrap().to_scalar::<f32>().unwrap(), 1.0);
    }
}
