//! Keys that become due later.
//!
//! Mirrors client-go `util/workqueue/delaying_queue.go` (`delayingType`).
//! Flow: event handlers, workers -> add_after -> **delaying** -> queue -> workers
//!
//! # Guarantees
//! - A key is queued when it is due, not before. (test: `a_key_comes_when_it_is_due`)
//! - A crowd that is due at once comes whole, and lets others run in between. (test: `a_crowd_due_at_once_comes_whole`)
//! - Of two delays of one key the earlier counts. (test: `the_earlier_delay_counts`)
//! - A delay can be taken back. (test: `a_cancelled_delay_does_not_pass`)
//! - A plain add leaves a pending delay alone. (test: `an_add_leaves_the_delay`)
//! - A shutdown ends [`run`](DelayingQueue::run), which returns how many delays it forgets. (test: `shutdown_ends_the_loop_and_counts_delays`)
//! - A drain ends it too, and waits for queued and processing keys. (test: `a_drain_ends_the_loop_then_waits`)
//!
//! # Differences from client-go
//! [`add_after`](DelayingQueue::add_after) never blocks: delays go straight into the sorted map instead of through a
//! channel of 1000. There is no heartbeat, because no timer is lost. A delay can be taken back. In controller-runtime's
//! queue a key is either queued or delayed, and the earlier counts; here, as in client-go's, an add leaves the delay.
//!
//! # Locks and tasks
//! One lock around the waiting keys, never held together with the queue's. The owner runs [`run`](DelayingQueue::run),
//! which sleeps until the first key is due and is woken when an earlier one comes.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::listing::{Listed, Stage};
use super::metrics::{QueueMetrics, QueueState};
use super::queue::{Key, Processing, Queue, QueueOptions};
use super::reasons::{Reason, Reasons};
use super::sync::Mutex;
use super::waiting::Waiting;

/// About a century: a longer delay counts as this one, which the clock can hold.
const FAR_FUTURE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A [`Queue`] that also takes keys for later; see the module. Cheap to clone.
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
    /// An empty queue, first in, first out. Delays pass only while [`run`](Self::run) runs.
    #[must_use]
    pub fn new() -> Self {
        Self::with(QueueOptions::default())
    }

    /// An empty queue with these options.
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

    /// Marks `key` as needing a pass after `delay`; at once when it is zero. Ignored during a shutdown.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.add_after_with(key, delay, 0, Reasons::default());
    }

    /// Marks `key` as needing a pass after `delay`, with a priority and reasons. No reasons stand for
    /// [`Reason::Timer`]. Of two delays, the higher priority and all reasons count.
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

    /// Gives a key that waits for its time more reasons, and the priority if that is higher. Returns whether the key
    /// waits.
    pub fn note(&self, key: &T, priority: i32, reasons: impl Into<Reasons>) -> bool {
        self.delays.waiting.lock().note(key, priority, reasons.into())
    }

    /// Takes back a delay of `key` that has not passed; a queued key stays queued. Returns the priority and the reasons
    /// of the delay, for a caller that queues the key in another way.
    pub fn cancel(&self, key: &T) -> Option<(i32, Reasons)> {
        self.delays.waiting.lock().remove(key)
    }

    /// Queues each key when it is due. Ends with the shutdown and returns how many delays it forgets.
    ///
    /// # Cancel safety
    /// Safe: another call goes on where this one stopped.
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

    /// The next key, if one is queued.
    #[must_use]
    pub fn try_get(&self) -> Option<Processing<'_, T>> {
        self.queue.try_get()
    }

    /// How many keys are queued; see [`Queue::len`].
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
        self.delays.waiting.lock().len()
    }

    /// The keys that will have a pass, in no order, at most `max`: queued keys precede waiting ones. A key that is
    /// queued and also waits for its time is listed twice, and so may be a key that becomes due meanwhile. A key on its
    /// way from its delay into the queue is missing.
    #[must_use]
    pub fn list(&self, max: usize) -> Vec<Listed<T>> {
        let now = Instant::now();
        // Before the queue, because keys go from here to there.
        let delayed: Vec<Listed<T>> = {
            let waiting = self.delays.waiting.lock();
            let listed = waiting.iter().map(|(key, due, priority, reasons)| {
                let stage = Stage::Delayed { left: due.saturating_duration_since(now) };
                Listed { key: key.clone(), stage, priority, reasons: reasons.clone() }
            });
            listed.take(max).collect()
        };
        let mut all = self.queue.list(max);
        let room = max - all.len();
        all.extend(delayed.into_iter().take(room));
        all
    }

    /// What is in the queue now; see [`Queue::state`].
    #[must_use]
    pub fn state(&self) -> QueueState {
        self.queue.state()
    }

    /// Takes no more keys and ends [`run`](Self::run); see [`Queue::shut_down`].
    pub fn shut_down(&self) {
        self.queue.shut_down();
        self.delays.changed.notify_one();
    }

    /// Whether the queue takes no more keys.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.queue.is_shutting_down()
    }

    /// Shuts down and waits; see [`Queue::shut_down_with_drain`]. Pending delays are forgotten.
    ///
    /// # Cancel safety
    /// Safe: the queue stays shut down.
    pub async fn shut_down_with_drain(&self) {
        // First the shutdown, so that `run` sees it when it is woken.
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

    /// Runs the loop for so long, then takes all that is queued.
    async fn after(queue: &DelayingQueue<&'static str>, time: Duration) -> Vec<&'static str> {
        tokio::select! {
            biased;
            _ = queue.run() => {}
            () = tokio::time::sleep(time) => {}
        }
        // What falls due at this very moment is the loop's to see.
        let _ = queue.run().now_or_never();
        let mut keys = Vec::new();
        while let Some(Some(processing)) = queue.get().now_or_never() {
            keys.push(*processing.key());
        }
        keys
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_due_at_once_comes_whole() {
        let queue = DelayingQueue::new();
        let crowd = 3 * super::super::waiting::AT_ONCE + 1;
        (0..crowd).for_each(|key| queue.add_after(key, Duration::from_secs(1)));
        let worker = async {
            for expected in 0..crowd {
                assert_eq!(queue.get().await.map(|processing| *processing.key()), Some(expected));
            }
        };
        tokio::select! { biased; _ = queue.run() => unreachable!("nobody shuts it down"), () = worker => {} }
        assert_eq!(queue.waiting(), 0);
    }

    /// client-go: `TestSimpleQueue`, `TestAddTwoFireEarly`, `TestCopyShifting`
    #[tokio::test(start_paused = true)]
    async fn a_key_comes_when_it_is_due() {
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
    async fn the_earlier_delay_counts() {
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
    async fn an_add_leaves_the_delay() {
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
    async fn a_cancelled_delay_does_not_pass() {
        let queue = DelayingQueue::new();
        queue.add_after("a", SECOND);
        queue.add_after("b", SECOND);
        queue.cancel(&"a");
        queue.add_after("b", SECOND);
        assert_eq!(after(&queue, 2 * SECOND).await, ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_beyond_the_clock_is_only_long() {
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
        assert_eq!(running.as_mut().now_or_never(), Some(1), "the delay is forgotten");
        queue.add("new");
        queue.add_after("new", SECOND);
        drop(processed);
        assert!(drain.as_mut().now_or_never().is_none(), "one is queued");
        let queued = queue.try_get().unwrap();
        assert!(drain.as_mut().now_or_never().is_none(), "it is processed");
        drop(queued);
        assert!(drain.as_mut().now_or_never().is_some(), "the delay is not waited for");
        assert_eq!((queue.len(), queue.waiting()), (0, 1));
    }
}
