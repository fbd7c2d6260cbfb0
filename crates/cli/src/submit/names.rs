//! Names that DNS and every manager take.

/// Labels of DNS are no longer.
pub(super) const LONGEST_LABEL: usize = 63;

/// The nearest label of DNS: lower-case letters, digits and inner dashes, a letter first.
pub(super) fn label(text: &str) -> Result<String, String> {
    let mut label = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.to_ascii_lowercase() {
            letter @ ('a'..='z' | '0'..='9') => label.push(letter),
            _ if label.is_empty() || label.ends_with('-') => {}
            _ => label.push('-'),
        }
    }
    let label = label.trim_end_matches('-').trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
    if label.is_empty() {
        return Err(format!("'{text}' has no letter that a name could begin with"));
    }
    match label.len() <= LONGEST_LABEL {
        true => Ok(label.to_owned()),
        false => {
            Err(format!("'{label}' has {} characters, at most {LONGEST_LABEL} are allowed", label.len()))
        }
    }
}

/// Checks that a name leaves room for what the manager adds to it, of which this is the longest.
pub(super) fn check_room(name: &str, longest: &str, limit: usize) -> Result<(), String> {
    match longest.len() <= limit {
        true => Ok(()),
        false => Err(format!(
            "--name: '{name}' is too long: '{longest}' would have {} characters, at most {limit} are allowed",
            longest.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn names_become_labels() {
        let labels = ["train", "My_Trainer.v2", "--x--", "9lives", "a..b"].map(|text| label(text).unwrap());
        assert_eq!(labels, ["train", "my-trainer-v2", "x", "lives", "a-b"]);
        assert!(label("42").unwrap_err().contains("no letter"));
        assert!(label("ÄÖ").unwrap_err().contains("no letter"));
        assert!(label(&"x".repeat(64)).unwrap_err().contains("at most 63"));
    }
}
