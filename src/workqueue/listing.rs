//! What is in a queue, key by key: for people who ask what holds an object up.
//!
//! Mirrors nothing in client-go, whose queues tell how many keys they hold and not which.
//!
//! The keys that workers have are with the workers; a controller lists those, see
//! [`Workers::passes`](crate::controller::Workers::passes).
//!
//! # Guarantees
//! - Every key is there once for each way in which it will come, with all its reasons, if the queue stands still. (test: `every_key_is_listed_with_its_reasons_wherever_it_waits`)
//! - After any history it is what the queue hands out. (test: `the_queue_agrees_with_a_naive_model`)
//! - It is never longer than was asked for. (test: `a_listing_is_no_longer_than_asked_for`)

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
    /// The highest of its adds.
    pub priority: i32,
    /// Why it will have one.
    pub reasons: Reasons,
}

/// What a key waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// For a worker.
    Queued {
        /// Since when; zero in a queue that looks at no clock.
        waited: Duration,
    },
    /// For the worker that has it, and then for its turn: it was added meanwhile.
    Processed {
        /// Since when; zero in a queue that looks at no clock.
        waited: Duration,
    },
    /// For its time.
    Delayed {
        /// How long yet.
        left: Duration,
    },
    /// For its time after failures.
    BackingOff {
        /// How long yet.
        left: Duration,
        /// How often it has failed since it last succeeded.
        failures: u32,
    },
}
