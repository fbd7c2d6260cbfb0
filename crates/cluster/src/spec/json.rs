//! JSON parsing for handwritten clusters: a repeated field is an error, instead of one value silently winning.

use ferroflow_core::{Result, status};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};
use std::fmt;

/// Parses JSON and rejects objects that repeat a field.
pub fn parse_json(text: &str) -> Result<Value> {
    let parsed: serde_json::Result<Once> = serde_json::from_str(text);
    parsed.map(|Once(value)| value).map_err(|error| match error.classify() {
        Category::Data => status!(InvalidArgument, "{error}"),
        _ => {
            let quoted = text.trim_start().starts_with("{'");
            let fix = if quoted { "; JSON uses double quotes" } else { "" };
            status!(InvalidArgument, "not JSON: {error}{fix}")
        }
    })
}

/// A value without repeated fields.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Once, D::Error> {
        from.deserialize_any(Reader).map(Once)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Once(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, Once(value))) = entries.next_entry::<String, Once>()? {
            if map.contains_key(&name) {
                return Err(A::Error::custom(format!("'{name}' is named twice")));
            }
            map.insert(name, value);
        }
        Ok(map.into())
    }
}
