//! Connections to one address, and unary calls over them.
//!
//! There is one connection per I/O thread, made on first use, so that a call made on an I/O thread is sent and answered
//! without leaving it. A call may be polled anywhere, even outside a runtime: the connection's own task reads and
//! writes, and the call only shares state with it. Dropping a call resets its stream, which cancels it at the peer.

use super::super::grpc::deadline_exceeded;
use super::super::intake::Intake;
use super::super::io::Io;
use super::super::reader::{ByteSource, Reader};
use super::super::sockets::{
    CONNECTION_WINDOW, FRAME_BYTES, HEADER_LIST_BYTES, STREAM_WINDOW, watch_for_silence,
};
use super::super::status::from_trailers;
use super::lanes::Lanes;
use crate::logged_wait::LoggedWait;
use crate::transport::direct::{self, LinkHandle};
use crate::transport::local;
use bytes::{Buf, Bytes};
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::{Result, Status, bail, ensure, status};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{HeaderValue, Method, Request, StatusCode, Uri, Version};
use std::fmt::Display;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;

/// The connections to one address.
pub(crate) struct Channel {
    address: Arc<str>,
    io: Arc<Io>,
    lanes: Lanes<Http2Sender>,
    /// Direct connections, if a Ferroflow task is there.
    direct: Lanes<Arc<LinkHandle>>,
    /// Memory for incoming messages.
    intake: Arc<Intake>,
}

/// The sending half of an HTTP/2 connection, which closes with the last clone and the last call.
type Http2Sender = SendRequest<Bytes>;

impl Channel {
    /// Creates a channel to `host:port`. Connects on first use.
    pub(crate) fn new(address: &str, io: Arc<Io>, intake: &Intake) -> Arc<Channel> {
        let address: Arc<str> = address.into();
        let lanes = Lanes::new(address.clone(), io.clone());
        let direct = Lanes::new(address.clone(), io.clone());
        Arc::new(Channel { address, io, lanes, direct, intake: intake.for_connection() })
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the I/O threads that run the connections.
    pub(crate) fn io(&self) -> &Arc<Io> {
        &self.io
    }

    /// Sends a request, given in pieces that include the gRPC prefix, and waits for the first bytes of the response.
    /// Calls with the same `hint` from threads other than I/O threads share a connection.
    pub(crate) async fn call(
        &self,
        head: &CallHead,
        message: impl IntoIterator<Item = Bytes>,
        hint: u64,
    ) -> Result<CallResponse> {
        let lane = self.io.choose(hint);
        let (generation, mut link) = self.sender(lane).await?;
        let (response, mut body) = match link.send_request(head.request(), false) {
            Ok(sent) => sent,
            // The connection ended before anything was sent on it, so it is safe to retry on another one.
            Err(_) => {
                self.lanes.forget(lane, generation);
                let (_, mut link) = self.sender(lane).await?;
                link.send_request(head.request(), false).map_err(|error| self.broken(&error))?
            }
        };
        let mut pieces = message.into_iter().peekable();
        while let Some(piece) = pieces.next() {
            body.send_data(piece, pieces.peek().is_none()).map_err(|error| self.broken(&error))?;
        }
        let response = response.await.map_err(|error| self.broken(&error))?;
        let (head, stream) = response.into_parts();
        if let Some(status) = from_trailers(&head.headers) {
            return Err(status);
        }
        ensure!(
            head.status == StatusCode::OK,
            Unavailable,
            "{} responds with HTTP status {}, so it is not a TensorFlow server",
            self.address,
            head.status
        );
        CallResponse::open(ResponseBody { stream, address: self.address.clone() }, lane, &self.intake).await
    }

    /// Connects unless there is a connection.
    pub(crate) async fn connected(&self, hint: u64) -> Result<()> {
        self.sender(self.io.choose(hint)).await.map(drop)
    }

    /// Fails with `DeadlineExceeded` after `limit`.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let expired = std::pin::pin!(self.io.sleep(self.io.choose(0), limit));
        match select(std::pin::pin!(work), expired).await {
            Either::Left((done, _)) => done,
            Either::Right((slept, _)) => slept.and(Err(deadline_exceeded())),
        }
    }

