//! `tf.Example` messages written as JSON, turned into their serialized form.

use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Result, kernels, status};
use prost::encoding::encode_varint;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

pub(crate) const OPS: &[&Op] = &[&DECODE_JSON_EXAMPLE];

static DECODE_JSON_EXAMPLE: Op = Op {
    name: "DecodeJSONExample",
    inputs: &["json_examples: string"],
    outputs: &["binary_examples: string"],
    shape: shapes::unchanged,
    kernels: kernels![any decode_json_kernel],
    ..Op::PURE
};

fn decode_json_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let mut texts = cx.take(0)?;
        for text in texts.flat_mut::<Str>()? {
            let read = serde_json::from_slice::<Json>(text).map_err(|error| error.to_string());
            let message = read.and_then(|json| example(&json));
            let message = message
                .map_err(|complaint| status!(InvalidArgument, "Error while parsing JSON: {complaint}"))?;
            *text = message.into();
        }
        Ok(texts.into())
    })
}

/// A JSON value whose members keep their order, in which they are serialized.
enum Json {
    Null,
    Bool,
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Members(Vec<(String, Json)>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Bool)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Json::Members(members))
    }
}

type Complaint = String;

/// Writes the values of a list.
type Encode = fn(&[Json]) -> Result<Vec<u8>, Complaint>;

/// Calls `each` with every member of an object but those that are null.
fn members(json: &Json, each: &mut dyn FnMut(&str, &Json) -> Result<(), Complaint>) -> Result<(), Complaint> {
    let Json::Members(members) = json else { return Err("expected an object".to_owned()) };
    members
        .iter()
        .filter(|(_, value)| !matches!(value, Json::Null))
        .try_for_each(|(name, value)| each(name, value))
}

fn field(number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    encode_varint(number << 3 | 2, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn unknown<T>(message: &str, name: &str) -> Result<T, Complaint> {
    Err(format!("no such field: '{name}' in {message}"))
}

fn example(json: &Json) -> Result<Vec<u8>, Complaint> {
    let mut out = Vec::new();
    members(json, &mut |name, value| match name {
        "features" => {
            field(1, &features(value)?, &mut out);
            Ok(())
        }
        other => unknown("tensorflow.Example", other),
    })?;
    Ok(out)
}

fn features(json: &Json) -> Result<Vec<u8>, Complaint> {
    let mut out = Vec::new();
    members(json, &mut |name, value| match name {
        "feature" => {
            let Json::Members(entries) = value else { return Err("expected an object".to_owned()) };
            for (key, value) in entries {
                let mut entry = Vec::new();
                field(1, key.as_bytes(), &mut entry);
                if !matches!(value, Json::Null) {
                    field(2, &feature(value)?, &mut entry);
                }
                field(1, &entry, &mut out);
            }
            Ok(())
        }
        other => unknown("tensorflow.Features", other),
    })?;
    Ok(out)
}

fn feature(json: &Json) -> Result<Vec<u8>, Complaint> {
    let mut out = Vec::new();
    let mut lists = 0;
    members(json, &mut |name, value| {
        let (number, encode): (u64, Encode) = match name {
            "bytesList" | "bytes_list" => (1, bytes_list),
            "floatList" | "float_list" => (2, float_list),
            "int64List" | "int64_list" => (3, int64_list),
            other => return unknown("tensorflow.Feature", other),
        };
        lists += 1;
        let mut content = Vec::new();
        members(value, &mut |name, values| match (name, values) {
            ("value", Json::List(values)) => {
                content = encode(values)?;
                Ok(())
            }
            ("value", _) => Err("expected a list".to_owned()),
            (other, _) => unknown("list", other),
        })?;
        field(number, &content, &mut out);
        Ok(())
    })?;
    if lists > 1 { Err("multiple values for oneof: 'kind'".to_owned()) } else { Ok(out) }
}

fn bytes_list(values: &[Json]) -> Result<Vec<u8>, Complaint> {
    let mut out = Vec::new();
    for value in values {
        let bytes = match value {
            Json::Null => Vec::new(),
            Json::Text(text) => base64(text).ok_or_else(|| format!("invalid base 64: '{text}'"))?,
            _ => return Err("expected a string of base 64".to_owned()),
        };
        field(1, &bytes, &mut out);
    }
    Ok(out)
}

/// Bytes of either alphabet, with or without padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').bytes().map(|byte| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    });
    let digits = digits.collect::<Option<Vec<u8>>>()?;
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        if group.len() == 1 {
            return None;
        }
        let bits = (0..4).fold(0u32, |bits, at| bits << 6 | u32::from(group.get(at).copied().unwrap_or(0)));
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(out)
}

/// Tags of the first field, a float or an integer: stock writes lists of numbers one by one.
const FIXED32: u8 = 1 << 3 | 5;
const VARINT: u8 = 1 << 3;

fn float_list(values: &[Json]) -> Result<Vec<u8>, Complaint> {
    let mut out = Vec::new();
    for value in values {
        let number = match value {
            Json::Null => 0.0,
            Json::Integer(value) => *value as f64,
            Json::Float(value) => *value,
            Json::Text(text) => match text.as_str() {
                "NaN" => f64::NAN,
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                text => text.parse().map_err(|_| format!("invalid number: '{text}'"))?,
            },
            _ => return Err("expected a number".to_owned()),
        };
        let single = number as f32;
        if number.is_finite() && single.is_infinite() {
            return Err("float out of range".to_owned());
        }
        out.push(FIXED32);
        out.extend_from_slice(&single.to_le_bytes());
    }
    Ok(out)
}

fn int64_list(values: &[Json]) -> Result<Vec<u8>, Complaint> {
    let mut out = Vec::new();
    for value in values {
        let number = match value {
            Json::Null => Some(0),
            Json::Integer(value) => Some(*value),
            Json::Float(value) => whole(*value),
            Json::Text(text) => text.parse().ok().or_else(|| text.parse().ok().and_then(whole)),
            _ => None,
        };
        let number = number.and_then(|number| i64::try_from(number).ok());
        out.push(VARINT);
        encode_varint(number.ok_or("expected a 64-bit integer")? as u64, &mut out);
    }
    Ok(out)
}

fn whole(value: f64) -> Option<i128> {
    (value.fract() == 0.0 && value.abs() < 2f64.powi(63)).then_some(value as i128)
}
