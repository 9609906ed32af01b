//! Sends spans to a collector in batches, by OTLP over HTTP.
//!
//! Flow: ended span -> buffer of [`BUFFER`] spans -> **exporter** -> collector
//!
//! The SDK's own batch processor blocks a thread without a runtime, which the HTTP client needs, and keeps the number of
//! dropped spans to itself. So the buffer is a channel, and the exporter a future that the program awaits beside its
//! work; spans, sampling, encoding and retries are the SDK's.
//!
//! # Guarantees
//! - A collector that is away or hangs costs spans, and one line in the log for each outage. (test: `lost_collector_is_logged_once_per_outage`)
//! - After a stop the last spans are sent, for [`FLUSH`] at most. (test: `last_spans_are_sent_before_the_end`, `hanging_collector_delays_the_end_by_the_flush_alone`)

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Uri;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{
    Sampler, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor,
};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Tracer;
use crate::metrics::SpanReading;

/// How many ended spans wait to be sent; what ends meanwhile is dropped.
pub(super) const BUFFER: usize = 2048;
/// How many spans one request has at most.
const BATCH: usize = 512;
/// How long a span waits for others.
const DELAY: Duration = Duration::from_secs(5);
/// How long the collector may take to answer, repetitions included.
const ANSWER: Duration = Duration::from_secs(10);
/// How long sending the last spans may take.
const FLUSH: Duration = Duration::from_secs(3);

const PATH: &str = "/v1/traces";

/// The URL of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Uri);

/// A URL to which no spans can be sent. The error does not quote the URL, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EndpointError(&'static str);

/// Sends what a [`Tracer`] has recorded; the owner drives [`run`](Self::run).
pub struct Exporter<E = SpanExporter> {
    spans: mpsc::Receiver<SpanData>,
    counts: Arc<Counts>,
    exporter: E,
    /// Where the collector is, for the log.
    endpoint: String,
    /// Whether the collector has accepted the last request.
    is_answered: bool,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
    lost: AtomicU64,
}

/// Takes ended spans, and never waits.
#[derive(Debug)]
struct Buffer {
    spans: mpsc::Sender<SpanData>,
    counts: Arc<Counts>,
}

// === impl Endpoint ===

impl Endpoint {
    /// Parses the URL of a collector; `/v1/traces` is added unless it is there.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn parse(url: &str) -> Result<Self, EndpointError> {
        let wrong = EndpointError("it is not a URL");
        let parsed: Uri = url.parse().map_err(|_| wrong)?;
        if !matches!(parsed.scheme_str(), Some("http" | "https")) {
            return Err(EndpointError("it does not begin with http:// or https://"));
        }
        if parsed.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(EndpointError(
                "credentials do not belong into it, but into OTEL_EXPORTER_OTLP_HEADERS",
            ));
        }
        if parsed.query().is_some() {
            return Err(EndpointError("it has a query"));
        }
        let base = url.trim_end_matches('/');
        let full = if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") };
        full.parse().map(Self).map_err(|_| wrong)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Creates a tracer that samples this part of the syncs, and the exporter of its spans.
///
/// # Errors
/// A text if no HTTP client can be had: the system has no certificates, or a standard variable is wrong.
pub fn start(
    endpoint: &Endpoint,
    sample_ratio: f64,
    resource: &[(&'static str, String)],
) -> Result<(Tracer, Exporter), String> {
    let client = reqwest::Client::builder().timeout(ANSWER);
    // Without TLS no certificates are loaded.
    let is_plain = endpoint.0.scheme_str() == Some("http");
    let client = if is_plain { client.tls_certs_only([]) } else { client };
    let client = client.build().map_err(|_| "the system has no trusted CA certificates".to_owned())?;
    let resource = resource.iter().map(|(name, value)| KeyValue::new(*name, value.clone()));
    let mut resource = Resource::builder_empty()
        .with_attributes(resource)
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    if let Some(name) = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty()) {
        resource = resource.with_service_name(name);
    }
    let resource = resource.build();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(endpoint.to_string())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(ANSWER);
    let mut exporter = exporter.build().map_err(|error| error.to_string())?;
    exporter.set_resource(&resource);
    Ok(tracer(exporter, endpoint.to_string(), sample_ratio, resource))
}

pub(super) fn tracer<E>(
    exporter: E,
    endpoint: String,
    sample_ratio: f64,
    resource: Resource,
) -> (Tracer, Exporter<E>) {
    let (sender, spans) = mpsc::channel(BUFFER);
    let counts = Arc::<Counts>::default();
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample_ratio))))
        .with_resource(resource)
        .with_span_processor(Buffer { spans: sender, counts: counts.clone() })
        .build();
    let tracer = Tracer::new(provider.tracer("windlass"));
    (tracer, Exporter { spans, counts, exporter, endpoint, is_answered: true })
}

