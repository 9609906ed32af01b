//! The order in which queued keys are handed out: first in, first out, or by priorities that age.
//!
//! Mirrors client-go's `Queue` interface with its FIFO, and controller-runtime `pkg/controller/priorityqueue`.
//!
//! # How priorities age
//! A key of priority p that has waited for w counts as one of priority p + w / [`Ageing`] that has just come.
//! Two keys grow old at the same pace, so which of them is first never changes while they wait: each has a
//! rank, the time at which it came less its priority times the ageing, and the lowest rank is first. No key
//! has to be moved, and of each priority only the oldest is looked at.
//!
//! # Guarantees
//! - Within a priority, the first in is the first out. (test: `the_order_agrees_with_a_sorted_list`)
//! - Whatever stream of higher priority q comes after a key of priority p, the key is handed out before all
//!   of it that comes later than (q - p) times the ageing. (test: `a_low_priority_waits_no_longer_than_its_bound`)
//! - Without ageing, priorities are not looked at. (test: `off_is_plain_fifo`)
//!
//! # Differences from controller-runtime
//! There, priority is strict: as long as there is work of a higher one, a lower one waits. Strictness is an
//! ageing that is long enough. A key that is looked at again after a time has the priority that is given then.

use std::time::Duration;

use super::keyed;

/// How many priorities are kept at hand when nothing of them is queued.
const LEVELS_KEPT: usize = 8;
/// How many links are kept when nothing is queued.
const LINKS_KEPT: usize = 1024;

/// The priority of what can wait: the first list's objects, resyncs, audits.
pub const LOW_PRIORITY: i32 = -100;

/// How long a key waits until it counts as one of the next higher priority.
///
/// By default 600 ms: a key of [`LOW_PRIORITY`] goes before changes that come a minute after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing(pub Duration);

impl Default for Ageing {
    fn default() -> Self {
        Self(Duration::from_millis(600))
    }
}

/// The queued keys, by their numbers and by priority; the highest first.
///
/// Each priority is a list whose links stand side by side in one table, at the keys' numbers: so a key is found and
/// taken out wherever it is, and nothing is left behind.
#[derive(Debug)]
pub(super) struct Levels {
    levels: Vec<Level>,
    links: Vec<Link>,
    /// When each came to its place, in nanoseconds; they grow, and come once each. Empty in plain FIFO.
    stamps: Vec<u64>,
    /// Nanoseconds; `None` for plain FIFO.
    ageing: Option<i64>,
    last_stamp: u64,
    len: usize,
}

#[derive(Debug)]
struct Level {
    priority: i32,
    first: u32,
    last: u32,
    len: usize,
}

/// The numbers on both sides of one.
#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

/// No number: the end of a list.
const END: u32 = u32::MAX;
/// For a number that was in no list yet.
const OUT: Link = Link { before: END - 1, after: END - 1 };

// === impl Levels ===

