//! An ordered queue of keys with a dirty and a processing state: fair, deduplicating, one worker per key.
//!
//! Mirrors client-go `util/workqueue/queue.go` (`Typed`).
//! Flow: event handlers -> add -> **queue** -> get -> workers -> done -> queue
//!
//! # The life of a key
//! ```text
//!              add                    get                     done
//!   (unknown) -----> dirty, queued -------> processing ---------------> (unknown)
//!                     ^    add: merged        |     ^ add: merged
//!                     |                   add v     |
//!                     +---- done ---- dirty, processing
//! ```
//! An add marks a key *dirty* and queues it. A get takes the first queued key and makes it *processing* and clean. An
//! add of a key that is processing makes it dirty again but does not queue it: *done* does. So every queued key is
//! dirty and not processing.
//!
//! # Guarantees
//! - Any number of adds between two gets are one pass, which knows all their reasons. (test: `adds_collapse`, `collapsed_adds_keep_all_reasons`)
//! - An add while the key is processing makes one more pass, after that one. (test: `a_key_added_while_processing_comes_again`)
//! - No two workers have the same key, in whatever order threads take the lock. (test: `a_key_is_never_with_two_workers`, `adds_survive_and_keys_have_one_worker`)
//! - Keys come in the order of their first adds, or by [priorities that age](super::order). (test: `the_queue_agrees_with_a_naive_model`)
//! - No worker sleeps while a key waits, also when another get is dropped. (test: `no_worker_sleeps_while_a_key_waits`, `a_dropped_get_passes_its_wakeup_on`)
//! - After a shutdown, queued keys are still handed out and adds are ignored; a drain waits for the queued and the
//!   processing ones. (test: `shutdown_hands_out_the_rest`, `drain_waits_for_queued_and_processed`)
//! - A key that is done leaves nothing, an empty queue no memory of a burst. (test: `done_keys_leave_nothing`, `a_burst_costs_nothing_later`)
//!
//! # Differences from client-go
//! *Done* is the drop of [`Processing`], so no path, return or panic, forgets it. A drain waits for queued keys too;
//! client-go's waits only for those in process, controller-runtime's for none. Priorities and reasons are ours; the order
//! cannot be replaced by the caller.
//!
//! # Locks and tasks
//! One lock, no task. Under the lock keys are cloned, hashed, compared and dropped; wake-ups and metrics come after it.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::listing::Listed;
use super::metrics::{QueueMetrics, QueueState};
use super::order::Ageing;
use super::reasons::Reasons;
use super::sync::{Mutex, Notify};
use state::{Added, State};

/// What can be queued: cheap to clone, compared by value.
pub trait Key: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> Key for T {}

/// What a queue may have beyond the plain one.
///
/// ```
/// use windlass::workqueue::{Ageing, Queue, QueueOptions};
/// let queue = Queue::<&str>::with(QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() });
/// # drop(queue);
/// ```
#[derive(Clone, Debug, Default)]
pub struct QueueOptions {
    /// Priorities, and how fast waiting keys grow into higher ones; `None` for plain FIFO.
    pub ageing: Option<Ageing>,
    /// Hears what happens.
    pub metrics: Option<Arc<dyn QueueMetrics>>,
}

/// The queue; see the module. Cheap to clone: all clones are the same queue.
pub struct Queue<T: Key> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    state: Mutex<State<T>>,
    /// Wakes one get for each key that is queued, and all gets at the shutdown.
    queued: Notify,
    /// Wakes the drains: the queue is idle, or a shutdown ends them.
    idle: Notify,
    /// How often a waiting get was woken.
    wakeups: AtomicU64,
    metrics: Option<Arc<dyn QueueMetrics>>,
    /// When the queue was made; `None` if neither priorities nor metrics need the time.
    started: Option<Instant>,
}

/// A key that a worker has. Dropping it is *done*.
#[must_use = "dropping it at once means that the key is done"]
pub struct Processing<'a, T: Key> {
    key: T,
    priority: i32,
    reasons: Reasons,
    waited: Duration,
    queue: &'a Queue<T>,
}

// === impl Queue ===

impl<T: Key> Queue<T> {
    /// An empty queue, first in, first out.
    #[must_use]
    pub fn new() -> Self {
        Self::with(QueueOptions::default())
    }

