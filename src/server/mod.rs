//! The endpoints: `/metrics` for Prometheus, `/livez` and `/readyz` for the kubelet and for people.
//!
//! Mirrors component-base `metrics`, apiserver `server/healthz` and controller-runtime `pkg/{healthz,metrics}`.
//!
//! # Guarantees
//! - A port that is taken is known before anything starts, and named. (test: `a_taken_port_is_named`)
//! - What is asked for is answered; other paths are 404, other methods 405. (test: `pages_are_served_and_the_rest_is_refused`)
//! - A client that says nothing is dropped. (test: `a_client_that_says_nothing_is_dropped`)
//! - A connection is for one answer, however slowly it is read. (test: `a_connection_is_for_one_answer`, `a_client_that_does_not_read_is_dropped`)
//! - No more than [`CONNECTIONS`] are open at once, and none of them for long. (test: `a_crowd_that_says_nothing_keeps_nobody_out`)
//!
//! # Locks and tasks
//! One task for each connection, owned by [`Server::run`]. HTTP is `hyper`'s.

pub mod health;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use health::{Check, Health, Verdict};

/// How many connections are open at once; further ones wait.
pub const CONNECTIONS: usize = 64;
/// How long a client may take to ask and to read the answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is answered.
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
}

/// Finds the page of a path and a query.
pub type Pages = Arc<dyn Fn(&str, &str) -> Option<Page> + Send + Sync>;

/// An address that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// Why.
    pub source: io::Error,
}

/// An address that is ours: taken before anything else starts, so that one that is not free is known early.
#[derive(Debug)]
pub struct Listener {
    inner: std::net::TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Takes an address; with port 0 a free one.
    ///
    /// # Errors
    /// [`ListenError`] when it cannot be had: another process has it, or it is none of this machine's.
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let error = |source| ListenError { address, source };
        let bound = std::net::TcpListener::bind(address);
        // A machine without IPv6 has all its addresses below 0.0.0.0.
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
}

/// Answers; see [`run`](Self::run).
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    pages: Pages,
}

// === impl Server ===

impl Server {
    /// Answers at this address with these pages.
    ///
    /// # Errors
    /// [`ListenError`] when the runtime does not take it.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(listener: Listener, pages: Pages) -> Result<Self, ListenError> {
        let Listener { inner, address } = listener;
        let listener = TcpListener::from_std(inner).map_err(|source| ListenError { address, source })?;
        Ok(Self { listener, address, pages })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown`; what is being answered then is cut.
    ///
    /// # Cancel safety
    /// Safe: dropping it is as good as `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&self.listener, &room) => accepted,
            };
            match accepted {
                Ok((stream, permit)) => {
                    let pages = self.pages.clone();
                    let talk = async move {
                        talk(stream, pages).await;
                        drop(permit);
                    };
                    connections.spawn(talk.in_current_span());
                }
                // Too many open files, say: those that are open go on.
                Err(error) => {
                    tracing::warn!(%error, "A connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// Accepts when there is room.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = room.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

async fn talk(stream: TcpStream, pages: Pages) {
    let answer = service_fn(move |request| {
        let response = answer(&request, &pages);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        // A place is for one answer: nobody keeps it by asking now and then.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    match tokio::time::timeout(PATIENCE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "A connection ended"),
        Err(_) => tracing::debug!("A client was too slow"),
    }
}

fn answer(request: &Request<Incoming>, pages: &Pages) -> Response<Full<Bytes>> {
    let page = if matches!(*request.method(), Method::GET | Method::HEAD) {
        let uri = request.uri();
        let page = pages(uri.path(), uri.query().unwrap_or_default());
        page.unwrap_or_else(|| Page::text(404, "404 page not found\n"))
    } else {
        Page::text(405, "405 method not allowed: GET and HEAD are\n")
    };
    let mut response = Response::new(Full::new(Bytes::from(page.body)));
    *response.status_mut() = StatusCode::from_u16(page.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(page.media));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
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

    /// One request; the whole answer as text.
    async fn ask(address: SocketAddr, line: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn pages_are_served_and_the_rest_is_refused() {
        let (address, mut tasks, shutdown) = start().await;
        let found = ask(address, "GET /here?verbose").await;
        assert!(found.starts_with("HTTP/1.1 200") && found.ends_with("query \"verbose\"\n"), "{found}");
        let head = ask(address, "HEAD /here").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(ask(address, "GET /there").await.starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /here").await.starts_with("HTTP/1.1 405"));
        shutdown.cancel();
        tasks.join_next().await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let (address, _tasks, _shutdown) = start().await;
        let error = Listener::bind(address).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot listen on {address}: ")), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_dropped() {
        let (address, _tasks, _shutdown) = start().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let started = tokio::time::Instant::now();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(10 * PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "it was not dropped");
        assert!(started.elapsed() >= PATIENCE, "it had its time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_that_says_nothing_keeps_nobody_out() {
        let (address, _tasks, _shutdown) = start().await;
        let mut crowd = Vec::new();
        for _ in 0..CONNECTIONS {
            crowd.push(TcpStream::connect(address).await.unwrap());
        }
        let started = tokio::time::Instant::now();
        let found = tokio::time::timeout(2 * PATIENCE, ask(address, "GET /here")).await.unwrap();
        assert!(found.starts_with("HTTP/1.1 200"), "{found}");
        assert!(started.elapsed() >= PATIENCE, "there was no room before");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_for_one_answer() {
        let (address, _tasks, _shutdown) = start().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /here HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let started = tokio::time::Instant::now();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(started.elapsed() < PATIENCE, "it is closed at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_dropped() {
        // More than sockets buffer.
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
        // Reset, or ended early: either way it did not wait.
        let outcome = stream.read_to_end(&mut received).await;
        assert!(outcome.is_err() || received.len() < LENGTH, "{} bytes", received.len());
    }
}
