//! Compares rate limiters: the delays of a key that keeps failing, and a token bucket under a burst.
//!
//! Run with: `cargo run --example 03_rate_limiting`
//!
//! Note that each limiter keeps its own state, that the longest of several delays wins, and that an event during a
//! backoff neither shortens nor prolongs the delay.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::time::Duration;

use windlass::workqueue::{
    AddOptions, Bucket, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, RateLimitingQueue, Reason,
    WithMaxWait,
};

const MS: Duration = Duration::from_millis(1);

fn show(name: &str, limiter: &dyn RateLimiter<&'static str>) {
    let delays: Vec<String> = (0..8).map(|_| format!("{:?}", limiter.when(&"web"))).collect();
    println!("{name:<22} {}", delays.join(" "));
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    show("doubling", &ItemExponentialFailure::new(5 * MS, 200 * MS));
    show("fast, then slow", &ItemFastSlow::new(5 * MS, 1000 * MS, 3));
    show("two at once, then 50/s", &Bucket::new(50.0, 2, 1000 * MS));
    show("doubling, cut", &WithMaxWait::new(ItemExponentialFailure::new(5 * MS, 1000 * MS), 30 * MS));
    show(
        "the longest of two",
        &MaxOf::new(vec![
            Box::new(ItemExponentialFailure::new(MS, 1000 * MS)) as Box<dyn RateLimiter<&'static str>>,
            Box::new(Bucket::new(50.0, 2, 1000 * MS)),
        ]),
    );

    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(100 * MS, 1000 * MS));
    let started = tokio::time::Instant::now();
    let work = async {
        for attempt in 1..=4 {
            let Some(processing) = queue.get().await else { return };
            let (at, why) = (started.elapsed(), processing.reasons());
            println!("pass {attempt} at {at:?}, because: {why}");
            queue.back_off("web", Duration::ZERO);
        }
    };
    let events = async {
        loop {
            queue.add_with("web", AddOptions::because(Reason::Changed));
            tokio::time::sleep(30 * MS).await;
        }
    };
    tokio::select! { () = work => {}, _ = queue.run() => {}, () = events => {} }
}
