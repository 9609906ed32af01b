//! Rate limiters: how long a key waits before the next try. They are synchronous and use no timers.
//!
//! Mirrors client-go `util/workqueue/default_rate_limiters.go`.
//! Flow: a failed key -> **rate limiter** -> a delay
//! Chapter 6 of `docs/book` builds this from nothing.
//!
//! # Guarantees
//! - Each failure of a key doubles its delay up to a cap; `forget` resets the delay. (test: `an_item_backs_off_exponentially`, `many_failures_stay_at_the_cap`)
//! - The first failures of a key are retried fast, later ones slowly. (test: `an_item_is_fast_first_then_slow`)
//! - A maximum wait limits the delay but not the count. (test: `maximum_wait_limits_only_the_delay`)
//! - A bucket allows its burst at once, then its rate; its debt is limited. (test: `bucket_allows_its_burst_then_its_rate`, `bucket_debt_is_limited`)
//! - Several limiters are all consulted, and the longest delay wins. (test: `longest_of_several_delays_wins`)
//! - New limits apply from the next failure on; failures and debt stay counted. (test: `new_limits_apply_to_the_next_failure`)
//! - The defaults are client-go's. (test: `defaults_match_those_of_client_go`)
//! - A forgotten key leaves nothing behind, and the memory of an outage is freed. (test: `forgotten_key_leaves_no_entry`, `forgotten_keys_free_memory_of_an_outage`, `failing_key_keeps_no_memory_of_others`)

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::queue::Key;
use super::room::give_back_room;
use super::sync::Mutex;
pub use fair_bucket::FairBucket;

mod fair_bucket;

/// Determines how long a key waits after a failure.
pub trait RateLimiter<T>: fmt::Debug + Send + Sync + 'static {
    /// Counts a failure of `key` and returns how long the key must wait.
    fn when(&self, key: &T) -> Duration;
    /// Forgets the failures of `key`. Removes nothing from a queue.
    fn forget(&self, key: &T);
    /// Returns the number of failures of `key`.
    fn num_requeues(&self, key: &T) -> u32;
    /// Returns [`when`](Self::when), and [`num_requeues`](Self::num_requeues) including this failure.
    fn failed(&self, key: &T) -> (Duration, u32) {
        (self.when(key), self.num_requeues(key))
    }
    /// Adopts those of the new limits that it has itself. By default, none.
    fn adopt(&self, _limits: &RetryLimits) {}
}

/// New limits for a queue that is in use; see [`RateLimiter::adopt`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryLimits {
    /// Delay after the first failure of a key.
    pub base_delay: Duration,
    /// Failures per second, over all keys.
    pub qps: f64,
    /// Failures at once before `qps` applies.
    pub burst: u32,
}

/// `base * 2^n` after n failures of a key, at most `max`.
///
/// Mirrors `ItemExponentialFailureRateLimiter`.
///
/// ```
/// use std::time::Duration;
/// use windlass::workqueue::{ItemExponentialFailure, RateLimiter};
/// let limiter = ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(120));
/// assert_eq!(limiter.when(&"a"), Duration::from_millis(5));
/// assert_eq!(limiter.when(&"a"), Duration::from_millis(10));
/// limiter.forget(&"a");
/// assert_eq!(limiter.when(&"a"), Duration::from_millis(5));
/// ```
pub struct ItemExponentialFailure<T> {
    base: Mutex<Duration>,
    max: Duration,
    failures: Failures<T>,
}

impl<T: Key> ItemExponentialFailure<T> {
    /// Creates a limiter whose delays start at `base` and end at `max`.
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base: Mutex::new(base), max, failures: Failures::default() }
    }
}

impl<T: Key> RateLimiter<T> for ItemExponentialFailure<T> {
    fn when(&self, key: &T) -> Duration {
        self.failed(key).0
    }

    fn failed(&self, key: &T) -> (Duration, u32) {
        let count = self.failures.count(key);
        // A nanosecond doubled a hundred times exceeds any maximum delay.
        let base = *self.base.lock();
        let nanos = base.as_nanos().checked_mul(1 << (count - 1).min(100));
        let delay = nanos.and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos);
        (delay.unwrap_or(self.max).min(self.max), count)
    }

    fn forget(&self, key: &T) {
        self.failures.forget(key);
    }

    fn num_requeues(&self, key: &T) -> u32 {
        self.failures.of(key)
    }

    fn adopt(&self, limits: &RetryLimits) {
        *self.base.lock() = limits.base_delay;
    }
}

