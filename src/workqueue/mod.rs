//! Queues of keys: fair, deduplicating, one worker a key, with delays and rate limits.
//!
//! Mirrors client-go `util/workqueue`.
//!
//! | module | client-go | adds |
//! |---|---|---|
//! | [`queue`] | `queue.go` | order, deduplication, one worker a key |
//! | [`delaying`] | `delaying_queue.go` | keys that become due later |
//! | [`rate_limiters`] | `default_rate_limiters.go` | how much later |
//! | [`rate_limiting`] | `rate_limiting_queue.go` | the two together |
//!
//! Each wraps the one before and writes its delegation out. It knows nothing of Kubernetes: any
//! hashable value is a key.

pub mod delaying;
pub mod queue;
pub mod rate_limiters;
pub mod rate_limiting;

pub use delaying::DelayingQueue;
pub use queue::{Key, Processing, Queue};
pub use rate_limiters::{Bucket, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, WithMaxWait};
pub use rate_limiting::{AddOptions, RateLimitingQueue};
