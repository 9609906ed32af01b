//! A token bucket that namespaces, or other tenants, share equally.
//!
//! Mirrors nothing in client-go. Its `BucketRateLimiter` has one debt for all keys: 10,000 failing keys in one namespace delay
//! the next retry in every other.
//!
//! # How it works
//! For each tenant there is the time by which it has earned all that it took: its share is the rate, divided by the
//! number of tenants for which that time is to come. A tenant may be ahead of its earnings by the burst; beyond that it
//! waits. Once the time has come, the tenant owes nothing and is forgotten.
//!
//! A tenant that comes while others owe has its share at once, on top of what they were promised before; from their
//! next failures on they have less.
//!
//! # Guarantees
//! - A tenant alone has the whole rate and burst. (test: `one_tenant_has_the_whole_bucket`)
//! - The debt of one tenant does not delay the others. (test: `debt_of_a_tenant_is_its_own`)
//! - Tenants that fail side by side have the rate together. (test: `tenants_that_fail_together_share_the_rate`)
//! - A tenant that owes nothing leaves no entry. (test: `tenant_that_owes_nothing_is_forgotten`)

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::super::queue::Key;
use super::super::sync::Mutex;
use super::{RateLimiter, RetryLimits};

/// A [`Bucket`](super::Bucket) that the tenants of the keys share; see the module. The delay of a tenant is limited.
///
/// ```
/// use std::time::Duration;
/// use windlass::workqueue::{FairBucket, RateLimiter};
/// let by_namespace = |key: &&'static str| key.split_once('/').map_or("", |(namespace, _)| namespace).to_owned();
/// let bucket = FairBucket::new(1.0, 1, Duration::from_secs(60), by_namespace);
/// assert_eq!(bucket.when(&"a/1"), Duration::ZERO);
/// assert!(bucket.when(&"a/2") > Duration::from_millis(900));
/// assert!(bucket.when(&"b/1") < Duration::from_millis(1100), "not behind a/2");
/// ```
pub struct FairBucket<T> {
    max_delay: Duration,
    tenant_of: fn(&T) -> String,
    shares: Mutex<Shares>,
}

#[derive(Debug)]
struct Shares {
    qps: f64,
    burst: u32,
    /// When all that a tenant took is earned; of those for which that is not yet.
    earned: HashMap<String, Instant>,
    /// The same, the earliest first.
    order: BTreeSet<(Instant, String)>,
}

impl<T> FairBucket<T> {
    /// Creates a full bucket with delays of at most `max_delay`.
    ///
    /// # Panics
    /// If `qps` is not positive: the bucket would never refill.
    #[must_use]
    pub fn new(qps: f64, burst: u32, max_delay: Duration, tenant_of: fn(&T) -> String) -> Self {
        assert!(qps > 0.0, "a bucket needs a rate above zero");
        let shares = Shares { qps, burst, earned: HashMap::new(), order: BTreeSet::new() };
        Self { max_delay, tenant_of, shares: Mutex::new(shares) }
    }
}

impl Shares {
    /// Takes one for this tenant and returns how long it has to wait for it.
    fn take(&mut self, tenant: String, max_delay: Duration) -> Duration {
        let now = Instant::now();
        while let Some((earned, paid)) = self.order.first()
            && *earned <= now
        {
            self.earned.remove(paid);
            self.order.pop_first();
        }
        let from = self.earned.remove(&tenant).unwrap_or(now);
        let tenants = self.earned.len() + 1;
        let ahead = Duration::from_secs_f64(f64::from(self.burst) / self.qps);
        let earned = from + Duration::from_secs_f64(tenants as f64 / self.qps);
        let earned = earned.min(now + ahead + max_delay);
        self.order.remove(&(from, tenant.clone()));
        self.order.insert((earned, tenant.clone()));
        self.earned.insert(tenant, earned);
        earned.saturating_duration_since(now + ahead)
    }
}

