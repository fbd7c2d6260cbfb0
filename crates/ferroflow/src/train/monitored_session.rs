//! Training loops: a session that follows the start-up protocol of a cluster, runs hooks around every step, and recovers
//! from lost tasks.

use super::hooks::{
    CheckpointSaver, Every, RunArgs, RunContext, RunValues, SessionHook, StepCounter, SummarySaver,
};
use super::scaffold::{Prepared, Scaffold};
use super::session_manager::{SessionManager, Source, is_lost, pause_for};
use crate::session::{RunOptions, Session, SessionOptions};
use crate::summary::SummaryWriter;
use crate::target::Target;
use ferroflow_core::scope::{Graph, Operation, Output};
use ferroflow_core::{Code, Result, Status, Tensor, bail, ensure};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause before another attempt to open a session.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Builder of a [`MonitoredSession`], with the defaults of TensorFlow's function of this name.
///
/// ```
/// use ferroflow::train::{MonitoredTrainingSession, StopAtStep};
/// use ferroflow::variables::global_step;
/// use ferroflow::Graph;
///
/// let graph = Graph::new();
/// let s = graph.scope();
/// let step = global_step(&s)?;
/// let train = step.assign_add(&s, 1)?;
/// let mut session = MonitoredTrainingSession::new(&graph).hook(StopAtStep::last(10)).build()?;
/// while !session.should_stop() {
///     session.execute(&train)?;
/// }
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct MonitoredTrainingSession {
    graph: Graph,
    target: Target,
    chief: bool,
    scaffold: Scaffold,
    hooks: Vec<Box<dyn SessionHook>>,
    chief_only_hooks: Vec<Box<dyn SessionHook>>,
    checkpoint_dir: Option<PathBuf>,
    save_checkpoint: Option<Every>,
    save_summaries: Option<Every>,
    summary_dir: Option<PathBuf>,
    log_step_count: Option<i64>,
    options: SessionOptions,
    max_wait: Duration,
}

impl MonitoredTrainingSession {
    /// Describes a session of the chief of a cluster of one task, without checkpoints.
    pub fn new(graph: &Graph) -> MonitoredTrainingSession {
        MonitoredTrainingSession {
            graph: graph.clone(),
            target: Target::from(""),
            chief: true,
            scaffold: Scaffold::new(),
            hooks: Vec::new(),
            chief_only_hooks: Vec::new(),
            checkpoint_dir: None,
            save_checkpoint: Some(Every::Time(Duration::from_secs(600))),
            save_summaries: Some(Every::Steps(100)),
            summary_dir: None,
            log_step_count: Some(100),
            options: SessionOptions::new(),
            max_wait: Duration::from_secs(7200),
        }
    }

    /// Sets the server to open sessions on, usually this task's own; an in-process cluster by default.
    pub fn target(mut self, target: impl Into<Target>) -> Self {
        self.target = target.into();
        self
    }

    /// Sets whether this task is the chief, which initializes or restores the model and writes checkpoints; the other tasks
    /// wait for it. `true` by default.
    pub fn chief(mut self, chief: bool) -> Self {
        self.chief = chief;
        self
    }

    /// Sets how the model is initialized and saved.
    pub fn scaffold(mut self, scaffold: Scaffold) -> Self {
        self.scaffold = scaffold;
        self
    }

    /// Adds a hook.
    pub fn hook(mut self, hook: impl SessionHook + 'static) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Adds a hook that only the chief runs.
    pub fn chief_only_hook(mut self, hook: impl SessionHook + 'static) -> Self {
        self.chief_only_hooks.push(Box::new(hook));
        self
    }

    /// Sets the directory of checkpoints and event files. The chief restores the latest checkpoint there.
    pub fn checkpoint_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.checkpoint_dir = Some(directory.as_ref().to_owned());
        self
    }

