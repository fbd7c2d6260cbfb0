//! Words that readers stumble over: relapses from plain English in doc comments and messages, and `match` on booleans.
//!
//! A message is any string literal of the source. Comments that are not documentation are left to their authors.

use super::rust_text::{Piece, pieces};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Directories whose Rust files the rules cover.
const RUST: &[&str] = &["benches/", "crates/", "tests/", "xtask/"];

/// Directories whose Python docstrings they cover.
const PYTHON: &[&str] = &["oracle/", "crates/python/"];

/// The rules themselves name the words.
const EXEMPT: &[&str] = &["xtask/src/tidy/words.rs"];

/// A doc comment starts with a noun phrase or a verb, not with one of these.
const STARTS: &[&str] = &["What ", "Whoever ", "How ", "So many "];

/// Words with a plainer one: Ferroflow, the role, the number.
const PHRASES: &[&str] = &["of ours", "whoever", "so many"];

/// What may follow "is no": idioms.
const AFTER_IS_NO: &[&str] = &["longer", "more", "less", "other"];

/// The places of the tracked files `names` at which a rule is broken.
pub(super) fn check(root: &Path, names: &[String]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for name in names {
        let is_in = |directories: &[&str]| directories.iter().any(|directory| name.starts_with(directory));
        let is_rust = name.ends_with(".rs") && is_in(RUST) && !name.contains("/generated/");
        let is_python = name.ends_with(".py") && is_in(PYTHON);
        let path = root.join(name);
        if !(is_rust || is_python) || EXEMPT.contains(&name.as_str()) || !path.exists() {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| name.clone())?;
        let found = if is_rust { in_rust(&text) } else { in_python(&text) };
        wrong.extend(found.into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
    }
    Ok(wrong)
}

/// The lines of a Rust file at which a rule is broken, and which one.
fn in_rust(text: &str) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    let mut last_doc = None;
    for (line, piece) in pieces(text) {
        match piece {
            Piece::Doc(words) => {
                if last_doc.is_none_or(|last| last + 1 != line) {
                    wrong.extend(bad_start(words).map(|what| (line, what)));
                }
                wrong.extend(bad_phrase(words).map(|what| (line, what)));
                last_doc = Some(line);
            }
            Piece::Literal(words) => {
                wrong.extend(bad_phrase(words).or_else(|| bad_negation(words)).map(|what| (line, what)));
            }
            Piece::Code(code) => {
                let code = code.trim_start();
                if code.starts_with("true =>") || code.starts_with("false =>") {
                    wrong.push((line, "write `if` instead of `match` on a boolean".to_owned()));
                }
            }
        }
    }
    wrong
}

/// The lines of docstrings at which a rule is broken, and which one.
fn in_python(text: &str) -> Vec<(usize, String)> {
    const QUOTES: &str = "\"\"\"";
    let (mut wrong, mut inside) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        let words = line.trim_start();
        let starts = !inside && words.starts_with(QUOTES);
        if starts {
            wrong.extend(bad_start(&words[QUOTES.len()..]).map(|what| (at + 1, what)));
        }
        if inside || starts {
            wrong.extend(bad_phrase(words).map(|what| (at + 1, what)));
        }
        inside ^= line.matches(QUOTES).count() % 2 == 1;
    }
    wrong
}

fn bad_start(words: &str) -> Option<String> {
    let start = STARTS.iter().find(|start| words.trim_start().starts_with(**start))?;
    Some(format!("starts with \"{}\"; name the thing, or say what it does", start.trim_end()))
}

fn bad_phrase(words: &str) -> Option<String> {
    let lower = words.to_lowercase();
    let found = PHRASES.iter().find(|phrase| contains_words(&lower, phrase))?;
    Some(format!("says \"{found}\"; use a plainer word"))
}

/// Finds "is no port", which should be "is not a port".
fn bad_negation(words: &str) -> Option<String> {
    const IS_NO: &str = "is no ";
    let found = words.match_indices(IS_NO).find(|(at, _)| {
        let before = words[..*at].trim_end().to_lowercase();
        let next = words[at + IS_NO.len()..].split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let is_a_word = words[..*at].ends_with(|c: char| !c.is_alphanumeric()) || *at == 0;
        is_a_word && !before.ends_with("there") && !AFTER_IS_NO.contains(&next)
    });
    found.map(|(at, _)| {
        let end = words[at + IS_NO.len()..].split_whitespace().next().unwrap_or_default();
        format!("says \"{IS_NO}{end}\"; write \"is not a\"")
    })
}

/// Whether a phrase stands in a text as words of its own.
fn contains_words(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, _)| {
        let is_border = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        is_border(text[..at].chars().next_back()) && is_border(text[at + phrase.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        in_rust(text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn a_doc_comment_names_the_thing() {
        for start in ["What calls reach.", "Whoever waits.", "How many there are.", "So many threads."] {
            assert_eq!(lines(&format!("/// {start}\nfn f() {{}}\n"))[0], 1, "{start}");
            assert_eq!(lines(&format!("    //! {start}\n"))[0], 1, "{start}");
        }
        assert!(lines("/// Services.\n/// What follows a first line may start so.\nfn f() {}\n").is_empty());
        assert!(
            lines("// What a plain comment says is its author's.\n/// Whether it is there.\n").is_empty()
        );
        assert_eq!(lines("/// A field.\na: u8,\n/// How it ends.\nb: u8,\n"), [3]);
    }

    #[test]
    fn phrases_have_plainer_words() {
        assert_eq!(lines("/// A task of ours.\n/// It waits for whoever comes.\n"), [1, 2]);
        assert_eq!(lines("bail!(\"after so many seconds\");\n"), [1]);
        assert_eq!(lines("let a = 1;\nlet text = \"a \\\n    task of ours\";\n"), [2]);
        assert!(lines("fn whoever_is_chief() {} // whoever\n/// Minutes of yours, hours.\n").is_empty());
    }

    #[test]
    fn messages_say_is_not_a() {
        assert_eq!(lines("bail!(\"'{text}' is no port\");\n"), [1]);
        assert_eq!(lines("let a = r#\"this is no \"number\" at all\"#;\n"), [1]);
        assert!(lines("bail!(\"there is no port, and it is no longer free\");\n").is_empty());
        assert!(lines("bail!(\"it is not a port; this no\");\n").is_empty());
    }

    #[test]
    fn booleans_are_tested_by_if() {
        assert_eq!(lines("match a {\n    true => 1,\n    false => 2,\n}\n"), [2, 3]);
        assert!(lines("match (a, b) {\n    (true, _) => 1,\n    _ => 2,\n}\n").is_empty());
        assert!(lines("let text = \"\n    true => 1\n\";\n").is_empty());
    }

    #[test]
    fn docstrings_follow_the_rules_for_doc_comments() {
        let script = "\"\"\"What stock says.\n\nWhat is whoever's.\n\"\"\"\ndef f():\n    \"\"\"How many.\"\"\"\n    x = \"so many\"\n";
        let lines: Vec<usize> = in_python(script).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 3, 6]);
    }
}
