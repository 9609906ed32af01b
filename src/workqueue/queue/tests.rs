use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::*;
use crate::workqueue::{LOW_PRIORITY, Reason};

/// client-go: `TestCollapse`, `TestLen`
#[test]
fn adds_collapse() {
    let queue = Queue::new();
    for key in ["a", "b", "a", "a"] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.try_get().unwrap().key(), &"a");
    assert_eq!(queue.try_get().unwrap().key(), &"b");
    assert!(queue.get().now_or_never().is_none());
}

/// client-go: `TestAddWhileProcessing`, `TestReinsert`, `TestCollapseWhileProcessing`
#[test]
fn key_added_while_processing_is_requeued() {
    let queue = Queue::new();
    queue.add("a");
    let first = queue.try_get().unwrap();
    queue.add("a");
    queue.add("a");
    assert_eq!(queue.len(), 0);
    assert!(queue.get().now_or_never().is_none());
    drop(first);
    assert_eq!(queue.len(), 1);
    drop(queue.try_get().unwrap());
    assert!(queue.get().now_or_never().is_none());
}

/// client-go: `TestNoQueueDrainageUsingShutDown`, `TestBasic`
#[test]
fn shutdown_still_hands_out_queued_keys() {
    let queue = Queue::new();
    queue.add("a");
    queue.shut_down();
    queue.add("b");
    assert_eq!(queue.try_get().unwrap().key(), &"a");
    assert!(queue.get().now_or_never().unwrap().is_none());
}

#[tokio::test]
async fn shutdown_ends_every_waiting_get() {
    let queue = Queue::<&str>::new();
    let mut getters = JoinSet::new();
    for _ in 0..5 {
        let queue = queue.clone();
        getters.spawn(async move { queue.get().await.is_none() });
    }
    tokio::task::yield_now().await;
    queue.shut_down();
    assert_eq!(getters.join_all().await, [true; 5]);
}

/// client-go: `TestQueueDrainageUsingShutDownWithDrain`, `...WithDirtyItem`
/// The worker that is done takes no further key; another one waits.
#[tokio::test(start_paused = true)]
async fn key_added_while_processing_wakes_a_waiting_worker() {
    let queue = Queue::new();
    queue.add("a");
    let first = queue.try_get().unwrap();
    let mut other = Box::pin(queue.get());
    assert!(other.as_mut().now_or_never().is_none());
    queue.add("a");
    drop(first);
    let woken = tokio::time::timeout(std::time::Duration::from_secs(1), other).await;
    assert_eq!(woken.expect("it is woken").map(|taken| *taken.key()), Some("a"));
}

#[test]
fn drain_waits_for_queued_and_processing_keys() {
    let queue = Queue::new();
    queue.add("a");
    queue.add("b");
    let first = queue.try_get().unwrap();
    queue.add("a");
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    drop(first);
    assert!(drain.as_mut().now_or_never().is_none(), "b is queued, and a again");
    drop(queue.try_get().unwrap());
    let last = queue.try_get().unwrap();
    assert!(drain.as_mut().now_or_never().is_none(), "a is processed");
    drop(last);
    assert!(drain.as_mut().now_or_never().is_some());

    let queue = Queue::new();
    queue.add("a");
    let only = queue.try_get().unwrap();
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none(), "none is queued, and a is processed");
    drop(only);
    assert!(drain.as_mut().now_or_never().is_some());
}

#[test]
fn a_dropped_get_loses_no_key() {
    let queue = Queue::new();
    let mut first = Box::pin(queue.get());
    let mut second = Box::pin(queue.get());
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    queue.add("a");
    drop(first);
    assert_eq!(second.now_or_never().flatten().unwrap().key(), &"a");
}

/// Workers that take one key each and keep it.
async fn hoarders(queue: &Queue<u32>, count: u32) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    for _ in 0..count {
        let queue = queue.clone();
        workers.spawn(async move {
            let processing = queue.get().await;
            std::future::pending::<()>().await;
            drop(processing);
        });
    }
    settle().await;
    workers
}

#[tokio::test]
async fn many_keys_wake_as_many_workers() {
    let queue = Queue::new();
    let _workers = hoarders(&queue, 100).await;
    (0..100).for_each(|key| queue.add(key));
    settle().await;
    assert_eq!((queue.processing(), queue.len(), queue.state().wakeups), (100, 0, 100));
}

/// A merged add wakes no worker.
#[tokio::test]
async fn an_add_wakes_one_worker() {
    let queue = Queue::new();
    let _workers = hoarders(&queue, 5).await;
    queue.add(0);
    queue.add(0);
    settle().await;
    assert_eq!((queue.processing(), queue.state().wakeups), (1, 1));
    queue.add(1);
    queue.add(2);
    settle().await;
    assert_eq!((queue.processing(), queue.state().wakeups), (3, 3));
}

