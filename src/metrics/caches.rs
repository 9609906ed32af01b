//! Metrics of caches and their handlers, read on each scrape.
//!
//! Mirrors component-base `metrics/prometheus/clientgo/fifo`, whose three families each informer has under its own name.
//! The families `windlass_cache_*` and `windlass_handler_*` are by kind: the informers of one kind are added up.
//!
//! # Guarantees
//! - The families of client-go have its names and labels. (test: `informer_families_are_those_of_client_go`)
//! - Several informers of one kind are added up. (test: `informers_of_one_kind_are_added_up`)

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The state of one cache.
#[derive(Clone, Debug, Default)]
pub struct CacheReading {
    /// The informer's name.
    pub name: String,
    /// Group, version and plural of the kind.
    pub resource: [String; 3],
    /// The kind, `plural.group`.
    pub kind: String,
    /// Whether the first list is complete.
    pub is_synced: bool,
    /// Whether the kind cannot be listed or watched at present.
    pub is_troubled: bool,
    /// Number of objects in the cache.
    pub objects: usize,
    /// Version of the last change in the cache.
    pub resource_version: String,
    /// Number of changes between reflector and store.
    pub queued: usize,
    /// How long batches of changes took: upper bounds in seconds with the number of batches, not cumulative, and the sum.
    pub processing: (Vec<(f64, u64)>, f64),
    /// The handlers.
    pub handlers: Vec<HandlerReading>,
    /// Number of completed lists, by reason.
    pub lists: Vec<(&'static str, u64)>,
    /// Number of watch events, without bookmarks.
    pub events: u64,
    /// Number of objects, events and lists that did not decode.
    pub decode_errors: u64,
    /// Bytes of lists.
    pub list_bytes: u64,
    /// Bytes of watches.
    pub watch_bytes: u64,
    /// Objects and events of shards that the process does not hold.
    pub skipped: u64,
}

/// The state of one handler.
#[derive(Clone, Debug, Default)]
pub struct HandlerReading {
    /// The handler's name.
    pub name: String,
    /// Number of notifications that wait.
    pub pending: usize,
    /// Number of slow calls.
    pub slow: u64,
    /// Number of calls that panicked.
    pub panics: u64,
}

/// Collects the metrics of caches.
pub(super) struct Caches(pub(super) Box<dyn Fn() -> Vec<CacheReading> + Send + Sync>);

/// The informers of one kind, added up.
#[derive(Default)]
struct Kind {
    informers: u64,
    synced: u64,
    troubled: u64,
    objects: u64,
    queued: u64,
    events: u64,
    decode_errors: u64,
    lists: BTreeMap<&'static str, u64>,
    bytes: [u64; 2],
    skipped: u64,
    handlers: BTreeMap<String, [u64; 3]>,
}

impl Kind {
    fn add(&mut self, cache: &CacheReading) {
        self.informers += 1;
        self.synced += u64::from(cache.is_synced);
        self.troubled += u64::from(cache.is_troubled);
        self.objects += cache.objects as u64;
        self.queued += cache.queued as u64;
        self.events += cache.events;
        self.decode_errors += cache.decode_errors;
        for (reason, lists) in &cache.lists {
            *self.lists.entry(reason).or_default() += lists;
        }
        self.bytes[0] += cache.list_bytes;
        self.bytes[1] += cache.watch_bytes;
        self.skipped += cache.skipped;
        for handler in &cache.handlers {
            let counts = self.handlers.entry(handler.name.clone()).or_default();
            for (count, more) in counts.iter_mut().zip([handler.pending as u64, handler.slow, handler.panics])
            {
                *count += more;
            }
        }
    }
}

type Kinds<'a> = BTreeMap<&'a str, Kind>;
type Series<'a> = Vec<(Vec<(&'static str, &'a str)>, u64)>;

/// Name, help and type of a family, and its series.
type FamilyOf = (&'static str, &'static str, MetricType, for<'a> fn(&'a str, &'a Kind) -> Series<'a>);

const FAMILIES: [FamilyOf; 12] = [
    (
        "windlass_cache_synced",
        "Whether the first list of a kind has completed",
        MetricType::Gauge,
        |kind, of| one(kind, u64::from(of.synced == of.informers)),
    ),
    (
        "windlass_cache_trouble",
        "Whether listing or watching a kind currently fails",
        MetricType::Gauge,
        |kind, of| one(kind, u64::from(of.troubled > 0)),
    ),
    ("windlass_cache_objects", "Objects in the cache of a kind", MetricType::Gauge, |kind, of| {
        one(kind, of.objects)
    }),
    (
        "windlass_cache_queued",
        "Changes of a kind between reflector and store",
        MetricType::Gauge,
        |kind, of| one(kind, of.queued),
    ),
    (
        "windlass_cache_events",
        "Watch events of a kind, without bookmarks",
        MetricType::Counter,
        |kind, of| one(kind, of.events),
    ),
    (
        "windlass_cache_decode_errors",
        "Objects, events and lists of a kind that did not decode",
        MetricType::Counter,
        |kind, of| one(kind, of.decode_errors),
    ),
    (
        "windlass_cache_lists",
        "Completed lists of a kind, by their reason",
        MetricType::Counter,
        |kind, of| {
            let labels = |reason| vec![("kind", kind), ("reason", reason)];
            of.lists.iter().map(|(reason, lists)| (labels(*reason), *lists)).collect()
        },
    ),
    (
        "windlass_cache_received_bytes",
        "Bytes of lists and watches of a kind; a streamed list is a watch",
        MetricType::Counter,
        |kind, of| {
            let verbs = ["list", "watch"].into_iter().zip(of.bytes);
            verbs.map(|(verb, bytes)| (vec![("kind", kind), ("verb", verb)], bytes)).collect()
        },
    ),
    (
        "windlass_cache_skipped_objects",
        "Objects and events of other shards that the server has sent",
        MetricType::Counter,
        |kind, of| one(kind, of.skipped),
    ),
    ("windlass_handler_pending", "Notifications that wait for a handler", MetricType::Gauge, |kind, of| {
        by_handler(kind, of, 0)
    }),
    (
        "windlass_handler_slow",
        "Calls of a handler that took 100 ms or longer",
        MetricType::Counter,
        |kind, of| by_handler(kind, of, 1),
    ),
    ("windlass_handler_panics", "Calls of a handler that panicked", MetricType::Counter, |kind, of| {
        by_handler(kind, of, 2)
    }),
];

fn one(kind: &str, value: u64) -> Series<'_> {
    vec![(vec![("kind", kind)], value)]
}

