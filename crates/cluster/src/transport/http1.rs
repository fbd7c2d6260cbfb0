//! Requests of browsers, probes and scrapers, on the port of the services.

use super::greeting::GREETING_WAIT;
use super::server::Services;
use crate::metrics;
use ferroflow_core::Status;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The largest head of a request.
const HEAD_BYTES: usize = 16 << 10;

const PLAIN: &str = "text/plain; charset=utf-8";
/// The text format of Prometheus, as it asks for it.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a connection that begins with this byte speaks HTTP/1: the first letter of `GET` and `HEAD`.
pub(super) fn speaks(first_byte: u8) -> bool {
    matches!(first_byte, b'G' | b'H')
}

/// Serves a connection until it ends or `stop` changes.
pub(super) async fn serve(
    stream: TcpStream,
    services: Arc<Services>,
    refusal: Option<Status>,
    mut stop: watch::Receiver<()>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&services, refusal.as_ref(), request.method(), request.uri().path());
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(GREETING_WAIT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = connection => ended,
        _ = stop.changed() => return,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "A connection of a browser or scraper was interrupted.");
    }
}

fn answer(services: &Services, refusal: Option<&Status>, method: &Method, path: &str) -> Response<String> {
    if let Some(refusal) = refusal {
        return respond(StatusCode::FORBIDDEN, PLAIN, format!("{}\n", refusal.message()));
    }
    if *method != Method::GET && *method != Method::HEAD {
        let mut refused = respond(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match path {
        "/" => respond(StatusCode::OK, PLAIN, index(services)),
        "/healthz" => respond(StatusCode::OK, PLAIN, "ok\n".to_owned()),
        "/readyz" => match services.worker.check_not_draining() {
            Ok(()) => respond(StatusCode::OK, PLAIN, "ready\n".to_owned()),
            Err(ending) => respond(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{}\n", ending.message())),
        },
        "/metrics" => respond(StatusCode::OK, METRICS, metrics::render(services)),
        _ => respond(StatusCode::NOT_FOUND, PLAIN, format!("there is no {path} here; see /\n")),
    }
}

fn index(services: &Services) -> String {
    format!(
        "Ferroflow {} serves {}.\n\n/metrics  counts and durations, for Prometheus\n/healthz  whether the process \
         answers\n/readyz   whether it takes new work\n",
        env!("CARGO_PKG_VERSION"),
        services.worker.task()
    )
}

fn respond(code: StatusCode, kind: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
