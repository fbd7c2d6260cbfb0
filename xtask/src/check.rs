//! `cargo xtask test`: the whole check, which is also what CI runs.

mod excerpt;
mod history;
mod progress;
mod schedule;
mod steps;
mod tally;

use crate::workspace;
use anyhow::{Context, Result};
use std::fs;
use std::process::ExitCode;
use std::time::Instant;
use steps::{STEPS, Step};
use tally::Tally;

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run what belongs before every commit: conventions, lints and the tests that need no Python
    #[arg(long)]
    quick: bool,
    /// Leave out what asks stock TensorFlow
    #[arg(long)]
    without_stock: bool,
}

/// Runs every check, each with a log of its own, and shows of the logs what failed: one run tells all that is wrong. The
/// last line counts tests, for tools; checks that are not test programs count as one.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let logs = workspace::target().join("check");
    fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    let steps: Vec<&Step> = STEPS.iter().filter(|step| step.is_part_of(args)).collect();
    let start = Instant::now();
    let outcomes = schedule::run(&steps, &logs, args.quick || args.without_stock)?;
    let seconds = start.elapsed().as_secs();
    let failed: Vec<&str> =
        outcomes.iter().filter(|outcome| outcome.has_failed()).map(|outcome| outcome.name).collect();
    if failed.is_empty() {
        println!("all {} checks passed in {seconds} s; their logs are in {}", steps.len(), logs.display());
    } else {
        println!("failed after {seconds} s: {}; the logs are in {}", failed.join(", "), logs.display());
    }
    println!("{}", outcomes.iter().map(|outcome| outcome.tally).sum::<Tally>());
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
