//! Hooks that look at values: log them, stop at NaN, feed and compute others.

use super::{Every, RunArgs, RunContext, RunValues, SessionHook, Timer};
use crate::session::Session;
use ferroflow_core::scope::Output;
use ferroflow_core::{DType, Result, Tensor, bail, ensure};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Hook that logs values at regular intervals.
///
/// ```
/// use ferroflow::train::{Every, LogTensors, MonitoredTrainingSession, StopAtStep};
/// # use ferroflow::{Graph, global_step};
/// # let graph = Graph::new();
/// # let s = graph.scope();
/// # let step = global_step(&s)?;
/// # let train = step.assign_add(&s, 1)?;
///
/// let progress = LogTensors::new([("step", step.value())], Every::Steps(10)).sink(|line| println!("{line}"));
/// let session = MonitoredTrainingSession::new(&graph).hook(progress).hook(StopAtStep::last(30)).build()?;
/// session.run_loop(|session| session.execute(&train))?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct LogTensors {
    tensors: Vec<(String, Output)>,
    every: Option<Timer>,
    at_end: bool,
    count: i64,
    due: bool,
    sink: Box<dyn FnMut(&str) + Send>,
}

impl LogTensors {
    /// Logs these outputs under their names. Steps are counted from the start of the program.
    pub fn new<'a>(tensors: impl IntoIterator<Item = (&'a str, &'a Output)>, every: Every) -> LogTensors {
        let tensors = tensors.into_iter().map(|(name, output)| (name.to_owned(), output.clone()));
        LogTensors {
            tensors: tensors.collect(),
            every: Some(Timer::new(every)),
            at_end: false,
            count: 0,
            due: false,
            sink: Box::new(|line| tracing::info!("{line}")),
        }
    }

    /// Logs at the end, too.
    pub fn at_end(mut self) -> Self {
        self.at_end = true;
        self
    }

    /// Sends the lines to `sink` instead of the log.
    pub fn sink(mut self, sink: impl FnMut(&str) + Send + 'static) -> Self {
        self.sink = Box::new(sink);
        self
    }

    fn log(&mut self, values: &[Tensor]) {
        let mut line = String::new();
        for ((name, _), value) in self.tensors.iter().zip(values) {
            let separator = if line.is_empty() { "" } else { ", " };
            let _ = write!(line, "{separator}{name} = {}", brief(value));
        }
        if let Some((elapsed, _)) = self.every.as_mut().and_then(|every| every.happened(self.count)) {
            let _ = write!(line, " ({:.3} sec)", elapsed.as_secs_f64());
        }
        (self.sink)(&line);
    }
}

impl SessionHook for LogTensors {
    fn after_create_session(&mut self, _: &Session) -> Result<()> {
        self.count = 0;
        self.every.iter_mut().for_each(Timer::reset);
        Ok(())
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        self.due = self.every.as_ref().is_some_and(|every| every.is_due(self.count));
        Ok(if self.due {
            RunArgs::fetch(self.tensors.iter().map(|(_, output)| output))
        } else {
            RunArgs::default()
        })
    }

    fn after_run(&mut self, _: &RunContext<'_>, values: &RunValues<'_>) -> Result<()> {
        if self.due {
            self.log(values.values);
        }
        self.count += 1;
        Ok(())
    }

    fn end(&mut self, session: &Session) -> Result<()> {
        if self.at_end {
            let fetches: Vec<&Output> = self.tensors.iter().map(|(_, output)| output).collect();
            let values = session.run(&[], &fetches)?;
            self.log(&values);
        }
        Ok(())
    }
}

/// Formats a value in a few characters.
fn brief(value: &Tensor) -> String {
    const SHOWN: usize = 6;
    fn join<T: std::fmt::Display>(values: &[T], rank: usize) -> String {
        let shown: Vec<String> = values.iter().take(SHOWN).map(T::to_string).collect();
        let more = if values.len() > SHOWN { " ..." } else { "" };
        match rank {
            0 => shown.concat(),
            _ => format!("[{}{more}]", shown.join(" ")),
        }
    }
    let rank = value.rank();
    let text = match value.dtype() {
        DType::Float => value.flat::<f32>().map(|values| join(values, rank)),
        DType::Double => value.flat::<f64>().map(|values| join(values, rank)),
        DType::Bool => value.flat::<bool>().map(|values| join(values, rank)),
        DType::String => value.flat::<bytes::Bytes>().map(|values| {
            let texts: Vec<String> =
                values.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
            join(&texts, rank)
        }),
        _ => value.to_i64s().map(|values| join(&values, rank)),
    };
    text.unwrap_or_else(|_| format!("a {} of shape {}", value.dtype(), value.shape()))
}

/// Hook that stops training when the loss is NaN.
///
/// ```
/// use ferroflow::train::{MonitoredTrainingSession, NanGuard};
/// use ferroflow::{Graph, ops};
///
/// let graph = Graph::new();
/// let s = graph.scope();
/// let loss = ops::log(&s, s.constant(-1.0f32))?;
/// let mut session = MonitoredTrainingSession::new(&graph).hook(NanGuard::new(&loss)).build()?;
/// let error = session.run(&[], &[&loss]).unwrap_err();
/// assert!(error.message().contains("NaN loss during training"));
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Debug)]
pub struct NanGuard {
    loss: Output,
    fail: bool,
}

