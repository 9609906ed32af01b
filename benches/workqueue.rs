//! Compares the work queues with client-go's and controller-runtime's, in one run on one machine.
//!
//! `cargo bench --bench workqueue` prints nanoseconds per key and bytes per waiting key for both sides, and
//! how many times faster and smaller our queues are. Each figure is the median of five rounds. The Go side is
//! `hack/bench/workqueue`; without Go, only our figures are shown. Keys are namespace and name, as in the
//! controllers of both projects.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its results go to standard output")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cpu_time::ProcessTime;
use peak_alloc::PeakAlloc;
use serde::Deserialize;
use tokio::runtime;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass::cache::ObjectName;
use windlass::controller::{Controller, Outcome, SyncError, SyncHandler, SyncRequest};
use windlass::metrics::Metrics;
use windlass::workqueue::{
    AddOptions, Ageing, Bucket, DelayingQueue, ItemExponentialFailure, MaxOf, Queue, QueueOptions,
    RateLimitingQueue, Reason, Reasons,
};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const MILLION: usize = 1_000_000;
const DELAYED: usize = 100_000;
const ROUNDS: usize = 5;

type Keys = [ObjectName];
type Case = fn(&Keys) -> (Duration, usize, usize);

const CASES: [(&str, &str, Case); 9] = [
    ("one key", "add, get and done of one key, repeatedly", one_key),
    ("million keys", "a million keys are added, then got and done", million_keys),
    ("4 + 4", "four producers and four workers share a million keys", four_and_four),
    ("4 + 16", "the same with sixteen workers", four_and_sixteen),
    ("hot keys", "adds of a hundred keys that are already waiting", hot_keys),
    ("rate limited", "rate-limited add, get, forget, done", rate_limited),
    ("delayed", "100,000 keys wait and become due (processor time)", delayed),
    ("priorities", "100,000 keys of three priorities", priorities),
    ("controller", "100,000 keys through a whole controller whose handler does nothing", controller),
];

#[derive(Deserialize)]
struct Measured {
    case: String,
    nanos: f64,
    bytes: f64,
}

fn main() {
    // `cargo test --benches` only checks that the benchmark starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let keys: Vec<ObjectName> =
        (0..MILLION).map(|at| ObjectName::new(Some("default"), &format!("object-{at:07}"))).collect();
    let mut ours = Vec::new();
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}, ours");
        for (case, _, run) in CASES.into_iter().filter(|(case, ..)| is_chosen(case)) {
            let (took, count, bytes) = run(&keys);
            let (nanos, bytes) = (took.as_nanos() as f64 / count as f64, bytes as f64 / count as f64);
            ours.push(Measured { case: case.to_owned(), nanos, bytes });
        }
    }
    let is_whole = CASES.iter().all(|(case, ..)| is_chosen(case));
    let theirs = if is_whole { go_side() } else { None };
    print(&medians(&ours), &theirs.as_deref().map(medians).unwrap_or_default());
}

/// Returns whether to run a case: `-- "4 + 4"` runs only that case, without the Go side.
fn is_chosen(case: &str) -> bool {
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    chosen.is_empty() || chosen.iter().any(|name| name == case)
}

fn one_key(keys: &Keys) -> (Duration, usize, usize) {
    let queue = Queue::new();
    let started = Instant::now();
    for _ in 0..MILLION {
        queue.add(keys[0].clone());
        assert!(queue.try_get().is_some());
    }
    (started.elapsed(), MILLION, 0)
}

fn million_keys(keys: &Keys) -> (Duration, usize, usize) {
    let queue = Queue::new();
    let before = HEAP.current_usage();
    let started = Instant::now();
    keys.iter().for_each(|key| queue.add(key.clone()));
    let added = started.elapsed();
    let bytes = HEAP.current_usage() - before;
    let started = Instant::now();
    while queue.try_get().is_some() {}
    (added + started.elapsed(), keys.len(), bytes)
}

fn four_and_four(keys: &Keys) -> (Duration, usize, usize) {
    four_and(4, keys)
}

fn four_and_sixteen(keys: &Keys) -> (Duration, usize, usize) {
    four_and(16, keys)
}

