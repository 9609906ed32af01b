use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::*;
use crate::workqueue::{ItemExponentialFailure, QueueMetrics};

const MS: Duration = Duration::from_millis(1);

fn queue() -> RateLimitingQueue<&'static str> {
    RateLimitingQueue::new(ItemExponentialFailure::new(10 * MS, 1000 * MS))
}

/// Returns how long it takes until a key is handed out.
async fn wait(queue: &RateLimitingQueue<&'static str>) -> Duration {
    let start = tokio::time::Instant::now();
    tokio::select! {
        biased;
        key = queue.get() => drop(key),
        _ = queue.run() => {}
    }
    start.elapsed()
}

/// client-go: `TestRateLimitingQueue`
#[tokio::test(start_paused = true)]
async fn a_rate_limited_key_waits_for_its_limiter() {
    let queue = queue();
    for expected in [10, 20, 40] {
        queue.add_rate_limited("a");
        assert_eq!(wait(&queue).await, expected * MS);
    }
    assert_eq!(queue.num_requeues(&"a"), 3);
    queue.forget(&"a");
    queue.add_rate_limited("a");
    assert_eq!(wait(&queue).await, 10 * MS);
}

#[tokio::test(start_paused = true)]
async fn shorter_of_delay_and_limit_wins() {
    let queue = queue();
    queue.add_with("a", AddOptions { after: Some(500 * MS), rate_limited: true, ..AddOptions::default() });
    assert_eq!(wait(&queue).await, 10 * MS);
    queue.add_with("a", AddOptions { after: Some(5 * MS), rate_limited: true, ..AddOptions::default() });
    assert_eq!(wait(&queue).await, 5 * MS);
    queue.add("a");
    assert_eq!(wait(&queue).await, Duration::ZERO);
}

/// Counts keys that are got, done and retried.
#[derive(Debug, Default)]
struct Counts([AtomicUsize; 3]);

impl QueueMetrics for Counts {
    fn added(&self) {}