impl NanGuard {
    /// Fails with `InvalidArgument` if the loss is NaN.
    pub fn new(loss: &Output) -> NanGuard {
        NanGuard { loss: loss.clone(), fail: true }
    }

    /// Stops training without an error.
    pub fn stop_only(mut self) -> Self {
        self.fail = false;
        self
    }
}

impl SessionHook for NanGuard {
    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::fetch([&self.loss]))
    }

    fn after_run(&mut self, cx: &RunContext<'_>, values: &RunValues<'_>) -> Result<()> {
        let Some(loss) = values.values.first() else { return Ok(()) };
        let is_nan = match loss.dtype() {
            DType::Double => loss.flat::<f64>()?.iter().any(|value| value.is_nan()),
            DType::Float => loss.flat::<f32>()?.iter().any(|value| value.is_nan()),
            other => bail!(
                InvalidArgument,
                "NanGuard watches '{}', which is {other}; it must be float or double",
                self.loss.name()
            ),
        };
        if is_nan {
            ensure!(
                !self.fail,
                InvalidArgument,
                "NaN loss during training: '{}' is NaN; lower the learning rate or clip gradients",
                self.loss.name()
            );
            tracing::error!(loss = self.loss.name(), "Model diverged with loss = NaN.");
            cx.request_stop();
        }
        Ok(())
    }
}

/// Values that become known at the end of a program. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct FinalValues(Arc<Mutex<Vec<Tensor>>>);

impl FinalValues {
    /// Returns the values; empty before the end.
    pub fn get(&self) -> Vec<Tensor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Hook that computes outputs at the end of training.
///
/// ```
/// use ferroflow::train::{FinalOps, MonitoredTrainingSession, StopAtStep};
/// # use ferroflow::{Graph, global_step};
/// # let graph = Graph::new();
/// # let s = graph.scope();
/// # let step = global_step(&s)?;
/// # let train = step.assign_add(&s, 1)?;
///
/// let last = FinalOps::new([step.value()]);
/// let values = last.values();
/// let session = MonitoredTrainingSession::new(&graph).hook(last).hook(StopAtStep::last(3)).build()?;
/// session.run_loop(|session| session.execute(&train))?;
/// assert_eq!(values.get()[0].to_scalar::<i64>()?, 3);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Debug)]
pub struct FinalOps {
    fetches: Vec<Output>,
    feeds: Vec<(Output, Tensor)>,
    values: FinalValues,
}

impl FinalOps {
    /// Computes these outputs; [`FinalOps::values`] returns the place of the results.
    pub fn new<'a>(fetches: impl IntoIterator<Item = &'a Output>) -> FinalOps {
        FinalOps {
            fetches: fetches.into_iter().cloned().collect(),
            feeds: Vec::new(),
            values: FinalValues::default(),
        }
    }

    /// Feeds a value for the computation.
    pub fn feed(mut self, output: &Output, value: impl Into<Tensor>) -> Self {
        self.feeds.push((output.clone(), value.into()));
        self
    }

    /// Returns a handle to the values, which are there after the end.
    pub fn values(&self) -> FinalValues {
        self.values.clone()
    }
}

impl SessionHook for FinalOps {
    fn end(&mut self, session: &Session) -> Result<()> {
        let feeds: Vec<(&Output, Tensor)> =
            self.feeds.iter().map(|(output, value)| (output, value.clone())).collect();
        let values = session.run(&feeds, &self.fetches.iter().collect::<Vec<_>>())?;
        *self.values.0.lock().unwrap_or_else(PoisonError::into_inner) = values;
        Ok(())
    }
}

/// Hook that feeds every step from a function.
///
/// ```
/// use ferroflow::train::{FeedHook, MonitoredTrainingSession};
/// use ferroflow::{DType, Graph, Tensor, ops};
///
/// let graph = Graph::new();
/// let x = ops::placeholder(&graph.scope(), DType::Float)?;
/// let doubled = (&x * 2.0)?;
/// let mut numbers = (1..).map(|n| n as f32);
/// let feed = FeedHook::new(move || Ok(vec![(x.clone(), Tensor::scalar(numbers.next().unwrap_or(0.0)))]));
/// let mut session = MonitoredTrainingSession::new(&graph).hook(feed).build()?;
/// assert_eq!(session.run(&[], &[&doubled])?[0].to_scalar::<f32>()?, 2.0);
/// assert_eq!(session.run(&[], &[&doubled])?[0].to_scalar::<f32>()?, 4.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct FeedHook(Box<FeedFn>);

type FeedFn = dyn FnMut() -> Result<Vec<(Output, Tensor)>> + Send;

impl FeedHook {
    /// Calls `feed` before every step.
    pub fn new(feed: impl FnMut() -> Result<Vec<(Output, Tensor)>> + Send + 'static) -> FeedHook {
        FeedHook(Box::new(feed))
    }
}

impl SessionHook for FeedHook {
    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs { feeds: (self.0)()?, ..RunArgs::default() })
    }
}
