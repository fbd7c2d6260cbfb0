//! An estimate of the memory that decoding a message takes. Generated decoders allocate as they go and cannot be
//! stopped, and two bytes on the wire can become a message of some hundred bytes in memory.

use bytes::Buf;
use prost::encoding::{WireType, decode_varint};

/// Bytes of a nested message, with its share of the vector or map that holds it.
const MESSAGE_BYTES: usize = 256;
/// Bytes of a string or list in addition to its content.
const BYTES_BYTES: usize = 48;
/// Bytes of a number.
const NUMBER_BYTES: usize = 16;
/// The depth of nesting that is inspected; anything deeper is assumed to be the costliest.
const DEPTH: usize = 12;

/// Field numbers that are never packed numbers in the messages of this protocol: names, ops, raw contents and strings
/// of tensors.
const NEVER_PACKED: [u64; 4] = [1, 2, 4, 8];

/// Estimates the bytes that a message takes in memory, not counting those on the wire.
pub(crate) fn decoded(message: &[u8]) -> usize {
    nested(message, DEPTH).unwrap_or(message.len())
}

/// Estimates bytes that may be a message; `None` if they are not.
fn nested(mut rest: &[u8], depth: usize) -> Option<usize> {
    let mut cost = 0usize;
    while !rest.is_empty() {
        let key = decode_varint(&mut rest).ok()?;
        let (number, wire_type) = (key >> 3, WireType::try_from(key & 7).ok()?);
        if number == 0 || number >= 1 << 29 {
            return None;
        }
        let skipped = match wire_type {
            WireType::Varint => {
                decode_varint(&mut rest).ok()?;
                cost += NUMBER_BYTES;
                continue;
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut rest).ok()?).ok()?,
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        let (field, after) = rest.split_at_checked(skipped)?;
        rest = after;
        cost += match wire_type {
            WireType::LengthDelimited => field_cost(number, field, depth),
            _ => NUMBER_BYTES,
        };
    }
    Some(cost)
}

fn field_cost(number: u64, field: &[u8], depth: usize) -> usize {
    let Some(depth) = depth.checked_sub(1) else { return field.len().saturating_mul(MESSAGE_BYTES / 2) };
    if let Some(cost) = nested(field, depth) {
        return MESSAGE_BYTES + cost;
    }
    let packed = if NEVER_PACKED.contains(&number) {
        0
    } else {
        field.iter().filter(|byte| **byte < 0x80).count() * size_of::<u64>()
    };
    BYTES_BYTES + field.remaining() + packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_proto::tensorflow::attr_value::Value;
    use ferroflow_proto::tensorflow::{AttrValue, GraphDef, NodeDef, TensorProto};
    use prost::Message;

    fn cost(message: &impl Message) -> usize {
        decoded(&message.encode_to_vec())
    }

    #[test]
    fn empty_messages_cost_what_they_take() {
        let graph = GraphDef { node: vec![NodeDef::default(); 1000], ..Default::default() };
        let cost = cost(&graph);
        assert!(cost >= 1000 * size_of::<NodeDef>(), "{cost} for nodes of {} bytes", size_of::<NodeDef>());
    }

    #[test]
    fn numbers_cost_more_than_on_the_wire() {
        let tensor = TensorProto { int64_val: vec![1; 10_000], ..Default::default() };
        assert!(cost(&tensor) >= 80_000);
    }

    #[test]
    fn raw_contents_are_not_multiplied() {
        let content: Vec<u8> = (0..100_000u32).flat_map(|i| (i as f32).sqrt().to_le_bytes()).collect();
        let tensor = TensorProto { dtype: 1, tensor_content: content.into(), ..Default::default() };
        let value = AttrValue { value: Some(Value::Tensor(Box::new(tensor))) };
        let node =
            NodeDef { name: "c".into(), attr: [("value".to_owned(), value)].into(), ..Default::default() };
        let cost = cost(&GraphDef { node: vec![node], ..Default::default() });
        assert!((400_000..500_000).contains(&cost), "{cost}");
    }

    #[test]
    fn whatever_comes_has_a_cost() {
        for bytes in
            [&b""[..], b"\x0a", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b", b"\x00", &[0x0a, 1]]
        {
            decoded(bytes);
        }
        // Nested deeper than the estimate looks.
        let deep = (0..100).fold(vec![0x0a, 0], |inner, _| {
            let mut outer = vec![0x0a, (inner.len() & 0x7f) as u8 | 0x80, (inner.len() >> 7) as u8];
            outer.extend(inner);
            outer
        });
        assert!(decoded(&deep) >= deep.len());
    }
}
