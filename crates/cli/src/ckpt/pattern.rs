//! Names of tensors with wildcards.

/// A name in which `*` stands for any characters.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Vec<String>);

impl std::str::FromStr for Pattern {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Pattern, Self::Err> {
        Ok(Pattern(text.split('*').map(str::to_owned).collect()))
    }
}

impl Pattern {
    /// Returns whether a name fits.
    pub(super) fn matches(&self, name: &str) -> bool {
        let (first, others) = self.0.split_first().expect("a split has at least one part");
        let Some(mut rest) = name.strip_prefix(first.as_str()) else { return false };
        let Some((last, middle)) = others.split_last() else { return rest.is_empty() };
        for part in middle {
            let Some(at) = rest.find(part.as_str()) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last.as_str())
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("*"))
    }
}

/// Returns whether a name fits one of the patterns; without patterns every name does.
pub(super) fn selects(patterns: &[Pattern], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, name, expected) in [
            ("w", "w", true),
            ("w", "ww", false),
            ("*", "a/b", true),
            ("dense/*", "dense/kernel", true),
            ("dense/*", "dense", false),
            ("*/kernel", "a/b/kernel", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("ab*ba", "aba", false),
        ] {
            let parsed: Pattern = pattern.parse().expect("any text is a pattern");
            assert_eq!(parsed.matches(name), expected, "{pattern} and {name}");
        }
    }
}
