//! The Python with the pinned stock TensorFlow, and the oracle's scripts run by it.

use crate::workspace;
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// Names an environment to use instead of our own.
pub(crate) const VARIABLE: &str = "FERROFLOW_VENV";

/// The virtual environment: the one the user named, or the one that `cargo xtask setup` makes.
pub(crate) fn venv() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(|| workspace::root().join(".venv"), PathBuf::from)
}

/// A script of the repository, ready to be given arguments.
pub(crate) fn script(path: &str) -> Result<Command> {
    let python = venv().join("bin/python");
    if !python.exists() {
        bail!("{} does not exist; run `cargo xtask setup`", python.display());
    }
    let mut command = Command::new(python);
    command.arg(workspace::root().join(path)).current_dir(workspace::root());
    Ok(command)
}

/// Runs a script to its end.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let status = command.status()?;
    if !status.success() {
        bail!("{:?} ended with {status}", command.get_program());
    }
    Ok(())
}

/// Exit code of `timeout` for a command that it had to end.
const TIMED_OUT: i32 = 124;

/// Runs a script that may hang: it is ended at this limit and tried once more.
pub(crate) fn run_within(script: &Command, seconds: u32) -> Result<()> {
    for _ in 0..2 {
        let mut bounded = Command::new("timeout");
        bounded.arg(seconds.to_string()).arg(script.get_program()).args(script.get_args());
        let status = bounded.current_dir(workspace::root()).status()?;
        if status.code() != Some(TIMED_OUT) {
            return if status.success() {
                Ok(())
            } else {
                bail!("{:?} ended with {status}", script.get_program())
            };
        }
    }
    bail!("{:?} did not end within {seconds} seconds, twice", script.get_program())
}
