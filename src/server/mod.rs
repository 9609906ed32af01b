//! Serves pages over HTTP: `/metrics` for Prometheus, `/livez` and `/readyz` for the kubelet and for people.
//!
//! Mirrors component-base `metrics` and controller-runtime `pkg/metrics/server`.
//!
//! # Guarantees
//! - A taken port is reported, with its address, before anything starts. (test: `taken_port_is_reported_with_its_address`)
//! - Known pages are served; other paths get 404, other methods 405. (test: `pages_are_served_and_other_requests_refused`)
//! - A client that sends nothing is dropped. (test: `silent_client_is_dropped`)
//! - A connection serves one response, and a client that reads too slowly is dropped. (test: `connection_closes_after_one_response`, `client_that_does_not_read_is_dropped`)
//! - At most [`CONNECTIONS`] are open at once, and none for long. (test: `silent_clients_do_not_lock_out_others`)
//! - A handler may stream its response without end; when its client is gone, the response is dropped.
//!   (test: `streamed_response_is_dropped_with_its_client`)
//! - With a certificate, pages are served over TLS alone; with a guard, only to clients that it admits.
//!   (test: `protected_pages_need_tls_and_a_permit`)
//!
//! # Locks and tasks
//! One task per connection, owned by [`Server::run`]. `hyper` implements HTTP.

mod tls;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use tls::{CertificateError, Certificates};

/// How many connections are open at once. A further one replaces the oldest whose client has sent nothing.
pub const CONNECTIONS: usize = 64;
/// How long a client may take to send a request and to read the response.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may take to send the head of its request.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// HTTP status.
    pub code: u16,
    /// Media type.
    pub media: &'static str,
    /// Body.
    pub body: String,
}

impl Page {
    /// Plain text.
    #[must_use]
    pub fn text(code: u16, body: impl Into<String>) -> Self {
        Self { code, media: "text/plain; charset=utf-8", body: body.into() }
    }

    /// Converts the page to a response.
    #[must_use]
    pub fn into_answer(self) -> Answer {
        let mut response = Response::new(Full::new(Bytes::from(self.body)).boxed_unsync());
        *response.status_mut() = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }
}

/// Returns the page for a path and a query, if there is one.
pub type Pages = Arc<dyn Fn(&str, &str) -> Option<Page> + Send + Sync>;

/// Decides from the header `Authorization` and the path whether a client may see the page; returns the page to answer
/// with if not.
pub type Guard = Arc<dyn Fn(Option<String>, String) -> BoxFuture<'static, Result<(), Page>> + Send + Sync>;

/// A response of a [`Handler`].
pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Answers requests. There is no limit on the time of a response, so that it may be a stream.
pub type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Answer> + Send + Sync>;

/// The server cannot listen on an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The cause.
    pub source: io::Error,
}

/// A bound address: bound before anything else starts, so that a taken port is reported early.
#[derive(Debug)]
pub struct Listener {
    inner: std::net::TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds an address; port 0 picks a free port.
    ///
    /// # Errors
    /// [`ListenError`] if another process uses the address, or this machine does not have it.
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let error = |source| ListenError { address, source };
        let bound = std::net::TcpListener::bind(address);
        // Without IPv6, all addresses of the machine are covered by 0.0.0.0.
        let is_all = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let bound = match bound {
            Err(failure) if is_all && failure.kind() != io::ErrorKind::AddrInUse => {
                std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))
            }
            bound => bound,
        };
        let inner = bound.map_err(error)?;
        inner.set_nonblocking(true).map_err(error)?;
        let address = inner.local_addr().map_err(error)?;
        Ok(Self { inner, address })
    }

    /// Returns the bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Serves pages on one address; see [`run`](Self::run).
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    site: Site,
}

/// The content of the server, shared by its connections.
#[derive(Clone)]
struct Site {
    content: Content,
    guard: Option<Guard>,
    certificates: Option<Arc<Certificates>>,
}

#[derive(Clone)]
enum Content {
    Pages(Pages),
    Handler(Handler),
}

// === impl Server ===

