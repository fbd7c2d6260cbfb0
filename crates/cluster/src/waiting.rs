//! Words about waits: whoever waits for somebody says so after a while, and less and less often: for whom, since when and
//! why.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// After what time a wait is first spoken of.
const FIRST_WORD: Duration = Duration::from_secs(5);
/// How far words are apart at most.
const RAREST_WORD: Duration = Duration::from_secs(60);
/// After what time a wait that may well be long is unusual.
const UNUSUAL: Duration = Duration::from_secs(60);

/// A wait that speaks.
#[derive(Clone, Debug)]
pub struct Waiting {
    since: Instant,
    next: Duration,
    /// Before that, words are for those who look for them.
    quiet: Duration,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting::new()
    }
}

impl Waiting {
    /// A wait that should be short.
    pub fn new() -> Waiting {
        Waiting { since: Instant::now(), next: FIRST_WORD, quiet: Duration::ZERO }
    }

    /// A wait that may well be long, such as that for a step: in its first minute it is told at debug level.
    pub fn for_work() -> Waiting {
        Waiting { quiet: UNUSUAL, ..Waiting::new() }
    }

    /// How long it has taken so far.
    pub fn so_far(&self) -> Duration {
        self.since.elapsed()
    }

    /// How long until there is something to say.
    pub fn next_word(&self) -> Duration {
        self.next.saturating_sub(self.so_far())
    }

    /// Says whom the wait is for, since when and why, if it is time.
    pub fn speak(&mut self, whom: impl Display, why: impl Display) {
        let waited = self.so_far();
        if waited < self.next {
            return;
        }
        self.next = waited + self.next.min(RAREST_WORD);
        let seconds = waited.as_secs();
        if waited < self.quiet {
            tracing::debug!("Waiting for {whom} since {seconds} s: {why}");
        } else {
            tracing::info!("Waiting for {whom} since {seconds} s: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_after_five_seconds_and_then_less_often() {
        let mut waiting = Waiting::new();
        waiting.speak("nobody", "it is too early");
        assert_eq!(waiting.next, FIRST_WORD);
        let mut distances = Vec::new();
        for _ in 0..6 {
            // As if the time of the next word had come.
            waiting.since = Instant::now().checked_sub(waiting.next).unwrap();
            let before = waiting.next;
            waiting.speak("somebody", "there is a reason");
            distances.push((waiting.next - before).as_secs());
        }
        assert_eq!(distances, [5, 10, 20, 40, 60, 60]);
    }
}