    /// Awaits a call and logs the wait if it is long.
    pub(crate) async fn log_wait<T>(
        &self,
        mut waiting: LoggedWait,
        whom: &impl Display,
        why: &impl Display,
        call: impl Future<Output = T>,
    ) -> T {
        let mut call = std::pin::pin!(call);
        loop {
            let message_due = std::pin::pin!(self.io.sleep(self.io.choose(0), waiting.until_next()));
            match select(call.as_mut(), message_due).await {
                Either::Left((done, _)) => return done,
                Either::Right((Ok(()), _)) => waiting.log(whom, why),
                // The I/O thread has stopped, so nothing can be logged; the call ends with the connection that the
                // thread ran.
                Either::Right((Err(_), _)) => return call.await,
            }
        }
    }

    /// Returns the lane's connection and its generation, connecting if there is none.
    async fn sender(&self, lane: usize) -> Result<(u64, Http2Sender)> {
        let address = self.address.clone();
        let connect = || async move {
            let (link, connection) = handshake(&address).await?;
            let carried = async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%address, %error, "A connection to a peer was interrupted.");
                }
            };
            Ok((link, carried))
        };
        self.lanes.get(lane, connect).await
    }

    /// Returns the direct connection of the thread that works for the caller. A new one goes through the peer's local
    /// socket if this machine has it, and otherwise over TCP; `deliver` gets the tensors that arrive on it.
    pub(crate) async fn direct(
        &self,
        hint: u64,
        local_name: impl FnOnce() -> String,
        intake: &Arc<Intake>,
        deliver: impl Fn(i64, RendezvousKey, Result<Parcel>) + Send + 'static,
    ) -> Result<Arc<LinkHandle>> {
        let lane = self.io.choose(hint);
        if let Some((generation, link)) = self.direct.open(lane) {
            if !link.is_closed() {
                return Ok(link);
            }
            self.direct.forget(lane, generation);
        }
        let (address, intake, local_name) = (self.address.clone(), intake.for_connection(), local_name());
        let connect = || async move {
            if let Ok(socket) = local::connect(&local_name) {
                let memory = direct::PeerMemory::of(&socket);
                let (link, carried) = direct::connect(socket, memory, address, intake, deliver).await?;
                return Ok((link, carried.boxed()));
            }
            let socket = open_socket(&address).await?;
            let (link, carried) = direct::connect(socket, None, address, intake, deliver).await?;
            Ok((link, carried.boxed()))
        };
        self.direct.get(lane, connect).await.map(|(_, link)| link)
    }

    fn broken(&self, error: &h2::Error) -> Status {
        broken(&self.address, error)
    }
}

type Connection = h2::client::Connection<TcpStream, Bytes>;

async fn open_socket(address: &str) -> Result<TcpStream> {
    let resolved = tokio::net::lookup_host(address).await;
    let addresses: Vec<SocketAddr> = match resolved {
        Ok(addresses) => addresses.collect(),
        Err(error) => bail!(Unavailable, "the name of {address} cannot be resolved: {error}"),
    };
    let stream = match TcpStream::connect(&*addresses).await {
        Ok(stream) => stream,
        // In the words of stock's, by which programs tell that a task is not there.
        Err(error) => {
            bail!(Unavailable, "failed to connect to all addresses; last error: {address}: {error}")
        }
    };
    // The system may assign an unused local port to the very socket that connects to it.
    let own = stream.local_addr().ok();
    ensure!(
        own.is_none() || own != stream.peer_addr().ok(),
        Unavailable,
        "failed to connect to all addresses; last error: {address}: nothing listens there"
    );
    if let Err(error) = stream.set_nodelay(true).and_then(|()| watch_for_silence(&stream)) {
        tracing::debug!(%address, %error, "A connection keeps its default options.");
    }
    Ok(stream)
}

async fn handshake(address: &str) -> Result<(Http2Sender, Connection)> {
    let stream = open_socket(address).await?;
    let connected = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .max_header_list_size(HEADER_LIST_BYTES)
        .max_send_buffer_size(CONNECTION_WINDOW as usize)
        // Any number of calls may be cancelled at once; data that still arrives for them is dropped.
        .max_concurrent_reset_streams(10_000)
        .reset_stream_duration(Duration::from_secs(5))
        .max_local_error_reset_streams(None)
        .enable_push(false)
        .handshake(stream)
        .await;
    connected.map_err(|error| broken(address, &error))
}