impl Levels {
    pub(super) fn new(ageing: Option<Ageing>) -> Self {
        let ageing = ageing.map(|Ageing(time)| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        Self { levels: Vec::new(), links: Vec::new(), stamps: Vec::new(), ageing, last_stamp: 0, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether priorities count.
    pub(super) fn has_priorities(&self) -> bool {
        self.ageing.is_some()
    }

    /// Puts a number that is not queued at the end of its priority.
    #[inline]
    pub(super) fn push(&mut self, number: u32, priority: i32, now: u64) {
        while self.links.len() <= number as usize {
            keyed::push(&mut self.links, OUT);
        }
        if self.has_priorities() {
            self.last_stamp = now.max(self.last_stamp + 1);
            if self.stamps.len() <= number as usize {
                self.stamps.resize(self.links.len(), 0);
            }
            self.stamps[number as usize] = self.last_stamp;
        }
        self.len += 1;
        let level = self.level(priority);
        level.len += 1;
        let last = std::mem::replace(&mut level.last, number);
        match last {
            END => level.first = number,
            last => self.links[last as usize].after = number,
        }
        self.links[number as usize] = Link { before: last, after: END };
    }

    /// Puts a queued number at the end of a higher priority, unless it has waited so long that it would lose by that;
    /// whether it did.
    pub(super) fn raise(&mut self, number: u32, from: i32, to: i32, now: u64) -> bool {
        let next = now.max(self.last_stamp + 1);
        if self.rank(self.stamp(number), from) <= self.rank(next, to) {
            return false;
        }
        if let Ok(at) = self.find(from) {
            self.unlink(number, at);
        }
        self.push(number, to, now);
        true
    }

    /// Takes the first.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        let mut first: Option<(i64, usize)> = None;
        for (at, level) in self.levels.iter().enumerate().filter(|(_, level)| level.first != END) {
            let rank = self.rank(self.stamp(level.first), level.priority);
            if first.is_none_or(|(lowest, _)| rank < lowest) {
                first = Some((rank, at));
            }
        }
        let (_, at) = first?;
        let number = self.levels[at].first;
        self.unlink(number, at);
        if self.levels[at].len == 0 && self.levels.len() > LEVELS_KEPT {
            self.levels.remove(at);
        }
        Some(number)
    }

    /// Gives back the memory of a burst, when nothing is queued and numbers begin anew.
    pub(super) fn give_back(&mut self) {
        if self.len == 0 && self.links.capacity() > LINKS_KEPT {
            (self.links, self.stamps) = (Vec::new(), Vec::new());
        }
    }

    /// How many numbers there is room for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.links.capacity()
    }

    /// Takes a number out of the list that it is in.
    #[inline]
    fn unlink(&mut self, number: u32, at: usize) {
        let Link { before, after } = self.links[number as usize];
        let level = &mut self.levels[at];
        match before {
            END => level.first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            END => level.last = before,
            after => self.links[after as usize].before = before,
        }
        level.len -= 1;
        self.len -= 1;
    }

    /// How many keys are queued of each priority, the highest first.
    pub(super) fn by_priority(&self) -> Vec<(i32, usize)> {
        self.levels.iter().map(|level| (level.priority, level.len)).collect()
    }

    fn rank(&self, stamp: u64, priority: i32) -> i64 {
        let stamp = i64::try_from(stamp).unwrap_or(i64::MAX);
        stamp.saturating_sub(self.ageing.unwrap_or(0).saturating_mul(i64::from(priority)))
    }

    /// When a queued number came to its place; of no meaning in plain FIFO.
    fn stamp(&self, number: u32) -> u64 {
        self.stamps.get(number as usize).copied().unwrap_or_default()
    }

    fn find(&self, priority: i32) -> Result<usize, usize> {
        self.levels.binary_search_by(|level| priority.cmp(&level.priority))
    }

    fn level(&mut self, priority: i32) -> &mut Level {
        let priority = if self.has_priorities() { priority } else { 0 };
        let at = self.find(priority).unwrap_or_else(|at| {
            self.levels.insert(at, Level { priority, first: END, last: END, len: 0 });
            at
        });
        &mut self.levels[at]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn drain(levels: &mut Levels) -> Vec<u32> {
        std::iter::from_fn(|| levels.pop()).collect()
    }

    #[test]
    fn off_is_plain_fifo() {
        let mut levels = Levels::new(None);
        for (number, priority) in [(1, LOW_PRIORITY), (2, 0), (3, 50)] {
            levels.push(number, priority, 0);
        }
        assert_eq!(levels.by_priority(), [(0, 3)]);
        assert_eq!(drain(&mut levels), [1, 2, 3]);
    }

    /// A change a second, each handed out before the next comes, until the old key's turn.
    #[test]
    fn a_low_priority_waits_no_longer_than_its_bound() {
        let mut levels = Levels::new(Some(Ageing::default()));
        levels.push(0, LOW_PRIORITY, 0);
        let bound = 60 * SECOND;
        for second in 1.. {
            let now = second * SECOND;
            levels.push(1, 0, now);
            let number = levels.pop().unwrap();
            assert_eq!(number == 0, now > bound, "at {second} s");
            if number == 0 {
                break;
            }
        }
    }

    #[test]
    fn a_raised_key_moves_and_an_old_one_stays() {
        let mut levels = Levels::new(Some(Ageing::default()));
        (0..3).for_each(|number| levels.push(number, LOW_PRIORITY, 5));
        assert!(levels.raise(1, LOW_PRIORITY, 0, 10));
        assert_eq!((levels.len(), levels.by_priority()), (3, vec![(0, 1), (LOW_PRIORITY, 2)]));
        assert!(!levels.raise(2, LOW_PRIORITY, 0, 61 * SECOND), "it would lose by it");
        assert_eq!(drain(&mut levels), [1, 0, 2]);
    }

    #[test]
    fn a_burst_leaves_nothing_behind() {
        let mut levels = Levels::new(Some(Ageing::default()));
        (0..10_000).for_each(|number| levels.push(number, 0, 0));
        assert_eq!(drain(&mut levels).len(), 10_000);
        levels.give_back();
        assert_eq!((levels.links.capacity(), levels.stamps.capacity()), (0, 0));
    }

    #[test]
    fn empty_priorities_are_forgotten() {
        let mut levels = Levels::new(Some(Ageing::default()));
        for round in 0..1000 {
            levels.push(1, round, 0);
            levels.pop();
        }
        assert!(levels.levels.len() <= LEVELS_KEPT + 1);
    }

    proptest! {
        /// The model sorts by "time less priority times ageing" at each turn.
        #[test]
        fn the_order_agrees_with_a_sorted_list(
            steps in prop::collection::vec(prop::option::of((-3..3_i32, 0..5_u64)), 1..60)
        ) {
            let ageing = Duration::from_nanos(10);
            let mut levels = Levels::new(Some(Ageing(ageing)));
            let mut model: Vec<(i64, u32)> = Vec::new();
            let mut now = 0;
            for (number, step) in (0..).zip(steps) {
                if let Some((priority, passed)) = step {
                    now += passed;
                    levels.push(number, priority, now);
                    let stamp = levels.last_stamp;
                    now = now.max(stamp);
                    model.push((i64::try_from(stamp).unwrap() - 10 * i64::from(priority), number));
                    // Of equal ranks the higher priority, which is the later, goes first.
                    model.sort_by_key(|&(rank, number)| (rank, std::cmp::Reverse(number)));
                } else {
                    let expected = (!model.is_empty()).then(|| model.remove(0).1);
                    prop_assert_eq!(levels.pop(), expected);
                }
                prop_assert_eq!(levels.len(), model.len());
            }
        }
    }
}
