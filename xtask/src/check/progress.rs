//! Lines about checks that run: on a terminal one that changes, elsewhere one at the start and one at the end of each.

use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

/// A check that is running.
pub(super) struct Running<'a> {
    pub(super) name: &'a str,
    pub(super) elapsed: Duration,
    pub(super) expected: Duration,
}

/// Shows progress on the standard output.
pub(super) struct Progress {
    is_terminal: bool,
}

/// Moves to the start of the line and erases it.
const ERASE: &str = "\r\x1b[K";

impl Progress {
    pub(super) fn new() -> Progress {
        Progress { is_terminal: stdout().is_terminal() }
    }

    /// Says that a check starts; on a terminal its line follows by itself.
    pub(super) fn started(&self, name: &str, expected: Duration) {
        if !self.is_terminal {
            self.line(&format!("{name}: started, {}", about(expected)));
        }
    }

    /// Says how a check ended, when, and for how long processors worked for it.
    pub(super) fn ended(
        &self,
        name: &str,
        verdict: &str,
        took: Duration,
        processor: Duration,
        expected: Duration,
    ) {
        self.line(&format!(
            "{name}: {verdict}, {:.1} s ({}), {:.0} CPU-s",
            took.as_secs_f64(),
            about(expected),
            processor.as_secs_f64()
        ));
    }

    /// Prints whole lines, above the one that changes.
    pub(super) fn line(&self, text: &str) {
        println!("{}{text}", if self.is_terminal { ERASE } else { "" });
    }

    /// Refreshes the line that changes.
    pub(super) fn update(&self, running: &[Running<'_>], left: usize) {
        if self.is_terminal {
            // Longer lines would wrap, and stay.
            let line: String = status(running, left).chars().take(110).collect();
            print!("{ERASE}{line}");
            let _ = stdout().flush();
        }
    }
}

fn status(running: &[Running<'_>], left: usize) -> String {
    let mut parts: Vec<String> = running
        .iter()
        .map(|step| format!("{} {} of {}", step.name, clock(step.elapsed), about(step.expected)))
        .collect();
    if left > 0 {
        parts.push(format!("{left} to come"));
    }
    parts.join(" | ")
}

fn about(expected: Duration) -> String {
    format!("about {}", clock(expected))
}

/// Minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_names_what_runs_and_what_is_left() {
        let step = |name, elapsed, expected| Running {
            name,
            elapsed: Duration::from_secs(elapsed),
            expected: Duration::from_secs(expected),
        };
        let running = [step("lints", 5, 70), step("scenarios", 61, 330)];
        assert_eq!(
            status(&running, 3),
            "lints 0:05 of about 1:10 | scenarios 1:01 of about 5:30 | 3 to come"
        );
    }
}
