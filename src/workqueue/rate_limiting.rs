//! A delaying queue with a rate limiter: what workers and handlers hold.
//!
//! Mirrors client-go `util/workqueue/rate_limiting_queue.go` (`rateLimitingType`).
//!
//! # Guarantees
//! - A rate-limited add waits as long as the limiter says. (test: `a_rate_limited_key_waits_as_its_limiter_says`)
//! - Delay and rate limit together: the shorter counts. (test: `delay_and_limit_together_take_the_shorter`)
//! - Honest backoff: an add during the backoff neither ends it nor makes it longer; one that bypasses it
//!   starts anew. (test: `an_event_during_the_backoff_waits_and_a_new_spec_does_not`)
//! - What came during the backoff is among the reasons of the pass that ends it. (test: `a_pass_after_the_backoff_knows_what_came_meanwhile`)
//! - So is what came at its very end. (test: `an_event_at_the_end_of_the_backoff_is_part_of_the_try`)
//! - A burst of failures leaves nothing behind. (test: `a_burst_of_failures_leaves_nothing`)
//! - A drain waits for the workers, and not for what backs off. (test: `a_drain_waits_for_the_workers_and_forgets_who_backs_off`)
//! - A shutdown may come twice. (test: `a_second_shutdown_changes_nothing`)
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
//! into the queue, so an event that arrives meanwhile brings the key at once, and if it fails again the
//! count has grown: a chatty child turns a key that fails into many failures a second and then into a long
//! silence. [`back_off`](RateLimitingQueue::back_off) is the honest one, which our workers use: failures
//! and delay are one state, the key comes when the delay has passed, and only what may have cured the cause
//! (a new spec, a deletion) says so with [`AddOptions::bypass_backoff`]. The test
//! `both_ways_on_the_same_histories` shows the difference.
//!
//! # Differences from client-go
//! One [`add`](RateLimitingQueue::add) with [`AddOptions`], as controller-runtime's queue has; the
//! three of client-go stand beside it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::delaying::DelayingQueue;
use super::listing::{Listed, Stage};
use super::metrics::QueueState;
use super::queue::{Get, Key, Processing, QueueOptions};
use super::rate_limiters::RateLimiter;
use super::reasons::{Reason, Reasons};
use super::room::has_spare_room;

/// When an added key is due, how urgent it is, and why it is added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// When this has passed, unless the rate limiter is sooner.
    pub after: Option<Duration>,
    /// When the rate limiter lets it, unless `after` is sooner; counts as a failure of the key.
    pub rate_limited: bool,
    /// Also when the key backs off: it starts anew, as if it had never failed.
    pub bypass_backoff: bool,
    /// Higher is sooner; 0 is that of a plain add. Counts in a queue that has [`Ageing`](super::Ageing).
    pub priority: i32,
    /// Why.
    pub reasons: Reasons,
}

impl AddOptions {
    /// Now, for a reason.
    #[must_use]
    pub fn because(reason: Reason) -> Self {
        Self { reasons: reason.into(), ..Self::default() }
    }
}

/// A [`DelayingQueue`] that knows how long a failed key waits. Cheap to clone.
pub struct RateLimitingQueue<T: Key> {
    queue: DelayingQueue<T>,
    limiter: Arc<dyn RateLimiter<T>>,
    /// Which keys back off; forgotten with their failures. Its lock is taken before the delaying queue's.
    backoff: Arc<Backoff<T>>,
}

/// The keys that back off, and how many they are: most passes end without any.
struct Backoff<T> {
    /// Limiters and metrics are called while it is held, so its lock lets threads sleep.
    pauses: Mutex<Pauses<T>>,
    len: AtomicUsize,
}

type Pauses<T> = HashMap<T, Pause, foldhash::fast::RandomState>;

/// How long a key that failed stays away.
#[derive(Clone, Copy, Debug)]
struct Pause {
    /// Whether it has failed; else it only rests.
    is_failure: bool,
    until: Instant,
    /// What a server has asked for holds even for what bypasses the backoff.
    not_before: Instant,
}

/// No failure waits longer than a day, whatever limiter and server say.
pub const DELAY_MAX: Duration = Duration::from_secs(24 * 3600);

impl<T> Default for Backoff<T> {
    fn default() -> Self {
        Self { pauses: Mutex::default(), len: AtomicUsize::new(0) }
    }
}

impl<T: Key> Backoff<T> {
    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    fn forget(&self, pauses: &mut Pauses<T>, key: &T) {
        pauses.remove(key);
        if has_spare_room(pauses.len(), pauses.capacity()) {
            pauses.shrink_to(2 * pauses.len());
        }
        self.len.store(pauses.len(), Ordering::Release);
    }
}

impl Pause {
    /// The time that is left of it.
    fn left(&self) -> Option<Duration> {
        self.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// Ends the backoff where nothing else was asked for; else the time that is left of what was.
    fn shorten(&mut self) -> Option<Duration> {
        let left = self.not_before.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        self.until = self.not_before;
        Some(left)
    }
}

fn merged(mut first: Reasons, then: Reasons) -> Reasons {
    first.merge(then);
    first
}

// === impl RateLimitingQueue ===

impl<T: Key> RateLimitingQueue<T> {
    /// An empty queue; delays pass only while [`run`](Self::run) runs.
    #[must_use]
    pub fn new(limiter: impl RateLimiter<T>) -> Self {
        Self::with(limiter, QueueOptions::default())
    }

