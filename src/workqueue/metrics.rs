//! What a queue tells about itself.
//!
//! Mirrors client-go `util/workqueue/metrics.go` (`MetricsProvider`). What happens is told as it happens;
//! what is, is read when somebody asks: no task refreshes gauges. A queue without metrics does not look at
//! the clock.
//!
//! # Guarantees
//! - Adds that collapse count once; depth counts also what was added while it is processed.
//!   (test: `metrics_mean_what_they_mean_in_client_go`)
//! - The oldest key is found wherever it stands. (test: `the_oldest_key_is_known_wherever_it_stands`)

use std::fmt;
use std::time::Duration;

/// Hears what happens in a queue. Its methods are called often, and never under the lock that workers get keys by.
pub trait QueueMetrics: fmt::Debug + Send + Sync + 'static {
    /// A key was added that was not waiting already.
    fn added(&self);
    /// A key was handed out, so long after it was added.
    fn got(&self, waited: Duration);
    /// The work on a key has ended, so long after it was handed out.
    fn done(&self, worked: Duration);
    /// A key was to come later.
    fn retried(&self);
}

/// What there is in a queue at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueState {
    /// Keys that need a pass: those that are queued, and those that were added while they are processed.
    pub depth: usize,
    /// Queued keys of each priority, the highest first.
    pub by_priority: Vec<(i32, usize)>,
    /// Keys that are processed.
    pub processing: usize,
    /// How long the keys that are processed have been so, added up.
    pub unfinished_work: Duration,
    /// How long the one has been processed that has been so longest.
    pub longest_running: Duration,
    /// How long the key has waited that has waited longest.
    pub oldest_waiting: Duration,
    /// How often a waiting worker was woken.
    pub wakeups: u64,
}
