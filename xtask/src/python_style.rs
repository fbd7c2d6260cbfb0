//! `cargo xtask python`: formats and lints the scripts of `oracle/` and the Python package by ruff, as `ruff.toml` says.

use crate::{python, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::process::Command;

/// Options of `cargo xtask python`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only say what would change
    #[arg(long)]
    check: bool,
}

/// Formats and fixes what can be fixed, or checks.
pub(crate) fn run(args: &Args) -> Result<()> {
    let ruff = python::venv().join("bin/ruff");
    if !ruff.exists() {
        // The environment is the user's own; `cargo xtask setup` does not change it.
        if std::env::var_os(python::VARIABLE).is_some() && std::env::var_os("CI").is_none() {
            println!(
                "skipped: {} does not exist; pip install what oracle/requirements.txt says",
                ruff.display()
            );
            return Ok(());
        }
        bail!("{} does not exist; run `cargo xtask setup`", ruff.display());
    }
    let (format, lint): (&[&str], &[&str]) = if args.check { (&["--check"], &[]) } else { (&[], &["--fix"]) };
    let mut failed = Vec::new();
    for (command, words) in [("check", lint), ("format", format)] {
        let mut ruff = Command::new(&ruff);
        ruff.arg(command).args(words).args(["oracle", "crates/python"]).current_dir(workspace::root());
        if !ruff.status().context("ruff")?.success() {
            failed.push(format!("ruff {command}"));
        }
    }
    ensure!(
        failed.is_empty(),
        "{} failed; `cargo xtask python` fixes what can be fixed",
        failed.join(" and ")
    );
    Ok(())
}
