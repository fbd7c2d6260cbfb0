//! Checkpoints of a directory, as another program writes them.

use super::checkpoint_state::latest_checkpoint;
use super::session_manager::pause_for;
use ferroflow_cluster::logged_wait::LoggedWait;
use ferroflow_core::Result;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pause between two looks at the directory.
const PAUSE: Duration = Duration::from_millis(200);

/// Iterator that waits for checkpoints, e.g. to evaluate each beside training. Of the checkpoints that are written while
/// one is in use, it returns only the latest. It ends when no new one has come within the timeout.
///
/// ```no_run
/// use ferroflow::train::{Checkpoints, Saver};
/// use ferroflow::{Output, Result, Session};
/// use std::time::Duration;
///
/// /// Evaluates every checkpoint until none has come for ten minutes.
/// fn follow(directory: &str, saver: &Saver, session: &Session, accuracy: &Output) -> Result<()> {
///     for checkpoint in Checkpoints::new(directory, Duration::from_secs(600)) {
///         let checkpoint = checkpoint?;
///         saver.restore(session, &checkpoint)?;
///         println!("{checkpoint}: {}", session.eval(accuracy)?.to_scalar::<f32>()?);
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Checkpoints {
    directory: PathBuf,
    timeout: Duration,
    min_interval: Duration,
    last: Option<String>,
    given: Option<Instant>,
}

impl Checkpoints {
    /// Follows the checkpoints of a directory until none has come for `timeout`.
    pub fn new(directory: impl AsRef<Path>, timeout: Duration) -> Checkpoints {
        crate::logging::start();
        Checkpoints {
            directory: directory.as_ref().to_owned(),
            timeout,
            min_interval: Duration::ZERO,
            last: None,
            given: None,
        }
    }

    /// Sets the minimum time between two checkpoints; none by default.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = interval;
        self
    }
}

impl Iterator for Checkpoints {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        // The first checkpoint should come soon; much time may pass between later ones, which is not worth a warning.
        let mut waiting = if self.last.is_none() { LoggedWait::new() } else { LoggedWait::for_work() };
        loop {
            let early = self.given.is_some_and(|given| given.elapsed() < self.min_interval);
            match latest_checkpoint(&self.directory) {
                Err(error) => return Some(Err(error)),
                Ok(Some(latest)) if !early && self.last.as_ref() != Some(&latest) => {
                    self.last = Some(latest.clone());
                    self.given = Some(Instant::now());
                    return Some(Ok(latest));
                }
                Ok(_) => {}
            }
            if waiting.elapsed() >= self.timeout {
                return None;
            }
            let last = self.last.as_deref().unwrap_or("none");
            waiting.log(
                format_args!("a new checkpoint in {}", self.directory.display()),
                format_args!("the latest is {last}"),
            );
            pause_for(PAUSE.min(self.timeout));
        }
    }
}
