//! A work queue and three workers, without a cluster.
//!
//! Run with: `cargo run --example 01_work_queue`
//!
//! Note that two workers never process the same key, that repeated adds of a queued key collapse into one, and that a
//! failing key comes back after longer and longer delays: 50, 100, 200 and 400 ms after each failure.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use windlass::workqueue::{ItemExponentialFailure, RateLimitingQueue};

#[tokio::main]
async fn main() {
    let limiter = ItemExponentialFailure::new(Duration::from_millis(50), Duration::from_secs(1));
    let queue = RateLimitingQueue::new(limiter);
    let mut tasks = JoinSet::new();
    let started = Instant::now();

    // The caller drives the delays of the queue; the queue spawns nothing itself.
    let delays = queue.clone();
    tasks.spawn(async move {
        delays.run().await;
    });

    for worker in 1..=3 {
        let queue = queue.clone();
        tasks.spawn(async move {
            while let Some(processing) = queue.get().await {
                let key = *processing.key();
                println!("{:>5} ms  worker {worker}: {key}", started.elapsed().as_millis());
                tokio::time::sleep(Duration::from_millis(30)).await;
                if key == "fails" && queue.num_requeues(&key) < 4 {
                    queue.add_rate_limited(key);
                } else {
                    queue.forget(&key);
                }
                // Dropping `processing` is client-go's `Done`.
            }
        });
    }

    for key in ["a", "b", "a", "a", "fails", "c"] {
        queue.add(key);
    }
    queue.add_after("later", Duration::from_millis(500));
    tokio::time::sleep(Duration::from_secs(2)).await;
    queue.shut_down_with_drain().await;
    tasks.join_all().await;
}