    /// Sets the directory of event files; that of the checkpoints by default.
    pub fn summary_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.summary_dir = Some(directory.as_ref().to_owned());
        self
    }

    /// Sets how often the chief writes checkpoints: every ten minutes by default, `None` for never.
    pub fn save_checkpoint(mut self, every: impl Into<Option<Every>>) -> Self {
        self.save_checkpoint = every.into();
        self
    }

    /// Sets how often the chief writes summaries: every 100 steps by default, `None` for never.
    pub fn save_summaries(mut self, every: impl Into<Option<Every>>) -> Self {
        self.save_summaries = every.into();
        self
    }

    /// Sets how often the chief logs the number of steps per second: every 100 steps by default, `None` for never.
    pub fn log_step_count(mut self, steps: impl Into<Option<i64>>) -> Self {
        self.log_step_count = steps.into();
        self
    }

    /// Sets device filters, timeouts and other options of sessions.
    pub fn options(mut self, options: SessionOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets how long to wait for the cluster and, except on the chief, for the model; two hours by default.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = wait;
        self
    }

    /// Completes the graph, opens the session and waits until the model is ready.
    ///
    /// # Errors
    ///
    /// `DeadlineExceeded` if the cluster or the model is not ready in time; otherwise the error of a hook, of the initializer
    /// or of the checkpoint.
    pub fn build(self) -> Result<MonitoredSession> {
        let graph = self.graph;
        let mut hooks = self.hooks;
        let scaffold = self.scaffold.finalize(&graph)?;
        if self.chief {
            hooks.extend(self.chief_only_hooks);
            let summary_dir = self.summary_dir.as_ref().or(self.checkpoint_dir.as_ref());
            if let Some(directory) = summary_dir {
                let writer = Arc::new(SummaryWriter::create(directory)?);
                if let Some(steps) = self.log_step_count {
                    hooks.push(Box::new(StepCounter::new(Every::Steps(steps), Some(writer.clone()))));
                }
                if let (Some(every), Some(summary)) = (self.save_summaries, &scaffold.summary_op) {
                    hooks.push(Box::new(SummarySaver::new(summary, every, writer.clone())));
                }
                if let (Some(every), Some(directory)) = (self.save_checkpoint, &self.checkpoint_dir) {
                    let saver = CheckpointSaver::new(directory, every, scaffold.saver.clone());
                    hooks.push(Box::new(saver.writer(writer)));
                }
            }
        }
        for hook in &mut hooks {
            hook.begin(&graph)?;
        }
        let checkpoint_dir = self.checkpoint_dir.map(|directory| directory.to_string_lossy().into_owned());
        // Sessions that replace a lost one must find the same variables.
        let target = Target::direct(self.target.client()?);
        let mut session = MonitoredSession {
            graph,
            target,
            chief: self.chief,
            scaffold,
            source: Source { checkpoint_dir, checkpoint: None },
            options: self.options,
            max_wait: self.max_wait,
            hooks,
            session: None,
            stop: Cell::new(false),
            closed: false,
        };
        session.open()?;
        Ok(session)
    }
}

/// A session for training loops. If it is dropped without [`MonitoredSession::close`], hooks do not run at the end.
pub struct MonitoredSession {
    graph: Graph,
    target: Target,
    chief: bool,
    scaffold: Prepared,
    source: Source,
    options: SessionOptions,
    max_wait: Duration,
    hooks: Vec<Box<dyn SessionHook>>,
    /// `None` between the loss of a session and the next one.
    session: Option<Session>,
    stop: Cell<bool>,
    closed: bool,
}

impl MonitoredSession {
    /// Returns `true` if a hook, the program or the end of the input requested the end of training.
    pub fn should_stop(&self) -> bool {
        self.closed || self.stop.get()
    }

    /// Requests that training ends after this step.
    pub fn request_stop(&self) {
        self.stop.set(true);
    }

    /// Returns the underlying session, whose steps do not run hooks.
    ///
    /// # Errors
    ///
    /// `FailedPrecondition` after the session was lost, until the next step.
    pub fn session(&self) -> Result<&Session> {
        match &self.session {
            Some(session) => Ok(session),
            None => bail!(FailedPrecondition, "the session was lost; the next step opens another one"),
        }
    }

    /// Runs an operation, with hooks.
    pub fn execute(&mut self, operation: impl Into<Operation>) -> Result<()> {
        self.run_step(&[], &[], &[&operation.into()]).map(drop)
    }

    /// Computes outputs, with hooks.
    pub fn run(&mut self, feeds: &[(&Output, Tensor)], fetches: &[&Output]) -> Result<Vec<Tensor>> {
        self.run_step(feeds, fetches, &[])
    }