fn by_handler<'a>(kind: &'a str, of: &'a Kind, count: usize) -> Series<'a> {
    let labels = |handler: &'a String| vec![("kind", kind), ("handler", handler.as_str())];
    of.handlers.iter().map(|(handler, counts)| (labels(handler), counts[count])).collect()
}

// === impl CacheReading ===

impl CacheReading {
    /// The labels of client-go's families.
    fn labels(&self) -> [(&'static str, &str); 4] {
        let [group, version, resource] = &self.resource;
        [("name", &self.name), ("group", group), ("version", version), ("resource", resource)]
    }

    /// Returns the last 15 digits of the version, which a float holds exactly.
    fn version(&self) -> f64 {
        let digits = self.resource_version.get(self.resource_version.len().saturating_sub(15)..);
        digits.and_then(|digits| digits.parse().ok()).unwrap_or_default()
    }
}

// === impl Caches ===

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caches").finish_non_exhaustive()
    }
}

impl Collector for Caches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let caches = (self.0)();
        encode_informers(&caches, &mut encoder)?;
        let mut kinds = Kinds::new();
        for cache in &caches {
            kinds.entry(&cache.kind).or_default().add(cache);
        }
        for (name, help, type_, series) in FAMILIES {
            let mut metric = encoder.encode_descriptor(name, help, None, type_)?;
            for (kind, of) in &kinds {
                for (labels, value) in series(kind, of) {
                    let encoder = metric.encode_family(&labels)?;
                    match type_ {
                        MetricType::Counter => ConstCounter::new(value).encode(encoder)?,
                        _ => ConstGauge::new(value as f64).encode(encoder)?,
                    }
                }
            }
        }
        Ok(())
    }
}

