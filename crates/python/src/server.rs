//! A server inside a Python process.

use crate::errors::{Error, Result};
use ferroflow::server::{Activity, BoundServer};
use ferroflow::{Status, Target};
use ferroflow_core::{bail, status};
use ferroflow_proto::tensorflow::{ClusterDef, ConfigProto, JobDef, ServerDef};
use prost::Message;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interval at which a wait asks whether a signal, such as that of Ctrl-C, has come.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// A server of this process.
#[pyclass(frozen, module = "ferroflow._ferroflow")]
pub(crate) struct Server {
    target: String,
    /// The process that made the server; a forked one has none of its threads.
    process: u32,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when the server has stopped.
    stopped: Condvar,
}

enum State {
    Bound(Box<BoundServer>),
    Running(Box<ferroflow::Server>),
    /// Its threads are ending.
    Stopping,
    Stopped,
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.stopped.notify_all();
    }

    /// Waits until the server has stopped or `limit` is over; returns whether it has stopped.
    fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        while !matches!(*state, State::Stopped) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.stopped.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[pymethods]
impl Server {
    /// Listens for the task that an encoded `ServerDef` describes; `start` lets it serve.
    #[new]
    fn new(py: Python<'_>, server_def: &[u8]) -> Result<Server> {
        let definition = ServerDef::decode(server_def)
            .map_err(|error| status!(InvalidArgument, "the ServerDef cannot be read: {error}"))?;
        let bound = py.detach(|| BoundServer::new(&definition))?;
        let target = bound.target().to_owned();
        let state = Mutex::new(State::Bound(Box::new(bound)));
        let shared = Arc::new(Shared { state, stopped: Condvar::new() });
        Ok(Server { target, process: std::process::id(), shared })
    }

    /// The target that sessions are opened on.
    #[getter]
    fn target(&self) -> &str {
        &self.target
    }

    /// The sessions that are open, the steps since the start, the steps under way, and the bytes that tensors hold; `None`
    /// if the server does not serve.
    fn activity(&self) -> Result<Option<(usize, u64, usize, usize)>> {
        self.check_process()?;
        let State::Running(server) = &*self.shared.lock() else {
            return Ok(None);
        };
        let Activity { sessions, steps, running, tensor_bytes } = server.activity();
        Ok(Some((sessions, steps, running, tensor_bytes)))
    }

    /// Starts to serve. A server that serves already goes on.
    fn start(&self, py: Python<'_>) -> Result<()> {
        self.check_process()?;
        py.detach(|| {
            let mut state = self.shared.lock();
            match std::mem::replace(&mut *state, State::Stopped) {
                State::Bound(bound) => *state = State::Running(Box::new(bound.start()?)),
                State::Running(server) => *state = State::Running(server),
                other => {
                    *state = other;
                    bail!(FailedPrecondition, "the server at {} has stopped; make another one", self.target);
                }
            }
            Ok::<(), Status>(())
        })
        .map_err(Error::Status)
    }

    /// Blocks until the server is stopped; signals are noticed. One that never started is stopped.
    fn join(&self, py: Python<'_>) -> Result<()> {
        self.check_process()?;
        {
            let mut state = self.shared.lock();
            if let State::Bound(_) = *state {
                *state = State::Stopped;
            }
        }
        while !py.detach(|| self.shared.wait(SIGNALS_EVERY)) {
            py.check_signals()?;
        }
        Ok(())
    }

    /// Stops the server: sessions are closed, and steps fail. Waits up to `seconds` for its threads, and returns whether
    /// they have ended.
    fn stop(&self, py: Python<'_>, seconds: f64) -> Result<bool> {
        self.check_process()?;
        let limit = Duration::try_from_secs_f64(seconds)
            .map_err(|error| status!(InvalidArgument, "{seconds} is not a number of seconds: {error}"))?;
        py.detach(|| {
            let stopping = {
                let mut state = self.shared.lock();
                match std::mem::replace(&mut *state, State::Stopping) {
                    State::Running(server) => Some(server),
                    State::Bound(_) => {
                        *state = State::Stopped;
                        None
                    }
                    other => {
                        *state = other;
                        None
                    }
                }
            };
            if let Some(server) = stopping {
                let shared = self.shared.clone();
                // A long kernel may keep a thread; the caller does not wait longer than it wants.
                let ending = std::thread::Builder::new().name("stop".to_owned());
                let ending = ending.spawn(move || {
                    server.stop();
                    shared.set(State::Stopped);
                });
                ending.map_err(|error| status!(Internal, "cannot start a thread: {error}"))?;
            }
            Ok::<bool, Status>(self.shared.wait(limit))
        })
        .map_err(Error::Status)
    }
}

impl Server {
    fn check_process(&self) -> Result<(), Status> {
        if self.process != std::process::id() {
            bail!(
                FailedPrecondition,
                "the server at {} belongs to process {}, and this process was forked from it: threads do not survive a fork. \
                 Start the server after the fork, or start processes with multiprocessing's 'spawn'",
                self.target,
                self.process
            );
        }
        Ok(())
    }

    /// Returns the target by which sessions of this process call the server directly.
    pub(crate) fn direct_target(&self) -> Result<Target> {
        self.check_process()?;
        match &*self.shared.lock() {
            State::Running(server) => Ok(server.target().clone()),
            _ => Err(status!(FailedPrecondition, "the server at {} does not serve", self.target).into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that runs serves until the process ends, as TensorFlow's do. In a forked process its threads are the
        // other process's, and whoever held the lock is not there.
        if self.process != std::process::id() || matches!(*self.shared.lock(), State::Running(_)) {
            std::mem::forget(self.shared.clone());
        }
    }
}

/// Encodes a `ServerDef`. The cluster maps names of jobs to addresses by task number.
#[pyfunction]
pub(crate) fn make_server_def<'py>(
    py: Python<'py>,
    cluster: Vec<(String, BTreeMap<i32, String>)>,
    job_name: String,
    task_index: i32,
    protocol: String,
    config: &[u8],
) -> Result<Bound<'py, PyBytes>> {
    let config = ConfigProto::decode(config)
        .map_err(|error| status!(InvalidArgument, "the ConfigProto cannot be read: {error}"))?;
    let job = cluster.into_iter().map(|(name, tasks)| JobDef { name, tasks: tasks.into_iter().collect() });
    let definition = ServerDef {
        cluster: Some(ClusterDef { job: job.collect() }),
        job_name,
        task_index,
        protocol,
        default_session_config: (config != ConfigProto::default()).then_some(config),
        ..ServerDef::default()
    };
    Ok(PyBytes::new(py, &definition.encode_to_vec()))
}
