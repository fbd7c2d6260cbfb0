//! Messages read and written again as stock does it: known fields in the order of their numbers, and behind them, as it
//! came, what nobody knows. The types of the `proto` crate drop the latter and refuse fields of another kind, which are
//! unknown fields to stock.

pub(crate) mod summary;

use prost::encoding::{decode_varint, encode_varint};
use std::collections::BTreeMap;

/// The depth to which messages and groups may be nested, as in stock.
const DEEPEST: usize = 100;

/// The type of a field.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A signed integer of 32 bits, or an enumeration.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// An unsigned integer of 32 bits.
    Uint32,
    /// A truth value.
    Bool,
    /// Four bytes.
    Fixed32,
    /// Eight bytes.
    Fixed64,
    /// Any bytes.
    Bytes,
    /// UTF-8.
    Text,
    /// A message with these fields.
    Message(&'static [Field]),
}

/// The number of times that a field may be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    /// Once, and not at all if it is zero or empty.
    Once,
    /// Once, and then no other field of this label is.
    OneOf,
    /// Many times; numbers are packed.
    Many,
}

/// A field: its number, its label and what it holds.
pub(crate) struct Field(pub u32, pub Label, pub Kind);

/// A value on the wire.
enum Raw<'a> {
    Varint(u64),
    Fixed(&'a [u8]),
    Bytes(&'a [u8]),
    Group,
}

/// The value of a message's field.
enum Held {
    Number(Vec<u8>),
    Packed(Vec<u8>),
    Bytes(Vec<Vec<u8>>),
    Messages(Vec<Message>),
}

/// A message that keeps what it does not know.
#[derive(Default)]
pub(crate) struct Message {
    known: BTreeMap<u32, Held>,
    unknown: Vec<u8>,
}

impl Message {
    /// Adds what these bytes hold, up to the first mistake; false if there is one.
    #[must_use]
    pub(crate) fn merge(&mut self, fields: &[Field], bytes: &[u8]) -> bool {
        self.merge_at(fields, bytes, 0).is_some()
    }

    /// The bytes of a field that holds text or bytes.
    pub(crate) fn bytes(&self, number: u32) -> &[u8] {
        match self.known.get(&number) {
            Some(Held::Bytes(values)) => values.last().map_or(&[], Vec::as_slice),
            _ => &[],
        }
    }

    /// The messages that a field holds.
    pub(crate) fn into_messages(mut self, number: u32) -> Vec<Message> {
        match self.known.remove(&number) {
            Some(Held::Messages(messages)) => messages,
            _ => Vec::new(),
        }
    }

    fn merge_at(&mut self, fields: &[Field], mut rest: &[u8], depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        while !rest.is_empty() {
            let start = rest;
            let (number, raw) = read(&mut rest, depth)?;
            let field = fields.iter().find(|field| field.0 == number);
            if !self.take(fields, field, &raw, depth)? {
                self.keep(number, &raw, &start[..start.len() - rest.len()]);
            }
        }
        Some(())
    }

    /// Takes a value of a known field; false if it is of another kind than the field's.
    fn take(&mut self, fields: &[Field], field: Option<&Field>, raw: &Raw<'_>, depth: usize) -> Option<bool> {
        let Some(Field(number, label, kind)) = field else { return Some(false) };
        if let (Label::Many, Raw::Bytes(bytes), Some(size)) = (label, raw, packed_size(*kind)) {
            let Held::Packed(packed) = self.known.entry(*number).or_insert_with(|| Held::Packed(Vec::new()))
            else {
                return Some(false);
            };
            let mut rest = *bytes;
            while !rest.is_empty() {
                let raw = match size {
                    0 => Raw::Varint(decode_varint(&mut rest).ok()?),
                    size => Raw::Fixed(rest.split_off(..size)?),
                };
                packed.extend(number_bytes(*kind, &raw)?);
            }
            return Some(true);
        }
        if *label == Label::OneOf && fits(*kind, raw) {
            let other = |field: &&Field| field.1 == Label::OneOf && field.0 != *number;
            for field in fields.iter().filter(other) {
                drop(self.known.remove(&field.0));
            }
        }
        match (kind, raw) {
            (Kind::Message(inner), Raw::Bytes(bytes)) => {
                let held = self.known.entry(*number).or_insert_with(|| Held::Messages(Vec::new()));
                let Held::Messages(messages) = held else { return Some(false) };
                if *label == Label::Many || messages.is_empty() {
                    messages.push(Message::default());
                }
                messages.last_mut()?.merge_at(inner, bytes, depth + 1)?;
            }
            (Kind::Bytes | Kind::Text, Raw::Bytes(bytes)) => {
                let held = self.known.entry(*number).or_insert_with(|| Held::Bytes(Vec::new()));
                let Held::Bytes(values) = held else { return Some(false) };
                if *label != Label::Many {
                    values.clear();
                }
                values.push(bytes.to_vec());
                if matches!(kind, Kind::Text) {
                    std::str::from_utf8(bytes).ok()?;
                }
            }
            _ => {
                let Some(bytes) = number_bytes(*kind, raw) else { return Some(false) };
                match (label, self.known.get_mut(number)) {
                    (Label::Many, Some(Held::Packed(packed))) => packed.extend(bytes),
                    (Label::Many, _) => drop(self.known.insert(*number, Held::Packed(bytes))),
                    _ => drop(self.known.insert(*number, Held::Number(bytes))),
                }
            }
        }
        Some(true)
    }

    /// Keeps a field that nobody knows; numbers are written as short as they can be.
    fn keep(&mut self, number: u32, raw: &Raw<'_>, whole: &[u8]) {
        match raw {
            Raw::Varint(value) => {
                encode_varint(u64::from(number) << 3, &mut self.unknown);
                encode_varint(*value, &mut self.unknown);
            }
            Raw::Bytes(bytes) => push_bytes(number, bytes, &mut self.unknown),
            Raw::Fixed(_) | Raw::Group => self.unknown.extend(whole),
        }
    }

    /// The message's bytes.
    pub(crate) fn encode(&self, fields: &[Field]) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, held) in &self.known {
            let Some(Field(_, label, kind)) = fields.iter().find(|field| field.0 == *number) else {
                continue;
            };
            let once = *label == Label::Once;
            match (held, kind) {
                (Held::Messages(messages), Kind::Message(inner)) => {
                    for message in messages.iter() {
                        push_bytes(*number, &message.encode(inner), &mut out);
                    }
                }
                (Held::Bytes(values), _) => {
                    let written = values.iter().filter(|value| !(once && value.is_empty()));
                    for value in written {
                        push_bytes(*number, value, &mut out);
                    }
                }
                (Held::Packed(bytes), _) if !bytes.is_empty() => push_bytes(*number, bytes, &mut out),
                (Held::Number(bytes), _) if !once || bytes.iter().any(|byte| *byte != 0) => {
                    let kind: u64 = match kind {
                        Kind::Fixed32 => 5,
                        Kind::Fixed64 => 1,
                        _ => 0,
                    };
                    encode_varint((u64::from(*number) << 3) | kind, &mut out);
                    out.extend(bytes);
                }
                _ => {}
            }
        }
        out.extend(&self.unknown);
        out
    }
}

