//! Variant tensors in data files: each value as a message, with its length before it and a checksum after it.

use crate::crc;
use bytes::{Buf, Bytes};
use ferroflow_core::variant::Variant;
use ferroflow_core::{Result, ensure, status};
use ferroflow_proto::tensorflow::VariantTensorDataProto;
use prost::Message;
use prost::encoding::{decode_varint, encode_varint};

/// The encoded values, and the checksum of the data.
pub(super) fn encode(values: &[Variant]) -> Result<(Vec<u8>, u32)> {
    let (mut bytes, mut checksum) = (Vec::new(), 0);
    for value in values {
        let message = value.to_proto()?.encode_to_vec();
        encode_varint(message.len() as u64, &mut bytes);
        bytes.extend_from_slice(&message);
        checksum = crc::extend(checksum, &(message.len() as u64).to_le_bytes());
        checksum = crc::extend(checksum, &message);
        let so_far = crc::mask(checksum).to_le_bytes();
        bytes.extend_from_slice(&so_far);
        checksum = crc::extend(checksum, &so_far);
    }
    Ok((bytes, checksum))
}

/// The values, of types that the ops which use them know, and the checksum of the data.
pub(super) fn decode(mut bytes: Bytes, count: usize) -> Result<(Vec<Variant>, u32)> {
    let short = || status!(DataLoss, "the checkpoint's data ends within a variant tensor");
    ensure!(count <= bytes.len(), DataLoss, "{}", short().message());
    let (mut values, mut checksum) = (Vec::with_capacity(count), 0);
    for value in 0..count {
        let length = decode_varint(&mut bytes).map_err(|_| short())?;
        let whole = length.checked_add(4).is_some_and(|whole| whole <= bytes.remaining() as u64);
        ensure!(whole, DataLoss, "{}", short().message());
        let message = bytes.split_to(length as usize);
        checksum = crc::extend(checksum, &length.to_le_bytes());
        checksum = crc::extend(checksum, &message);
        let stored = bytes.split_to(4);
        ensure!(
            *stored == crc::mask(checksum).to_le_bytes(),
            DataLoss,
            "The checksum after Variant {value} does not match."
        );
        checksum = crc::extend(checksum, &stored);
        let message = VariantTensorDataProto::decode(message)
            .map_err(|_| status!(DataLoss, "Unable to parse VariantTensorDataProto from the checkpoint"))?;
        values.push(Variant::opaque(&message));
    }
    Ok((values, checksum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;

    #[test]
    fn values_survive_and_damage_is_noticed() {
        let proto = VariantTensorDataProto { type_name: "some::Type".to_owned(), ..Default::default() };
        let (bytes, written) = encode(&[Variant::opaque(&proto), Variant::default()]).unwrap();
        let (values, read) = decode(bytes.clone().into(), 2).unwrap();
        assert_eq!((values.len(), written), (2, read));
        assert_eq!(values[0].to_proto().unwrap().type_name, "some::Type");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            let outcome = decode(damaged.into(), 2).map(|(_, checksum)| checksum);
            assert!(outcome.is_err_and(|error| error.code() == Code::DataLoss), "byte {at}");
        }
    }
}
