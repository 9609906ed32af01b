//! Keys by the time at which they are due: a heap in which each key knows its place.
//!
//! So a delay is shortened or taken back where it stands, and nothing is left behind that has to be skipped
//! later. Each node has four children: fewer steps, and neighbours in memory.
//!
//! # Guarantees
//! - Keys come in the order of their times, those of one time as they were put in. (test: `it_agrees_with_a_sorted_list`)

use super::keyed::{self, Keyed};
use super::queue::Key;
use super::reasons::{Kept, Reason, Reasons};
use super::room::has_spare_room;

/// Children of a node.
const CHILDREN: usize = 4;
/// How many are taken out in one step: a crowd that is due at once must not hold up others.
pub(super) const AT_ONCE: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Timetable<T> {
    keys: Keyed<T, Delayed>,
    heap: Vec<Due>,
    /// Orders what is due at the same time.
    arrivals: u32,
}

#[derive(Debug)]
struct Delayed {
    /// Where it is in the heap.
    at: u32,
    priority: i32,
    /// None stands for the time alone: most keys need no memory for that.
    reasons: Option<Box<Kept>>,
}

fn why(kept: Option<Box<Kept>>) -> Reasons {
    let reasons = Reasons::from_parts(None, kept);
    if reasons.is_empty() { Reason::Timer.into() } else { reasons }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    due: u64,
    arrival: u32,
    number: u32,
}

// === impl Timetable ===

impl<T> Default for Timetable<T> {
    fn default() -> Self {
        Self { keys: Keyed::default(), heap: Vec::new(), arrivals: 0 }
    }
}

impl<T: Key> Timetable<T> {
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Puts in a key, or makes it due earlier; a later time does not count. Whether the first time changed.
    pub(super) fn insert(&mut self, key: T, due: u64, priority: i32, reasons: Reasons) -> bool {
        let end = index(self.heap.len());
        let mut reasons = Some(reasons);
        let (number, was_there) = self.keys.find_or_insert(key, || Delayed {
            at: end,
            priority,
            reasons: reasons.take().and_then(Reasons::into_box),
        });
        self.arrivals = self.arrivals.wrapping_add(1);
        let entry = Due { due, arrival: self.arrivals, number };
        if !was_there {
            keyed::push(&mut self.heap, entry);
            return self.rise(self.heap.len() - 1) == 0;
        }
        let Some(at) = self.enrich(number, priority, reasons.unwrap_or_default()) else { return false };
        if self.heap[at].due <= due {
            return false;
        }
        self.heap[at] = entry;
        self.rise(at) == 0
    }

    /// Gives a key that is there another reason, and a priority if that is higher.
    pub(super) fn note(&mut self, key: &T, priority: i32, reasons: Reasons) -> bool {
        self.keys.find(key).and_then(|number| self.enrich(number, priority, reasons)).is_some()
    }

    fn enrich(&mut self, number: u32, priority: i32, reasons: Reasons) -> Option<usize> {
        let (_, delayed) = self.keys.get_mut(number)?;
        delayed.priority = delayed.priority.max(priority);
        let mut all = Reasons::from_parts(None, delayed.reasons.take());
        if all.is_empty() != reasons.is_empty() {
            // One of the two was for the time alone.
            let timer = Reasons::from(Reason::Timer);
            let (first, then) = if all.is_empty() { (timer, reasons) } else { (reasons, timer) };
            all.merge(first);
            all.merge(then);
        } else {
            all.merge(reasons);
        }
        delayed.reasons = all.into_box();
        Some(delayed.at as usize)
    }

    /// Takes out a key; returns its priority and reasons, none for the time alone.
    pub(super) fn remove(&mut self, key: &T) -> Option<(i32, Reasons)> {
        let (_, delayed) = self.keys.find(key).and_then(|number| self.keys.remove(number))?;
        self.remove_at(delayed.at as usize);
        Some((delayed.priority, Reasons::from_parts(None, delayed.reasons)))
    }