/// Adds that came while all workers were busy do not count as wake-ups later.
#[tokio::test]
async fn stale_wakeup_is_not_counted() {
    let queue = Queue::new();
    (0..3).for_each(|key| queue.add(key));
    while queue.try_get().is_some() {}
    let _workers = hoarders(&queue, 1).await;
    assert_eq!(queue.state().wakeups, 0);
    queue.add(7);
    settle().await;
    assert_eq!((queue.processing(), queue.state().wakeups), (1, 1));
}

/// Metrics that are broken.
#[derive(Debug)]
struct Broken;

impl QueueMetrics for Broken {
    fn added(&self) {
        std::panic::resume_unwind(Box::new("metrics are broken"));
    }

    fn got(&self, _: Duration) {}

    fn done(&self, _: Duration) {}

    fn retried(&self) {}
}

#[tokio::test]
async fn panicking_metrics_lose_no_wakeup() {
    let metrics: Option<Arc<dyn QueueMetrics>> = Some(Arc::new(Broken));
    let queue = Queue::with(QueueOptions { metrics, ..QueueOptions::default() });
    let mut worker = JoinSet::new();
    let waiting = queue.clone();
    worker.spawn(async move { waiting.get().await.map(|processing| *processing.key()) });
    settle().await;
    let add = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| queue.add("a")));
    assert!(add.is_err(), "the panic reaches the caller");
    settle().await;
    assert_eq!(worker.try_join_next().expect("the worker was woken").unwrap(), Some("a"));
}

/// A key whose hash collides with all others: keys must be compared by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Alike(u8);

impl std::hash::Hash for Alike {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

#[test]
fn panicking_worker_releases_its_key() {
    let queue = Queue::new();
    queue.add("a");
    let worker = std::panic::AssertUnwindSafe(|| {
        let _processing = queue.try_get().unwrap();
        std::panic::resume_unwind(Box::new("a sync panicked"));
    });
    assert!(std::panic::catch_unwind(worker).is_err());
    assert_eq!(queue.processing(), 0);
}

/// 64 workers, 1000 keys, many adds from four threads: no two workers process one key, and a pass begins after the
/// last add of each key.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_two_workers_process_the_same_key() {
    const KEYS: usize = 1000;
    let queue = Queue::<usize>::new();
    let counters = || -> Arc<Vec<AtomicUsize>> { Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect()) };
    let (busy, wanted, seen) = (counters(), counters(), counters());
    let mut workers = JoinSet::new();
    for _ in 0..64 {
        let (queue, busy, wanted, seen) = (queue.clone(), busy.clone(), wanted.clone(), seen.clone());
        workers.spawn(async move {
            while let Some(processing) = queue.get().await {
                let key = *processing.key();
                assert_eq!(busy[key].fetch_add(1, Ordering::SeqCst), 0, "two workers process key {key}");
                seen[key].fetch_max(wanted[key].load(Ordering::SeqCst), Ordering::SeqCst);
                tokio::task::yield_now().await;
                busy[key].fetch_sub(1, Ordering::SeqCst);
            }
        });
    }
    let mut adders = JoinSet::new();
    for adder in 0..4 {
        let (queue, wanted) = (queue.clone(), wanted.clone());
        adders.spawn(async move {
            for round in 0..10 * KEYS {
                let key = (round * 7 + adder * 13) % KEYS;
                wanted[key].fetch_add(1, Ordering::SeqCst);
                queue.add(key);
                if round % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    adders.join_all().await;
    queue.shut_down_with_drain().await;
    workers.join_all().await;
    for key in 0..KEYS {
        let (seen, wanted) = (seen[key].load(Ordering::SeqCst), wanted[key].load(Ordering::SeqCst));
        assert_eq!(seen, wanted, "no pass began after the last add of key {key}");
    }
}

/// Lets all other tasks run until idle; the runtime polls about sixty tasks per yield.
async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_dropped_get_passes_its_wakeup_on() {
    let queue = Queue::new();
    let mut first = Box::pin(queue.get());
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = JoinSet::new();
    second.spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|processing| *processing.key()) }
    });
    settle().await;
    queue.add("a");
    settle().await;
    assert!(second.try_join_next().is_none(), "the add has woken the first get");
    drop(first);
    assert_eq!(second.join_next().await.unwrap().unwrap(), Some("a"));
}

fn with_priorities<T: Key>() -> Queue<T> {
    Queue::with(QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() })
}

#[tokio::test(start_paused = true)]
async fn the_highest_priority_counts() {
    let queue = with_priorities();
    for (key, priority) in [("low", -100), ("raised", -100), ("normal", 0), ("raised", 10), ("raised", -100)]
    {
        queue.add_with(key, priority, Reasons::default());
    }
    assert_eq!(queue.state().by_priority, [(10, 1), (0, 1), (-100, 1)]);
    let raised = queue.try_get().unwrap();
    assert_eq!((*raised.key(), raised.priority()), ("raised", 10));
    // A key added during its pass takes its priority from those adds only.
    queue.add_with("raised", -100, Reasons::default());
    queue.add_with("raised", -50, Reasons::default());
    drop(raised);
    let order: Vec<_> = std::iter::from_fn(|| queue.try_get().map(|p| (*p.key(), p.priority()))).collect();
    assert_eq!(order, [("normal", 0), ("raised", -50), ("low", -100)]);
}

