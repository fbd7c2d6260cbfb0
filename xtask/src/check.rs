//! `cargo xtask test`: the whole check, which is also what CI runs.

mod excerpt;

use crate::{python, workspace};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave out what asks stock TensorFlow
    #[arg(long)]
    without_stock: bool,
}

struct Step {
    name: &'static str,
    program: Program,
    arguments: &'static [&'static str],
    asks_stock: bool,
}

#[derive(Clone, Copy)]
enum Program {
    Cargo,
    /// Another task of this program
    Xtask,
}

const fn xtask(name: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { name, program: Program::Xtask, arguments, asks_stock: false }
}

const fn stock(name: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { name, program: Program::Xtask, arguments, asks_stock: true }
}

const fn cargo(name: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { name, program: Program::Cargo, arguments, asks_stock: false }
}

/// Every check, in order of cost.
const STEPS: &[Step] = &[
    xtask("tidy", &["tidy"]),
    xtask("format", &["format", "--check"]),
    xtask("generated code", &["codegen", "--check"]),
    stock("stock TensorFlow", &["setup"]),
    stock("goldens", &["goldens", "--check"]),
    cargo("lints", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    cargo("server", &["build", "--release", "--quiet"]),
    xtask("compatibility table", &["compat", "--check"]),
    cargo("tests", &["test", "--workspace", "--all-targets", "--quiet", "--no-fail-fast"]),
    xtask("other processors", &["emulate"]),
    cargo("doc tests", &["test", "--workspace", "--doc", "--quiet"]),
    cargo("docs", &["doc", "--workspace", "--no-deps", "--quiet"]),
    stock("pods", &["managers", "k8s"]),
    // Of the scenarios, one training from start to end.
    stock("Slurm", &["managers", "slurm", "--only", "process manager"]),
    // Enough seeds to draw most ops, and the same graphs on a fast machine as on a slow one, so that a change fails for
    // what it changes.
    stock("differential", &["differential", "--seconds", "0", "--seed", "1", "--seeds", "500"]),
];

/// Runs every check, each with a log of its own, and shows of the logs what failed: one run tells all that is wrong.
pub(crate) fn run(args: &Args) -> Result<()> {
    let logs = workspace::target().join("check");
    fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    let steps: Vec<&Step> = STEPS.iter().filter(|step| !(step.asks_stock && args.without_stock)).collect();
    let start = Instant::now();
    let mut failed = Vec::new();
    for step in &steps {
        let start = Instant::now();
        let log = logs.join(step.name.replace(' ', "-")).with_extension("log");
        println!("{}: {}", step.name, log.display());
        let passed = step.run(&log)?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{}: {}, {seconds:.1} s", step.name, if passed { "ok" } else { "FAILED" });
        if !passed {
            println!("{}", excerpt::of(&String::from_utf8_lossy(&fs::read(&log)?)));
            failed.push(step.name);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    if !failed.is_empty() {
        bail!("failed after {seconds:.0} s: {}", failed.join(", "));
    }
    println!("all {} checks passed in {seconds:.0} s", steps.len());
    Ok(())
}

impl Step {
    /// Whether it passed. What it prints is in the log.
    fn run(&self, log: &Path) -> Result<bool> {
        let program = match self.program {
            Program::Cargo => std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from),
            Program::Xtask => std::env::current_exe()?,
        };
        let output = File::create(log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(&program);
        command.args(self.arguments).current_dir(workspace::root());
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        // A report says where its test failed; the frames above are the test runner's.
        command.env("RUST_BACKTRACE", "0").env("RUST_LIB_BACKTRACE", "0");
        if let Program::Cargo = self.program {
            // Tests that speak with stock find it here.
            command.env("RUSTDOCFLAGS", "-D warnings").env(python::VARIABLE, python::venv());
        }
        let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
        Ok(status.success())
    }
}
