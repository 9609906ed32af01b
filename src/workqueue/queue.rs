//! A FIFO of keys with a dirty and a processing state: fair, deduplicating, one worker a key.
//!
//! Mirrors client-go `util/workqueue/queue.go` (`Type`).
//! Flow: handlers -> **queue** -> workers -> sync handler
//!
//! # The life of a key
//! ```text
//!              add                    get                     done
//!   (unknown) -----> dirty, queued -------> processing ---------------> (unknown)
//!                     ^    add: same          |     ^ add: same
//!                     |                   add v     |
//!                     +---- done ---- dirty, processing
//! ```
//! A key that is added is *dirty*. If nobody works on it, it is also queued. A worker that gets it makes
//! it clean and *processing*; an add meanwhile makes it dirty again and waits for the worker, whose
//! done queues it once more. So every queued key is dirty and not processing.
//!
//! A worker takes the key itself along: only its hash stays. What is added meanwhile and has that hash waits for the
//! worker, too, as it may be the same key. So keys are neither copied nor counted when they are handed out, and the
//! price is small: of two keys with one hash of 32 bits, the second may wait for the end of the first.
//!
//! # Guarantees
//! - Any number of adds between two gets is one. (test: `adds_collapse`)
//! - An add while the key is processed makes one more pass, after that one. (test: `a_key_added_while_processing_comes_again`)
//! - A key is never with two workers. (test: `a_key_is_never_with_two_workers`)
//! - Order of first add is kept, or of priorities that age, if they are on. (test: `the_queue_agrees_with_a_naive_model`)
//! - A key that is added again has the highest of its priorities. (test: `the_highest_priority_counts`)
//! - A pass knows why: the reasons of all adds that it answers. (test: `adds_that_collapse_leave_all_their_reasons`)
//! - After a shutdown, what is queued is still handed out; what is added is not. (test: `shutdown_hands_out_the_rest`)
//! - A drain waits for what is queued and what is processed; another shutdown ends it. (test: `drain_waits_for_queued_and_processed`)
//! - It does so after any history, and takes nothing more. (test: `the_queue_agrees_with_a_naive_model`)
//! - A waiting get that is dropped loses no key. (test: `a_wakeup_that_comes_too_late_is_handed_on`)
//! - An add wakes one worker at most, and few are on their way at a time. (test: `an_add_wakes_one_worker`)
//! - Who was woken and leaves keys behind has the next one woken. (test: `who_finds_more_has_the_next_one_woken`)
//! - So no worker sleeps while a key waits. (test: `no_worker_sleeps_while_a_key_waits`)
//! - Metrics that panic cost no wake-up. (test: `metrics_that_panic_cost_no_wake_up`)
//! - Keys of one hash are handed out as others are. (test: `keys_of_one_hash_are_all_handed_out`)
//! - A key that is done leaves nothing. (test: `done_keys_leave_nothing`)
//! - The memory of a burst goes when nothing is in the queue any more, and no step pays for it before. (test: `a_burst_costs_nothing_later`)
//! - All that in whatever order threads take the lock. (test: `no_add_is_lost_and_no_key_has_two_workers`)
//!
//! # Differences from client-go
//! *Done* is the drop of [`Processing`], so that no path, return or panic, forgets it. The drain waits
//! for queued keys too; client-go's waits only for those in process, and controller-runtime's for none. Priorities and
//! reasons are ours; the order is that of [`levels`](super::levels), and cannot be replaced (`Touch`, `Push`, `Pop`).
//! There, each add signals one worker, however many have been signalled and are not there yet.
//!
//! # Locks and tasks
//! One lock, no task. Nobody is woken, no metric told and no key hashed or freed while it is held (but for keys of one
//! hash). A key is hashed once: when it is added.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::keyed::{Hasher, hash_of};
use super::levels::{Ageing, Levels};
use super::listing::Listed;
use super::metrics::{QueueMetrics, QueueState};
use super::reasons::Reasons;
use super::sync::{Mutex, MutexGuard};
use state::{Found, State, Why};

/// What can be queued: cheap to clone, compared by value. Keys of one hash wait for each other, so all that is compared
/// should be hashed.
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
    /// Priorities, and how fast what waits grows into higher ones; `None` for plain FIFO.
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
    /// The state's: keys are hashed before the lock is taken.
    hasher: Hasher,
    /// The state's, to be read without the lock.
    shutting_down: AtomicBool,
    /// Nothing is queued or processed any more, or nobody is to wait for that.
    idle: Notify,
    metrics: Option<Arc<dyn QueueMetrics>>,
    /// When it was made, if anybody looks at the time.
    started: Option<Instant>,
}

type Locked<'a, T> = MutexGuard<'a, State<T>>;

