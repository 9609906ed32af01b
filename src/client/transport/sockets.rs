//! Opens TCP connections to the API server: at most so many, and none whose bytes arrive long after they were sent.
//!
//! Mirrors client-go's `net.Dialer`; the two bounds are ours.
//! Flow: transport -> **sockets** -> kernel
//!
//! # Guarantees
//! - On Linux, bytes that nobody has acknowledged are given up after a while, also those of a request that was cut when the
//!   Lease ran out. (test: `cut_request_does_not_arrive_late`) A proxy or load balancer may acknowledge them and deliver
//!   them later, and the kernel's time stands still while the machine is suspended.
//! - A connection whose peer has vanished is noticed, although nothing is sent. (test: `sockets_are_watched_and_sent_at_once`)
//! - At most so many connections are open; who wants one more waits. (test: `open_sockets_are_bounded`)

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiResolver, Name};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{BoxError, Service, ServiceExt};

/// How long a TCP connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// When an idle connection is probed first, and how often from then on.
const PROBED_AFTER: Duration = Duration::from_secs(15);
const PROBED_EVERY: Duration = Duration::from_secs(5);

/// Opens connections, a bounded number at once. Cheap to clone; clones share the bound.
#[derive(Clone)]
pub(super) struct Sockets {
    tcp: HttpConnector<Resolver>,
    permits: Arc<Semaphore>,
}

/// Looks up the addresses of a host.
#[derive(Clone)]
struct Resolver(GaiResolver);

/// A host without an address.
#[derive(Debug, thiserror::Error)]
#[error("the host {host} is unknown ({source}); check the server's URL, and the DNS of this machine")]
pub(in crate::client) struct UnknownHost {
    host: Name,
    source: io::Error,
}

/// An open connection.
pub(super) struct Socket {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

// === impl Sockets ===

impl Sockets {
    /// At most so many connections as there are permits, with so long for bytes to be acknowledged.
    pub(super) fn new(permits: Arc<Semaphore>, unacknowledged: Duration) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
        // URLs have the scheme https; TLS wraps this connector.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(PROBED_AFTER));
        tcp.set_keepalive_interval(Some(PROBED_EVERY));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(unacknowledged));
        Self { tcp, permits }
    }

    pub(super) fn unbounded(unacknowledged: Duration) -> Self {
        Self::new(Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)), unacknowledged)
    }
}

impl Service<Uri> for Sockets {
    type Response = TokioIo<Socket>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Self { tcp, permits } = self.clone();
        Box::pin(async move {
            let permit = permits.acquire_owned().await?;
            let stream = tcp.oneshot(server).await?.into_inner();
            Ok(TokioIo::new(Socket { stream, _permit: permit }))
        })
    }
}

// === impl Resolver ===

impl Service<Name> for Resolver {
    type Response = GaiAddrs;
    type Error = UnknownHost;
    type Future = BoxFuture<'static, Result<GaiAddrs, UnknownHost>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), UnknownHost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, host: Name) -> Self::Future {
        let resolver = self.0.clone();
        Box::pin(async move {
            let found = resolver.oneshot(host.clone()).await;
            found.map_err(|source| UnknownHost { host, source })
        })
    }
}

// === impl Socket ===

impl Connection for Socket {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
