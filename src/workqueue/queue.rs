//! An ordered queue of keys with a dirty and a processing state: fair, deduplicating, one worker per key.
//!
//! Mirrors client-go `util/workqueue/queue.go` (`Typed`).
//! Flow: event handlers -> add -> **queue** -> get -> workers -> done -> queue
//! Chapter 5 of `docs/book` builds this from nothing.
//!
//! # The life of a key
//! ```text
//!              add                    get                     done
//!   (unknown) -----> dirty, queued -------> processing ---------------> (unknown)
//!                     ^    add: merged        |     ^ add: merged
//!                     |                   add v     |
//!                     +---- done ---- dirty, processing
//! ```
//! An add of a key that is processing does not queue it: *done* does. So every queued key is dirty and not processing.
//!
//! # Guarantees
//! - All adds of a key between two gets are merged into one sync, which has all their reasons. (test: `adds_collapse`, `collapsed_adds_keep_all_reasons`)
//! - An add while the key is processing causes one more sync afterwards. (test: `key_added_while_processing_is_requeued`, `key_added_while_processing_wakes_a_waiting_worker`)
//! - No two workers process the same key at once. (test: `no_two_workers_process_the_same_key`, `adds_survive_and_keys_have_one_worker`)
//! - Keys are handed out in the order of their first adds, or by [priorities that age](super::order). (test: `the_queue_agrees_with_a_naive_model`)
//! - No worker sleeps while a key waits, even if another get is dropped. (test: `no_worker_sleeps_while_a_key_waits`, `a_dropped_get_passes_its_wakeup_on`)
//! - After a shutdown, queued keys are still handed out and adds are ignored; a drain waits for queued and processing
//!   keys. (test: `shutdown_still_hands_out_queued_keys`, `drain_waits_for_queued_and_processing_keys`)
//! - A done key leaves nothing behind, and an idle queue frees the memory of a burst. (test: `done_key_is_dropped`, `idle_queue_frees_memory_of_a_burst`)
//!
//! # Differences from client-go
//! Dropping [`Processing`] is *done*, so neither a return nor a panic can skip it. A drain also waits for queued keys;
//! client-go's waits only for processing keys, controller-runtime's for none. Priorities and reasons are additions.
//! There is one lock; wake-ups and metrics follow its release.

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
use state::{Added, KeySets};

/// A type that can be queued: cheap to clone, compared by value.
pub trait Key: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> Key for T {}

/// Optional features of a queue.
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
    /// Receives the events of the queue.
    pub metrics: Option<Arc<dyn QueueMetrics>>,
}

/// The queue; see the module. Cheap to clone: all clones are the same queue.
pub struct Queue<T: Key> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    state: Mutex<KeySets<T>>,
    /// Wakes one get for each queued key, and all gets at the shutdown.
    queued: Notify,
    /// Wakes the drains when the queue is idle, or when a shutdown ends them.
    idle: Notify,
    /// Number of times that a waiting get was woken.
    wakeups: AtomicU64,
    metrics: Option<Arc<dyn QueueMetrics>>,
    /// When the queue was created; `None` if neither priorities nor metrics need the time.
    started: Option<Instant>,
}

/// A key that is being processed. Dropping it marks the key as *done*.
#[must_use = "dropping this immediately marks the key as done"]
pub struct Processing<'a, T: Key> {
    key: T,
    priority: i32,
    reasons: Reasons,
    waited: Duration,
    /// Whether the metrics know of it.
    is_counted: bool,
    queue: &'a Queue<T>,
}

// === impl Queue ===

impl<T: Key> Queue<T> {
    /// Creates an empty FIFO queue.
    #[must_use]
    pub fn new() -> Self {
        Self::with(QueueOptions::default())
    }

