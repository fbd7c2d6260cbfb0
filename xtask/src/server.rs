//! The optimized `ferroflow` binary that tasks run.

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// Builds the binary and says where it is; `FERROFLOW_SERVER` names one to use as it is.
pub(crate) fn build() -> Result<PathBuf> {
    if let Some(binary) = std::env::var_os("FERROFLOW_SERVER") {
        return Ok(binary.into());
    }
    let root = workspace::root();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--release", "--package", "ferroflow-cli"])
        .current_dir(&root)
        .status()
        .context("cargo build")?;
    if !status.success() {
        bail!("the server does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/ferroflow"))
}
