//! What is exported of syncs, with a collector in the test.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Request, StatusCode};
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::export::{BUFFER, tracer};
use super::*;
use crate::metrics::SpanReading;

const MS: Duration = Duration::from_millis(1);

/// What the collector does with a request.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Accepts,
    Refuses,
    Hangs,
}

#[derive(Clone, Debug)]
struct Collector {
    spans: Arc<Mutex<Vec<SpanData>>>,
    mood: Arc<Mutex<Mood>>,
}

impl SpanExporter for Collector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let mood = *self.mood.lock();
        match mood {
            Mood::Accepts => self.spans.lock().extend(batch),
            Mood::Refuses => return Err(OTelSdkError::InternalFailure("refused by the test".to_owned())),
            Mood::Hangs => std::future::pending().await,
        }
        Ok(())
    }
}

/// A tracer, its exporter at work, and the collector.
struct Rig {
    tracer: Tracer,
    collector: Collector,
    counts: Box<dyn Fn() -> SpanReading>,
    stop: CancellationToken,
    exporting: JoinSet<()>,
}

fn rig(sample_ratio: f64) -> Rig {
    let collector = Collector { spans: Arc::default(), mood: Arc::new(Mutex::new(Mood::Accepts)) };
    let resource = Resource::builder_empty().build();
    let (tracer, exporter) = tracer(collector.clone(), "test".to_owned(), sample_ratio, resource);
    let (counts, stop) = (Box::new(exporter.read_counts()), CancellationToken::new());
    let mut exporting = JoinSet::new();
    exporting.spawn(exporter.run(stop.clone()));
    Rig { tracer, collector, counts, stop, exporting }
}

impl Rig {
    fn sync(&self, carried: &mut Carried, waited: Duration) -> SyncTrace {
        self.tracer.sync(carried, waited, || Woken {
            controller: "foo",
            kind: "Foo",
            namespace: Some("ns"),
            name: "web",
            reasons: vec!["created".to_owned()],
            failures: 0,
        })
    }

    /// Makes a sync of one request, and returns the header of the request.
    async fn sync_with_request(&self, carried: &mut Carried, failed: Option<Failed>) -> Option<String> {
        let trace = self.sync(carried, 5 * MS);
        let header = trace.run(send(failed)).await;
        trace.ended(carried, 1, failed.map_or(Ok(&"Done" as &dyn std::fmt::Debug), Err));
        header
    }

    fn feel(&self, mood: Mood) {
        *self.collector.mood.lock() = mood;
    }

    /// Ends the exporter, and returns all spans that the collector has, by name.
    async fn end(mut self) -> BTreeMap<String, SpanData> {
        self.stop.cancel();
        self.exporting.join_next().await.expect("the exporter runs").expect("it does not panic");
        let spans = self.collector.spans.lock();
        spans.iter().map(|span| (span.name.to_string(), span.clone())).collect()
    }
}

/// A request of a sync, as the client makes it.
async fn send(failed: Option<Failed>) -> Option<String> {
    let mut request = Request::post("/apis/apps/v1/namespaces/ns/deployments").body(()).expect("a request");
    let scope = super::request(&mut request);
    scope.run(async { answered(StatusCode::CREATED) }).await;
    scope.ended(|| failed);
    request.headers().get("traceparent").map(|header| header.to_str().expect("ASCII").to_owned())
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
    found.map(|attribute| attribute.value.to_string())
}

fn length(span: &SpanData) -> Duration {
    span.end_time.duration_since(span.start_time).expect("a span ends after its start")
}

