//! The ops of stock that are not meant to run, in groups with a reason each.

use super::State;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

/// Ops that have a reason in common.
pub(super) struct Group<'a> {
    pub(super) title: &'a str,
    pub(super) reason: &'a str,
    /// Names, which may start or end with `*`.
    patterns: Vec<&'a str>,
}

/// Reads `crates/ops/src/out_of_scope.txt`: blocks of a title, a reason and ops, with empty lines between them.
pub(super) fn groups(text: &str) -> Result<Vec<Group<'_>>> {
    let group = |block| {
        let mut lines = str::lines(block);
        let mut next =
            || lines.next().with_context(|| format!("a title, a reason and ops were expected: {block}"));
        Ok(Group { title: next()?, reason: next()?, patterns: next()?.split_whitespace().collect() })
    };
    text.trim_end().split("\n\n").map(group).collect()
}

impl Group<'_> {
    fn has(&self, op: &str) -> bool {
        self.patterns.iter().any(|pattern| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            (Some(_), Some(_)) => op.contains(pattern.trim_matches('*')),
            (Some(end), None) => op.ends_with(end),
            (None, Some(start)) => op.starts_with(start),
            (None, None) => op == *pattern,
        })
    }
}

/// Marks the ops of the groups. One that runs after all is an error if it is named in full.
pub(super) fn apply(groups: &[Group<'_>], states: &mut BTreeMap<&str, State>) -> Result<()> {
    for (number, group) in groups.iter().enumerate() {
        for (op, state) in states.iter_mut().filter(|(op, _)| group.has(op)) {
            match state {
                State::Absent => *state = State::OutOfScope(number),
                State::Runs if group.patterns.contains(op) => bail!("{op} runs, so it is not out of scope"),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_mark_what_is_absent() {
        let groups = groups("T\nr\nA* *B *C*\n\nU\ns\nD\n").unwrap();
        let absent = ["Ax", "xB", "xCx", "D", "E"].map(|op| (op, State::Absent));
        let mut states = BTreeMap::from(absent);
        states.insert("Ay", State::Runs);
        apply(&groups, &mut states).unwrap();
        let expected = [("Ax", 0), ("xB", 0), ("xCx", 0), ("D", 1)];
        expected.iter().for_each(|(op, group)| assert_eq!(states[op], State::OutOfScope(*group), "{op}"));
        assert_eq!((&states["E"], &states["Ay"]), (&State::Absent, &State::Runs));
        assert!(apply(&groups, &mut BTreeMap::from([("D", State::Runs)])).is_err());
    }
}
