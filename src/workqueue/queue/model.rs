//! Tests the queue with a model checker, which tries many orders in which threads may take its lock.
//!
//! `hack/test.sh model` runs these tests. The checker switches threads at the lock and at each step of a wake-up; see
//! `sync.rs`.

use std::sync::Arc;

use futures_util::FutureExt;
use shuttle::sync::Barrier;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::{future, thread};

use super::super::sync::checked::KEEPS_WAKEUPS;
use super::*;

/// Number of orders tried for each test.
const ORDERS: usize = 3000;

const KEYS: usize = 2;

/// Three adders, two workers, two keys: a pass begins after the last add of each key, and no two workers process
/// one key.
#[test]
fn adds_survive_and_keys_have_one_worker() {
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
            let wakeups = queue.state().wakeups;
            assert_eq!(queue.state(), QueueState { wakeups, ..QueueState::default() });
        },
        ORDERS,
    );
}

/// Two workers, two keys; each worker ends only when both have a key.
fn two_workers_share_two_keys() {
    let (queue, both) = (Queue::<usize>::new(), Arc::new(Barrier::new(2)));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (queue, both) = (queue.clone(), both.clone());
            thread::spawn(move || {
                let _processing = future::block_on(queue.get());
                both.wait();
            })
        })
        .collect();
    let adder = thread::spawn(move || (0..2).for_each(|key| queue.add(key)));
    adder.join().unwrap();
    for worker in workers {
        worker.join().unwrap();
    }
}

#[test]
fn no_worker_sleeps_while_a_key_waits() {
    shuttle::check_random(two_workers_share_two_keys, ORDERS);
}

/// One get polls once and gives up, another waits: the waiting get receives the added key.
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
fn abandoned_get_passes_its_wakeup_on() {
    shuttle::check_random(a_get_gives_up_while_another_waits, ORDERS);
}

#[test]
fn checker_finds_a_lost_wakeup() {
    KEEPS_WAKEUPS.set(true);
    let broken =
        std::panic::catch_unwind(|| shuttle::check_random(a_get_gives_up_while_another_waits, ORDERS));
    KEEPS_WAKEUPS.set(false);
    assert!(broken.is_err(), "the checker must find a worker that sleeps while a key waits");
}
