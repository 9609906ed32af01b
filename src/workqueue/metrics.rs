//! Metrics of a queue.
//!
//! Mirrors client-go `util/workqueue/metrics.go` (`MetricsProvider`).
//! Flow: queue, delaying -> **metrics** -> `metrics/queue.rs`
//!
//! Events are reported as they happen; gauges are read on demand, so no task refreshes them. A queue with
//! neither priorities nor metrics does not read the clock.
//!
//! # Guarantees
//! - Merged adds count once; depth includes keys that were added while processing. (test: `metrics_match_those_of_client_go`)
//! - The longest wait is found wherever the key stands in the queue. (test: `longest_wait_is_independent_of_queue_position`)

use std::fmt;
use std::time::Duration;

/// Receives the events of a queue. The methods are called often, and never under the queue's lock.
pub trait QueueMetrics: fmt::Debug + Send + Sync + 'static {
    /// A key was added that was not already waiting.
    fn added(&self);
    /// A key was handed out after this wait.
    fn got(&self, waited: Duration);
    /// A worker finished a key after this time.
    fn done(&self, worked: Duration);
    /// A key was added with a delay or rate limit.
    fn retried(&self);
}

/// A snapshot of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueState {
    /// Number of keys that need a pass: queued, or added while processing.
    pub depth: usize,
    /// Number of queued keys of each priority, the highest first.
    pub by_priority: Vec<(i32, usize)>,
    /// Number of keys that are being processed.
    pub processing: usize,
    /// Total time for which these keys have been processed.
    pub unfinished_work: Duration,
    /// Longest time for which one of these keys has been processed.
    pub longest_running: Duration,
    /// Longest time that a queued key has waited.
    pub oldest_waiting: Duration,
    /// Number of times that a waiting worker was woken.
    pub wakeups: u64,
}
