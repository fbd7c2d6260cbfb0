//! Names that DNS and every manager take.

/// The longest label of DNS.
pub(super) const LONGEST_LABEL: usize = 63;

/// Returns the nearest label of DNS: lower-case letters, digits and inner dashes, a letter first.
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
    if label.len() > LONGEST_LABEL {
        return Err(format!("'{label}' has {} characters, at most {LONGEST_LABEL} are allowed", label.len()));
    }
    Ok(label.to_owned())
}

/// Checks that a name leaves room for the suffixes that the manager adds to it, of which this is the longest.
pub(super) fn check_room(name: &str, longest: &str, limit: usize) -> Result<(), String> {
    if longest.len() > limit {
        return Err(format!(
            "--name: '{name}' is too long: '{longest}' would have {} characters, at most {limit} are allowed",
            longest.len()
        ));
    }
    Ok(())
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
