//! Queues of keys: fair, deduplicating, one worker a key, with delays and rate limits.
//!
//! Mirrors client-go `util/workqueue`.
//!
//! | module | client-go | adds |
//! |---|---|---|
//! | [`queue`] | `queue.go` | order, deduplication, one worker a key |
//! | [`levels`] | controller-runtime's `priorityqueue` | priorities that age |
//! | [`reasons`] | (none) | why a key is processed |
//! | [`delaying`] | `delaying_queue.go` | keys that become due later |
//! | [`rate_limiters`] | `default_rate_limiters.go` | how much later |
//! | [`rate_limiting`] | `rate_limiting_queue.go` | the two together |
//! | [`listing`] | (none) | which keys a queue holds, and why |
//! | [`metrics`] | `metrics.go` | what a queue tells about itself |
//!
//! `ParallelizeUntil` has no counterpart: a stream of futures with `buffer_unordered` is that.
//!
//! Each queue wraps the one before and writes its delegation out. It knows nothing of Kubernetes: any
//! hashable value is a key.

pub mod delaying;
mod keyed;
pub mod levels;
pub mod listing;
pub mod metrics;
pub mod queue;
pub mod rate_limiters;
pub mod rate_limiting;
pub mod reasons;
mod room;
mod sync;
mod timetable;

pub use delaying::DelayingQueue;
pub use levels::{Ageing, LOW_PRIORITY};
pub use listing::{Listed, Stage};
pub use metrics::{QueueMetrics, QueueState};
pub use queue::{Get, Key, Processing, Queue, QueueOptions};
pub use rate_limiters::{
    Bucket, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, WithMaxWait,
    default_controller_rate_limiter, default_item_based_rate_limiter,
};
pub use rate_limiting::{AddOptions, DELAY_MAX, RateLimitingQueue};
pub use reasons::{Reason, Reasons};
pub(crate) use room::has_spare_room;
