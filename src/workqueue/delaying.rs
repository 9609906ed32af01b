//! A queue whose keys may become due later.
//!
//! Mirrors client-go `util/workqueue/delaying_queue.go` (`delayingType`).
//! Flow: event handlers, workers -> add_after -> **delaying** -> queue -> workers
//! Chapter 6 of `docs/book` builds this from nothing.
//!
//! # Guarantees
//! - A key is queued when it is due, not before. (test: `key_is_queued_when_due`)
//! - Many keys due at once are all queued, and other tasks run in between. (test: `keys_due_at_once_are_all_queued`)
//! - Of two delays of one key, the earlier wins. (test: `earlier_of_two_delays_wins`)
//! - A delay can be cancelled. (test: `cancelled_delay_queues_nothing`)
//! - A plain add does not affect a pending delay. (test: `plain_add_keeps_pending_delay`)
//! - A shutdown ends [`run`](DelayingQueue::run), which returns the number of discarded delays. (test: `shutdown_ends_the_loop_and_counts_delays`)
//! - A drain also ends `run`, and waits for queued and processing keys. (test: `a_drain_ends_the_loop_then_waits`)
//!
//! # Differences from client-go
//! [`add_after`](DelayingQueue::add_after) never blocks: delays go straight into the sorted map instead of through a
//! channel of 1000. There is no heartbeat, because no timer is lost. A delay can be cancelled. In controller-runtime's
//! queue a key is either queued or delayed, whichever is earlier; here, as in client-go's, an add keeps the delay.
//!
//! # Locks and tasks
//! One lock around the waiting keys, never held together with the queue's. The owner runs [`run`](DelayingQueue::run),
//! which sleeps until the first key is due and is woken when an earlier key is added.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::listing::Listed;
use super::metrics::{QueueMetrics, QueueState};
use super::queue::{Key, Processing, Queue, QueueOptions};
use super::reasons::{Reason, Reasons};
use super::sync::Mutex;
use super::waiting::Waiting;

/// About a century: longer delays are shortened to this, which the clock can represent.
const FAR_FUTURE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A [`Queue`] that also accepts delayed keys; see the module. Cheap to clone.
pub struct DelayingQueue<T: Key> {
    queue: Queue<T>,
    delays: Arc<Delays<T>>,
}

struct Delays<T> {
    waiting: Mutex<Waiting<T>>,
    /// Wakes [`DelayingQueue::run`]: the first due time changed, or the queue is shutting down.
    changed: Notify,
    metrics: Option<Arc<dyn QueueMetrics>>,
}

// === impl DelayingQueue ===

impl<T: Key> DelayingQueue<T> {
    /// Creates an empty FIFO queue. Delayed keys are queued only while [`run`](Self::run) runs.
    #[must_use]
    pub fn new() -> Self {
        Self::with(QueueOptions::default())
    }

    /// Creates an empty queue with these options.
    #[must_use]
    pub fn with(options: QueueOptions) -> Self {
        let delays =
            Delays { waiting: Mutex::default(), changed: Notify::new(), metrics: options.metrics.clone() };
        Self { queue: Queue::with(options), delays: Arc::new(delays) }
    }

    /// Marks `key` as needing a pass now.
    pub fn add(&self, key: T) {
        self.queue.add(key);
    }

    /// Marks `key` as needing a pass now, with a priority and reasons; see [`Queue::add_with`].
    pub fn add_with(&self, key: T, priority: i32, reasons: impl Into<Reasons>) {
        self.queue.add_with(key, priority, reasons);
    }

