//! Sessions of Python programs: a graph from a file, run with arrays.

use crate::arrays::{GivenTensor, TensorMemory};
use crate::errors::{Error, Result};
use crate::graphs::read_graph;
use crate::server::Server;
use ferroflow::{Graph, RunOptions, SessionOptions, Status, Target, Tensor};
use ferroflow_core::status;
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// The interval at which a wait asks whether a signal, such as that of Ctrl-C, has come.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// A session that runs steps of a graph.
#[pyclass(frozen, module = "ferroflow._ferroflow")]
pub(crate) struct Session {
    graph: Graph,
    session: ferroflow::Session,
}

/// The server that a session is opened on.
#[derive(FromPyObject)]
pub(crate) enum GivenTarget<'py> {
    Server(PyRef<'py, Server>),
    Address(String),
}

#[pymethods]
impl Session {
    /// Opens a session with a `GraphDef` or `MetaGraphDef`, binary or as text; an empty target is a session without a server.
    #[new]
    #[pyo3(signature = (target, graph, device_filters, timeout=None))]
    fn new(
        py: Python<'_>,
        target: GivenTarget<'_>,
        graph: &[u8],
        device_filters: Vec<String>,
        timeout: Option<f64>,
    ) -> Result<Session> {
        let target = match target {
            GivenTarget::Server(server) => server.direct_target()?,
            GivenTarget::Address(address) => Target::from(address),
        };
        let mut options = SessionOptions::new().device_filters(device_filters);
        if let Some(limit) = timeout {
            options = options.open_timeout(seconds(limit)?);
        }
        let encoded = graph.to_vec();
        interruptible(py, true, move || {
            let graph = Graph::new();
            graph.import(&read_graph(&encoded)?)?;
            let session = ferroflow::Session::with_options(target, &graph, options)?;
            Ok(Session { graph, session })
        })
    }

    /// The names of the graph's operations.
    fn operations(&self) -> Vec<String> {
        self.graph.operations().iter().map(ferroflow::Operation::name).collect()
    }

    /// The type and shape of an output; -1 is a dimension that is not known, and no shape one of unknown rank.
    fn describe(&self, output: &str) -> Result<(&'static str, Option<Vec<i64>>)> {
        let output = self.graph.output(output)?;
        let shape = output.shape();
        let dims = shape.dims().map(|dims| dims.to_vec());
        Ok((output.dtype().name(), dims))
    }

    /// Runs a step: feeds tensors, computes outputs, and runs operations.
    #[pyo3(signature = (feeds, fetches, targets, on_main_thread, timeout=None))]
    fn run(
        &self,
        py: Python<'_>,
        feeds: Vec<(String, GivenTensor)>,
        fetches: Vec<String>,
        targets: Vec<String>,
        on_main_thread: bool,
        timeout: Option<f64>,
    ) -> Result<Vec<TensorMemory>> {
        let mut options = RunOptions::new();
        if let Some(limit) = timeout {
            options = options.timeout(seconds(limit)?);
        }
        let (graph, session) = (self.graph.clone(), self.session.clone());
        let values: Vec<Tensor> = interruptible(py, on_main_thread, move || {
            let mut step = session.step().options(options);
            for (name, value) in feeds {
                step = step.feed(&graph.output(&name)?, value.into_tensor()?);
            }
            for name in &fetches {
                step = step.fetch(&graph.output(name)?);
            }
            for name in &targets {
                step = step.target(graph.operation(name)?);
            }
            Ok(step.run()?.values)
        })?;
        Ok(values.into_iter().map(TensorMemory::from).collect())
    }

    /// Closes the session; steps under way are cancelled.
    fn close(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.session.close()).map_err(Error::Status)
    }
}

/// Does something that may take long without the interpreter's lock. On the main thread, where Python handles signals,
/// another thread does it, so that Ctrl-C ends the wait.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    on_main_thread: bool,
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T> {
    if !on_main_thread {
        return py.detach(work).map_err(Error::Status);
    }
    let (sender, done) = sync_channel(1);
    let thread = std::thread::Builder::new().name("step".to_owned());
    // If the wait was interrupted, nobody wants the result.
    let thread = thread.spawn(move || drop(sender.send(work())));
    thread.map_err(|error| status!(Internal, "cannot start a thread: {error}"))?;
    let done = std::sync::Mutex::new(done);
    loop {
        let heard = py.detach(|| {
            done.lock().map_or(Err(RecvTimeoutError::Disconnected), |done| done.recv_timeout(SIGNALS_EVERY))
        });
        match heard {
            Ok(result) => return result.map_err(Error::Status),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(status!(Internal, "the thread of the step panicked").into());
            }
        }
    }
}

fn seconds(limit: f64) -> Result<Duration, Status> {
    Duration::try_from_secs_f64(limit)
        .map_err(|error| status!(InvalidArgument, "{limit} is not a number of seconds: {error}"))
}
