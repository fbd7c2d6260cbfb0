//! HTTP connections of stores: the HTTP client that the servers' transport is built on, with TLS.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The time that a server has to begin its answer.
const ANSWER: Duration = Duration::from_secs(30);
/// The time to open a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Makes the connections of a store.
#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed =
            |source: Box<dyn Error + Send + Sync>| object_store::Error::Generic { store: "HTTP", source };
        let plain = options.get_config_value(&object_store::ClientConfigKey::AllowHttp);
        let tls = tls_settings().map_err(|error| failed(error.into()))?;
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
        let builder =
            if plain.as_deref() == Some("true") { builder.https_or_http() } else { builder.https_only() };
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_nodelay(true);
        let connector = builder.enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(HttpClient::new(Connections(client)))
    }
}

/// Whom to trust: the authorities that browsers trust, and those in the file that `SSL_CERT_FILE` names.
fn tls_settings() -> io::Result<ClientConfig> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = std::env::var_os("SSL_CERT_FILE") {
        let invalid =
            |error: String| io::Error::new(io::ErrorKind::InvalidData, format!("SSL_CERT_FILE: {error}"));
        let certificates =
            CertificateDer::pem_file_iter(&path).map_err(|error| invalid(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
            roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let settings = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let settings = settings.map_err(io::Error::other)?;
    Ok(settings.with_root_certificates(roots).with_no_client_auth())
}

#[derive(Debug)]
struct Connections(Client<HttpsConnector<TcpConnector>, HttpRequestBody>);

#[async_trait::async_trait]
impl HttpService for Connections {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let late =
            || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", ANSWER.as_secs()));
        let answer = tokio::time::timeout(ANSWER, self.0.request(request)).await;
        let answer = answer.map_err(|_| HttpError::new(HttpErrorKind::Timeout, late()))?;
        let (parts, body) =
            answer.map_err(|error| HttpError::new(kind(&error, error.is_connect()), error))?.into_parts();
        let body: Incoming = body;
        let body = body.map_err(|error| HttpError::new(kind(&error, false), error));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// The kind of a failure, by which requests are repeated.
fn kind(error: &(dyn Error + 'static), connecting: bool) -> HttpErrorKind {
    if connecting {
        return HttpErrorKind::Connect;
    }
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            if error.is_closed() || error.is_incomplete_message() || error.is_body_write_aborted() {
                return HttpErrorKind::Request;
            }
            if error.is_timeout() {
                return HttpErrorKind::Timeout;
            }
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return match error.kind() {
                io::ErrorKind::TimedOut => HttpErrorKind::Timeout,
                _ => HttpErrorKind::Interrupted,
            };
        }
        cause = error.source();
    }
    HttpErrorKind::Unknown
}
