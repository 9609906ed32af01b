//! A delaying queue with a rate limiter, as used by workers and handlers.
//!
//! Mirrors client-go `util/workqueue/rate_limiting_queue.go` (`rateLimitingType`).
//! Flow: event handlers, failed syncs -> **rate limiting** -> delaying -> queue -> workers
//!
//! # Guarantees
//! - A rate-limited add waits as long as the limiter says; with a delay as well, the shorter wins. (test: `a_rate_limited_key_waits_for_its_limiter`, `shorter_of_delay_and_limit_wins`)
//! - An add during a backoff neither ends nor prolongs it, unless the add bypasses and resets it. (test: `only_a_new_spec_ends_the_backoff`)
//! - After such an add, the failure of the running sync delays and counts nothing. (test: `failure_overtaken_by_a_new_spec_does_not_back_off`)
//! - The sync after a backoff has the reasons of all adds until then. (test: `pass_after_backoff_has_all_reasons`, `an_event_at_backoff_end_joins_the_retry`)
//! - A key that is put off counts as neither got nor retried. (test: `key_that_is_put_off_was_not_handed_out`)
//! - A burst of failures leaves nothing behind. (test: `burst_of_failures_frees_its_memory`)
//! - A drain waits for the workers, but not for keys that back off. (test: `a_drain_waits_for_workers_and_forgets_backoffs`)
//! - A second shutdown has no effect. (test: `second_shutdown_has_no_effect`)
//!
//! # The life of a key that fails
//! ```text
//!                 add                 get                    forget, done
//!   (unknown) ----------> queued -------------> processing --------------> (unknown)
//!                           ^                       |
//!                  time is  |                       | back_off, done
//!                  over, or |                       v
//!                  bypass   +---------------- backing off
//!                                              add: one more reason
//! ```
//!
//! # Differences from client-go
//! During a delay of `add_rate_limited`, an event queues the key at once, as in client-go. During a `back_off`, which the
//! workers use, only one with [`AddOptions::bypass_backoff`] does: a child that changes often would cause many failures
//! per second (`events_shorten_rate_limited_delay_but_not_backoff`). [`AddOptions`] are controller-runtime's `AddWithOpts`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::delaying::DelayingQueue;
use super::listing::{Listed, Stage};
use super::metrics::QueueState;
use super::queue::{Key, Processing, QueueOptions};
use super::rate_limiters::{RateLimiter, RetryLimits};
use super::reasons::{Reason, Reasons};
use super::room::give_back_room;
use super::sync::Mutex;

/// When an added key is due, how urgent it is, and why it is added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// Queue the key after this delay, unless the rate limiter's is shorter.
    pub after: Option<Duration>,
    /// Queue the key after the rate limiter's delay, unless `after` is shorter. Counts as a failure of the key.
    pub rate_limited: bool,
    /// End the key's backoff and forget its failures.
    pub bypass_backoff: bool,
    /// Higher is sooner; a plain add has 0. Has an effect only in a queue with [`Ageing`](super::Ageing).
    pub priority: i32,
    /// Why the key is added.
    pub reasons: Reasons,
}

impl AddOptions {
    /// Returns the options of an immediate add for this reason.
    #[must_use]
    pub fn because(reason: Reason) -> Self {
        Self { reasons: reason.into(), ..Self::default() }
    }
}

/// A [`DelayingQueue`] with a rate limiter; see the module. Cheap to clone.
pub struct RateLimitingQueue<T: Key> {
    queue: DelayingQueue<T>,
    limiter: Arc<dyn RateLimiter<T>>,
    pauses: Arc<Mutex<Pauses<T>>>,
}

/// The keys that back off, and those with a bypass during their sync. A pause that is over stays until the key is
/// forgotten.
type Pauses<T> = HashMap<T, Pause, RandomState>;

/// How long a key is kept out of the queue.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    /// The earliest time that the server asked for, which no add bypasses.
    not_before: Instant,
    /// Whether an add has bypassed the backoff while the key was processing.
    is_overtaken: bool,
}

