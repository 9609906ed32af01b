//! What the client counts of its requests.
//!
//! Mirrors client-go `tools/metrics`. `rest_client_request_retries_total` has no counterpart: nothing is sent again by
//! the client.
//!
//! # Guarantees
//! - Sizes are counted by verb, in client-go's buckets. (test: `bodies_are_counted_by_their_size`)

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Counters, Histograms};

/// client-go's.
fn requests() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
}

/// client-go's, in bytes: 64 to 16 Mi.
fn sizes() -> Histogram {
    const KI: f64 = 1024.0;
    let small = [64.0, 256.0, 512.0, KI, 4.0 * KI, 16.0 * KI, 64.0 * KI, 256.0 * KI];
    Histogram::new(small.into_iter().chain([KI * KI, 4.0 * KI * KI, 16.0 * KI * KI]))
}

/// The families.
#[derive(Debug)]
pub(super) struct Requests {
    total: Counters,
    duration: Histograms,
    limiter: Histograms,
    request_size: Histograms,
    response_size: Histograms,
    in_flight: Gauge,
}

/// Counts requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    families: Arc<Requests>,
    host: Arc<str>,
}

// === impl Requests ===

impl Requests {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let this = Self {
            total: Counters::default(),
            duration: Histograms::new_with_constructor(requests),
            limiter: Histograms::new_with_constructor(requests),
            request_size: Histograms::new_with_constructor(sizes),
            response_size: Histograms::new_with_constructor(sizes),
            in_flight: Gauge::default(),
        };
        let help = "Requests by code and method; code is <error> where no answer came";
        registry.register("rest_client_requests", help, this.total.clone());
        let help = "How long it takes until an answer begins";
        registry.register("rest_client_request_duration_seconds", help, this.duration.clone());
        let help = "How long a request waits for the client's own limits and for what a server asked for";
        registry.register("rest_client_rate_limiter_duration_seconds", help, this.limiter.clone());
        let help = "Bytes of the bodies that were sent";
        registry.register("rest_client_request_size_bytes", help, this.request_size.clone());
        let help = "Bytes of the bodies that came, without those of watches";
        registry.register("rest_client_response_size_bytes", help, this.response_size.clone());
        registry.register("windlass_requests_in_flight", "Writes under way", this.in_flight.clone());
        this
    }
}

// === impl RequestMetrics ===

impl RequestMetrics {
    pub(super) fn new(families: Arc<Requests>, host: &str) -> Self {
        Self { families, host: host.into() }
    }

    /// Of a client whose numbers nobody reads.
    #[must_use]
    pub fn unread() -> Self {
        super::Metrics::new().requests("")
    }

    /// A request is sent. It counts as one without an answer, unless one comes before this is dropped.
    #[must_use]
    pub fn asked(&self, method: &str) -> Asked {
        Asked { metrics: self.clone(), method: method.to_owned(), started: Instant::now(), code: None }
    }

    /// A request has waited before it was sent.
    pub fn waited(&self, method: &str, waited: Duration) {
        let labels = vec![("verb", method.to_owned()), ("host", self.host.to_string())];
        self.families.limiter.get_or_create(&labels).observe(waited.as_secs_f64());
    }

    /// A body of so many bytes is sent.
    pub fn sent(&self, method: &str, bytes: usize) {
        let labels = vec![("verb", method.to_owned()), ("host", self.host.to_string())];
        self.families.request_size.get_or_create(&labels).observe(bytes as f64);
    }

    /// A body of so many bytes has come.
    pub fn received(&self, method: &str, bytes: usize) {
        let labels = vec![("verb", method.to_owned()), ("host", self.host.to_string())];
        self.families.response_size.get_or_create(&labels).observe(bytes as f64);
    }

    /// A write is under way until the answer is dropped.
    #[must_use]
    pub fn write_in_flight(&self) -> impl Drop + use<> {
        super::counted(&self.families.in_flight)
    }

    fn count(&self, method: &str, code: &str, took: Duration) {
        let host = || ("host", self.host.to_string());
        let labels = vec![("code", code.to_owned()), ("method", method.to_owned()), host()];
        self.families.total.get_or_create(&labels).inc();
        let labels = vec![("verb", method.to_owned()), host()];
        self.families.duration.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
pub struct Asked {
    metrics: RequestMetrics,
    method: String,
    started: Instant,
    code: Option<u16>,
}

impl Asked {
    /// An answer has begun.
    pub fn answered(mut self, code: u16) {
        self.code = Some(code);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let code = self.code.map_or("<error>".to_owned(), |code| code.to_string());
        self.metrics.count(&self.method, &code, self.started.elapsed());
    }
}