/// Encodes the families of client-go.
fn encode_informers(caches: &[CacheReading], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    type Value = fn(&CacheReading) -> f64;
    let gauges: [(&str, &str, Value); 2] = [
        ("informer_queued_items", "Number of items currently queued in the FIFO", |cache| {
            cache.queued as f64
        }),
        (
            "informer_store_resource_version",
            "The 15 least significant digits of the resource version of the store",
            CacheReading::version,
        ),
    ];
    for (name, help, value) in gauges {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for cache in caches {
            ConstGauge::new(value(cache)).encode(metric.encode_family(&cache.labels())?)?;
        }
    }
    let help = "Time taken to process events after popping from the queue";
    let name = "informer_processing_latency_seconds";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for cache in caches {
        let (buckets, sum) = &cache.processing;
        let count = buckets.iter().map(|(_, count)| count).sum();
        let labels = cache.labels();
        let mut metric = metric.encode_family(&labels)?;
        metric.encode_histogram::<[(&str, &str); 0]>(*sum, count, buckets, None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::metrics::{CacheReading, HandlerReading, Metrics};

    fn reading(name: &str) -> CacheReading {
        CacheReading {
            name: name.to_owned(),
            resource: ["apps", "v1", "deployments"].map(str::to_owned),
            kind: "deployments.apps".to_owned(),
            is_synced: name == "a",
            is_troubled: name == "a",
            objects: 1,
            resource_version: "1000000000000000007".to_owned(),
            queued: 2,
            processing: (vec![(0.001, 3), (0.005, 1), (f64::INFINITY, 0)], 0.004),
            handlers: vec![HandlerReading { name: "H".to_owned(), pending: 3, slow: 4, panics: 5 }],
            lists: vec![("first", 1), ("expired", 6)],
            events: 7,
            decode_errors: 8,
            list_bytes: 9,
            watch_bytes: 10,
            skipped: 11,
        }
    }

    fn exported(readings: Vec<CacheReading>) -> String {
        let metrics = Metrics::new();
        metrics.observe_caches(move || readings.clone());
        metrics.encode()
    }

    fn assert_has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn informer_families_are_those_of_client_go() {
        let text = exported(vec![reading("a")]);
        let labels = "name=\"a\",group=\"apps\",version=\"v1\",resource=\"deployments\"";
        assert_has(
            &text,
            &[
                &format!("informer_queued_items{{{labels}}} 2.0"),
                &format!("informer_store_resource_version{{{labels}}} 7.0"),
                &format!("informer_processing_latency_seconds_sum{{{labels}}} 0.004"),
                &format!("informer_processing_latency_seconds_count{{{labels}}} 4"),
                &format!("informer_processing_latency_seconds_bucket{{le=\"0.005\",{labels}}} 4"),
            ],
        );
    }

    #[test]
    fn informers_of_one_kind_are_added_up() {
        let text = exported(vec![reading("a"), reading("b")]);
        let kind = "kind=\"deployments.apps\"";
        assert_has(
            &text,
            &[
                &format!("windlass_cache_synced{{{kind}}} 0.0"),
                &format!("windlass_cache_trouble{{{kind}}} 1.0"),
                &format!("windlass_cache_objects{{{kind}}} 2.0"),
                &format!("windlass_cache_queued{{{kind}}} 4.0"),
                &format!("windlass_cache_events_total{{{kind}}} 14"),
                &format!("windlass_cache_decode_errors_total{{{kind}}} 16"),
                &format!("windlass_cache_lists_total{{{kind},reason=\"expired\"}} 12"),
                &format!("windlass_cache_received_bytes_total{{{kind},verb=\"list\"}} 18"),
                &format!("windlass_cache_received_bytes_total{{{kind},verb=\"watch\"}} 20"),
                &format!("windlass_cache_skipped_objects_total{{{kind}}} 22"),
                &format!("windlass_handler_pending{{{kind},handler=\"H\"}} 6.0"),
                &format!("windlass_handler_slow_total{{{kind},handler=\"H\"}} 8"),
                &format!("windlass_handler_panics_total{{{kind},handler=\"H\"}} 10"),
            ],
        );
    }
}
