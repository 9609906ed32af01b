//! The keys in a queue: for people who ask what holds an object up.
//!
//! Mirrors nothing in client-go, whose queues tell how many keys they hold and not which.
//! Flow: queue, delaying, rate limiting -> **listing** -> whoever asks
//!
//! The keys that workers have are not listed here; a controller lists those, see
//! [`Workers::passes`](crate::controller::Workers::passes).
//!
//! # Guarantees
//! - In a queue that nobody changes, a key is listed once for each way in which it will come, with all its reasons.
//!   (test: `every_waiting_key_is_listed_with_its_reasons`)
//! - The queue hands out what it lists, after any history. (test: `the_queue_agrees_with_a_naive_model`)
//! - A listing is never longer than asked for. (test: `a_listing_is_no_longer_than_asked_for`)

use std::time::Duration;

use super::reasons::Reasons;

/// A key that will have a pass.
///
/// ```
/// # use windlass::workqueue::{AddOptions, ItemExponentialFailure, RateLimitingQueue, Reason, Stage};
/// # use std::time::Duration;
/// let queue = RateLimitingQueue::new(ItemExponentialFailure::new(Duration::from_secs(1), Duration::from_secs(60)));
/// queue.add("default/web", AddOptions::because(Reason::Manual));
/// let listed = queue.list(100);
/// assert_eq!((listed[0].key, listed[0].reasons.to_string()), ("default/web", "manual".to_owned()));
/// assert!(matches!(listed[0].stage, Stage::Queued { .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    /// The key.
    pub key: T,
    /// What it waits for.
    pub stage: Stage,
    /// The highest priority of its adds.
    pub priority: i32,
    /// The reasons of its adds.
    pub reasons: Reasons,
}

/// What a key waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// For a worker.
    Queued {
        /// How long it has waited; zero in a queue without priorities and metrics.
        waited: Duration,
    },
    /// For the worker that has it, and then for its turn: the key was added while it was processing.
    Processed {
        /// How long it has waited; zero in a queue without priorities and metrics.
        waited: Duration,
    },
    /// For its time.
    Delayed {
        /// How long it still waits.
        left: Duration,
    },
    /// For its time after failures.
    BackingOff {
        /// How long it still waits.
        left: Duration,
        /// How often it has failed since it last succeeded.
        failures: u32,
    },
}
