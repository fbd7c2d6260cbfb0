//! Unary gRPC over HTTP/2: request headers and message prefix, compression, response trailers.

use super::intake::Intake;
use super::reader::{ByteSource, Reader};
use super::rope::Rope;
use super::status::to_trailers;
use bytes::{Buf, Bytes};
use ferroflow_core::memory::Charge;
use ferroflow_core::{Result, Status, bail, ensure, status};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use prost::Message;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{Sleep, sleep};

/// The largest size of a decompressed message: the limit of other gRPC implementations.
const MAX_INFLATED: usize = i32::MAX as usize;

/// Compressed messages below this size are inflated on the I/O thread.
const INFLATED_IN_PLACE: usize = 32 << 10;

/// Bytes inflated between two charges to the budget.
const INFLATED_AT_ONCE: usize = 256 << 10;

/// The longest pause within a request.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// The message of a request, read as it arrives.
pub(crate) type Request = Reader<RequestSource>;

/// The source of a request's bytes.
pub(crate) enum RequestSource {
    /// The frames of the HTTP body.
    Body(RequestBody),
    /// Nothing: the whole message is buffered.
    Nothing,
}

impl ByteSource for RequestSource {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        match self {
            RequestSource::Body(body) => body.poll_frame(cx),
            RequestSource::Nothing => Poll::Ready(None),
        }
    }
}

/// The body of a request. A caller that stops sending in the middle of it is cut off.
pub(crate) struct RequestBody<B = Incoming> {
    incoming: B,
    /// Expires when the caller has been silent for too long; `None` while data is available.
    silence: Option<Pin<Box<Sleep>>>,
    /// Whether the caller may be silent: between the messages of a stream.
    rests: bool,
}

impl<B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin> RequestBody<B> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        loop {
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.silence = None;
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(status!(
                        Cancelled,
                        "the request was interrupted: {error}"
                    ))));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if self.rests => return Poll::Pending,
                Poll::Pending => {
                    let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(MAX_SILENCE)));
                    ready!(silence.as_mut().poll(cx));
                    let seconds = MAX_SILENCE.as_secs();
                    let refusal = status!(DeadlineExceeded, "the request stalled for {seconds} seconds");
                    return Poll::Ready(Some(Err(refusal)));
                }
            }
        }
    }
}

/// Reads the message prefix and returns a reader of the message.
pub(crate) async fn open(headers: &HeaderMap, body: Incoming, intake: &Arc<Intake>) -> Result<Request> {
    let mut source = RequestSource::Body(RequestBody { incoming: body, silence: None, rests: false });
    let mut start = Bytes::new();
    while start.len() < 5 {
        match poll_fn(|cx| source.poll_frame(cx)).await {
            Some(frame) if start.is_empty() => start = frame?,
            Some(frame) => start = [&start[..], &frame?].concat().into(),
            None => bail!(Internal, "the request ends before its message starts"),
        }
    }
    let compressed = start.get_u8();
    let length = u64::from(start.get_u32());
    let mut reader = Reader::new(source, start, length, intake);
    if compressed == 0 {
        return Ok(reader);
    }
    ensure!(compressed == 1, Internal, "malformed request: {compressed} is not a compression flag");
    let packed = reader.bytes(length).await?;
    let encoding = Encoding::of(headers.get("grpc-encoding"))?;
    let mut charge = intake.charge();
    let inflated = if packed.len() < INFLATED_IN_PLACE {
        inflate(encoding, &packed, &mut charge)?
    } else {
        // Inflating takes a while, and this thread has other calls to serve.
        let inflating = move || inflate(encoding, &packed, &mut charge).map(|message| (message, charge));
        let inflated = spawn_blocking(inflating).await;
        let (message, charged) =
            inflated.map_err(|error| status!(Internal, "cannot decompress a message: {error}"))??;
        charge = charged;
        message
    };
    let length = inflated.len() as u64;
    let mut inflated = Reader::new(RequestSource::Nothing, inflated, length, intake);
    *inflated.gathered() = charge;
    Ok(inflated)
}

/// The messages of a streaming request, one after the other.
pub(crate) struct RequestStream {
    body: RequestBody,
    /// The bytes of the next message that have arrived.
    start: Bytes,
    intake: Arc<Intake>,
}

