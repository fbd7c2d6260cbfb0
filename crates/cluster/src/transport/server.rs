//! Accepts connections and dispatches HTTP/2 requests to the services.
//!
//! There are a few threads, each with a single-threaded runtime. A connection stays on the thread that accepted it, and
//! its small calls are answered there, because a hop to another thread costs more than such a call.

use super::greeting::{Greeted, greet, greet_at_shared_port};
use super::grpc::{self, Pieces, RequestStream};
use super::intake::Intake;
use super::io::IoThread;
use super::sockets::{CONNECTION_WINDOW, FRAME_BYTES, HEADER_LIST_BYTES, STREAM_WINDOW, watch_for_silence};
use super::{
    caller, coordination_service, direct, eager_service, http1, local, master_service, worker_service,
};
use crate::eager::Eager;
use crate::listeners::PortSharer;
use crate::local_users::LocalUsers;
use crate::master::Master;
use crate::presence::Presence;
use crate::worker::Worker;
use ferroflow_core::{Result, Status, status};
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A client that vanished without closing its connection is noticed after the sum of these two.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(60);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// The time that open calls have to finish once the server stops.
const DRAIN: Duration = Duration::from_millis(500);
/// The pause after a failed accept, e.g. when the process has no file descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// The interval between log messages about failed accepts or refused users.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// The largest number of open calls per connection; clients queue further ones. It is high because steps that wait for
/// each other must not keep each other out, and a task may wait for thousands of tensors of another.
const MAX_CALLS: u32 = 16_384;

/// Services reachable from a connection.
pub(crate) struct Services {
    pub(crate) master: Arc<Master>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) eager: Arc<Eager>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) accept_failures: RareReport,
    /// The users of this machine who may connect.
    pub(crate) local_users: LocalUsers,
    pub(crate) refused_users: RareReport,
    /// True if browsers, probes and scrapers are answered.
    pub(crate) http: bool,
    /// Another protocol on the port.
    pub(crate) sharer: Option<Arc<dyn PortSharer>>,
}

/// Counts what may happen very often, on all threads, so that it is logged once a second.
#[derive(Default)]
pub(crate) struct RareReport(Mutex<Unreported>);

#[derive(Default)]
struct Unreported {
    count: u64,
    reported: Option<Instant>,
}

impl RareReport {
    /// Counts an occurrence. Returns the number since the last message if another one is due.
    fn count(&self) -> Option<u64> {
        let mut unreported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unreported.count += 1;
        let due = unreported.reported.is_none_or(|reported| reported.elapsed() >= REPORT_EVERY);
        due.then(|| {
            unreported.reported = Some(Instant::now());
            std::mem::take(&mut unreported.count)
        })
    }
}

impl Services {
    /// Returns the reason why a connection is refused, and logs it.
    fn refuses(&self, admitted: Result<()>) -> Option<Status> {
        let refusal = admitted.err()?;
        if let Some(count) = self.refused_users.count() {
            tracing::warn!(count, "A connection was refused: {}", refusal.message());
        }
        Some(refusal)
    }
}

/// The state that the calls on one connection share.
pub(crate) struct Caller {
    /// The reason why all calls are refused.
    refusal: Option<Status>,
    /// Memory for incoming messages.
    pub(crate) intake: Arc<Intake>,
    /// Alive as long as the connection.
    pub(crate) presence: Presence,
}

/// The places that a thread's connections come from.
pub(crate) struct Sources {
    pub(crate) network: Vec<TcpListener>,
    pub(crate) local: Option<std::os::unix::net::UnixListener>,
    pub(crate) handed_over: Option<UnboundedReceiver<std::net::TcpStream>>,
}

