//! Worker threads of a coordinator: each makes calls in a session of its worker's server.

use super::function::{Body, WorkerFunction};
use super::queue::{Arguments, Call, Queue};
use crate::session::{Callable, Session, SessionOptions};
use crate::train::is_lost;
use ferroflow_cluster::logged_wait::LoggedWait;
use ferroflow_cluster::spec::TaskName;
use ferroflow_core::scope::{Graph, Operation, Output};
use ferroflow_core::{Code, Result, Status, Tensor, status};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time limit of one attempt to open a session.
const OPEN_WAIT: Duration = Duration::from_secs(5);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// Number of times that a call may be canceled before that counts as its result.
const MAX_CANCELLED: u32 = 4;
/// Time that a parameter server may take to accept a connection.
const PS_WAIT: Duration = Duration::from_secs(2);

/// A task that holds variables.
pub(super) struct ParameterServer {
    pub(super) task: TaskName,
    pub(super) address: String,
    /// Incarnation that holds the variables; a restarted server has another one.
    pub(super) incarnation: u64,
}

impl ParameterServer {
    /// Returns `true` if the server is not the one that held the variables. A failed call that names it does not prove
    /// that: a worker that ends closes its sessions there, and calls in flight miss them.
    fn has_restarted(&self) -> bool {
        let filters = [format!("/job:{}/task:{}", self.task.job, self.task.task)];
        let options = SessionOptions::new().device_filters(filters).open_timeout(OPEN_WAIT);
        let session = Session::with_options(self.address.as_str(), &Graph::over(crate::registry()), options);
        let now = session.and_then(|session| incarnation(&session, &self.task));
        !now.is_ok_and(|now| now == self.incarnation)
    }
}

/// Returns the incarnation of a task, from the devices of a session.
pub(super) fn incarnation(session: &Session, task: &TaskName) -> Result<u64> {
    let device = task.cpu(0);
    let found = session.devices()?.into_iter().find(|known| known.name == device);
    let found = found.ok_or_else(|| status!(NotFound, "the session does not have the device '{device}'"))?;
    Ok(found.incarnation)
}

/// State of a worker's thread.
pub(super) struct Worker {
    pub(super) number: usize,
    pub(super) task: TaskName,
    pub(super) address: String,
    pub(super) graph: Graph,
    pub(super) queue: Arc<Queue>,
    pub(super) parameter_servers: Arc<Vec<ParameterServer>>,
    /// Current session, so that the coordinator can close it.
    pub(super) session: Arc<Mutex<Option<Session>>>,
}

impl Worker {
    /// Makes calls until the queue stops.
    pub(super) fn run(&self) {
        let mut prepared: HashMap<usize, (WorkerFunction, Callable)> = HashMap::new();
        loop {
            let Some(session) = self.open() else { return };
            *self.slot() = Some(session.clone());
            while let Some(mut call) = self.queue.pop() {
                match self.make(&session, &mut prepared, &call) {
                    Err(error) if is_gone(&error, &mut call) => {
                        prepared.clear();
                        self.lost(call, &error);
                        break;
                    }
                    result => self.queue.done(&call, result),
                }
            }
            self.slot().take();
            if self.queue.stopped_within(Duration::ZERO) {
                return;
            }
        }
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session on the worker's server, as soon as it and the parameter servers are up; `None` when the queue stops.
    fn open(&self) -> Option<Session> {
        let mut waiting = LoggedWait::new();
        loop {
            if self.queue.stopped_within(Duration::ZERO) {
                return None;
            }
            let filters = ["/job:ps".to_owned(), format!("/job:worker/task:{}", self.task.task)];
            let options = SessionOptions::new().device_filters(filters).open_timeout(OPEN_WAIT);
            let error = match Session::with_options(self.address.as_str(), &self.graph, options) {
                Ok(session) => return Some(session),
                Err(error) if error.code() == Code::InvalidArgument => {
                    self.queue.fail(error);
                    return None;
                }
                Err(error) => error,
            };
            waiting.log(format_args!("{} at {}", self.task, self.address), error.message());
            if self.queue.stopped_within(PAUSE) {
                return None;
            }
        }
    }

    fn make(
        &self,
        session: &Session,
        prepared: &mut HashMap<usize, (WorkerFunction, Callable)>,
        call: &Call,
    ) -> Result<Vec<Tensor>> {
        let (_, callable) = match prepared.entry(call.function.id()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let Body { inputs, outputs, operations } = &*call.function.0;
                let (inputs, outputs): (Vec<&Output>, Vec<&Output>) =
                    (inputs.iter().collect(), outputs.iter().collect());
                let operations: Vec<&Operation> = operations.iter().collect();
                let callable = session.prepare(&inputs, &outputs, &operations)?;
                new.insert((call.function.clone(), callable))
            }
        };
        let arguments = match &call.arguments {
            Arguments::Given(arguments) => arguments.clone(),
            Arguments::NextOf(dataset) => dataset.next(self.number)?.ok_or_else(|| {
                status!(OutOfRange, "End of sequence: the dataset of {} has ended", self.task)
            })?,
        };
        callable.run(&arguments)
    }

    /// Returns the call to the queue, or fails all calls if a parameter server was lost.
    fn lost(&self, call: Call, error: &Status) {
        if let Arguments::NextOf(dataset) = &call.arguments {
            dataset.restart(self.number);
        }
        let gone = self.parameter_servers.iter().find(|server| {
            let named = error.code() != Code::Cancelled && error.message().contains(&server.task.to_string());
            !accepts_connections(&server.address) || named && server.has_restarted()
        });
        match gone {
            Some(ParameterServer { task, address, .. }) => {
                self.queue.fail(status!(
                    Unavailable,
                    "{task} at {address} was lost, and with it its variables; restart it, restore them from a \
                     checkpoint and continue with a new coordinator. The call failed with: {}",
                    error.message()
                ));
                self.queue.give_back(call);
            }
            None => {
                tracing::warn!(task = %self.task, %error, "A worker was lost; another one makes its call.");
                self.queue.give_back(call);
            }
        }
    }
}

/// Returns `true` if a failure is that of a task, not of the function that ran.
fn is_gone(error: &Status, call: &mut Call) -> bool {
    if error.code() == Code::Cancelled {
        // A worker whose sessions are closed by others cancels its steps. A function that is canceled repeatedly fails.
        call.cancelled += 1;
        return call.cancelled < MAX_CANCELLED;
    }
    is_lost(error)
}

fn accepts_connections(address: &str) -> bool {
    let addresses = address.to_socket_addrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    addresses.iter().any(|address| TcpStream::connect_timeout(address, PS_WAIT).is_ok())
}
