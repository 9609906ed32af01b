//! What `windlass run` answers on its two addresses.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Failure;
use crate::cache::{CacheState, Synced};
use crate::metrics::{self, CacheReading, EventReading, Metrics};
use crate::record::EventCounts;
use crate::server::{Check, Health, Listener, Page, Pages, Server, Verdict};

/// The addresses, taken; `None` for nowhere.
#[derive(Debug)]
pub(super) struct Listeners {
    metrics: Option<Listener>,
    health: Option<Listener>,
    /// Both are one.
    is_shared: bool,
}

/// Takes the addresses; one that is not free is the user's to mend.
pub(super) fn listen(metrics: Option<SocketAddr>, health: Option<SocketAddr>) -> Result<Listeners, Failure> {
    let is_shared = metrics.is_some_and(|address| address.port() != 0 && Some(address) == health);
    let take = |flag: &str, address: Option<SocketAddr>| {
        let taken = address.map(Listener::bind).transpose();
        taken.map_err(|error| Failure::Usage {
            cause: format!("{flag}: {error}"),
            remedy: format!("Free the port, give {flag} another address, or switch it off with 0."),
        })
    };
    Ok(Listeners {
        metrics: take("--metrics-bind-address", metrics)?,
        health: take("--health-probe-bind-address", health.filter(|_| !is_shared))?,
        is_shared,
    })
}

/// What answers there.
pub(super) fn servers(
    listeners: Listeners,
    metrics: &Metrics,
    caches: impl Fn() -> Vec<CacheState> + Clone + Send + Sync + 'static,
    workers: Vec<Synced>,
    shutdown: CancellationToken,
) -> Result<Vec<Server>, Failure> {
    let metrics = metrics.clone();
    let metrics: Pages = Arc::new(move |path, _| {
        let page = || Page { code: 200, media: metrics::CONTENT_TYPE, body: metrics.encode() };
        (path == "/metrics").then(page)
    });
    let health = health(caches, workers, shutdown);
    let health: Pages = Arc::new(move |path, query| health.page(path, query));
    let Listeners { metrics: metrics_at, health: health_at, is_shared } = listeners;
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
        let server = Server::new(listener, pages).map_err(|error| Failure::Running(error.to_string()))?;
        tracing::info!(address = %server.address(), paths, "Serving");
        servers.push(server);
    }
    Ok(servers)
}

/// Counts the caches, too.
pub(super) fn observe(metrics: &Metrics, caches: impl Fn() -> Vec<CacheState> + Send + Sync + 'static) {
    let reading = |cache: CacheState| CacheReading {
        kind: cache.kind,
        is_synced: cache.is_synced,
        is_troubled: cache.trouble.is_some(),
        objects: cache.objects,
    };
    metrics.observe_caches(move || caches().into_iter().map(reading).collect());
}

/// And what becomes of events.
pub(super) fn observe_events(metrics: &Metrics, events: impl Fn() -> EventCounts + Send + Sync + 'static) {
    metrics.observe_events(move || {
        let EventCounts { written, failed, dropped } = events();
        EventReading { written, failed, dropped }
    });
}

/// Ready is when each kind was listed once and the workers have started; what is lost later is told.
fn health(
    caches: impl Fn() -> Vec<CacheState> + Clone + Send + Sync + 'static,
    workers: Vec<Synced>,
    shutdown: CancellationToken,
) -> Health {
    let mut health = Health::new();
    for (at, cache) in caches().into_iter().enumerate() {
        let caches = caches.clone();
        let look = move || caches().into_iter().nth(at).map_or(Verdict::Passed, |cache| verdict(&cache));
        health.ready_when(Check::new(format!("cache-{}", cache.kind), look));
    }
    for started in workers {
        let name = format!("workers-{}", started.name());
        health.ready_when(Check::new(name, move || match started.is_synced() {
            true => Verdict::Passed,
            false => Verdict::Failed("they wait for the caches".to_owned()),
        }));
    }
    health.ready_when(Check::new("shutdown", move || match shutdown.is_cancelled() {
        true => Verdict::Failed("the process is stopping".to_owned()),
        false => Verdict::Passed,
    }));
    health
}

fn verdict(cache: &CacheState) -> Verdict {
    match (cache.is_synced, &cache.trouble) {
        (true, None) => Verdict::Passed,
        (true, Some(trouble)) => Verdict::PassedBut(format!("it cannot be listed or watched now: {trouble}")),
        (false, Some(trouble)) => Verdict::Failed(format!("it was not listed yet: {trouble}")),
        (false, None) => Verdict::Failed("it was not listed yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(is_synced: bool, trouble: Option<&str>) -> CacheState {
        CacheState { kind: "foos".to_owned(), is_synced, trouble: trouble.map(str::to_owned), objects: 0 }
    }

    #[test]
    fn a_cache_that_was_listed_once_stays_ready() {
        assert_eq!(verdict(&cache(true, None)), Verdict::Passed);
        assert!(matches!(verdict(&cache(true, Some("404 NotFound"))), Verdict::PassedBut(_)));
        assert!(matches!(verdict(&cache(false, Some("403 Forbidden"))), Verdict::Failed(_)));
        assert!(matches!(verdict(&cache(false, None)), Verdict::Failed(_)));
    }

    #[test]
    fn a_taken_port_names_the_flag_and_the_address() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let Err(Failure::Usage { cause, .. }) = listen(None, Some(address)) else { panic!("it is usage") };
        let expected = format!("--health-probe-bind-address: cannot listen on {address}: ");
        assert!(cause.starts_with(&expected), "{cause}");
    }

    #[test]
    fn one_address_may_serve_both() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listeners = listen(Some(free), Some(free)).unwrap();
        assert!(listeners.metrics.is_some() && listeners.health.is_none() && listeners.is_shared);
    }
}
