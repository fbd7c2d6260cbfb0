//! The start-up protocol: the chief initializes or restores the model, the other tasks wait until it is ready.

use super::checkpoint_state::latest_checkpoint;
use super::saver::Saver;
use super::scaffold::Prepared;
use crate::session::{Session, SessionOptions};
use crate::target::Target;
use bytes::Bytes;
use ferroflow_cluster::logged_wait::LoggedWait;
use ferroflow_core::scope::{Graph, Output};
use ferroflow_core::{Code, Result, Status, bail, ensure, status};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Shortest and longest pause between two looks at the model.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Opens sessions in which the model is ready.
pub(super) struct SessionManager<'a> {
    pub(super) graph: &'a Graph,
    pub(super) scaffold: &'a Prepared,
    pub(super) options: SessionOptions,
    /// Time that a worker waits for the model, and a chief for its cluster.
    pub(super) max_wait: Duration,
}

/// Origin of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    /// Directory whose latest checkpoint is used, if it has one.
    pub(super) checkpoint_dir: Option<String>,
    /// Checkpoint that is used instead.
    pub(super) checkpoint: Option<String>,
}

impl SessionManager<'_> {
    fn open(&self, target: &Target, limit: Duration) -> Result<Session> {
        Session::with_options(target, self.graph, self.options.clone().open_timeout(limit))
    }

    /// Opens the chief's session, and restores the model from a checkpoint, or initializes it if there is none.
    pub(super) fn prepare_session(&self, target: &Target, source: &Source) -> Result<Session> {
        let session = self.open(target, self.max_wait)?;
        let scaffold = self.scaffold;
        match self.find_checkpoint(source)? {
            Some(path) => {
                scaffold.saver.restore(&session, &path)?;
                if let Some(directory) = &source.checkpoint_dir {
                    scaffold.saver.recover_last_checkpoints(directory)?;
                }
                tracing::info!(checkpoint = path, "The model was restored.");
            }
            None => {
                let mut step = session.step().target(&scaffold.init_op);
                for (output, value) in &scaffold.init_feeds {
                    step = step.feed(output, value);
                }
                step.run()?;
                if let Some(init) = &scaffold.init_fn {
                    init(&session)?;
                }
                // After the loss of a task, this means that training starts over.
                match &source.checkpoint_dir {
                    Some(directory) => {
                        tracing::info!(directory, "The model was initialized: there is no checkpoint.");
                    }
                    None => tracing::info!("The model was initialized."),
                }
            }
        }
        if let Some(missing) = self.run_local_init(&session)? {
            bail!(FailedPrecondition, "Init operations did not make model ready for local_init: {missing}");
        }
        if let Some(missing) = self.missing(&session, &self.scaffold.ready_op)? {
            bail!(FailedPrecondition, "Init operations did not make model ready: {missing}");
        }
        Ok(session)
    }

    fn find_checkpoint(&self, source: &Source) -> Result<Option<String>> {
        match (&source.checkpoint, &source.checkpoint_dir) {
            (Some(path), _) => Ok(Some(path.clone())),
            (None, Some(directory)) => latest_checkpoint(directory),
            (None, None) => Ok(None),
        }
    }

    /// Opens the session of another worker, after the chief has made the model ready. Logs regularly what is missing.
    pub(super) fn wait_for_session(&self, target: &Target) -> Result<Session> {
        let (mut waiting, mut pause) = (LoggedWait::new(), PAUSES.0);
        let mut session: Option<Session> = None;
        loop {
            let left = self.max_wait.saturating_sub(waiting.elapsed());
            let current = match session.take() {
                Some(session) => session,
                None => self.open(target, left)?,
            };
            let why = match self.try_ready(&current) {
                Ok(None) => return Ok(current),
                Ok(Some(missing)) => {
                    session = Some(current);
                    missing
                }
                // The session's tasks have changed; a new session finds those that are up now.
                Err(error) if is_lost(&error) => error.message().to_owned(),
                Err(error) => return Err(error),
            };
            ensure!(
                waiting.elapsed() + pause <= self.max_wait,
                DeadlineExceeded,
                "Session was not ready after waiting {} secs: {why}; is the chief running?",
                self.max_wait.as_secs()
            );
            waiting.log(format_args!("the chief to make the model at {} ready", &**target), why);
            pause_for(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Returns what is missing before this task can go on; `None` if nothing is.
    fn try_ready(&self, session: &Session) -> Result<Option<String>> {
        match self.run_local_init(session)? {
            Some(missing) => Ok(Some(missing)),
            None => self.missing(session, &self.scaffold.ready_op),
        }
    }

    /// Initializes the local variables of this task, once the model allows it; otherwise returns what is missing.
    fn run_local_init(&self, session: &Session) -> Result<Option<String>> {
        if let Some(missing) = self.missing(session, &self.scaffold.ready_for_local_init_op)? {
            return Ok(Some(missing));
        }
        session.execute(&self.scaffold.local_init_op)?;
        Ok(None)
    }

    fn missing(&self, session: &Session, ready: &Output) -> Result<Option<String>> {
        let value = match session.eval(ready) {
            Ok(value) => value,
            Err(error) if error.code() == Code::FailedPrecondition => {
                return Ok(Some(error.message().to_owned()));
            }
            Err(error) => return Err(error),
        };
        let names: Vec<String> =
            value.flat::<Bytes>()?.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        Ok((!names.is_empty()).then(|| format!("Variables not initialized: {}", names.join(", "))))
    }
}

/// Returns `true` if a failure means that tasks were lost or restarted, so that another session may succeed.
pub(crate) fn is_lost(error: &Status) -> bool {
    matches!(error.code(), Code::Aborted | Code::Unavailable)
}

/// Blocks the thread for some time.
pub(super) fn pause_for(length: Duration) {
    let (never, told) = (Mutex::new(()), Condvar::new());
    let guard = never.lock().unwrap_or_else(PoisonError::into_inner);
    drop(told.wait_timeout(guard, length));
}

impl Saver {
    /// Returns the latest checkpoint of a directory.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none; [`latest_checkpoint`] returns `None` instead.
    pub fn latest(directory: &str) -> Result<String> {
        let none = || status!(NotFound, "{directory} does not have a checkpoint; train a model there first");
        latest_checkpoint(directory)?.ok_or_else(none)
    }
}