// === impl Exporter ===

impl<E> Exporter<E> {
    /// Returns a function that reads the numbers of spans.
    pub fn read_counts(&self) -> impl Fn() -> SpanReading + Send + Sync + use<E> {
        let counts = self.counts.clone();
        move || counts.read()
    }
}

impl<E: opentelemetry_sdk::trace::SpanExporter> Exporter<E> {
    /// Sends spans until `stop`, and then those that are left, for a few seconds at most.
    ///
    /// # Cancel safety
    /// Dropping the future loses spans, nothing else.
    pub async fn run(mut self, stop: CancellationToken) {
        let counts = self.counts.clone();
        let too_late = async {
            stop.cancelled().await;
            tokio::time::sleep(FLUSH).await;
        };
        tokio::select! {
            biased;
            () = self.send_all(&stop) => {}
            () = too_late => tracing::warn!(timeout = ?FLUSH, "Could not send the last spans in time"),
        }
        let SpanReading { sent, dropped, lost } = counts.read();
        tracing::debug!(sent, dropped, lost, "Spans since the start");
    }

    async fn send_all(&mut self, stop: &CancellationToken) {
        let mut batch = Vec::new();
        loop {
            stop.run_until_cancelled(collect(&mut self.spans, &mut batch)).await;
            while batch.len() < BATCH
                && let Ok(span) = self.spans.try_recv()
            {
                batch.push(span);
            }
            if !batch.is_empty() {
                self.send(std::mem::take(&mut batch)).await;
            } else if stop.is_cancelled() {
                return;
            }
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let count = batch.len() as u64;
        let answer = timeout(ANSWER, self.exporter.export(batch)).await;
        let error = match answer {
            Ok(Ok(())) => {
                self.counts.sent.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut self.is_answered, true) {
                    let lost = self.counts.read().lost;
                    tracing::info!(
                        endpoint = self.endpoint,
                        lost,
                        "The collector of spans accepts them again"
                    );
                }
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {ANSWER:?}"),
        };
        self.counts.lost.fetch_add(count, Ordering::Relaxed);
        if std::mem::replace(&mut self.is_answered, false) {
            tracing::warn!(
                endpoint = self.endpoint,
                error,
                "Could not send spans; they are lost until the collector accepts OTLP over HTTP there"
            );
        }
    }
}

/// Fills a batch, and waits for the rest of it for [`DELAY`] at most.
///
/// # Cancel safety
/// Safe: spans that were received are in the batch.
async fn collect(spans: &mut mpsc::Receiver<SpanData>, batch: &mut Vec<SpanData>) {
    if spans.recv_many(batch, BATCH).await == 0 {
        // Nobody records spans any more.
        return std::future::pending().await;
    }
    let fill =
        async { while batch.len() < BATCH && spans.recv_many(batch, BATCH - batch.len()).await > 0 {} };
    // What is there by then is the batch.
    timeout(DELAY, fill).await.ok();
}

impl<E> fmt::Debug for Exporter<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

// === impl Counts ===

impl Counts {
    fn read(&self) -> SpanReading {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        SpanReading { sent: read(&self.sent), dropped: read(&self.dropped), lost: read(&self.lost) }
    }
}

// === impl Buffer ===

impl SpanProcessor for Buffer {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        // Once the exporter has ended, so does the process.
        let Err(TrySendError::Full(_)) = self.spans.try_send(span) else { return };
        if self.counts.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                "Dropping spans: they end faster than the collector takes them; \
                 windlass_trace_spans_total counts them"
            );
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
