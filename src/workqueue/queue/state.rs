//! What a queue knows, behind its lock: which keys are queued, dirty and processing.
//!
//! Nothing here waits, wakes or looks at the clock: times come in as the time since the queue was made.

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
pub(super) struct State<T> {
    /// The keys to hand out.
    queue: Order<T>,
    /// The keys that need a pass.
    dirty: HashMap<T, Dirty, RandomState>,
    /// The keys that workers have, and since when.
    processing: HashMap<T, Duration, RandomState>,
    pub(super) shutting_down: bool,
    /// Whether a drain waits; a later shutdown ends it.
    pub(super) drain: bool,
}

/// Why a key needs a pass: all adds since the last get.
#[derive(Debug)]
pub(super) struct Dirty {
    /// When the first of them came.
    pub(super) added: Duration,
    pub(super) priority: i32,
    pub(super) reasons: Reasons,
    /// The key's place in the order while it is queued.
    rank: Rank,
}

/// What became of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The key is queued: a worker is needed.
    Queued,
    /// The key is dirty, and queued when its worker is done.
    Deferred,
    /// The key was dirty already.
    Merged,
    /// The queue is shutting down.
    Ignored,
}

// === impl State ===

impl<T: Key> State<T> {
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

    /// Hands out the first key: it is processing, and clean, so that a later add is seen.
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

    /// How many keys are queued.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// How many keys workers have.
    pub(super) fn processing(&self) -> usize {
        self.processing.len()
    }

    /// Whether no key is queued or processing.
    pub(super) fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.processing.is_empty()
    }

    /// The dirty keys, at most `max`.
    pub(super) fn list(&self, now: Duration, max: usize) -> Vec<Listed<T>> {
        let listed = self.dirty.iter().map(|(key, dirty)| {
            let waited = now.saturating_sub(dirty.added);
            let is_processing = self.processing.contains_key(key);
            let stage = if is_processing { Stage::Processed { waited } } else { Stage::Queued { waited } };
            Listed { key: key.clone(), stage, priority: dirty.priority, reasons: dirty.reasons.clone() }
        });
        listed.take(max).collect()
    }

    /// Counts and times, as metrics show them.
    pub(super) fn describe(&self, now: Duration) -> QueueState {
        // All are looked at: a key that was moved forward, or came again after its pass, is older than its place tells.
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

    /// How many keys there is room for without more memory.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(super) fn capacity(&self) -> usize {
        self.dirty.capacity().max(self.queue.capacity())
    }
}
