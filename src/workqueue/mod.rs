//! Queues of keys: fair, deduplicating, one worker per key, with delays and rate limits.
//!
//! Mirrors client-go `util/workqueue`.
//! Flow: event handlers -> **workqueue** -> workers -> sync handler
//!
//! | module | client-go | adds |
//! |---|---|---|
//! | [`queue`] | `queue.go` | order, deduplication, one worker per key |
//! | [`order`] | `Queue` of `queue.go`, controller-runtime's `priorityqueue` | FIFO, or priorities that age |
//! | [`reasons`] | (none) | why a key is processed |
//! | [`delaying`] | `delaying_queue.go` | keys that become due later |
//! | [`rate_limiters`] | `default_rate_limiters.go` | how long keys wait |
//! | [`rate_limiting`] | `rate_limiting_queue.go` | delays by rate limiter, and backoff per key |
//! | [`listing`] | (none) | which keys a queue holds, and why |
//! | [`metrics`] | `metrics.go` | what a queue reports about itself |
//!
//! `ParallelizeUntil` has no counterpart: a stream of futures with `buffer_unordered` does the same.
//!
//! Each queue wraps the previous one and delegates explicitly. None depends on Kubernetes: any hashable value is a key.

pub mod delaying;
pub mod listing;
pub mod metrics;
pub mod order;
pub mod queue;
pub mod rate_limiters;
pub mod rate_limiting;
pub mod reasons;
mod room;
mod sync;
mod waiting;

pub use delaying::DelayingQueue;
pub use listing::{Listed, Stage};
pub use metrics::{QueueMetrics, QueueState};
pub use order::{Ageing, LOW_PRIORITY};
pub use queue::{Key, Processing, Queue, QueueOptions};
pub use rate_limiters::{
    Bucket, FairBucket, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, RetryLimits, WithMaxWait,
    default_controller_rate_limiter, default_item_based_rate_limiter,
};
pub use rate_limiting::{AddOptions, DELAY_MAX, Next, RateLimitingQueue};
pub use reasons::{Reason, Reasons};
