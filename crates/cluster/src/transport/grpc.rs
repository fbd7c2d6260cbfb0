//! Unary gRPC over HTTP/2: what a request says in its headers, how its message starts, how a response ends.

use super::reader::{Frames, Reader};
use super::rope::Rope;
use super::status::to_trailers;
use bytes::{Buf, Bytes};
use ferroflow_core::{Result, Status, bail, ensure, status};
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// What a compressed message may grow to: the largest that other implementations of the protocol accept.
const MAX_INFLATED: u64 = i32::MAX as u64;

/// The message of one request, as it arrives.
pub(crate) type Request = Reader<Source>;

/// Where a request's bytes come from.
pub(crate) enum Source {
    /// The frames of the HTTP body.
    Body(Incoming),
    /// Nothing more: the message was at hand as a whole.
    Nothing,
}

impl Frames for Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let Source::Body(body) = self else { return Poll::Ready(None) };
        loop {
            let frame = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(status!(Cancelled, "the request broke off: {error}"))));
                }
                None => return Poll::Ready(None),
            };
            if let Ok(data) = frame.into_data() {
                return Poll::Ready(Some(Ok(data)));
            }
        }
    }
}

/// Reads the prefix of the message and prepares to read the message itself.
pub(crate) async fn open(headers: &HeaderMap, body: Incoming) -> Result<Request> {
    let mut source = Source::Body(body);
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
    let mut reader = Reader::new(source, start, length);
    if compressed == 0 {
        return Ok(reader);
    }
    ensure!(compressed == 1, Internal, "malformed request: {compressed} marks no message");
    let packed = reader.bytes(length).await?;
    let message = inflate(headers.get("grpc-encoding"), &packed)?;
    let length = message.len() as u64;
    Ok(Reader::new(Source::Nothing, message, length))
}

fn inflate(encoding: Option<&HeaderValue>, packed: &[u8]) -> Result<Bytes> {
    let mut out = Vec::new();
    let read = match encoding.map(HeaderValue::as_bytes) {
        Some(b"gzip") => flate2::read::GzDecoder::new(packed).take(MAX_INFLATED + 1).read_to_end(&mut out),
        Some(b"deflate") => {
            flate2::read::ZlibDecoder::new(packed).take(MAX_INFLATED + 1).read_to_end(&mut out)
        }
        Some(other) => {
            bail!(Unimplemented, "messages compressed with {} are not supported", other.escape_ascii())
        }
        None => bail!(Internal, "a compressed message without a grpc-encoding"),
    };
    read.or_else(|error| bail!(Internal, "a compressed message cannot be read: {error}"))?;
    ensure!(
        out.len() as u64 <= MAX_INFLATED,
        ResourceExhausted,
        "a compressed message holds more than {MAX_INFLATED} bytes"
    );
    Ok(out.into())
}

/// How long the caller is willing to wait.
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

/// The response to a call. A failed one has headers only.
pub(crate) fn respond(outcome: Result<Rope>) -> Response<Pieces> {
    let mut response = Response::new(Pieces::default());
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity,deflate,gzip"));
    match outcome.and_then(Rope::finish) {
        Ok(pieces) => *response.body_mut() = Pieces { pieces, trailers: Some(to_trailers(Ok(()))) },
        Err(status) => headers.extend(to_trailers(Err(&status))),
    }
    response
}

/// Whether these headers start a gRPC call at all.
pub(crate) fn is_call(method: &http::Method, headers: &HeaderMap) -> bool {
    let content_type = headers.get(http::header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    method == http::Method::POST && content_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}

/// The body of a response: pieces of a message, then trailers.
#[derive(Default)]
pub(crate) struct Pieces {
    pieces: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(piece) = self.pieces.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.trailers.is_none()
    }
}

/// The status of a call whose deadline passed, in the words of gRPC's own clients.
pub(crate) fn deadline_exceeded() -> Status {
    status!(DeadlineExceeded, "Deadline Exceeded")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(inflate(Some(&encoding), &packed).unwrap(), "message");
        assert!(inflate(Some(&encoding), b"garbage").is_err());
        assert!(inflate(Some(&HeaderValue::from_static("br")), &packed).is_err());
    }
}