impl Server {
    /// Creates a server for `pages` on the listener's address.
    ///
    /// # Errors
    /// [`ListenError`] if the runtime does not accept the listener.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn new(listener: Listener, pages: Pages) -> Result<Self, ListenError> {
        Self::of(listener, Content::Pages(pages))
    }

    /// Creates a server whose requests `handler` answers.
    ///
    /// # Errors
    /// [`ListenError`] if the runtime does not accept the listener.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn with_handler(listener: Listener, handler: Handler) -> Result<Self, ListenError> {
        Self::of(listener, Content::Handler(handler))
    }

    fn of(listener: Listener, content: Content) -> Result<Self, ListenError> {
        let Listener { inner, address } = listener;
        let listener = TcpListener::from_std(inner).map_err(|source| ListenError { address, source })?;
        Ok(Self { listener, address, site: Site { content, guard: None, certificates: None } })
    }

    /// Serves over TLS, and only to clients that `guard` admits.
    #[must_use]
    pub fn protected_by(mut self, certificates: Certificates, guard: Guard) -> Self {
        self.site.certificates = Some(Arc::new(certificates));
        self.site.guard = Some(guard);
        self
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, which cuts open connections.
    ///
    /// # Cancel safety
    /// Safe: dropping the future has the effect of `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let (mut connections, mut silent) = (JoinSet::new(), VecDeque::<Silent>::new());
        loop {
            silent.retain(Silent::is_silent);
            let has_room = connections.len() < CONNECTIONS || !silent.is_empty();
            let accepted = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(_) = connections.join_next() => continue,
                accepted = self.listener.accept(), if has_room => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    if connections.len() >= CONNECTIONS
                        && let Some(oldest) = silent.pop_front()
                    {
                        oldest.task.abort();
                    }
                    let has_asked = Arc::<AtomicBool>::default();
                    let talk = talk(stream, self.site.clone(), has_asked.clone());
                    silent.push_back(Silent { task: connections.spawn(talk.in_current_span()), has_asked });
                }
                // Too many open files, for example: open connections continue.
                Err(error) => {
                    tracing::warn!(%error, "Could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// A connection whose client has not sent a request yet.
struct Silent {
    task: AbortHandle,
    has_asked: Arc<AtomicBool>,
}

impl Silent {
    fn is_silent(&self) -> bool {
        !self.has_asked.load(Ordering::Relaxed) && !self.task.is_finished()
    }
}

async fn talk(stream: TcpStream, site: Site, has_asked: Arc<AtomicBool>) {
    let Some(certificates) = &site.certificates else {
        return converse(stream, site, has_asked).await;
    };
    let handshake = certificates.acceptor().accept(stream);
    match tokio::time::timeout(HEADER_PATIENCE, handshake).await {
        Ok(Ok(stream)) => converse(stream, site, has_asked).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("Closed a slow client's connection"),
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    site: Site,
    has_asked: Arc<AtomicBool>,
) {
    let patience = match &site.content {
        Content::Pages(_) => PATIENCE,
        Content::Handler(_) => Duration::MAX,
    };
    let answer = service_fn(move |request| {
        has_asked.store(true, Ordering::Relaxed);
        let site = site.clone();
        async move {
            Ok::<_, Infallible>(match &site.content {
                Content::Pages(pages) => answer(&request, &site, pages).await,
                Content::Handler(handler) => handler(request).await,
            })
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        // No client may keep a connection by sending a request now and then.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    match tokio::time::timeout(patience, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "Connection ended with an error"),
        Err(_) => tracing::debug!("Closed a slow client's connection"),
    }
}

async fn answer(request: &Request<Incoming>, site: &Site, pages: &Pages) -> Answer {
    page(request, site, pages).await.unwrap_or_else(|refusal| refusal).into_answer()
}

/// Returns the page, or the refusal.
async fn page(request: &Request<Incoming>, site: &Site, pages: &Pages) -> Result<Page, Page> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Page::text(405, "405 method not allowed: use GET or HEAD\n"));
    }
    let uri = request.uri();
    if let Some(guard) = &site.guard {
        let authorization = request.headers().get(header::AUTHORIZATION);
        let authorization = authorization.and_then(|value| value.to_str().ok()).map(str::to_owned);
        guard(authorization, uri.path().to_owned()).await?;
    }
    let page = pages(uri.path(), uri.query().unwrap_or_default());
    page.ok_or_else(|| Page::text(404, "404 page not found\n"))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const ANYWHERE: SocketAddr =
        SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0));

    async fn start() -> (SocketAddr, JoinSet<()>, CancellationToken) {
        let pages: Pages =
            Arc::new(|path, query| (path == "/here").then(|| Page::text(200, format!("query {query:?}\n"))));
        let server = Server::new(Listener::bind(ANYWHERE).unwrap(), pages).unwrap();
        let (address, shutdown) = (server.address(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(shutdown.clone()));
        (address, tasks, shutdown)
    }

    /// Sends one request and returns the whole response as text.
    async fn ask(address: SocketAddr, line: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn pages_are_served_and_other_requests_refused() {
        let (address, mut tasks, shutdown) = start().await;
        let found = ask(address, "GET /here?verbose").await;
        assert!(found.starts_with("HTTP/1.1 200") && found.ends_with("query \"verbose\"\n"), "{found}");
        let head = ask(address, "HEAD /here").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(ask(address, "GET /there").await.starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /here").await.starts_with("HTTP/1.1 405"));
        shutdown.cancel();
        tasks.join_next().await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err(), "the port is still open");
    }

    #[tokio::test]
    async fn protected_pages_need_tls_and_a_permit() {
        let pages: Pages = Arc::new(|_, _| Some(Page::text(200, "secret\n")));
        let guard: Guard = Arc::new(|authorization, path| {
            let may = authorization.as_deref() == Some("Bearer good") && path == "/metrics";
            Box::pin(async move { if may { Ok(()) } else { Err(Page::text(401, "who?\n")) } })
        });
        let server = Server::new(Listener::bind(ANYWHERE).unwrap(), pages).unwrap();
        let server = server.protected_by(Certificates::self_signed().unwrap(), guard);
        let (address, mut tasks) = (server.address(), JoinSet::new());
        tasks.spawn(server.run(CancellationToken::new()));
        let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap();
        let ask = async |scheme: &str, token: &str| {
            let request = client.get(format!("{scheme}://{address}/metrics")).bearer_auth(token);
            let answer = request.send().await?;
            Ok::<_, reqwest::Error>((answer.status().as_u16(), answer.text().await?))
        };
        assert_eq!(ask("https", "good").await.unwrap(), (200, "secret\n".to_owned()));
        assert_eq!(ask("https", "wrong").await.unwrap(), (401, "who?\n".to_owned()));
        assert!(ask("http", "good").await.is_err());
    }

    #[tokio::test]
    async fn taken_port_is_reported_with_its_address() {
        let (address, _tasks, _shutdown) = start().await;
        let error = Listener::bind(address).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot listen on {address}: ")), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_client_is_dropped() {
        let (address, _tasks, _shutdown) = start().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let started = tokio::time::Instant::now();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(10 * PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the client was not dropped");
        assert!(started.elapsed() >= HEADER_PATIENCE, "the client was dropped too early");
    }

    #[tokio::test]
    async fn silent_clients_do_not_lock_out_others() {
        let (address, _tasks, _shutdown) = start().await;
        let mut crowd = Vec::new();
        for _ in 0..3 * CONNECTIONS {
            crowd.push(TcpStream::connect(address).await.unwrap());
        }
        let found = tokio::time::timeout(HEADER_PATIENCE, ask(address, "GET /here")).await;
        assert!(found.expect("it waits for nobody").starts_with("HTTP/1.1 200"));
    }

    #[tokio::test(start_paused = true)]
    async fn connection_closes_after_one_response() {
        let (address, _tasks, _shutdown) = start().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /here HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let started = tokio::time::Instant::now();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(started.elapsed() < PATIENCE, "the connection stayed open");
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_is_dropped() {
        // More than socket buffers hold.
        const LENGTH: usize = 32 << 20;
        let pages: Pages = Arc::new(|_, _| Some(Page::text(200, "x".repeat(LENGTH))));
        let server = Server::new(Listener::bind(ANYWHERE).unwrap(), pages).unwrap();
        let address = server.address();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(CancellationToken::new()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        tokio::time::sleep(2 * PATIENCE).await;
        let mut received = Vec::new();
        // A reset or an early end: in both cases the server did not wait.
        let outcome = stream.read_to_end(&mut received).await;
        assert!(outcome.is_err() || received.len() < LENGTH, "{} bytes", received.len());
    }

    #[tokio::test]
    async fn streamed_response_is_dropped_with_its_client() {
        let gone = CancellationToken::new();
        let of_handler = gone.clone();
        let handler: Handler = Arc::new(move |_| {
            let guard = of_handler.clone().drop_guard();
            Box::pin(async move {
                let lines = futures_util::stream::unfold(guard, |guard| async {
                    tokio::task::yield_now().await;
                    Some((Ok(http_body::Frame::data(Bytes::from_static(b"line\n"))), guard))
                });
                Response::new(http_body_util::StreamBody::new(lines).boxed_unsync())
            })
        });
        let server = Server::with_handler(Listener::bind(ANYWHERE).unwrap(), handler).unwrap();
        let (address, mut tasks) = (server.address(), JoinSet::new());
        tasks.spawn(server.run(CancellationToken::new()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        assert!(!gone.is_cancelled());
        drop(stream);
        tokio::time::timeout(PATIENCE, gone.cancelled()).await.expect("the response is dropped");
    }
}
