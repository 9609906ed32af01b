//! Metrics of the process, under the names that Kubernetes components and controller-runtime use, so that stock
//! dashboards show them.
//!
//! Mirrors component-base `metrics/prometheus/{workqueue,restclient,clientgo/fifo}` and controller-runtime
//! `pkg/internal/controller/metrics`.
//!
//! | family | covers |
//! |---|---|
//! | `workqueue_*` | each queue: depth, adds, retries, time in the queue and in work |
//! | `controller_runtime_*` | each controller: syncs by result, their duration, errors, panics, workers |
//! | `informer_*` | each informer: queued changes, how long they take, the version of its store |
//! | `leader_election_*` | whether this process leads, and slow renewals |
//! | `rest_client_*` | requests to the API server by verb and code, their duration, waits for the client's limits |
//! | `process_*`, `tokio_*` | the process, under the names of Prometheus' client libraries, and its runtime |
//! | `windlass_*` | everything else: the build, reasons, retries by cause, keys that back off, caches, audits, events, spans |
//!
//! # Guarantees
//! - The series of a controller exist from its start, at zero (test: `controller_series_exist_from_its_start`); that of
//!   a lagging cache from its first lag.
//! - So does every series of an audited kind. (test: `audits_are_counted_by_kind_and_result`)
//! - Queue durations have a bucket per decade, as in client-go. (test: `queue_durations_have_a_bucket_per_decade`)
//! - A delayed add counts as a retry, even with a delay of zero. (test: `a_delay_of_zero_counts_as_a_retry`)
//! - A queue with priorities reports the depth of each. (test: `the_depth_of_each_priority_is_reported`)
//! - Labels are fixed names, verbs and codes: never an object's name, a namespace or a message.
//!   (test: `labels_never_contain_object_names`)
//!
//! # Differences from client-go and controller-runtime
//! Nothing is global: the creator of a queue or client passes the metrics in. Gauges are read on each scrape. No result
//! is `requeue`, and terminal errors are conditions. The depth of each priority is `windlass_queue_priority_depth`, so
//! that `workqueue_depth` keeps client-go's labels. The format is always OpenMetrics.

mod audits;
mod caches;
mod controller;
mod events;
mod leader_election;
#[cfg(feature = "cli")]
mod process;
mod queue;
mod requests;
mod shards;
#[cfg(feature = "otlp")]
mod spans;

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub use audits::{AuditMetrics, AuditResult};
pub use caches::{CacheReading, HandlerReading};
pub use controller::{ControllerMetrics, Effect, Retry};
pub use events::EventReading;
pub use leader_election::LeaderElectionMetrics;
pub use requests::RequestMetrics;
pub use shards::ShardReading;
#[cfg(feature = "otlp")]
pub use spans::SpanReading;

use crate::workqueue::{Key, QueueMetrics, RateLimitingQueue};

/// The media type of the text that [`Metrics::encode`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// All metrics of a process. Cheap to clone; clones share their counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    queues: Arc<queue::Queues>,
    controllers: Arc<controller::Controllers>,
    requests: Arc<requests::Requests>,
    audits: Arc<audits::Audits>,
    leader_elections: Arc<leader_election::LeaderElections>,
}

// === impl Metrics ===

