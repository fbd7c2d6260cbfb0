//! Rust source as a reader sees it: doc comments, string literals and code, each with its line.
//!
//! This is a lexer for what matters here. It knows comments, strings, raw strings and characters, so that a quote inside
//! of one of them does not start another.

/// A part of one line, or a string that may span several.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'a> {
    /// A line of a doc comment, without its slashes.
    Doc(&'a str),
    /// The content of a string literal, as it is written.
    Literal(&'a str),
    /// Code without comments and literals.
    Code(&'a str),
}

/// All pieces of a file with the numbers of the lines that they start on.
pub(super) fn pieces(text: &str) -> Vec<(usize, Piece<'_>)> {
    let mut reader = Reader { text, at: 0, line: 1, code_from: 0, pieces: Vec::new() };
    reader.read();
    reader.pieces
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    /// Where the code that is not yet a piece starts.
    code_from: usize,
    pieces: Vec<(usize, Piece<'a>)>,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn read(&mut self) {
        while let Some(c) = self.rest().chars().next() {
            let rest = self.rest();
            if rest.starts_with("//") {
                self.end_code();
                let comment = rest.split('\n').next().unwrap_or_default();
                let is_doc = (comment.starts_with("///") && !comment.starts_with("////"))
                    || comment.starts_with("//!");
                if is_doc {
                    self.pieces.push((self.line, Piece::Doc(comment[3..].trim())));
                }
                self.skip(comment.len());
            } else if rest.starts_with("/*") {
                self.end_code();
                let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
                self.skip(end);
            } else if let Some(hashes) = raw_string(rest).filter(|_| !self.is_inside_a_word()) {
                self.end_code();
                let open = rest.find('"').expect("a raw string has a quote") + 1;
                let close = format!("\"{}", "#".repeat(hashes));
                let length = rest[open..].find(&close).unwrap_or(rest.len() - open);
                self.literal(open, length, close.len());
            } else if c == '"' {
                self.end_code();
                let length = string_length(&rest[1..]);
                self.literal(1, length, 1);
            } else if let Some(length) = character(rest) {
                self.end_code();
                self.skip(length);
            } else if c == '\n' {
                self.end_code();
                self.skip(1);
            } else {
                self.at += c.len_utf8();
            }
        }
        self.end_code();
    }

    fn is_inside_a_word(&self) -> bool {
        self.text[..self.at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
    }

    /// Makes a piece of the code up to here.
    fn end_code(&mut self) {
        let code = &self.text[self.code_from..self.at];
        if !code.trim().is_empty() {
            self.pieces.push((self.line, Piece::Code(code)));
        }
        self.code_from = self.at;
    }

    fn literal(&mut self, open: usize, length: usize, close: usize) {
        let content = &self.rest()[open..open + length];
        self.pieces.push((self.line, Piece::Literal(content)));
        self.skip((open + length + close).min(self.rest().len()));
    }

    /// Goes on behind what is not code.
    fn skip(&mut self, length: usize) {
        self.line += self.rest()[..length].matches('\n').count();
        self.at += length;
        self.code_from = self.at;
    }
}

/// The number of hashes of a raw string that starts here.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// The length of a string's content up to its closing quote.
fn string_length(content: &str) -> usize {
    let mut escaped = false;
    for (at, c) in content.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    content.len()
}

/// The length of a character literal that starts here; lifetimes are none.
fn character(rest: &str) -> Option<usize> {
    let content = rest.strip_prefix('\'')?;
    if content.starts_with('\\') {
        let end = content[2..].find('\'')?;
        return Some(end + 4);
    }
    let c = content.chars().next()?;
    content[c.len_utf8()..].starts_with('\'').then(|| c.len_utf8() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_code_are_told_apart() {
        let text = "//! A file.\nlet a = \"b // c\"; // \"d\"\n";
        let expected = [
            (1, Piece::Doc("A file.")),
            (2, Piece::Code("let a = ")),
            (2, Piece::Literal("b // c")),
            (2, Piece::Code("; ")),
        ];
        assert_eq!(pieces(text), expected);
    }

    #[test]
    fn quotes_inside_of_literals_do_not_start_others() {
        let text = "f('\"', '\\'', b'\\\\', &'a str, r#\"x \"y\" z\"#, \"\\\"\");\n/// End.\n";
        let literals: Vec<_> =
            pieces(text).into_iter().filter(|(_, piece)| !matches!(piece, Piece::Code(_))).collect();
        let expected =
            [(1, Piece::Literal("x \"y\" z")), (1, Piece::Literal("\\\"")), (2, Piece::Doc("End."))];
        assert_eq!(literals, expected);
    }

    #[test]
    fn lines_are_counted_across_literals_and_comments() {
        let text = "let a = \"one\ntwo\";\n/* three\nfour */ let b = 1;\n";
        let lines: Vec<usize> = pieces(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 1, 2, 4]);
    }
}