    /// Marks `key` as needing a pass after `delay`, or now if it is zero. Ignored during a shutdown.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.add_after_with(key, delay, 0, Reasons::default());
    }

    /// Marks `key` as needing a pass after `delay`, with a priority and reasons, by default [`Reason::Timer`]. Two
    /// delays of one key keep the higher priority and all reasons.
    pub fn add_after_with(&self, key: T, delay: Duration, priority: i32, reasons: impl Into<Reasons>) {
        if self.queue.is_shutting_down() {
            return;
        }
        if let Some(metrics) = &self.delays.metrics {
            metrics.retried();
        }
        let mut reasons = reasons.into();
        if reasons.is_empty() {
            reasons.add(Reason::Timer);
        }
        if delay.is_zero() {
            self.queue.add_with(key, priority, reasons);
            return;
        }
        let due = Instant::now() + delay.min(FAR_FUTURE);
        let is_first = self.delays.waiting.lock().insert(key, due, priority, reasons);
        if is_first {
            self.delays.changed.notify_one();
        }
    }

    /// Merges an add into the pending delay of a key: the higher priority and all reasons. Returns whether the key is
    /// delayed.
    pub fn merge_pending(&self, key: &T, priority: i32, reasons: impl Into<Reasons>) -> bool {
        self.delays.waiting.lock().merge_pending(key, priority, reasons.into())
    }

    /// Cancels a pending delay of `key`; a queued key stays queued. Returns the priority and the reasons of the delay,
    /// for a caller that queues the key in another way.
    pub fn cancel(&self, key: &T) -> Option<(i32, Reasons)> {
        self.delays.waiting.lock().remove(key)
    }

    /// Queues each key when it is due. After a shutdown, returns the number of discarded delays.
    ///
    /// # Cancel safety
    /// Safe: another call continues where this one stopped.
    pub async fn run(&self) -> usize {
        loop {
            let mut changed = pin!(self.delays.changed.notified());
            changed.as_mut().enable();
            if self.queue.is_shutting_down() {
                return self.waiting();
            }
            let now = Instant::now();
            let (due, next) = {
                let mut waiting = self.delays.waiting.lock();
                (waiting.take_due(now), waiting.next_due())
            };
            for (key, priority, reasons) in due {
                self.queue.add_with(key, priority, reasons);
            }
            match next {
                // More keys are due already.
                Some(next) if next <= now => tokio::task::yield_now().await,
                None => changed.await,
                Some(next) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = tokio::time::sleep_until(next) => {}
                },
            }
        }
    }

    /// Waits for the next key; see [`Queue::get`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn get(&self) -> Option<Processing<'_, T>> {
        self.queue.get().await
    }

    /// See [`Queue::take`].
    pub(super) async fn take(&self) -> Option<Processing<'_, T>> {
        self.queue.take().await
    }

    /// Delays a key that was taken, with its priority and reasons. That is neither a get nor a retry.
    pub(super) fn put_off(&self, taken: &Processing<'_, T>, delay: Duration) {
        if self.queue.is_shutting_down() {
            return;
        }
        let (key, reasons) = (taken.key().clone(), taken.reasons().clone());
        let due = Instant::now() + delay.min(FAR_FUTURE);
        if self.delays.waiting.lock().insert(key, due, taken.priority(), reasons) {
            self.delays.changed.notify_one();
        }
    }

    /// Returns the next key, if one is queued.
    #[must_use]
    pub fn try_get(&self) -> Option<Processing<'_, T>> {
        self.queue.try_get()
    }

    /// Returns the number of queued keys; see [`Queue::len`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no key is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether this key is being processed.
    #[must_use]
    pub fn is_processing(&self, key: &T) -> bool {
        self.queue.is_processing(key)
    }

    /// Returns the number of delayed keys.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.delays.waiting.lock().len()
    }

    /// Returns at most `max` keys with a pending pass: queued keys first, then delayed keys, otherwise in no particular
    /// order. A key that is both queued and delayed is listed twice, as may be a key that becomes due meanwhile. A key
    /// that is being moved from its delay into the queue is missing.
    #[must_use]
    pub fn list(&self, max: usize) -> Vec<Listed<T>> {
        let now = Instant::now();
        // Read before the queue, because keys move from the delays to the queue.
        let delayed: Vec<Listed<T>> = {
            let waiting = self.delays.waiting.lock();
            waiting.iter().take(max).map(|delayed| delayed.listed(now)).collect()
        };
        let mut all = self.queue.list(max);
        let room = max - all.len();
        all.extend(delayed.into_iter().take(room));
        all
    }

    /// Returns the pending passes of `key`, as [`list`](Self::list) shows them.
    #[must_use]
    pub fn look_up(&self, key: &T) -> Vec<Listed<T>> {
        let now = Instant::now();
        let delayed = self.delays.waiting.lock().get(key).map(|delayed| delayed.listed(now));
        self.queue.look_up(key).into_iter().chain(delayed).collect()
    }

    /// Returns a snapshot of the queue; see [`Queue::state`].
    #[must_use]
    pub fn state(&self) -> QueueState {
        self.queue.state()
    }

    /// Stops accepting keys and ends [`run`](Self::run); see [`Queue::shut_down`].
    pub fn shut_down(&self) {
        self.queue.shut_down();
        self.delays.changed.notify_one();
    }

    /// Returns whether the queue has stopped accepting keys.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.queue.is_shutting_down()
    }

    /// Shuts down and waits; see [`Queue::shut_down_with_drain`]. Pending delays are discarded.
    ///
    /// # Cancel safety
    /// Safe: the queue stays shut down.
    pub async fn shut_down_with_drain(&self) {
        // Shuts down first, so that `run` notices when it is woken.
        self.queue.stop(true);
        self.delays.changed.notify_one();
        self.queue.shut_down_with_drain().await;
    }
}

impl<T: Key> Default for DelayingQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Key> Clone for DelayingQueue<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), delays: self.delays.clone() }
    }
}

