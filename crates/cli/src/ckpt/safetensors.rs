//! Files of safetensors: a JSON header that says where each tensor is, then the bytes of all tensors.

use super::byte_size;
use ferroflow::DType;
use ferroflow::train::{CheckpointReader, StoredTensor};
use serde_json::{Map, Value, json};
use std::error::Error;
use std::io::Write;

/// The header is padded so that the tensors begin at a multiple of this.
const ALIGNMENT: usize = 8;

/// Returns the format's name of a type.
pub(super) fn type_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Float => "F32",
        DType::Double => "F64",
        DType::Half => "F16",
        DType::Bfloat16 => "BF16",
        DType::Float8E5M2 => "F8_E5M2",
        DType::Float8E4M3Fn => "F8_E4M3",
        DType::Int8 => "I8",
        DType::Uint8 => "U8",
        DType::Int16 => "I16",
        DType::Uint16 => "U16",
        DType::Int32 => "I32",
        DType::Uint32 => "U32",
        DType::Int64 => "I64",
        DType::Uint64 => "U64",
        DType::Complex64 => "C64",
        DType::Bool => "BOOL",
        _ => return None,
    })
}

/// Writes the tensors, of which one at a time is in memory.
pub(super) fn write(
    mut out: impl Write,
    checkpoint: &CheckpointReader,
    tensors: &[&StoredTensor],
) -> Result<(), Box<dyn Error>> {
    let mut header = Map::new();
    let mut offset = 0;
    for tensor in tensors {
        let end = offset + byte_size(tensor).unwrap_or(0);
        let entry = json!({
            "dtype": type_name(tensor.dtype),
            "shape": tensor.shape.dims(),
            "data_offsets": [offset, end],
        });
        header.insert(tensor.name.clone(), entry);
        offset = end;
    }
    let mut header = serde_json::to_vec(&Value::Object(header))?;
    header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for tensor in tensors {
        out.write_all(checkpoint.read(&tensor.name)?.bytes()?)?;
    }
    Ok(out.flush()?)
}
