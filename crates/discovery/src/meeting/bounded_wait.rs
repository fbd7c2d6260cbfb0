//! The wait of a task for the others: its limit, the pauses between looks, and the log lines that say whom it is for.

use super::wake::Wake;
use ferroflow_cluster::logged_wait::LoggedWait;
use std::time::{Duration, Instant};

/// The first pause between looks, and the longest: looks come quickly at first, since tasks mostly start together.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A wait with a limit.
pub(super) struct BoundedWait {
    waiting: LoggedWait,
    timeout: Option<Duration>,
    pause: Duration,
}

impl BoundedWait {
    pub(super) fn new(started: Instant, timeout: Option<Duration>) -> BoundedWait {
        BoundedWait { waiting: LoggedWait::since(started), timeout, pause: FIRST_PAUSE }
    }

    /// Returns whether it is time to give up.
    pub(super) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Returns whether it is time to log whom the wait is for.
    pub(super) fn is_due(&self) -> bool {
        self.waiting.is_due()
    }

    /// Logs whom the wait is for, why, and how long it may still take, if it is time.
    pub(super) fn log(&mut self, whom: &str, why: &str) {
        match self.left() {
            Some(left) => {
                let seconds = left.as_secs_f64().ceil();
                self.waiting.log(whom, format_args!("{why}; given up in {seconds} s"));
            }
            None => self.waiting.log(whom, why),
        }
    }

    /// The seconds that it has taken.
    pub(super) fn seconds(&self) -> u64 {
        self.waiting.elapsed().as_secs()
    }

    fn left(&self) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.saturating_sub(self.waiting.elapsed()))
    }

    /// Waits a little, less if there is news.
    pub(super) fn pause(&mut self, wake: &Wake) {
        let left = self.left().unwrap_or(LONGEST_PAUSE);
        let word = self.waiting.until_next().max(FIRST_PAUSE);
        wake.wait(jittered(self.pause).min(left).min(word));
        self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
    }

    /// Shortens the next pause, because more news may follow at once.
    pub(super) fn hurry(&mut self) {
        self.pause = FIRST_PAUSE;
    }
}

/// Returns between half of a pause and half more, so that tasks do not look all at the same moment.
pub(super) fn jittered(pause: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    pause.mul_f64(0.5 + f64::from(random) / f64::from(u32::MAX))
}
