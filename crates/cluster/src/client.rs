//! A client's connection to a master: direct calls if the master lives in this process, gRPC otherwise.
//!
//! Clients are ordinary threads. [`MasterClient::wait`] runs a call on the calling thread, so a step of a master in
//! this process begins, and mostly ends, there.

use crate::api::{CallableOutcome, Devices, MasterApi, RunCallable, RunStep, StepOutcome};
use crate::logged_wait::LoggedWait;
use crate::master::Master;
use crate::transport::client::RemoteMaster;
use crate::transport::io::{Carrier, Io};
use crate::worker::Worker;
use ferroflow_core::{Result, ensure, status};
use ferroflow_proto::tensorflow::{CallableOptions, ConfigProto, GraphDef, PartialRunSetupRequest};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::watch;

pub mod calls;

/// A handle to a master. Clones share the connection.
#[derive(Clone)]
pub struct MasterClient {
    target: Arc<str>,
    route: Route,
}

#[derive(Clone)]
enum Route {
    InProcess(Arc<LocalMaster>),
    Remote(Arc<RemoteMaster>),
}

/// A master in this process.
pub(crate) struct LocalMaster {
    pub(crate) master: Arc<Master>,
    pub(crate) worker: Arc<Worker>,
    /// Runs the timers of calls.
    pub(crate) io: Arc<Io>,
    /// Changes when the master's server has stopped.
    pub(crate) stopped: watch::Receiver<()>,
    /// The threads behind `io`, if no server owns them.
    pub(crate) _carrier: Option<Carrier>,
}

impl MasterClient {
    /// Creates a client of the master at `grpc://host:port` or `host:port`. Connects on first use.
    pub fn connect(target: &str) -> Result<MasterClient> {
        let address = target.strip_prefix("grpc://").unwrap_or(target);
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
        ensure!(
            port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0)) && !address.contains('/'),
            InvalidArgument,
            "'{target}' is not the address of a server: expected grpc://host:port"
        );
        let remote = RemoteMaster::new(address)?;
        Ok(MasterClient {
            target: format!("grpc://{address}").into(),
            route: Route::Remote(Arc::new(remote)),
        })
    }

    /// Creates a client of a master in this process.
    pub(crate) fn in_process(target: &str, local: LocalMaster) -> MasterClient {
        MasterClient { target: target.into(), route: Route::InProcess(Arc::new(local)) }
    }

    /// Returns the address of the master's server.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns whether calls stay in this process.
    pub fn is_in_process(&self) -> bool {
        matches!(self.route, Route::InProcess(_))
    }

    /// Returns the handle of a session that has this name in its `SessionMetadata`, if the master lives in this process.
    pub fn session_named(&self, name: &str) -> Option<String> {
        match &self.route {
            Route::InProcess(local) => local.master.session_named(name),
            Route::Remote(_) => None,
        }
    }

    /// Runs a call to this master on the calling thread and blocks until it ends. A call that exceeds `limit` is
    /// cancelled, and the error says that `what` did not happen.
    pub fn wait<T>(
        &self,
        limit: Option<Duration>,
        what: &str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let entered;
        if let Route::InProcess(local) = &self.route {
            ensure!(
                !local.stopped.has_changed().unwrap_or(true),
                Unavailable,
                "the server at {} has stopped",
                self.target
            );
            local.worker.prepare_thread();
            entered = local.io.enter();
        } else {
            entered = None;
        }
        // A step takes as long as its nodes do; everything else should be quick. A master in this process logs its own
        // waits.
        let in_process = matches!(self.route, Route::InProcess(_));
        let waiting = if limit.is_none() || in_process { LoggedWait::for_work() } else { LoggedWait::new() };
        let done = block_on(limit, Some((waiting, &self.target, what)), call);
        drop(entered);
        done.unwrap_or_else(|| {
            let seconds = limit.unwrap_or_default().as_secs_f64();
            Err(status!(DeadlineExceeded, "{what} at {} did not finish within {seconds:.1} s", self.target))
        })
    }
}

impl fmt::Debug for MasterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterClient")
            .field("target", &self.target)
            .field("in_process", &self.is_in_process())
            .finish()
    }
}

/// A wait with whom it is for and why.
type WaitNotice<'a> = (LoggedWait, &'a str, &'a str);

/// Polls a future on this thread; returns `None` if it does not finish in time.
pub(crate) fn block_on<F: Future>(
    limit: Option<Duration>,
    mut notice: Option<WaitNotice<'_>>,
    future: F,
) -> Option<F::Output> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
        fn wake_by_ref(self: &Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    let mut cx = Context::from_waker(&waker);
    let mut deadline = None;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
        let now = Instant::now();
        let left = limit.map(|limit| deadline.get_or_insert(now + limit).saturating_duration_since(now));
        if left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        let next_word = notice.as_mut().map(|(waiting, whom, what)| {
            waiting.log(*whom, *what);
            waiting.until_next()
        });
        match left.into_iter().chain(next_word).min() {
            Some(pause) => std::thread::park_timeout(pause),
            None => std::thread::park(),
        }
    }
}

/// Forwards a call to whichever kind of master this is.
macro_rules! forward {
    ($self:ident, $master:ident => $call:expr) => {
        match &$self.route {
            Route::InProcess(local) => {
                let $master = &*local.master;
                $call.await
            }
            Route::Remote(remote) => {
                let $master = &**remote;
                $call.await
            }
        }
    };
}

impl MasterApi for MasterClient {
    async fn create_session(&self, graph: GraphDef, config: ConfigProto, target: &str) -> Result<String> {
        forward!(self, master => master.create_session(graph, config, target))
    }

    async fn extend_session(&self, handle: &str, graph: GraphDef, version: i64) -> Result<i64> {
        forward!(self, master => master.extend_session(handle, graph, version))
    }

    async fn run_step(&self, step: RunStep) -> Result<StepOutcome> {
        forward!(self, master => master.run_step(step))
    }

    async fn partial_run_setup(&self, request: PartialRunSetupRequest) -> Result<String> {
        forward!(self, master => master.partial_run_setup(request))
    }

    async fn close_session(&self, handle: &str) -> Result<()> {
        forward!(self, master => master.close_session(handle))
    }

    async fn list_devices(&self, handle: &str) -> Result<Devices> {
        forward!(self, master => master.list_devices(handle))
    }

    async fn reset(&self, containers: Vec<String>, device_filters: Vec<String>) -> Result<()> {
        forward!(self, master => master.reset(containers, device_filters))
    }

    async fn make_callable(&self, session: &str, options: CallableOptions, request_id: i64) -> Result<i64> {
        forward!(self, master => master.make_callable(session, options, request_id))
    }

    async fn run_callable(&self, call: RunCallable) -> Result<CallableOutcome> {
        forward!(self, master => master.run_callable(call))
    }

    async fn release_callable(&self, session: &str, handle: i64) -> Result<()> {
        forward!(self, master => master.release_callable(session, handle))
    }
}