    /// An empty queue with these options.
    #[must_use]
    pub fn with(options: QueueOptions) -> Self {
        let QueueOptions { ageing, metrics } = options;
        let needs_time = ageing.is_some() || metrics.is_some();
        let inner = Inner {
            state: Mutex::new(State::new(ageing)),
            queued: Notify::new(),
            idle: Notify::new(),
            wakeups: AtomicU64::new(0),
            metrics,
            started: needs_time.then(Instant::now),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Marks `key` as needing a pass. Ignored during a shutdown.
    pub fn add(&self, key: T) {
        self.add_with(key, 0, Reasons::default());
    }

    /// Marks `key` as needing a pass, with a priority and reasons. A plain add has priority 0; higher is sooner.
    pub fn add_with(&self, key: T, priority: i32, reasons: impl Into<Reasons>) {
        self.put(Cow::Owned(key), priority, reasons.into());
    }

    /// Marks a key that the caller keeps as needing a pass. The key is cloned only if it is not queued yet.
    ///
    /// ```
    /// # use windlass::workqueue::{Queue, Reason};
    /// let (queue, key) = (Queue::new(), String::from("default/web"));
    /// queue.add_ref(&key, 0, Reason::Manual);
    /// assert_eq!(queue.len(), 1);
    /// ```
    pub fn add_ref(&self, key: &T, priority: i32, reasons: impl Into<Reasons>) {
        self.put(Cow::Borrowed(key), priority, reasons.into());
    }

    fn put(&self, key: Cow<'_, T>, priority: i32, reasons: Reasons) {
        let now = self.now();
        let added = self.inner.state.lock().add(key, priority, reasons, now);
        if added == Added::Queued {
            self.inner.queued.notify_one();
        }
        if let Some(metrics) = &self.inner.metrics
            && matches!(added, Added::Queued | Added::Deferred)
        {
            metrics.added();
        }
    }

    /// Waits for the next key; `None` when the queue is shut down and empty.
    ///
    /// # Cancel safety
    /// Safe: a key is taken in the last step or not at all, and a dropped get passes its wake-up on.
    pub async fn get(&self) -> Option<Processing<'_, T>> {
        loop {
            if let Poll::Ready(next) = self.poll_get() {
                return next;
            }
            let mut queued = pin!(self.inner.queued.notified());
            // Registers this get: from here on, an add wakes it.
            if queued.as_mut().enable() {
                // An earlier add found nobody to wake; its key may be taken already.
                continue;
            }
            // A key may have come before the registration.
            if let Poll::Ready(next) = self.poll_get() {
                return next;
            }
            queued.await;
            self.inner.wakeups.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The next key, if one is queued.
    #[must_use]
    pub fn try_get(&self) -> Option<Processing<'_, T>> {
        match self.poll_get() {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    /// The next key; `None` when the queue is shut down and empty, pending when it is only empty.
    fn poll_get(&self) -> Poll<Option<Processing<'_, T>>> {
        let now = self.now();
        let (next, shutting_down) = {
            let mut state = self.inner.state.lock();
            (state.get(now), state.shutting_down)
        };
        let Some((key, dirty)) = next else {
            return if shutting_down { Poll::Ready(None) } else { Poll::Pending };
        };
        let waited = now.saturating_sub(dirty.added);
        let processing =
            Processing { key, priority: dirty.priority, reasons: dirty.reasons, waited, queue: self };
        if let Some(metrics) = &self.inner.metrics {
            metrics.got(waited);
        }
        Poll::Ready(Some(processing))
    }

    fn done(&self, key: &T) {
        let now = self.now();
        let (worked, is_queued, is_drained) = {
            let mut state = self.inner.state.lock();
            let (worked, is_queued) = state.done(key, now);
            (worked, is_queued, state.drain && state.is_idle())
        };
        if is_queued {
            self.inner.queued.notify_one();
        }
        if is_drained {
            self.inner.idle.notify_waiters();
        }
        if let Some(metrics) = &self.inner.metrics {
            metrics.done(worked);
        }
    }

    /// How many keys are queued: without those that are processing, or were added again meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.state.lock().len()
    }

    /// Whether no key is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys workers have.
    #[must_use]
    pub fn processing(&self) -> usize {
        self.inner.state.lock().processing()
    }

    /// What is in the queue now. Times are zero in a queue without priorities and metrics.
    #[must_use]
    pub fn state(&self) -> QueueState {
        let (now, wakeups) = (self.now(), self.inner.wakeups.load(Ordering::Relaxed));
        QueueState { wakeups, ..self.inner.state.lock().describe(now) }
    }

    /// The keys that will have a pass, in no order, at most `max`: adds and gets wait while they are copied.
    #[must_use]
    pub fn list(&self, max: usize) -> Vec<Listed<T>> {
        let now = self.now();
        self.inner.state.lock().list(now, max)
    }

    /// Takes no more keys. Queued keys are still handed out, then every get ends. Ends a waiting drain.
    pub fn shut_down(&self) {
        self.stop(false);
        self.inner.idle.notify_waiters();
    }

    /// Shuts down and waits until no key is queued or processing, or until [`shut_down`](Self::shut_down) is called.
    /// Workers must go on getting.
    ///
    /// # Cancel safety
    /// Safe: the queue stays shut down.
    pub async fn shut_down_with_drain(&self) {
        self.stop(true);
        loop {
            let mut idle = pin!(self.inner.idle.notified());
            idle.as_mut().enable();
            {
                let state = self.inner.state.lock();
                if state.is_idle() || !state.drain {
                    return;
                }
            }
            idle.await;
        }
    }

    /// Whether the queue takes no more keys.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.inner.state.lock().shutting_down
    }

    /// Takes no more keys, and wakes every get to see that.
    pub(super) fn stop(&self, drain: bool) {
        {
            let mut state = self.inner.state.lock();
            state.shutting_down = true;
            state.drain = drain;
        }
        self.inner.queued.notify_waiters();
    }

    /// The time since the queue was made.
    fn now(&self) -> Duration {
        self.inner.started.map_or(Duration::ZERO, |started| started.elapsed())
    }
}

impl<T: Key> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Key> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<T: Key> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("len", &self.len()).finish_non_exhaustive()
    }
}

// === impl Processing ===

impl<T: Key> Processing<'_, T> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &T {
        &self.key
    }

    /// The reasons of all adds that this pass answers.
    #[must_use]
    pub fn reasons(&self) -> &Reasons {
        &self.reasons
    }

    /// The highest priority of those adds.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// How long the key waited; zero in a queue without priorities and metrics.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl<T: Key> Drop for Processing<'_, T> {
    fn drop(&mut self) {
        self.queue.done(&self.key);
    }
}

impl<T: Key> fmt::Debug for Processing<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Processing").field(&self.key).finish()
    }
}

mod state;

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

#[cfg(all(test, feature = "shuttle"))]
mod model;