impl Pause {
    /// Returns the remaining time, if the pause is not over.
    fn left(&self) -> Option<Duration> {
        self.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

/// The result of [`RateLimitingQueue::get_unless`].
#[derive(Debug)]
pub enum Next<'a, T: Key> {
    /// The key is handed out.
    Process(Processing<'a, T>),
    /// The key is delayed.
    PutOff {
        /// The key.
        key: T,
        /// Its priority.
        priority: i32,
    },
}

/// The longest backoff, whatever limiter and server ask for: a day.
pub const DELAY_MAX: Duration = Duration::from_secs(24 * 3600);

// === impl RateLimitingQueue ===

impl<T: Key> RateLimitingQueue<T> {
    /// Creates an empty FIFO queue. Delayed keys are queued only while [`run`](Self::run) runs.
    #[must_use]
    pub fn new(limiter: impl RateLimiter<T>) -> Self {
        Self::with(limiter, QueueOptions::default())
    }

    /// Creates an empty queue with these options.
    #[must_use]
    pub fn with(limiter: impl RateLimiter<T>, options: QueueOptions) -> Self {
        Self { queue: DelayingQueue::with(options), limiter: Arc::new(limiter), pauses: Arc::default() }
    }

    /// Marks `key` as needing a sync. A key that backs off is queued when its backoff is over.
    pub fn add(&self, key: T) {
        self.add_with(key, AddOptions::default());
    }

    /// Like [`add`](Self::add), as the options say.
    pub fn add_with(&self, key: T, options: AddOptions) {
        let AddOptions { after, rate_limited, bypass_backoff, mut priority, mut reasons } = options;
        // Held until the key is queued or delayed, so that a concurrent failure finds it.
        let mut pauses = self.pauses.lock();
        if bypass_backoff {
            self.limiter.forget(&key);
            if let Some(pause) = pauses.get_mut(&key) {
                pause.until = pause.not_before;
            }
        }
        let is_paused = pauses.contains_key(&key);
        let left = pauses.get(&key).and_then(Pause::left);
        if left.is_some() && !bypass_backoff && self.queue.merge_pending(&key, priority, reasons.clone()) {
            // The key is already delayed: keep its time.
            return;
        }
        if (is_paused || bypass_backoff)
            && let Some((known, before)) = self.queue.cancel(&key)
        {
            // The pause is over or bypassed: one pass covers both adds.
            priority = priority.max(known);
            reasons = merged(before, reasons);
        }
        if let Some(left) = left {
            self.queue.add_after_with(key, left, priority, reasons);
            return;
        }
        if bypass_backoff {
            forget_pause(&mut pauses, &key);
            if self.queue.is_processing(&key) {
                let now = Instant::now();
                pauses.insert(key.clone(), Pause { until: now, not_before: now, is_overtaken: true });
            }
        }
        let limited = rate_limited.then(|| {
            let (delay, failures) = self.limiter.failed(&key);
            reasons.add(Reason::Retry(failures));
            delay
        });
        match after.into_iter().chain(limited).min() {
            Some(delay) => self.queue.add_after_with(key, delay, priority, reasons),
            None => self.queue.add_with(key, priority, reasons),
        }
    }

    /// Queues a delayed key now, unless it backs off; returns whether it was delayed.
    ///
    /// ```
    /// # use windlass::workqueue::{ItemExponentialFailure, RateLimitingQueue};
    /// # use std::time::Duration;
    /// let queue = RateLimitingQueue::new(ItemExponentialFailure::new(Duration::from_secs(1), Duration::from_secs(60)));
    /// queue.add_after("default/web", Duration::from_secs(600));
    /// assert!(queue.hasten(&"default/web") && !queue.hasten(&"default/web"));
    /// assert_eq!((queue.len(), queue.waiting()), (1, 0));
    /// ```
    pub fn hasten(&self, key: &T) -> bool {
        let pauses = self.pauses.lock();
        if pauses.get(key).and_then(Pause::left).is_some() {
            return false;
        }
        let Some((priority, reasons)) = self.queue.cancel(key) else { return false };
        self.queue.add_with(key.clone(), priority, reasons);
        true
    }

    /// Marks `key` as needing a pass after `delay`.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.add_with(key, AddOptions { after: Some(delay), ..AddOptions::default() });
    }

    /// Marks `key` as needing a pass after the rate limiter's delay.
    pub fn add_rate_limited(&self, key: T) {
        self.add_with(key, AddOptions { rate_limited: true, ..AddOptions::default() });
    }

    /// Counts a failure of `key` and queues it again after the rate limiter's delay, or after `at_least` if longer.
    /// Adds do not shorten the wait, unless they bypass the backoff; one that did so since the key was handed out leaves
    /// `at_least` alone.
    pub fn back_off(&self, key: T, at_least: Duration) {
        self.back_off_with(key, at_least, 0, Reasons::default());
    }

    /// Like [`back_off`](Self::back_off), with the priority and the reasons of the failed pass for the next try.
    pub fn back_off_with(&self, key: T, at_least: Duration, priority: i32, mut reasons: Reasons) {
        let now = Instant::now();
        let at_least = at_least.min(DELAY_MAX);
        let mut pauses = self.pauses.lock();
        let delay = if pauses.get(&key).is_some_and(|pause| pause.is_overtaken) {
            at_least
        } else {
            let (delay, failures) = self.limiter.failed(&key);
            reasons.add(Reason::Retry(failures));
            delay.max(at_least).min(DELAY_MAX)
        };
        let pause = Pause { until: now + delay, not_before: now + at_least, is_overtaken: false };
        pauses.insert(key.clone(), pause);
        // Cancels an earlier delay, which would queue the key too early; keeps its reasons.
        let (known, before) = self.queue.cancel(&key).unwrap_or((priority, Reasons::default()));
        self.queue.add_after_with(key, delay, priority.max(known), merged(before, reasons));
    }

    /// Returns the number of keys that wait after a failure.
    #[must_use]
    pub fn backing_off(&self) -> usize {
        let now = Instant::now();
        self.pauses.lock().values().filter(|pause| pause.until > now).count()
    }

    /// Returns whether `key` backs off.
    #[must_use]
    pub fn backs_off(&self, key: &T) -> bool {
        self.pauses.lock().get(key).is_some_and(|pause| pause.left().is_some())
    }

    /// Forgets the failures of `key`: the next failure counts as the first.
    pub fn forget(&self, key: &T) {
        forget_pause(&mut self.pauses.lock(), key);
        self.limiter.forget(key);
    }

    /// Returns the number of failures of `key` since it was last forgotten.
    #[must_use]
    pub fn num_requeues(&self, key: &T) -> u32 {
        self.limiter.num_requeues(key)
    }

    /// Sets the limits of the rate limiter, from the next failure on.
    ///
    /// # Panics
    /// If the limiter has a bucket and `qps` is not positive.
    pub fn set_limits(&self, limits: &RetryLimits) {
        self.limiter.adopt(limits);
    }

    /// Queues each key when it is due; see [`DelayingQueue::run`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn run(&self) -> usize {
        self.queue.run().await
    }

