//! A delaying queue with a rate limiter: what workers and handlers hold.
//!
//! Mirrors client-go `util/workqueue/rate_limiting_queue.go` (`rateLimitingType`).
//!
//! # Guarantees
//! - A rate-limited add waits as long as the limiter says. (test: `a_rate_limited_key_waits_as_its_limiter_says`)
//! - Delay and rate limit together: the shorter counts. (test: `delay_and_limit_together_take_the_shorter`)
//!
//! # Differences from client-go
//! One [`add`](RateLimitingQueue::add) with [`AddOptions`], as controller-runtime's queue has; the
//! three of client-go stand beside it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::delaying::DelayingQueue;
use super::queue::{Key, Processing};
use super::rate_limiters::RateLimiter;

/// When an added key is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// When this has passed, unless the rate limiter is sooner.
    pub after: Option<Duration>,
    /// When the rate limiter lets it, unless `after` is sooner; counts as a failure of the key.
    pub rate_limited: bool,
}

/// A [`DelayingQueue`] that knows how long a failed key waits. Cheap to clone.
pub struct RateLimitingQueue<T: Key> {
    queue: DelayingQueue<T>,
    limiter: Arc<dyn RateLimiter<T>>,
}

// === impl RateLimitingQueue ===

impl<T: Key> RateLimitingQueue<T> {
    /// An empty queue; delays pass only while [`run`](Self::run) runs.
    #[must_use]
    pub fn new(limiter: impl RateLimiter<T>) -> Self {
        Self { queue: DelayingQueue::new(), limiter: Arc::new(limiter) }
    }

    /// Marks `key` as needing a pass, when the options say.
    pub fn add(&self, key: T, options: AddOptions) {
        let limited = options.rate_limited.then(|| self.limiter.when(&key));
        let delay = options.after.into_iter().chain(limited).min().unwrap_or_default();
        self.queue.add_after(key, delay);
    }

    /// Marks `key` as needing a pass after `delay`.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.add(key, AddOptions { after: Some(delay), ..AddOptions::default() });
    }

    /// Marks `key` as needing a pass when the rate limiter lets it.
    pub fn add_rate_limited(&self, key: T) {
        self.add(key, AddOptions { rate_limited: true, ..AddOptions::default() });
    }

    /// The same, and not before `at_least` has passed, whatever the limiter says.
    pub fn add_rate_limited_not_before(&self, key: T, at_least: Duration) {
        let delay = self.limiter.when(&key).max(at_least);
        self.queue.add_after(key, delay);
    }

    /// Forgets the failures of `key`: its next one counts as the first.
    pub fn forget(&self, key: &T) {
        self.limiter.forget(key);
    }

    /// How often `key` has failed since it was last forgotten.
    #[must_use]
    pub fn num_requeues(&self, key: &T) -> u32 {
        self.limiter.num_requeues(key)
    }

    /// Queues each key when it is due; see [`DelayingQueue::run`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn run(&self) -> usize {
        self.queue.run().await
    }

    /// The next key; `None` when the queue is shut down and empty.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn get(&self) -> Option<Processing<T>> {
        self.queue.get().await
    }

    /// How many keys are queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many keys wait for their time.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Takes no more keys.
    pub fn shut_down(&self) {
        self.queue.shut_down();
    }

    /// Whether it takes no more keys.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.queue.is_shutting_down()
    }

    /// Shuts down and waits until nothing is queued or processed; pending delays are forgotten.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn shut_down_with_drain(&self) {
        self.queue.shut_down_with_drain().await;
    }
}

impl<T: Key> Clone for RateLimitingQueue<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), limiter: self.limiter.clone() }
    }
}

impl<T: Key> fmt::Debug for RateLimitingQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitingQueue")
            .field("queue", &self.queue)
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workqueue::ItemExponentialFailure;

    const MS: Duration = Duration::from_millis(1);

    fn queue() -> RateLimitingQueue<&'static str> {
        RateLimitingQueue::new(ItemExponentialFailure::new(10 * MS, 1000 * MS))
    }

    /// How long it takes until a key comes.
    async fn wait(queue: &RateLimitingQueue<&'static str>) -> Duration {
        let start = tokio::time::Instant::now();
        tokio::select! {
            biased;
            key = queue.get() => drop(key),
            _ = queue.run() => {}
        }
        start.elapsed()
    }

    /// client-go: `TestRateLimitingQueue`
    #[tokio::test(start_paused = true)]
    async fn a_rate_limited_key_waits_as_its_limiter_says() {
        let queue = queue();
        for expected in [10, 20, 40] {
            queue.add_rate_limited("a");
            assert_eq!(wait(&queue).await, expected * MS);
        }
        assert_eq!(queue.num_requeues(&"a"), 3);
        queue.forget(&"a");
        queue.add_rate_limited("a");
        assert_eq!(wait(&queue).await, 10 * MS);
    }

    #[tokio::test(start_paused = true)]
    async fn delay_and_limit_together_take_the_shorter() {
        let queue = queue();
        queue.add("a", AddOptions { after: Some(500 * MS), rate_limited: true });
        assert_eq!(wait(&queue).await, 10 * MS);
        queue.add("a", AddOptions { after: Some(5 * MS), rate_limited: true });
        assert_eq!(wait(&queue).await, 5 * MS);
        queue.add("a", AddOptions::default());
        assert_eq!(wait(&queue).await, Duration::ZERO);
    }
}
