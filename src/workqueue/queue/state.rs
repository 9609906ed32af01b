//! The state of a queue, behind its lock: which keys are queued, dirty and processing.
//!
//! Nothing here waits, wakes or reads the clock: callers pass the time since the queue was created.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use foldhash::fast::RandomState;

use super::super::listing::{Listed, Stage};
use super::super::metrics::QueueState;
use super::super::order::{Ageing, Order, Rank};
use super::super::reasons::Reasons;
use super::super::room::KEPT;
use super::Key;

/// See the module. Every queued key is dirty and not processing.
#[derive(Debug)]
pub(super) struct KeySets<T> {
    /// The keys to hand out.
    queue: Order<T>,
    /// The keys that need a pass.
    dirty: HashMap<T, Dirty, RandomState>,
    /// The keys that are being processed, and since when.
    processing: HashMap<T, Duration, RandomState>,
    pub(super) shutting_down: bool,
    /// Whether a drain waits; a later shutdown ends it.
    pub(super) drain: bool,
}

/// A pending pass of a key: the merged adds since its last get.
#[derive(Debug)]
pub(super) struct Dirty {
    /// Time of the first of these adds.
    pub(super) added: Duration,
    pub(super) priority: i32,
    pub(super) reasons: Reasons,
    /// The key's position in the order while it is queued.
    rank: Rank,
}

/// The result of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The key is queued: a worker is needed.
    Queued,
    /// The key is dirty, and will be queued when its worker is done.
    Deferred,
    /// The key was already dirty.
    Merged,
    /// The queue is shutting down.
    Ignored,
}

// === impl KeySets ===

impl<T: Key> KeySets<T> {
    pub(super) fn new(ageing: Option<Ageing>) -> Self {
        Self {
            queue: Order::new(ageing),
            dirty: HashMap::default(),
            processing: HashMap::default(),
            shutting_down: false,
            drain: false,
        }
    }

    /// Marks a key dirty, and queues it unless a worker has it. The key is cloned only if it was clean.
    pub(super) fn add(&mut self, key: Cow<'_, T>, priority: i32, reasons: Reasons, now: Duration) -> Added {
        if self.shutting_down {
            return Added::Ignored;
        }
        let is_processing = self.processing.contains_key(&*key);
        if let Some(dirty) = self.dirty.get_mut(&*key) {
            dirty.priority = dirty.priority.max(priority);
            dirty.reasons.merge(reasons);
            if !is_processing {
                dirty.rank = self.queue.touch(dirty.rank, priority, now);
            }
            return Added::Merged;
        }
        let key = key.into_owned();
        let rank = if is_processing { Rank::default() } else { self.queue.push(key.clone(), priority, now) };
        self.dirty.insert(key, Dirty { added: now, priority, reasons, rank });
        if is_processing { Added::Deferred } else { Added::Queued }
    }

    /// Hands out the first key and marks it processing and clean, so that a later add is noticed.
    pub(super) fn get(&mut self, now: Duration) -> Option<(T, Dirty)> {
        let key = self.queue.pop()?;
        let (own, dirty) = self.dirty.remove_entry(&key).expect("a queued key is dirty");
        self.processing.insert(own, now);
        Some((key, dirty))
    }

    /// Ends a pass, and queues the key again if it is dirty. Returns how long the pass took, and whether the key is
    /// queued.
    pub(super) fn done(&mut self, key: &T, now: Duration) -> (Duration, bool) {
        let since = self.processing.remove(key).expect("a worker has the key");
        let is_queued = if let Some(dirty) = self.dirty.get_mut(key) {
            dirty.rank = self.queue.push(key.clone(), dirty.priority, now);
            true
        } else {
            false
        };
        if self.is_idle() {
            self.dirty.shrink_to(KEPT);
            self.queue.shrink_to(KEPT);
        }
        (now.saturating_sub(since), is_queued)
    }

    /// Returns the number of queued keys.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of keys that are being processed.
    pub(super) fn processing(&self) -> usize {
        self.processing.len()
    }

    /// Returns whether this key is being processed.
    pub(super) fn is_processing(&self, key: &T) -> bool {
        self.processing.contains_key(key)
    }

    /// Returns whether no key is queued or processing.
    pub(super) fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.processing.is_empty()
    }

    /// Returns at most `max` dirty keys.
    pub(super) fn list(&self, now: Duration, max: usize) -> Vec<Listed<T>> {
        self.dirty.iter().take(max).map(|(key, dirty)| self.listed(key, dirty, now)).collect()
    }

    /// Returns this key if it is dirty.
    pub(super) fn look_up(&self, key: &T, now: Duration) -> Option<Listed<T>> {
        self.dirty.get(key).map(|dirty| self.listed(key, dirty, now))
    }

    fn listed(&self, key: &T, dirty: &Dirty, now: Duration) -> Listed<T> {
        let waited = now.saturating_sub(dirty.added);
        let is_processing = self.processing.contains_key(key);
        let stage = if is_processing { Stage::Processed { waited } } else { Stage::Queued { waited } };
        Listed { key: key.clone(), stage, priority: dirty.priority, reasons: dirty.reasons.clone() }
    }

    /// Returns the counts and times for metrics.
    pub(super) fn describe(&self, now: Duration) -> QueueState {
        // Scans all keys: a key moved forward, or requeued after its pass, is older than its position suggests.
        let mut oldest_waiting = Duration::ZERO;
        let mut by_priority = BTreeMap::<Reverse<i32>, usize>::new();
        for (_, dirty) in self.dirty.iter().filter(|(key, _)| !self.processing.contains_key(*key)) {
            oldest_waiting = oldest_waiting.max(now.saturating_sub(dirty.added));
            *by_priority.entry(Reverse(dirty.priority)).or_default() += 1;
        }
        let running = self.processing.values().map(|&since| now.saturating_sub(since));
        QueueState {
            depth: self.dirty.len(),
            by_priority: by_priority.into_iter().map(|(Reverse(priority), len)| (priority, len)).collect(),
            processing: self.processing.len(),
            unfinished_work: running.clone().sum(),
            longest_running: running.max().unwrap_or_default(),
            oldest_waiting,
            wakeups: 0,
        }
    }

    /// Returns the number of keys that fit without allocating.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(super) fn capacity(&self) -> usize {
        self.dirty.capacity().max(self.queue.capacity())
    }
}