    fn got(&self, _: Duration) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
    }

    fn done(&self, _: Duration) {
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }

    fn retried(&self) {
        self.0[2].fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn key_that_is_put_off_was_not_handed_out() {
    let counts = Arc::<Counts>::default();
    let options = QueueOptions { metrics: Some(counts.clone()), ..QueueOptions::default() };
    let queue = RateLimitingQueue::with(ItemExponentialFailure::new(10 * MS, 1000 * MS), options);
    let read = || counts.0.each_ref().map(|count| count.load(Ordering::Relaxed));
    queue.add_with("a", AddOptions { priority: 7, ..AddOptions::because(Reason::Manual) });
    let next = queue.get_unless(|taken| {
        // An add while the key is looked at is not lost.
        queue.add("a");
        (taken.priority() == 7).then_some(50 * MS)
    });
    assert!(matches!(next.await, Some(Next::PutOff { key: "a", priority: 7 })));
    assert_eq!((read(), queue.len(), queue.waiting()), ([0; 3], 1, 1));
    let next = queue.get_unless(|_| Some(60 * MS));
    assert!(matches!(next.await, Some(Next::PutOff { key: "a", priority: 7 | 0 })));
    assert_eq!((read(), queue.len(), queue.waiting()), ([0; 3], 0, 1), "the earlier of two delays wins");
    assert_eq!(wait(&queue).await, 50 * MS);
    assert_eq!(read(), [1, 1, 0]);

    queue.add_with("b", AddOptions { priority: 7, ..AddOptions::because(Reason::Manual) });
    drop(queue.get_unless(|_| Some(50 * MS)).await);
    assert!(queue.hasten(&"b"));
    let Some(Next::Process(processing)) = queue.get_unless(|_| None).await else {
        panic!("it is handed out")
    };
    assert_eq!(processing.priority(), 7);
    assert!(processing.reasons().contains(&Reason::Manual));
    // A failure during the pass that is now added again has to back off, however soon it is put off.
    queue.add("b");
    queue.back_off("b", 200 * MS);
    drop(processing);
    drop(queue.get_unless(|_| Some(MS)).await);
    assert!(!queue.hasten(&"b"), "it backs off");
    assert_eq!(wait(&queue).await, 200 * MS);
    queue.shut_down();
    assert!(queue.get_unless(|_| None).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn only_a_new_spec_ends_the_backoff() {
    let queue = queue();
    queue.back_off("a", Duration::ZERO);
    queue.back_off("a", Duration::ZERO);
    queue.add("a");
    assert!(queue.backs_off(&"a") && queue.is_empty());
    assert_eq!(queue.num_requeues(&"a"), 2, "an event is not a failure");
    assert_eq!(wait(&queue).await, 20 * MS);

    let bypass = AddOptions { bypass_backoff: true, ..AddOptions::default() };
    queue.back_off("b", Duration::ZERO);
    queue.add_with("b", bypass.clone());
    assert_eq!(wait(&queue).await, Duration::ZERO);
    assert_eq!((queue.num_requeues(&"b"), queue.waiting()), (0, 0), "the failures are forgotten");

    queue.back_off("c", 300 * MS);
    queue.add_with("c", bypass);
    assert_eq!(wait(&queue).await, 300 * MS, "the server's minimum still applies");
}

/// A failure, of a sync that began before the add, says nothing about what was added.
#[tokio::test(start_paused = true)]
async fn failure_overtaken_by_a_new_spec_does_not_back_off() {
    let new_spec = || AddOptions { bypass_backoff: true, ..AddOptions::default() };
    for (adds, at_least, next_after, failures) in [
        (vec![new_spec()], 0, 0, 0),
        (vec![new_spec(), AddOptions::default()], 0, 0, 0),
        (vec![new_spec()], 300, 300, 0),
        (vec![AddOptions::default()], 0, 20, 2),
    ] {
        let queue = queue();
        queue.back_off("a", Duration::ZERO);
        assert_eq!(wait(&queue).await, 10 * MS);
        queue.add("a");
        let processing = queue.try_get().unwrap();
        for options in adds {
            queue.add_with("a", options);
        }
        queue.back_off("a", at_least * MS);
        drop(processing);
        assert_eq!((queue.num_requeues(&"a"), queue.backs_off(&"a")), (failures, next_after > 0));
        // The add during the sync hands the key out; its worker sees that it backs off and adds it again.
        let early = queue.try_get().map(|early| *early.key());
        assert_eq!(early, Some("a"));
        queue.add("a");
        assert_eq!(wait(&queue).await, next_after * MS);
        queue.back_off("a", Duration::ZERO);
        assert_eq!(queue.num_requeues(&"a"), failures + 1, "the next failure counts");
    }
}

/// The add came too late for the first sync, and the second one has seen it.
#[tokio::test(start_paused = true)]
async fn bypass_counts_for_the_running_sync_alone() {
    let queue = queue();
    queue.add("a");
    let processing = queue.try_get().unwrap();
    queue.forget(&"a");
    queue.add_with("a", AddOptions { bypass_backoff: true, ..AddOptions::default() });
    drop(processing);
    let processing = queue.try_get().unwrap();
    queue.back_off("a", Duration::ZERO);
    drop(processing);
    assert_eq!((queue.num_requeues(&"a"), queue.backs_off(&"a")), (1, true));
}

#[tokio::test(start_paused = true)]
async fn pass_after_backoff_has_all_reasons() {
    let queue = queue();
    queue.back_off("a", Duration::ZERO);
    queue.add_with("a", AddOptions::because(Reason::Changed));
    assert_eq!(queue.backing_off(), 1);
    tokio::select! {
        biased;
        processing = queue.get() => {
            assert_eq!(processing.unwrap().reasons().to_string(), "retry 1, changed");
        }
        _ = queue.run() => {}
    }
    assert_eq!(queue.backing_off(), 0);
}

/// An event between the end of the backoff and the retry: one pass covers both.
#[tokio::test(start_paused = true)]
async fn an_event_at_backoff_end_joins_the_retry() {
    let queue = queue();
    queue.back_off_with("a", Duration::ZERO, 5, Reason::Created.into());
    tokio::time::advance(11 * MS).await;
    queue.add_with("a", AddOptions::because(Reason::Changed));
    assert_eq!((queue.len(), queue.waiting()), (1, 0));
    let processing = queue.get().await.unwrap();
    assert_eq!(processing.reasons().to_string(), "created, retry 1, changed");
}

/// A delay from before the failure must not queue the key early, nor replace the backoff.
#[tokio::test(start_paused = true)]
async fn back_off_replaces_an_earlier_delay() {
    let queue = queue();
    queue.add_after("a", MS);
    queue.back_off("a", 300 * MS);
    assert_eq!(queue.waiting(), 1);
    assert_eq!(wait(&queue).await, 300 * MS);
}

#[tokio::test(start_paused = true)]
async fn back_off_has_a_lower_bound() {
    let queue = queue();
    queue.back_off("a", 300 * MS);
    assert_eq!(wait(&queue).await, 300 * MS);
}

/// The events while a key fails each time.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    /// An event after this many milliseconds.
    Event(u32),
    /// A new spec after this many milliseconds.
    Spec(u32),
    /// A child that changes every this many milliseconds.
    Child(u32),
}

/// Returns the times of the passes in the first second, in milliseconds, and the number of failures.
async fn history(meanwhile: Meanwhile, retry: fn(&RateLimitingQueue<&'static str>)) -> (Vec<u128>, u32) {
    let (queue, start) = (queue(), Instant::now());
    let passes = std::cell::RefCell::new(Vec::new());
    let work = async {
        while let Some(processing) = queue.get().await {
            passes.borrow_mut().push(start.elapsed().as_millis());
            retry(&queue);
            drop(processing);
        }
    };
    let events = async {
        queue.add("a");
        let (after, is_spec) = match meanwhile {
            Meanwhile::Nothing => return std::future::pending().await,
            Meanwhile::Event(after) | Meanwhile::Child(after) => (after, false),
            Meanwhile::Spec(after) => (after, true),
        };
        loop {
            tokio::time::sleep(after * MS).await;
            queue.add_with("a", AddOptions { bypass_backoff: is_spec, ..AddOptions::default() });
            if !matches!(meanwhile, Meanwhile::Child(_)) {
                return std::future::pending().await;
            }
        }
    };
    tokio::select! {
        biased;
        () = tokio::time::sleep(1000 * MS) => {}
        () = work => {}
        _ = queue.run() => {}
        () = events => {}
    }
    (passes.into_inner(), queue.num_requeues(&"a"))
}

/// Kubernetes issues 112325 and 132805 describe the effect in client-go: an event jumps the backoff, and makes the next
/// one longer.
///
/// | meanwhile | passes with `add_rate_limited` | passes with `back_off` |
/// |---|---|---|
/// | nothing | at 0, 10, 30, 70, 150, 310, 630 ms | the same |
/// | an event at 400 ms | one more, which counts as a failure | the same as without |
/// | a child every 4 ms | hundreds, and as many failures | the same as without |
/// | a new spec at 400 ms | both reset: at 400, 410, 430, 470, 550, 710 ms | |
#[tokio::test(start_paused = true)]
async fn events_shorten_rate_limited_delay_but_not_backoff() {
    let usual = || (vec![0, 10, 30, 70, 150, 310, 630], 7);
    let anew = || (vec![0, 10, 30, 70, 150, 310, 400, 410, 430, 470, 550, 710], 6);
    let jumped = || (vec![0, 10, 30, 70, 150, 310, 400, 630], 8);
    let theirs = async |meanwhile| history(meanwhile, |queue| queue.add_rate_limited("a")).await;
    let ours = async |meanwhile| history(meanwhile, |queue| queue.back_off("a", Duration::ZERO)).await;
    assert_eq!((theirs(Meanwhile::Nothing).await, ours(Meanwhile::Nothing).await), (usual(), usual()));
    assert_eq!((theirs(Meanwhile::Event(400)).await, ours(Meanwhile::Event(400)).await), (jumped(), usual()));
    assert_eq!((theirs(Meanwhile::Spec(400)).await, ours(Meanwhile::Spec(400)).await), (anew(), anew()));
    let (passes, failures) = theirs(Meanwhile::Child(4)).await;
    assert!(passes.len() >= 250 && passes.len() == failures as usize, "{passes:?}");
    assert_eq!(ours(Meanwhile::Child(4)).await, usual());
}

#[test]
fn burst_of_failures_frees_its_memory() {
    let queue =
        RateLimitingQueue::new(ItemExponentialFailure::new(Duration::from_secs(1), Duration::from_secs(1)));
    (0..10_000).for_each(|key| queue.back_off(key, Duration::ZERO));
    assert_eq!(queue.backing_off(), 10_000);
    (1..10_000).for_each(|key| queue.forget(&key));
    assert_eq!(queue.backing_off(), 1);
    assert!(queue.pauses.lock().capacity() <= 1024, "one failing key keeps no memory of the others");
    queue.forget(&0);
    assert_eq!(queue.backing_off(), 0);
}

/// The drain wakes the loop, which does not sleep until the first delay is over.
#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_workers_and_forgets_backoffs() {
    let queue = queue();
    queue.back_off("failed", Duration::from_secs(3600));
    queue.add("a");
    queue.add("b");
    let (mut delays, mut worker) = (JoinSet::new(), JoinSet::new());
    let delayed = queue.clone();
    delays.spawn(async move { delayed.run().await });
    let worked = queue.clone();
    worker.spawn(async move {
        let mut keys = Vec::new();
        while let Some(processing) = worked.get().await {
            tokio::time::sleep(100 * MS).await;
            keys.push(*processing.key());
        }
        keys
    });
    tokio::task::yield_now().await;
    let start = Instant::now();
    queue.shut_down_with_drain().await;
    assert_eq!(start.elapsed(), 200 * MS, "one key is processing, one is queued");
    assert_eq!(delays.join_next().await.unwrap().unwrap(), 1);
    assert_eq!(worker.join_next().await.unwrap().unwrap(), ["a", "b"]);
    assert_eq!(start.elapsed(), 200 * MS);
}

#[tokio::test(start_paused = true)]
async fn second_shutdown_has_no_effect() {
    let queue = queue();
    queue.back_off("failed", Duration::ZERO);
    queue.add("a");
    for _ in 0..2 {
        queue.shut_down();
        assert_eq!(queue.run().now_or_never(), Some(1));
        assert_eq!((queue.len(), queue.waiting()), (1, 1));
    }
    assert_eq!(queue.try_get().map(|processing| *processing.key()), Some("a"));
    queue.shut_down();
    assert!(queue.get().now_or_never().unwrap().is_none());
    assert!(queue.shut_down_with_drain().now_or_never().is_some(), "nothing is left to wait for");
}

#[tokio::test(start_paused = true)]
async fn every_waiting_key_is_listed_with_its_reasons() {
    let limiter = ItemExponentialFailure::new(10 * MS, 1000 * MS);
    let ageing = Some(super::super::Ageing::default());
    let queue = RateLimitingQueue::with(limiter, QueueOptions { ageing, ..QueueOptions::default() });
    queue.add_with("processed", AddOptions::because(Reason::Created));
    let processing = queue.try_get().unwrap();
    queue.add_with("queued", AddOptions { priority: 7, ..AddOptions::because(Reason::Resync) });
    queue.add_with("queued", AddOptions::because(Reason::Audit));
    tokio::time::advance(3 * MS).await;
    queue.add_with("processed", AddOptions::because(Reason::Changed));
    queue.add_after("delayed", 40 * MS);
    for _ in 0..2 {
        queue.back_off_with("failed", Duration::ZERO, 3, Reason::Manual.into());
    }
    tokio::time::advance(2 * MS).await;
    let mut listed = queue.list(100);
    listed.sort_by_key(|listed| listed.key);
    let of = |key, stage, priority, reasons: &[Reason]| {
        let mut all = Reasons::default();
        reasons.iter().for_each(|reason| all.add(reason.clone()));
        Listed { key, stage, priority, reasons: all }
    };
    let failed = Stage::BackingOff { waited: 2 * MS, left: 18 * MS, failures: 2 };
    assert_eq!(
        listed,
        [
            of("delayed", Stage::Delayed { waited: 2 * MS, left: 38 * MS }, 0, &[Reason::Timer]),
            of("failed", failed, 3, &[Reason::Manual, Reason::Retry(2)]),
            of("processed", Stage::Processed { waited: 2 * MS }, 0, &[Reason::Changed]),
            of("queued", Stage::Queued { waited: 5 * MS }, 7, &[Reason::Resync, Reason::Audit]),
        ]
    );
    drop(processing);
    assert!(
        queue
            .list(100)
            .iter()
            .any(|listed| listed.key == "processed" && matches!(listed.stage, Stage::Queued { .. }))
    );
}

#[tokio::test(start_paused = true)]
async fn listing_respects_its_limit() {
    let queue = queue();
    for key in ["a", "b", "c"] {
        queue.add(key);
        queue.add_after(key, MS);
    }
    let lengths = [0, 2, 3, 5, 6, 100].map(|max| queue.list(max).len());
    assert_eq!(lengths, [0, 2, 3, 5, 6, 6]);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_looked_up_as_it_is_listed() {
    let queue = queue();
    for key in ["both", "queued"] {
        queue.add_with(key, AddOptions::because(Reason::Manual));
    }
    queue.add_after("both", 5 * MS);
    queue.back_off("failed", Duration::ZERO);
    tokio::time::advance(MS / 2).await;
    for key in ["both", "queued", "failed", "unknown"] {
        let listed: Vec<_> = queue.list(100).into_iter().filter(|listed| listed.key == key).collect();
        assert_eq!(queue.look_up(&key), listed, "{key}");
    }
    assert_eq!(queue.look_up(&"both").len(), 2);
    assert!(matches!(queue.look_up(&"failed")[0].stage, Stage::BackingOff { failures: 1, .. }));
}