/// Starts a thread that serves connections until `stop` changes.
pub(crate) fn spawn(
    thread: IoThread,
    sources: Sources,
    services: Arc<Services>,
    stop: watch::Receiver<()>,
) -> Result<JoinHandle<()>> {
    let listeners: Vec<Listener> = {
        let _entered = thread.enter();
        let network = sources.network.into_iter();
        let network = network.map(|each| tokio::net::TcpListener::from_std(each).map(Listener::Network));
        let local = sources.local.into_iter();
        let local = local.map(|each| tokio::net::UnixListener::from_std(each).map(Listener::Local));
        let handed_over = sources.handed_over.into_iter().map(|each| Ok(Listener::HandedOver(each)));
        let listeners = network.chain(local).chain(handed_over).collect::<Result<_, _>>();
        listeners.map_err(|error| status!(Internal, "cannot listen: {error}"))?
    };
    thread.start(move || {
        services.worker.prepare_thread();
        let accepting =
            listeners.into_iter().map(move |listener| accept(listener, services.clone(), stop.clone()));
        join_all(accepting).map(drop)
    })
}

/// A socket that accepts connections.
enum Listener {
    Network(tokio::net::TcpListener),
    /// The local socket, for direct connections within this machine.
    Local(tokio::net::UnixListener),
    /// The protocol that shares the port, which accepted them before the server did.
    HandedOver(UnboundedReceiver<std::net::TcpStream>),
}

enum Connection {
    Network(TcpStream),
    Local(UnixStream),
}

impl Listener {
    async fn accept(&mut self) -> std::io::Result<Connection> {
        match self {
            Listener::Network(listener) => {
                let (stream, peer) = listener.accept().await?;
                tracing::debug!(%peer, "A client connected.");
                Ok(Connection::Network(stream))
            }
            Listener::Local(listener) => local::accept(listener).await.map(Connection::Local),
            Listener::HandedOver(connections) => match connections.recv().await {
                Some(stream) => {
                    stream.set_nonblocking(true)?;
                    TcpStream::from_std(stream).map(Connection::Network)
                }
                None => std::future::pending().await,
            },
        }
    }
}

async fn accept(mut listener: Listener, services: Arc<Services>, mut stop: watch::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(Connection::Network(stream)) => {
                    connections.spawn(serve(stream, services.clone(), stop.clone()));
                }
                Ok(Connection::Local(stream)) => {
                    let user = stream.peer_cred().map(|peer| peer.uid());
                    if user.is_ok_and(|user| services.refuses(services.local_users.admit(user)).is_some()) {
                        continue;
                    }
                    let peer = "a task on this machine".to_owned();
                    let memory = direct::PeerMemory::of(&stream);
                    connections.spawn(serve_locally(stream, memory, peer, services.clone(), stop.clone()));
                }
                Err(error) => {
                    if let Some(count) = services.accept_failures.count() {
                        tracing::warn!(%error, count, "Cannot accept connections; trying again.");
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
            Some(_) = connections.join_next() => {}
            _ = stop.changed() => break,
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::debug!("Some calls were still open when the server stopped.");
    }
}

async fn serve(stream: TcpStream, services: Arc<Services>, mut stop: watch::Receiver<()>) {
    if let Err(error) = stream.set_nodelay(true).and_then(|()| watch_for_silence(&stream)) {
        tracing::debug!(%error, "A connection keeps its default options.");
    }
    let address = stream.peer_addr().ok();
    let peer = address.map_or_else(String::new, |address| address.to_string());
    let local = stream.local_addr().ok();
    let admitted = local.zip(address).map(|(local, peer)| services.local_users.admit_connection(local, peer));
    let refusal = admitted.and_then(|admitted| services.refuses(admitted));
    // Only calls can be told why they are refused.
    let sharer = services.sharer.as_deref().filter(|_| refusal.is_none());
    let greeted = tokio::select! {
        greeted = greet_at_shared_port(stream, sharer, services.http) => greeted,
        _ = stop.changed() => return,
    };
    let stream = match greeted {
        Ok(Greeted::Http2(stream)) => stream,
        Ok(Greeted::TakenOver) => return,
        Ok(Greeted::Http1(stream)) => return http1::serve(stream, services, refusal, stop).await,
        Ok(Greeted::Direct(_)) if refusal.is_some() => return,
        Ok(Greeted::Direct(stream)) => return serve_directly(stream, None, peer, services, stop).await,
        Err(error) => return tracing::debug!(peer, %error, "A connection was refused."),
    };
    let connection =
        Arc::new(Caller { refusal, intake: services.intake.for_connection(), presence: Presence::default() });
    let service = service_fn(move |request| {
        let response = handle(services.clone(), connection.clone(), request);
        caller::on_behalf_of(address, response).map(Ok::<_, Infallible>)
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .max_header_list_size(HEADER_LIST_BYTES)
        .max_send_buf_size(FRAME_BYTES as usize)
        .max_concurrent_streams(MAX_CALLS)
        // Any number of calls may be cancelled at once.
        .max_pending_accept_reset_streams(10_000)
        .max_local_error_reset_streams(None)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        _ = stop.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "A connection was interrupted.");
    }
}

/// Serves a task on this machine after its greeting.
async fn serve_locally(
    stream: UnixStream,
    memory: Option<direct::PeerMemory>,
    peer: String,
    services: Arc<Services>,
    mut stop: watch::Receiver<()>,
) {
    let greeted = tokio::select! {
        greeted = greet(stream) => greeted,
        _ = stop.changed() => return,
    };
    match greeted {
        Ok(Greeted::Direct(stream)) => serve_directly(stream, memory, peer, services, stop).await,
        _ => tracing::debug!("A local connection was refused."),
    }
}

async fn serve_directly(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    memory: Option<direct::PeerMemory>,
    peer: String,
    services: Arc<Services>,
    mut stop: watch::Receiver<()>,
) {
    let ended = tokio::select! {
        ended = direct::serve(stream, memory, peer, services) => ended,
        _ = stop.changed() => return,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "A direct connection was refused.");
    }
}

