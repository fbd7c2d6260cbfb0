//! Log messages about waits: a thread or task that waits for another logs it after a few seconds, and then less and
//! less often, with whom it waits for, for how long and why.

use std::fmt::Display;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The time after which a wait is first logged.
const FIRST_WORD: Duration = Duration::from_secs(5);
/// The longest interval between two messages.
const RAREST_WORD: Duration = Duration::from_secs(60);
/// The time after which a wait that may legitimately be long is unusual.
const UNUSUAL: Duration = Duration::from_secs(60);

/// A wait that logs whom it is waiting for.
#[derive(Clone, Debug)]
pub struct Waiting {
    since: Instant,
    next: Duration,
    /// The time for which messages are logged at debug level only.
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

    /// A wait that may be long, such as for a step: its first minute is logged at debug level only.
    pub fn for_work() -> Waiting {
        Waiting { quiet: UNUSUAL, ..Waiting::new() }
    }

    /// A wait that should be short and that began earlier.
    pub fn since(since: Instant) -> Waiting {
        Waiting { since, ..Waiting::new() }
    }

    /// Returns the time waited so far.
    pub fn so_far(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the time until the next message is due.
    pub fn next_word(&self) -> Duration {
        self.next.saturating_sub(self.so_far())
    }

    /// Returns whether it is time to say something.
    pub fn is_due(&self) -> bool {
        self.next_word().is_zero()
    }

    /// Logs whom the wait is for, for how long and why, if a message is due.
    pub fn speak(&mut self, whom: impl Display, why: impl Display) {
        let quiet = self.so_far() < self.quiet;
        match self.word(whom, why) {
            Some(word) if quiet => tracing::debug!("{word}"),
            Some(word) => tracing::info!("{word}"),
            None => {}
        }
    }

    /// Returns the message that [`Waiting::speak`] would log, for programs that write no log; `None` if none is due.
    pub fn word(&mut self, whom: impl Display, why: impl Display) -> Option<String> {
        if !self.is_due() {
            return None;
        }
        let waited = self.so_far();
        self.next = waited + self.next.min(RAREST_WORD);
        Some(format!("Waiting for {whom} for {} s: {why}", waited.as_secs()))
    }

    /// Awaits `work` and logs the wait while it lasts. Must be polled within a tokio runtime.
    pub(crate) async fn during<T>(
        mut self,
        whom: impl Display,
        why: impl Display,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            match tokio::time::timeout(self.next_word(), work.as_mut()).await {
                Ok(done) => return done,
                Err(_) => self.speak(&whom, &why),
            }
        }
    }
}

/// Runs a blocking operation that cannot be interrupted, such as resolving a name or reading a file over the network,
/// and logs the wait while it lasts.
pub fn aloud<T>(whom: impl Display, why: impl Display, work: impl FnOnce() -> T) -> T {
    let (whom, why) = (whom.to_string(), why.to_string());
    let (done, is_done) = channel::<()>();
    let speak = move || {
        let mut waiting = Waiting::new();
        while is_done.recv_timeout(waiting.next_word()) == Err(RecvTimeoutError::Timeout) {
            waiting.speak(&whom, &why);
        }
    };
    // Without the thread nothing is logged, but the work still has to be done.
    let speaker = std::thread::Builder::new().name("waiting".to_owned()).spawn(speak);
    let made = work();
    drop(done);
    if let Ok(speaker) = speaker {
        let _ = speaker.join();
    }
    made
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
            // Pretend that the next message is due.
            waiting.since = Instant::now().checked_sub(waiting.next).unwrap();
            let before = waiting.next;
            waiting.speak("somebody", "there is a reason");
            distances.push((waiting.next - before).as_secs());
        }
        assert_eq!(distances, [5, 10, 20, 40, 60, 60]);
    }
}
