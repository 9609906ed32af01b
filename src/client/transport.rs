//! Builds the connections to the API server, and the layers that each request passes.
//!
//! Mirrors client-go `transport`: the TLS setup, the credentials, the headers of impersonation. kube-client provides
//! the parts. They are assembled here because its own stack does more than we need (compression, retries, a span for
//! each request) and leaves Nagle's algorithm on, which Go disables: a request sent in two segments then waits for
//! the server's delayed acknowledgement, up to 40 ms.

use std::time::Duration;

use http::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube_client::client::{Body, ConfigExt};
use kube_client::{Config, Error};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder};

/// How long a TCP connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an idle connection stays open: a burst leaves none behind. client-go's transport waits as long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// A response whose body is unread.
pub(super) type Answer = <Client<HttpConnector, Body> as Service<Request<Body>>>::Response;
/// Sends requests with one set of credentials, over a pool of connections.
pub(super) type Connections = BoxCloneSyncService<Request<Body>, Answer, BoxError>;

/// Builds a pool of connections from a configuration, without sending a request.
///
/// A kubeconfig's exec plugin runs here and blocks the thread.
///
/// # Errors
/// kube-client's own, if certificates, keys or a plugin do not work, or if a proxy is configured.
pub(super) fn connect(config: &Config) -> Result<Connections, Error> {
    if let Some(proxy) = &config.proxy_url {
        return Err(Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy.clone()) });
    }
    // This fails only if a provider is already installed, which is just as good.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let tls = config.rustls_https_connector_with_connector(tcp())?;
    let connections = pool(tls, IDLE_TIMEOUT);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(BoxCloneSyncService::new(service))
}

/// Returns a pool of connections, each closed once it was idle for this long.
fn pool<C: Connect + Clone>(connector: C, idle: Duration) -> Client<C, Body> {
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(idle)
        .pool_timer(TokioTimer::new())
        .build(connector)
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    // URLs have the scheme https; TLS wraps this connector.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn requests_are_sent_without_nagles_algorithm() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let connection = tcp().call(uri).await.unwrap();
        assert!(connection.inner().nodelay().unwrap());
    }

    /// Serves HTTP without an answer's body; counts the connections that are open.
    async fn serve(
        listener: tokio::net::TcpListener,
        open: tokio::sync::watch::Sender<usize>,
        accepted: Arc<AtomicUsize>,
    ) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            open.send_modify(|open| *open += 1);
            accepted.fetch_add(1, Ordering::Relaxed);
            let open = open.clone();
            connections.spawn(async move {
                let mut request = [0; 1024];
                while socket.read(&mut request).await.is_ok_and(|read| read > 0) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                }
                open.send_modify(|open| *open -= 1);
            });
        }
    }

    #[tokio::test]
    async fn connections_of_a_burst_are_closed_when_idle() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: http::Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let (sender, mut open) = tokio::sync::watch::channel(0);
        let mut server = tokio::task::JoinSet::new();
        let accepted = Arc::<AtomicUsize>::default();
        server.spawn(serve(listener, sender, accepted.clone()));
        let client = pool(HttpConnector::new(), Duration::from_millis(50));
        let burst = (0..10).map(|_| client.request(Request::get(uri.clone()).body(Body::empty()).unwrap()));
        futures_util::future::try_join_all(burst).await.unwrap();
        assert_eq!(accepted.load(Ordering::Relaxed), 10);
        let closed = open.wait_for(|open| *open == 0);
        drop(tokio::time::timeout(Duration::from_secs(30), closed).await.expect("all are closed").unwrap());
    }

    #[tokio::test]
    async fn a_proxy_is_refused_not_ignored() {
        let mut config = Config::new("https://127.0.0.1:1/".parse().unwrap());
        assert!(connect(&config).is_ok());
        config.proxy_url = Some("http://127.0.0.1:2/".parse().unwrap());
        let error = connect(&config).err().unwrap().to_string();
        assert!(error.contains("http://127.0.0.1:2/"), "{error}");
    }
}
