//! Makes the Python environment with the pinned stock TensorFlow.

use crate::{python, workspace};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

const REQUIREMENTS: &str = "oracle/requirements.txt";

/// Makes or refreshes the environment; does nothing if it is what the requirements say, or if the user chose another.
pub(crate) fn run() -> Result<()> {
    let venv = python::venv();
    if std::env::var_os(python::VARIABLE).is_some() {
        let found = venv.join("bin/python").exists();
        ensure!(found, "{} is {}, which has no bin/python", python::VARIABLE, venv.display());
        return Ok(());
    }
    let root = workspace::root();
    let wanted = fs::read_to_string(root.join(REQUIREMENTS)).context(REQUIREMENTS)?;
    let stamp = venv.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("installing {REQUIREMENTS} into {}", venv.display());
    // From nothing: what an interrupted installation left may look complete to pip.
    call(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
    call(Command::new(venv.join("bin/python")).args(pip).arg(root.join(REQUIREMENTS)))?;
    fs::write(stamp, wanted).context("cannot note what is installed")
}

fn call(command: &mut Command) -> Result<()> {
    let program = Path::new(command.get_program()).display().to_string();
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}
