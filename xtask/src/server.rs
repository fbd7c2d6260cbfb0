//! The optimized binaries that the suites run.

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

const SERVER: [&str; 2] = ["ferroflow-cli", "ferroflow"];
const TRAINER: [&str; 2] = ["ferroflow-benches", "trainer"];

/// Builds the `ferroflow` binary that tasks run and says where it is; `FERROFLOW_SERVER` names one to use as it is.
pub(crate) fn build() -> Result<PathBuf> {
    match named() {
        Some(binary) => Ok(binary),
        None => build_binaries(&[SERVER]).map(|directory| directory.join(SERVER[1])),
    }
}

/// Builds that binary and the program that trains for the ratio suite, together, so that their parts are built once.
pub(crate) fn build_with_trainer() -> Result<(PathBuf, PathBuf)> {
    let named = named();
    let directory = match named {
        Some(_) => build_binaries(&[TRAINER])?,
        None => build_binaries(&[SERVER, TRAINER])?,
    };
    Ok((named.unwrap_or_else(|| directory.join(SERVER[1])), directory.join(TRAINER[1])))
}

fn named() -> Option<PathBuf> {
    std::env::var_os("FERROFLOW_SERVER").map(PathBuf::from)
}

/// Builds binaries of packages and says which directory has them.
fn build_binaries(binaries: &[[&str; 2]]) -> Result<PathBuf> {
    let mut command = workspace::cargo_command();
    command.args(["build", "--quiet", "--release"]).current_dir(workspace::root());
    for [package, binary] in binaries {
        command.args(["--package", package, "--bin", binary]);
    }
    if !command.status().context("cargo build")?.success() {
        bail!("the build failed");
    }
    Ok(workspace::target().join("release"))
}
