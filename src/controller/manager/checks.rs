//! The checks of a manager: caches, workers, the leader election, the stop.

use tokio_util::sync::CancellationToken;

use crate::cache::{CacheState, Synced};
use crate::health::{Check, Health, Verdict};
use crate::leader_election::Leadership;

/// Builds the checks: the process is ready once each kind was listed and the workers have started. A cache that loses
/// its watch later is only reported.
pub(super) fn health(
    caches: impl Fn() -> Vec<CacheState> + Clone + Send + Sync + 'static,
    workers: Vec<Synced>,
    leadership: Option<Leadership>,
    stopping: CancellationToken,
) -> Health {
    let mut health = Health::new();
    if let Some(leadership) = leadership {
        let renewed = leadership.clone();
        let check = move || renewed.check().map_or_else(Verdict::Failed, |()| Verdict::Passed);
        health.alive_when(Check::new("leader-election", check));
        health.ready_when(Check::new("leader-election", move || standby_verdict(&leadership)));
    }
    let states = caches();
    for (at, cache) in states.iter().enumerate() {
        let caches = caches.clone();
        let look = move || caches().into_iter().nth(at).map_or(Verdict::Passed, |cache| verdict(&cache));
        health.ready_when(Check::new(format!("cache-{}", cache.name_among(&states, "-")), look));
    }
    for started in workers {
        let name = format!("workers-{}", started.name());
        health.ready_when(Check::new(name, move || match started.is_synced() {
            true => Verdict::Passed,
            false => Verdict::Failed("waiting for the caches".to_owned()),
        }));
    }
    health.ready_when(Check::new("shutdown", move || match stopping.is_cancelled() {
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

    fn cache(is_synced: bool, trouble: Option<&str>) -> CacheState {
        CacheState {
            name: "windlass".to_owned(),
            resource: crate::api::ApiResource::new("", "v1", "Foo", "foos"),
            kind: "foos".to_owned(),
            namespace: None,
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
    fn caches_of_several_namespaces_are_told_apart() {
        let caches = || {
            let of =
                |namespace: &str| CacheState { namespace: Some(namespace.to_owned()), ..cache(true, None) };
            vec![of("a"), CacheState { kind: "pods".to_owned(), ..of("a") }, of("b")]
        };
        let health = health(caches, Vec::new(), None, CancellationToken::new());
        let text = health.answer("/readyz", "verbose").unwrap().1;
        for name in ["cache-foos-a", "cache-pods", "cache-foos-b"] {
            assert!(text.contains(&format!("[+]{name} ok\n")), "{text}");
        }
    }

    #[test]
    fn cache_listed_once_stays_ready() {
        assert_eq!(verdict(&cache(true, None)), Verdict::Passed);
        assert!(matches!(verdict(&cache(true, Some("404 NotFound"))), Verdict::PassedBut(_)));
        assert!(matches!(verdict(&cache(false, Some("403 Forbidden"))), Verdict::Failed(_)));
        assert!(matches!(verdict(&cache(false, None)), Verdict::Failed(_)));
    }
}
