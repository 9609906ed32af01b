//! Measures the embedded server under load: 10,000 objects and 100 watchers in one process.
//!
//! `cargo bench --bench sim` prints creations and events per second, the longest wait of a concurrent read,
//! and resident memory. Requests use the in-process transport, without HTTP.

#![allow(clippy::print_stdout, reason = "its results go to standard output")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_service::Service;
use windlass::sim::{InProcessTransport, Settings, Sim};

const OBJECTS: usize = 10_000;
const WATCHERS: usize = 100;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn request(method: &str, uri: &str, body: String) -> http::Request<Full<Bytes>> {
    let builder = http::Request::builder().method(method).uri(uri).header("content-type", "application/json");
    builder.body(Full::new(Bytes::from(body))).unwrap()
}

/// Returns the resident memory in MB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or_default() / 1024.0
}

/// Counts events until every object has arrived.
async fn watch(sim: Sim) -> usize {
    let uri = format!("{MAPS}?watch=true&resourceVersion={}", sim.version());
    let response =
        InProcessTransport::new(&sim, "watcher").call(request("GET", &uri, String::new())).await.unwrap();
    let mut body = response.into_body();
    let mut events = 0;
    while events < OBJECTS {
        let Some(Ok(_)) = body.frame().await else { break };
        events += 1;
    }
    events
}

/// Reads one object repeatedly and returns the longest wait.
async fn bystander(sim: Sim) -> Duration {
    let mut longest = Duration::ZERO;
    let mut transport = InProcessTransport::new(&sim, "bystander");
    let mut pause = tokio::time::interval(Duration::from_millis(5));
    loop {
        pause.tick().await;
        if sim.watches() == 0 {
            return longest;
        }
        let started = Instant::now();
        transport.call(request("GET", "/api/v1/namespaces/default", String::new())).await.unwrap();
        longest = longest.max(started.elapsed());
    }
}

async fn measure() {
    let sim = Sim::new(Settings { window: 2 * OBJECTS, ..Settings::default() });
    let mut driver = JoinSet::new();
    let driven = sim.clone();
    driver.spawn(async move { driven.run().await });
    let before = resident();
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        watchers.spawn(watch(sim.clone()));
    }
    while sim.watches() < WATCHERS {
        tokio::task::yield_now().await;
    }
    let mut others = JoinSet::new();
    others.spawn(bystander(sim.clone()));
    let started = Instant::now();
    let mut transport = InProcessTransport::new(&sim, "writer");
    for n in 0..OBJECTS {
        let body = format!(
            r#"{{"metadata":{{"name":"map-{n}","labels":{{"app":"bench"}}}},"data":{{"key":"{n:0>200}"}}}}"#
        );
        let response = transport.call(request("POST", MAPS, body)).await.unwrap();
        assert_eq!(response.status(), 201);
    }
    let created = started.elapsed();
    let counts = watchers.join_all().await;
    let delivered = started.elapsed();
    let events: usize = counts.iter().sum();
    let whole = counts.iter().filter(|count| **count == OBJECTS).count();
    let longest = others.join_next().await.unwrap().unwrap();
    let rate = |count: usize, time: Duration| f64::from(u32::try_from(count).unwrap()) / time.as_secs_f64();
    println!("objects created         {OBJECTS:>10}  {:>10.0} per second", rate(OBJECTS, created));
    println!("events to {WATCHERS} watchers  {events:>10}  {:>10.0} per second", rate(events, delivered));
    println!("watchers that kept up   {whole:>10}");
    println!("longest wait of a read  {:>10.1} ms", longest.as_secs_f64() * 1000.0);
    println!("memory, before / after  {before:>10.1} / {:.1} MB", resident());
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(measure());
}
