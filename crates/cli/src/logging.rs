//! Log lines on standard error, so that standard output carries only what a program may want to read.

use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;

/// Logs from now on what is at least as severe as `level`.
pub(crate) fn start(level: LevelFilter) {
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
