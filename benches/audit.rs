//! Measures the audit of one kind: processor time and memory, with a full cache and no differences.
//!
//! `cargo bench --bench audit` prints, for 10,000 and 100,000 objects, the processor time of the audit (including the
//! pages, which the same process serves), its number of requests, and its memory beyond that of the process at rest.
//! The cost of an additional object is the difference between the two.

#![allow(clippy::print_stdout, reason = "its results go to standard output")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cpu_time::ProcessTime;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::client::Body;
use peak_alloc::PeakAlloc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::cache::{InformerConfig, SharedInformer};
use windlass::client::ApiClient;
use windlass::controller::Audits;
use windlass::metrics::Metrics;
use windlass::testing::{FakeSource, config_map};
use windlass::workqueue::{ItemExponentialFailure, RateLimitingQueue};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const PERIOD: Duration = Duration::from_secs(1800);
const PAGE: usize = 500;

struct Measured {
    time: Duration,
    requests: usize,
    bytes: usize,
}

/// Returns one page of the metadata of `count` config maps, matching the source below.
fn page(count: usize, from: usize) -> String {
    let to = count.min(from + PAGE);
    let next = if to < count { to.to_string() } else { String::new() };
    let mut text = format!(r#"{{"metadata":{{"resourceVersion":"{count}","continue":"{next}"}},"items":["#);
    for at in from..to {
        let comma = if at > from { "," } else { "" };
        let version = at + 1;
        write!(
            text,
            r#"{comma}{{"metadata":{{"name":"o-{at}","namespace":"ns","uid":"uid-of-ns-o-{at}","resourceVersion":"{version}","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app.kubernetes.io/managed-by":"windlass","app.kubernetes.io/name":"foo"}}}}}}"#
        )
        .unwrap();
    }
    text.push_str("]}");
    text
}

fn server(count: usize, requests: Arc<AtomicUsize>) -> ApiClient {
    let service = tower::service_fn(move |request: Request<Body>| {
        requests.fetch_add(1, Ordering::Relaxed);
        let query = request.uri().query().unwrap_or_default();
        let from = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
        let body = page(count, from.map_or(0, |from| from.parse().unwrap()));
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::from(body.into_bytes()))))
    });
    ApiClient::new(kube_client::Client::new(service, "ns"))
}

async fn audit(count: usize) -> Measured {
    let source = FakeSource::<ConfigMap>::new();
    for at in 0..count {
        source.put(config_map("ns", &format!("o-{at}"), 0));
    }
    let informer = SharedInformer::new(source, InformerConfig::default());
    let (audits, requests, metrics) = (Audits::default(), Arc::new(AtomicUsize::new(0)), Metrics::new());
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(PERIOD, PERIOD));
    audits.add_owner(&informer, queue, Arc::default());
    let mut tasks = JoinSet::new();
    let running = informer.clone();
    tasks.spawn(async move { running.run(CancellationToken::new()).await.unwrap() });
    informer.synced().synced().await;
    let client = server(count, requests.clone());
    let counted = metrics.clone();
    tasks.spawn(async move { audits.run(client, PERIOD, counted, CancellationToken::new()).await });
    tokio::time::sleep(PERIOD / 2).await;
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let started = ProcessTime::now();
    tokio::time::sleep(PERIOD).await;
    let (time, bytes) = (started.elapsed(), HEAP.peak_usage() - before);
    let text = metrics.encode();
    assert!(text.contains("windlass_audits_total{kind=\"configmaps\",result=\"clean\"} 1\n"), "{text}");
    Measured { time, requests: requests.load(Ordering::Relaxed), bytes }
}

fn main() {
    let measure = |count| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let measured = runtime.unwrap().block_on(audit(count));
        let Measured { time, requests, bytes } = &measured;
        println!("{count:>7} objects: {time:>9.1?}, {requests:>3} requests, {bytes:>8} bytes");
        measured
    };
    let (small, large) = (measure(10_000), measure(100_000));
    let each = large.bytes.saturating_sub(small.bytes) as f64 / 90_000.0;
    let nanos = large.time.saturating_sub(small.time).as_nanos() as f64 / 90_000.0;
    println!("each additional object: {nanos:.0} ns, {each:.1} bytes");
    assert!(each <= 16.0, "the budget is 16 bytes per object");
}
