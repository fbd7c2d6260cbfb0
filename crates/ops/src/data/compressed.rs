//! Elements as stock compresses them: the bytes of all components in one block of snappy, and what they are.

use super::Element;
use bytes::Bytes;
use ferroflow_core::kernel::Str;
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::data::{CompressedComponentMetadata, CompressedElement};
use ferroflow_proto::tensorflow::{TensorProto, VariantTensorDataProto};
use prost::Message;

const TYPE_NAME: &str = "tensorflow.data.CompressedElement";
/// The format's version.
const VERSION: i32 = 0;

/// Returns whether the elements of a type are their bytes.
pub(crate) fn can_copy(dtype: DType) -> bool {
    !matches!(dtype, DType::String | DType::Variant | DType::Resource)
}

/// A tensor of a plain type from its bytes.
pub(crate) fn tensor_of_bytes(dtype: DType, shape: Shape, bytes: &[u8]) -> Result<Tensor> {
    let expected = shape.elements() * dtype.size();
    ensure!(
        expected == bytes.len(),
        InvalidArgument,
        "a tensor of {dtype} of shape {shape} has {expected} bytes, not {}",
        bytes.len()
    );
    let proto = TensorProto {
        dtype: dtype.to_wire(),
        tensor_shape: Some(shape.to_proto()),
        tensor_content: Bytes::copy_from_slice(bytes),
        ..TensorProto::default()
    };
    Tensor::from_proto(&proto)
}

/// A compressed element as a value.
pub(crate) struct Compressed(pub(crate) CompressedElement);

impl VariantValue for Compressed {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        // Messages travel as their encoding.
        Ok(VariantTensorDataProto {
            type_name: TYPE_NAME.to_owned(),
            metadata: self.0.encode_to_vec().into(),
            ..VariantTensorDataProto::default()
        })
    }
}

impl Compressed {
    /// The compressed element that a variant holds.
    pub(crate) fn from_variant(variant: &Variant) -> Result<CompressedElement> {
        if let Some(compressed) = variant.downcast::<Compressed>() {
            return Ok(compressed.0.clone());
        }
        let decoded = variant
            .as_opaque()
            .filter(|proto| proto.type_name == TYPE_NAME)
            .and_then(|proto| CompressedElement::decode(proto.metadata.clone()).ok());
        match decoded {
            Some(element) => Ok(element),
            None => bail!(InvalidArgument, "Tensor must be a `CompressedElement` object."),
        }
    }
}

/// Compresses an element.
pub(crate) fn compress(element: &[Tensor]) -> Result<CompressedElement> {
    let (mut bytes, mut component_metadata) = (Vec::new(), Vec::with_capacity(element.len()));
    for tensor in element {
        let mut uncompressed_bytes = Vec::new();
        match tensor.dtype() {
            DType::String => {
                for text in tensor.units::<Str>()? {
                    bytes.extend_from_slice(text);
                    uncompressed_bytes.push(text.len() as u64);
                }
            }
            dtype if can_copy(dtype) => {
                let plain = tensor.bytes()?;
                bytes.extend_from_slice(plain);
                if !plain.is_empty() {
                    uncompressed_bytes.push(plain.len() as u64);
                }
            }
            _ => {
                let encoded = tensor.to_proto()?.encode_to_vec();
                uncompressed_bytes.push(encoded.len() as u64);
                bytes.extend(encoded);
            }
        }
        component_metadata.push(CompressedComponentMetadata {
            dtype: tensor.dtype().to_wire(),
            tensor_shape: Some(tensor.shape().to_proto()),
            uncompressed_bytes,
        });
    }
    ensure!(
        u32::try_from(bytes.len()).is_ok(),
        OutOfRange,
        "Encountered dataset element of size {}, exceeding the 4GB Snappy limit.",
        bytes.len()
    );
    let data = snap::raw::Encoder::new().compress_vec(&bytes);
    let data = data.map_err(|_| status!(Internal, "Failed to compress using snappy."))?;
    Ok(CompressedElement { data: data.into(), component_metadata, version: VERSION })
}

/// The element that was compressed.
pub(crate) fn uncompress(compressed: &CompressedElement) -> Result<Element> {
    ensure!(
        compressed.version == VERSION,
        Internal,
        "Unsupported compressed element version: {}",
        compressed.version
    );
    let sizes = compressed.component_metadata.iter().flat_map(|metadata| &metadata.uncompressed_bytes);
    let expected = sizes.fold(0u64, |sum, size| sum.saturating_add(*size));
    let length = snap::raw::decompress_len(&compressed.data);
    let length = length.map_err(|_| {
        status!(
            Internal,
            "Could not get snappy uncompressed length. Compressed data size: {}",
            compressed.data.len()
        )
    })?;
    ensure!(
        length as u64 == expected,
        Internal,
        "Uncompressed size mismatch. Snappy expects {length} whereas the tensor metadata suggests {expected}"
    );
    let bytes = snap::raw::Decoder::new().decompress_vec(&compressed.data);
    let bytes = Bytes::from(bytes.map_err(|_| status!(Internal, "Failed to perform snappy decompression."))?);
    let (mut at, mut element) = (0, Vec::new());
    for metadata in &compressed.component_metadata {
        let dtype = DType::from_wire(metadata.dtype)?;
        let shape = Shape::from_proto(&metadata.tensor_shape.clone().unwrap_or_default())?;
        let mut pieces = metadata.uncompressed_bytes.iter().map(|size| {
            let piece = bytes.slice(at..at + *size as usize);
            at += piece.len();
            piece
        });
        element.push(match dtype {
            DType::String => {
                let texts: Vec<Str> = pieces.collect();
                ensure!(
                    texts.len() == shape.elements(),
                    InvalidArgument,
                    "uncompressed_bytes count ({}) differs from the number of strings ({})",
                    texts.len(),
                    shape.elements()
                );
                Tensor::from_units(DType::String, shape, texts)?
            }
            dtype if can_copy(dtype) => tensor_of_bytes(dtype, shape, &pieces.next().unwrap_or_default())?,
            _ => {
                let encoded = pieces.next().unwrap_or_default();
                let proto = TensorProto::decode(encoded);
                Tensor::from_proto(&proto.map_err(|_| status!(Internal, "Could not parse TensorProto"))?)?
            }
        });
    }
    Ok(element)
}
