//! Regular expressions with RE2's syntax and meaning, on the `regex` crate.

mod syntax;

use ferroflow_core::kernel::Str;
use ferroflow_core::{Result, status};
use regex::bytes::{Regex, RegexBuilder};

/// A compiled pattern. Texts are bytes; a character of the pattern stands for its UTF-8 bytes.
pub(crate) struct Pattern {
    regex: Regex,
}

/// A replacement: literal pieces and references to groups.
pub(crate) struct Rewrite {
    parts: Vec<Part>,
    highest_group: usize,
    /// Whether all of it could be read.
    is_complete: bool,
}

enum Part {
    Literal(Vec<u8>),
    Group(usize),
}

impl Pattern {
    /// Compiles a pattern that may match anywhere.
    pub(crate) fn new(pattern: &[u8]) -> Result<Pattern> {
        Pattern::compile(pattern, |translated| translated)
    }

    /// Compiles a pattern that must match a whole text.
    pub(crate) fn full(pattern: &[u8]) -> Result<Pattern> {
        Pattern::compile(pattern, |translated| format!(r"\A(?:{translated})\z"))
    }

    fn compile(pattern: &[u8], complete: impl FnOnce(String) -> String) -> Result<Pattern> {
        /// The most memory that a compiled pattern may take.
        const MOST_BYTES: usize = 16 << 20;
        let invalid = |reason: String| {
            let pattern = String::from_utf8_lossy(pattern);
            status!(InvalidArgument, "Invalid pattern: {pattern}, error: {reason}")
        };
        let translated = complete(syntax::translate(pattern).map_err(invalid)?);
        let regex = RegexBuilder::new(&translated)
            // Groups, repetitions and flags around them.
            .nest_limit(4 * syntax::MOST_NESTED)
            .size_limit(MOST_BYTES)
            .build()
            .map_err(|_| invalid(syntax::TOO_LARGE.to_owned()))?;
        Ok(Pattern { regex })
    }

    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// Replaces the first match or all of them. A rewrite that names groups the pattern does not have changes nothing; one
    /// that cannot be read to its end is used as far as it can, but not for a first match alone, as in RE2.
    pub(crate) fn replace(&self, text: &Str, rewrite: &Rewrite, all: bool) -> Str {
        if rewrite.highest_group >= self.regex.captures_len() || !(all || rewrite.is_complete) {
            return text.clone();
        }
        let mut out: Vec<u8> = Vec::with_capacity(text.len());
        let mut groups = self.regex.capture_locations();
        let (mut at, mut last_end) = (0, None);
        while at <= text.len() {
            let found = match rewrite.highest_group {
                0 => self.regex.find_at(text, at),
                _ => self.regex.captures_read_at(&mut groups, text, at),
            };
            let Some(found) = found else { break };
            out.extend_from_slice(&text[at..found.start()]);
            if found.is_empty() && last_end == Some(found.start()) {
                // Nothing, right behind the last match, is no further match: go on behind the next character.
                let length = syntax::first_character(&text[found.end()..]).map_or(1, |(_, length)| length);
                at = found.end() + length;
                out.extend_from_slice(&text[found.end()..at.min(text.len())]);
                continue;
            }
            for part in &rewrite.parts {
                match part {
                    Part::Literal(bytes) => out.extend_from_slice(bytes),
                    Part::Group(0) => out.extend_from_slice(found.as_bytes()),
                    Part::Group(number) => {
                        let (start, end) = groups.get(*number).unwrap_or_default();
                        out.extend_from_slice(&text[start..end]);
                    }
                }
            }
            at = found.end();
            last_end = Some(at);
            if !all {
                break;
            }
        }
        if last_end.is_none() {
            return text.clone();
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        out.into()
    }
}

impl Rewrite {
    /// Reads `\1` for the first group, `\0` for the match and `\\` for a backslash.
    pub(crate) fn new(text: &[u8]) -> Rewrite {
        let mut rewrite = Rewrite { parts: Vec::new(), highest_group: 0, is_complete: true };
        let mut literal = Vec::new();
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            let escaped = if *byte == b'\\' { Some(bytes.next()) } else { None };
            let group = match escaped {
                Some(Some(digit @ b'0'..=b'9')) => Some((digit - b'0') as usize),
                _ => None,
            };
            rewrite.highest_group = rewrite.highest_group.max(group.unwrap_or(0));
            match (escaped, group) {
                // Behind what cannot be read, only the groups count.
                _ if !rewrite.is_complete => {}
                (None, _) | (Some(Some(b'\\')), _) => literal.push(*byte),
                (Some(_), Some(group)) => {
                    rewrite.parts.push(Part::Literal(std::mem::take(&mut literal)));
                    rewrite.parts.push(Part::Group(group));
                }
                (Some(_), None) => rewrite.is_complete = false,
            }
        }
        rewrite.parts.push(Part::Literal(literal));
        rewrite
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(pattern: &str, rewrite: &str, input: &'static str) -> String {
        let out = Pattern::new(pattern.as_bytes()).unwrap().replace(
            &Str::from_static(input.as_bytes()),
            &Rewrite::new(rewrite.as_bytes()),
            true,
        );
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn classes_are_ascii_and_brackets_do_not_nest() {
        assert!(Pattern::full(br"\w+").unwrap().is_match(b"a_1"));
        assert!(!Pattern::full(br"\w").unwrap().is_match("Ä".as_bytes()));
        assert!(Pattern::full(b".").unwrap().is_match("Ä".as_bytes()));
        assert!(Pattern::full(br"[[\w&&]+").unwrap().is_match(b"[&a"));
        assert!(Pattern::full(br"[]a]+").unwrap().is_match(b"]a"));
        assert!(Pattern::full(br"[[:alpha:]\d]+").unwrap().is_match(b"a1"));
        assert!(Pattern::full(br"\Qa.b\E+").unwrap().is_match(b"a.bb"));
        assert!(Pattern::new(b"(unclosed").is_err());
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |depth: usize| Pattern::new(("(".repeat(depth) + "a" + &")".repeat(depth)).as_bytes());
        assert!(nested(500).unwrap().is_match(b"a"));
        assert!(nested(100_000).is_err());
    }

    #[test]
    fn rewrites_name_groups() {
        assert_eq!(replaced(r"(\w)(\w)", r"\2\1", "Hello"), "eHllo");
        assert_eq!(replaced("", "-", "aÄ"), "-a-Ä-");
        assert_eq!(replaced("a", r"\1", "abc"), "abc");
        assert_eq!(replaced("b", r"\\", "abc"), r"a\c");
        assert_eq!(replaced("abc", "", "abc"), "");
        assert_eq!(replaced("b", r"x\qy", "abc"), "axc");
    }
}
