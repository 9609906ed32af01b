//! Keys that become due later.
//!
//! Mirrors client-go `util/workqueue/delaying_queue.go` (`delayingType`).
//! Flow: handlers, workers -> **delaying** -> queue -> workers
//!
//! # Guarantees
//! - A key is queued when it is due, not before. (test: `a_key_comes_when_it_is_due`)
//! - A crowd that is due at once holds up nobody for long, and comes whole. (test: `a_crowd_that_is_due_at_once_comes_whole`)
//! - Of two delays of one key the earlier counts. (test: `the_earlier_delay_counts`)
//! - A delay can be taken back. (test: `a_cancelled_delay_does_not_pass`)
//! - A plain add does not cancel a pending delay. (test: `an_add_leaves_the_delay`)
//! - Nothing ever blocks in [`add_after`](DelayingQueue::add_after). (it is no async function)
//! - A shutdown ends [`run`](DelayingQueue::run), and says how many delays it forgets. (test: `shutdown_ends_the_loop_and_counts_what_it_forgets`)
//! - So does a drain, which then waits for what is queued and processed. (test: `a_drain_ends_the_loop_and_waits_for_the_rest`)
//!
//! # Differences from client-go
//! Adds go straight into the heap instead of through a channel of 1000 that can block; there is no heartbeat, as no timer
//! is lost. A delay can be taken back, and leaves nothing behind. In controller-runtime's queue a key is either queued or
//! delayed, and the earlier counts; here, as in client-go's, an add leaves the delay.
//!
//! # Locks and tasks
//! One lock around the timetable; the owner runs [`run`](DelayingQueue::run), which sleeps until the
//! first key is due and is woken when an earlier one comes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::listing::{Listed, Stage};
use super::metrics::{QueueMetrics, QueueState};
use super::queue::{Get, Key, Processing, Queue, QueueOptions};
use super::reasons::{Reason, Reasons};
use super::sync::Mutex;
use super::timetable::Timetable;

/// A century, more or less: a delay beyond what the clock can hold is as good as this one.
const FAR_FUTURE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A [`Queue`] that also takes keys for later; see the module. Cheap to clone.
pub struct DelayingQueue<T: Key> {
    queue: Queue<T>,
    waiting: Arc<Waiting<T>>,
}

struct Waiting<T> {
    /// Due times are nanoseconds since `started`.
    timetable: Mutex<Timetable<T>>,
    started: Instant,
    metrics: Option<Arc<dyn QueueMetrics>>,
    /// The first due time changed, or the queue is shutting down.
    changed: Notify,
}

// === impl DelayingQueue ===

impl<T: Key> DelayingQueue<T> {
    /// An empty queue, first in, first out; delays pass only while [`run`](Self::run) runs.
    #[must_use]
    pub fn new() -> Self {
        Self::with(QueueOptions::default())
    }

    /// An empty queue with these options.
    #[must_use]
    pub fn with(options: QueueOptions) -> Self {
        let waiting = Waiting {
            timetable: Mutex::new(Timetable::default()),
            started: Instant::now(),
            metrics: options.metrics.clone(),
            changed: Notify::new(),
        };
        Self { queue: Queue::with(options), waiting: Arc::new(waiting) }
    }

    /// Marks `key` as needing a pass now.
    pub fn add(&self, key: T) {
        self.queue.add(key);
    }

    /// The same with a priority and reasons; see [`Queue::add_with`].
    #[inline]
    pub fn add_with(&self, key: T, priority: i32, reasons: impl Into<Reasons>) {
        self.queue.add_with(key, priority, reasons);
    }

