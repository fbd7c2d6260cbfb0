//! Words about waits: whoever waits for somebody says so after a while, and less and less often: for whom, since when and
//! why.

use std::fmt::Display;
use std::sync::mpsc::{RecvTimeoutError, channel};
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

    /// A wait that should be short and has begun already.
    pub fn since(since: Instant) -> Waiting {
        Waiting { since, ..Waiting::new() }
    }

    /// How long it has taken so far.
    pub fn so_far(&self) -> Duration {
        self.since.elapsed()
    }

    /// How long until there is something to say.
    pub fn next_word(&self) -> Duration {
        self.next.saturating_sub(self.so_far())
    }

    /// Whether it is time to say something.
    pub fn is_due(&self) -> bool {
        self.next_word().is_zero()
    }

    /// Says whom the wait is for, since when and why, if it is time.
    pub fn speak(&mut self, whom: impl Display, why: impl Display) {
        let quiet = self.so_far() < self.quiet;
        match self.word(whom, why) {
            Some(word) if quiet => tracing::debug!("{word}"),
            Some(word) => tracing::info!("{word}"),
            None => {}
        }
    }

    /// What [`Waiting::speak`] says, for programs that write no log; `None` if it is not time.
    pub fn word(&mut self, whom: impl Display, why: impl Display) -> Option<String> {
        if !self.is_due() {
            return None;
        }
        let waited = self.so_far();
        self.next = waited + self.next.min(RAREST_WORD);
        Some(format!("Waiting for {whom} since {} s: {why}", waited.as_secs()))
    }

    /// Says it while something takes long. To be polled in a runtime of tokio.
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

/// Does what may take long where the system gives no way to stop waiting, such as looking up a name or reading a file of
/// another machine, and says whom it waits for meanwhile.
pub fn aloud<T>(whom: impl Display, why: impl Display, work: impl FnOnce() -> T) -> T {
    let (whom, why) = (whom.to_string(), why.to_string());
    let (done, is_done) = channel::<()>();
    let speak = move || {
        let mut waiting = Waiting::new();
        while is_done.recv_timeout(waiting.next_word()) == Err(RecvTimeoutError::Timeout) {
            waiting.speak(&whom, &why);
        }
    };
    // Without the thread nobody speaks, which is no reason not to work.
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
            // As if the time of the next word had come.
            waiting.since = Instant::now().checked_sub(waiting.next).unwrap();
            let before = waiting.next;
            waiting.speak("somebody", "there is a reason");
            distances.push((waiting.next - before).as_secs());
        }
        assert_eq!(distances, [5, 10, 20, 40, 60, 60]);
    }
}
