//! Lists the keys in a queue, to show what an object is waiting for.
//!
//! client-go has no counterpart: its queues report how many keys they hold, but not which.
//! Flow: queue, delaying, rate limiting -> **listing** -> callers
//!
//! Keys that are only being processed are not listed here; see
//! [`Workers::passes`](crate::controller::Workers::passes).
//!
//! # Guarantees
//! - In an unchanging queue, a key is listed once for each pending pass, with all its reasons.
//!   (test: `every_waiting_key_is_listed_with_its_reasons`)
//! - The queue lists exactly the keys that it will hand out. (test: `the_queue_agrees_with_a_naive_model`)
//! - A listing is never longer than requested. (test: `listing_respects_its_limit`)
//! - A single key is looked up without visiting the others, and shown as in the listing. (test: `a_key_is_looked_up_as_it_is_listed`)

use std::time::Duration;

use super::reasons::Reasons;

/// A key with a pending pass.
///
/// ```
/// # use windlass::workqueue::{AddOptions, ItemExponentialFailure, RateLimitingQueue, Reason, Stage};
/// # use std::time::Duration;
/// let queue = RateLimitingQueue::new(ItemExponentialFailure::new(Duration::from_secs(1), Duration::from_secs(60)));
/// queue.add_with("default/web", AddOptions::because(Reason::Manual));
/// let listed = queue.list(100);
/// assert_eq!((listed[0].key, listed[0].reasons.to_string()), ("default/web", "manual".to_owned()));
/// assert!(matches!(listed[0].stage, Stage::Queued { .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    /// The key.
    pub key: T,
    /// The event that the key waits for.
    pub stage: Stage,
    /// The highest priority of its adds.
    pub priority: i32,
    /// The reasons of its adds.
    pub reasons: Reasons,
}

/// The event that a key waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// A worker.
    Queued {
        /// How long the key has waited; zero in a queue without priorities and metrics.
        waited: Duration,
    },
    /// The end of its current pass, then a worker: the key was added while processing.
    Processed {
        /// How long the key has waited; zero in a queue without priorities and metrics.
        waited: Duration,
    },
    /// The end of its delay.
    Delayed {
        /// How long the key has been delayed.
        waited: Duration,
        /// The remaining delay.
        left: Duration,
    },
    /// The end of its backoff.
    BackingOff {
        /// How long the key has backed off.
        waited: Duration,
        /// The remaining backoff.
        left: Duration,
        /// Number of failures since the last success.
        failures: u32,
    },
}
