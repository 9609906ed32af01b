//! Adds the states of caches and events to the metrics.

use crate::cache::{CacheState, ListReason, ProcessingLatency};
use crate::metrics::{CacheReading, EventReading, HandlerReading, Metrics};
use crate::record::EventCounts;

/// Exports the states of the caches and the counts of events from now on.
pub(super) fn observe(
    metrics: &Metrics,
    caches: impl Fn() -> Vec<CacheState> + Send + Sync + 'static,
    events: impl Fn() -> EventCounts + Send + Sync + 'static,
) {
    metrics.observe_caches(move || caches().into_iter().map(reading).collect());
    metrics.observe_events(move || {
        let EventCounts { written, failed, dropped } = events();
        EventReading { written, failed, dropped }
    });
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
