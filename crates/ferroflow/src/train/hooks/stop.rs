//! Hooks that decide when a task begins and ends training.

use super::super::session_manager::pause_for;
use super::{RunArgs, RunContext, RunValues, SessionHook, needed_global_step, read_step, step_number};
use crate::session::Session;
use ferroflow_cluster::logged_wait::LoggedWait;
use ferroflow_core::scope::{Graph, Output};
use ferroflow_core::{Result, status};
use std::time::Duration;

/// Hook that ends training at a global step.
///
/// ```
/// use ferroflow::train::{MonitoredTrainingSession, StopAtStep};
/// # use ferroflow::{Graph, global_step};
/// # let graph = Graph::new();
/// # let s = graph.scope();
/// # let step = global_step(&s)?;
/// # let train = step.assign_add(&s, 1)?;
///
/// let mut session = MonitoredTrainingSession::new(&graph).hook(StopAtStep::last(5)).build()?;
/// let mut steps = 0;
/// while !session.should_stop() {
///     session.execute(&train)?;
///     steps += 1;
/// }
/// assert_eq!(steps, 5);
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Debug)]
pub struct StopAtStep {
    last: Option<i64>,
    more: i64,
    step: Option<Output>,
}

impl StopAtStep {
    /// Ends when the global step reaches `last`.
    pub fn last(last: i64) -> StopAtStep {
        StopAtStep { last: Some(last), more: 0, step: None }
    }

    /// Ends `steps` global steps after the start of the program.
    pub fn after(steps: i64) -> StopAtStep {
        StopAtStep { last: None, more: steps, step: None }
    }

    fn step(&self) -> Result<&Output> {
        self.step.as_ref().ok_or_else(|| status!(Internal, "a hook was used before SessionHook::begin"))
    }
}

impl SessionHook for StopAtStep {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(needed_global_step(graph, "StopAtStep")?.value().clone());
        Ok(())
    }

    fn after_create_session(&mut self, session: &Session) -> Result<()> {
        if self.last.is_none() {
            self.last = Some(read_step(session, self.step()?)? + self.more);
        }
        Ok(())
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::fetch([self.step()?]))
    }

    fn after_run(&mut self, cx: &RunContext<'_>, values: &RunValues<'_>) -> Result<()> {
        let last = self.last.unwrap_or(i64::MAX);
        // The step was fetched before or after this step's update, so it is read again if it is one before the end.
        let seen = step_number(values.values)?;
        if seen + 1 >= last && (seen >= last || read_step(cx.session(), self.step()?)? >= last) {
            cx.request_stop();
        }
        Ok(())
    }
}

/// Hook that delays a worker until the global step has reached a value, so that workers do not all start from the same
/// values.
///
/// ```
/// use ferroflow::train::WaitForStep;
/// use std::time::Duration;
///
/// // Workers with higher numbers start later.
/// let index = 3.0f64;
/// let hook = WaitForStep::new((100.0 * (index + 1.0).ln()) as i64).at_most(Duration::from_secs(60));
/// # let _ = hook;
/// ```
#[derive(Debug)]
pub struct WaitForStep {
    wait_until: i64,
    limit: Duration,
    step: Option<Output>,
    waited: bool,
}

impl WaitForStep {
    /// Waits until the global step reaches `step`, for up to an hour.
    pub fn new(step: i64) -> WaitForStep {
        WaitForStep { wait_until: step, limit: Duration::from_secs(3600), step: None, waited: false }
    }

    /// Sets the maximum wait, after which the worker starts anyway.
    pub fn at_most(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl SessionHook for WaitForStep {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(needed_global_step(graph, "WaitForStep")?.value().clone());
        Ok(())
    }

    fn before_run(&mut self, cx: &RunContext<'_>) -> Result<RunArgs> {
        let (Some(step), false) = (&self.step, self.waited) else { return Ok(RunArgs::default()) };
        self.waited = true;
        let mut waiting = LoggedWait::new();
        loop {
            let now = read_step(cx.session(), step)?;
            if now >= self.wait_until || waiting.elapsed() >= self.limit {
                return Ok(RunArgs::default());
            }
            let until = self.wait_until;
            waiting.log(
                "the other workers",
                format_args!("the global step is {now}, and this worker begins at {until}"),
            );
            pause_for(Duration::from_millis(100));
        }
    }
}