    /// Marks `key` as needing a pass after `delay`; at once when it is zero, never during a shutdown.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.add_after_with(key, delay, 0, Reasons::default());
    }

    /// The same with a priority and reasons; none stands for [`Reason::Timer`]. Of two adds the higher priority
    /// and all reasons count.
    #[inline]
    pub fn add_after_with(&self, key: T, delay: Duration, priority: i32, reasons: impl Into<Reasons>) {
        if self.queue.is_shutting_down() {
            return;
        }
        if let Some(metrics) = &self.waiting.metrics {
            metrics.retried();
        }
        let reasons = reasons.into();
        if delay.is_zero() {
            let reasons = if reasons.is_empty() { Reason::Timer.into() } else { reasons };
            self.queue.add_with(key, priority, reasons);
            return;
        }
        let due = self.waiting.now().saturating_add(nanoseconds(delay.min(FAR_FUTURE)));
        let is_first = self.waiting.timetable.lock().insert(key, due, priority, reasons);
        if is_first {
            self.waiting.changed.notify_one();
        }
    }

    /// Gives a key that waits one more reason; its time stays. Whether it waits.
    pub fn note(&self, key: &T, priority: i32, reasons: impl Into<Reasons>) -> bool {
        self.waiting.timetable.lock().note(key, priority, reasons.into())
    }

    /// Takes back a delay of `key` that has not passed; what is queued stays. Returns the priority and the
    /// reasons that it had, so that whoever queues the key in another way can keep them.
    pub fn cancel(&self, key: &T) -> Option<(i32, Reasons)> {
        self.waiting.timetable.lock().remove(key)
    }

    /// Queues each key when it is due; ends with the shutdown and returns how many delays it forgets.
    ///
    /// # Cancel safety
    /// Safe: another call goes on where this one stopped.
    pub async fn run(&self) -> usize {
        loop {
            let changed = self.waiting.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.queue.is_shutting_down() {
                return self.waiting.timetable.lock().len();
            }
            let now = self.waiting.now();
            let (due, next) = {
                let mut timetable = self.waiting.timetable.lock();
                (timetable.take_due(now), timetable.next_due())
            };
            for (key, priority, reasons) in due {
                self.queue.add_with(key, priority, reasons);
            }
            match next {
                // There is more of what is due.
                Some(next) if next <= now => tokio::task::yield_now().await,
                None => changed.await,
                Some(next) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = tokio::time::sleep_until(self.waiting.started + Duration::from_nanos(next)) => {}
                },
            }
        }
    }

    /// The next key; see [`Queue::get`].
    ///
    /// # Cancel safety
    /// Safe.
    pub fn get(&self) -> Get<'_, T> {
        self.queue.get()
    }

    /// The next key, if one is queued; see [`Queue::try_get`].
    #[must_use]
    pub fn try_get(&self) -> Option<Processing<'_, T>> {
        self.queue.try_get()
    }

    /// How many keys are queued; see [`Queue::len`].
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
        self.waiting.timetable.lock().len()
    }

    /// The keys that will have a pass, in no order, and no more than `max` of them: if there are more, those that wait for
    /// their time are left out first. A key that is queued, and will come after a delay as well, is there twice; so may one
    /// be that falls due meanwhile. One that is just on its way from its delay into the queue is missing.
    #[must_use]
    pub fn list(&self, max: usize) -> Vec<Listed<T>> {
        let mut delayed = Vec::with_capacity(self.waiting().min(max));
        let now = self.waiting.now();
        // Before the queue: keys go from here to there.
        delayed.extend(self.waiting.timetable.lock().iter().take(max).map(
            |(key, due, priority, reasons)| {
                let left = Duration::from_nanos(due.saturating_sub(now));
                Listed { key: key.clone(), stage: Stage::Delayed { left }, priority, reasons }
            },
        ));
        let mut all = self.queue.list(max);
        delayed.truncate(max - all.len());
        all.append(&mut delayed);
        all
    }

    /// What there is in the queue; see [`Queue::state`].
    #[must_use]
    pub fn state(&self) -> QueueState {
        self.queue.state()
    }

    /// Takes no more keys and ends [`run`](Self::run); see [`Queue::shut_down`].
    pub fn shut_down(&self) {
        self.queue.shut_down();
        self.waiting.changed.notify_one();
    }

    /// Whether it takes no more keys.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.queue.is_shutting_down()
    }

    /// Shuts down and waits; see [`Queue::shut_down_with_drain`]. Pending delays are forgotten.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn shut_down_with_drain(&self) {
        // The loop ends as soon as it sees the shutdown, which the drain's first poll begins.
        let drain = self.queue.shut_down_with_drain();
        tokio::pin!(drain);
        let first = futures_util::poll!(drain.as_mut());
        self.waiting.changed.notify_one();
        if first.is_pending() {
            drain.await;
        }
    }
}

impl<T: Key> Default for DelayingQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Key> Clone for DelayingQueue<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), waiting: self.waiting.clone() }
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

impl<T> Waiting<T> {
    fn now(&self) -> u64 {
        nanoseconds(self.started.elapsed())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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

    /// A crowd that is due at once comes whole, though not in one step.
    #[tokio::test(start_paused = true)]
    async fn a_crowd_that_is_due_at_once_comes_whole() {
        let queue = DelayingQueue::new();
        let crowd = 3 * super::super::timetable::AT_ONCE + 1;
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
    async fn shutdown_ends_the_loop_and_counts_what_it_forgets() {
        let queue = DelayingQueue::new();
        queue.add_after("a", SECOND);
        let mut running = Box::pin(queue.run());
        assert!(running.as_mut().now_or_never().is_none());
        queue.shut_down();
        queue.add_after("b", SECOND);
        assert_eq!(running.await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_the_loop_and_waits_for_the_rest() {
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
