//! The delayed keys of a queue, sorted by due time.
//!
//! Mirrors client-go `util/workqueue/delaying_queue.go` (`waitForPriorityQueue`, `waitingEntryByData`).
//! Flow: add_after -> **waiting** -> the delaying queue's loop
//!
//! A `BTreeMap` serves as the heap, so that a delay can be shortened or cancelled in place. tokio-util's `DelayQueue`
//! hands out keys of the same millisecond last in, first out, panics on delays above two years, needs the loop's waker
//! under the lock, and would still require a map by key.
//!
//! # Guarantees
//! - Keys are ordered by due time, then by insertion. (test: `waiting_agrees_with_a_sorted_list`)

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::listing::{Listed, Stage};
use super::queue::Key;
use super::reasons::Reasons;
use super::room::give_back_room;

/// Maximum number of due keys taken under the lock at once: many keys due together must not hold up adds.
pub(super) const AT_ONCE: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    by_time: BTreeMap<Due, T>,
    by_key: HashMap<T, WaitFor, RandomState>,
    /// Number of due times created so far.
    dues: u64,
}

/// The pending delay of a key.
#[derive(Debug)]
struct WaitFor {
    /// The key's position in `by_time`.
    due: Due,
    /// When the delay began.
    since: Instant,
    priority: i32,
    reasons: Reasons,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    /// Breaks ties: the earlier key is first.
    number: u64,
}

/// A delayed key, to be listed.
pub(super) struct Delayed<'a, T> {
    key: &'a T,
    delay: &'a WaitFor,
}

impl<T: Clone> Delayed<'_, T> {
    pub(super) fn listed(&self, now: Instant) -> Listed<T> {
        let WaitFor { due, since, priority, reasons } = self.delay;
        let left = due.at.saturating_duration_since(now);
        let stage = Stage::Delayed { waited: now.saturating_duration_since(*since), left };
        Listed { key: self.key.clone(), stage, priority: *priority, reasons: reasons.clone() }
    }
}

impl WaitFor {
    fn merge(&mut self, priority: i32, reasons: Reasons) {
        self.priority = self.priority.max(priority);
        self.reasons.merge(reasons);
    }
}

// === impl Waiting ===

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { by_time: BTreeMap::new(), by_key: HashMap::default(), dues: 0 }
    }
}

