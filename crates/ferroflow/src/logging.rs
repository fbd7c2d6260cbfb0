//! Log lines on standard error for programs that install no `tracing` subscriber of their own.
//!
//! The first server or session of a process installs one, unless the program has: it tells of waits (for whom, since when
//! and why), of tasks that were lost, of checkpoints written and restored, and of what goes wrong. The environment variable
//! `FERROFLOW_LOG` chooses the level: `off`, `error`, `warn`, `info`, `debug` or `trace`, or levels of modules such as
//! `warn,ferroflow::train=debug`. Where it is not set, the program may choose:
//!
//! ```
//! use ferroflow::logging::{self, LevelFilter};
//!
//! // At the beginning of `main`: nothing is logged.
//! logging::set_default_level(LevelFilter::OFF);
//! ```
//!
//! A program with a subscriber of its own installs it at the beginning of `main`, and chooses there what is written and
//! where. The events' targets begin with `ferroflow`.

use std::io::IsTerminal;
use std::sync::{Mutex, Once, PoisonError};
pub use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

/// The environment variable that chooses what is logged.
const VARIABLE: &str = "FERROFLOW_LOG";

/// The level of a program that has chosen one. A process has one subscriber, so this is the process's, too.
static DEFAULT: Mutex<Option<LevelFilter>> = Mutex::new(None);

/// Chooses what is logged where the environment variable `FERROFLOW_LOG` does not; [`LevelFilter::OFF`] is nothing at all.
/// To be called before the first server or session. A subscriber of the program's own is not affected.
pub fn set_default_level(level: LevelFilter) {
    *DEFAULT.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
}

/// Installs the subscriber, once, unless the program has one or wants none.
pub(crate) fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        if tracing::dispatcher::has_been_set() || cfg!(test) {
            return;
        }
        let default = DEFAULT.lock().unwrap_or_else(PoisonError::into_inner).map_or_else(usual, all);
        let chosen = match std::env::var(VARIABLE).as_deref().map(str::trim) {
            Err(_) | Ok("") => default,
            Ok(text) => parse(text).unwrap_or_else(|| {
                eprintln!(
                    "{VARIABLE}={text} is not a level: expected off, error, warn, info, debug, trace, or a list such as \
                     warn,ferroflow::train=debug"
                );
                default
            }),
        };
        if chosen.default_level() == Some(LevelFilter::OFF) && chosen.iter().next().is_none() {
            return;
        }
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false);
        // Another thread of the program may have been faster, which is as good.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(chosen).with(lines));
    });
}

/// Everything that is at least as severe; of the libraries below, only what goes wrong.
fn all(level: LevelFilter) -> Targets {
    match level {
        LevelFilter::OFF => Targets::new().with_default(LevelFilter::OFF),
        level => Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("ferroflow", level),
    }
}

/// Level `info`, without a line per session that a server opens and closes.
fn usual() -> Targets {
    all(LevelFilter::INFO)
        .with_target("ferroflow_cluster::master", LevelFilter::WARN)
        .with_target("ferroflow_cluster::master::members", LevelFilter::INFO)
}

fn parse(text: &str) -> Option<Targets> {
    if text.contains('=') {
        return text.parse().ok();
    }
    text.parse().ok().map(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn levels_and_lists_of_levels() {
        let debug = parse("debug").unwrap();
        assert!(debug.would_enable("ferroflow_cluster::master", &Level::DEBUG));
        assert!(!debug.would_enable("h2::proto", &Level::INFO));
        let list = parse("warn,ferroflow::train=debug").unwrap();
        assert!(list.would_enable("ferroflow::train::saver", &Level::DEBUG));
        assert!(!list.would_enable("ferroflow_cluster::waiting", &Level::INFO));
        assert!(parse("loud").is_none() && parse("ferroflow=loud").is_none());
        assert!(!parse("off").unwrap().would_enable("ferroflow", &Level::ERROR));
    }

    #[test]
    fn waits_and_checkpoints_are_told_by_default_and_sessions_are_not() {
        let usual = usual();
        for target in
            ["ferroflow_cluster::waiting", "ferroflow::train::hooks::checkpoint", "ferroflow_discovery"]
        {
            assert!(usual.would_enable(target, &Level::INFO), "{target}");
        }
        assert!(!usual.would_enable("ferroflow_cluster::master", &Level::INFO));
        assert!(usual.would_enable("ferroflow_cluster::master::members", &Level::INFO));
        assert!(!usual.would_enable("ferroflow::train", &Level::DEBUG));
    }
}
