//! `cargo xtask release`: the fragments of `changelog.d` become a section of `CHANGELOG.md`, grouped by what they are about.
//!
//! The section is that of the workspace's version. If it is there already, because a release is prepared in several steps,
//! the entries are added to it.

mod changelog;

use crate::workspace;
use anyhow::{Context, Result, ensure};
use changelog::{Changelog, Fragment};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CHANGELOG: &str = "CHANGELOG.md";
const FRAGMENTS: &str = "changelog.d";

/// Options of `cargo xtask release`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Day of the release, as 2026-01-31 [default: today]
    #[arg(long)]
    date: Option<String>,
    /// Change nothing; show the changelog as it would be
    #[arg(long)]
    dry_run: bool,
}

/// Moves the fragments.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = workspace::root();
    let date = args.date.clone().map_or_else(today, Ok)?;
    let (text, moved) = with_fragments(&root, env!("CARGO_PKG_VERSION"), &date)?;
    ensure!(!moved.is_empty(), "{FRAGMENTS} has no fragments");
    if args.dry_run {
        print!("{text}");
        return Ok(());
    }
    fs::write(root.join(CHANGELOG), text).context(CHANGELOG)?;
    for path in &moved {
        fs::remove_file(path).with_context(|| path.display().to_string())?;
    }
    println!("{} fragments are in {CHANGELOG} now", moved.len());
    Ok(())
}

/// The changelog with all fragments in the section of a version, and the files of the fragments.
fn with_fragments(root: &Path, version: &str, date: &str) -> Result<(String, Vec<PathBuf>)> {
    let mut changelog = Changelog::parse(&fs::read_to_string(root.join(CHANGELOG)).context(CHANGELOG)?);
    let paths = fragments(root)?;
    for path in &paths {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let fragment = Fragment::parse(&text).with_context(|| path.display().to_string())?;
        changelog.add(version, date, fragment);
    }
    Ok((changelog.to_string(), paths))
}

/// The files with fragments, by name.
fn fragments(root: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(FRAGMENTS)).context(FRAGMENTS)? {
        let path = entry?.path();
        let page = path.file_name().is_some_and(|name| name == "README.md");
        if path.extension().is_some_and(|extension| extension == "md") && !page {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn today() -> Result<String> {
    let output = Command::new("date").args(["--utc", "+%F"]).output().context("date")?;
    ensure!(output.status.success(), "date ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fragment_of_the_repository_becomes_entries() {
        let root = workspace::root();
        let before = fs::read_to_string(root.join(CHANGELOG)).unwrap();
        assert_eq!(
            Changelog::parse(&before).to_string(),
            before,
            "the changelog is not as the command writes it"
        );
        let (text, moved) = with_fragments(&root, "999.0.0", "2026-01-31").unwrap();
        let section = text.contains("## 999.0.0 (2026-01-31)\n");
        assert_eq!(section, !moved.is_empty(), "{text}");
    }

    #[test]
    fn the_page_about_fragments_lists_the_groups() {
        let page = fs::read_to_string(workspace::root().join(FRAGMENTS).join("README.md")).unwrap();
        assert!(page.contains(&changelog::GROUPS.join("; ")), "{page}");
    }
}
