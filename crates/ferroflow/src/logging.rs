//! Log lines on standard error, for programs that do not install a `tracing` subscriber.
//!
//! The first server or session of a process installs a subscriber, unless the program has one. It logs waits (for whom,
//! since when and why), lost tasks, checkpoints written and restored, and whatever goes wrong. The environment variable
//! `FERROFLOW_LOG` sets the level: `off`, `error`, `warn`, `info`, `debug` or `trace`, or levels of modules such as
//! `warn,ferroflow::train=debug`. Where it is not set, the program can set one:
//!
//! ```
//! use ferroflow::logging::{self, LevelFilter};
//!
//! // At the beginning of `main`: nothing is logged.
//! logging::set_default_level(LevelFilter::OFF);
//! ```
//!
//! A program with its own subscriber installs it at the beginning of `main`, and filters events there. The targets of
//! events begin with `ferroflow`.

use std::io::IsTerminal;
use std::sync::{Mutex, Once, PoisonError};
pub use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

/// Environment variable that selects what is logged.
const VARIABLE: &str = "FERROFLOW_LOG";

/// Level that the program set. A static, because the subscriber is the process's, too.
static DEFAULT: Mutex<Option<LevelFilter>> = Mutex::new(None);

/// Sets the level for processes where the environment variable `FERROFLOW_LOG` is not set; [`LevelFilter::OFF`] silences
/// everything. Call it before the first server or session. It does not affect a subscriber that the program installed.
pub fn set_default_level(level: LevelFilter) {
    *DEFAULT.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
}

/// Installs the subscriber once, unless the program has one or logging is off.
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
                    "{VARIABLE}={text} is not a level; write off, error, warn, info, debug, trace, or a list such as \
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
        // Another thread of the program may have installed a subscriber in the meantime, which is just as good.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(chosen).with(lines));
    });
}

/// Enables events of at least this severity; of other crates, warnings and errors only.
fn all(level: LevelFilter) -> Targets {
    match level {
        LevelFilter::OFF => Targets::new().with_default(LevelFilter::OFF),
        level => Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("ferroflow", level),
    }
}

/// Enables level `info`, except for a line per session that a server opens and closes.
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
