use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::ch5::Queue;

fn key(name: &str) -> String {
    name.to_owned()
}

/// Takes a key that must be there.
fn get(queue: &Queue) -> String {
    queue.get().now_or_never().expect("a key is ready").expect("it is not shut down")
}

#[test]
fn key_is_handed_out_once_however_often_it_was_added() {
    let queue = Queue::default();
    ["a", "b", "a", "a"].into_iter().for_each(|name| queue.add(key(name)));
    assert_eq!((queue.len(), get(&queue), get(&queue)), (2, key("a"), key("b")));
    assert!(queue.get().now_or_never().is_none());
}

#[test]
fn no_two_workers_have_one_key() {
    let queue = Queue::default();
    queue.add(key("a"));
    let taken = get(&queue);
    queue.add(key("a"));
    assert!(queue.get().now_or_never().is_none(), "a worker has it");
    queue.done(&taken);
    assert_eq!(get(&queue), key("a"), "it was added meanwhile");
    queue.done(&taken);
    assert!(queue.get().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn key_that_is_given_back_wakes_another_worker() {
    let queue = Arc::new(Queue::default());
    queue.add(key("a"));
    let taken = get(&queue);
    let waits = queue.clone();
    let other = tokio::spawn(async move { waits.get().await });
    tokio::task::yield_now().await;
    queue.add(key("a"));
    queue.done(&taken);
    let woken = tokio::time::timeout(Duration::from_secs(1), other).await;
    assert_eq!(woken.expect("the other waits").unwrap(), Some(key("a")));
}

#[test]
fn shutdown_drains_the_queue() {
    let queue = Queue::default();
    queue.add(key("a"));
    queue.shut_down();
    queue.add(key("b"));
    assert_eq!(get(&queue), key("a"));
    assert_eq!(queue.get().now_or_never(), Some(None));
}

#[tokio::test]
async fn every_waiting_worker_hears_of_the_shutdown() {
    let queue = Arc::new(Queue::default());
    let worker = || {
        tokio::spawn({
            let queue = queue.clone();
            async move { queue.get().await }
        })
    };
    let workers = [worker(), worker(), worker()];
    tokio::task::yield_now().await;
    queue.shut_down();
    for worker in workers {
        assert_eq!(worker.await.unwrap(), None);
    }
}

/// A key arrives after the worker has looked, and before it waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost() {
    let queue = Arc::new(Queue::default());
    let (done, mut is_done) = tokio::sync::mpsc::channel(1);
    let of_worker = queue.clone();
    let worker = tokio::spawn(async move {
        while let Some(key) = of_worker.get().await {
            of_worker.done(&key);
            done.send(()).await.unwrap();
        }
    });
    let all = async {
        for _ in 0..20_000 {
            queue.add(key("a"));
            is_done.recv().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("a key lies there, and no worker knows");
    queue.shut_down();
    worker.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_is_left_behind() {
    let queue = Arc::new(Queue::default());
    let worker = || {
        tokio::spawn({
            let queue = queue.clone();
            async move {
                let mut count = 0;
                while let Some(key) = queue.get().await {
                    count += 1;
                    queue.done(&key);
                }
                count
            }
        })
    };
    let workers = [worker(), worker(), worker()];
    for number in 0..1000 {
        queue.add(number.to_string());
    }
    queue.shut_down();
    let mut synced = 0;
    for worker in workers {
        synced += worker.await.unwrap();
    }
    assert_eq!(synced, 1000);
}