fn four_and(worker_count: usize, keys: &Keys) -> (Duration, usize, usize) {
    let queue = Queue::new();
    let keys: Arc<Keys> = keys.into();
    let runtime = runtime::Builder::new_multi_thread().build().unwrap();
    let started = Instant::now();
    runtime.block_on(async {
        let (mut producers, mut workers) = (JoinSet::new(), JoinSet::new());
        for _ in 0..worker_count {
            let worker = queue.clone();
            workers.spawn(async move { while worker.get().await.is_some() {} });
        }
        for at in 0..4 {
            let (queue, keys) = (queue.clone(), keys.clone());
            producers.spawn(async move {
                for (count, key) in keys.iter().skip(at).step_by(4).enumerate() {
                    queue.add(key.clone());
                    // Tasks must yield to share a thread; Go's scheduler preempts.
                    if count % 256 == 255 {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        producers.join_all().await;
        queue.shut_down();
        workers.join_all().await;
    });
    (started.elapsed(), keys.len(), 0)
}

fn hot_keys(keys: &Keys) -> (Duration, usize, usize) {
    let queue = Queue::new();
    let started = Instant::now();
    for at in 0..MILLION {
        queue.add_ref(&keys[at % 100], 0, Reasons::default());
    }
    (started.elapsed(), MILLION, 0)
}

fn rate_limited(keys: &Keys) -> (Duration, usize, usize) {
    let limiter = ItemExponentialFailure::new(Duration::ZERO, Duration::from_secs(60));
    let queue = RateLimitingQueue::new(limiter);
    let started = Instant::now();
    for key in keys {
        queue.add_rate_limited(key.clone());
        let processing = queue.try_get();
        queue.forget(processing.as_ref().unwrap().key());
    }
    (started.elapsed(), keys.len(), 0)
}

fn delayed(keys: &Keys) -> (Duration, usize, usize) {
    let queue = DelayingQueue::new();
    let before = HEAP.current_usage();
    let started = ProcessTime::now();
    for (at, key) in keys[..DELAYED].iter().enumerate() {
        // Due out of order, as after failures.
        let spread = Duration::from_nanos(5000) * u32::try_from(at * 7919 % DELAYED).unwrap();
        queue.add_after(key.clone(), Duration::from_secs(1) + spread);
    }
    let added = started.elapsed();
    let bytes = HEAP.current_usage() - before;
    let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let started = ProcessTime::now();
    runtime.block_on(async {
        let worker = async {
            for _ in 0..DELAYED {
                drop(queue.get().await);
            }
        };
        tokio::select! { _ = queue.run() => {}, () = worker => {} }
    });
    (added + started.elapsed(), DELAYED, bytes)
}

fn priorities(keys: &Keys) -> (Duration, usize, usize) {
    // controller-runtime's queue has metrics, too.
    let metrics = Some(Metrics::new().queue("bench"));
    let queue = Queue::with(QueueOptions { ageing: Some(Ageing::default()), metrics });
    let started = Instant::now();
    for (at, key) in keys[..DELAYED].iter().enumerate() {
        queue.add_with(key.clone(), [-100, 0, 10][at % 3], Reasons::default());
    }
    while queue.try_get().is_some() {}
    (started.elapsed(), DELAYED, 0)
}

/// A handler that only counts down.
struct Nothing(AtomicUsize, Notify);

impl SyncHandler for Nothing {
    async fn sync(&self, _: &ObjectName, _: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.1.notify_one();
        }
        Ok(Outcome::Done)
    }
}

fn controller(keys: &Keys) -> (Duration, usize, usize) {
    // Configured as in the operators: priorities, metrics, both limits.
    let metrics = Metrics::new();
    let limiter: MaxOf<ObjectName> = MaxOf::new(vec![
        Box::new(ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(120))),
        Box::new(Bucket::new(50.0, 300, Duration::from_secs(120))),
    ]);
    let options = QueueOptions { ageing: Some(Ageing::default()), metrics: Some(metrics.queue("bench")) };
    let queue = RateLimitingQueue::with(limiter, options);
    let handler = Arc::new(Nothing(AtomicUsize::new(DELAYED), Notify::new()));
    let controller =
        Controller::new("bench", queue.clone(), handler.clone()).with_metrics(metrics.controller("bench"));
    let runtime = runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let took = runtime.block_on(async {
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let started = Instant::now();
        tasks.spawn(controller.run(stop.clone()));
        keys[..DELAYED]
            .iter()
            .for_each(|key| queue.add_with(key.clone(), AddOptions::because(Reason::Created)));
        handler.1.notified().await;
        let took = started.elapsed();
        stop.cancel();
        tasks.join_all().await;
        took
    });
    (took, DELAYED, 0)
}

/// Builds and runs the Go side; returns `None` if Go is not installed.
fn go_side() -> Option<Vec<Measured>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/bench/workqueue");
    eprintln!("building the Go side in {folder}");
    let output = Command::new("go").args(["run", "."]).current_dir(folder).stderr(Stdio::inherit()).output();
    let output = output.inspect_err(|error| eprintln!("go: {error}; only ours is shown")).ok()?;
    assert!(output.status.success(), "the Go side failed");
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Returns the medians of each case's rounds.
fn medians(measured: &[Measured]) -> BTreeMap<&str, (f64, f64)> {
    let median = |case: &str, value: fn(&Measured) -> f64| {
        let mut values: Vec<f64> = measured.iter().filter(|m| m.case == case).map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let cases = measured.iter().map(|measured| measured.case.as_str());
    cases.map(|case| (case, (median(case, |m| m.nanos), median(case, |m| m.bytes)))).collect()
}

fn print(ours: &BTreeMap<&str, (f64, f64)>, theirs: &BTreeMap<&str, (f64, f64)>) {
    println!(
        "{:<14} {:>9} {:>9} {:>7}   {:>7} {:>7} {:>7}",
        "", "ours, ns", "Go, ns", "faster", "bytes", "Go", "smaller"
    );
    for (case, what, _) in CASES {
        let Some(&(nanos, bytes)) = ours.get(case) else { continue };
        let Some(&(go_nanos, go_bytes)) = theirs.get(case) else {
            println!("{case:<14} {nanos:>9.0} {:>9} {:>7}   {bytes:>7.0}{:>18}{what}", "-", "-", "");
            continue;
        };
        let memory = if bytes == 0.0 {
            String::new()
        } else {
            format!("{bytes:>7.0} {go_bytes:>7.0} {:>6.1}x", go_bytes / bytes)
        };
        println!(
            "{case:<14} {nanos:>9.0} {go_nanos:>9.0} {:>6.1}x   {memory:<23}   {what}",
            go_nanos / nanos
        );
    }
}
