//! What the examples have in common: their flags, their data, and the task of a cluster that a process is.

#![allow(dead_code, unused_imports, reason = "no example uses all of it")]

mod flags;
mod worker;

pub(crate) use flags::Flags;
pub(crate) use worker::Worker;

use ferroflow::data::digits::Digits;
use ferroflow::train::{Every, LogTensors, MonitoredTrainingSession};
use ferroflow::{Graph, Output, Result, Variable};

/// The handwritten digits that come with this repository, or those of `--data`.
pub(crate) fn digits(flags: &Flags) -> Result<Digits> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/digits.csv.gz");
    Digits::load(flags.get("data").unwrap_or(own))
}

/// A training session whose checkpoints are in the directory of `--dir`, if there is one.
pub(crate) fn training(graph: &Graph, flags: &Flags) -> MonitoredTrainingSession {
    let session = MonitoredTrainingSession::new(graph);
    match flags.get("dir") {
        Some(directory) => session.checkpoint_dir(directory),
        None => session,
    }
}

/// A hook that prints the loss now and then.
pub(crate) fn progress(step: &Variable, loss: &Output) -> LogTensors {
    let values = [("step", step.value()), ("loss", loss)];
    LogTensors::new(values, Every::Steps(20)).sink(|line| println!("{line}"))
}