async fn handle(
    services: Arc<Services>,
    caller: Arc<Caller>,
    request: Request<Incoming>,
) -> Response<Pieces> {
    let (head, body) = request.into_parts();
    if !grpc::is_call(&head.method, &head.headers) {
        let mut refusal = Response::new(Pieces::default());
        *refusal.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return refusal;
    }
    if let Some(refusal) = &caller.refusal {
        return grpc::respond(Err(refusal.clone()));
    }
    if head.uri.path() == eager_service::STREAMING_ENQUEUE {
        return match grpc::timeout(&head.headers) {
            Ok(limit) => {
                let requests = RequestStream::new(body, &caller.intake);
                grpc::respond_streaming(eager_service::streaming_enqueue(services, requests, limit))
            }
            Err(status) => grpc::respond(Err(status)),
        };
    }
    // Boxed right away, because the future of a call is moved several times before it runs.
    let call = Box::pin(async {
        let path = head.uri.path();
        if let Some(method) = path.strip_prefix("/tensorflow.MasterService/") {
            let request = grpc::open(&head.headers, body, &caller.intake).await?;
            return master_service::call(&services, &caller, method, request).await;
        }
        if let Some(method) = path.strip_prefix("/tensorflow.WorkerService/") {
            let request = grpc::open(&head.headers, body, &caller.intake).await?;
            return worker_service::call(&services, &caller, method, request).await;
        }
        if let Some(method) = path.strip_prefix("/tensorflow.eager.EagerService/") {
            let request = grpc::open(&head.headers, body, &caller.intake).await?;
            return eager_service::call(&services, method, request).await;
        }
        if let Some(method) = path.strip_prefix("/tensorflow.CoordinationService/") {
            let request = grpc::open(&head.headers, body, &caller.intake).await?;
            return Box::pin(coordination_service::call(&services, method, request)).await;
        }
        Err(unknown_method())
    });
    let outcome = match grpc::timeout(&head.headers) {
        Ok(None) => call.await,
        Ok(Some(timeout)) => {
            tokio::time::timeout(timeout, call).await.unwrap_or_else(|_| Err(grpc::deadline_exceeded()))
        }
        Err(status) => Err(status),
    };
    grpc::respond(outcome)
}

/// The status of an unknown method. The message is empty, as in stock.
pub(crate) fn unknown_method() -> Status {
    status!(Unimplemented, "{}", "")
}
