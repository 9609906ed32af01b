use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::task::JoinSet;

use super::*;

fn get_now<T: Key>(queue: &Queue<T>) -> Option<Processing<T>> {
    queue.get().now_or_never().flatten()
}

/// client-go: `TestCollapse`, `TestLen`
#[test]
fn adds_collapse() {
    let queue = Queue::new();
    for key in ["a", "b", "a", "a"] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 2);
    assert_eq!(get_now(&queue).unwrap().key(), &"a");
    assert_eq!(get_now(&queue).unwrap().key(), &"b");
    assert!(queue.get().now_or_never().is_none());
}

/// client-go: `TestAddWhileProcessing`, `TestReinsert`, `TestCollapseWhileProcessing`
#[test]
fn a_key_added_while_processing_comes_again() {
    let queue = Queue::new();
    queue.add("a");
    let first = get_now(&queue).unwrap();
    queue.add("a");
    queue.add("a");
    assert_eq!(queue.len(), 0);
    assert!(queue.get().now_or_never().is_none());
    drop(first);
    assert_eq!(queue.len(), 1);
    drop(get_now(&queue).unwrap());
    assert!(queue.get().now_or_never().is_none());
}

/// client-go: `TestNoQueueDrainageUsingShutDown`, `TestBasic`
#[test]
fn shutdown_hands_out_the_rest() {
    let queue = Queue::new();
    queue.add("a");
    queue.shut_down();
    queue.add("b");
    assert_eq!(get_now(&queue).unwrap().key(), &"a");
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
#[test]
fn drain_waits_for_queued_and_processed() {
    let queue = Queue::new();
    queue.add("a");
    queue.add("b");
    let first = get_now(&queue).unwrap();
    queue.add("a");
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    drop(first);
    assert!(drain.as_mut().now_or_never().is_none(), "b is queued, and a again");
    drop(get_now(&queue).unwrap());
    let last = get_now(&queue).unwrap();
    assert!(drain.as_mut().now_or_never().is_none(), "a is processed");
    drop(last);
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

#[test]
fn a_panic_does_not_keep_the_key() {
    let queue = Queue::new();
    queue.add("a");
    let worker = std::panic::AssertUnwindSafe(|| {
        let _processing = get_now(&queue).unwrap();
        std::panic::resume_unwind(Box::new("a sync panicked"));
    });
    assert!(std::panic::catch_unwind(worker).is_err());
    assert_eq!(queue.processing(), 0);
}

/// Four workers, ten keys, many adds: no key is with two workers, and the last add of each is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_is_never_with_two_workers() {
    let queue = Queue::<usize>::new();
    let busy: Arc<Vec<AtomicUsize>> = Arc::new((0..10).map(|_| AtomicUsize::new(0)).collect());
    let wanted: Arc<Vec<AtomicUsize>> = Arc::new((0..10).map(|_| AtomicUsize::new(0)).collect());
    let mut workers = JoinSet::new();
    for _ in 0..4 {
        let (queue, busy, wanted) = (queue.clone(), busy.clone(), wanted.clone());
        workers.spawn(async move {
            let mut seen = HashMap::new();
            while let Some(processing) = queue.get().await {
                let key = *processing.key();
                assert_eq!(busy[key].fetch_add(1, Ordering::SeqCst), 0, "key {key} is with two workers");
                seen.insert(key, wanted[key].load(Ordering::SeqCst));
                tokio::task::yield_now().await;
                busy[key].fetch_sub(1, Ordering::SeqCst);
            }
            seen
        });
    }
    for round in 1..=2000 {
        wanted[round % 10].store(round, Ordering::SeqCst);
        queue.add(round % 10);
        if round % 7 == 0 {
            tokio::task::yield_now().await;
        }
    }
    queue.shut_down_with_drain().await;
    let seen = workers.join_all().await;
    for (key, wanted) in wanted.iter().enumerate() {
        let last = seen.iter().filter_map(|seen| seen.get(&key)).max();
        assert_eq!(last, Some(&wanted.load(Ordering::SeqCst)), "the last add of key {key} was not answered");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Get,
    /// Ends the n-th of the passes that are under way.
    Done(usize),
}

proptest! {
    /// The model is a list of keys to hand out, a set of those in process and a set of those to come again.
    #[test]
    fn the_queue_agrees_with_a_naive_model(
        steps in prop::collection::vec(
            prop_oneof![(0..5u8).prop_map(Step::Add), Just(Step::Get), (0..4usize).prop_map(Step::Done)],
            1..60,
        )
    ) {
        let queue = Queue::new();
        let mut held: Vec<Processing<u8>> = Vec::new();
        let mut waiting: Vec<u8> = Vec::new();
        let mut again: BTreeSet<u8> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Add(key) => {
                    queue.add(key);
                    if held.iter().any(|p| *p.key() == key) {
                        again.insert(key);
                    } else if !waiting.contains(&key) {
                        waiting.push(key);
                    }
                }
                Step::Get => {
                    let got = get_now(&queue);
                    let expected = (!waiting.is_empty()).then(|| waiting.remove(0));
                    prop_assert_eq!(got.as_ref().map(|p| *p.key()), expected);
                    held.extend(got);
                }
                Step::Done(at) if at < held.len() => {
                    let key = *held.remove(at).key();
                    if again.remove(&key) {
                        waiting.push(key);
                    }
                }
                Step::Done(_) => {}
            }
            prop_assert_eq!(queue.len(), waiting.len());
            prop_assert_eq!(queue.processing(), held.len());
        }
    }
}