impl RequestStream {
    /// The messages of this body.
    pub(crate) fn new(body: Incoming, intake: &Arc<Intake>) -> RequestStream {
        let body = RequestBody { incoming: body, silence: None, rests: true };
        RequestStream { body, start: Bytes::new(), intake: intake.clone() }
    }

    /// The next message, and what is charged for it; `None` after the last.
    pub(crate) async fn next<M: Message + Default>(&mut self) -> Result<Option<(M, Charge)>> {
        while self.start.len() < 5 {
            self.body.rests = self.start.is_empty();
            match poll_fn(|cx| self.body.poll_frame(cx)).await {
                Some(frame) if self.start.is_empty() => self.start = frame?,
                Some(frame) => self.start = [&self.start[..], &frame?].concat().into(),
                None if self.start.is_empty() => return Ok(None),
                None => bail!(Internal, "the request ends before its message starts"),
            }
        }
        self.body.rests = false;
        let compressed = self.start.get_u8();
        ensure!(compressed == 0, Unimplemented, "compressed messages are not supported in a stream");
        let length = u64::from(self.start.get_u32());
        let start = std::mem::take(&mut self.start);
        let mut reader = Reader::new(&mut self.body, start, length, &self.intake);
        let message = reader.decode().await?;
        let (_, rest, charge) = reader.into_rest();
        self.start = rest;
        Ok(Some((message, charge)))
    }
}

impl ByteSource for &mut RequestBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        RequestBody::poll_frame(self, cx)
    }
}

/// The compression of a message.
#[derive(Clone, Copy)]
enum Encoding {
    Gzip,
    Deflate,
}

impl Encoding {
    fn of(header: Option<&HeaderValue>) -> Result<Encoding> {
        match header.map(HeaderValue::as_bytes) {
            Some(b"gzip") => Ok(Encoding::Gzip),
            Some(b"deflate") => Ok(Encoding::Deflate),
            Some(other) => {
                bail!(Unimplemented, "messages compressed with {} are not supported", other.escape_ascii())
            }
            None => bail!(Internal, "a compressed message without a grpc-encoding header"),
        }
    }
}

/// Inflates a message. The output grows as it is produced and is charged before each step, because nothing on the wire
/// says how large it will be.
fn inflate(encoding: Encoding, packed: &[u8], charge: &mut Charge) -> Result<Bytes> {
    let mut unpacked: Box<dyn Read + '_> = match encoding {
        Encoding::Gzip => Box::new(flate2::read::GzDecoder::new(packed)),
        Encoding::Deflate => Box::new(flate2::read::ZlibDecoder::new(packed)),
    };
    let mut out = Vec::new();
    loop {
        if out.len() == out.capacity() {
            let more = out.len().clamp(INFLATED_AT_ONCE, MAX_INFLATED);
            charge.add(more)?;
            let reserved = out.try_reserve_exact(more);
            reserved
                .map_err(|_| status!(ResourceExhausted, "no memory for a message of {} bytes", out.len()))?;
        }
        let room = (out.capacity() - out.len()) as u64;
        let read = unpacked.by_ref().take(room).read_to_end(&mut out);
        let read = read.or_else(|error| bail!(Internal, "cannot decompress a message: {error}"))?;
        ensure!(
            out.len() <= MAX_INFLATED,
            ResourceExhausted,
            "a compressed message decompresses to more than {MAX_INFLATED} bytes"
        );
        if read == 0 {
            return Ok(out.into());
        }
    }
}

/// Returns the caller's timeout.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let malformed = || status!(Internal, "malformed grpc-timeout {value:?}");
    let text = value.to_str().map_err(|_| malformed())?;
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(malformed)?;
    ensure!(digits.len() <= 8, Internal, "malformed grpc-timeout {value:?}");
    let count: u64 = digits.parse().map_err(|_| malformed())?;
    Ok(Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return Err(malformed()),
    }))
}

/// Builds the response to a call. A failed call has headers only.
pub(crate) fn respond(outcome: Result<Rope>) -> Response<Pieces> {
    let mut response = Response::new(Pieces::default());
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity,deflate,gzip"));
    match outcome.and_then(Rope::finish) {
        Ok(pieces) => {
            *response.body_mut() = Pieces { pieces, messages: None, trailers: Some(to_trailers(Ok(()))) }
        }
        Err(status) => headers.extend(to_trailers(Err(&status))),
    }
    response
}

