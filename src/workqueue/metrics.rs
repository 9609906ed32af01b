//! What a queue reports about itself.
//!
//! Mirrors client-go `util/workqueue/metrics.go` (`MetricsProvider`).
//! Flow: queue, delaying -> **metrics** -> `metrics/queue.rs`
//!
//! Events are reported as they happen; gauges are read when somebody asks, so no task refreshes them. A queue with
//! neither priorities nor metrics does not read the clock.
//!
//! # Guarantees
//! - Collapsed adds count once; depth includes keys that were added while processing. (test: `metrics_mean_what_they_mean_in_client_go`)
//! - The oldest key is found wherever it stands. (test: `the_oldest_key_is_known_wherever_it_stands`)

use std::fmt;
use std::time::Duration;

/// Hears what happens in a queue. Its methods are called often, and never under the queue's lock.
pub trait QueueMetrics: fmt::Debug + Send + Sync + 'static {
    /// A key was added that was not waiting already.
    fn added(&self);
    /// A key was handed out after this wait.
    fn got(&self, waited: Duration);
    /// A worker is done with a key after this time.
    fn done(&self, worked: Duration);
    /// A key was added for later.
    fn retried(&self);
}

/// What is in a queue at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueState {
    /// Keys that need a pass: queued ones, and those that were added while processing.
    pub depth: usize,
    /// How many keys are queued of each priority, the highest first.
    pub by_priority: Vec<(i32, usize)>,
    /// Keys that workers have.
    pub processing: usize,
    /// How long workers have had these keys, added up.
    pub unfinished_work: Duration,
    /// The longest time that a worker has had its key.
    pub longest_running: Duration,
    /// The longest time that a queued key has waited.
    pub oldest_waiting: Duration,
    /// How often a waiting worker was woken.
    pub wakeups: u64,
}
