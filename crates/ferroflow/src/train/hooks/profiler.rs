//! A hook that traces steps, for trace viewers.

use super::{Every, RunArgs, RunContext, RunValues, SessionHook, Timer, needed_global_step, step_number};
use ferroflow_core::scope::{Graph, Output};
use ferroflow_core::{Result, status};
use ferroflow_io::file;
use ferroflow_io::path::resolve_path;
use ferroflow_proto::tensorflow::StepStats;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Hook that writes `timeline-<step>.json` at regular intervals: when each node ran, on each device.
///
/// ```
/// use ferroflow::train::{Every, MonitoredTrainingSession, Profiler, StopAtStep};
/// # use ferroflow::{Graph, global_step};
/// # let directory = std::env::temp_dir().join(format!("profiler-{}", std::process::id()));
/// # let graph = Graph::new();
/// # let s = graph.scope();
/// # let step = global_step(&s)?;
/// # let train = step.assign_add(&s, 1)?;
///
/// let session = MonitoredTrainingSession::new(&graph)
///     .hook(Profiler::new(&directory, Every::Steps(3)))
///     .hook(StopAtStep::last(8))
///     .build()?;
/// session.run_loop(|session| session.execute(&train))?;
/// // Open `timeline-4.json` in chrome://tracing or ui.perfetto.dev.
/// assert!(directory.join("timeline-4.json").exists());
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct Profiler {
    directory: PathBuf,
    every: Timer,
    step: Option<Output>,
    next: Option<i64>,
    due: bool,
}

impl Profiler {
    /// Writes timelines to a directory.
    pub fn new(directory: impl AsRef<Path>, every: Every) -> Profiler {
        let directory = directory.as_ref().to_owned();
        Profiler { directory, every: Timer::new(every), step: None, next: None, due: false }
    }
}

impl SessionHook for Profiler {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(needed_global_step(graph, "Profiler")?.value().clone());
        self.directory = resolve_path(&self.directory)?;
        file::create_directories(&self.directory).map_err(|error| {
            status!(Internal, "cannot create the directory {}: {}", self.directory.display(), error.message())
        })
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        self.due = self.next.is_some_and(|next| self.every.is_due(next));
        Ok(RunArgs { trace: self.due, ..RunArgs::fetch(&self.step) })
    }

    fn after_run(&mut self, _: &RunContext<'_>, values: &RunValues<'_>) -> Result<()> {
        let step = step_number(values.values)? + 1;
        if self.next.is_none() {
            // The first step is not typical: it includes one-time costs.
            self.every.happened(step);
        }
        if self.due {
            self.every.happened(step);
            let path = self.directory.join(format!("timeline-{step}.json"));
            let stats = values.metadata.step_stats.clone().unwrap_or_default();
            let written = file::write(&path, timeline(&stats).to_string().as_bytes());
            written
                .map_err(|error| status!(Internal, "cannot write {}: {}", path.display(), error.message()))?;
            tracing::info!(path = %path.display(), "A timeline was written.");
        }
        self.next = Some(step + 1);
        Ok(())
    }
}

/// Converts step statistics to the trace event format of Chrome and Perfetto.
fn timeline(stats: &StepStats) -> Value {
    let mut events = Vec::new();
    for (process, device) in stats.dev_stats.iter().enumerate() {
        events.push(
            json!({"name": "process_name", "ph": "M", "pid": process, "args": {"name": device.device}}),
        );
        for node in &device.node_stats {
            let op = node.timeline_label.split(" = ").nth(1).and_then(|text| text.split('(').next());
            events.push(json!({
                "name": op.unwrap_or(&node.node_name),
                "cat": "Op",
                "ph": "X",
                "pid": process,
                "tid": node.thread_id,
                "ts": node.all_start_micros,
                "dur": node.all_end_rel_micros.max(1),
                "args": {"name": node.node_name, "label": node.timeline_label},
            }));
        }
    }
    json!({"traceEvents": events})
}
