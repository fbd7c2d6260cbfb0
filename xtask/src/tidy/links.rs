//! Links between the pages of the repository lead somewhere, and to a heading that is there.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The links that lead nowhere, of the tracked files `names`.
pub(crate) fn check(root: &Path, names: &[String]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for name in names.iter().filter(|name| name.ends_with(".md") && root.join(name).exists()) {
        let text = fs::read_to_string(root.join(name)).with_context(|| name.clone())?;
        let directory = Path::new(name).parent().unwrap_or(Path::new(""));
        for (line, target) in links(&text) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if path.is_empty() { PathBuf::from(name) } else { plain(&directory.join(path)) };
            if !root.join(&file).exists() {
                wrong.push(format!("{name}:{line}: {target} is not there"));
            } else if !heading.is_empty() && file.extension().is_some_and(|extension| extension == "md") {
                let linked =
                    fs::read_to_string(root.join(&file)).with_context(|| file.display().to_string())?;
                if !anchors(&linked).any(|anchor| anchor == heading) {
                    wrong.push(format!("{name}:{line}: {} has no heading for #{heading}", file.display()));
                }
            }
        }
    }
    Ok(wrong)
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Targets of links within the repository, with their lines.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        let targets = line.match_indices("](").filter_map(|(at, _)| line[at + 2..].split_once(')'));
        let targets = targets.map(|(target, _)| target);
        targets
            .filter(|target| !target.contains("://") && !target.contains(' '))
            .map(move |target| (number, target))
    })
}

/// Lines that are not code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        (!code && !fence).then_some((index + 1, line))
    })
}

/// Names by which code hosts link to the headings of a page.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#').trim()))
}

/// The name by which code hosts link to a heading.
pub(crate) fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let page = "See [a](../a.md#one-two) and [b](b.rs), [c](https://c).\n```\n[d](d.md)\n```\n[e](#e)\n";
        let found: Vec<(usize, &str)> = links(page).collect();
        assert_eq!(found, [(1, "../a.md#one-two"), (1, "b.rs"), (5, "#e")]);
        assert_eq!(plain(Path::new("docs/../a.md")), Path::new("a.md"));
        assert!(anchors("# One\n## `Two`: (three)…\n").eq(["one", "two-three"].map(str::to_owned)));
    }
}
