//! How long a task waits for the others, how often it looks, and when it says whom it waits for.

use super::wake::Wake;
use std::time::{Duration, Instant};

/// Looks come quickly at first, since tasks mostly start together.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// When a wait is first spoken of, and at which distance later.
const FIRST_REPORT: Duration = Duration::from_secs(5);
const RAREST_REPORT: Duration = Duration::from_secs(30);

/// A wait with an end.
pub(super) struct Patience {
    started: Instant,
    timeout: Option<Duration>,
    pause: Duration,
    next_report: Duration,
}

impl Patience {
    pub(super) fn new(started: Instant, timeout: Option<Duration>) -> Patience {
        Patience { started, timeout, pause: FIRST_PAUSE, next_report: FIRST_REPORT }
    }

    /// Whether it is time to give up.
    pub(super) fn is_over(&self) -> bool {
        self.timeout.is_some_and(|timeout| self.started.elapsed() >= timeout)
    }

    /// Whether it is time to say whom the wait is for; true once per report.
    pub(super) fn report_is_due(&mut self) -> bool {
        let waited = self.started.elapsed();
        let due = waited >= self.next_report;
        if due {
            self.next_report = waited + self.next_report.min(RAREST_REPORT);
        }
        due
    }

    /// Since when, and for how long still.
    pub(super) fn so_far(&self) -> String {
        let waited = self.started.elapsed();
        match self.timeout {
            Some(timeout) => format!(
                "since {} s, for {} s more",
                waited.as_secs(),
                timeout.saturating_sub(waited).as_secs_f64().ceil()
            ),
            None => format!("since {} s", waited.as_secs()),
        }
    }

    /// Waits a little, less if there is news.
    pub(super) fn pause(&mut self, wake: &Wake) {
        let left =
            self.timeout.map_or(LONGEST_PAUSE, |timeout| timeout.saturating_sub(self.started.elapsed()));
        wake.wait(jittered(self.pause).min(left));
        self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
    }

    /// Something happened: more may follow at once.
    pub(super) fn hurry(&mut self) {
        self.pause = FIRST_PAUSE;
    }
}

/// Between half of it and half more, so that tasks do not look all at the same moment.
pub(super) fn jittered(pause: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    pause.mul_f64(0.5 + f64::from(random) / f64::from(u32::MAX))
}
