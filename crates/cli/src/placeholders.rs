//! Words in braces that are filled in a program's arguments, one way for every command that runs programs.

use ferroflow::discovery::nearest;

/// The words that are known.
const NAMES: [&str; 7] = ["job", "task", "address", "ps_hosts", "worker_hosts", "chief_hosts", "cluster"];

/// Refuses unknown words in braces.
pub(crate) fn check(words: &[String]) -> Result<(), String> {
    words.iter().try_for_each(|word| fill(word, |_| Ok(String::new())).map(drop))
}

/// Fills `{name}` with its value. `{{name}}` stands for the text `{name}`; all other braces, as in JSON or `${HOME}`, are
/// the program's own.
pub(crate) fn fill(
    word: &str,
    mut value: impl FnMut(&str) -> Result<String, String>,
) -> Result<String, String> {
    let mut filled = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(start) = rest.find('{') {
        let (before, braces) = rest.split_at(start);
        filled.push_str(before);
        if let Some(name) = name_between(braces, "{{", "}}") {
            filled.push_str(&braces[1..name.len() + 3]);
            rest = &braces[name.len() + 4..];
        } else if let Some(name) = name_between(braces, "{", "}").filter(|_| !before.ends_with('$')) {
            if !NAMES.contains(&name) {
                return Err(unknown(name, word));
            }
            filled.push_str(&value(name)?);
            rest = &braces[name.len() + 2..];
        } else {
            filled.push('{');
            rest = &braces[1..];
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

fn name_between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let inside = text.strip_prefix(open)?;
    let name = &inside[..inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?];
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic());
    (is_name && inside[name.len()..].starts_with(close)).then_some(name)
}

fn unknown(name: &str, word: &str) -> String {
    let known: Vec<String> = NAMES.iter().map(|name| format!("{{{name}}}")).collect();
    let meant = match nearest(name, NAMES) {
        Some(meant) => format!("did you mean {{{meant}}}?"),
        None => format!("expected one of {}.", known.join(", ")),
    };
    format!(
        "the program's argument '{word}' has an unknown placeholder {{{name}}}: {meant} Write {{{{{name}}}}} for the text \
         {{{name}}} itself"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(word: &str) -> Result<String, String> {
        fill(word, |name| Ok(name.to_uppercase()))
    }

    #[test]
    fn other_braces_stay() {
        let words = [
            ("--task={job}:{task}", "--task=JOB:TASK"),
            ("{{task}} {task}", "{task} TASK"),
            (
                r#"{"lr": 1, "x": {"y": 2}} ${HOME} {} {a b} {1} {"#,
                r#"{"lr": 1, "x": {"y": 2}} ${HOME} {} {a b} {1} {"#,
            ),
            ("é{job}é", "éJOBé"),
        ];
        for (word, expected) in words {
            assert_eq!(filled(word).as_deref(), Ok(expected), "{word}");
        }
    }

    #[test]
    fn unknown_words_are_refused() {
        let error = filled("--ps={ps_host}").unwrap_err();
        assert!(error.contains("did you mean {ps_hosts}?"), "{error}");
        assert!(error.contains("Write {{ps_host}} for the text {ps_host} itself"), "{error}");
        let error = filled("{print}").unwrap_err();
        assert!(error.contains("unknown placeholder {print}: expected one of {job}, {task}"), "{error}");
    }
}
