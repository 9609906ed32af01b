//! The metrics and health endpoints of `windlass run`.

mod access;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::Failure;
use crate::client::ApiClient;
use crate::health::Health;
use crate::metrics::{self, Metrics};
use crate::server::{Certificates, Listener, Page, Pages, Server};

/// The bound addresses; `None` if an endpoint is switched off.
#[derive(Debug)]
pub(super) struct Listeners {
    metrics: Option<Listener>,
    health: Option<Listener>,
    /// Whether both endpoints share the metrics address.
    is_shared: bool,
    /// The certificate of protected metrics.
    certificates: Option<Certificates>,
}

/// The protection of the metrics.
#[derive(Debug)]
pub(super) struct Protection {
    pub(super) is_on: bool,
    /// `tls.crt` and `tls.key`; self-signed without.
    pub(super) directory: Option<PathBuf>,
}

/// Binds the addresses; a taken address is a usage error.
pub(super) fn listen(
    metrics: Option<SocketAddr>,
    health: Option<SocketAddr>,
    protection: Protection,
) -> Result<Listeners, Failure> {
    let is_shared = metrics.is_some_and(|address| address.port() != 0 && Some(address) == health);
    if is_shared && protection.is_on {
        return Err(Failure::Usage {
            cause: "--metrics-secure with --metrics-bind-address equal to --health-probe-bind-address"
                .to_owned(),
            remedy: "Give two addresses: the kubelet's probes have no token.".to_owned(),
        });
    }
    let certificates = match protection {
        Protection { is_on: false, .. } => None,
        Protection { directory: None, .. } => Some(Certificates::self_signed()),
        Protection { directory: Some(directory), .. } => Some(Certificates::of_directory(directory)),
    };
    let certificates = certificates.transpose().map_err(|error| Failure::Usage {
        cause: format!("--metrics-cert-dir: {error}"),
        remedy: "Give a directory with tls.crt and tls.key in PEM, as a Secret of type kubernetes.io/tls has them."
            .to_owned(),
    })?;
    Ok(Listeners {
        metrics: take("--metrics-bind-address", metrics)?,
        health: take("--health-probe-bind-address", health.filter(|_| !is_shared))?,
        is_shared,
        certificates,
    })
}

/// Binds the address of a flag, if there is one.
pub(super) fn take(flag: &str, address: Option<SocketAddr>) -> Result<Option<Listener>, Failure> {
    let taken = address.map(Listener::bind).transpose();
    taken.map_err(|error| Failure::Usage {
        cause: format!("{flag}: {error}"),
        remedy: format!("Free the port, give {flag} another address, or switch it off with 0."),
    })
}

/// Creates the servers for the bound addresses. `client` reviews the tokens of those who read protected metrics.
pub(super) fn servers(
    listeners: Listeners,
    client: &ApiClient,
    metrics: &Metrics,
    health: Health,
) -> Result<Vec<Server>, Failure> {
    let metrics = metrics.clone();
    let metrics: Pages = Arc::new(move |path, _| {
        let page = || Page { code: 200, media: metrics::CONTENT_TYPE, body: metrics.encode() };
        (path == "/metrics").then(page)
    });
    let health: Pages =
        Arc::new(move |path, query| health.answer(path, query).map(|(code, text)| Page::text(code, text)));
    let Listeners { metrics: metrics_at, health: health_at, is_shared, mut certificates } = listeners;
    let (first, paths): (Pages, _) = if is_shared {
        let health = health.clone();
        (
            Arc::new(move |path, query| metrics(path, query).or_else(|| health(path, query))),
            "/metrics /livez /readyz",
        )
    } else {
        (metrics, "/metrics")
    };
    let mut servers = Vec::new();
    for (listener, pages, paths) in [(metrics_at, first, paths), (health_at, health, "/livez /readyz")] {
        let Some(listener) = listener else { continue };
        let mut server = Server::new(listener, pages).map_err(|error| Failure::Running(error.to_string()))?;
        // The metrics come first, if they are served at all.
        if let Some(certificates) = certificates.take_if(|_| paths == "/metrics") {
            server = server.protected_by(certificates, access::guard(client.clone()));
        }
        tracing::info!(address = %server.address(), paths, "Serving");
        servers.push(server);
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNPROTECTED: Protection = Protection { is_on: false, directory: None };

    #[test]
    fn taken_port_error_names_flag_and_address() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let Err(Failure::Usage { cause, .. }) = listen(None, Some(address), UNPROTECTED) else {
            panic!("no usage error")
        };
        let expected = format!("--health-probe-bind-address: cannot listen on {address}: ");
        assert!(cause.starts_with(&expected), "{cause}");
    }

    #[test]
    fn one_address_serves_metrics_and_health() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listeners = listen(Some(free), Some(free), UNPROTECTED).unwrap();
        assert!(listeners.metrics.is_some() && listeners.health.is_none() && listeners.is_shared);
        drop(listeners);
        let protected = Protection { is_on: true, ..UNPROTECTED };
        assert!(matches!(listen(Some(free), Some(free), protected), Err(Failure::Usage { .. })));
    }
}