/// The status of a call that got none from its peer.
fn broken(address: &str, error: &h2::Error) -> Status {
    match error.reason() {
        Some(Reason::CANCEL) => status!(Cancelled, "{address} cancelled the call"),
        // Text of another protocol, read as a frame length, exceeds the allowed size.
        Some(Reason::FRAME_SIZE_ERROR) if error.is_library() => {
            status!(Unavailable, "the server at {address} does not speak gRPC: {error}")
        }
        _ => status!(Unavailable, "the connection to {address} broke: {error}"),
    }
}

/// The parts of a request that all calls of a method share.
pub(crate) struct CallHead {
    uri: Uri,
    timeout: Option<HeaderValue>,
}

impl CallHead {
    /// Prepares calls of `path` that the peer gives up after `timeout`.
    pub(crate) fn new(address: &str, path: &str, timeout: Option<Duration>) -> Result<CallHead> {
        let uri = Uri::builder().scheme("http").authority(address).path_and_query(path).build();
        let uri = uri.map_err(|error| status!(InvalidArgument, "{address} is not an address: {error}"))?;
        let timeout = timeout.map(|timeout| format!("{}m", timeout.as_millis().min(99_999_999)));
        let timeout = timeout.and_then(|text| HeaderValue::from_str(&text).ok());
        Ok(CallHead { uri, timeout })
    }

    fn request(&self) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = Version::HTTP_2;
        let headers = request.headers_mut();
        headers.insert(http::header::TE, HeaderValue::from_static("trailers"));
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(http::header::USER_AGENT, HeaderValue::from_static("grpc-ferroflow"));
        if let Some(timeout) = &self.timeout {
            headers.insert("grpc-timeout", timeout.clone());
        }
        request
    }
}

/// The response to a call, read as it arrives.
pub(crate) struct CallResponse {
    reader: Reader<ResponseBody>,
    /// The I/O thread of its connection.
    lane: usize,
}

struct ResponseBody {
    stream: RecvStream,
    address: Arc<str>,
}

impl ByteSource for ResponseBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        Poll::Ready(match ready!(self.stream.poll_data(cx)) {
            Some(Ok(data)) => {
                // Fails only if the stream has ended, when no capacity is needed.
                let _ = self.stream.flow_control().release_capacity(data.len());
                Some(Ok(data))
            }
            Some(Err(error)) => Some(Err(broken(&self.address, &error))),
            None => None,
        })
    }
}

impl ResponseBody {
    /// Waits for the status of the call.
    async fn status(&mut self) -> Result<()> {
        let trailers = poll_fn(|cx| self.stream.poll_trailers(cx)).await;
        match trailers.map_err(|error| broken(&self.address, &error))? {
            Some(trailers) => from_trailers(&trailers).map_or(Ok(()), Err),
            None => bail!(Unavailable, "{} ended the call without a status", self.address),
        }
    }
}

impl CallResponse {
    async fn open(mut body: ResponseBody, lane: usize, intake: &Arc<Intake>) -> Result<CallResponse> {
        let mut start = Bytes::new();
        while start.len() < 5 {
            match poll_fn(|cx| body.poll_frame(cx)).await {
                Some(frame) if start.is_empty() => start = frame?,
                Some(frame) => start = [&start[..], &frame?].concat().into(),
                None => {
                    body.status().await?;
                    bail!(Internal, "{} responded without a message", body.address)
                }
            }
        }
        ensure!(
            start.get_u8() == 0,
            Internal,
            "{} sent a compressed response that was not requested",
            body.address
        );
        let length = u64::from(start.get_u32());
        Ok(CallResponse { reader: Reader::new(body, start, length, intake), lane })
    }

    /// Returns the I/O thread of its connection.
    pub(crate) fn lane(&self) -> usize {
        self.lane
    }

    /// Returns the length of the message in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.reader.end()
    }

    /// Returns a reader of the message.
    pub(crate) fn message(&mut self) -> &mut Reader<impl ByteSource + use<>> {
        &mut self.reader
    }

    /// Waits for the status that follows the message.
    pub(crate) async fn finish(mut self) -> Result<()> {
        let body = self.reader.frames_mut();
        while let Some(rest) = poll_fn(|cx| body.poll_frame(cx)).await {
            ensure!(rest?.is_empty(), Internal, "{} responded with two messages", body.address);
        }
        body.status().await
    }
}
