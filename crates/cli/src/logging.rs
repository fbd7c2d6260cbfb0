//! Log lines on standard error, so that standard output carries only what a program may want to read.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Logs from now on at this level (`error`, `warn`, `info`, `debug`, `trace`, `off`) or by these per-module directives.
pub(crate) fn start(level: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|error| {
        format!("--log {level} is no log level (error, warn, info, debug, trace, off): {error}")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    Ok(())
}
