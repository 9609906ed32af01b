//! Rate limiters: how long a key waits before the next try. They are synchronous and have no timers.
//!
//! Mirrors client-go `util/workqueue/default_rate_limiters.go`.
//! Flow: a failed key -> **rate limiter** -> a delay
//!
//! # Guarantees
//! - Each failure of a key doubles its delay up to a cap, however many; forget starts over. (test: `an_item_backs_off_exponentially`, `many_failures_stay_at_the_cap`)
//! - The first failures of a key are tried again fast, later ones slowly. (test: `an_item_is_fast_first_then_slow`)
//! - A longest wait cuts the delay and not the count. (test: `a_longest_wait_cuts_only_the_delay`)
//! - The bucket gives its burst at once and then its rate; its debt has a limit. (test: `the_bucket_gives_its_burst_then_its_rate`, `the_debt_of_a_bucket_has_a_limit`)
//! - The longest of several limits counts, and all are asked. (test: `the_longest_of_all_counts`)
//! - The defaults are client-go's. (test: `the_defaults_are_those_of_client_go`)
//! - A forgotten key leaves nothing, and no room of an outage stays. (test: `a_forgotten_key_leaves_nothing`, `an_outage_leaves_nothing`, `a_failing_key_keeps_no_room_of_others`)

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::queue::Key;
use super::room::give_back_room;
use super::sync::Mutex;

/// Tells how long a key waits.
pub trait RateLimiter<T>: fmt::Debug + Send + Sync + 'static {
    /// Counts one more failure of `key` and says how long it is to wait.
    fn when(&self, key: &T) -> Duration;
    /// Forgets the failures of `key`. It removes nothing from a queue.
    fn forget(&self, key: &T);
    /// How often `key` has failed.
    fn num_requeues(&self, key: &T) -> u32;
    /// [`when`](Self::when) and [`num_requeues`](Self::num_requeues) in one step.
    fn failed(&self, key: &T) -> (Duration, u32) {
        (self.when(key), self.num_requeues(key))
    }
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
    base: Duration,
    max: Duration,
    failures: Failures<T>,
}

impl<T: Key> ItemExponentialFailure<T> {
    /// Starts at `base` and ends at `max`.
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, failures: Failures::default() }
    }
}

impl<T: Key> RateLimiter<T> for ItemExponentialFailure<T> {
    fn when(&self, key: &T) -> Duration {
        self.failed(key).0
    }

    fn failed(&self, key: &T) -> (Duration, u32) {
        let count = self.failures.count(key);
        // A hundred doublings of a nanosecond are more than any longest delay.
        let nanos = self.base.as_nanos().checked_mul(1 << (count - 1).min(100));
        let delay = nanos.and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos);
        (delay.unwrap_or(self.max).min(self.max), count)
    }

    fn forget(&self, key: &T) {
        self.failures.forget(key);
    }

    fn num_requeues(&self, key: &T) -> u32 {
        self.failures.of(key)
    }
}

impl<T> fmt::Debug for ItemExponentialFailure<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemExponentialFailure")
            .field("base", &self.base)
            .field("max", &self.max)
            .field("keys", &self.failures.keys())
            .finish()
    }
}

/// How often each key has failed. Only keys that have failed and were not forgotten are in it.
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
    /// Counts one more failure; returns how many there are now.
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
    /// Waits `fast` for the first `fast_attempts` failures, then `slow`.
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

/// Another limit, cut at a longest wait. It goes on counting beyond the cut.
///
/// Mirrors `WithMaxWaitRateLimiter`.
#[derive(Debug)]
pub struct WithMaxWait<L> {
    limiter: L,
    max_delay: Duration,
}

impl<L> WithMaxWait<L> {
    /// Waits as long as `limiter` says, and `max_delay` at most.
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
}

/// A token bucket over all keys: `burst` at once, then `qps` a second. Takes beyond that are a debt, which delays later
/// ones, up to a longest delay.
///
/// Mirrors `BucketRateLimiter`, whose debt has no limit: there, an outage that fails 100,000 keys makes the next failure
/// of a healthy key wait for half an hour.
#[derive(Debug)]
pub struct Bucket {
    qps: f64,
    burst: f64,
    /// The largest debt.
    debt_max: f64,
    state: Mutex<Tokens>,
}

#[derive(Debug)]
struct Tokens {
    /// Below zero: debt.
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// A full bucket, whose delays are `max_delay` at most.
    ///
    /// # Panics
    /// When `qps` is not above zero: the bucket would never fill again.
    #[must_use]
    pub fn new(qps: f64, burst: u32, max_delay: Duration) -> Self {
        assert!(qps > 0.0, "a bucket needs a rate above zero");
        let burst = f64::from(burst);
        let debt_max = max_delay.as_secs_f64() * qps;
        Self { qps, burst, debt_max, state: Mutex::new(Tokens { tokens: burst, at: Instant::now() }) }
    }

    fn reserve(&self) -> Duration {
        let now = Instant::now();
        let mut state = self.state.lock();
        let earned = (now - state.at).as_secs_f64() * self.qps;
        state.tokens = ((state.tokens + earned).min(self.burst) - 1.0).max(-self.debt_max);
        state.at = now;
        Duration::from_secs_f64((-state.tokens / self.qps).max(0.0))
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
}

/// The longest of several limits.
///
/// Mirrors `MaxOfRateLimiter`.
#[derive(Debug)]
pub struct MaxOf<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T: Key> MaxOf<T> {
    /// Asks all of these, each time.
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
}

/// client-go's default for a controller: each key doubles from 5 ms to 1000 s, and all keys together have 10 tries a
/// second after a burst of 100.
///
/// Mirrors `DefaultTypedControllerRateLimiter`.
#[must_use]
pub fn default_controller_rate_limiter<T: Key>() -> MaxOf<T> {
    let each = ItemExponentialFailure::new(Duration::from_millis(5), DEFAULT_MAX);
    MaxOf::new(vec![Box::new(each), Box::new(Bucket::new(10.0, 100, DEFAULT_MAX))])
}

/// client-go's default without a limit over all keys: each key doubles from 1 ms to 1000 s.
///
/// Mirrors `DefaultTypedItemBasedRateLimiter`.
#[must_use]
pub fn default_item_based_rate_limiter<T: Key>() -> ItemExponentialFailure<T> {
    ItemExponentialFailure::new(Duration::from_millis(1), DEFAULT_MAX)
}

const DEFAULT_MAX: Duration = Duration::from_secs(1000);

#[cfg(test)]
mod tests;