    /// Waits for the next key; see [`Queue::get`](super::Queue::get).
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn get(&self) -> Option<Processing<'_, T>> {
        let processing = self.queue.get().await?;
        self.begins(processing.key());
        Some(processing)
    }

    /// Waits for the next key, like [`get`](Self::get), and asks `put_off` about it. If that returns a time, the key is
    /// delayed by it, or until its backoff is over, with its priority and reasons. It was not handed out then: the metrics
    /// know of neither a get nor a retry.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn get_unless(
        &self,
        put_off: impl FnOnce(&Processing<'_, T>) -> Option<Duration>,
    ) -> Option<Next<'_, T>> {
        let taken = self.queue.take().await?;
        let Some(delay) = put_off(&taken) else {
            self.begins(taken.key());
            return Some(Next::Process(taken.count()));
        };
        {
            let pauses = self.pauses.lock();
            let left = pauses.get(taken.key()).and_then(Pause::left);
            self.queue.put_off(&taken, left.unwrap_or(delay));
        }
        Some(Next::PutOff { key: taken.key().clone(), priority: taken.priority() })
    }

    /// Returns the next key, if one is queued.
    #[must_use]
    pub fn try_get(&self) -> Option<Processing<'_, T>> {
        let processing = self.queue.try_get()?;
        self.begins(processing.key());
        Some(processing)
    }

    /// Forgets a bypass during the last sync of this key: the next one knows what was added.
    fn begins(&self, key: &T) {
        let mut pauses = self.pauses.lock();
        if pauses.get(key).is_some_and(|pause| pause.is_overtaken) {
            forget_pause(&mut pauses, key);
        }
    }

    /// Returns the number of queued keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no key is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of delayed keys.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Returns the keys with a pending pass; see [`DelayingQueue::list`].
    #[must_use]
    pub fn list(&self, max: usize) -> Vec<Listed<T>> {
        self.with_backoffs(self.queue.list(max))
    }

    /// Returns the pending passes of `key`, as [`list`](Self::list) shows them.
    #[must_use]
    pub fn look_up(&self, key: &T) -> Vec<Listed<T>> {
        self.with_backoffs(self.queue.look_up(key))
    }

    /// Tells the keys that wait after a failure from those with another delay.
    fn with_backoffs(&self, mut all: Vec<Listed<T>>) -> Vec<Listed<T>> {
        let (now, pauses) = (Instant::now(), self.pauses.lock());
        let has_failed = |key: &T| pauses.get(key).is_some_and(|pause| pause.until > now);
        for Listed { key, stage, .. } in &mut all {
            if let Stage::Delayed { waited, left } = *stage
                && has_failed(key)
            {
                *stage = Stage::BackingOff { waited, left, failures: self.limiter.num_requeues(key) };
            }
        }
        all
    }

    /// Returns a snapshot of the queue; see [`Queue::state`](super::Queue::state).
    #[must_use]
    pub fn state(&self) -> QueueState {
        self.queue.state()
    }

    /// Stops accepting keys; see [`Queue::shut_down`](super::Queue::shut_down).
    pub fn shut_down(&self) {
        self.queue.shut_down();
    }

    /// Returns whether the queue has stopped accepting keys.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.queue.is_shutting_down()
    }

    /// Shuts down and waits; see [`DelayingQueue::shut_down_with_drain`].
    ///
    /// # Cancel safety
    /// Safe: the queue stays shut down.
    pub async fn shut_down_with_drain(&self) {
        self.queue.shut_down_with_drain().await;
    }
}

fn merged(mut first: Reasons, then: Reasons) -> Reasons {
    first.merge(then);
    first
}

fn forget_pause<T: Key>(pauses: &mut Pauses<T>, key: &T) {
    pauses.remove(key);
    give_back_room(pauses);
}

impl<T: Key> Clone for RateLimitingQueue<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), limiter: self.limiter.clone(), pauses: self.pauses.clone() }
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
mod tests;
