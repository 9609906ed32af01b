//! The metrics and health endpoints of `windlass run`.

mod access;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Failure;
use crate::cache::{CacheState, ListReason, ProcessingLatency, Synced};
use crate::client::ApiClient;
use crate::leader_election::Leadership;
use crate::metrics::{self, CacheReading, EventReading, HandlerReading, Metrics};
use crate::record::EventCounts;
use crate::server::{Certificates, Check, Health, Listener, Page, Pages, Server, Verdict};

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
    let health: Pages = Arc::new(move |path, query| health.page(path, query));
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

/// Adds the state of the caches to the metrics.
pub(super) fn observe(metrics: &Metrics, caches: impl Fn() -> Vec<CacheState> + Send + Sync + 'static) {
    metrics.observe_caches(move || caches().into_iter().map(reading).collect());
}

fn reading(cache: CacheState) -> CacheReading {
    let CacheState { resource, progress, processing, traffic, .. } = cache;
    let bounds = ProcessingLatency::BOUNDS.into_iter().chain([f64::INFINITY]);
    let handlers = cache.handlers.into_iter().map(|handler| HandlerReading {
        name: handler.name,
        pending: handler.pending,
        slow: handler.slow,
        panics: handler.panics,
    });
    CacheReading {
        name: cache.name,
        resource: [resource.group, resource.version, resource.plural].map(String::from),
        kind: cache.kind,
        is_synced: cache.is_synced,
        is_troubled: cache.trouble.is_some(),
        objects: cache.objects,
        resource_version: cache.resource_version.as_ref().to_owned(),
        queued: cache.queued,
        processing: (bounds.zip(processing.buckets).collect(), processing.sum),
        handlers: handlers.collect(),
        lists: ListReason::ALL.map(ListReason::as_label).into_iter().zip(progress.lists_by_reason).collect(),
        events: progress.events,
        decode_errors: progress.decode_errors,
        list_bytes: traffic.of_lists(),
        watch_bytes: traffic.of_watches(),
    }
}

/// Adds the counts of written, failed and dropped events to the metrics.
pub(super) fn observe_events(metrics: &Metrics, events: impl Fn() -> EventCounts + Send + Sync + 'static) {
    metrics.observe_events(move || {
        let EventCounts { written, failed, dropped } = events();
        EventReading { written, failed, dropped }
    });
}

/// Builds the checks: the process is ready once each kind was listed and the workers have started. A cache that loses
/// its watch later is only reported.
pub(super) fn health(
    caches: impl Fn() -> Vec<CacheState> + Clone + Send + Sync + 'static,
    workers: Vec<Synced>,
    leadership: Option<Leadership>,
    shutdown: CancellationToken,
) -> Health {
    let mut health = Health::new();
    if let Some(leadership) = leadership {
        let renewed = leadership.clone();
        let check = move || renewed.check().map_or_else(Verdict::Failed, |()| Verdict::Passed);
        health.alive_when(Check::new("leader-election", check));
        health.ready_when(Check::new("leader-election", move || standby_verdict(&leadership)));
    }
    for (at, cache) in caches().into_iter().enumerate() {
        let caches = caches.clone();
        let look = move || caches().into_iter().nth(at).map_or(Verdict::Passed, |cache| verdict(&cache));
        health.ready_when(Check::new(format!("cache-{}", cache.kind), look));
    }
    for started in workers {
        let name = format!("workers-{}", started.name());
        health.ready_when(Check::new(name, move || match started.is_synced() {
            true => Verdict::Passed,
            false => Verdict::Failed("waiting for the caches".to_owned()),
        }));
    }
    health.ready_when(Check::new("shutdown", move || match shutdown.is_cancelled() {
        true => Verdict::Failed("shutting down".to_owned()),
        false => Verdict::Passed,
    }));
    health
}

/// A standby is ready once it could read or write the Lease.
fn standby_verdict(leadership: &Leadership) -> Verdict {
    match (leadership.error(), leadership.is_known()) {
        (None, false) => Verdict::Failed("the Lease was not read yet".to_owned()),
        (Some(error), false) => Verdict::Failed(format!("the Lease was not read yet: {error}")),
        (Some(error), true) => {
            Verdict::PassedBut(format!("the Lease currently cannot be read or written: {error}"))
        }
        (None, true) if leadership.is_leader() => Verdict::Passed,
        (None, true) => Verdict::PassedBut(match &*leadership.holder() {
            "" => "no process leads yet".to_owned(),
            holder => format!("{holder} leads, and this process stands by"),
        }),
    }
}

fn verdict(cache: &CacheState) -> Verdict {
    match (cache.is_synced, &cache.trouble) {
        (true, None) => Verdict::Passed,
        (true, Some(trouble)) => {
            Verdict::PassedBut(format!("currently cannot be listed or watched: {trouble}"))
        }
        (false, Some(trouble)) => Verdict::Failed(format!("not listed yet: {trouble}")),
        (false, None) => Verdict::Failed("not listed yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNPROTECTED: Protection = Protection { is_on: false, directory: None };

    fn cache(is_synced: bool, trouble: Option<&str>) -> CacheState {
        CacheState {
            name: "windlass".to_owned(),
            resource: crate::api::ApiResource::new("", "v1", "Foo", "foos"),
            kind: "foos".to_owned(),
            is_synced,
            trouble: trouble.map(str::to_owned),
            objects: 0,
            resource_version: "".into(),
            progress: Default::default(),
            queued: 0,
            processing: Default::default(),
            traffic: Default::default(),
            handlers: Vec::new(),
        }
    }

    #[test]
    fn cache_listed_once_stays_ready() {
        assert_eq!(verdict(&cache(true, None)), Verdict::Passed);
        assert!(matches!(verdict(&cache(true, Some("404 NotFound"))), Verdict::PassedBut(_)));
        assert!(matches!(verdict(&cache(false, Some("403 Forbidden"))), Verdict::Failed(_)));
        assert!(matches!(verdict(&cache(false, None)), Verdict::Failed(_)));
    }

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
