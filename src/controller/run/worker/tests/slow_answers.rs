//! Tests of syncs that wait for slow answers.

use super::*;
use crate::controller::run::worker::workers::STAND_INS;

/// When the syncs of this key began, in seconds since `since`.
fn starts(rig: &Rig, name: &str, since: Instant) -> Vec<u64> {
    let log = rig.log.lock();
    let of_key = log.started.iter().filter(|(key, at)| key == &format!("ns/{name}") && *at >= since);
    of_key.map(|(_, at)| (*at - since).as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn workers_stand_in_for_slow_passes() {
    let mut rig = start(1, Duration::from_secs(3), |_, _| Ok(Outcome::Done));
    rig.caches.set();
    let since = Instant::now();
    for name in ["slow-1", "slow-2", "quick-1", "quick-2"] {
        rig.add(name);
    }
    tokio::time::sleep(SLOW_ANSWER - MS).await;
    let started = ["slow-1", "slow-2", "quick-1", "quick-2"].map(|name| starts(&rig, name, since));
    assert_eq!(
        started,
        [[0], [2], [2], [5]],
        "one stands in for each slow pass, none for one that only takes long"
    );
    tokio::time::sleep(3 * SLOW_ANSWER).await;
    let since = Instant::now();
    rig.add("quick-3");
    rig.add("quick-4");
    tokio::time::sleep(SLOW_ANSWER).await;
    assert_eq!(
        ["quick-3", "quick-4"].map(|name| starts(&rig, name, since)),
        [[0], [3]],
        "one worker is left"
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_namespace_gets_less_patience() {
    let mut rig = start(1, MS, |key, attempt| match (key.name(), attempt) {
        ("slow-1", 1) => Err(SyncError::from(status_error(500, "InternalError"))),
        _ => Ok(Outcome::Done),
    });
    rig.caches.set();
    let in_turn = async |rig: &Rig, names: [&str; 3]| {
        let since = Instant::now();
        for name in names {
            rig.add(name);
        }
        tokio::time::sleep(SLOW_ANSWER - MS).await;
        let log = rig.log.lock();
        let at = |name| {
            log.started.iter().rfind(|(key, _)| *key == format!("ns/{name}")).map(|(_, at)| *at - since)
        };
        names.map(|name| at(name).unwrap().as_millis())
    };
    assert_eq!(in_turn(&rig, ["slow-1", "slow-2", "slow-3"]).await, [0, 2000, 2100], "slow-1 waits");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(in_turn(&rig, ["slow-4", "slow-5", "slow-6"]).await, [0, 100, 200], "slow-1 has failed");
    tokio::time::sleep(40 * SLOW_ANSWER).await;
    assert_eq!(in_turn(&rig, ["slow-7", "slow-8", "slow-9"]).await, [0, 2000, 2100], "nobody remembers");
    rig.stop().await;
}

/// Otherwise a namespace far from the server would be remembered for ever.
#[tokio::test(start_paused = true)]
async fn quick_failures_do_not_shorten_the_wait() {
    let workers = Workers::new(1);
    let key = ObjectName::new(Some("ns"), "a");
    let patience = || workers.patience(&key).0;
    let usual = patience();
    assert!(!workers.failed_slowly(&key, usual - MS));
    assert_eq!(patience(), usual);
    assert!(workers.failed_slowly(&key, usual));
    assert!(patience() < usual);
}

#[tokio::test(start_paused = true)]
async fn number_of_stand_ins_is_limited() {
    let mut rig = start(2, MS, |_, _| Ok(Outcome::Done));
    rig.caches.set();
    for at in 0..100 {
        rig.queue.add(ObjectName::new(Some(&format!("ns-{at}")), "slow"));
    }
    tokio::time::sleep(SLOW_ANSWER - MS).await;
    assert_eq!(rig.started(), 2 * (1 + STAND_INS));
    rig.workers.set(0);
    tokio::time::sleep(10 * SLOW_ANSWER).await;
    assert_eq!(rig.started(), 2 * (1 + STAND_INS), "nobody stands in for workers that are not wanted");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hanging_namespace_leaves_stand_ins_to_others() {
    let mut rig = start(2, MS, |_, _| Ok(Outcome::Done));
    rig.caches.set();
    for at in 0..100 {
        rig.add(&format!("slow-{at}"));
    }
    tokio::time::sleep(SLOW_ANSWER - MS).await;
    assert_eq!(rig.started(), STAND_INS, "half of those for two workers");
    rig.queue.add(ObjectName::new(Some("other"), "quick"));
    tokio::time::sleep(MS).await;
    assert!(rig.log.lock().started.iter().any(|(key, _)| key == "other/quick"));
    tokio::time::sleep(20 * SLOW_ANSWER).await;
    assert_eq!(rig.log.lock().ended, 101, "no key is lost");
    rig.stop().await;
}

/// Counts how often keys are handed out, and retried.
#[derive(Debug, Default)]
struct Counts {
    got: AtomicUsize,
    done: AtomicUsize,
    retried: AtomicUsize,
}

impl crate::workqueue::QueueMetrics for Counts {
    fn added(&self) {}

    fn got(&self, _: Duration) {
        self.got.fetch_add(1, Ordering::Relaxed);
    }

    fn done(&self, _: Duration) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn retried(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counts {
    fn read(&self) -> [usize; 3] {
        [&self.got, &self.done, &self.retried].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Each key is handed out once: when it is synced.
#[tokio::test(start_paused = true)]
async fn keys_of_a_crowded_namespace_are_parked() {
    const KEYS: usize = 10_000;
    let counts = Arc::<Counts>::default();
    let options = QueueOptions { metrics: Some(counts.clone()), ..QueueOptions::default() };
    let queue = RateLimitingQueue::with(ItemExponentialFailure::new(10 * MS, 1000 * MS), options);
    let mut rig = start_on(queue, 2, MS, |_, _| Ok(Outcome::Done));
    rig.caches.set();
    for at in 0..20 {
        rig.add(&format!("slow-{at}"));
    }
    for at in 20..KEYS {
        rig.queue.add_with(
            ObjectName::new(Some("ns"), &format!("quick-{at}")),
            AddOptions { priority: 7, ..AddOptions::because(Reason::Manual) },
        );
    }
    tokio::time::sleep(SLOW_ANSWER / 2).await;
    let parked = rig.queue.look_up(&ObjectName::new(Some("ns"), "quick-9999"));
    assert!(
        matches!(&parked[..], [one] if one.priority == 7 && one.reasons.contains(&Reason::Manual)),
        "{parked:?}"
    );
    assert_eq!((rig.started(), counts.read()), (STAND_INS, [STAND_INS, 0, 0]));
    let urgent = AddOptions { priority: 8, ..AddOptions::because(Reason::Manual) };
    rig.queue.add_with(ObjectName::new(Some("ns"), "quick-urgent"), urgent);
    tokio::time::sleep(SLOW_ANSWER / 2 + Duration::from_secs(3)).await;
    assert_eq!(rig.log.lock().started[STAND_INS].0, "ns/quick-urgent");
    // Two rounds of slow ones, and the quick ones between them.
    tokio::time::sleep(4 * SLOW_ANSWER).await;
    assert_eq!(rig.log.lock().ended, KEYS + 1, "no key is left behind");
    assert_eq!(counts.read(), [KEYS + 1, KEYS + 1, 0], "no more than syncs, and no retry");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_failure_is_not_retried_sooner_than_it_took() {
    let mut rig = start(1, MS, |_, _| Err(SyncError::from(status_error(500, "InternalError"))));
    rig.caches.set();
    let since = Instant::now();
    rig.add("slow");
    tokio::time::sleep(4 * SLOW_ANSWER).await;
    assert_eq!(starts(&rig, "slow", since), [0, 60]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_failure_is_retried_behind_others() {
    let ageing = QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() };
    let queue = RateLimitingQueue::with(ItemExponentialFailure::new(10 * MS, 1000 * MS), ageing);
    let mut rig = start_on(queue, 1, Duration::from_secs(5), |key, attempt| match (key.name(), attempt) {
        ("slow", 1) => Err(SyncError::from(status_error(500, "InternalError"))),
        _ => Ok(Outcome::Done),
    });
    rig.caches.set();
    rig.add("slow");
    tokio::time::sleep(SLOW_ANSWER).await;
    // The worker is busy for a minute; the last key comes when the failed one waits for its turn again.
    for at in 0..12 {
        rig.add(&format!("quick-{at}"));
    }
    tokio::time::sleep(SLOW_ANSWER + Duration::from_secs(1)).await;
    rig.add("last");
    tokio::time::sleep(2 * SLOW_ANSWER).await;
    let order: Vec<String> = rig.log.lock().started.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(order[12..], ["ns/quick-11", "ns/last", "ns/slow"]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_sync_is_ended_and_retried_with_live_reads() {
    let (log, metrics) = (Arc::<Mutex<Log>>::default(), Metrics::new());
    let script: Script = Box::new(|_, _, _| Ok(Outcome::Done));
    let handler = Scripted { script, takes: MS, log: log.clone() };
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(10 * MS, 1000 * MS));
    let controller = Controller::new("test", queue.clone(), handler)
        .with_sync_timeout(SLOW_ANSWER / 10)
        .with_metrics(metrics.controller("test"));
    let shutdown = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(controller.run(shutdown.clone()));
    let since = Instant::now();
    queue.add(ObjectName::new(Some("ns"), "slow"));
    tokio::time::sleep(Duration::from_secs(7)).await;
    queue.add(ObjectName::new(Some("ns"), "quick"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    shutdown.cancel();
    running.join_next().await.unwrap().unwrap();
    let log = log.lock();
    let started: Vec<_> =
        log.started.iter().map(|(name, at)| (name.as_str(), (*at - since).as_millis())).collect();
    let expected = [("ns/slow", 0), ("ns/slow", 6000), ("ns/quick", 7000)];
    assert_eq!(started, expected, "not sooner than it took");
    assert_eq!((log.live.as_slice(), log.ended), (&[false, true, false][..], 1));
    let counted = "controller_runtime_reconcile_timeouts_total{controller=\"test\"} 2";
    assert!(metrics.encode().contains(counted), "{}", metrics.encode());
}
