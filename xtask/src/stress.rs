//! `cargo xtask stress`: the test programs, again and again, while something else keeps the machine busy.
//!
//! A test that passes on an idle machine and fails once in a hundred runs on a busy one is a defect of the test or of
//! what it tests. Each round runs every program beside a load of the processors, memory and disk, by Debian's `stress-ng`
//! or, where that cannot be installed, by threads of this program; at the end there is a list of what failed, how often,
//! and in which logs.

use crate::debian;
use crate::programs::{self, Program};
use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Options of `cargo xtask stress`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Times that every program runs
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Busy processes beside the tests; twice the processors by default
    #[arg(long)]
    load: Option<usize>,
    /// Only programs whose name contains this, such as `crates/discovery`; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// Only tests whose name contains this
    #[arg(long)]
    test: Option<String>,
    /// Run what was built before, without asking cargo
    #[arg(long)]
    built: bool,
}

/// A program that runs longer hangs: it is ended and counts as failed.
const LONGEST_SECONDS: &str = "3600";

/// Exit code of `timeout` for a program that it had to end.
const TIMED_OUT: i32 = 124;

/// Runs the rounds and fails if any test failed in any of them.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut programs = if args.built { programs::built()? } else { programs::build()? };
    // Benchmarks run their code once each, which the tests do as well.
    programs.retain(|program| {
        program.has_harness
            && (args.only.is_empty() || args.only.iter().any(|words| program.name.contains(words)))
    });
    ensure!(!programs.is_empty(), "no test program has this name; `run-tests --no-run` lists them");
    let logs = workspace::target().join("stress");
    fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    let processors = thread::available_parallelism().map_or(2, usize::from);
    let load = Load::start(args.load.unwrap_or(2 * processors))?;
    let mut failures: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for round in 1..=args.rounds {
        let start = Instant::now();
        let mut fell = 0;
        for program in &programs {
            let name = format!("{}-{round}.log", program.name.replace(['/', ' ', '(', ')'], "-"));
            let log = logs.join(name);
            let failed = run_once(program, args.test.as_deref(), &log)?;
            if failed.is_empty() {
                fs::remove_file(&log)?;
            }
            fell += failed.len();
            for test in failed {
                failures.entry(format!("{}: {test}", program.name)).or_default().push(log.clone());
            }
        }
        let seconds = start.elapsed().as_secs();
        println!("round {round} of {}: {fell} failures, {seconds} s", args.rounds);
    }
    drop(load);
    for (test, logs) in &failures {
        println!("{test} failed {} times in {} rounds, e.g. {}", logs.len(), args.rounds, logs[0].display());
    }
    ensure!(failures.is_empty(), "{} tests failed at least once", failures.len());
    Ok(())
}

/// Runs a program once; returns the tests that failed, or the program's end if it did not come to report them.
fn run_once(program: &Program, test: Option<&str>, log: &Path) -> Result<Vec<String>> {
    let output = File::create(log).with_context(|| log.display().to_string())?;
    let mut command = program.command_under("timeout", &["--foreground", LONGEST_SECONDS]);
    command.args(test).stdout(output.try_clone()?).stderr(output);
    let status = command.status().context("cannot start timeout")?;
    if status.code() == Some(TIMED_OUT) {
        return Ok(vec![format!("did not end within {LONGEST_SECONDS} s")]);
    }
    if status.success() {
        return Ok(Vec::new());
    }
    let failed = failed_tests(&String::from_utf8_lossy(&fs::read(log)?));
    Ok(if failed.is_empty() { vec![format!("ended with {status}")] } else { failed })
}

/// The names in lines such as `test a::b ... FAILED`.
fn failed_tests(log: &str) -> Vec<String> {
    let names = log.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    names.map(|name| name.trim().to_owned()).collect()
}

/// A load on the machine, until it is dropped.
enum Load {
    Tool(Child),
    Threads { ending: Arc<AtomicBool>, threads: Vec<JoinHandle<()>> },
}

impl Load {
    /// Keeps as many processes busy, and some memory and files.
    fn start(processes: usize) -> Result<Load> {
        match debian::install("stress-ng", "stress-ng") {
            Ok(()) => {
                let mut tool = Command::new("stress-ng");
                tool.args(["--cpu", &processes.to_string(), "--vm", "1", "--vm-bytes", "256M", "--hdd", "1"]);
                tool.args(["--hdd-bytes", "64M", "--temp-path"]).arg(std::env::temp_dir());
                tool.args(["--quiet", "--timeout", "0"]).stdin(Stdio::null());
                let child = tool.spawn().context("stress-ng")?;
                println!("load: stress-ng, process {}", child.id());
                Ok(Load::Tool(child))
            }
            Err(reason) => {
                println!("load: {processes} busy threads ({reason:#})");
                let ending = Arc::new(AtomicBool::new(false));
                let busy = |_| {
                    let ending = ending.clone();
                    thread::spawn(move || {
                        while !ending.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    })
                };
                let threads = (0..processes).map(busy).collect();
                Ok(Load::Threads { ending, threads })
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        match self {
            Load::Tool(child) => {
                // It stops its own processes when it is asked to end.
                let _ = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
                let _ = child.wait();
            }
            Load::Threads { ending, threads } => {
                ending.store(true, Ordering::Relaxed);
                threads.drain(..).for_each(|thread| drop(thread.join()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::failed_tests;

    #[test]
    fn failed_tests_are_named() {
        let log =
            "test a::b ... ok\ntest a::c ... FAILED\n\nfailures:\n    a::c\ntest planned::cast ... FAILED\n";
        assert_eq!(failed_tests(log), ["a::c", "planned::cast"]);
    }
}