impl Metrics {
    /// Creates metrics with all counts at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let queues = Arc::new(queue::Queues::register(&mut registry));
        let controllers = Arc::new(controller::Controllers::register(&mut registry));
        let requests = Arc::new(requests::Requests::register(&mut registry));
        let audits = Arc::new(audits::Audits::register(&mut registry));
        let leader_elections = Arc::new(leader_election::LeaderElections::register(&mut registry));
        let registry = Arc::new(Mutex::new(registry));
        Self { registry, queues, controllers, requests, audits, leader_elections }
    }

    /// Returns the metrics of the queue `name`, for its options.
    #[must_use]
    pub fn queue(&self, name: &'static str) -> Arc<dyn QueueMetrics> {
        self.queues.of(name)
    }

    /// Exports the gauges of `queue` from now on.
    pub fn observe_queue<T: Key>(&self, name: &'static str, queue: RateLimitingQueue<T>) {
        self.queues.observe(name, queue);
    }

    /// Returns the metrics of the controller `name`.
    #[must_use]
    pub fn controller(&self, name: &'static str) -> ControllerMetrics {
        self.controllers.of(name)
    }

    /// Returns the audit metrics of `kind`, `plural.group`.
    #[must_use]
    pub fn audits(&self, kind: &str) -> AuditMetrics {
        self.audits.of(kind)
    }

    /// Returns the metrics of the election of this Lease.
    #[must_use]
    pub fn leader_election(&self, lease: &str) -> LeaderElectionMetrics {
        self.leader_elections.of(lease)
    }

    /// Returns the request metrics of a client of `host`.
    #[must_use]
    pub fn requests(&self, host: &str) -> RequestMetrics {
        RequestMetrics::new(self.requests.clone(), host)
    }

    /// Exports the state of caches from now on; `caches` is called on each scrape.
    pub fn observe_caches(&self, caches: impl Fn() -> Vec<CacheReading> + Send + Sync + 'static) {
        let collector = caches::Caches(Box::new(caches));
        self.registry.lock().register_collector(Box::new(collector));
    }

    /// Whether any observed queue has a queued key.
    #[must_use]
    pub fn has_queued_keys(&self) -> bool {
        self.queues.have_keys()
    }

    /// Exports the counts of events from now on; `events` is called on each scrape.
    pub fn observe_events(&self, events: impl Fn() -> EventReading + Send + Sync + 'static) {
        self.registry.lock().register_collector(Box::new(events::Events(Box::new(events))));
    }

    /// Exports the shards of this process from now on; `shards` is called on each scrape.
    pub fn observe_shards(&self, shards: impl Fn() -> ShardReading + Send + Sync + 'static) {
        self.registry.lock().register_collector(Box::new(shards::Shards(Box::new(shards))));
    }

    /// Exports the counts of traces' spans from now on; `spans` is called on each scrape.
    #[cfg(feature = "otlp")]
    pub fn observe_spans(&self, spans: impl Fn() -> SpanReading + Send + Sync + 'static) {
        self.registry.lock().register_collector(Box::new(spans::Spans(Box::new(spans))));
    }

    /// Exports metrics of this process and of the runtime that it is called on from now on, and these labels of the
    /// build.
    #[cfg(feature = "cli")]
    pub fn observe_process(&self, build: Vec<(&'static str, &'static str)>) {
        let runtime = tokio::runtime::Handle::try_current().ok();
        self.registry.lock().register_collector(Box::new(process::Process { runtime, build }));
    }

    /// Encodes all metrics as OpenMetrics text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        if text::encode(&mut text, &self.registry.lock()).is_err() {
            // Writing to memory does not fail, but a collector could.
            text.push_str("# incomplete\n");
        }
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Increments a gauge until the returned guard is dropped.
fn counted(gauge: &Gauge) -> impl Drop + use<> {
    struct Counted(Gauge);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.dec();
        }
    }
    gauge.inc();
    Counted(gauge.clone())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::workqueue::{AddOptions, Ageing, ItemExponentialFailure, LOW_PRIORITY, QueueOptions, Reason};

    fn value(text: &str, series: &str) -> f64 {
        let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series));
        let line = line.unwrap_or_else(|| panic!("no {series} in\n{text}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn queue_exports_the_metrics_of_client_go() {
        let metrics = Metrics::new();
        let limiter = ItemExponentialFailure::new(Duration::from_secs(1), Duration::from_secs(9));
        let options = QueueOptions { metrics: Some(metrics.queue("foo")), ..QueueOptions::default() };
        let queue = RateLimitingQueue::with(limiter, options);
        metrics.observe_queue("foo", queue.clone());
        queue.add("a");
        queue.add("a");
        queue.add("b");
        let processing = queue.get().await.unwrap();
        tokio::time::advance(Duration::from_secs(3)).await;
        queue.back_off("c", Duration::ZERO);
        let text = metrics.encode();
        let of = |name: &str| value(&text, &format!("{name}{{name=\"foo\",controller=\"foo\"}}"));
        assert_eq!((of("workqueue_depth"), of("workqueue_adds_total")), (1.0, 2.0));
        assert!(metrics.has_queued_keys());
        assert_eq!((of("workqueue_retries_total"), of("windlass_queue_waiting")), (1.0, 1.0));
        assert_eq!(of("workqueue_unfinished_work_seconds"), 3.0);
        assert_eq!(of("workqueue_longest_running_processor_seconds"), 3.0);
        assert_eq!((of("windlass_queue_oldest_seconds"), of("windlass_queue_backing_off")), (3.0, 1.0));
        assert_eq!(of("workqueue_queue_duration_seconds_count"), 1.0);
        drop(processing);
        let text = metrics.encode();
        let bucket = "workqueue_work_duration_seconds_bucket{le=\"10.0\",name=\"foo\",controller=\"foo\"}";
        assert_eq!(value(&text, bucket), 1.0);
        assert!(text.ends_with("# EOF\n"));
    }

    /// Returns the bounds of a histogram with their cumulative counts.
    fn buckets(text: &str, family: &str) -> Vec<(f64, u64)> {
        let start = format!("{family}_bucket{{le=\"");
        let bucket = |line: &str| {
            let (bound, rest) = line.strip_prefix(&start)?.split_once('"')?;
            Some((bound.parse().unwrap(), rest.rsplit_once(' ')?.1.parse().unwrap()))
        };
        text.lines().filter_map(bucket).collect()
    }

    /// client-go: `ExponentialBuckets(10e-9, 10, 10)`
    #[test]
    fn queue_durations_have_a_bucket_per_decade() {
        let metrics = Metrics::new();
        let queue = metrics.queue("foo");
        queue.got(Duration::from_nanos(50));
        queue.done(Duration::from_millis(5));
        let text = metrics.encode();
        for (family, first) in
            [("workqueue_queue_duration_seconds", 1), ("workqueue_work_duration_seconds", 6)]
        {
            let buckets = buckets(&text, family);
            assert_eq!(buckets.len(), 11, "{buckets:?}");
            for (exponent, (bound, _)) in (-8..=1).zip(&buckets) {
                assert!((bound / 10_f64.powi(exponent) - 1.0).abs() < 1e-9, "{buckets:?}");
            }
            assert!(buckets[10].0.is_infinite());
            assert_eq!(buckets.iter().position(|(_, count)| *count == 1), Some(first), "{buckets:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_depth_of_each_priority_is_reported() {
        let metrics = Metrics::new();
        let limiter = ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO);
        let queue = RateLimitingQueue::with(
            limiter,
            QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() },
        );
        metrics.observe_queue("foo", queue.clone());
        for (key, priority) in [("a", LOW_PRIORITY), ("b", 0), ("c", LOW_PRIORITY), ("c", LOW_PRIORITY)] {
            queue.add_with(key, AddOptions { priority, ..AddOptions::default() });
        }
        let text = metrics.encode();
        let of = |priority: i32| {
            value(&text, &format!("windlass_queue_priority_depth{{name=\"foo\",priority=\"{priority}\"}}"))
        };
        assert_eq!((of(0), of(LOW_PRIORITY)), (1.0, 2.0));
    }

    /// client-go counts a delayed add before it checks the delay.
    #[tokio::test(start_paused = true)]
    async fn a_delay_of_zero_counts_as_a_retry() {
        let metrics = Metrics::new();
        let limiter = ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO);
        let options = QueueOptions { metrics: Some(metrics.queue("foo")), ..QueueOptions::default() };
        let queue = RateLimitingQueue::with(limiter, options);
        queue.add("a");
        let retries = "workqueue_retries_total{name=\"foo\",controller=\"foo\"}";
        assert_eq!(value(&metrics.encode(), retries), 0.0);
        queue.add_after("b", Duration::ZERO);
        assert_eq!((queue.len(), queue.waiting()), (2, 0), "the key is queued at once");
        assert_eq!(value(&metrics.encode(), retries), 1.0);
    }

    #[test]
    fn controller_series_exist_from_its_start() {
        let metrics = Metrics::new();
        let controller = metrics.controller("foo");
        let text = metrics.encode();
        for (name, label, values) in [
            ("controller_runtime_reconcile_total", "result", vec!["success", "error", "requeue_after"]),
            ("windlass_retries_total", "cause", Retry::ALL.map(Retry::as_label).to_vec()),
            ("windlass_passes_total", "effect", Effect::LABELS.to_vec()),
        ] {
            for found in values {
                let series = format!("{name}{{controller=\"foo\",{label}=\"{found}\"}}");
                assert_eq!(value(&text, &series), 0.0);
            }
        }
        let reason = |text: &str, reason: &str, effect: &str| {
            let labels = format!("controller=\"foo\",reason=\"{reason}\",effect=\"{effect}\"");
            value(text, &format!("windlass_reasons_total{{{labels}}}"))
        };
        for each in Reason::LABELS {
            assert_eq!(Effect::LABELS.map(|effect| reason(&text, each, effect)), [0.0; 3]);
        }
        assert_eq!(value(&text, "controller_runtime_reconcile_panics_total{controller=\"foo\"}"), 0.0);
        controller.effect(Effect::Changed, &Reason::Manual.into());
        controller.retried(Retry::Conflict);
        let text = metrics.encode();
        let retries = "windlass_retries_total{controller=\"foo\",cause=\"conflict\"}";
        assert_eq!(value(&text, retries), 1.0);
        assert_eq!(Effect::LABELS.map(|effect| reason(&text, "manual", effect)), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn audits_are_counted_by_kind_and_result() {
        let metrics = Metrics::new();
        let audits = metrics.audits("foos");
        let count = |text: &str, result: &str| {
            value(text, &format!("windlass_audits_total{{kind=\"foos\",result=\"{result}\"}}"))
        };
        let findings = "windlass_audit_findings_total{kind=\"foos\"}";
        let text = metrics.encode();
        let results = ["clean", "found", "late", "error"];
        assert_eq!(results.map(|result| count(&text, result)), [0.0; 4]);
        assert_eq!(value(&text, findings), 0.0);
        audits.audited(AuditResult::Clean);
        for _ in 0..2 {
            audits.audited(AuditResult::Found);
        }
        audits.found(7);
        let text = metrics.encode();
        assert_eq!(results.map(|result| count(&text, result)), [1.0, 2.0, 0.0, 0.0]);
        assert_eq!(value(&text, findings), 7.0);
    }

    /// Counts everything for objects whose names must not show up.
    #[test]
    fn labels_never_contain_object_names() {
        let metrics = Metrics::new();
        let requests = metrics.requests("127.0.0.1:6443");
        requests.asked("GET").answered(200);
        requests.asked("GET").answered(200);
        drop(requests.asked("POST"));
        requests.waited("GET", Duration::from_millis(1));
        requests.sent("POST", 300);
        let limiter = ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO);
        let options = QueueOptions { metrics: Some(metrics.queue("foo")), ..QueueOptions::default() };
        let queue = RateLimitingQueue::with(limiter, options);
        metrics.observe_queue("foo", queue.clone());
        queue.add("secret-team/secret-name".to_owned());
        let child = Reason::Child { kind: "Secret".into(), name: "secret-team/secret-name".into() };
        metrics.controller("foo").effect(Effect::Nothing, &child.into());
        let handler = HandlerReading { name: "EnqueueSelf".to_owned(), ..HandlerReading::default() };
        let reading = CacheReading {
            kind: "foos".to_owned(),
            processing: (vec![(f64::INFINITY, 0)], 0.0),
            handlers: vec![handler],
            lists: vec![("first", 4)],
            ..CacheReading::default()
        };
        metrics.observe_caches(move || vec![reading.clone()]);
        metrics.audits("foos").audited(AuditResult::Clean);
        metrics.observe_events(|| EventReading { written: 3, failed: 2, dropped: 1 });

        let text = metrics.encode();
        assert!(!text.contains("secret"), "{text}");
        let series = |code: &str, method: &str| {
            format!(
                "rest_client_requests_total{{code=\"{code}\",method=\"{method}\",host=\"127.0.0.1:6443\"}}"
            )
        };
        assert_eq!(value(&text, &series("200", "GET")), 2.0);
        assert_eq!(value(&text, &series("<error>", "POST")), 1.0);
        for (result, count) in [("written", 3.0), ("failed", 2.0), ("dropped", 1.0)] {
            assert_eq!(value(&text, &format!("windlass_events_total{{result=\"{result}\"}}")), count);
        }
        let known = [
            "cause",
            "code",
            "controller",
            "effect",
            "group",
            "handler",
            "host",
            "kind",
            "le",
            "method",
            "name",
            "priority",
            "reason",
            "resource",
            "result",
            "verb",
            "version",
        ];
        let labels = text.lines().filter_map(|line| Some(line.split_once('{')?.1.split_once('}')?.0));
        let names = labels.flat_map(|labels| labels.split(',')).map(|label| label.split_once('=').unwrap().0);
        let names: std::collections::BTreeSet<&str> = names.collect();
        assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
        assert_eq!(names.len(), known.len(), "every known label occurs");
    }

    #[test]
    fn bodies_are_counted_by_their_size() {
        let metrics = Metrics::new();
        let requests = metrics.requests("here");
        requests.sent("POST", 300);
        requests.received("GET", 5 << 20);
        let text = metrics.encode();
        let bucket = |family: &str, verb: &str, le: &str| {
            value(
                &text,
                &format!(
                    "rest_client_{family}_size_bytes_bucket{{le=\"{le}\",verb=\"{verb}\",host=\"here\"}}"
                ),
            )
        };
        assert_eq!((bucket("request", "POST", "256.0"), bucket("request", "POST", "512.0")), (0.0, 1.0));
        assert_eq!(
            (bucket("response", "GET", "4194304.0"), bucket("response", "GET", "16777216.0")),
            (0.0, 1.0)
        );
    }
}