impl<T: Key> Waiting<T> {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Inserts a key, or merges with its pending delay: the earlier time, the higher priority and all reasons. Returns
    /// whether this add made the key the first.
    pub(super) fn insert(&mut self, key: T, at: Instant, priority: i32, reasons: Reasons) -> bool {
        self.dues += 1;
        let due = Due { at, number: self.dues };
        match self.by_key.entry(key) {
            Entry::Vacant(vacant) => {
                self.by_time.insert(due, vacant.key().clone());
                vacant.insert(WaitFor { due, since: Instant::now(), priority, reasons });
            }
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.merge(priority, reasons);
                if known.due.at <= at {
                    return false;
                }
                let key = self.by_time.remove(&known.due).expect("both maps hold the same keys");
                self.by_time.insert(due, key);
                known.due = due;
            }
        }
        self.by_time.first_key_value().is_some_and(|(first, _)| *first == due)
    }

    /// Merges an add into the pending delay of a key: the higher priority and all reasons. Returns whether the key
    /// waits.
    pub(super) fn merge_pending(&mut self, key: &T, priority: i32, reasons: Reasons) -> bool {
        self.by_key.get_mut(key).map(|known| known.merge(priority, reasons)).is_some()
    }

    /// Removes a key; returns its priority and reasons.
    pub(super) fn remove(&mut self, key: &T) -> Option<(i32, Reasons)> {
        let WaitFor { due, priority, reasons, .. } = self.by_key.remove(key)?;
        self.by_time.remove(&due);
        give_back_room(&mut self.by_key);
        Some((priority, reasons))
    }

    /// Returns all delayed keys, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Delayed<'_, T>> {
        self.by_key.iter().map(|(key, delay)| Delayed { key, delay })
    }

    /// Returns this key, if it is delayed.
    pub(super) fn get(&self, key: &T) -> Option<Delayed<'_, T>> {
        self.by_key.get_key_value(key).map(|(key, delay)| Delayed { key, delay })
    }

    /// Returns when the first key is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|(due, _)| due.at)
    }

    /// Removes and returns at most [`AT_ONCE`] due keys, in order.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(T, i32, Reasons)> {
        let mut due = Vec::new();
        while due.len() < AT_ONCE
            && let Some(first) = self.by_time.first_entry()
            && first.key().at <= now
        {
            let key = first.remove();
            let known = self.by_key.remove(&key).expect("both maps hold the same keys");
            due.push((key, known.priority, known.reasons));
        }
        give_back_room(&mut self.by_key);
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::workqueue::Reason;

    #[derive(Clone, Debug)]
    enum Operation {
        Insert(u8, u64),
        Remove(u8),
        Take(u64),
    }

    proptest! {
        #[test]
        fn waiting_agrees_with_a_sorted_list(
            steps in prop::collection::vec(
                prop_oneof![
                    4 => (0..40_u8, 1..60_u64).prop_map(|(key, due)| Operation::Insert(key, due)),
                    1 => (0..40_u8).prop_map(Operation::Remove),
                    1 => (0..60_u64).prop_map(Operation::Take),
                ],
                1..120,
            )
        ) {
            let start = Instant::now();
            let at = |second: u64| start + Duration::from_secs(second);
            let mut waiting = Waiting::default();
            let mut model: Vec<(u64, usize, u8)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Operation::Insert(key, due) => {
                        let first = model.first().map(|entry| entry.0);
                        let is_first = waiting.insert(key, at(due), 0, Reasons::default());
                        match model.iter_mut().find(|entry| entry.2 == key) {
                            Some(entry) if entry.0 > due => *entry = (due, number, key),
                            Some(_) => {}
                            None => model.push((due, number, key)),
                        }
                        model.sort_unstable();
                        if model.first().map(|entry| entry.0) != first {
                            prop_assert!(is_first, "the loop must be woken");
                        }
                    }
                    Operation::Remove(key) => {
                        let known = waiting.remove(&key).is_some();
                        prop_assert_eq!(known, model.iter().any(|entry| entry.2 == key));
                        model.retain(|entry| entry.2 != key);
                    }
                    Operation::Take(now) => {
                        let taken: Vec<u8> = waiting.take_due(at(now)).into_iter().map(|t| t.0).collect();
                        let expected: Vec<u8> = model.iter().filter(|e| e.0 <= now).map(|e| e.2).collect();
                        model.retain(|entry| entry.0 > now);
                        prop_assert_eq!(taken, expected);
                    }
                }
                prop_assert_eq!(waiting.len(), model.len());
                prop_assert_eq!(waiting.by_time.len(), model.len());
                prop_assert_eq!(waiting.next_due(), model.first().map(|entry| at(entry.0)));
            }
        }
    }

    #[test]
    fn two_delays_keep_highest_priority_and_all_reasons() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        waiting.insert("a", now, -100, Reason::Resync.into());
        waiting.insert("a", now + Duration::from_secs(1), 0, Reason::Timer.into());
        assert!(waiting.merge_pending(&"a", -100, Reason::Changed.into()));
        assert!(!waiting.merge_pending(&"b", 0, Reason::Changed.into()));
        let (key, priority, reasons) = waiting.take_due(now).remove(0);
        assert_eq!((key, priority, reasons.to_string().as_str()), ("a", 0, "resync, timer, changed"));
    }

    #[test]
    fn burst_of_delays_frees_its_memory() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        for key in 0..10_000 {
            waiting.insert(key, now, 0, Reasons::default());
        }
        while !waiting.take_due(now).is_empty() {}
        assert_eq!(waiting.by_time.len(), 0);
        assert!(waiting.by_key.capacity() <= 1024);
    }
}