fn push_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_varint((u64::from(number) << 3) | 2, out);
    encode_varint(bytes.len() as u64, out);
    out.extend(bytes);
}

/// The bytes of one packed number of this kind, zero if they vary; none if the kind is no number's.
fn packed_size(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Bool => Some(0),
        Kind::Fixed32 => Some(4),
        Kind::Fixed64 => Some(8),
        Kind::Bytes | Kind::Text | Kind::Message(_) => None,
    }
}

fn fits(kind: Kind, raw: &Raw<'_>) -> bool {
    match packed_size(kind) {
        Some(_) => number_bytes(kind, raw).is_some(),
        None => matches!(raw, Raw::Bytes(_)),
    }
}

/// A number as it is written; none if the value is of another kind.
fn number_bytes(kind: Kind, raw: &Raw<'_>) -> Option<Vec<u8>> {
    let value = match (kind, raw) {
        (Kind::Fixed32, Raw::Fixed(bytes)) if bytes.len() == 4 => return Some(bytes.to_vec()),
        (Kind::Fixed64, Raw::Fixed(bytes)) if bytes.len() == 8 => return Some(bytes.to_vec()),
        (Kind::Int32, Raw::Varint(value)) => i64::from(*value as i32) as u64,
        (Kind::Int64, Raw::Varint(value)) => *value,
        (Kind::Uint32, Raw::Varint(value)) => u64::from(*value as u32),
        (Kind::Bool, Raw::Varint(value)) => u64::from(*value != 0),
        _ => return None,
    };
    let mut bytes = Vec::new();
    encode_varint(value, &mut bytes);
    Some(bytes)
}

