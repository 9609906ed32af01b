//! A FIFO of keys with a dirty and a processing set: fair, deduplicating, one worker a key.
//!
//! Mirrors client-go `util/workqueue/queue.go` (`Type`).
//! Flow: handlers -> **queue** -> workers -> sync handler
//!
//! # How it works
//! A key that is added is *dirty*. If nobody works on it, it is also queued. A worker that gets it makes
//! it clean and *processing*; an add meanwhile makes it dirty again and waits for the worker, whose
//! done queues it once more. So every queued key is dirty and not processing.
//!
//! # Guarantees
//! - Any number of adds between two gets is one. (test: `adds_collapse`)
//! - An add while the key is processed makes one more pass, after that one. (test: `a_key_added_while_processing_comes_again`)
//! - A key is never with two workers. (test: `a_key_is_never_with_two_workers`)
//! - Order of first add is kept. (test: `the_queue_agrees_with_a_naive_model`)
//! - After a shutdown, what is queued is still handed out; what is added is not. (test: `shutdown_hands_out_the_rest`)
//! - A drain waits for what is queued and what is processed. (test: `drain_waits_for_queued_and_processed`)
//! - A waiting get that is dropped loses no key. (test: `a_dropped_get_loses_no_key`)
//!
//! # Differences from client-go
//! *Done* is the drop of [`Processing`], so that no path, return or panic, forgets it. The drain waits
//! for queued keys too; client-go's waits only for those in process.
//!
//! # Locks and tasks
//! One lock, no task. Each add wakes one getter, and a getter that leaves keys behind wakes the next.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What can be queued: cheap to clone, compared by value.
pub trait Key: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> Key for T {}

/// The queue; see the module. Cheap to clone: all clones are the same queue.
pub struct Queue<T: Key> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    state: Mutex<State<T>>,
    /// A key was queued, or the queue is shutting down.
    changed: Notify,
    /// Nothing is queued or processed any more.
    idle: Notify,
}

struct State<T> {
    /// What to hand out, in order. Every key here is in `dirty` and not in `processing`.
    queue: VecDeque<T>,
    /// What needs a pass.
    dirty: HashSet<T, foldhash::fast::RandomState>,
    /// What a worker has.
    processing: HashSet<T, foldhash::fast::RandomState>,
    shutting_down: bool,
}

/// A key that a worker has: dropping it is *done*.
#[must_use = "dropping it at once means that the key is done"]
pub struct Processing<T: Key> {
    key: T,
    queue: Queue<T>,
}

// === impl Queue ===

impl<T: Key> Queue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            queue: VecDeque::new(),
            dirty: HashSet::default(),
            processing: HashSet::default(),
            shutting_down: false,
        };
        let inner = Inner { state: Mutex::new(state), changed: Notify::new(), idle: Notify::new() };
        Self { inner: Arc::new(inner) }
    }

    /// Marks `key` as needing a pass; ignored during a shutdown.
    pub fn add(&self, key: T) {
        let queued = self.inner.state.lock().add(key);
        if queued {
            self.inner.changed.notify_one();
        }
    }

    /// The next key; `None` when the queue is shut down and empty.
    ///
    /// # Cancel safety
    /// Safe: the key is taken in the last step or not at all.
    pub async fn get(&self) -> Option<Processing<T>> {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (key, more, ended) = {
                let mut state = self.inner.state.lock();
                let key = state.get();
                (key, !state.queue.is_empty(), state.shutting_down)
            };
            if more || ended {
                self.inner.changed.notify_one();
            }
            match key {
                Some(key) => return Some(Processing { key, queue: self.clone() }),
                None if ended => return None,
                None => changed.await,
            }
        }
    }

    /// How many keys are queued: without those that are processed, or added again meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.state.lock().queue.len()
    }

    /// Whether none is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys workers have.
    #[must_use]
    pub fn processing(&self) -> usize {
        self.inner.state.lock().processing.len()
    }

    /// Takes no more keys; what is queued is still handed out, then every get ends.
    pub fn shut_down(&self) {
        self.inner.state.lock().shutting_down = true;
        self.inner.changed.notify_one();
    }

    /// Shuts down and waits until nothing is queued or processed. Somebody must go on getting.
    ///
    /// # Cancel safety
    /// Safe: the queue stays shut down.
    pub async fn shut_down_with_drain(&self) {
        self.shut_down();
        loop {
            let idle = self.inner.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.inner.state.lock().is_idle() {
                return;
            }
            idle.await;
        }
    }

    /// Whether it takes no more keys.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.inner.state.lock().shutting_down
    }

    fn done(&self, key: &T) {
        let (queued, idle) = {
            let mut state = self.inner.state.lock();
            (state.done(key), state.is_idle())
        };
        if queued {
            self.inner.changed.notify_one();
        }
        if idle {
            self.inner.idle.notify_waiters();
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

// === impl State ===

impl<T: Key> State<T> {
    /// Whether the key was queued.
    fn add(&mut self, key: T) -> bool {
        if self.shutting_down || !self.dirty.insert(key.clone()) || self.processing.contains(&key) {
            return false;
        }
        self.queue.push_back(key);
        true
    }

    fn get(&mut self) -> Option<T> {
        let key = self.queue.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key.clone());
        Some(key)
    }

    /// Whether the key was queued again.
    fn done(&mut self, key: &T) -> bool {
        self.processing.remove(key);
        let again = self.dirty.contains(key);
        if again {
            self.queue.push_back(key.clone());
        }
        again
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.processing.is_empty()
    }
}

// === impl Processing ===

impl<T: Key> Processing<T> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &T {
        &self.key
    }
}

impl<T: Key> Drop for Processing<T> {
    fn drop(&mut self) {
        self.queue.done(&self.key);
    }
}

impl<T: Key> fmt::Debug for Processing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Processing").field(&self.key).finish()
    }
}

#[cfg(test)]
mod tests;