#[tokio::test(start_paused = true)]
async fn a_sync_is_one_trace() {
    let rig = rig(1.0);
    let header = rig.sync_with_request(&mut Carried::default(), None).await.expect("a header");
    let spans = rig.end().await;
    let [root, wait, sync, request] = ["foo", "wait", "sync", "POST deployments"].map(|name| &spans[name]);
    assert_eq!(spans.len(), 4);
    let trace = root.span_context.trace_id();
    for (span, parent) in [
        (root, SpanId::INVALID),
        (wait, root.span_context.span_id()),
        (sync, root.span_context.span_id()),
        (request, sync.span_context.span_id()),
    ] {
        assert_eq!((span.span_context.trace_id(), span.parent_span_id), (trace, parent), "{}", span.name);
    }
    assert_eq!(header, format!("00-{trace}-{}-01", request.span_context.span_id()));
    assert_eq!((length(wait), wait.start_time), (5 * MS, root.start_time));
    for (span, name, value) in [
        (root, "k8s.namespace.name", "ns"),
        (root, "windlass.name", "web"),
        (root, "windlass.reasons", "[\"created\"]"),
        (sync, "windlass.outcome", "\"Done\""),
        (sync, "windlass.writes", "1"),
        (request, "http.request.method", "POST"),
        (request, "url.path", "/apis/apps/v1/namespaces/ns/deployments"),
        (request, "http.response.status_code", "201"),
    ] {
        assert_eq!(attribute(span, name).as_deref(), Some(value), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn unsampled_sync_has_neither_spans_nor_header() {
    let rig = rig(0.0);
    assert_eq!(rig.sync_with_request(&mut Carried::default(), None).await, None);
    assert_eq!(send(None).await, None, "outside of syncs");
    let off = Tracer::default();
    let mut carried = Carried::default();
    carried.put_off(&off, PutOff { waited: MS, why: "backoff" });
    assert!(carried.is_empty());
    let trace = off.sync(&mut carried, MS, || unreachable!("nothing is described"));
    assert_eq!((trace.id(), trace.run(send(None)).await), (None, None));
    assert!(rig.end().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn wait_begins_with_the_first_event() {
    let rig = rig(1.0);
    let mut carried = Carried::default();
    for why in ["own writes", "backoff"] {
        carried.put_off(&rig.tracer, PutOff { waited: 100 * MS, why });
        sleep(1000 * MS).await;
    }
    rig.sync_with_request(&mut carried, None).await;
    assert!(carried.is_empty());
    let spans = rig.end().await;
    assert_eq!(length(&spans["wait"]), 2100 * MS);
    assert_eq!(attribute(&spans["wait"], "windlass.put_off").as_deref(), Some("2"));
    assert_eq!(attribute(&spans["wait"], "windlass.put_off.why").as_deref(), Some("backoff"));
}

#[tokio::test(start_paused = true)]
async fn failed_sync_and_request_tell_the_class_alone() {
    let rig = rig(1.0);
    let mut carried = Carried::default();
    rig.sync_with_request(&mut carried, Some(Failed { class: "conflict", code: Some(409) })).await;
    let first = rig.collector.clone();
    // The retry.
    rig.sync_with_request(&mut carried, None).await;
    let last = rig.end().await;
    let all = first.spans.lock();
    for name in ["foo", "sync", "POST deployments"] {
        let failed = all.iter().find(|span| span.name == name).unwrap();
        assert_eq!(failed.status, Status::error("conflict"), "{name}");
        assert_eq!(attribute(failed, "error.type").as_deref(), Some("409"), "{name}");
        assert_eq!(last[name].status, Status::Unset, "{name}");
    }
    let failed = all.iter().find(|span| span.name == "sync").unwrap();
    let links: Vec<_> = last["foo"].links.iter().map(|link| link.span_context.span_id()).collect();
    assert_eq!(links, [failed.span_context.span_id()], "the retry links to the sync that failed");
}

#[tokio::test(start_paused = true)]
async fn full_buffer_drops_spans_and_counts_them() {
    let log = crate::testing::capture_log();
    let rig = rig(1.0);
    rig.feel(Mood::Hangs);
    let before = Instant::now();
    for _ in 0..BUFFER {
        rig.sync_with_request(&mut Carried::default(), None).await;
    }
    assert_eq!(before.elapsed(), Duration::ZERO, "nobody waits");
    assert_eq!((rig.counts)().dropped, 3 * BUFFER as u64);
    let lines = log.lines();
    assert_eq!(lines.iter().filter(|line| line.contains("Dropping spans")).count(), 1, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_collector_is_logged_once_per_outage() {
    let log = crate::testing::capture_log();
    let rig = rig(1.0);
    for (mood, requests) in [(Mood::Refuses, 3), (Mood::Accepts, 2), (Mood::Refuses, 2)] {
        rig.feel(mood);
        for _ in 0..requests {
            rig.sync_with_request(&mut Carried::default(), None).await;
            sleep(Duration::from_secs(10)).await;
        }
    }
    assert_eq!((rig.counts)(), SpanReading { sent: 8, dropped: 0, lost: 20 });
    let lines = log.lines();
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!((count("WARN Could not send spans"), count("accepts them again")), (2, 1), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn last_spans_are_sent_before_the_end() {
    let rig = rig(1.0);
    rig.sync_with_request(&mut Carried::default(), None).await;
    let before = Instant::now();
    assert_eq!(rig.end().await.len(), 4);
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn hanging_collector_delays_the_end_by_the_flush_alone() {
    let rig = rig(1.0);
    rig.feel(Mood::Hangs);
    rig.sync_with_request(&mut Carried::default(), None).await;
    sleep(Duration::from_secs(7)).await;
    rig.sync_with_request(&mut Carried::default(), None).await;
    let before = Instant::now();
    rig.end().await;
    assert_eq!(before.elapsed(), Duration::from_secs(3));
}

#[test]
fn endpoint_gets_the_path_of_traces_once() {
    for (url, full) in [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://host/otlp", "https://host/otlp/v1/traces"),
        ("https://host/otlp/v1/traces", "https://host/otlp/v1/traces"),
    ] {
        assert_eq!(Endpoint::parse(url).unwrap().to_string(), full);
    }
}
