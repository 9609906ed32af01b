//! A delaying queue with a rate limiter: what workers and handlers hold.
//!
//! Mirrors client-go `util/workqueue/rate_limiting_queue.go` (`rateLimitingType`).
//! Flow: event handlers, failed passes -> **rate limiting** -> delaying -> queue -> workers
//!
//! # Guarantees
//! - A rate-limited add waits as long as the limiter says; with a delay as well, the shorter counts. (test: `a_rate_limited_key_waits_for_its_limiter`, `delay_and_limit_together_take_the_shorter`)
//! - An add during the backoff neither ends nor prolongs it; one that bypasses it starts anew. (test: `only_a_new_spec_ends_the_backoff`)
//! - The pass after the backoff knows the reasons of all adds until then. (test: `a_pass_after_backoff_knows_all_reasons`, `an_event_at_backoff_end_joins_the_retry`)
//! - A burst of failures leaves nothing behind. (test: `a_burst_of_failures_leaves_nothing`)
//! - A drain waits for the workers, and not for keys that back off. (test: `a_drain_waits_for_workers_and_forgets_backoffs`)
//! - A second shutdown changes nothing. (test: `a_second_shutdown_changes_nothing`)
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
//! # Two ways to come back after a failure
//! [`add_rate_limited`](RateLimitingQueue::add_rate_limited) is client-go's: the delay is just one more way
//! into the queue, so an event that arrives meanwhile brings the key at once, and another failure grows the
//! count: a chatty child turns one failing key into many failures a second and then into a long silence.
//! [`back_off`](RateLimitingQueue::back_off) is the honest one, which our workers use: failures and delay are
//! one state, the key comes when the delay has passed, and only an event that may have cured the cause (a new
//! spec, a deletion) sets [`AddOptions::bypass_backoff`]. The test `both_ways_on_the_same_histories` shows the
//! difference.
//!
//! # Differences from client-go
//! One [`add`](RateLimitingQueue::add) with [`AddOptions`], as controller-runtime's queue has; the
//! three of client-go stand beside it.
//!
//! # Locks and tasks
//! The lock around the pauses is held until a key is in its place; limiters, metrics and the locks of the other queues
//! are used under it.

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
use super::rate_limiters::RateLimiter;
use super::reasons::{Reason, Reasons};
use super::room::give_back_room;
use super::sync::Mutex;

/// When an added key is due, how urgent it is, and why it is added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// After this delay, unless the rate limiter is sooner.
    pub after: Option<Duration>,
    /// When the rate limiter lets it, unless `after` is sooner. Counts as a failure of the key.
    pub rate_limited: bool,
    /// Ends the key's backoff: it starts anew, as if it had never failed.
    pub bypass_backoff: bool,
    /// Higher is sooner; a plain add has 0. Has an effect in a queue with [`Ageing`](super::Ageing).
    pub priority: i32,
    /// Why the key is added.
    pub reasons: Reasons,
}

