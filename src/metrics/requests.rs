//! Metrics of the client's requests.
//!
//! Mirrors client-go `tools/metrics`. `rest_client_request_retries_total` has no counterpart: the client resends
//! nothing.
//!
//! # Guarantees
//! - Body sizes are counted by verb, in client-go's buckets. (test: `bodies_are_counted_by_their_size`)

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Counters, Histograms};

/// Creates a histogram with client-go's buckets, in seconds.
fn requests() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
}

/// Creates a histogram with client-go's buckets, 64 to 16 Mi bytes.
fn sizes() -> Histogram {
    const KI: f64 = 1024.0;
    let small = [64.0, 256.0, 512.0, KI, 4.0 * KI, 16.0 * KI, 64.0 * KI, 256.0 * KI];
    Histogram::new(small.into_iter().chain([KI * KI, 4.0 * KI * KI, 16.0 * KI * KI]))
}

/// The metric families of requests.
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
        let help = "Requests by code and method; the code is <error> if there was no response";
        registry.register("rest_client_requests", help, this.total.clone());
        let help = "Time in seconds until the response starts";
        registry.register("rest_client_request_duration_seconds", help, this.duration.clone());
        let help = "Time in seconds that a request waits for the client's limits and a server's Retry-After";
        registry.register("rest_client_rate_limiter_duration_seconds", help, this.limiter.clone());
        let help = "Size of request bodies in bytes";
        registry.register("rest_client_request_size_bytes", help, this.request_size.clone());
        let help = "Size of response bodies in bytes, without watches";
        registry.register("rest_client_response_size_bytes", help, this.response_size.clone());
        registry.register("windlass_requests_in_flight", "Writes in flight", this.in_flight.clone());
        this
    }
}

// === impl RequestMetrics ===

impl RequestMetrics {
    pub(super) fn new(families: Arc<Requests>, host: &str) -> Self {
        Self { families, host: host.into() }
    }

    /// Creates metrics that are not exported.
    #[must_use]
    pub fn unread() -> Self {
        super::Metrics::new().requests("")
    }

    /// Starts a request, which is counted when the returned guard is dropped: as failed, unless `answered` was
    /// called.
    #[must_use]
    pub fn asked(&self, method: &str) -> Asked {
        Asked { metrics: self.clone(), method: method.to_owned(), started: Instant::now(), code: None }
    }

    /// Records how long a request waited before it was sent.
    pub fn waited(&self, method: &str, waited: Duration) {
        let labels = vec![("verb", method.to_owned()), ("host", self.host.to_string())];
        self.families.limiter.get_or_create(&labels).observe(waited.as_secs_f64());
    }

    /// Records the size of a request body.
    pub fn sent(&self, method: &str, bytes: usize) {
        let labels = vec![("verb", method.to_owned()), ("host", self.host.to_string())];
        self.families.request_size.get_or_create(&labels).observe(bytes as f64);
    }

    /// Records the size of a response body.
    pub fn received(&self, method: &str, bytes: usize) {
        let labels = vec![("verb", method.to_owned()), ("host", self.host.to_string())];
        self.families.response_size.get_or_create(&labels).observe(bytes as f64);
    }

    /// Counts a write as in flight until the returned guard is dropped.
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

/// A request in flight, counted when it is dropped.
#[derive(Debug)]
pub struct Asked {
    metrics: RequestMetrics,
    method: String,
    started: Instant,
    code: Option<u16>,
}

impl Asked {
    /// Records the status code of the response.
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
