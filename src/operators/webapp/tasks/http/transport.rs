//! Sends a task's requests to its endpoint: the [`Transport`] trait, and `reqwest` behind it.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use reqwest::{Certificate, Client, ClientBuilder, redirect, retry};

use super::HttpSpec;
use super::rotating::RotatingFile;

/// How long opening a connection may take; the task's timeout applies, too.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept: less than endpoints and their load balancers keep it.
const IDLE: Duration = Duration::from_secs(30);

/// Sends one request and returns the answer, whatever its code, without retries and redirects.
///
/// The body of the answer is read for a 409 only; it is `None` otherwise, and if it is longer than `max_body`.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request; whether it had its effect is unknown.
    fn send(
        &self,
        request: Request<Bytes>,
        max_body: usize,
    ) -> BoxFuture<'_, Result<Response<Option<Bytes>>, SendError>>;
}

/// No answer came. The text quotes neither the request nor the peer; the source is for the log.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct SendError {
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl SendError {
    /// Creates an error; `text` must quote neither the request nor the peer.
    #[must_use]
    pub fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), source: None }
    }
}

/// Sends requests over the network.
pub(super) struct ReqwestTransport {
    client: Source,
}

enum Source {
    Fixed(Client),
    /// Rebuilt when the certificates change; open connections stay with the old client.
    OfCaFile(RotatingFile<Client>),
}

// === impl ReqwestTransport ===

impl ReqwestTransport {
    pub(super) fn new(task: &str, spec: &HttpSpec) -> Result<Self, &'static str> {
        let client = match &spec.ca_file {
            Some(path) => Source::OfCaFile(RotatingFile::new(task, "caFile", path, trusting)),
            None if spec.is_https() => Source::Fixed(
                builder().build().map_err(|_| "the system has no trusted CA certificates; set caFile")?,
            ),
            // Without TLS no certificates are loaded.
            None => Source::Fixed(
                builder().tls_certs_only([]).build().map_err(|_| "could not create the HTTP client")?,
            ),
        };
        Ok(Self { client })
    }

    async fn send(
        &self,
        request: Request<Bytes>,
        max_body: usize,
    ) -> Result<Response<Option<Bytes>>, SendError> {
        let client = match &self.client {
            Source::Fixed(client) => client.clone(),
            Source::OfCaFile(file) => {
                let unusable = |cause| SendError {
                    text: format!("the task's caFile cannot be used: {cause}"),
                    source: None,
                };
                file.current().map_err(unusable)?.value
            }
        };
        let request = request.try_into().map_err(explain)?;
        let mut answer = client.execute(request).await.map_err(explain)?;
        let mut response = Response::new(None);
        *response.status_mut() = answer.status();
        *response.headers_mut() = std::mem::take(answer.headers_mut());
        if answer.status() == StatusCode::CONFLICT {
            *response.body_mut() = body(answer, max_body).await?;
        }
        Ok(response)
    }
}

impl Transport for ReqwestTransport {
    fn send(
        &self,
        request: Request<Bytes>,
        max_body: usize,
    ) -> BoxFuture<'_, Result<Response<Option<Bytes>>, SendError>> {
        Box::pin(self.send(request, max_body))
    }
}

impl fmt::Debug for ReqwestTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReqwestTransport").finish_non_exhaustive()
    }
}

// === free functions ===

fn builder() -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE)
}

/// Builds a client that trusts these authorities and no others.
fn trusting(pem: &[u8]) -> Result<Client, &'static str> {
    let certificates = Certificate::from_pem_bundle(pem).map_err(|_| "it is not PEM")?;
    if certificates.is_empty() {
        return Err("it contains no certificate");
    }
    builder().tls_certs_only(certificates).build().map_err(|_| "a certificate in it cannot be used")
}

/// Reads the body; returns `None` once it exceeds `max`, without reading the rest.
async fn body(mut answer: reqwest::Response, max: usize) -> Result<Option<Bytes>, SendError> {
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(explain)? {
        if body.len() + chunk.len() > max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body.freeze()))
}

/// Describes an error by its kind alone.
fn explain(error: reqwest::Error) -> SendError {
    let text = match io_kind(&error) {
        _ if error.is_timeout() => "connecting to the task's endpoint timed out",
        Some(io::ErrorKind::ConnectionRefused) => "the task's endpoint refused the connection",
        Some(io::ErrorKind::InvalidData) if error.is_connect() => {
            "the task's endpoint has no trusted certificate valid now and for its name, or does not speak TLS"
        }
        _ if error.is_connect() => "could not connect to the task's endpoint",
        _ => "the connection to the task's endpoint broke before the answer arrived",
    };
    SendError { text: text.to_owned(), source: Some(Box::new(error.without_url())) }
}

/// Returns the kind of the innermost `io::Error`. The error that it wraps is not its source but its inner error.
fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut kind = None;
    let mut cause = Some(error);
    while let Some(error) = cause {
        cause = match error.downcast_ref::<io::Error>() {
            Some(error) => {
                kind = Some(error.kind());
                error.get_ref().map(|inner| inner as &(dyn Error + 'static))
            }
            None => error.source(),
        };
    }
    kind
}
