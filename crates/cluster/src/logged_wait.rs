//! Log messages about waits: a thread or task that waits for another logs it after a few seconds, and then less and
//! less often, with whom it waits for, for how long and why.

use std::fmt::Display;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The time after which a wait is first logged.
const FIRST_MESSAGE: Duration = Duration::from_secs(5);
/// The longest interval between two messages.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);
/// The time after which a wait that may legitimately be long is unusual.
const UNUSUAL: Duration = Duration::from_secs(60);

/// A wait that logs whom it is waiting for.
#[derive(Clone, Debug)]
pub struct LoggedWait {
    since: Instant,
    next: Duration,
    /// The time for which messages are logged at debug level only.
    quiet: Duration,
}

impl Default for LoggedWait {
    fn default() -> LoggedWait {
        LoggedWait::new()
    }
}

impl LoggedWait {
    /// A wait that should be short.
    pub fn new() -> LoggedWait {
        LoggedWait { since: Instant::now(), next: FIRST_MESSAGE, quiet: Duration::ZERO }
    }

    /// A wait that may be long, such as for a step: its first minute is logged at debug level only.
    pub fn for_work() -> LoggedWait {
        LoggedWait { quiet: UNUSUAL, ..LoggedWait::new() }
    }

    /// A wait that may be long and that began earlier.
    pub fn for_work_since(since: Instant) -> LoggedWait {
        LoggedWait { since, ..LoggedWait::for_work() }
    }

    /// A wait that should be short and that began earlier.
    pub fn since(since: Instant) -> LoggedWait {
        LoggedWait { since, ..LoggedWait::new() }
    }

    /// Returns the time waited so far.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the time until the next message is due.
    pub fn until_next(&self) -> Duration {
        self.next.saturating_sub(self.elapsed())
    }

    /// Returns whether a message is due.
    pub fn is_due(&self) -> bool {
        self.until_next().is_zero()
    }

    /// Logs whom the wait is for, for how long and why, if a message is due.
    pub fn log(&mut self, whom: impl Display, why: impl Display) {
        let quiet = self.elapsed() < self.quiet;
        match self.message(whom, why) {
            Some(message) if quiet => tracing::debug!("{message}"),
            Some(message) => tracing::info!("{message}"),
            None => {}
        }
    }

    /// Returns the message that [`LoggedWait::log`] would log, for programs that write no log; `None` if none is due.
    pub fn message(&mut self, whom: impl Display, why: impl Display) -> Option<String> {
        if !self.is_due() {
            return None;
        }
        let waited = self.elapsed();
        self.next = waited + self.next.min(LONGEST_INTERVAL);
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
            match tokio::time::timeout(self.until_next(), work.as_mut()).await {
                Ok(done) => return done,
                Err(_) => self.log(&whom, &why),
            }
        }
    }
}

/// Runs a blocking operation that cannot be interrupted, such as resolving a name or reading a file over the network,
/// and logs the wait while it lasts.
pub fn log_while<T>(whom: impl Display, why: impl Display, work: impl FnOnce() -> T) -> T {
    let (whom, why) = (whom.to_string(), why.to_string());
    let (done, is_done) = channel::<()>();
    let log = move || {
        let mut waiting = LoggedWait::new();
        while is_done.recv_timeout(waiting.until_next()) == Err(RecvTimeoutError::Timeout) {
            waiting.log(&whom, &why);
        }
    };
    // Without the thread nothing is logged, but the work still has to be done.
    let logger = std::thread::Builder::new().name("waiting".to_owned()).spawn(log);
    let made = work();
    drop(done);
    if let Ok(logger) = logger {
        let _ = logger.join();
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_after_five_seconds_and_then_less_often() {
        let mut waiting = LoggedWait::new();
        waiting.log("nobody", "it is too early");
        assert_eq!(waiting.next, FIRST_MESSAGE);
        let mut distances = Vec::new();
        for _ in 0..6 {
            // Pretend that the next message is due.
            waiting.since = Instant::now().checked_sub(waiting.next).unwrap();
            let before = waiting.next;
            waiting.log("somebody", "there is a reason");
            distances.push((waiting.next - before).as_secs());
        }
        assert_eq!(distances, [5, 10, 20, 40, 60, 60]);
    }
}