impl AddOptions {
    /// Now, for a reason.
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

/// The keys that back off or rest. A pause that is over stays until the key is forgotten.
type Pauses<T> = HashMap<T, Pause, RandomState>;

/// How long a key stays away.
#[derive(Clone, Copy, Debug)]
struct Pause {
    /// Whether the key has failed; otherwise it only rests.
    is_failure: bool,
    until: Instant,
    /// The time that a server has asked for, which no add bypasses.
    not_before: Instant,
}

impl Pause {
    /// The time that is left, if the pause is not over.
    fn left(&self) -> Option<Duration> {
        self.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

/// No failure waits longer than a day, whatever limiter and server say.
pub const DELAY_MAX: Duration = Duration::from_secs(24 * 3600);

// === impl RateLimitingQueue ===

impl<T: Key> RateLimitingQueue<T> {
    /// An empty queue. Delays pass only while [`run`](Self::run) runs.
    #[must_use]
    pub fn new(limiter: impl RateLimiter<T>) -> Self {
        Self::with(limiter, QueueOptions::default())
    }

    /// An empty queue with these options.
    #[must_use]
    pub fn with(limiter: impl RateLimiter<T>, options: QueueOptions) -> Self {
        Self { queue: DelayingQueue::with(options), limiter: Arc::new(limiter), pauses: Arc::default() }
    }

    /// Marks `key` as needing a pass, as the options say. A key that backs off comes when its backoff is over.
    pub fn add(&self, key: T, options: AddOptions) {
        let AddOptions { after, rate_limited, bypass_backoff, mut priority, mut reasons } = options;
        // Held until the key is in its place, so that a failure meanwhile finds it there.
        let mut pauses = self.pauses.lock();
        if bypass_backoff {
            self.limiter.forget(&key);
            if let Some(pause) = pauses.get_mut(&key) {
                pause.until = pause.not_before;
            }
        }
        let is_paused = pauses.contains_key(&key);
        let left = pauses.get(&key).and_then(Pause::left);
        if left.is_some() && !bypass_backoff && self.queue.note(&key, priority, reasons.clone()) {
            // The key waits already: its time stays.
            return;
        }
        if (is_paused || bypass_backoff)
            && let Some((known, before)) = self.queue.cancel(&key)
        {
            // The pause is over or bypassed: one pass answers both adds.
            priority = priority.max(known);
            reasons = merged(before, reasons);
        }
        if let Some(left) = left {
            self.queue.add_after_with(key, left, priority, reasons);
            return;
        }
        if bypass_backoff {
            forget_pause(&mut pauses, &key);
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

    /// Marks `key` as needing a pass after `delay`.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.add(key, AddOptions { after: Some(delay), ..AddOptions::default() });
    }

    /// Marks `key` as needing a pass when the rate limiter lets it.
    pub fn add_rate_limited(&self, key: T) {
        self.add(key, AddOptions { rate_limited: true, ..AddOptions::default() });
    }

    /// Counts a failure of `key`: it comes again when the rate limiter lets it and `at_least` has passed, and not
    /// before, whatever is added meanwhile.
    pub fn back_off(&self, key: T, at_least: Duration) {
        self.back_off_with(key, at_least, 0, Reasons::default());
    }

    /// Counts a failure of `key`, as [`back_off`](Self::back_off) does. The next try has the priority and the reasons of
    /// the failed pass.
    pub fn back_off_with(&self, key: T, at_least: Duration, priority: i32, mut reasons: Reasons) {
        let (delay, failures) = self.limiter.failed(&key);
        reasons.add(Reason::Retry(failures));
        let now = Instant::now();
        let delay = delay.max(at_least).min(DELAY_MAX);
        let pause = Pause { is_failure: true, until: now + delay, not_before: now + at_least.min(DELAY_MAX) };
        self.pause(key, pause, delay, priority, reasons);
    }

    /// Lets `key` rest, though it has not failed: it comes again after `time`, and not before unless an add bypasses
    /// that.
    pub fn rest(&self, key: T, time: Duration) {
        let (now, time) = (Instant::now(), time.min(DELAY_MAX));
        let pause = Pause { is_failure: false, until: now + time, not_before: now };
        self.pause(key, pause, time, 0, Reasons::default());
    }

    fn pause(&self, key: T, pause: Pause, delay: Duration, priority: i32, reasons: Reasons) {
        let mut pauses = self.pauses.lock();
        pauses.insert(key.clone(), pause);
        // An earlier delay would bring the key too early; its reasons stay.
        let (known, before) = self.queue.cancel(&key).unwrap_or((priority, Reasons::default()));
        self.queue.add_after_with(key, delay, priority.max(known), merged(before, reasons));
    }

    /// Gives a key that waits for its time more reasons; see [`DelayingQueue::note`].
    pub fn note(&self, key: &T, priority: i32, reasons: impl Into<Reasons>) -> bool {
        self.queue.note(key, priority, reasons)
    }

    /// How many keys wait after a failure.
    #[must_use]
    pub fn backing_off(&self) -> usize {
        let now = Instant::now();
        self.pauses.lock().values().filter(|pause| pause.is_failure && pause.until > now).count()
    }

    /// Whether `key` waits after a failure, or rests.
    #[must_use]
    pub fn backs_off(&self, key: &T) -> bool {
        self.pauses.lock().get(key).is_some_and(|pause| pause.left().is_some())
    }

    /// Forgets the failures of `key`: its next one counts as the first.
    pub fn forget(&self, key: &T) {
        forget_pause(&mut self.pauses.lock(), key);
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

    /// Waits for the next key; see [`Queue::get`](super::Queue::get).
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn get(&self) -> Option<Processing<'_, T>> {
        self.queue.get().await
    }

    /// The next key, if one is queued.
    #[must_use]
    pub fn try_get(&self) -> Option<Processing<'_, T>> {
        self.queue.try_get()
    }

    /// How many keys are queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no key is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many keys wait for their time.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// The keys that will have a pass; see [`DelayingQueue::list`].
    #[must_use]
    pub fn list(&self, max: usize) -> Vec<Listed<T>> {
        let mut all = self.queue.list(max);
        let (now, pauses) = (Instant::now(), self.pauses.lock());
        let has_failed = |key: &T| pauses.get(key).is_some_and(|pause| pause.is_failure && pause.until > now);
        for Listed { key, stage, .. } in &mut all {
            if let Stage::Delayed { left } = *stage
                && has_failed(key)
            {
                *stage = Stage::BackingOff { left, failures: self.limiter.num_requeues(key) };
            }
        }
        all
    }

    /// What is in the queue now; see [`Queue::state`](super::Queue::state).
    #[must_use]
    pub fn state(&self) -> QueueState {
        self.queue.state()
    }

    /// Takes no more keys; see [`Queue::shut_down`](super::Queue::shut_down).
    pub fn shut_down(&self) {
        self.queue.shut_down();
    }

    /// Whether the queue takes no more keys.
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