    /// Feeds tensors, computes outputs and runs operations in one step, with hooks. If tasks are lost, the step runs again in
    /// a new session, in which the model was restored from the last checkpoint.
    ///
    /// # Errors
    ///
    /// `OutOfRange` at the end of the input, after which [`MonitoredSession::should_stop`] is `true`; otherwise as
    /// [`Session::run_step`], or the error of a hook.
    pub fn run_step(
        &mut self,
        feeds: &[(&Output, Tensor)],
        fetches: &[&Output],
        targets: &[&Operation],
    ) -> Result<Vec<Tensor>> {
        ensure!(!self.closed, FailedPrecondition, "the session has been closed; build another one");
        loop {
            self.open()?;
            match self.run_once(feeds, fetches, targets) {
                Ok(values) => return Ok(values),
                Err(error) if is_lost(&error) => self.lost(&error),
                Err(error) => {
                    if error.code() == Code::OutOfRange {
                        self.stop.set(true);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Runs `step` until a hook or the end of the input stops training, then closes the session.
    ///
    /// ```no_run
    /// # use ferroflow::train::MonitoredTrainingSession;
    /// # fn train(graph: &ferroflow::Graph, train_op: &ferroflow::Operation) -> ferroflow::Result<()> {
    /// MonitoredTrainingSession::new(graph).build()?.run_loop(|session| session.execute(train_op))
    /// # }
    /// ```
    pub fn run_loop(mut self, mut step: impl FnMut(&mut MonitoredSession) -> Result<()>) -> Result<()> {
        while !self.should_stop() {
            match step(&mut self) {
                // The end of the input is not an error.
                Err(error) if error.code() == Code::OutOfRange => break,
                other => other?,
            }
        }
        self.close()
    }

    /// Runs the hooks' end and closes the session.
    ///
    /// # Errors
    ///
    /// The first error of a hook, or that of closing the session.
    pub fn close(mut self) -> Result<()> {
        self.closed = true;
        let Some(session) = self.session.take() else { return Ok(()) };
        let mut ended = Ok(());
        for hook in &mut self.hooks {
            // Every hook gets its chance; the first failure is returned.
            ended = ended.and(hook.end(&session));
        }
        let closed = session.close();
        match ended {
            Err(error) => Err(error),
            // A server that is gone has closed the session.
            Ok(()) => closed.or_else(|error| if is_lost(&error) { Ok(()) } else { Err(error) }),
        }
    }

    /// Opens a session if there is none; retries while tasks come and go.
    fn open(&mut self) -> Result<()> {
        if self.session.is_some() {
            return Ok(());
        }
        let since = Instant::now();
        loop {
            match self.try_open() {
                Ok(session) => {
                    self.session = Some(session);
                    return Ok(());
                }
                Err(error) if is_lost(&error) && since.elapsed() < self.max_wait => {
                    tracing::warn!(%error, "Tasks were lost while a session was opened; trying again.");
                    pause_for(RETRY_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn try_open(&mut self) -> Result<Session> {
        let manager = SessionManager {
            graph: &self.graph,
            scaffold: &self.scaffold,
            options: self.options.clone(),
            max_wait: self.max_wait,
        };
        let session = if self.chief {
            manager.prepare_session(&self.target, &self.source)?
        } else {
            manager.wait_for_session(&self.target)?
        };
        for hook in &mut self.hooks {
            hook.after_create_session(&session)?;
        }
        Ok(session)
    }

    fn lost(&mut self, error: &Status) {
        tracing::warn!(%error, "Tasks of the session were lost; opening another one.");
        if let Some(session) = self.session.take() {
            // The master may be gone as well.
            let _ = session.close();
        }
    }

    fn run_once(
        &mut self,
        feeds: &[(&Output, Tensor)],
        fetches: &[&Output],
        targets: &[&Operation],
    ) -> Result<Vec<Tensor>> {
        let session = self.session()?.clone();
        let cx = RunContext { session: &session, stop: &self.stop };
        let mut step = session.step();
        for (output, value) in feeds {
            step = step.feed(output, value);
        }
        for output in fetches {
            step = step.fetch(output);
        }
        for operation in targets {
            step = step.target(*operation);
        }
        let (mut counts, mut trace) = (Vec::with_capacity(self.hooks.len()), false);
        for hook in &mut self.hooks {
            let RunArgs { fetches, feeds, trace: traced } = hook.before_run(&cx)?;
            counts.push(fetches.len());
            trace |= traced;
            for output in &fetches {
                step = step.fetch(output);
            }
            for (output, value) in feeds {
                step = step.feed(&output, value);
            }
        }
        let done = step.options(RunOptions::new().trace(trace)).run()?;
        let (own, mut rest) = done.values.split_at(fetches.len());
        for (hook, count) in self.hooks.iter_mut().zip(counts) {
            let (values, after) = rest.split_at(count);
            rest = after;
            hook.after_run(&cx, &RunValues { values, metadata: &done.metadata })?;
        }
        Ok(own.to_vec())
    }
}
