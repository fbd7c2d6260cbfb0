//! Values of JSON as YAML.
//!
//! A string of JSON is one of YAML, so only the layout is decided here: blocks, and quotes only where a reader of YAML
//! could take a word for something else.

use serde_json::Value;
use std::fmt::Write;

/// Writes documents one after the other.
pub(super) fn documents(values: &[Value]) -> String {
    let mut text = String::new();
    for (position, value) in values.iter().enumerate() {
        if position > 0 {
            text.push_str("---\n");
        }
        block(&mut text, value, 0);
    }
    text
}

/// Writes a value on lines of its own; the cursor is at the start of the line, or behind the dash of a list.
fn block(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (position, (name, value)) in fields.iter().enumerate() {
                if position > 0 {
                    pad(text, indent);
                }
                let _ = write!(text, "{}:", word(name));
                below(text, value, indent);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    pad(text, indent);
                }
                text.push_str("- ");
                block(text, item, indent + 2);
            }
        }
        scalar => {
            text.push_str(&inline(scalar));
            text.push('\n');
        }
    }
}

/// Writes a value behind the colon of its name.
fn below(text: &mut String, value: &Value, indent: usize) {
    let nested = match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if !nested {
        text.push(' ');
        return block(text, value, indent);
    }
    // Lists are written at the indentation of their name, as kubectl writes them.
    let deeper = if value.is_array() { indent } else { indent + 2 };
    text.push('\n');
    pad(text, deeper);
    block(text, value, deeper);
}

fn pad(text: &mut String, indent: usize) {
    text.extend(std::iter::repeat_n(' ', indent));
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => word(text),
        other => other.to_string(),
    }
}

/// Returns a string, in quotes unless it reads as itself.
fn word(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    // Words that some version of YAML takes for a truth value, nothing or a number.
    let special = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"];
    if plain && !special.contains(&text.to_ascii_lowercase().as_str()) {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::documents;
    use serde_json::json;

    #[test]
    fn only_what_is_ambiguous_is_quoted() {
        let value = json!({
            "kind": "Service",
            "empty": {"list": [], "map": {}},
            "list": ["a", {"b": [1, [2]], "c": true}],
            "words": {"no": "on", "n": "a: b", "port": "2222", "path": "apps/v1", "json": "{\"a\":\n1}"},
        });
        let text = "\
empty:
  list: []
  map: {}
kind: Service
list:
- a
- b:
  - 1
  - - 2
  c: true
words:
  json: \"{\\\"a\\\":\\n1}\"
  \"n\": \"a: b\"
  \"no\": \"on\"
  path: apps/v1
  port: \"2222\"
---
1
";
        assert_eq!(documents(&[value, json!(1)]), text);
    }
}
