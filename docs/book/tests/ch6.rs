use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use crate::ch5::Queue;
use crate::ch6::{Backoff, Delays, LONGEST};

const MS: Duration = Duration::from_millis(1);

#[test]
fn each_failure_doubles_the_wait() {
    let (backoff, a, b) = (Backoff::default(), "a".to_owned(), "b".to_owned());
    let waits: Vec<_> = (0..4).map(|_| backoff.when(&a)).collect();
    assert_eq!(waits, [5 * MS, 10 * MS, 20 * MS, 40 * MS]);
    assert_eq!(backoff.when(&b), 5 * MS, "keys fail by themselves");
    backoff.forget(&a);
    assert_eq!(backoff.when(&a), 5 * MS);
}

#[test]
fn wait_has_a_limit() {
    let (backoff, key) = (Backoff::default(), "a".to_owned());
    let longest = (0..100).map(|_| backoff.when(&key)).max();
    assert_eq!(longest, Some(LONGEST));
}

#[test]
fn success_leaves_nothing_behind() {
    let (backoff, key) = (Backoff::default(), "a".to_owned());
    backoff.when(&key);
    backoff.forget(&key);
    assert!(backoff.is_empty());
}

fn running() -> (Arc<Queue>, Arc<Delays>) {
    let queue = Arc::new(Queue::default());
    let delays = Arc::new(Delays::new(queue.clone()));
    let runs = delays.clone();
    drop(tokio::spawn(async move { runs.run().await }));
    (queue, delays)
}

#[tokio::test(start_paused = true)]
async fn key_comes_when_it_is_due() {
    let (queue, delays) = running();
    let started = Instant::now();
    delays.add_after("b".to_owned(), 200 * MS);
    // It sleeps until b is due, by now.
    tokio::time::sleep(MS).await;
    delays.add_after("a".to_owned(), 99 * MS);
    assert_eq!(queue.get().await, Some("a".to_owned()));
    assert_eq!(started.elapsed(), 100 * MS);
    assert_eq!(queue.get().await, Some("b".to_owned()));
    assert_eq!(started.elapsed(), 200 * MS);
}

#[tokio::test(start_paused = true)]
async fn earlier_time_wins() {
    let (queue, delays) = running();
    let started = Instant::now();
    for wait in [300, 100, 200] {
        delays.add_after("a".to_owned(), wait * MS);
    }
    assert_eq!(queue.get().await, Some("a".to_owned()));
    assert_eq!(started.elapsed(), 100 * MS);
    queue.done(&"a".to_owned());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(queue.get().now_or_never().is_none(), "it waited once, so it comes once");
}
