//! A client's way to a master: by direct calls if the master lives in this process, over gRPC otherwise.
//!
//! Clients are ordinary threads. [`MasterClient::wait`] runs a call on the calling thread: a step of a master in this
//! process begins and mostly ends there.

use crate::api::{CallableOutcome, Devices, MasterApi, RunCallable, RunStep, StepOutcome};
use crate::master::Master;
use crate::transport::client::RemoteMaster;
use crate::transport::io::{Carrier, Io};
use crate::waiting::Waiting;
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

/// A master that a client may call. Clones share the connection.
#[derive(Clone)]
pub struct MasterClient {
    target: Arc<str>,
    way: Way,
}

#[derive(Clone)]
enum Way {
    Direct(Arc<Direct>),
    Remote(Arc<RemoteMaster>),
}

/// A master of this process.
pub(crate) struct Direct {
    pub(crate) master: Arc<Master>,
    pub(crate) worker: Arc<Worker>,
    /// Runs the timers of calls.
    pub(crate) io: Arc<Io>,
    /// Has changed when the server of the master has stopped.
    pub(crate) stopped: watch::Receiver<()>,
    /// The threads behind `io`, if no server owns them.
    pub(crate) _carrier: Option<Carrier>,
}

impl MasterClient {
    /// The master at `grpc://host:port`, or plainly `host:port`. Nothing is connected yet.
    pub fn connect(target: &str) -> Result<MasterClient> {
        let address = target.strip_prefix("grpc://").unwrap_or(target);
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
        ensure!(
            port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0)) && !address.contains('/'),
            InvalidArgument,
            "'{target}' is no address of a server: expected grpc://host:port"
        );
        let remote = RemoteMaster::new(address)?;
        Ok(MasterClient { target: format!("grpc://{address}").into(), way: Way::Remote(Arc::new(remote)) })
    }

    /// A master of this process, called directly.
    pub(crate) fn direct(target: &str, direct: Direct) -> MasterClient {
        MasterClient { target: target.into(), way: Way::Direct(Arc::new(direct)) }
    }

    /// What the master's server is reached at.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Whether calls stay in this process.
    pub fn is_direct(&self) -> bool {
        matches!(self.way, Way::Direct(_))
    }

    /// Runs a call of this master on the calling thread and waits for its end. A call that takes longer than `limit`
    /// is given up, which stops its work; the error says that `what` did not happen.
    pub fn wait<T>(
        &self,
        limit: Option<Duration>,
        what: &str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let entered;
        if let Way::Direct(direct) = &self.way {
            ensure!(
                !direct.stopped.has_changed().unwrap_or(true),
                Unavailable,
                "the server at {} has stopped",
                self.target
            );
            direct.worker.prepare_thread();
            entered = direct.io.enter();
        } else {
            entered = None;
        }
        // A step takes as long as its nodes do; everything else should be quick. A master of this process says itself for
        // which task it waits.
        let direct = matches!(self.way, Way::Direct(_));
        let waiting = if limit.is_none() || direct { Waiting::for_work() } else { Waiting::new() };
        let done = block_on(limit, Some((waiting, &self.target, what)), call);
        drop(entered);
        done.unwrap_or_else(|| {
            let seconds = limit.unwrap_or_default().as_secs_f64();
            Err(status!(DeadlineExceeded, "{what} at {} did not end within {seconds:.1} s", self.target))
        })
    }
}

impl fmt::Debug for MasterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterClient")
            .field("target", &self.target)
            .field("direct", &self.is_direct())
            .finish()
    }
}

/// A wait, for whom and for what.
type Words<'a> = (Waiting, &'a str, &'a str);

/// Polls a future on this thread; `None` if it is not done in time.
pub(crate) fn block_on<F: Future>(
    limit: Option<Duration>,
    mut words: Option<Words<'_>>,
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
        let next_word = words.as_mut().map(|(waiting, whom, what)| {
            waiting.speak(*whom, *what);
            waiting.next_word()
        });
        match left.into_iter().chain(next_word).min() {
            Some(pause) => std::thread::park_timeout(pause),
            None => std::thread::park(),
        }
    }
}

/// Passes every call on to whichever master it is.
macro_rules! pass_on {
    ($self:ident, $master:ident => $call:expr) => {
        match &$self.way {
            Way::Direct(direct) => {
                let $master = &*direct.master;
                $call.await
            }
            Way::Remote(remote) => {
                let $master = &**remote;
                $call.await
            }
        }
    };
}

impl MasterApi for MasterClient {
    async fn create_session(&self, graph: GraphDef, config: ConfigProto, target: &str) -> Result<String> {
        pass_on!(self, master => master.create_session(graph, config, target))
    }

    async fn extend_session(&self, handle: &str, graph: GraphDef, version: i64) -> Result<i64> {
        pass_on!(self, master => master.extend_session(handle, graph, version))
    }

    async fn run_step(&self, step: RunStep) -> Result<StepOutcome> {
        pass_on!(self, master => master.run_step(step))
    }

    async fn partial_run_setup(&self, request: PartialRunSetupRequest) -> Result<String> {
        pass_on!(self, master => master.partial_run_setup(request))
    }

    async fn close_session(&self, handle: &str) -> Result<()> {
        pass_on!(self, master => master.close_session(handle))
    }

    async fn list_devices(&self, handle: &str) -> Result<Devices> {
        pass_on!(self, master => master.list_devices(handle))
    }

    async fn reset(&self, containers: Vec<String>, device_filters: Vec<String>) -> Result<()> {
        pass_on!(self, master => master.reset(containers, device_filters))
    }

    async fn make_callable(&self, session: &str, options: CallableOptions, request_id: i64) -> Result<i64> {
        pass_on!(self, master => master.make_callable(session, options, request_id))
    }

    async fn run_callable(&self, call: RunCallable) -> Result<CallableOutcome> {
        pass_on!(self, master => master.run_callable(call))
    }

    async fn release_callable(&self, session: &str, handle: i64) -> Result<()> {
        pass_on!(self, master => master.release_callable(session, handle))
    }
}
