//! Metrics of queues.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::{Counters, Histograms, Labels};
use crate::workqueue::{Key, QueueMetrics, QueueState, RateLimitingQueue};

/// Creates a histogram with client-go's buckets: ten nanoseconds to ten seconds, one per decade.
fn decades() -> Histogram {
    Histogram::new(exponential_buckets(10e-9, 10.0, 10))
}

/// The metric families of queues.
#[derive(Debug)]
pub(super) struct Queues {
    adds: Counters,
    retries: Counters,
    queue_duration: Histograms,
    work_duration: Histograms,
    observed: Arc<Mutex<Vec<Observed>>>,
}

struct Observed {
    name: &'static str,
    read: Box<dyn Fn() -> Reading + Send + Sync>,
    has_keys: Box<dyn Fn() -> bool + Send + Sync>,
}

struct Reading {
    state: QueueState,
    waiting: usize,
    backing_off: usize,
}

/// The metrics of one queue.
#[derive(Debug)]
struct OfOne {
    adds: Counter,
    retries: Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
}

/// Collects the gauges of observed queues.
#[derive(Debug)]
struct Gauges(Arc<Mutex<Vec<Observed>>>);

fn labels(name: &'static str) -> Labels {
    vec![("name", name.to_owned()), ("controller", name.to_owned())]
}

// === impl Queues ===

impl Queues {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let observed = Arc::default();
        let this = Self {
            adds: Counters::default(),
            retries: Counters::default(),
            queue_duration: Histograms::new_with_constructor(decades),
            work_duration: Histograms::new_with_constructor(decades),
            observed: Arc::clone(&observed),
        };
        registry.register("workqueue_adds", "Adds of keys that were not queued already", this.adds.clone());
        registry.register("workqueue_retries", "Delayed adds of keys", this.retries.clone());
        let help = "Time in seconds that a key waits in the queue";
        registry.register("workqueue_queue_duration_seconds", help, this.queue_duration.clone());
        let help = "Time in seconds that a worker takes to process a key";
        registry.register("workqueue_work_duration_seconds", help, this.work_duration.clone());
        registry.register_collector(Box::new(Gauges(observed)));
        this
    }

    pub(super) fn of(&self, name: &'static str) -> Arc<dyn QueueMetrics> {
        let labels = labels(name);
        Arc::new(OfOne {
            adds: self.adds.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
            queue_duration: self.queue_duration.get_or_create_owned(&labels),
            work_duration: self.work_duration.get_or_create_owned(&labels),
        })
    }

    pub(super) fn observe<T: Key>(&self, name: &'static str, queue: RateLimitingQueue<T>) {
        let of_keys = queue.clone();
        let has_keys = Box::new(move || !of_keys.is_empty());
        let read = move || Reading {
            state: queue.state(),
            waiting: queue.waiting(),
            backing_off: queue.backing_off(),
        };
        self.observed.lock().push(Observed { name, read: Box::new(read), has_keys });
    }

    pub(super) fn have_keys(&self) -> bool {
        self.observed.lock().iter().any(|queue| (queue.has_keys)())
    }
}

impl QueueMetrics for OfOne {
    fn added(&self) {
        self.adds.inc();
    }

    fn got(&self, waited: Duration) {
        self.queue_duration.observe(waited.as_secs_f64());
    }

    fn done(&self, worked: Duration) {
        self.work_duration.observe(worked.as_secs_f64());
    }

    fn retried(&self) {
        self.retries.inc();
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("name", &self.name).finish_non_exhaustive()
    }
}

type Gauge = (&'static str, &'static str, fn(&Reading) -> f64);

const GAUGES: [Gauge; 6] = [
    ("workqueue_unfinished_work_seconds", "Total age in seconds of the passes in progress", |reading| {
        reading.state.unfinished_work.as_secs_f64()
    }),
    (
        "workqueue_longest_running_processor_seconds",
        "Age in seconds of the oldest pass in progress",
        |reading| reading.state.longest_running.as_secs_f64(),
    ),
    ("windlass_queue_waiting", "Keys waiting for a delay to end", |reading| count(reading.waiting)),
    ("windlass_queue_backing_off", "Keys backing off after a failure", |reading| count(reading.backing_off)),
    ("windlass_queue_oldest_seconds", "Time in seconds that the oldest queued key has waited", |reading| {
        reading.state.oldest_waiting.as_secs_f64()
    }),
    ("workqueue_depth", "Keys that are queued or need another pass", |reading| count(reading.state.depth)),
];

/// Exact below 2^53.
fn count(count: usize) -> f64 {
    count as f64
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let readings: Vec<(&str, Labels, Reading)> =
            self.0.lock().iter().map(|queue| (queue.name, labels(queue.name), (queue.read)())).collect();
        for (name, help, value) in GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (_, labels, reading) in &readings {
                ConstGauge::new(value(reading)).encode(metric.encode_family(labels)?)?;
            }
        }
        let help = "Queued keys by priority";
        let mut metric =
            encoder.encode_descriptor("windlass_queue_priority_depth", help, None, MetricType::Gauge)?;
        for (name, _, reading) in &readings {
            for (priority, length) in &reading.state.by_priority {
                let labels = [("name", (*name).to_owned()), ("priority", priority.to_string())];
                ConstGauge::new(count(*length)).encode(metric.encode_family(&labels)?)?;
            }
        }
        let help = "Wake-ups of workers waiting for a key";
        let mut metric =
            encoder.encode_descriptor("windlass_queue_wakeups", help, None, MetricType::Counter)?;
        for (_, labels, reading) in &readings {
            ConstCounter::new(reading.state.wakeups).encode(metric.encode_family(labels)?)?;
        }
        Ok(())
    }
}
