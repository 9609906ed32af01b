//! Keys that become due later.
//!
//! Mirrors client-go `util/workqueue/delaying_queue.go` (`delayingType`).
//! Flow: handlers, workers -> **delaying** -> queue -> workers
//!
//! # Guarantees
//! - A key is queued when it is due, not before. (test: `a_key_comes_when_it_is_due`)
//! - Of two delays of one key the earlier counts. (test: `the_earlier_delay_counts`)
//! - A delay can be taken back. (test: `a_cancelled_delay_does_not_pass`)
//! - A plain add does not cancel a pending delay. (test: `an_add_leaves_the_delay`)
//! - Nothing ever blocks in [`add_after`](DelayingQueue::add_after). (it is no async function)
//! - A shutdown ends [`run`](DelayingQueue::run), and says how many delays it forgets. (test: `shutdown_ends_the_loop_and_counts_what_it_forgets`)
//!
//! # Differences from client-go
//! Adds go straight into the heap instead of through a channel of 1000 that can block.
//!
//! # Locks and tasks
//! One lock around heap and map; the owner runs [`run`](DelayingQueue::run), which sleeps until the
//! first key is due and is woken when an earlier one comes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::queue::{Key, Processing, Queue};

/// A century, more or less.
const FAR_FUTURE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A [`Queue`] that also takes keys for later; see the module. Cheap to clone.
pub struct DelayingQueue<T: Key> {
    queue: Queue<T>,
    waiting: Arc<Waiting<T>>,
}

struct Waiting<T> {
    state: Mutex<State<T>>,
    /// The first due time changed, or the queue is shutting down.
    changed: Notify,
}

struct State<T> {
    /// By due time; an entry whose time is not that of `due` is a leftover.
    heap: BinaryHeap<Reverse<Entry<T>>>,
    due: HashMap<T, Instant, foldhash::fast::RandomState>,
    /// Orders keys that are due at the same time by their arrival.
    arrivals: u64,
}

struct Entry<T> {
    due: Instant,
    arrival: u64,
    key: T,
}

// === impl DelayingQueue ===

impl<T: Key> DelayingQueue<T> {
    /// An empty queue; delays pass only while [`run`](Self::run) runs.
    #[must_use]
    pub fn new() -> Self {
        let state = State { heap: BinaryHeap::new(), due: HashMap::default(), arrivals: 0 };
        let waiting = Waiting { state: Mutex::new(state), changed: Notify::new() };
        Self { queue: Queue::new(), waiting: Arc::new(waiting) }
    }

    /// Marks `key` as needing a pass now.
    pub fn add(&self, key: T) {
        self.queue.add(key);
    }

    /// Marks `key` as needing a pass after `delay`; at once when it is zero, never during a shutdown.
    pub fn add_after(&self, key: T, delay: Duration) {
        if self.queue.is_shutting_down() {
            return;
        }
        if delay.is_zero() {
            self.queue.add(key);
            return;
        }
        let now = Instant::now();
        // A delay beyond what the clock can hold is as good as this one.
        let due = now.checked_add(delay).unwrap_or(now + FAR_FUTURE);
        let is_first = self.waiting.state.lock().insert(key, due);
        if is_first {
            self.waiting.changed.notify_one();
        }
    }

    /// Takes back a delay of `key` that has not passed; what is queued stays.
    pub fn cancel(&self, key: &T) {
        // The heap's entry is a leftover from now on.
        self.waiting.state.lock().due.remove(key);
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
                return self.waiting.state.lock().due.len();
            }
            let (due, next) = self.waiting.state.lock().take_due(Instant::now());
            for key in due {
                self.queue.add(key);
            }
            match next {
                None => changed.await,
                Some(next) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = tokio::time::sleep_until(next) => {}
                },
            }
        }
    }

    /// The next key; see [`Queue::get`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn get(&self) -> Option<Processing<T>> {
        self.queue.get().await
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
        self.waiting.state.lock().due.len()
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
        self.shut_down();
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

// === impl State ===

impl<T: Key> State<T> {
    /// Whether the first due time changed.
    fn insert(&mut self, key: T, due: Instant) -> bool {
        if self.due.get(&key).is_some_and(|&known| known <= due) {
            return false;
        }
        let is_first = self.heap.peek().is_none_or(|Reverse(first)| due < first.due);
        self.due.insert(key.clone(), due);
        self.heap.push(Reverse(Entry { due, arrival: self.arrivals, key }));
        self.arrivals += 1;
        is_first
    }

    /// The keys that are due, and when the next one will be.
    fn take_due(&mut self, now: Instant) -> (Vec<T>, Option<Instant>) {
        let mut due = Vec::new();
        while let Some(Reverse(first)) = self.heap.peek() {
            let is_leftover = self.due.get(&first.key) != Some(&first.due);
            if !is_leftover && first.due > now {
                return (due, Some(first.due));
            }
            if let Some(Reverse(entry)) = self.heap.pop()
                && !is_leftover
            {
                self.due.remove(&entry.key);
                due.push(entry.key);
            }
        }
        (due, None)
    }
}

impl<T> Entry<T> {
    fn order(&self) -> (Instant, u64) {
        (self.due, self.arrival)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
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
}
