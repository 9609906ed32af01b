use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;
use k8s_openapi::api::core::v1::ConfigMap;

use crate::api::shards::{Division, Sharding};
use crate::cache::{Cached, Deleted, InformerConfig, synctrack};
use crate::client;
use crate::client::shards::Shards;
use crate::controller::Limits;
use crate::metrics::Metrics;
use crate::testing::{FakeSource, config_map, status_error};
use crate::workqueue::{Ageing, ItemExponentialFailure, QueueOptions, Reason, Reasons};

/// Returns the result of a sync, given its request, the key and the number of the attempt.
type Script = Box<dyn Fn(&mut SyncRequest<'_>, &ObjectName, u32) -> Result<Outcome, SyncError> + Send + Sync>;

struct Scripted {
    script: Script,
    /// How long a sync takes; one of a key `slow...` waits [`SLOW_ANSWER`] for an answer.
    takes: Duration,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    started: Vec<(String, Instant)>,
    reasons: Vec<String>,
    live: Vec<bool>,
    ended: usize,
    busy: HashMap<ObjectName, u32>,
    twice_at_once: bool,
}

impl SyncHandler for Scripted {
    async fn sync(&self, key: &ObjectName, mut request: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        let attempt = {
            let mut log = self.log.lock();
            let busy = log.busy.entry(key.clone()).or_default();
            *busy += 1;
            // Not an assertion: a panic here would be caught and retried.
            let twice = *busy > 1;
            log.twice_at_once |= twice;
            log.started.push((key.to_string(), Instant::now()));
            log.reasons.push(request.reasons().to_string());
            log.live.push(request.trust() == Trust::Nothing);
            log.started.iter().filter(|(name, _)| *name == key.to_string()).count()
        };
        match key.name().starts_with("slow") {
            true => slow_calls::wait_for(tokio::time::sleep(SLOW_ANSWER)).await,
            false => tokio::time::sleep(self.takes).await,
        }
        {
            let mut log = self.log.lock();
            log.ended += 1;
            *log.busy.entry(key.clone()).or_default() -= 1;
        }
        (self.script)(&mut request, key, u32::try_from(attempt).unwrap())
    }
}

/// A running controller with a scripted handler.
struct Rig {
    queue: RateLimitingQueue<ObjectName>,
    log: Arc<Mutex<Log>>,
    caches: synctrack::SyncedSetter,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    workers: Workers,
    started: Synced,
    metrics: Metrics,
}

const MS: Duration = Duration::from_millis(1);
const SLOW_ANSWER: Duration = Duration::from_secs(30);

fn start(
    workers: usize,
    takes: Duration,
    script: impl Fn(&ObjectName, u32) -> Result<Outcome, SyncError> + Send + Sync + 'static,
) -> Rig {
    start_on(RateLimitingQueue::new(ItemExponentialFailure::new(10 * MS, 1000 * MS)), workers, takes, script)
}

fn start_on(
    queue: RateLimitingQueue<ObjectName>,
    workers: usize,
    takes: Duration,
    script: impl Fn(&ObjectName, u32) -> Result<Outcome, SyncError> + Send + Sync + 'static,
) -> Rig {
    start_with(Arc::default(), queue, workers, takes, move |_, key, attempt| script(key, attempt))
}

fn start_with(
    keys: Arc<Keys>,
    queue: RateLimitingQueue<ObjectName>,
    workers: usize,
    takes: Duration,
    script: impl Fn(&mut SyncRequest<'_>, &ObjectName, u32) -> Result<Outcome, SyncError> + Send + Sync + 'static,
) -> Rig {
    start_sharded(None, keys, queue, workers, takes, script)
}

fn start_sharded(
    shards: Option<Shards>,
    keys: Arc<Keys>,
    queue: RateLimitingQueue<ObjectName>,
    workers: usize,
    takes: Duration,
    script: impl Fn(&mut SyncRequest<'_>, &ObjectName, u32) -> Result<Outcome, SyncError> + Send + Sync + 'static,
) -> Rig {
    let log = Arc::default();
    let (caches, synced) = synctrack::pair("foos");
    let handler = Scripted { script: Box::new(script), takes, log: Arc::clone(&log) };
    let metrics = Metrics::new();
    let controller = Controller::new("test", queue.clone(), handler)
        .with_keys(keys)
        .waits_for(synced)
        .with_workers(workers)
        .with_shards(shards)
        .with_metrics(metrics.controller("test"));
    let (workers, started) = (controller.workers(), controller.started());
    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(controller.run(shutdown.clone()));
    Rig { queue, log, caches, shutdown, tasks, workers, started, metrics }
}

impl Rig {
    fn add(&self, name: &str) {
        self.queue.add(ObjectName::new(Some("ns"), name));
    }

    fn started(&self) -> usize {
        self.log.lock().started.len()
    }

    async fn stop(&mut self) {
        self.shutdown.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn workers_wait_for_the_caches() {
    let mut rig = start(2, MS, |_, _| Ok(Outcome::Done));
    rig.add("a");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((rig.started(), rig.started.is_synced()), (0, false));
    rig.caches.set();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((rig.started(), rig.started.is_synced()), (1, true));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn keys_wait_for_their_shard_and_those_of_others_are_dropped() {
    const KEYS: usize = 200;
    let shards = Shards::new(Sharding { of: 8, by: Division::Hash });
    let (ours, cache) = (shards.sharding().shard_of("ns"), shards.add_cache());
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(10 * MS, 1000 * MS));
    let done = |_: &mut SyncRequest<'_>, _: &ObjectName, _: u32| Ok(Outcome::Done);
    let mut rig = start_sharded(Some(shards.clone()), Arc::default(), queue, 2, 10 * MS, done);
    rig.caches.set();
    let add = |rig: &Rig| (0..KEYS).for_each(|at| rig.add(&format!("n{at}")));
    add(&rig);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((rig.started(), rig.queue.len(), rig.queue.waiting()), (0, 0, 0), "another process has them");
    shards.acquired(&[ours]);
    add(&rig);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((rig.started(), rig.queue.waiting()), (0, KEYS), "the cache is being listed");
    cache.has_listed(&cache.scope());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((rig.started(), rig.queue.waiting()), (KEYS, 0), "two workers sync them at once");
    // While a sync is in flight, the shard is not idle.
    rig.add("last");
    tokio::time::sleep(5 * MS).await;
    shards.drain(ours);
    assert!(!shards.is_idle(ours));
    rig.add("too-late");
    tokio::time::sleep(20 * MS).await;
    assert!(shards.is_idle(ours));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(rig.started(), KEYS + 1);
    rig.stop().await;
}

/// Counts the objects that it is notified of.
struct Hears(Arc<AtomicUsize>);

impl EventHandler<ConfigMap> for Hears {
    fn on_add(&mut self, _: &Cached<ConfigMap>, _: bool) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn on_update(&mut self, _: &Cached<ConfigMap>, _: &Cached<ConfigMap>) {}

    fn on_delete(&mut self, _: &Deleted<ConfigMap>) {}
}

/// The cache has the first list before the handlers see it.
#[tokio::test(start_paused = true)]
async fn workers_wait_until_handlers_saw_the_first_list() {
    const OBJECTS: usize = 5000;
    let source = FakeSource::new();
    for at in 0..OBJECTS {
        source.put(config_map("ns", &at.to_string(), 0));
    }
    let informer = SharedInformer::new(source, InformerConfig::default());
    let heard = Arc::new(AtomicUsize::new(0));
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(MS, MS));
    let handler = NeverWaits { queue: queue.clone(), passes: Arc::default() };
    let controller =
        Controller::new("test", queue, handler).watches(&informer, Hears(heard.clone())).unwrap();
    let (started, stop) = (controller.started(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(controller.run(stop.clone()));
    let (running, scope) = (informer.clone(), stop.clone());
    tasks.spawn(async move { running.run(scope).await.unwrap() });
    while !started.is_synced() {
        tokio::task::yield_now().await;
    }
    assert_eq!(heard.load(Ordering::Relaxed), OBJECTS);
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_before_cache_sync_ends_the_run() {
    let mut rig = start(2, MS, |_, _| Ok(Outcome::Done));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn key_is_never_synced_concurrently() {
    let mut rig = start(8, 20 * MS, |_, _| Ok(Outcome::Done));
    rig.caches.set();
    for _ in 0..50 {
        rig.add("a");
        tokio::time::sleep(3 * MS).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!rig.log.lock().twice_at_once);
    // 150 ms of adds at 20 ms per sync, and one more sync for the last add.
    assert!((7..=9).contains(&rig.started()), "{}", rig.started());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn workers_share_the_keys() {
    let mut rig = start(4, 100 * MS, |_, _| Ok(Outcome::Done));
    rig.caches.set();
    for n in 0..8 {
        rig.add(&format!("n{n}"));
    }
    tokio::time::sleep(150 * MS).await;
    assert_eq!(rig.started(), 8, "four at once, and four more after 100 ms");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn requeue_after_waits_for_its_delay() {
    let mut rig = start(1, Duration::ZERO, |_, _| Ok(Outcome::RequeueAfter(Duration::from_secs(30))));
    rig.caches.set();
    rig.add("a");
    tokio::time::sleep(Duration::from_secs(95)).await;
    assert_eq!(rig.started(), 4);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_running_syncs_and_starts_none() {
    let mut rig = start(2, Duration::from_secs(5), |_, _| Ok(Outcome::Done));
    rig.caches.set();
    for name in ["a", "b", "c", "d"] {
        rig.add(name);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.stop().await;
    let log = rig.log.lock();
    assert_eq!((log.started.len(), log.ended), (2, 2));
    assert_eq!(rig.queue.len(), 2, "the other keys are left to the next process");
}

#[tokio::test(start_paused = true)]
async fn unsynced_caches_are_named_in_the_log() {
    let log = crate::testing::capture_log();
    let mut rig = start(1, MS, |_, _| Ok(Outcome::Done));
    tokio::time::sleep(CACHE_SYNC_PATIENCE + MS).await;
    let expected = "WARN Still waiting for the caches of these kinds to sync; \
                    check that the kinds exist and may be listed";
    assert_eq!(log.lines(), [format!("{expected} controller=test missing=foos")]);
    rig.caches.set();
    tokio::time::sleep(MS).await;
    assert!(rig.started.is_synced());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn worker_count_can_change_at_runtime() {
    let second = Duration::from_secs(1);
    let mut rig = start(1, second, |_, _| Ok(Outcome::Done));
    rig.caches.set();
    for n in 0..40 {
        rig.add(&format!("n{n}"));
    }
    tokio::time::sleep(second / 2).await;
    assert_eq!(rig.started(), 1);
    rig.workers.set(4);
    tokio::time::sleep(MS).await;
    assert_eq!(rig.started(), 4, "the new workers start at once");
    tokio::time::sleep(second).await;
    rig.workers.set(0);
    tokio::time::sleep(10 * second).await;
    let (started, ended) = (rig.started(), rig.log.lock().ended);
    assert_eq!((started, ended), (8, 8), "the running syncs have ended, and no new one starts");
    rig.workers.set(2);
    tokio::time::sleep(second / 2).await;
    assert_eq!(rig.started(), 10);
    assert!(
        rig.metrics
            .encode()
            .contains("controller_runtime_max_concurrent_reconciles{controller=\"test\"} 2\n")
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pass_has_the_reasons_added_while_it_waited() {
    let mut rig = start(1, 6 * MS, |_, attempt| match attempt {
        1 => Err(SyncError::from(status_error(500, "InternalError"))),
        _ => Ok(Outcome::Done),
    });
    rig.caches.set();
    let key = ObjectName::new(Some("ns"), "a");
    rig.queue.add_with(key.clone(), AddOptions::because(Reason::Created));
    tokio::time::sleep(3 * MS).await;
    // One add comes during the failing sync, one during the backoff.
    rig.queue.add_with(key.clone(), AddOptions::because(Reason::Changed));
    tokio::time::sleep(6 * MS).await;
    rig.queue.add_with(key.clone(), AddOptions::because(Reason::Resync));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.log.lock().reasons, ["created", "created, retry 1, changed, resync"]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn key_that_requeues_itself_delays_no_other() {
    let mut rig = start(1, MS, |key, _| match key.name() {
        "busy" => Ok(Outcome::RequeueAfter(Duration::ZERO)),
        _ => Ok(Outcome::Done),
    });
    rig.caches.set();
    rig.add("busy");
    tokio::time::sleep(100 * MS).await;
    let before = rig.started();
    (0..10).for_each(|other| rig.add(&other.to_string()));
    tokio::time::sleep(30 * MS).await;
    let started: Vec<String> =
        rig.log.lock().started[before..].iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(started.iter().filter(|name| *name != "ns/busy").count(), 10, "{started:?}");
    assert!(started.iter().filter(|name| *name == "ns/busy").count() >= 2, "{started:?}");
    rig.stop().await;
}

fn error(code: u16, reason: &str, retry_after: Option<u64>) -> Result<Outcome, SyncError> {
    let mut error = status_error(code, reason);
    if let client::Error::Status { status, .. } = &mut error {
        status.retry_after = retry_after.map(Duration::from_secs);
    }
    Err(SyncError::from(error))
}

#[tokio::test(start_paused = true)]
async fn keys_waiting_for_a_user_sync_behind_changes() {
    let stuck = Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(30)) };
    let ageing = QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() };
    let queue = RateLimitingQueue::with(ItemExponentialFailure::new(10 * MS, 1000 * MS), ageing);
    let script = move |key: &ObjectName, _| Ok(if key.name() == "good" { Outcome::Done } else { stuck });
    let mut rig = start_on(queue, 20, Duration::from_millis(100), script);
    rig.caches.set();
    for at in 0..20 {
        rig.add(&format!("bad-{at}"));
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    rig.workers.set(1);
    // All keys are due again, and the first is being synced.
    tokio::time::sleep(Duration::from_millis(20_150)).await;
    assert_eq!((rig.started(), rig.queue.len()), (21, 19));
    rig.add("good");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(rig.log.lock().started.last().unwrap().0, "ns/good");
    rig.stop().await;
}

/// Enqueues its key in each sync, without ever waiting.
struct NeverWaits {
    queue: RateLimitingQueue<ObjectName>,
    passes: Arc<AtomicUsize>,
}

impl SyncHandler for NeverWaits {
    async fn sync(&self, key: &ObjectName, _: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        // The limit ends the test even if no other task gets the thread.
        if self.passes.fetch_add(1, Ordering::Relaxed) < 100_000 {
            self.queue.add(key.clone());
        }
        Ok(Outcome::Done)
    }
}

#[tokio::test]
async fn busy_worker_yields_the_thread_to_other_tasks() {
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(MS, MS));
    let passes = Arc::new(AtomicUsize::new(0));
    let handler = NeverWaits { queue: queue.clone(), passes: passes.clone() };
    let controller = Controller::new("test", queue.clone(), handler);
    let (started, stop) = (controller.started(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(controller.run(stop.clone()));
    while !started.is_synced() {
        tokio::task::yield_now().await;
    }
    queue.add(ObjectName::new(Some("ns"), "a"));
    while passes.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let made = passes.load(Ordering::Relaxed);
    assert!(made < 1000, "{made} passes before another task got the thread");
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

mod at_rest;
mod backoff;
mod once;
mod outcomes;
mod own_writes;
mod panics;
#[cfg(feature = "cli")]
mod reporting;
mod slow_answers;