/// Reads a field's number and value; none if there is no whole one.
fn read<'a>(rest: &mut &'a [u8], depth: usize) -> Option<(u32, Raw<'a>)> {
    let tag = u32::try_from(decode_varint(rest).ok()?).ok()?;
    let number = tag >> 3;
    let raw = match tag & 7 {
        _ if number == 0 => return None,
        0 => Raw::Varint(decode_varint(rest).ok()?),
        1 => Raw::Fixed(rest.split_off(..8)?),
        2 => {
            let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
            Raw::Bytes(rest.split_off(..length)?)
        }
        3 if depth < DEEPEST => {
            let end = (u64::from(number) << 3) | 4;
            loop {
                let mut ahead = *rest;
                if decode_varint(&mut ahead).ok()? == end {
                    *rest = ahead;
                    break;
                }
                read(rest, depth + 1)?;
            }
            Raw::Group
        }
        5 => Raw::Fixed(rest.split_off(..4)?),
        _ => return None,
    };
    Some((number, raw))
}

#[cfg(test)]
mod tests {
    use super::summary::VALUE;
    use super::*;
    use ferroflow_proto::tensorflow::summary::{Image, Value, value};
    use ferroflow_proto::tensorflow::{HistogramProto, SummaryMetadata, TensorProto};
    use prost::Message as _;

    fn again(fields: &[Field], bytes: &[u8]) -> Option<Vec<u8>> {
        let mut message = Message::default();
        message.merge(fields, bytes).then(|| message.encode(fields))
    }

    #[test]
    fn what_is_known_comes_back() {
        let tensor = TensorProto {
            dtype: 3,
            int_val: vec![1, -2, 300],
            half_val: vec![7],
            float_val: vec![0.5],
            string_val: vec![bytes::Bytes::from_static(b"a"), bytes::Bytes::new()],
            ..Default::default()
        };
        let histogram = HistogramProto { min: -1.0, bucket: vec![1.0, 2.0], ..Default::default() };
        let image =
            Image { height: 2, encoded_image_string: bytes::Bytes::from_static(b"x"), ..Default::default() };
        for held in [
            value::Value::SimpleValue(0.0),
            value::Value::Tensor(tensor),
            value::Value::Histo(histogram),
            value::Value::Image(image),
        ] {
            let metadata = SummaryMetadata { display_name: "d".into(), data_class: 2, ..Default::default() };
            let value =
                Value { tag: "t".into(), metadata: Some(metadata), value: Some(held), ..Default::default() };
            let bytes = again(VALUE, &value.encode_to_vec()).unwrap();
            assert_eq!(Value::decode(bytes.as_slice()).unwrap(), value);
        }
    }

    #[test]
    fn what_is_unknown_moves_to_the_end() {
        assert_eq!(again(VALUE, b"\x78\x85\x80\x00\x08\x05\x0a\x01a").unwrap(), b"\x0a\x01a\x78\x05\x08\x05");
        assert_eq!(again(VALUE, b"\x7b\x08\x01\x7c\x0a\x01a").unwrap(), b"\x0a\x01a\x7b\x08\x01\x7c");
    }

    #[test]
    fn mistakes_are_found() {
        let groups = [[0x7b; 200], [0x7c; 200]].concat();
        for bytes in [
            b"\x0a\x05ab".as_slice(),
            b"\x00",
            b"\x7b\x08",
            b"\x7c",
            b"\x0a\x01\xff",
            b"\x7e",
            groups.as_slice(),
        ] {
            assert!(again(VALUE, bytes).is_none(), "{bytes:?}");
        }
    }
}