    /// Creates an empty queue with these options.
    #[must_use]
    pub fn with(options: QueueOptions) -> Self {
        let QueueOptions { ageing, metrics } = options;
        let needs_time = ageing.is_some() || metrics.is_some();
        let inner = Inner {
            state: Mutex::new(KeySets::new(ageing)),
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

    /// Like [`add_with`](Self::add_with) for a borrowed key, which is cloned only if it is not already waiting.
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

    /// Waits for the next key; returns `None` once the queue is shut down and empty.
    ///
    /// # Cancel safety
    /// Safe: a key is taken in the last step or not at all, and a dropped get passes its wake-up on.
    pub async fn get(&self) -> Option<Processing<'_, T>> {
        self.take().await.map(Processing::count)
    }

    /// Like [`get`](Self::get), for a caller that may put the key off: nothing is counted until [`Processing::count`].
    pub(super) async fn take(&self) -> Option<Processing<'_, T>> {
        loop {
            if let Poll::Ready(next) = self.poll_take() {
                return next;
            }
            let mut queued = pin!(self.inner.queued.notified());
            // Registers this get: from here on, an add wakes this task.
            if queued.as_mut().enable() {
                // An earlier add found no waiting get; its key may already be taken.
                continue;
            }
            // A key may have been added before the registration.
            if let Poll::Ready(next) = self.poll_take() {
                return next;
            }
            queued.await;
            self.inner.wakeups.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the next key, if one is queued.
    #[must_use]
    pub fn try_get(&self) -> Option<Processing<'_, T>> {
        match self.poll_take() {
            Poll::Ready(next) => next.map(Processing::count),
            Poll::Pending => None,
        }
    }

    /// Returns the next key, `None` if the queue is shut down and empty, or pending if it is only empty.
    fn poll_take(&self) -> Poll<Option<Processing<'_, T>>> {
        let now = self.now();
        let (next, shutting_down) = {
            let mut state = self.inner.state.lock();
            (state.get(now), state.shutting_down)
        };
        let Some((key, dirty)) = next else {
            return if shutting_down { Poll::Ready(None) } else { Poll::Pending };
        };
        let waited = now.saturating_sub(dirty.added);
        let (priority, reasons) = (dirty.priority, dirty.reasons);
        Poll::Ready(Some(Processing { key, priority, reasons, waited, is_counted: false, queue: self }))
    }

    fn done(&self, key: &T, is_counted: bool) {
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
        if let Some(metrics) = self.inner.metrics.as_ref().filter(|_| is_counted) {
            metrics.done(worked);
        }
    }

    /// Returns the number of queued keys, excluding processing keys, even if these were added again.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.state.lock().len()
    }

    /// Returns whether no key is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys that are being processed.
    #[must_use]
    pub fn processing(&self) -> usize {
        self.inner.state.lock().processing()
    }

    /// Returns whether this key is being processed.
    #[must_use]
    pub fn is_processing(&self, key: &T) -> bool {
        self.inner.state.lock().is_processing(key)
    }

    /// Returns a snapshot of the queue. Times are zero in a queue without priorities and metrics.
    #[must_use]
    pub fn state(&self) -> QueueState {
        let (now, wakeups) = (self.now(), self.inner.wakeups.load(Ordering::Relaxed));
        QueueState { wakeups, ..self.inner.state.lock().describe(now) }
    }

    /// Returns at most `max` keys with a pending pass, in no particular order. Adds and gets wait while the keys are
    /// copied.
    #[must_use]
    pub fn list(&self, max: usize) -> Vec<Listed<T>> {
        let now = self.now();
        self.inner.state.lock().list(now, max)
    }

    /// Returns `key` as [`list`](Self::list) shows it, if it has a pending pass.
    #[must_use]
    pub fn look_up(&self, key: &T) -> Option<Listed<T>> {
        let now = self.now();
        self.inner.state.lock().look_up(key, now)
    }

    /// Stops accepting keys. Queued keys are still handed out, then every get returns `None`. Ends a waiting drain.
    pub fn shut_down(&self) {
        self.stop(false);
        self.inner.idle.notify_waiters();
    }

    /// Shuts down and waits until no key is queued or processing, or until [`shut_down`](Self::shut_down) is called.
    /// Workers must keep calling [`get`](Self::get).
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

    /// Returns whether the queue has stopped accepting keys.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.inner.state.lock().shutting_down
    }

    /// Stops accepting keys, and wakes every get to notice.
    pub(super) fn stop(&self, drain: bool) {
        {
            let mut state = self.inner.state.lock();
            state.shutting_down = true;
            state.drain = drain;
        }
        self.inner.queued.notify_waiters();
    }

    /// Returns the time since the queue was created.
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
    /// Tells the metrics that the key is handed out.
    pub(super) fn count(mut self) -> Self {
        if let Some(metrics) = &self.queue.inner.metrics {
            metrics.got(self.waited);
        }
        self.is_counted = true;
        self
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &T {
        &self.key
    }

    /// Returns the reasons of all adds that were merged into this pass.
    #[must_use]
    pub fn reasons(&self) -> &Reasons {
        &self.reasons
    }

    /// Returns the highest priority of these adds.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Returns how long the key waited; zero in a queue without priorities and metrics.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl<T: Key> Drop for Processing<'_, T> {
    fn drop(&mut self) {
        self.queue.done(&self.key, self.is_counted);
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
