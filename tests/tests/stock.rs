//! Where stock TensorFlow is.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The interpreter of a virtual environment with stock TensorFlow; without one a test is skipped, but not in CI.
pub(crate) fn python() -> Option<PathBuf> {
    let venv = std::env::var_os("FERROFLOW_VENV").map_or_else(|| root().join(".venv"), PathBuf::from);
    let python = Some(venv.join("bin/python")).filter(|python| python.exists());
    if python.is_none() {
        assert!(
            std::env::var_os("CI").is_none(),
            "no stock TensorFlow: run `cargo xtask test` once to install it"
        );
        eprintln!("skipped: no stock TensorFlow");
    }
    python
}

/// The repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the workspace")
}

/// A stock server in a process of its own; it ends with this value.
pub(crate) struct Server {
    process: Child,
    target: String,
}

impl Server {
    /// Starts a server, alone or as a task of a cluster (as JSON); `None` without stock.
    pub(crate) fn start(task: Option<(&str, &str, u32)>) -> Option<Server> {
        let mut command = Command::new(python()?);
        command.arg(root().join("oracle/bench/stock_server.py"));
        if let Some((cluster, job, index)) = task {
            command.args([cluster, job, &index.to_string()]);
        }
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the interpreter starts");
        let mut target = String::new();
        let output = process.stdout.as_mut().expect("the output is a pipe");
        BufReader::new(output).read_line(&mut target).expect("the output is text");
        assert!(target.starts_with("grpc://"), "the stock server does not start: {target:?}");
        Some(Server { process, target: target.trim().to_owned() })
    }

    /// Where it is reached.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