/// An endless stream of changes does not starve a resync.
#[tokio::test(start_paused = true)]
async fn waiting_key_ages_into_higher_priorities() {
    let queue = with_priorities();
    queue.add_with(0, LOW_PRIORITY, Reasons::default());
    let mut handed_out = 0;
    for change in 1.. {
        queue.add(change);
        let processing = queue.try_get().unwrap();
        if *processing.key() == 0 {
            break;
        }
        handed_out += 1;
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(handed_out, 60, "the changes of the first minute");
}

#[test]
fn collapsed_adds_keep_all_reasons() {
    let queue = Queue::new();
    queue.add_with("a", 0, Reason::Created);
    queue.add("a");
    queue.add_with("a", 0, Reason::Manual);
    let first = queue.try_get().unwrap();
    assert_eq!(first.reasons().to_string(), "created, manual");
    queue.add_with("a", 0, Reason::Resync);
    drop(first);
    assert_eq!(queue.try_get().unwrap().reasons().to_string(), "resync");
}

#[derive(Debug, Default)]
struct Heard(parking_lot::Mutex<Vec<String>>);

impl QueueMetrics for Heard {
    fn added(&self) {
        self.0.lock().push("added".to_owned());
    }
    fn got(&self, waited: Duration) {
        self.0.lock().push(format!("got after {waited:?}"));
    }
    fn done(&self, worked: Duration) {
        self.0.lock().push(format!("done after {worked:?}"));
    }
    fn retried(&self) {}
}

/// client-go: `TestMetrics`
#[tokio::test(start_paused = true)]
async fn metrics_match_those_of_client_go() {
    let heard = Arc::new(Heard::default());
    let queue = Queue::with(QueueOptions { metrics: Some(heard.clone()), ..QueueOptions::default() });
    let second = Duration::from_secs(1);
    queue.add("a");
    tokio::time::advance(second).await;
    queue.add("a");
    assert_eq!((queue.state().depth, queue.state().oldest_waiting), (1, second));
    let first = queue.try_get().unwrap();
    assert_eq!(queue.state().depth, 0);
    for _ in 0..5 {
        queue.add("a");
    }
    tokio::time::advance(2 * second).await;
    let state = queue.state();
    assert_eq!((state.depth, queue.len()), (1, 0), "depth counts keys to be requeued");
    assert_eq!((state.unfinished_work, state.longest_running), (2 * second, 2 * second));
    drop(first);
    tokio::time::advance(3 * second).await;
    let again = queue.try_get().unwrap();
    assert_eq!(again.waited(), 5 * second, "since its add during the first pass");
    drop(again);
    let expected = ["added", "got after 1s", "added", "done after 2s", "got after 5s", "done after 0ns"]
        .map(str::to_owned);
    assert_eq!(*heard.0.lock(), expected);
}

#[tokio::test(start_paused = true)]
async fn longest_wait_is_independent_of_queue_position() {
    let (queue, second) = (with_priorities(), Duration::from_secs(1));
    queue.add_with("raised", -1, Reasons::default());
    for key in ["again", "other"] {
        tokio::time::advance(second).await;
        queue.add(key);
    }
    queue.add_with("raised", 1, Reasons::default());
    assert_eq!(queue.state().oldest_waiting, 2 * second);
    drop(queue.try_get().unwrap());
    let again = queue.try_get().unwrap();
    queue.add("again");
    tokio::time::advance(second).await;
    queue.add("last");
    drop(again);
    drop(queue.try_get().unwrap());
    assert_eq!((queue.len(), queue.state().oldest_waiting), (2, second), "since its add during the pass");
}

/// client-go: `TestGarbageCollection`
#[test]
fn done_key_is_dropped() {
    let queue = Queue::new();
    let key = Arc::new(());
    queue.add(key.clone());
    drop(queue.try_get().unwrap());
    assert_eq!(Arc::strong_count(&key), 1);
}

/// One pass hangs after a burst: later keys neither free nor allocate memory each time.
#[test]
fn idle_queue_frees_memory_of_a_burst() {
    let queue = Queue::new();
    (0..10_000).for_each(|key| queue.add(key));
    let hangs = queue.try_get().unwrap();
    while queue.try_get().is_some() {}
    let room = || queue.inner.state.lock().capacity();
    let after_the_burst = room();
    assert!(after_the_burst >= 10_000);
    for key in 0..100 {
        queue.add(key + 1);
        assert!(queue.try_get().is_some());
        assert_eq!(room(), after_the_burst);
    }
    drop(hangs);
    assert!(room() <= 2048, "{}", room());
}

/// client-go: `TestForceQueueShutdownUsingShutDown`
#[test]
fn a_shutdown_ends_a_drain() {
    let queue = Queue::new();
    queue.add("a");
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    queue.shut_down();
    assert!(drain.as_mut().now_or_never().is_some());
}

mod histories;
