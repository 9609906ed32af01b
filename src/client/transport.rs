//! Builds the connections to the API server, and the layers that each request passes.
//!
//! Mirrors client-go `transport`: the TLS setup, the credentials, the headers of impersonation. kube-client provides
//! the parts. They are assembled here because its own stack does more than we need (compression, retries, a span for
//! each request) and leaves Nagle's algorithm on, which Go disables: a request sent in two segments then waits for
//! the server's delayed acknowledgement, up to 40 ms.

use std::time::Duration;

use http::Request;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube_client::client::{Body, ConfigExt};
use kube_client::{Config, Error};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder};

/// How long a TCP connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A response whose body is unread.
pub(super) type Answer =
    <hyper_util::client::legacy::Client<HttpConnector, Body> as Service<Request<Body>>>::Response;
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
    let connections = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(tls);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(BoxCloneSyncService::new(service))
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
    use super::*;

    #[tokio::test]
    async fn requests_are_sent_without_nagles_algorithm() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let connection = tcp().call(uri).await.unwrap();
        assert!(connection.inner().nodelay().unwrap());
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
