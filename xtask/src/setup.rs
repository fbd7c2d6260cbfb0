//! Makes the Python environment with the pinned stock TensorFlow.

use crate::{python, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::process::Command;

const REQUIREMENTS: &str = "oracle/requirements.txt";

/// Packages that are installed without what they say they need, because the environment has it under another name.
const WITHOUT_DEPENDENCIES: &str = "oracle/requirements-without-dependencies.txt";

/// Versions of Python for which stock is published, the best tested first.
const VERSIONS: [&str; 3] = ["3.11", "3.12", "3.13"];

/// The end of every message about what this machine lacks.
const OTHERWISE: &str = "or name an environment that has oracle/requirements.txt installed in FERROFLOW_VENV; \
                         `cargo xtask test --without-stock` does without";

/// Makes or refreshes the environment; does nothing if it is what the requirements say, or if the user chose another.
pub(crate) fn run() -> Result<()> {
    let venv = python::venv();
    if std::env::var_os(python::VARIABLE).is_some() {
        let found = venv.join("bin/python").exists();
        ensure!(
            found,
            "{} is {}, which has no bin/python; unset it, or name a virtual environment",
            python::VARIABLE,
            venv.display()
        );
        return Ok(());
    }
    let root = workspace::root();
    let mut wanted = String::new();
    for list in [REQUIREMENTS, WITHOUT_DEPENDENCIES] {
        wanted += &fs::read_to_string(root.join(list)).context(list)?;
    }
    let stamp = venv.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let python = interpreter()?;
    println!("installing {REQUIREMENTS} into {} by {python}", venv.display());
    // From nothing: what an interrupted installation left may look complete to pip.
    let made = Command::new(&python).args(["-m", "venv", "--clear"]).arg(&venv).status();
    ensure!(
        made.with_context(|| python.clone())?.success(),
        "{python} cannot make the environment {}; the reason is above",
        venv.display()
    );
    for (list, more) in [(REQUIREMENTS, None), (WITHOUT_DEPENDENCIES, Some("--no-deps"))] {
        let installed = Command::new(venv.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(more)
            .arg("--requirement")
            .arg(root.join(list))
            .status()
            .context("pip")?;
        ensure!(
            installed.success(),
            "pip cannot install {list}; the reason is above. It needs the network and 2 GB of disk; {OTHERWISE}"
        );
    }
    fs::write(stamp, wanted).context("cannot note what is installed")
}

/// An interpreter of a version that stock runs on and that can make environments.
fn interpreter() -> Result<String> {
    let candidates = VERSIONS.iter().map(|version| format!("python{version}")).chain(["python3".to_owned()]);
    let mut reasons = Vec::new();
    for name in candidates {
        let script = "import sys; print('%d.%d' % sys.version_info[:2]); import ensurepip, venv";
        let Ok(asked) = Command::new(&name).args(["-c", script]).output() else { continue };
        let version = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
        match problem(&version, asked.status.success()) {
            None => return Ok(name),
            Some(problem) => reasons.push(format!("{name} {problem}")),
        }
    }
    if reasons.is_empty() {
        reasons.push("there is no Python".to_owned());
    }
    bail!(
        "stock TensorFlow needs Python {} to {} with venv: {}. Install it (Debian: apt-get install python3 python3-venv), \
         {OTHERWISE}",
        VERSIONS[0],
        VERSIONS[VERSIONS.len() - 1],
        reasons.join("; ")
    )
}

/// The reason why an interpreter cannot be used.
fn problem(version: &str, can_make_environments: bool) -> Option<String> {
    if !VERSIONS.contains(&version) {
        return Some(format!("is version {}", if version.is_empty() { "unknown" } else { version }));
    }
    (!can_make_environments)
        .then(|| format!("has no venv module (Debian: apt-get install python{version}-venv)"))
}

#[cfg(test)]
mod tests {
    use super::problem;

    #[test]
    fn an_interpreter_is_refused_with_the_reason() {
        assert_eq!(problem("3.11", true), None);
        assert_eq!(problem("3.9", true).unwrap(), "is version 3.9");
        assert!(problem("3.12", false).unwrap().contains("python3.12-venv"));
        assert_eq!(problem("", false).unwrap(), "is version unknown");
    }
}