impl<T: Key> RateLimiter<T> for FairBucket<T> {
    fn when(&self, key: &T) -> Duration {
        self.shares.lock().take((self.tenant_of)(key), self.max_delay)
    }

    fn forget(&self, _key: &T) {}

    fn num_requeues(&self, _key: &T) -> u32 {
        0
    }

    fn adopt(&self, limits: &RetryLimits) {
        assert!(limits.qps > 0.0, "a bucket needs a rate above zero");
        let mut shares = self.shares.lock();
        (shares.qps, shares.burst) = (limits.qps, limits.burst);
    }
}

impl<T> fmt::Debug for FairBucket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairBucket")
            .field("max_delay", &self.max_delay)
            .field("shares", &*self.shares.lock())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The part before the slash is the tenant.
    fn bucket(qps: f64, burst: u32) -> FairBucket<&'static str> {
        let tenant_of = |key: &&'static str| key.split('/').next().unwrap_or_default().to_owned();
        FairBucket::new(qps, burst, Duration::from_secs(120), tenant_of)
    }

    #[tokio::test(start_paused = true)]
    async fn one_tenant_has_the_whole_bucket() {
        let bucket = bucket(50.0, 3);
        let delays: Vec<Duration> = (0..5).map(|_| bucket.when(&"a/1")).collect();
        assert_eq!(delays, [Duration::ZERO, Duration::ZERO, Duration::ZERO, 20 * MS, 40 * MS]);
        tokio::time::advance(60 * MS).await;
        assert_eq!(bucket.when(&"a/2"), Duration::ZERO);
        let longest = (0..100_000).map(|_| bucket.when(&"a/1")).max();
        assert_eq!(longest, Some(Duration::from_secs(120)));
        tokio::time::advance(Duration::from_secs(3600)).await;
        let full: Vec<Duration> = (0..4).map(|_| bucket.when(&"a/1")).collect();
        assert_eq!(full[3], 20 * MS, "an idle bucket saves no more than its burst");
    }

    #[tokio::test(start_paused = true)]
    async fn debt_of_a_tenant_is_its_own() {
        let bucket = bucket(50.0, 3);
        let longest = (0..10_000).map(|_| bucket.when(&"bad/1")).max();
        assert_eq!(longest, Some(Duration::from_secs(120)));
        assert_eq!(bucket.when(&"good/1"), Duration::ZERO);
        assert_eq!(bucket.when(&"good/2"), 20 * MS, "its burst and its rate are halved");
        assert_eq!(bucket.when(&"good/3"), 60 * MS);
        assert_eq!(bucket.when(&"other/1"), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn tenants_that_fail_together_share_the_rate() {
        let bucket = bucket(50.0, 1);
        let tenants = ["a/1", "b/1", "c/1", "d/1"];
        let last = (0..1_000).map(|time| bucket.when(&tenants[time % 4])).max().unwrap();
        assert!((19_800 * MS..=20_000 * MS).contains(&last), "1,000 take 20 s at 50/s: {last:?}");
        tokio::time::advance(Duration::from_secs(30)).await;
        let adopted = RetryLimits { base_delay: MS, qps: 5.0, burst: 1 };
        bucket.adopt(&adopted);
        let last = (0..100).map(|time| bucket.when(&tenants[time % 4])).max().unwrap();
        assert!((19_000 * MS..=20_000 * MS).contains(&last), "100 take 20 s at 5/s: {last:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn tenant_that_owes_nothing_is_forgotten() {
        let bucket = bucket(10.0, 1);
        for tenant in ["a/1", "a/2", "b/1"] {
            bucket.when(&tenant);
        }
        assert_eq!(bucket.shares.lock().earned.len(), 2);
        tokio::time::advance(Duration::from_secs(1)).await;
        bucket.when(&"c/1");
        let shares = bucket.shares.lock();
        assert_eq!((shares.earned.len(), shares.order.len()), (1, 1));
    }
}
