//! The way from a task to its endpoint: a seam, and `reqwest` behind it.

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

/// How long a connection may take to be made; the task's timeout holds beside it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection is kept without a request: less than endpoints and what stands before them do.
const IDLE: Duration = Duration::from_secs(30);

/// Sends one request and gives the answer, whatever its code: nothing is repeated, no redirect is followed.
///
/// The body of the answer is read for a 409 only; it is `None` otherwise, and when it is longer than `max_body`.
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

/// No answer came. The text holds nothing of the request or of the peer; the source is for the log.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct SendError {
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl SendError {
    /// What happened, in words that hold nothing of the request or of the peer.
    #[must_use]
    pub fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), source: None }
    }
}

/// Over the network.
pub(super) struct ReqwestTransport {
    client: Source,
}

enum Source {
    Fixed(Client),
    /// Made anew when the certificates are; connections that are open are left with the old one.
    OfCaFile(RotatingFile<Client>),
}

// === impl ReqwestTransport ===

impl ReqwestTransport {
    pub(super) fn new(task: &str, spec: &HttpSpec) -> Result<Self, &'static str> {
        let client = match &spec.ca_file {
            Some(path) => Source::OfCaFile(RotatingFile::new(task, "caFile", path, trusting)),
            None if spec.is_https() => Source::Fixed(builder().build().map_err(
                |_| "the system has no certificates of authorities to trust; name a file of them as caFile",
            )?),
            // No TLS, so no certificates are looked for.
            None => Source::Fixed(
                builder().tls_certs_only([]).build().map_err(|_| "an HTTP client cannot be set up")?,
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

/// A client that trusts these authorities and no others.
fn trusting(pem: &[u8]) -> Result<Client, &'static str> {
    let certificates = Certificate::from_pem_bundle(pem).map_err(|_| "it is not PEM")?;
    if certificates.is_empty() {
        return Err("there is no certificate in it");
    }
    builder().tls_certs_only(certificates).build().map_err(|_| "a certificate in it cannot be used")
}

/// The body, if it is not longer than that; what is beyond is never read.
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

/// Says what happened by its kind alone.
fn explain(error: reqwest::Error) -> SendError {
    let text = match io_kind(&error) {
        _ if error.is_timeout() => "no connection to the task's endpoint was made in time",
        Some(io::ErrorKind::ConnectionRefused) => "the task's endpoint refused the connection",
        Some(io::ErrorKind::InvalidData) if error.is_connect() => {
            "the task's endpoint has no certificate that is trusted, valid now and for its name, or speaks no TLS"
        }
        _ if error.is_connect() => "no connection to the task's endpoint could be made",
        _ => "the connection to the task's endpoint broke before its answer was there",
    };
    SendError { text: text.to_owned(), source: Some(Box::new(error.without_url())) }
}

/// The kind of the innermost cause that has one. What an `io::Error` wraps is not its source but its inner error.
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
