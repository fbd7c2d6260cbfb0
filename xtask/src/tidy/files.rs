//! Conventions of single files.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Past this a file holds more than one idea.
const LONGEST: usize = 900;

/// Directories of one machine, which nothing in the repository may name.
const PRIVATE: [&str; 4] = ["work", "opt", "root", "home"];

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for name in tracked(root)? {
        // Data has its own checks, and a file that is not text has no lines.
        let Ok(text) = fs::read_to_string(root.join(&name)) else { continue };
        if name.starts_with("testdata/") || name == "Cargo.lock" {
            continue;
        }
        if let Some(line) = text.lines().position(names_a_machine) {
            wrong.push(format!("{name}:{}: names a directory of one machine", line + 1));
        }
        if !name.ends_with(".rs") || name.contains("/generated/") {
            continue;
        }
        if !text.starts_with("//!") {
            wrong.push(format!("{name}: opens with `//!`, saying what the file is"));
        }
        let lines = text.lines().count();
        if lines > LONGEST {
            wrong.push(format!("{name}: {lines} lines; look for the second idea and give it a file"));
        }
    }
    Ok(wrong)
}

/// The files that git tracks, or would if they were added.
pub(crate) fn tracked(root: &Path) -> Result<Vec<String>> {
    let listed = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git")
        .args(listed)
        .current_dir(root)
        .output()
        .context("cannot start git, which lists the files")?;
    ensure!(output.status.success(), "git ls-files ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

fn names_a_machine(line: &str) -> bool {
    PRIVATE.iter().any(|directory| {
        let path = format!("/{directory}/");
        line.match_indices(&path).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            before.is_none_or(|c| c.is_whitespace() || "\"'`(=:".contains(c))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::names_a_machine;

    #[test]
    fn only_absolute_paths_name_a_machine() {
        let path = format!("/{}/main", "work");
        assert!(names_a_machine(&path) && names_a_machine(&format!("see `{path}`")));
        assert!(!names_a_machine(&format!("https://example.org{path}")) && !names_a_machine("a/work/b"));
    }
}