impl<T> fmt::Debug for ItemExponentialFailure<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemExponentialFailure")
            .field("base", &*self.base.lock())
            .field("max", &self.max)
            .field("keys", &self.failures.keys())
            .finish()
    }
}

/// Failure counts of the keys that have failed and were not forgotten.
struct Failures<T> {
    counts: Mutex<HashMap<T, u32, RandomState>>,
}

impl<T> Default for Failures<T> {
    fn default() -> Self {
        Self { counts: Mutex::default() }
    }
}

impl<T> Failures<T> {
    fn keys(&self) -> usize {
        self.counts.lock().len()
    }
}

impl<T: Key> Failures<T> {
    /// Counts a failure and returns the new count.
    fn count(&self, key: &T) -> u32 {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(key) {
            *count = count.saturating_add(1);
            return *count;
        }
        counts.insert(key.clone(), 1);
        1
    }

    fn forget(&self, key: &T) {
        let mut counts = self.counts.lock();
        counts.remove(key);
        give_back_room(&mut counts);
    }

    fn of(&self, key: &T) -> u32 {
        self.counts.lock().get(key).copied().unwrap_or_default()
    }
}

/// `fast` after each of the first failures of a key, `slow` after each further one.
///
/// Mirrors `ItemFastSlowRateLimiter`.
///
/// ```
/// use std::time::Duration;
/// use windlass::workqueue::{ItemFastSlow, RateLimiter};
/// let limiter = ItemFastSlow::new(Duration::from_millis(5), Duration::from_secs(10), 2);
/// let delays: Vec<Duration> = (0..3).map(|_| limiter.when(&"a")).collect();
/// assert_eq!(delays, [Duration::from_millis(5), Duration::from_millis(5), Duration::from_secs(10)]);
/// ```
pub struct ItemFastSlow<T> {
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
    failures: Failures<T>,
}

impl<T: Key> ItemFastSlow<T> {
    /// Creates a limiter that waits `fast` for the first `fast_attempts` failures, then `slow`.
    #[must_use]
    pub fn new(fast: Duration, slow: Duration, fast_attempts: u32) -> Self {
        Self { fast, slow, fast_attempts, failures: Failures::default() }
    }
}

impl<T: Key> RateLimiter<T> for ItemFastSlow<T> {
    fn when(&self, key: &T) -> Duration {
        if self.failures.count(key) <= self.fast_attempts { self.fast } else { self.slow }
    }

    fn forget(&self, key: &T) {
        self.failures.forget(key);
    }

    fn num_requeues(&self, key: &T) -> u32 {
        self.failures.of(key)
    }
}

impl<T> fmt::Debug for ItemFastSlow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemFastSlow")
            .field("fast", &self.fast)
            .field("slow", &self.slow)
            .field("fast_attempts", &self.fast_attempts)
            .field("keys", &self.failures.keys())
            .finish()
    }
}

/// Another limiter with a maximum wait. Failures beyond the maximum are still counted.
///
/// Mirrors `WithMaxWaitRateLimiter`.
#[derive(Debug)]
pub struct WithMaxWait<L> {
    limiter: L,
    max_delay: Duration,
}

impl<L> WithMaxWait<L> {
    /// Creates a limiter that waits as long as `limiter` does, but at most `max_delay`.
    #[must_use]
    pub fn new(limiter: L, max_delay: Duration) -> Self {
        Self { limiter, max_delay }
    }
}

impl<T: Key, L: RateLimiter<T>> RateLimiter<T> for WithMaxWait<L> {
    fn when(&self, key: &T) -> Duration {
        self.limiter.when(key).min(self.max_delay)
    }

    fn forget(&self, key: &T) {
        self.limiter.forget(key);
    }

    fn num_requeues(&self, key: &T) -> u32 {
        self.limiter.num_requeues(key)
    }

    fn adopt(&self, limits: &RetryLimits) {
        self.limiter.adopt(limits);
    }
}

