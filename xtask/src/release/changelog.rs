//! The changelog and the fragments that it is made of, as text.
//!
//! A fragment has headings (`# Clusters`), each one of [`GROUPS`]. Every line or list item below one is an entry. Links are relative to the fragment, and in the changelog relative to the root.

use anyhow::{Result, ensure};
use std::fmt;

/// The groups of entries, in the order of the changelog; the last one is for entries without a heading.
pub(super) const GROUPS: [&str; 7] = [
    "Servers and sessions",
    "Clusters",
    "Command line and schedulers",
    "Rust programs",
    "Ops, and agreement with stock TensorFlow",
    "Speed and memory",
    "Other changes",
];
const OTHER: usize = GROUPS.len() - 1;

/// Entries, each with the number of its group.
pub(super) struct Fragment(Vec<(usize, String)>);

impl Fragment {
    /// Reads a file of `changelog.d`.
    pub(super) fn parse(text: &str) -> Result<Fragment> {
        let (mut group, mut entries) = (OTHER, Vec::new());
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(heading) = line.strip_prefix("# ") {
                let known = GROUPS.iter().position(|group| *group == heading.trim());
                ensure!(known.is_some(), "'{heading}' is not one of the groups: {}", GROUPS.join("; "));
                group = known.unwrap_or(OTHER);
            } else {
                let entry = line.strip_prefix("- ").unwrap_or(line);
                entries.push((group, entry.replace("](../", "](")));
            }
        }
        ensure!(!entries.is_empty(), "it has no entries");
        Ok(Fragment(entries))
    }
}

/// The whole changelog.
pub(super) struct Changelog {
    /// The text above the first section.
    introduction: String,
    /// Newest first.
    sections: Vec<Section>,
}

struct Section {
    version: String,
    date: String,
    groups: [Vec<String>; GROUPS.len()],
}

impl Changelog {
    /// Reads the text of a changelog.
    pub(super) fn parse(text: &str) -> Changelog {
        let (mut introduction, mut sections): (String, Vec<Section>) = (String::new(), Vec::new());
        let mut group = OTHER;
        for line in text.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                let (version, date) = title.split_once(" (").unwrap_or((title, ""));
                let date = date.trim_end_matches(')').to_owned();
                sections.push(Section { version: version.to_owned(), date, groups: Default::default() });
                group = OTHER;
                continue;
            }
            let Some(section) = sections.last_mut() else {
                introduction += line;
                introduction.push('\n');
                continue;
            };
            if let Some(heading) = line.strip_prefix("### ") {
                group = GROUPS.iter().position(|group| *group == heading).unwrap_or(OTHER);
            } else if let Some(entry) = line.strip_prefix("- ") {
                section.groups[group].push(entry.to_owned());
            }
        }
        Changelog { introduction: introduction.trim_end().to_owned(), sections }
    }

    /// Adds entries to a version's section, which becomes the first one if it is new.
    pub(super) fn add(&mut self, version: &str, date: &str, fragment: Fragment) {
        let found = self.sections.iter().position(|section| section.version == version);
        let at = found.unwrap_or_else(|| {
            let (version, date) = (version.to_owned(), String::new());
            self.sections.insert(0, Section { version, date, groups: Default::default() });
            0
        });
        let section = &mut self.sections[at];
        date.clone_into(&mut section.date);
        for (group, entry) in fragment.0 {
            let entries = &mut section.groups[group];
            // A fragment that was moved before, and came back with a merge.
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
    }
}

impl fmt::Display for Changelog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.introduction)?;
        for section in &self.sections {
            writeln!(f, "\n## {} ({})", section.version, section.date)?;
            for (name, entries) in
                GROUPS.iter().zip(&section.groups).filter(|(_, entries)| !entries.is_empty())
            {
                writeln!(f, "\n### {name}\n")?;
                for entry in entries {
                    writeln!(f, "- {entry}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "# Changelog\n\nNewest first.\n\n## 0.1.0 (2026-01-01)\n\n### Clusters\n\n- They form.\n";

    #[test]
    fn fragments_become_a_section_by_group() {
        let mut changelog = Changelog::parse(BEFORE);
        for text in
            ["One line.\n\nAnother.\n", "# Clusters\n- Tasks meet: see [this](../docs/a.md).\n- They part.\n"]
        {
            changelog.add("0.2.0", "2026-02-01", Fragment::parse(text).unwrap());
        }
        let expected = "# Changelog\n\nNewest first.\n\n\
                        ## 0.2.0 (2026-02-01)\n\n### Clusters\n\n- Tasks meet: see [this](docs/a.md).\n- They part.\n\n\
                        ### Other changes\n\n- One line.\n- Another.\n\n\
                        ## 0.1.0 (2026-01-01)\n\n### Clusters\n\n- They form.\n";
        assert_eq!(changelog.to_string(), expected);
    }

    #[test]
    fn a_section_that_is_there_grows() {
        let mut changelog = Changelog::parse(BEFORE);
        let text = "# Clusters\nThey form.\nThey end.\n# Speed and memory\nLess of both.\n";
        changelog.add("0.1.0", "2026-01-02", Fragment::parse(text).unwrap());
        let expected = BEFORE.replace("2026-01-01", "2026-01-02")
            + "- They end.\n\n### Speed and memory\n\n- Less of both.\n";
        assert_eq!(changelog.to_string(), expected);
    }

    #[test]
    fn an_unknown_group_is_refused() {
        let error = Fragment::parse("# Clustres\nThey form.\n").err().unwrap().to_string();
        assert!(error.contains("'Clustres' is not one of the groups: Servers"), "{error}");
        assert!(Fragment::parse("# Clusters\n").is_err());
    }
}
