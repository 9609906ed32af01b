//! Builds the connections to the API server, and the layers that each request passes.
//!
//! Mirrors client-go `transport`: the TLS setup, the credentials, the headers of impersonation. kube-client provides
//! the parts. They are assembled here because its own stack does more than we need (compression, retries, a span for
//! each request) and leaves Nagle's algorithm on, which Go disables: a request sent in two segments then waits for
//! the server's delayed acknowledgement, up to 40 ms.
//!
//! # Guarantees
//! - Requests for the Lease have a connection of their own: those that hang, or wait for a connection, do not delay it.
//!   (test: `lease_is_renewed_while_other_requests_hang`)
//! - A burst leaves no connections behind. (test: `connections_of_a_burst_are_closed_when_idle`)
//! - Connections pass the configured proxy. (test: `requests_pass_http_and_socks_proxies`)

use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Uri};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Client, Error as SendError, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube_client::client::{Body, ConfigExt};
use kube_client::{Config, Error};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

pub(super) mod proxy;
mod sockets;

use proxy::Proxy;
use sockets::{Socket, Sockets};

/// How long an idle connection stays open: a burst leaves none behind. client-go's transport waits as long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The most connections that are open at once. Half of the process's files are left to others.
const SOCKETS_MAX: u64 = 1024;

/// A response whose body is unread.
pub(super) type Answer = <Client<HttpConnector, Body> as Service<Request<Body>>>::Response;
/// Sends requests with one set of credentials, over a pool of connections.
pub(super) type Connections = BoxCloneSyncService<Request<Body>, Answer, BoxError>;

/// Marks a request of the leader election, as an extension of the HTTP request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForElection;

/// Builds the pools of connections from a configuration, without sending a request.
///
/// A kubeconfig's exec plugin runs here and blocks the thread.
///
/// # Errors
/// kube-client's own, if certificates, keys or a plugin do not work, or if the proxy cannot be used.
pub(super) fn connect(config: &Config) -> Result<Connections, Error> {
    connect_with(config, sockets_max())
}

fn connect_with(config: &Config, sockets: usize) -> Result<Connections, Error> {
    // This fails only if a provider is already installed, which is just as good.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let tls = |sockets| config.rustls_https_connector_with_connector(connector(config, sockets)?);
    let pools = Pools {
        ordinary: pool(tls(sockets)?, IDLE_TIMEOUT, usize::MAX),
        // A renewal that hangs takes one connection with it, and the next opens another.
        election: pool(tls(2)?, IDLE_TIMEOUT, 1),
    };
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(pools);
    Ok(BoxCloneSyncService::new(service))
}

/// Opens at most so many connections at once, through the proxy if there is one.
fn connector(
    config: &Config,
    sockets: usize,
) -> Result<BoxCloneSyncService<Uri, TokioIo<Socket>, BoxError>, Error> {
    let sockets = Sockets::new(sockets);
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

/// The connections for the leader election, and those for everything else.
#[derive(Clone)]
struct Pools<C> {
    ordinary: Client<C, Body>,
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
            Some(ForElection) => self.election.request(request),
            None => self.ordinary.request(request),
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

/// Returns how many connections this process may open: half of its files.
fn sockets_max() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = files.map_or(SOCKETS_MAX, |files| (files / 2).clamp(8, SOCKETS_MAX));
    usize::try_from(half).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