    /// What is in it: when it is due, its priority and why. In no order, but the first is the first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&T, u64, i32, Reasons)> {
        self.heap.iter().filter_map(|due| {
            let (key, delayed) = self.keys.get(due.number)?;
            Some((key, due.due, delayed.priority, why(delayed.reasons.clone())))
        })
    }

    /// When the first is due.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.heap.first().map(|first| first.due)
    }

    /// Takes out what is due, in order, and no more than [`AT_ONCE`].
    pub(super) fn take_due(&mut self, now: u64) -> Vec<(T, i32, Reasons)> {
        let mut due = Vec::new();
        while due.len() < AT_ONCE
            && let Some(first) = self.heap.first().filter(|first| first.due <= now)
        {
            let number = first.number;
            self.remove_at(0);
            let taken = self.keys.remove(number);
            due.extend(taken.map(|(key, delayed)| (key, delayed.priority, why(delayed.reasons))));
        }
        if has_spare_room(self.heap.len(), self.heap.capacity()) {
            self.heap.shrink_to(2 * self.heap.len());
        }
        due
    }

    fn remove_at(&mut self, at: usize) {
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            let at = self.rise(at);
            self.sink(at);
        }
    }

    /// Moves an entry up to where it belongs; returns where that is.
    fn rise(&mut self, mut at: usize) -> usize {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, entry);
        at
    }

    /// Moves an entry down to where it belongs.
    fn sink(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let children = at * CHILDREN + 1..(at * CHILDREN + 1 + CHILDREN).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child]) else { break };
            if entry <= self.heap[least] {
                break;
            }
            self.put(at, self.heap[least]);
            at = least;
        }
        self.put(at, entry);
    }

    fn put(&mut self, at: usize, entry: Due) {
        self.heap[at] = entry;
        if let Some((_, delayed)) = self.keys.get_mut(entry.number) {
            delayed.at = index(at);
        }
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("there are fewer than four billion keys")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u64),
        Remove(u8),
        Take(u64),
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_list(
            steps in prop::collection::vec(
                prop_oneof![
                    4 => (0..40_u8, 1..60_u64).prop_map(|(key, due)| Step::Insert(key, due)),
                    1 => (0..40_u8).prop_map(Step::Remove),
                    1 => (0..60_u64).prop_map(Step::Take),
                ],
                1..120,
            )
        ) {
            let mut timetable = Timetable::default();
            let mut model: Vec<(u64, usize, u8)> = Vec::new();
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(key, due) => {
                        let first = model.first().map(|entry| entry.0);
                        let is_first = timetable.insert(key, due, 0, Reasons::default());
                        match model.iter_mut().find(|entry| entry.2 == key) {
                            Some(entry) if entry.0 > due => *entry = (due, at, key),
                            Some(_) => {}
                            None => model.push((due, at, key)),
                        }
                        model.sort_unstable();
                        if model.first().map(|entry| entry.0) != first {
                            prop_assert!(is_first, "the loop must hear of it");
                        }
                    }
                    Step::Remove(key) => {
                        timetable.remove(&key);
                        model.retain(|entry| entry.2 != key);
                    }
                    Step::Take(now) => {
                        let taken: Vec<u8> = timetable.take_due(now).into_iter().map(|t| t.0).collect();
                        let expected: Vec<u8> = model.iter().filter(|e| e.0 <= now).map(|e| e.2).collect();
                        model.retain(|entry| entry.0 > now);
                        prop_assert_eq!(taken, expected);
                    }
                }
                prop_assert_eq!(timetable.len(), model.len());
                prop_assert_eq!(timetable.next_due(), model.first().map(|entry| entry.0));
            }
        }
    }

    #[test]
    fn of_two_delays_the_higher_priority_and_all_reasons_count() {
        let mut timetable = Timetable::default();
        timetable.insert("a", 5, -100, Reason::Resync.into());
        timetable.insert("a", 9, 0, Reasons::default());
        assert!(timetable.note(&"a", -100, Reason::Changed.into()));
        assert!(!timetable.note(&"b", 0, Reason::Changed.into()));
        let (key, priority, reasons) = timetable.take_due(5).remove(0);
        assert_eq!((key, priority, reasons.to_string().as_str()), ("a", 0, "resync, timer, changed"));
    }
}
