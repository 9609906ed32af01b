//! Adds the states of caches and events to the metrics.

use crate::cache::{CacheState, ListReason, ProcessingLatency};
use crate::client::shards::{Change, Phase, Shards};
use crate::metrics::{CacheReading, EventReading, HandlerReading, Metrics, ShardReading};
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

/// Exports the shards of this process from now on.
pub(super) fn observe_shards(metrics: &Metrics, shards: Shards) {
    metrics.observe_shards(move || {
        let (phases, counts) = (shards.phases(), shards.counts());
        let in_phase = |phase| phases.values().filter(|other| **other == phase).count();
        ShardReading {
            of: shards.of().into(),
            unheld: shards.holders().map_or(0, |holders| usize::from(shards.of()) - holders.len()),
            phases: Phase::ALL.map(|phase| (phase.as_label(), in_phase(phase))).into(),
            moves: Change::ALL
                .map(|change| (change.as_label(), counts.get(&change).copied().unwrap_or_default()))
                .into(),
        }
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
        skipped: traffic.skipped_objects(),
    }
}
