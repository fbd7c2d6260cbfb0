//! `cargo xtask format`: every Rust file of the repository, also those that `cargo fmt` does not find because a macro
//! declares their modules.

use crate::tidy;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::process::Command;

/// Options of `cargo xtask format`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only say what would change
    #[arg(long)]
    pub(crate) check: bool,
}

/// Formats, or checks.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = workspace::root();
    let mut files = tidy::tracked(&root)?;
    files.retain(|name| name.ends_with(".rs") && !name.contains("/generated/") && root.join(name).exists());
    let status = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .args(args.check.then_some("--check"))
        .args(&files)
        .current_dir(&root)
        .status()
        .context("cannot start rustfmt; `rustup component add rustfmt` installs it")?;
    ensure!(status.success(), "rustfmt ended with {status}; `cargo xtask format` formats every file");
    Ok(())
}
