//! The test programs of the workspace: how cargo builds them, and how they are run without cargo.

use crate::{python, workspace};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Selects every test of the workspace and the benchmarks, which run once. Examples have no tests of their own: lints check
/// them, and the scenarios run them. Other commands select the same packages, so that cargo unifies the same features
/// and finds everything built.
const ALL_TESTS: [&str; 4] = ["test", "--workspace", "--tests", "--benches"];

/// Selects the server and the Python module beside a test, with the features that [`ALL_TESTS`] has.
const SERVER: [&str; 7] = ["build", "--workspace", "--lib", "--bin", "ferroflow", "--test", "main"];

/// A test program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The package's directory from the root and the target, such as `crates/core (lib)` or `tests (golden)`.
    pub(crate) name: String,
    /// The name of the target alone.
    pub(crate) target: String,
    pub(crate) path: PathBuf,
    /// Whether it prints and counts its tests; benchmarks only run.
    pub(crate) has_harness: bool,
    /// Where cargo runs it.
    directory: PathBuf,
}

/// Builds all test programs and the server that some of them start.
pub(crate) fn build() -> Result<Vec<Program>> {
    let messages = cargo(&ALL_TESTS, &["--no-run"])?;
    build_server()?;
    let mut programs: Vec<Program> = messages.iter().filter_map(Program::read).collect();
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    ensure!(!programs.is_empty(), "cargo built no test programs");
    let list = list();
    fs::create_dir_all(list.parent().context("the list of programs lies in a directory")?)?;
    fs::write(&list, serde_json::to_vec_pretty(&programs)?).with_context(|| list.display().to_string())?;
    Ok(programs)
}

/// Builds the server and the Python module as tests use them, and returns the server's path.
pub(crate) fn build_server() -> Result<PathBuf> {
    cargo(&SERVER, &[])?;
    Ok(workspace::target().join("debug/ferroflow"))
}

/// The programs that [`build`] built last. Unlike it, this does not wait for cargo when it builds something else.
pub(crate) fn built() -> Result<Vec<Program>> {
    let list = list();
    let text = fs::read(&list).with_context(|| format!("{}; build the tests first", list.display()))?;
    serde_json::from_slice(&text).with_context(|| list.display().to_string())
}

fn list() -> PathBuf {
    workspace::target().join("check/programs.json")
}

/// Runs cargo and returns its messages.
fn cargo(selection: &[&str], more: &[&str]) -> Result<Vec<Value>> {
    let mut command = workspace::cargo_command();
    command.args(selection).args(more).args(["--quiet", "--message-format", "json-render-diagnostics"]);
    let built = command.current_dir(workspace::root()).stderr(Stdio::inherit()).output();
    let built = built.context("cannot start cargo")?;
    ensure!(built.status.success(), "the tests do not build");
    let lines = String::from_utf8(built.stdout).context("cargo's messages")?;
    Ok(lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

impl Program {
    /// The program that a message of cargo is about.
    fn read(message: &Value) -> Option<Program> {
        if message["profile"]["test"] != true {
            return None;
        }
        let (path, manifest) = (message["executable"].as_str()?, message["manifest_path"].as_str()?);
        let (target, kind) = (message["target"]["name"].as_str()?, message["target"]["kind"][0].as_str()?);
        let directory = Path::new(manifest).parent()?.to_owned();
        let root = workspace::root();
        let package = directory.strip_prefix(&root).unwrap_or(&directory).display().to_string();
        let label = if kind == "lib" { kind } else { target };
        Some(Program {
            name: format!("{package} ({label})"),
            target: target.to_owned(),
            path: path.into(),
            has_harness: kind != "bench",
            directory,
        })
    }

    /// The program, to be run as cargo would.
    pub(crate) fn command(&self) -> Command {
        self.prepare(Command::new(&self.path))
    }

    /// The program, run by another one whose words come first.
    pub(crate) fn command_under(&self, runner: &str, words: &[&str]) -> Command {
        let mut command = Command::new(runner);
        command.args(words).arg(&self.path);
        self.prepare(command)
    }

    fn prepare(&self, mut command: Command) -> Command {
        command.current_dir(&self.directory).stdin(Stdio::null());
        command.env("CARGO", workspace::cargo()).env("CARGO_MANIFEST_DIR", &self.directory);
        // Tests that ask stock find it here, and the server that was built with them.
        command.env(python::VARIABLE, python::venv());
        if std::env::var_os(SERVER_VARIABLE).is_none() {
            command.env(SERVER_VARIABLE, workspace::target().join("debug/ferroflow"));
        }
        // A report says where its test failed; the frames above are the test runner's.
        command.env("RUST_BACKTRACE", "0").env("RUST_LIB_BACKTRACE", "0");
        command
    }
}

/// Names a server that tests start instead of building one.
const SERVER_VARIABLE: &str = "FERROFLOW_SERVER";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn test_programs_are_named_by_directory_and_target() {
        let message = |test: bool, kind: &str| {
            json!({
                "manifest_path": workspace::root().join("crates/core/Cargo.toml"),
                "target": {"name": "ferroflow_core", "kind": [kind]},
                "profile": {"test": test},
                "executable": "/target/debug/deps/core-1",
            })
        };
        let name = |message: &Value| Program::read(message).map(|program| program.name);
        assert_eq!(name(&message(true, "lib")).as_deref(), Some("crates/core (lib)"));
        assert_eq!(name(&message(true, "test")).as_deref(), Some("crates/core (ferroflow_core)"));
        assert_eq!(name(&message(false, "lib")), None);
    }
}
