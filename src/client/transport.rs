//! Builds the connections to the API server, and the layers that each request passes.
//!
//! Mirrors client-go `transport`: the TLS setup, the credentials, the headers of impersonation. kube-client provides
//! the parts. They are assembled here because its own stack does more than we need (compression, retries, a span for
//! each request) and leaves Nagle's algorithm on, which Go disables: a request sent in two segments then waits for
//! the server's delayed acknowledgement, up to 40 ms.
//!
//! # Guarantees
//! - The connections of syncs are bounded. Lists and watches, whose number the configuration sets, have others, and the
//!   Lease has one of its own: requests that hang, or wait for a connection, delay neither.
//!   (test: `open_sockets_are_bounded`, `lease_is_renewed_while_other_requests_hang`)
//! - A connection that has gone silent costs the Lease one request. (test: `silent_connection_costs_the_lease_one_request`)
//! - Idle connections are closed. (test: `connections_of_a_burst_are_closed_when_idle`)
//! - Connections pass the configured proxy. (test: `requests_pass_http_and_socks_proxies`)

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Uri};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Client, Error as SendError, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube_client::client::{Body, ConfigExt};
use kube_client::{Config, Error};
use tokio::sync::Semaphore;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

pub(super) mod proxy;
mod sockets;

use proxy::Proxy;
pub(super) use sockets::UnknownHost;
use sockets::{Socket, Sockets};

/// How long an idle connection stays open: a burst leaves none behind. client-go's transport waits as long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The most connections of syncs that are open at once. Half of the process's files are left to others.
const SOCKETS_MAX: u64 = 1024;
/// How long a connection may take from the wait for its turn until TLS is agreed on: longer than a request waits for it,
/// so that this ends only what nobody waits for any more.
const CONNECT_MAX: Duration = Duration::from_secs(45);
/// How long sent bytes may be without acknowledgement. For those of writes, as long as a Lease lasts beyond the time by
/// which its holder must renew it, by default: what was cut then does not arrive while another process leads.
const UNACKNOWLEDGED: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];

/// A response whose body is unread.
pub(super) type Answer = <Client<HttpConnector, Body> as Service<Request<Body>>>::Response;
/// Sends requests with one set of credentials, over a pool of connections.
pub(super) type Connections = BoxCloneSyncService<Request<Body>, Answer, BoxError>;

/// Whose connections a request takes: an extension of the HTTP request. Without it, those of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// The syncs' bounded ones.
    Sync,
    /// The leader election's own.
    Election,
}

/// Builds the pools of connections from a configuration, without sending a request.
///
/// A kubeconfig's exec plugin runs here and blocks the thread.
///
/// # Errors
/// kube-client's own, if certificates, keys or a plugin do not work, or if the proxy cannot be used.
///
/// `permits` bounds the connections of syncs; pools of earlier credentials share it.
pub(super) fn connect(config: &Config, permits: &Arc<Semaphore>) -> Result<Connections, Error> {
    // This fails only if a provider is already installed, which is just as good.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let [of_writes, of_others] = UNACKNOWLEDGED;
    let connector = |sockets| {
        let tls = config.rustls_https_connector_with_connector(connector(config, sockets)?)?;
        // Without an `async` block, whose error type the compiler would take for one of any lifetime.
        let timed = tls.map_future(|connected| {
            tokio::time::timeout(CONNECT_MAX, connected).map(|ended| match ended {
                Ok(connected) => connected,
                Err(elapsed) => Err(elapsed.into()),
            })
        });
        Ok::<_, Error>(BoxCloneSyncService::new(timed))
    };
    let pools = Pools {
        caches: pool(connector(Sockets::unbounded(of_others))?, IDLE_TIMEOUT, usize::MAX),
        syncs: pool(connector(Sockets::new(permits.clone(), of_writes))?, IDLE_TIMEOUT, usize::MAX),
        // A renewal that hangs takes one connection with it, and the next opens another.
        election: pool(connector(Sockets::unbounded(of_writes))?, IDLE_TIMEOUT, 1),
    };
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(pools);
    Ok(BoxCloneSyncService::new(service))
}

/// Opens connections, through the proxy if there is one.
fn connector(
    config: &Config,
    sockets: Sockets,
) -> Result<BoxCloneSyncService<Uri, TokioIo<Socket>, BoxError>, Error> {
    let Some(url) = &config.proxy_url else { return Ok(BoxCloneSyncService::new(sockets)) };
    match Proxy::new(url) {
        Ok(Proxy::Http { address, authorization }) => {
            let tunnel = authorization.into_iter().fold(Tunnel::new(address, sockets), Tunnel::with_auth);
            Ok(BoxCloneSyncService::new(tunnel.map_err(BoxError::from)))
        }
        Ok(Proxy::Socks { address, user }) => {
            let tunnel = SocksV5::new(address, sockets);
            let tunnel =
                user.into_iter().fold(tunnel, |tunnel, (user, password)| tunnel.with_auth(user, password));
            Ok(BoxCloneSyncService::new(tunnel.map_err(BoxError::from)))
        }
        Err(_) => Err(Error::ProxyProtocolUnsupported { proxy_url: Box::new(url.clone()) }),
    }
}

/// The connections, by [`Lane`].
#[derive(Clone)]
struct Pools<C> {
    caches: Client<C, Body>,
    syncs: Client<C, Body>,
    election: Client<C, Body>,
}

impl<C: Connect + Clone + Send + Sync + 'static> Service<Request<Body>> for Pools<C> {
    type Response = Answer;
    type Error = SendError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture {
        match request.extensions().get() {
            Some(Lane::Election) => self.election.request(request),
            Some(Lane::Sync) => self.syncs.request(request),
            None => self.caches.request(request),
        }
    }
}

/// Returns a pool of connections, each closed once it was idle for this long, or if `max_idle` are.
fn pool<C: Connect + Clone>(connector: C, idle: Duration, max_idle: usize) -> Client<C, Body> {
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(idle)
        .pool_max_idle_per_host(max_idle)
        .pool_timer(TokioTimer::new())
        .build(connector)
}

/// Returns how many connections the syncs may open: half of the process's files.
pub(super) fn sockets_max() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = files.map_or(SOCKETS_MAX, |files| (files / 2).clamp(8, SOCKETS_MAX));
    usize::try_from(half).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
