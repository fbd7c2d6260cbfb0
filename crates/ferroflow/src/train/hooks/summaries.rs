//! Hooks that write event files.

use super::{
    Every, RunArgs, RunContext, RunValues, SessionHook, Timer, needed_global_step, read_step, step_number,
};
use crate::session::Session;
use crate::summary::{SessionEvent, SummaryWriter};
use ferroflow_core::scope::{Graph, Output};
use ferroflow_core::{Result, status};
use std::sync::Arc;

/// Hook that measures global steps per second.
///
/// ```
/// use ferroflow::train::{Every, MonitoredTrainingSession, StepCounter, StopAtStep};
/// # use ferroflow::{Graph, global_step};
/// # let graph = Graph::new();
/// # let s = graph.scope();
/// # let step = global_step(&s)?;
/// # let train = step.assign_add(&s, 1)?;
///
/// let rate = StepCounter::new(Every::Steps(10), None).sink(|step, rate| println!("{step}: {rate:.1} steps/s"));
/// let session = MonitoredTrainingSession::new(&graph).hook(rate).hook(StopAtStep::last(30)).build()?;
/// session.run_loop(|session| session.execute(&train))?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct StepCounter {
    every: Timer,
    writer: Option<Arc<SummaryWriter>>,
    step: Option<Output>,
    rate: Box<dyn FnMut(i64, f64) + Send>,
}

impl StepCounter {
    /// Logs the rate, and writes it to an event file if there is one.
    pub fn new(every: Every, writer: Option<Arc<SummaryWriter>>) -> StepCounter {
        let rate = |step, rate| tracing::info!(step, "global_step/sec: {rate:.5}");
        StepCounter { every: Timer::new(every), writer, step: None, rate: Box::new(rate) }
    }

    /// Sends the global step and the rate to `sink` instead of the log.
    pub fn sink(mut self, sink: impl FnMut(i64, f64) + Send + 'static) -> Self {
        self.rate = Box::new(sink);
        self
    }
}

impl SessionHook for StepCounter {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(needed_global_step(graph, "StepCounter")?.value().clone());
        Ok(())
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::fetch(&self.step))
    }

    fn after_run(&mut self, cx: &RunContext<'_>, values: &RunValues<'_>) -> Result<()> {
        let seen = step_number(values.values)?;
        let Some(output) = self.step.as_ref().filter(|_| self.every.is_due(seen + 1)) else { return Ok(()) };
        let step = read_step(cx.session(), output)?;
        if !self.every.is_due(step) {
            return Ok(());
        }
        if let Some((elapsed, steps)) = self.every.happened(step)
            && !elapsed.is_zero()
        {
            let rate = steps as f64 / elapsed.as_secs_f64();
            (self.rate)(step, rate);
            if let Some(writer) = &self.writer {
                writer.scalar("global_step/sec", rate as f32, step)?;
            }
        }
        Ok(())
    }
}

/// Hook that writes summaries at regular intervals.
///
/// ```
/// use ferroflow::summary::{self, SummaryWriter};
/// use ferroflow::train::{Every, MonitoredTrainingSession, StopAtStep, SummarySaver};
/// use std::sync::Arc;
/// # use ferroflow::{DType, Graph, global_step, ops};
/// # let directory = std::env::temp_dir().join(format!("summary-saver-{}", std::process::id()));
/// # let graph = Graph::new();
/// # let s = graph.scope();
/// # let step = global_step(&s)?;
/// # let train = step.assign_add(&s, 1)?;
///
/// let progress = ops::cast(&s, step.value(), DType::Float)?;
/// let progress = summary::scalar(&s, "progress", &progress)?;
/// let writer = Arc::new(SummaryWriter::create(&directory)?);
/// let session = MonitoredTrainingSession::new(&graph)
///     .hook(SummarySaver::new(&progress, Every::Steps(10), writer))
///     .hook(StopAtStep::last(30))
///     .build()?;
/// session.run_loop(|session| session.execute(&train))?;
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct SummarySaver {
    summary: Output,
    every: Timer,
    writer: Arc<SummaryWriter>,
    step: Option<Output>,
    next: Option<i64>,
    due: bool,
}

impl SummarySaver {
    /// Writes the result of a summary op.
    pub fn new(summary: &Output, every: Every, writer: Arc<SummaryWriter>) -> SummarySaver {
        let every = Timer::new(every);
        SummarySaver { summary: summary.clone(), every, writer, step: None, next: None, due: false }
    }
}

impl SessionHook for SummarySaver {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(needed_global_step(graph, "SummarySaver")?.value().clone());
        self.next = None;
        Ok(())
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        let step = self.step.as_ref();
        let step = step.ok_or_else(|| status!(Internal, "a hook was used before SessionHook::begin"))?;
        self.due = self.next.is_none_or(|next| self.every.is_due(next));
        Ok(if self.due { RunArgs::fetch([step, &self.summary]) } else { RunArgs::fetch([step]) })
    }

    fn after_run(&mut self, cx: &RunContext<'_>, values: &RunValues<'_>) -> Result<()> {
        let mut step = step_number(values.values)? + 1;
        if let Some(output) = self.step.as_ref().filter(|_| self.next.is_none() || self.due) {
            step = read_step(cx.session(), output)?;
        }
        if self.next.is_none() {
            self.writer.session(SessionEvent::Start, step)?;
        }
        if self.due {
            self.every.happened(step);
            if let Some(summary) = values.values.get(1) {
                self.writer.serialized(summary, step)?;
            }
        }
        self.next = Some(step + 1);
        Ok(())
    }

    fn end(&mut self, _: &Session) -> Result<()> {
        self.writer.flush()
    }
}
