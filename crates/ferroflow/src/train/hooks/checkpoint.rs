//! A hook that writes checkpoints.

use super::super::saver::Saver;
use super::{
    Every, RunArgs, RunContext, RunValues, SessionHook, Timer, needed_global_step, read_step, step_number,
};
use crate::session::Session;
use crate::summary::{SessionEvent, SummaryWriter};
use ferroflow_core::scope::{Graph, Output};
use ferroflow_core::{Result, status};
use ferroflow_io::file;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Hook that writes a checkpoint at the start of training, at regular intervals, and at the end.
///
/// ```
/// use ferroflow::train::{CheckpointSaver, Every, MonitoredTrainingSession, Saver, StopAtStep, latest_checkpoint};
/// use std::sync::Arc;
/// # use ferroflow::{Graph, global_step};
/// # let directory = std::env::temp_dir().join(format!("checkpoint-saver-{}", std::process::id()));
/// # let graph = Graph::new();
/// # let s = graph.scope();
/// # let step = global_step(&s)?;
/// # let train = step.assign_add(&s, 1)?;
///
/// // Every fifth step; only the two latest are kept.
/// let saver = Arc::new(Saver::builder().max_to_keep(2).build(&graph)?);
/// let session = MonitoredTrainingSession::new(&graph)
///     .chief_only_hook(CheckpointSaver::new(&directory, Every::Steps(5), saver.clone()))
///     .hook(StopAtStep::last(12))
///     .build()?;
/// session.run_loop(|session| session.execute(&train))?;
/// assert!(latest_checkpoint(&directory)?.unwrap().ends_with("model.ckpt-12"));
/// assert_eq!(saver.last_checkpoints().len(), 2);
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct CheckpointSaver {
    directory: PathBuf,
    name: String,
    every: Timer,
    saver: Arc<Saver>,
    writer: Option<Arc<SummaryWriter>>,
    step: Option<Output>,
}

impl CheckpointSaver {
    /// Writes `model.ckpt-<step>` to a directory.
    pub fn new(directory: impl AsRef<Path>, every: Every, saver: Arc<Saver>) -> CheckpointSaver {
        CheckpointSaver {
            directory: directory.as_ref().to_owned(),
            name: "model.ckpt".to_owned(),
            every: Timer::new(every),
            saver,
            writer: None,
            step: None,
        }
    }

    /// Sets the name of the files; `model.ckpt` by default.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// Sets an event file that also records checkpoints.
    pub fn writer(mut self, writer: Arc<SummaryWriter>) -> Self {
        self.writer = Some(writer);
        self
    }

    fn step(&self) -> Result<&Output> {
        self.step.as_ref().ok_or_else(|| status!(Internal, "a hook was used before SessionHook::begin"))
    }

    fn save(&mut self, session: &Session, step: i64) -> Result<()> {
        let path = self.saver.save(session, self.directory.join(&self.name), Some(step))?;
        tracing::info!(step, path, "A checkpoint was written.");
        if let Some(writer) = &self.writer {
            writer.session(SessionEvent::Checkpoint(path), step)?;
        }
        self.every.happened(step);
        Ok(())
    }
}

impl SessionHook for CheckpointSaver {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(needed_global_step(graph, "CheckpointSaver")?.value().clone());
        file::create_directories(&self.directory).map_err(|error| {
            status!(Internal, "cannot create the directory {}: {}", self.directory.display(), error.message())
        })
    }

    fn after_create_session(&mut self, session: &Session) -> Result<()> {
        if let Some(writer) = &self.writer {
            writer.graph(&session.graph().to_graph_def(), 0)?;
        }
        let step = read_step(session, self.step()?)?;
        self.save(session, step)
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::fetch([self.step()?]))
    }

    fn after_run(&mut self, cx: &RunContext<'_>, values: &RunValues<'_>) -> Result<()> {
        // The fetched step may be one behind.
        if self.every.is_due(step_number(values.values)? + 1) {
            let step = read_step(cx.session(), self.step()?)?;
            if self.every.is_due(step) {
                return self.save(cx.session(), step);
            }
        }
        Ok(())
    }

    fn end(&mut self, session: &Session) -> Result<()> {
        let step = read_step(session, self.step()?)?;
        if self.every.last_step() != Some(step) {
            self.save(session, step)?;
        }
        Ok(())
    }
}