/// A key that a worker has: dropping it is *done*.
#[must_use = "dropping it at once means that the key is done"]
pub struct Processing<'a, T: Key> {
    key: T,
    number: u32,
    seat: u32,
    priority: i32,
    reasons: Reasons,
    /// Nanoseconds.
    waited: u64,
    queue: &'a Queue<T>,
}

/// Waits for a key; see [`Queue::get`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Get<'a, T: Key> {
    queue: &'a Queue<T>,
    /// The name under which it waits.
    waiter: Option<u64>,
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
        let hasher = Hasher::default();
        let state = State::new(Levels::new(options.ageing), hasher.clone());
        let needs_time = options.ageing.is_some() || options.metrics.is_some();
        let started = needs_time.then(Instant::now);
        let (state, shutting_down, idle) = (Mutex::new(state), AtomicBool::new(false), Notify::new());
        let inner = Inner { state, hasher, shutting_down, idle, metrics: options.metrics, started };
        Self { inner: Arc::new(inner) }
    }

    /// Marks `key` as needing a pass; ignored during a shutdown.
    pub fn add(&self, key: T) {
        self.add_with(key, 0, Reasons::default());
    }

    /// The same with a priority (0 is that of a plain add, higher is sooner) and reasons.
    #[inline]
    pub fn add_with(&self, key: T, priority: i32, reasons: impl Into<Reasons>) {
        let (hash, why) = (hash_of(&self.inner.hasher, &key), self.why(priority, reasons));
        let state = self.inner.state.lock();
        let found = state.find(hash, &key);
        self.put(state, found, || key, why);
    }

    /// The same for a key that somebody holds: it is cloned only where the queue does not have it yet.
    ///
    /// ```
    /// # use windlass::workqueue::{Queue, Reason};
    /// let (queue, key) = (Queue::new(), String::from("default/web"));
    /// queue.add_ref(&key, 0, Reason::Manual);
    /// assert_eq!(queue.len(), 1);
    /// ```
    #[inline]
    pub fn add_ref(&self, key: &T, priority: i32, reasons: impl Into<Reasons>) {
        let (hash, why) = (hash_of(&self.inner.hasher, key), self.why(priority, reasons));
        let state = self.inner.state.lock();
        let found = state.find(hash, key);
        self.put(state, found, || key.clone(), why);
    }

    #[inline]
    fn why(&self, priority: i32, reasons: impl Into<Reasons>) -> Why {
        Why { priority, reasons: reasons.into(), now: self.inner.now() }
    }

    #[inline]
    fn put(&self, mut state: Locked<'_, T>, found: Found, key: impl FnOnce() -> T, why: Why) {
        if state.shutting_down {
            // The key is freed when the lock is free.
            return drop(state);
        }
        let (is_new, waker, unused) = match found {
            Found::New(vacancy) => (true, state.push(vacancy, key(), why), None),
            Found::Queued(number) => {
                state.merge(number, why);
                (false, None, None)
            }
            Found::Processed { seat, hash } => {
                let unused = state.keep(seat, hash, key(), why);
                (unused.is_none(), None, unused)
            }
        };
        drop(state);
        drop(unused);
        waker.into_iter().for_each(Waker::wake);
        if let Some(metrics) = self.inner.metrics.as_ref().filter(|_| is_new) {
            metrics.added();
        }
    }

    /// The next key; `None` when the queue is shut down and empty. A get that waits is to be polled or dropped: one that
    /// is kept and forgotten may keep a wake-up to itself.
    ///
    /// # Cancel safety
    /// Safe: the key is taken in the last step or not at all, and a wake-up that comes too late is handed on.
    pub fn get(&self) -> Get<'_, T> {
        Get { queue: self, waiter: None }
    }

    /// The next key, if one is queued.
    #[inline]
    #[must_use]
    pub fn try_get(&self) -> Option<Processing<'_, T>> {
        let now = self.inner.now();
        let processing = self.inner.state.lock().get(self, now);
        if let (Some(metrics), Some(processing)) = (&self.inner.metrics, &processing) {
            metrics.got(processing.waited());
        }
        processing
    }

    /// How many keys are queued: without those that are processed, or added again meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.state.lock().len()
    }

    /// Whether none is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys workers have.
    #[must_use]
    pub fn processing(&self) -> usize {
        self.inner.state.lock().processing()
    }

    /// What there is in the queue now; times are zero in a queue that looks at no clock.
    #[must_use]
    pub fn state(&self) -> QueueState {
        let now = self.inner.now();
        self.inner.state.lock().describe(now)
    }

    /// The keys that will have a pass, in no order, and no more than `max` of them: the queue stands still while they are
    /// copied, and everybody who adds or gets waits.
    #[must_use]
    pub fn list(&self, max: usize) -> Vec<Listed<T>> {
        let now = self.inner.now();
        // Room is made before the lock is taken.
        let depth = self.inner.state.lock().depth();
        let mut listed = Vec::with_capacity(depth.min(max));
        self.inner.state.lock().list(now, max, &mut listed);
        listed
    }

    /// Takes no more keys; what is queued is still handed out, then every get ends. A drain that waits ends.
    pub fn shut_down(&self) {
        self.inner.state.lock().forced += 1;
        self.stop();
        self.inner.idle.notify_waiters();
    }

    /// Shuts down and waits until nothing is queued or processed, or until somebody calls
    /// [`shut_down`](Self::shut_down). Somebody must go on getting.
    ///
    /// # Cancel safety
    /// Safe: the queue stays shut down.
    pub async fn shut_down_with_drain(&self) {
        let forced = self.inner.state.lock().forced;
        self.stop();
        loop {
            let idle = self.inner.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            {
                let state = self.inner.state.lock();
                if state.is_idle() || state.forced != forced {
                    return;
                }
            }
            idle.await;
        }
    }

    /// Whether it takes no more keys.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.inner.shutting_down.load(Ordering::Acquire)
    }

    /// Every get that waits is to see that it is over.
    fn stop(&self) {
        let waiters = {
            let mut state = self.inner.state.lock();
            state.shutting_down = true;
            self.inner.shutting_down.store(true, Ordering::Release);
            state.waiters.all()
        };
        waiters.for_each(Waker::wake);
    }

    #[inline]
    fn done(&self, number: u32, seat: u32) {
        let now = self.inner.now();
        let mut wakers = Vec::new();
        let (worked, is_idle) = {
            let mut state = self.inner.state.lock();
            let worked = state.done(number, seat, now, &mut wakers);
            // Only a drain waits for that.
            (worked, state.shutting_down && state.is_idle())
        };
        wakers.into_iter().for_each(Waker::wake);
        if is_idle {
            self.inner.idle.notify_waiters();
        }
        if let Some(metrics) = &self.inner.metrics {
            metrics.done(Duration::from_nanos(worked));
        }
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

impl<T> Inner<T> {
    #[inline]
    fn now(&self) -> u64 {
        self.started.map_or(0, |started| u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

// === impl Get ===

impl<'a, T: Key> Future for Get<'a, T> {
    type Output = Option<Processing<'a, T>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let now = this.queue.inner.now();
        let mut state = this.queue.inner.state.lock();
        // The waker, if it was not woken, is freed when the lock is free.
        let waited = this.waiter.take().map(|waiter| state.waiters.arrive(waiter));
        if let Some(processing) = state.get(this.queue, now) {
            let next = if let Some(None) = waited { state.next_waiter() } else { None };
            drop(state);
            next.into_iter().for_each(Waker::wake);
            if let Some(metrics) = &this.queue.inner.metrics {
                metrics.got(processing.waited());
            }
            return Poll::Ready(Some(processing));
        }
        if state.shutting_down {
            drop(state);
            return Poll::Ready(None);
        }
        this.waiter = Some(state.waiters.wait(context.waker()));
        drop(state);
        Poll::Pending
    }
}

impl<T: Key> Drop for Get<'_, T> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter else { return };
        let mut state = self.queue.inner.state.lock();
        let unused = state.waiters.arrive(waiter);
        let was_woken = unused.is_none();
        #[cfg(all(test, feature = "shuttle"))]
        let was_woken = was_woken && !model::FORGETS_WAKEUPS.load(std::sync::atomic::Ordering::SeqCst);
        let next = if was_woken { state.next_waiter() } else { None };
        drop(state);
        drop(unused);
        next.into_iter().for_each(Waker::wake);
    }
}

impl<T: Key> fmt::Debug for Get<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get").field("waiter", &self.waiter).finish_non_exhaustive()
    }
}

// === impl Processing ===

impl<T: Key> Processing<'_, T> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &T {
        &self.key
    }

    /// Why: the reasons of all adds that this pass answers.
    #[must_use]
    pub fn reasons(&self) -> &Reasons {
        &self.reasons
    }

    /// The highest priority of those adds, but for one that came when the key had waited so long that it stood before
    /// that priority already.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// How long it has waited; zero in a queue that looks at no clock.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited)
    }
}

impl<T: Key> Drop for Processing<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.queue.done(self.number, self.seat);
    }
}

impl<T: Key> fmt::Debug for Processing<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Processing").field(&self.key).finish()
    }
}

mod seats;
mod state;
mod waiters;

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

#[cfg(all(test, feature = "shuttle"))]
mod model;
