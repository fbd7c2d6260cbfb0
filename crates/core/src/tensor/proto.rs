//! Tensors as `TensorProto`: every encoding is read, the raw one is written. For constants in graphs and files; the
//! transport has a codec of its own that avoids this copy.

use super::{Buffer, Element, Storage, Tensor};
use crate::memory::{MemoryBudget, limits};
use crate::resource::ResourceHandle;
use crate::variant::Variant;
use crate::{DType, Result, Shape, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use ferroflow_proto::tensorflow::{ResourceHandleProto, TensorProto, VariantTensorDataProto};
use half::{bf16, f16};
use prost::Message;

impl Tensor {
    /// Reads a tensor in any encoding: raw content, typed values, fewer values than elements (the last repeats), or
    /// none.
    pub fn from_proto(proto: &TensorProto) -> Result<Tensor> {
        let dtype = DType::from_wire(proto.dtype)?;
        let shape = Shape::from_proto(&proto.tensor_shape.clone().unwrap_or_default())?;
        let elements = shape.elements();
        if !proto.tensor_content.is_empty() {
            return from_content(dtype, shape, &proto.tensor_content);
        }
        // On the wire, a shape and one repeated value take a few bytes whatever the tensor's size.
        let unit = if dtype.is_plain() { dtype.size() } else { size_of::<Bytes>() };
        let bytes = elements.checked_mul(unit);
        if !bytes.is_some_and(|bytes| MemoryBudget::process().has_room_for(bytes)) {
            // Stock reports a size that no machine could hold as an invalid tensor.
            let hopeless = bytes.is_none_or(|bytes| limits::least().is_none_or(|least| bytes > least.bytes));
            ensure!(!hopeless, InvalidArgument, "{}", no_memory(dtype, &shape));
            bail!(ResourceExhausted, "{}", no_memory(dtype, &shape))
        }
        use DType::*;
        match dtype {
            Float => expand(shape, &proto.float_val, |v| *v),
            Double => expand(shape, &proto.double_val, |v| *v),
            Int32 => expand(shape, &proto.int_val, |v| *v),
            Int16 => expand(shape, &proto.int_val, |v| *v as i16),
            Int8 => expand(shape, &proto.int_val, |v| *v as i8),
            Uint8 => expand(shape, &proto.int_val, |v| *v as u8),
            Uint16 => expand(shape, &proto.int_val, |v| *v as u16),
            Uint32 => expand(shape, &proto.uint32_val, |v| *v),
            Uint64 => expand(shape, &proto.uint64_val, |v| *v),
            Int64 => expand(shape, &proto.int64_val, |v| *v),
            Bool => expand(shape, &proto.bool_val, |v| *v),
            Half => expand(shape, &proto.half_val, |v| f16::from_bits(*v as u16)),
            Bfloat16 => expand(shape, &proto.half_val, |v| bf16::from_bits(*v as u16)),
            Complex64 => {
                expand(shape, proto.scomplex_val.as_chunks().0, |[re, im]| super::C64::new(*re, *im))
            }
            Complex128 => {
                expand(shape, proto.dcomplex_val.as_chunks().0, |[re, im]| super::C128::new(*re, *im))
            }
            String => expand(shape, &proto.string_val, |v| v.clone()),
            Qint8 | Quint8 | Int4 | Uint4 | Int2 | Uint2 => {
                retype(expand(shape, &proto.int_val, |v| *v as u8)?, dtype)
            }
            Qint16 | Quint16 => retype(expand(shape, &proto.int_val, |v| *v as u16)?, dtype),
            Qint32 => retype(expand(shape, &proto.int_val, |v| *v)?, dtype),
            Float8E5M2 | Float8E4M3Fn | Float8E4M3FnUz | Float8E4M3B11FnUz | Float8E5M2FnUz => {
                retype(expand(shape, &proto.float8_val, |v| *v)?, dtype)
            }
            Resource => {
                let mut handles = Vec::with_capacity(elements.min(proto.resource_handle_val.len()));
                for handle in &proto.resource_handle_val {
                    handles.push(ResourceHandle::from_proto(handle)?);
                }
                exactly(dtype, shape, handles)
            }
            Variant => {
                let values = proto.variant_val.iter().map(crate::variant::Variant::received);
                exactly(dtype, shape, values.collect::<Result<_>>()?)
            }
        }
    }

    /// The wire form: raw content, also for strings.
    pub fn to_proto(&self) -> Result<TensorProto> {
        let mut proto = TensorProto {
            dtype: self.dtype().to_wire(),
            tensor_shape: Some(self.shape().to_proto()),
            ..Default::default()
        };
        match self.storage() {
            Storage::Plain(buffer) => proto.tensor_content = Bytes::copy_from_slice(buffer.as_slice()),
            Storage::Strings(values) => proto.tensor_content = encode_string_list(values),
            Storage::Resources(values) => {
                proto.resource_handle_val = values.iter().map(ResourceHandle::to_proto).collect()
            }
            Storage::Variants(values) => {
                for value in values.iter() {
                    proto.variant_val.push(value.to_proto()?);
                }
            }
        }
        Ok(proto)
    }

    /// The wire form without the elements, which are written from the tensor's own memory after it.
    pub fn header_proto(&self) -> TensorProto {
        TensorProto {
            dtype: self.dtype().to_wire(),
            tensor_shape: Some(self.shape().to_proto()),
            ..Default::default()
        }
    }
}

fn from_content(dtype: DType, shape: Shape, content: &Bytes) -> Result<Tensor> {
    match dtype {
        DType::String => {
            let values = decode_string_list(content, shape.elements())?;
            Tensor::new(shape, values)
        }
        DType::Resource => {
            let mut handles = Vec::new();
            for bytes in decode_string_list(content, shape.elements())? {
                handles.push(ResourceHandle::from_proto(&decode::<ResourceHandleProto>(bytes)?)?);
            }
            exactly(dtype, shape, handles)
        }
        DType::Variant => {
            let mut values = Vec::new();
            for bytes in decode_string_list(content, shape.elements())? {
                values.push(Variant::received(&decode::<VariantTensorDataProto>(bytes)?)?);
            }
            exactly(dtype, shape, values)
        }
        _ => {
            let want = shape.elements().checked_mul(dtype.size());
            ensure!(
                want == Some(content.len()),
                InvalidArgument,
                "expected tensor_content of {} bytes for a {dtype} tensor of shape {shape}, got {} bytes",
                want.unwrap_or(usize::MAX),
                content.len()
            );
            let Some(mut buffer) = Buffer::try_zeroed(content.len()) else {
                bail!(ResourceExhausted, "{}", no_memory(dtype, &shape))
            };
            buffer.make_mut().copy_from_slice(content);
            Tensor::from_buffer(dtype, shape, buffer)
        }
    }
}

fn no_memory(dtype: DType, shape: &Shape) -> String {
    format!("a {dtype} tensor of shape {shape} needs more memory than there is")
}

fn decode<M: Message + Default>(bytes: Bytes) -> Result<M> {
    M::decode(bytes).or_else(|error| bail!(InvalidArgument, "malformed element in tensor_content: {error}"))
}

fn expand<P, T: Element>(shape: Shape, given: &[P], convert: impl Fn(&P) -> T) -> Result<Tensor> {
    let refusal = no_memory(T::DTYPE, &shape);
    let Some(mut tensor) = Tensor::try_zeros(T::DTYPE, shape) else { bail!(ResourceExhausted, "{refusal}") };
    let elements = tensor.flat_mut::<T>()?;
    // Values beyond the last element are ignored, as in stock.
    let (first, rest) = elements.split_at_mut(given.len().min(elements.len()));
    first.iter_mut().zip(given).for_each(|(element, value)| *element = convert(value));
    if let Some(last) = first.last() {
        rest.fill(last.clone());
    }
    Ok(tensor)
}

fn exactly<U: super::Unit>(dtype: DType, shape: Shape, values: Vec<U>) -> Result<Tensor> {
    ensure!(
        values.len() == shape.elements(),
        InvalidArgument,
        "a {dtype} tensor of shape {shape} has {} elements, but {} values were given",
        shape.elements(),
        values.len()
    );
    Tensor::from_units(dtype, shape, values)
}

fn retype(tensor: Tensor, dtype: DType) -> Result<Tensor> {
    tensor.bitcast(dtype)
}

/// The encoding of byte strings in `tensor_content`: lengths as varints, then all bytes.
pub fn encode_string_list(values: &[Bytes]) -> Bytes {
    let total: usize = values.iter().map(|value| value.len() + 5).sum();
    let mut out = BytesMut::with_capacity(total);
    for value in values {
        prost::encoding::encode_varint(value.len() as u64, &mut out);
    }
    for value in values {
        out.put_slice(value);
    }
    out.freeze()
}

/// Decodes the result of [`encode_string_list`]; the elements share `content`'s memory.
pub fn decode_string_list(content: &Bytes, count: usize) -> Result<Vec<Bytes>> {
    let mut rest = content.clone();
    ensure!(
        count <= rest.len(),
        InvalidArgument,
        "expected the lengths of {count} strings, got {} bytes of tensor_content",
        rest.len()
    );
    let mut lengths = Vec::with_capacity(count);
    for i in 0..count {
        match prost::encoding::decode_varint(&mut rest) {
            Ok(length) => lengths.push(length as usize),
            Err(_) => {
                bail!(InvalidArgument, "tensor_content ends within the length of string {i} of {count}")
            }
        }
    }
    let mut values = Vec::with_capacity(count);
    for (i, length) in lengths.into_iter().enumerate() {
        ensure!(
            length <= rest.remaining(),
            InvalidArgument,
            "string {i} of {count} has {length} bytes, but tensor_content has {} left",
            rest.remaining()
        );
        values.push(rest.split_to(length));
    }
    ensure!(rest.is_empty(), InvalidArgument, "tensor_content has {} bytes too many", rest.len());
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proto(dtype: DType, dims: &[i64]) -> TensorProto {
        let shape = Shape::new(dims.iter().copied()).unwrap();
        TensorProto { dtype: dtype.to_wire(), tensor_shape: Some(shape.to_proto()), ..Default::default() }
    }

    #[test]
    fn the_last_value_repeats() {
        let tensor =
            Tensor::from_proto(&TensorProto { float_val: vec![1.0, 2.0], ..proto(DType::Float, &[4]) });
        assert_eq!(tensor.unwrap().flat::<f32>().unwrap(), [1.0, 2.0, 2.0, 2.0]);
        let zeros = Tensor::from_proto(&proto(DType::Int64, &[2])).unwrap();
        assert_eq!(zeros.flat::<i64>().unwrap(), [0, 0]);
    }

    #[test]
    fn strings_survive_a_round_trip() {
        let tensor =
            Tensor::vector(vec![Bytes::from_static(b"w1"), Bytes::new(), Bytes::from_static(b"abc")]);
        let back = Tensor::from_proto(&tensor.to_proto().unwrap()).unwrap();
        assert_eq!(back.flat::<Bytes>().unwrap(), tensor.flat::<Bytes>().unwrap());
    }

    #[test]
    fn bombs_and_lies_are_refused() {
        let bomb = TensorProto { float_val: vec![1.0], ..proto(DType::Float, &[1 << 40]) };
        assert!(Tensor::from_proto(&bomb).is_err());
        let short = TensorProto { tensor_content: Bytes::from_static(b"abc"), ..proto(DType::Float, &[1]) };
        assert!(Tensor::from_proto(&short).is_err());
        let long = TensorProto { float_val: vec![1.0; 3], ..proto(DType::Float, &[2]) };
        assert_eq!(Tensor::from_proto(&long).unwrap().elements(), 2);
        let strings =
            TensorProto { tensor_content: Bytes::from_static(&[200, 1, 2]), ..proto(DType::String, &[2]) };
        assert!(Tensor::from_proto(&strings).is_err());
    }
}
