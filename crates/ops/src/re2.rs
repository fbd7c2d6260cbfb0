//! Regular expressions with RE2's meaning: its classes are ASCII, its brackets do not nest.

use ferroflow_core::kernel::Str;
use ferroflow_core::{Result, status};

/// A compiled pattern. Text that is UTF-8 is matched by characters, other bytes as they are.
pub(crate) struct Pattern {
    text: regex::Regex,
    bytes: regex::bytes::Regex,
}

/// A replacement: literal pieces and references to groups.
pub(crate) struct Rewrite {
    parts: Vec<Part>,
    highest_group: usize,
}

enum Part {
    Literal(Vec<u8>),
    Group(usize),
}

impl Pattern {
    /// Compiles a pattern that may match anywhere.
    pub(crate) fn new(pattern: &str) -> Result<Pattern> {
        Pattern::compile(pattern, &translate(pattern))
    }

    /// Compiles a pattern that must match a whole text.
    pub(crate) fn full(pattern: &str) -> Result<Pattern> {
        Pattern::compile(pattern, &format!(r"\A(?:{})\z", translate(pattern)))
    }

    fn compile(pattern: &str, translated: &str) -> Result<Pattern> {
        let invalid = |error: regex::Error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            status!(InvalidArgument, "Invalid pattern: {pattern}, error: {reason}")
        };
        Ok(Pattern {
            text: regex::Regex::new(translated).map_err(invalid)?,
            bytes: regex::bytes::Regex::new(translated).map_err(invalid)?,
        })
    }

    pub(crate) fn is_match(&self, input: &[u8]) -> bool {
        match std::str::from_utf8(input) {
            Ok(text) => self.text.is_match(text),
            Err(_) => self.bytes.is_match(input),
        }
    }

    /// Replaces the first match or all of them. A rewrite that names groups the pattern does not have changes nothing.
    pub(crate) fn replace(&self, input: &Str, rewrite: &Rewrite, all: bool) -> Str {
        if rewrite.highest_group >= self.text.captures_len() {
            return input.clone();
        }
        let mut out: Vec<u8> = Vec::with_capacity(input.len());
        let mut end = 0;
        let limit = if all { usize::MAX } else { 1 };
        let mut expand = |range: std::ops::Range<usize>,
                          group: &dyn Fn(usize) -> Option<std::ops::Range<usize>>| {
            out.extend_from_slice(&input[end..range.start]);
            for part in &rewrite.parts {
                match part {
                    Part::Literal(bytes) => out.extend_from_slice(bytes),
                    Part::Group(number) => out.extend_from_slice(&input[group(*number).unwrap_or(0..0)]),
                }
            }
            end = range.end;
        };
        match std::str::from_utf8(input) {
            Ok(text) => {
                for found in self.text.captures_iter(text).take(limit) {
                    expand(found.get_match().range(), &|group| found.get(group).map(|part| part.range()));
                }
            }
            Err(_) => {
                for found in self.bytes.captures_iter(input).take(limit) {
                    expand(found.get_match().range(), &|group| found.get(group).map(|part| part.range()));
                }
            }
        }
        if end == 0 && out.is_empty() {
            return input.clone();
        }
        out.extend_from_slice(&input[end..]);
        out.into()
    }
}

impl Rewrite {
    /// Reads `\1` for the first group, `\0` for the match and `\\` for a backslash.
    pub(crate) fn new(text: &[u8]) -> Rewrite {
        let mut rewrite = Rewrite { parts: Vec::new(), highest_group: 0 };
        let mut literal = Vec::new();
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            if *byte != b'\\' {
                literal.push(*byte);
                continue;
            }
            match bytes.next() {
                Some(digit @ b'0'..=b'9') => {
                    rewrite.parts.push(Part::Literal(std::mem::take(&mut literal)));
                    let group = (digit - b'0') as usize;
                    rewrite.highest_group = rewrite.highest_group.max(group);
                    rewrite.parts.push(Part::Group(group));
                }
                Some(b'\\') => literal.push(b'\\'),
                // RE2 refuses such a rewrite when it is used, and the text stays.
                _ => rewrite.highest_group = usize::MAX,
            }
        }
        rewrite.parts.push(Part::Literal(literal));
        rewrite
    }
}

/// The same pattern in the syntax of the `regex` crate.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('Q') => quote_until_end(&mut chars, &mut out),
                Some(c) => out.push_str(&escaped(c, in_class)),
                None => out.push('\\'),
            },
            '[' if in_class => {
                // A named class such as [:alpha:] stays; any other bracket is literal.
                if chars.peek() == Some(&':') {
                    out.push('[')
                } else {
                    out.push_str(r"\[")
                }
                if chars.peek() == Some(&':') {
                    for c in chars.by_ref() {
                        out.push(c);
                        if c == ']' {
                            break;
                        }
                    }
                }
            }
            '[' => {
                in_class = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    out.extend(chars.next());
                }
                // A bracket that comes first stands for itself.
                if chars.peek() == Some(&']') {
                    chars.next();
                    out.push_str(r"\]");
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            // Doubled, these would combine classes; RE2 takes them as they are.
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            other => out.push(other),
        }
    }
    out
}

fn escaped(c: char, in_class: bool) -> String {
    let class = match c {
        'd' | 'D' => "0-9",
        'w' | 'W' => "0-9A-Za-z_",
        's' | 'S' => r"\t\n\f\r ",
        'b' | 'B' if !in_class => return format!(r"(?-u:\{c})"),
        'C' => return r"(?s-u:.)".to_owned(),
        // RE2 allows any other punctuation to be escaped, as the crate does.
        other => return format!("\\{other}"),
    };
    match (c.is_ascii_uppercase(), in_class) {
        (true, _) => format!("[^{class}]"),
        (false, true) => class.to_owned(),
        (false, false) => format!("[{class}]"),
    }
}

fn quote_until_end(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    while let Some(c) = chars.next() {
        if c == '\\' && chars.peek() == Some(&'E') {
            chars.next();
            return;
        }
        out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(pattern: &str, rewrite: &str, input: &'static str) -> String {
        let out = Pattern::new(pattern).unwrap().replace(
            &Str::from_static(input.as_bytes()),
            &Rewrite::new(rewrite.as_bytes()),
            true,
        );
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn classes_are_ascii_and_brackets_do_not_nest() {
        assert!(Pattern::full(r"\w+").unwrap().is_match(b"a_1"));
        assert!(!Pattern::full(r"\w").unwrap().is_match("Ä".as_bytes()));
        assert!(Pattern::full(".").unwrap().is_match("Ä".as_bytes()));
        assert!(Pattern::full(r"[[\w&&]+").unwrap().is_match(b"[&a"));
        assert!(Pattern::full(r"[]a]+").unwrap().is_match(b"]a"));
        assert!(Pattern::full(r"[[:alpha:]\d]+").unwrap().is_match(b"a1"));
        assert!(Pattern::full(r"\Qa.b\E+").unwrap().is_match(b"a.bb"));
        assert!(Pattern::new("(unclosed").is_err());
    }

    #[test]
    fn rewrites_name_groups() {
        assert_eq!(replaced(r"(\w)(\w)", r"\2\1", "Hello"), "eHllo");
        assert_eq!(replaced("", "-", "aÄ"), "-a-Ä-");
        assert_eq!(replaced("a", r"\1", "abc"), "abc");
        assert_eq!(replaced("b", r"\\", "abc"), r"a\c");
        assert_eq!(replaced("abc", "", "abc"), "");
    }
}
