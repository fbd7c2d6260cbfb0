//! Files of NumPy: a zip archive with one array per member.

use super::byte_size;
use ferroflow::DType;
use ferroflow::train::{CheckpointReader, StoredTensor};
use std::error::Error;
use std::io::{Seek, Write};
use zip::write::{SimpleFileOptions, ZipWriter};

/// The first bytes of an array's file, with the version of its header.
const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
/// Headers are padded so that elements begin at a multiple of this.
const ALIGNMENT: usize = 64;

/// Returns NumPy's code of a type.
pub(super) fn type_code(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Float => "<f4",
        DType::Double => "<f8",
        DType::Half => "<f2",
        DType::Int8 => "|i1",
        DType::Uint8 => "|u1",
        DType::Int16 => "<i2",
        DType::Uint16 => "<u2",
        DType::Int32 => "<i4",
        DType::Uint32 => "<u4",
        DType::Int64 => "<i8",
        DType::Uint64 => "<u8",
        DType::Complex64 => "<c8",
        DType::Complex128 => "<c16",
        DType::Bool => "|b1",
        _ => return None,
    })
}

/// Writes the tensors, of which one at a time is in memory.
pub(super) fn write(
    out: impl Write + Seek,
    checkpoint: &CheckpointReader,
    tensors: &[&StoredTensor],
) -> Result<(), Box<dyn Error>> {
    let mut archive = ZipWriter::new(out);
    for tensor in tensors {
        let header = header(tensor)?;
        let length = header.len() as u64 + byte_size(tensor).unwrap_or(0);
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored)
            .large_file(length > u64::from(u32::MAX));
        archive.start_file(format!("{}.npy", tensor.name), options)?;
        archive.write_all(&header)?;
        archive.write_all(checkpoint.read(&tensor.name)?.bytes()?)?;
    }
    archive.finish()?.flush()?;
    Ok(())
}

/// Describes an array's type and shape, as a dictionary of Python.
fn header(tensor: &StoredTensor) -> Result<Vec<u8>, Box<dyn Error>> {
    let code = type_code(tensor.dtype).ok_or("NumPy has no such type")?;
    let dims: String = tensor.shape.dims().iter().map(|dim| format!("{dim}, ")).collect();
    let mut text = format!("{{'descr': '{code}', 'fortran_order': False, 'shape': ({}), }}", dims.trim_end());
    // The length before the text, and the end of line after it, are part of what is padded.
    let length = (MAGIC.len() + 2 + text.len() + 1).next_multiple_of(ALIGNMENT);
    while MAGIC.len() + 2 + text.len() + 1 < length {
        text.push(' ');
    }
    text.push('\n');
    let mut header = MAGIC.to_vec();
    header.extend(u16::try_from(text.len())?.to_le_bytes());
    header.extend(text.as_bytes());
    Ok(header)
}
