//! `cargo xtask clock`: tests of tasks that meet, wait and train, while the clock of their machine jumps.
//!
//! Debian's `faketime` tells processes another time of day than it is: an hour more, an hour less, a little of each. Time
//! that only passes (the monotonic clock) is left alone, as it is when an administrator or NTP sets a clock.

use crate::{debian, programs, workspace};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const PACKAGE: &str = "faketime";
/// The library that processes load first, in the directories of the system.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The clock's errors in seconds, one after the other.
const ERRORS: [i64; 5] = [0, 3600, -3600, 60, -30];
const EVERY: Duration = Duration::from_secs(2);

/// Tests of tasks that find each other, in the check and by default.
const MEETINGS: &str = "rendezvous::";

/// Options of `cargo xtask clock`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run what was built before, without asking cargo
    #[arg(long)]
    built: bool,
    /// Run the tests whose names have this in them (may be repeated)
    #[arg(long, default_value = MEETINGS)]
    test: Vec<String>,
}

/// Runs the tests; says that it is skipped where there is no such library.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !cfg!(target_os = "linux") {
        println!("skipped: clocks jump by a library for Linux");
        return Ok(());
    }
    if let Err(reason) = debian::install(PACKAGE, PACKAGE) {
        println!("skipped: {reason:#}");
        return Ok(());
    }
    let Some(library) = library() else {
        println!("skipped: there is no {LIBRARY} in the directories of /usr/lib");
        return Ok(());
    };
    let programs = if args.built { programs::built()? } else { programs::build()? };
    let tests = programs
        .iter()
        .find(|program| program.target == "main")
        .context("cargo built no test program that is called main")?;
    let clock = workspace::target().join("check/clock");
    fs::create_dir_all(clock.parent().context("the clock lies in a directory")?)?;
    set(&clock, ERRORS[0])?;
    let mut command = tests.command();
    command.args(&args.test).env("LD_PRELOAD", library);
    command.env("FAKETIME_TIMESTAMP_FILE", &clock).env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    let status = while_it_jumps(&clock, &mut command)?;
    ensure!(status, "tests fail while the clock jumps");
    Ok(())
}

/// Whether a command succeeds while the clock jumps.
fn while_it_jumps(clock: &Path, command: &mut Command) -> Result<bool> {
    std::thread::scope(|scope| {
        let (ended, end) = channel::<()>();
        let jumps = scope.spawn(move || {
            let mut errors = ERRORS.iter().cycle();
            while end.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                set(clock, *errors.next().context("a cycle has no end")?)?;
            }
            anyhow::Ok(())
        });
        let status = command.status();
        drop(ended);
        jumps.join().map_err(|_| anyhow::anyhow!("the thread that sets the clock panicked"))??;
        Ok(status.context("the test program")?.success())
    })
}

/// Sets the clock at once for everyone who looks at it.
fn set(clock: &Path, error: i64) -> Result<()> {
    let next = clock.with_extension("next");
    fs::write(&next, format!("{error:+}\n")).with_context(|| next.display().to_string())?;
    fs::rename(&next, clock).with_context(|| clock.display().to_string())
}

/// The library, in the directory of this machine's architecture.
fn library() -> Option<PathBuf> {
    let directories = fs::read_dir("/usr/lib").ok()?.flatten();
    directories.map(|directory| directory.path().join(LIBRARY)).find(|library| library.exists())
}
