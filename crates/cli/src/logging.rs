//! Log lines on standard error, so that standard output carries only text that a program may want to read.

use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Logs from now on lines that are at least as severe as `level`; of the libraries below, only warnings and errors.
pub(crate) fn start(level: LevelFilter) {
    log(Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("ferroflow", level));
}

/// Logs from now on warnings, errors and waits.
pub(crate) fn start_for_waits() {
    let waits = Targets::new().with_target("ferroflow_cluster::waiting", LevelFilter::INFO);
    log(waits.with_default(LevelFilter::WARN));
}

fn log(chosen: Targets) {
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    tracing_subscriber::registry().with(chosen).with(lines).init();
}
