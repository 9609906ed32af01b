//! The queue under a model checker, which tries many orders in which threads may take its lock.
//!
//! `hack/test.sh model` runs it. The lock and the wake-ups of workers are tried in all orders; the flag and the
//! notification by which a drain hears that all is done are the usual ones, and are read under that lock.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::FutureExt;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::{future, thread};

use super::*;

/// Orders tried for each test.
const ORDERS: usize = 5000;

/// A queue that is broken on purpose: a get that is dropped keeps its wake-up.
pub(super) static FORGETS_WAKEUPS: AtomicBool = AtomicBool::new(false);

const KEYS: usize = 2;

/// Three adders, two workers, two keys: the last add of each key is answered by a pass that begins after it,
/// and no key is with two workers.
#[test]
fn no_add_is_lost_and_no_key_has_two_workers() {
    shuttle::check_random(
        || {
            let queue = Queue::<usize>::new();
            let counters = || Arc::new([const { AtomicU32::new(0) }; KEYS]);
            let (busy, wanted, seen) = (counters(), counters(), counters());
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let (queue, busy, wanted, seen) =
                        (queue.clone(), busy.clone(), wanted.clone(), seen.clone());
                    future::spawn(async move {
                        while let Some(processing) = queue.get().await {
                            let key = *processing.key();
                            assert_eq!(busy[key].fetch_add(1, Ordering::SeqCst), 0, "two workers");
                            seen[key].fetch_max(wanted[key].load(Ordering::SeqCst), Ordering::SeqCst);
                            busy[key].fetch_sub(1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            let adders: Vec<_> = (0..3)
                .map(|adder| {
                    let (queue, wanted) = (queue.clone(), wanted.clone());
                    thread::spawn(move || {
                        for key in [adder % KEYS, (adder + 1) % KEYS] {
                            wanted[key].fetch_add(1, Ordering::SeqCst);
                            queue.add(key);
                        }
                    })
                })
                .collect();
            for adder in adders {
                adder.join().unwrap();
            }
            queue.shut_down();
            for worker in workers {
                future::block_on(worker).unwrap();
            }
            for key in 0..KEYS {
                assert_eq!(seen[key].load(Ordering::SeqCst), wanted[key].load(Ordering::SeqCst), "key {key}");
            }
            assert_eq!(queue.state(), QueueState { wakeups: queue.state().wakeups, ..empty(&queue) });
        },
        ORDERS,
    );
}

fn empty<T: Key>(queue: &Queue<T>) -> QueueState {
    QueueState {
        by_priority: queue.state().by_priority.into_iter().map(|(p, _)| (p, 0)).collect(),
        ..<_>::default()
    }
}

/// Two keys, two workers, each of which goes on only when both have a key: nobody sleeps while there is a key.
#[test]
fn no_worker_sleeps_while_a_key_waits() {
    shuttle::check_random(
        || {
            let (queue, begun) = (Queue::<usize>::new(), Arc::new(AtomicU32::new(0)));
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let (queue, begun) = (queue.clone(), begun.clone());
                    future::spawn(async move {
                        let _processing = queue.get().await;
                        begun.fetch_add(1, Ordering::SeqCst);
                        while begun.load(Ordering::SeqCst) < 2 {
                            future::yield_now().await;
                        }
                    })
                })
                .collect();
            let adder = {
                let queue = queue.clone();
                thread::spawn(move || (0..2).for_each(|key| queue.add(key)))
            };
            adder.join().unwrap();
            for worker in workers {
                future::block_on(worker).unwrap();
            }
        },
        ORDERS,
    );
}

/// One get looks once and gives up, another waits, a key is added: the one that waits gets it.
fn a_get_gives_up_while_another_waits() {
    let queue = Queue::<&str>::new();
    let (one, other) = (queue.clone(), queue.clone());
    let fickle = future::spawn(async move {
        let mut get = Box::pin(one.get());
        let taken = get.as_mut().now_or_never().flatten().is_some();
        future::yield_now().await;
        taken
    });
    let patient = future::spawn(async move { other.get().await.is_some() });
    let adder = {
        let queue = queue.clone();
        thread::spawn(move || queue.add("a"))
    };
    adder.join().unwrap();
    if future::block_on(fickle).unwrap() {
        queue.add("b");
    }
    assert!(future::block_on(patient).unwrap());
}

#[test]
fn a_get_that_gives_up_keeps_no_wakeup_and_the_checker_sees_it_if_it_does() {
    shuttle::check_random(a_get_gives_up_while_another_waits, ORDERS);
    FORGETS_WAKEUPS.store(true, std::sync::atomic::Ordering::SeqCst);
    let broken =
        std::panic::catch_unwind(|| shuttle::check_random(a_get_gives_up_while_another_waits, ORDERS));
    FORGETS_WAKEUPS.store(false, std::sync::atomic::Ordering::SeqCst);
    assert!(broken.is_err(), "the broken queue must be found out");
}