    /// The same with priorities or metrics.
    #[must_use]
    pub fn with(limiter: impl RateLimiter<T>, options: QueueOptions) -> Self {
        Self { queue: DelayingQueue::with(options), limiter: Arc::new(limiter), backoff: Arc::default() }
    }

    /// Marks `key` as needing a pass, when the options say. A key that backs off comes when that is over.
    #[inline]
    pub fn add(&self, key: T, options: AddOptions) {
        let AddOptions { after, rate_limited, bypass_backoff, mut priority, mut reasons } = options;
        if self.backoff.is_empty() && after.is_none() && !rate_limited && !bypass_backoff {
            // What fails at the same time has failed after this.
            return self.queue.add_with(key, priority, reasons);
        }
        // Held until the key is in its place: a failure meanwhile must find it there.
        let mut backoff = self.backoff.pauses.lock();
        if bypass_backoff {
            self.limiter.forget(&key);
        }
        if let Some(pause) = backoff.get_mut(&key) {
            let left = if bypass_backoff { pause.shorten() } else { pause.left() };
            let is_over = left.is_none() || bypass_backoff;
            if is_over && let Some((known, before)) = self.queue.cancel(&key) {
                // Its own time is over or does not count any more: one pass answers both.
                priority = priority.max(known);
                reasons = merged(before, reasons);
            }
            if let Some(left) = left {
                // It waits already, as a rule: an event is no retry.
                if !self.queue.note(&key, priority, reasons.clone()) {
                    self.queue.add_after_with(key, left, priority, reasons);
                }
                return;
            }
            if bypass_backoff {
                self.backoff.forget(&mut backoff, &key);
            }
        } else if bypass_backoff && let Some((known, before)) = self.queue.cancel(&key) {
            priority = priority.max(known);
            reasons = merged(before, reasons);
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

    /// `key` has failed: it comes again when the rate limiter lets it and `at_least` has passed, and not
    /// before, whatever is added meanwhile.
    pub fn back_off(&self, key: T, at_least: Duration) {
        self.back_off_with(key, at_least, 0, Reasons::default());
    }

    /// The same with the priority and the reasons of the pass that has failed: its next try answers them still.
    pub fn back_off_with(&self, key: T, at_least: Duration, priority: i32, mut reasons: Reasons) {
        let (delay, failures) = self.limiter.failed(&key);
        reasons.add(Reason::Retry(failures));
        let now = Instant::now();
        let delay = delay.max(at_least).min(DELAY_MAX);
        let pause = Pause { is_failure: true, until: now + delay, not_before: now + at_least.min(DELAY_MAX) };
        self.pause(key, pause, delay, priority, reasons);
    }

    /// `key` is to rest, though it has not failed: it comes again after `time`, and not before, unless
    /// something bypasses that.
    pub fn rest(&self, key: T, time: Duration) {
        let (now, time) = (Instant::now(), time.min(DELAY_MAX));
        self.pause(
            key,
            Pause { is_failure: false, until: now + time, not_before: now },
            time,
            0,
            Reasons::default(),
        );
    }

    fn pause(&self, key: T, pause: Pause, delay: Duration, priority: i32, reasons: Reasons) {
        let mut backoff = self.backoff.pauses.lock();
        backoff.insert(key.clone(), pause);
        self.backoff.len.store(backoff.len(), Ordering::Release);
        // A delay that was asked for before would bring the key too early; what it was for is not forgotten.
        let (known, before) = self.queue.cancel(&key).unwrap_or((priority, Reasons::default()));
        self.queue.add_after_with(key, delay, priority.max(known), merged(before, reasons));
    }

    /// Gives a key that waits for its time another reason; whether it waits.
    pub fn note(&self, key: &T, priority: i32, reasons: impl Into<Reasons>) -> bool {
        self.queue.note(key, priority, reasons)
    }

    /// How many keys wait after a failure.
    #[must_use]
    pub fn backing_off(&self) -> usize {
        let now = Instant::now();
        self.backoff.pauses.lock().values().filter(|pause| pause.is_failure && pause.until > now).count()
    }

    /// Whether `key` waits after a failure, or rests.
    #[must_use]
    pub fn backs_off(&self, key: &T) -> bool {
        self.backoff.pauses.lock().get(key).is_some_and(|pause| pause.until > Instant::now())
    }

    /// Forgets the failures of `key`: its next one counts as the first.
    #[inline]
    pub fn forget(&self, key: &T) {
        // Who sees none here has not paused this key: that is for the pass that forgets it.
        if !self.backoff.is_empty() {
            let mut backoff = self.backoff.pauses.lock();
            self.backoff.forget(&mut backoff, key);
        }
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
    pub fn get(&self) -> Get<'_, T> {
        self.queue.get()
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

    /// The keys that will have a pass; see [`DelayingQueue::list`].
    #[must_use]
    pub fn list(&self, max: usize) -> Vec<Listed<T>> {
        let mut all = self.queue.list(max);
        if self.backoff.is_empty() {
            return all;
        }
        let (now, pauses) = (Instant::now(), self.backoff.pauses.lock());
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

    /// What there is in the queue; see [`Queue::state`](super::Queue::state).
    #[must_use]
    pub fn state(&self) -> QueueState {
        self.queue.state()
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
        Self { queue: self.queue.clone(), limiter: self.limiter.clone(), backoff: self.backoff.clone() }
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