impl<T: Key> fmt::Debug for DelayingQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayingQueue")
            .field("len", &self.len())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const SECOND: Duration = Duration::from_secs(1);

    /// Runs the loop for `time`, then takes all queued keys.
    async fn after(queue: &DelayingQueue<&'static str>, time: Duration) -> Vec<&'static str> {
        tokio::select! {
            biased;
            _ = queue.run() => {}
            () = tokio::time::sleep(time) => {}
        }
        // Lets the loop queue the keys that are due at this very moment.
        let _ = queue.run().now_or_never();
        let mut keys = Vec::new();
        while let Some(Some(processing)) = queue.get().now_or_never() {
            keys.push(*processing.key());
        }
        keys
    }

    #[tokio::test(start_paused = true)]
    async fn keys_due_at_once_are_all_queued() {
        let queue = DelayingQueue::new();
        let crowd = 3 * super::super::waiting::AT_ONCE + 1;
        (0..crowd).for_each(|key| queue.add_after(key, Duration::from_secs(1)));
        let worker = async {
            for expected in 0..crowd {
                assert_eq!(queue.get().await.map(|processing| *processing.key()), Some(expected));
            }
        };
        tokio::select! { biased; _ = queue.run() => unreachable!("there is no shutdown"), () = worker => {} }
        assert_eq!(queue.waiting(), 0);
    }

    /// client-go: `TestSimpleQueue`, `TestAddTwoFireEarly`, `TestCopyShifting`
    #[tokio::test(start_paused = true)]
    async fn key_is_queued_when_due() {
        let queue = DelayingQueue::new();
        queue.add_after("third", 3 * SECOND);
        queue.add_after("first", SECOND);
        queue.add_after("second", 2 * SECOND);
        queue.add_after("now", Duration::ZERO);
        assert_eq!(after(&queue, SECOND - Duration::from_millis(1)).await, ["now"]);
        assert_eq!(after(&queue, Duration::from_millis(1)).await, ["first"]);
        assert_eq!(after(&queue, 2 * SECOND).await, ["second", "third"]);
        assert_eq!(queue.waiting(), 0);
    }

    /// client-go: `TestDeduping`
    #[tokio::test(start_paused = true)]
    async fn earlier_of_two_delays_wins() {
        let queue = DelayingQueue::new();
        queue.add_after("a", SECOND);
        queue.add_after("a", 5 * SECOND);
        queue.add_after("b", 5 * SECOND);
        queue.add_after("b", SECOND);
        assert_eq!(queue.waiting(), 2);
        assert_eq!(after(&queue, SECOND).await, ["a", "b"]);
        assert_eq!(after(&queue, 10 * SECOND).await, Vec::<&str>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn plain_add_keeps_pending_delay() {
        let queue = DelayingQueue::new();
        queue.add_after("a", SECOND);
        queue.add("a");
        assert_eq!(after(&queue, Duration::ZERO).await, ["a"]);
        assert_eq!(after(&queue, SECOND).await, ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_key_wakes_the_loop() {
        let queue = DelayingQueue::new();
        queue.add_after("late", 60 * SECOND);
        let mut running = Box::pin(queue.run());
        assert!(running.as_mut().now_or_never().is_none());
        queue.add_after("soon", SECOND);
        tokio::select! {
            biased;
            _ = &mut running => {}
            () = tokio::time::sleep(2 * SECOND) => {}
        }
        assert_eq!(queue.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_delay_queues_nothing() {
        let queue = DelayingQueue::new();
        queue.add_after("a", SECOND);
        queue.add_after("b", SECOND);
        queue.cancel(&"a");
        queue.add_after("b", SECOND);
        assert_eq!(after(&queue, 2 * SECOND).await, ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn delay_beyond_the_clock_is_clamped() {
        let queue = DelayingQueue::new();
        queue.add_after("a", Duration::MAX);
        assert_eq!(queue.waiting(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_ends_the_loop_and_counts_delays() {
        let queue = DelayingQueue::new();
        queue.add_after("a", SECOND);
        let mut running = Box::pin(queue.run());
        assert!(running.as_mut().now_or_never().is_none());
        queue.shut_down();
        queue.add_after("b", SECOND);
        assert_eq!(running.await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_the_loop_then_waits() {
        let queue = DelayingQueue::new();
        queue.add_after("later", SECOND);
        queue.add("processed");
        queue.add("queued");
        let processed = queue.try_get().unwrap();
        let mut running = Box::pin(queue.run());
        assert!(running.as_mut().now_or_never().is_none());
        let mut drain = Box::pin(queue.shut_down_with_drain());
        assert!(drain.as_mut().now_or_never().is_none());
        assert_eq!(running.as_mut().now_or_never(), Some(1), "the delay is discarded");
        queue.add("new");
        queue.add_after("new", SECOND);
        drop(processed);
        assert!(drain.as_mut().now_or_never().is_none(), "one key is queued");
        let queued = queue.try_get().unwrap();
        assert!(drain.as_mut().now_or_never().is_none(), "one key is processing");
        drop(queued);
        assert!(drain.as_mut().now_or_never().is_some(), "a drain does not wait for delays");
        assert_eq!((queue.len(), queue.waiting()), (0, 1));
    }
}