/// The response to a streaming call: messages as they come, then how it ended.
pub(crate) fn respond_streaming(messages: BoxStream<'static, Streamed>) -> Response<Pieces> {
    let mut response = respond(Ok(Rope::new()));
    *response.body_mut() = Pieces { messages: Some(messages), ..Pieces::default() };
    response
}

/// A piece of the response of a streaming call.
pub(crate) enum Streamed {
    /// A message, in pieces.
    Message(VecDeque<Bytes>),
    /// The end.
    End(Result<()>),
}

/// Returns whether a request is a gRPC call.
pub(crate) fn is_call(method: &http::Method, headers: &HeaderMap) -> bool {
    let content_type = headers.get(http::header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    method == http::Method::POST && content_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}

/// The body of a response: pieces of a message, then trailers.
#[derive(Default)]
pub(crate) struct Pieces {
    pieces: VecDeque<Bytes>,
    /// Further messages.
    messages: Option<BoxStream<'static, Streamed>>,
    trailers: Option<HeaderMap>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some(messages) = &mut self.messages else { break };
            match ready!(messages.poll_next_unpin(cx)) {
                Some(Streamed::Message(pieces)) => self.pieces = pieces,
                Some(Streamed::End(outcome)) => {
                    self.trailers = Some(to_trailers(outcome.as_ref().copied()));
                    self.messages = None;
                }
                None => self.messages = None,
            }
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.messages.is_none() && self.trailers.is_none()
    }
}

/// The status of a call that exceeded its deadline, in the words of gRPC's own clients.
pub(crate) fn deadline_exceeded() -> Status {
    status!(DeadlineExceeded, "Deadline Exceeded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::tensor::BufferPool;
    use std::io::Write;

    fn inflated(encoding: Option<&HeaderValue>, packed: &[u8]) -> Result<Bytes> {
        let intake = Intake::new(BufferPool::new(0), 4 << 20);
        inflate(Encoding::of(encoding)?, packed, &mut intake.charge())
    }

    /// The body of a caller that sends one chunk and then stops.
    struct Stalled(Option<Bytes>);

    impl Body for Stalled {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_fall_silent_are_given_up() {
        let start = tokio::time::Instant::now();
        let mut body = RequestBody { incoming: Stalled(Some("a start".into())), silence: None, rests: false };
        let first = poll_fn(|cx| body.poll_frame(cx)).await;
        assert_eq!(first.unwrap().unwrap(), "a start");
        let refused = poll_fn(|cx| body.poll_frame(cx)).await.unwrap().unwrap_err();
        assert_eq!(refused.code(), ferroflow_core::Code::DeadlineExceeded);
        assert_eq!(start.elapsed(), MAX_SILENCE);
    }

    #[test]
    fn a_message_that_inflates_beyond_the_budget_is_refused() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        (0..64).for_each(|_| encoder.write_all(&[0; 1 << 20]).unwrap());
        let packed = encoder.finish().unwrap();
        assert!(packed.len() < 1 << 17, "{} bytes become 64 MiB", packed.len());
        let refused = inflated(Some(&HeaderValue::from_static("gzip")), &packed).unwrap_err();
        assert_eq!(refused.code(), ferroflow_core::Code::ResourceExhausted);
    }

    #[test]
    fn timeouts_are_read_in_every_unit() {
        let parse = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_static(text));
            timeout(&headers)
        };
        assert_eq!(parse("2H").unwrap(), Some(Duration::from_secs(7200)));
        assert_eq!(parse("250m").unwrap(), Some(Duration::from_millis(250)));
        assert_eq!(parse("99999999n").unwrap(), Some(Duration::from_nanos(99_999_999)));
        for bad in ["", "m", "1", "1x", "-1m", "123456789m"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(timeout(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn compressed_messages_are_read() {
        let mut zlib = flate2::read::ZlibEncoder::new(&b"message"[..], flate2::Compression::fast());
        let mut packed = Vec::new();
        zlib.read_to_end(&mut packed).unwrap();
        let encoding = HeaderValue::from_static("deflate");
        assert_eq!(inflated(Some(&encoding), &packed).unwrap(), "message");
        assert!(inflated(Some(&encoding), b"garbage").is_err());
        assert!(inflated(Some(&HeaderValue::from_static("br")), &packed).is_err());
        assert!(inflated(None, &packed).is_err());
    }
}
