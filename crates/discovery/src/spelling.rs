//! The known word that a misspelled one was meant to be.

/// Returns the known word that a misspelled one is nearest to; `None` if it resembles none of them.
///
/// ```
/// use ferroflow_discovery::nearest;
///
/// assert_eq!(nearest("clustre", ["cluster", "task"]), Some("cluster"));
/// assert_eq!(nearest("comment", ["cluster", "task"]), None);
/// ```
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |word: &str| word.to_lowercase().replace('-', "_");
    let distance = |known: &str| strsim::damerau_levenshtein(&plain(word), &plain(known));
    let (distance, known) = known.into_iter().map(|known| (distance(known), known)).min()?;
    // A third of the letters may be wrong, and one of a short word.
    (distance <= (known.len() / 3).max(1)).then_some(known)
}

/// Returns the question or the list that ends a message about an unknown word.
pub(crate) fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(nearest) => format!("did you mean '{nearest}'?"),
        None => format!("expected one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_resemble_none_have_no_nearest() {
        let keys = ["cluster", "task", "ps"];
        let pairs = [("Cluster", Some("cluster")), ("tsk", Some("task")), ("ps1", Some("ps")), ("x", None)];
        for (word, expected) in pairs {
            assert_eq!(nearest(word, keys), expected, "{word}");
        }
        assert_eq!(nearest("task_idx", ["task_index"]), Some("task_index"));
        assert_eq!(suggestion("x", &["a_b", "c_d"]), "expected one of a_b, c_d");
    }
}
