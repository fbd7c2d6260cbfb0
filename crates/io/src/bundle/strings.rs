//! String tensors in data files: lengths, a checksum of the lengths, then the bytes.

use crate::crc;
use bytes::{Buf, Bytes};
use ferroflow_core::{Result, ensure, status};
use prost::encoding::{decode_varint, encode_varint};

/// Adds a length to the checksum, which covers lengths at full width, whatever their encoding.
fn extend_with_length(checksum: u32, length: u64) -> u32 {
    match u32::try_from(length) {
        Ok(length) => crc::extend(checksum, &length.to_le_bytes()),
        Err(_) => crc::extend(checksum, &length.to_le_bytes()),
    }
}

/// The encoded lengths, which precede the strings' bytes, and the checksum so far.
pub(super) fn encode_lengths(values: &[Bytes]) -> (Vec<u8>, u32) {
    let mut bytes = Vec::with_capacity(values.len() + 4);
    let mut checksum = 0;
    for value in values {
        encode_varint(value.len() as u64, &mut bytes);
        checksum = extend_with_length(checksum, value.len() as u64);
    }
    let of_lengths = crc::mask(checksum).to_le_bytes();
    bytes.extend_from_slice(&of_lengths);
    (bytes, crc::extend(checksum, &of_lengths))
}

/// The strings and the checksum of all data; the strings share the memory of `bytes`.
pub(super) fn decode(mut bytes: Bytes, count: usize) -> Result<(Vec<Bytes>, u32)> {
    let short = || status!(DataLoss, "the checkpoint's data ends within a string tensor");
    ensure!(count <= bytes.len(), DataLoss, "{}", short().message());
    let mut lengths = Vec::with_capacity(count);
    let mut checksum = 0;
    for _ in 0..count {
        let length = decode_varint(&mut bytes).map_err(|_| short())?;
        checksum = extend_with_length(checksum, length);
        lengths.push(length);
    }
    ensure!(bytes.remaining() >= 4, DataLoss, "{}", short().message());
    let stored = bytes.split_to(4);
    ensure!(
        *stored == crc::mask(checksum).to_le_bytes(),
        DataLoss,
        "The length checksum does not match: expected {} but got {}",
        u32::from_le_bytes(stored[..].try_into().expect("four bytes")),
        crc::mask(checksum)
    );
    checksum = crc::extend(checksum, &stored);
    let mut values = Vec::with_capacity(count);
    for length in lengths {
        ensure!(length <= bytes.len() as u64, DataLoss, "{}", short().message());
        let value = bytes.split_to(length as usize);
        checksum = crc::extend(checksum, &value);
        values.push(value);
    }
    ensure!(bytes.is_empty(), DataLoss, "{} bytes too many in a string tensor", bytes.len());
    Ok((values, checksum))
}
