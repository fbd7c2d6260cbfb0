//! Hooks: code that runs before and after the steps of a training program.

mod checkpoint;
mod observe;
mod profiler;
mod stop;
mod summaries;
mod sync_replicas;

pub use checkpoint::CheckpointSaver;
pub use observe::{FeedHook, FinalOps, FinalValues, LogTensors, NanGuard};
pub use profiler::Profiler;
pub use stop::{StopAtStep, WaitForStep};
pub use summaries::{StepCounter, SummarySaver};
pub use sync_replicas::SyncReplicasHook;

use crate::session::Session;
use crate::variables::{Variable, find_global_step};
use ferroflow_core::scope::{Graph, Output};
use ferroflow_core::{Result, Tensor, status};
use ferroflow_proto::tensorflow::RunMetadata;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Code that takes part in every step of a [`super::MonitoredSession`]. Methods do nothing by default.
///
/// ```
/// use ferroflow::Result;
/// use ferroflow::train::{RunContext, RunValues, SessionHook};
///
/// /// Stops after a number of steps of this program, whatever the global step is.
/// struct StopAfter(u32);
///
/// impl SessionHook for StopAfter {
///     fn after_run(&mut self, cx: &RunContext<'_>, _: &RunValues<'_>) -> Result<()> {
///         self.0 -= 1;
///         if self.0 == 0 {
///             cx.request_stop();
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait SessionHook: Send {
    /// Runs before the session is opened; may add nodes.
    fn begin(&mut self, _graph: &Graph) -> Result<()> {
        Ok(())
    }

    /// Runs after a session was opened: the first one, or one that replaces a session whose tasks were lost.
    fn after_create_session(&mut self, _session: &Session) -> Result<()> {
        Ok(())
    }

    /// Runs before a step, and returns additional fetches and feeds for it.
    fn before_run(&mut self, _cx: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::default())
    }

    /// Runs after a step that succeeded.
    fn after_run(&mut self, _cx: &RunContext<'_>, _values: &RunValues<'_>) -> Result<()> {
        Ok(())
    }

    /// Runs at the end of a program that did not fail.
    fn end(&mut self, _session: &Session) -> Result<()> {
        Ok(())
    }
}

/// Additions of a hook to a step.
#[derive(Clone, Debug, Default)]
pub struct RunArgs {
    /// Outputs whose values the hook gets after the step.
    pub fetches: Vec<Output>,
    /// Outputs to feed, with their values.
    pub feeds: Vec<(Output, Tensor)>,
    /// Requests a trace of the step.
    pub trace: bool,
}

impl RunArgs {
    /// Fetches these outputs.
    pub fn fetch<'a>(outputs: impl IntoIterator<Item = &'a Output>) -> RunArgs {
        RunArgs { fetches: outputs.into_iter().cloned().collect(), ..RunArgs::default() }
    }
}

/// Context of the step that hooks take part in.
pub struct RunContext<'a> {
    pub(super) session: &'a Session,
    pub(super) stop: &'a Cell<bool>,
}

impl RunContext<'_> {
    /// Returns the underlying session, whose steps do not run hooks.
    pub fn session(&self) -> &Session {
        self.session
    }

    /// Requests that training ends after this step.
    pub fn request_stop(&self) {
        self.stop.set(true);
    }
}

/// Results of a step for a hook.
pub struct RunValues<'a> {
    /// Values of the hook's fetches.
    pub values: &'a [Tensor],
    /// Trace of the step, if any hook requested it.
    pub metadata: &'a RunMetadata,
}

/// Interval between two events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Every {
    /// A number of global steps.
    Steps(i64),
    /// An amount of time.
    Time(Duration),
}

/// Timer of a regular event.
#[derive(Debug)]
pub(super) struct Timer {
    every: Every,
    last: Option<(i64, Instant)>,
}

impl Timer {
    pub(super) fn new(every: Every) -> Timer {
        Timer { every, last: None }
    }

    /// Returns `true` if the event is due, which it is the first time.
    pub(super) fn is_due(&self, step: i64) -> bool {
        match (self.every, self.last) {
            (_, None) => true,
            (_, Some((last, _))) if step == last => false,
            (Every::Steps(steps), Some((last, _))) => step >= last + steps,
            (Every::Time(interval), Some((_, at))) => at.elapsed() >= interval,
        }
    }

    /// Records that the event happened; returns the time and the steps since the last time.
    pub(super) fn happened(&mut self, step: i64) -> Option<(Duration, i64)> {
        let before = self.last.replace((step, Instant::now()));
        before.map(|(last, at)| (at.elapsed(), step - last))
    }

    pub(super) fn last_step(&self) -> Option<i64> {
        self.last.map(|(step, _)| step)
    }

    pub(super) fn reset(&mut self) {
        self.last = None;
    }
}

/// Returns the global step, for a hook that requires it.
pub(super) fn needed_global_step(graph: &Graph, hook: &str) -> Result<Variable> {
    find_global_step(graph)?.ok_or_else(|| {
        status!(
            InvalidArgument,
            "Global step should be created to use {hook}: call variables::global_step and let the optimizer count"
        )
    })
}

/// Returns the global step that was fetched.
pub(super) fn step_number(values: &[Tensor]) -> Result<i64> {
    let value = values.first().ok_or_else(|| status!(Internal, "the step did not fetch the global step"))?;
    let number = value.to_i64s()?.first().copied();
    number.ok_or_else(|| status!(InvalidArgument, "the global step has no elements; it must be a scalar"))
}

/// Reads the current global step.
pub(super) fn read_step(session: &Session, step: &Output) -> Result<i64> {
    step_number(&session.run(&[], &[step])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_count_steps_from_the_last_time() {
        let mut timer = Timer::new(Every::Steps(10));
        assert!(timer.is_due(3));
        assert_eq!(timer.happened(3), None);
        assert!(!timer.is_due(3) && !timer.is_due(12) && timer.is_due(13));
        assert_eq!(timer.happened(14).map(|(_, steps)| steps), Some(11));
        assert_eq!(timer.last_step(), Some(14));
    }
}