/// A token bucket over all keys: `burst` at once, then `qps` per second. Failures beyond that add to a debt, which
/// delays later ones, up to a maximum delay.
///
/// Mirrors `BucketRateLimiter`, whose debt is unlimited: there, after an outage that fails 100,000 keys, the next
/// failure of a healthy key waits for half an hour at 50 per second. See [`FairBucket`] for one that namespaces share.
#[derive(Debug)]
pub struct Bucket {
    max_delay: Duration,
    state: Mutex<Tokens>,
}

#[derive(Debug)]
struct Tokens {
    qps: f64,
    burst: f64,
    /// Negative values are debt.
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Creates a full bucket with delays of at most `max_delay`.
    ///
    /// # Panics
    /// If `qps` is not positive: the bucket would never refill.
    #[must_use]
    pub fn new(qps: f64, burst: u32, max_delay: Duration) -> Self {
        assert!(qps > 0.0, "a bucket needs a rate above zero");
        let burst = f64::from(burst);
        let tokens = Tokens { qps, burst, tokens: burst, at: Instant::now() };
        Self { max_delay, state: Mutex::new(tokens) }
    }

    fn reserve(&self) -> Duration {
        let mut state = self.state.lock();
        state.earn();
        let debt_max = self.max_delay.as_secs_f64() * state.qps;
        state.tokens = (state.tokens - 1.0).max(-debt_max);
        Duration::from_secs_f64((-state.tokens / state.qps).max(0.0))
    }
}

impl Tokens {
    fn earn(&mut self) {
        let now = Instant::now();
        let earned = (now - self.at).as_secs_f64() * self.qps;
        self.tokens = (self.tokens + earned).min(self.burst);
        self.at = now;
    }
}

impl<T: Key> RateLimiter<T> for Bucket {
    fn when(&self, _key: &T) -> Duration {
        self.reserve()
    }

    fn forget(&self, _key: &T) {}

    fn num_requeues(&self, _key: &T) -> u32 {
        0
    }

    fn adopt(&self, limits: &RetryLimits) {
        assert!(limits.qps > 0.0, "a bucket needs a rate above zero");
        let mut state = self.state.lock();
        // What was earned until now was earned at the old rate.
        state.earn();
        (state.qps, state.burst) = (limits.qps, f64::from(limits.burst));
    }
}

/// The longest delay of several limiters.
///
/// Mirrors `MaxOfRateLimiter`.
#[derive(Debug)]
pub struct MaxOf<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T: Key> MaxOf<T> {
    /// Creates a limiter that consults all of `limiters` each time.
    #[must_use]
    pub fn new(limiters: Vec<Box<dyn RateLimiter<T>>>) -> Self {
        Self { limiters }
    }
}

impl<T: Key> RateLimiter<T> for MaxOf<T> {
    fn when(&self, key: &T) -> Duration {
        self.limiters.iter().map(|limiter| limiter.when(key)).max().unwrap_or_default()
    }

    fn forget(&self, key: &T) {
        for limiter in &self.limiters {
            limiter.forget(key);
        }
    }

    fn num_requeues(&self, key: &T) -> u32 {
        self.limiters.iter().map(|limiter| limiter.num_requeues(key)).max().unwrap_or_default()
    }

    fn adopt(&self, limits: &RetryLimits) {
        for limiter in &self.limiters {
            limiter.adopt(limits);
        }
    }
}

/// Returns client-go's default for a controller: 5 ms doubling to 1000 s for each key, and 10 tries per second for all
/// keys together after a burst of 100.
///
/// Mirrors `DefaultTypedControllerRateLimiter`.
#[must_use]
pub fn default_controller_rate_limiter<T: Key>() -> MaxOf<T> {
    let each = ItemExponentialFailure::new(Duration::from_millis(5), DEFAULT_MAX);
    MaxOf::new(vec![Box::new(each), Box::new(Bucket::new(10.0, 100, DEFAULT_MAX))])
}

/// Returns client-go's default without a limit over all keys: 1 ms doubling to 1000 s for each key.
///
/// Mirrors `DefaultTypedItemBasedRateLimiter`.
#[must_use]
pub fn default_item_based_rate_limiter<T: Key>() -> ItemExponentialFailure<T> {
    ItemExponentialFailure::new(Duration::from_millis(1), DEFAULT_MAX)
}

const DEFAULT_MAX: Duration = Duration::from_secs(1000);

#[cfg(test)]
mod tests;
