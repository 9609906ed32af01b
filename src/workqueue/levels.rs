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
//! ageing that is long enough.

use std::collections::VecDeque;
use std::time::Duration;

/// How many priorities are kept at hand when nothing of them is queued.
const LEVELS_KEPT: usize = 8;
/// How many places of an empty priority are kept.
const PLACES_KEPT: usize = 1024;

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

/// Where a queued key is. Stamps grow and come once each; with a clock they are the time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) stamp: u64,
    pub(super) number: u32,
}

/// The queued keys, by priority; the highest first.
#[derive(Debug)]
pub(super) struct Levels {
    levels: Vec<Level>,
    /// Nanoseconds; `None` for plain FIFO.
    ageing: Option<i64>,
    last_stamp: u64,
    len: usize,
}

#[derive(Debug)]
struct Level {
    priority: i32,
    places: VecDeque<Place>,
    /// Without those whose key has gone elsewhere.
    len: usize,
}

// === impl Levels ===

impl Levels {
    pub(super) fn new(ageing: Option<Ageing>) -> Self {
        let ageing = ageing.map(|Ageing(time)| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        Self { levels: Vec::new(), ageing, last_stamp: 0, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether priorities count.
    pub(super) fn has_priorities(&self) -> bool {
        self.ageing.is_some()
    }

    /// Puts a key at the end of its priority; returns its stamp.
    pub(super) fn push(&mut self, number: u32, priority: i32, now: u64) -> u64 {
        let stamp = now.max(self.last_stamp + 1);
        self.last_stamp = stamp;
        self.len += 1;
        let level = self.level(priority);
        level.len += 1;
        level.places.push_back(Place { stamp, number });
        stamp
    }

    /// Puts a queued key at the end of a higher priority, unless it has waited so long that it would lose by
    /// that; returns its new stamp. Its old place is left behind, and known by its stamp.
    pub(super) fn raise(&mut self, place: Place, from: i32, to: i32, now: u64) -> Option<u64> {
        let next = now.max(self.last_stamp + 1);
        if self.rank(place.stamp, from) <= self.rank(next, to) {
            return None;
        }
        let former = self.level(from);
        former.len -= 1;
        self.len -= 1;
        Some(self.push(place.number, to, now))
    }

    /// Takes the first; `is_current` says whether a place is still its key's.
    pub(super) fn pop(&mut self, mut is_current: impl FnMut(Place) -> bool) -> Option<Place> {
        let mut first: Option<(i64, usize)> = None;
        for level in &mut self.levels {
            while level.places.front().is_some_and(|&place| !is_current(place)) {
                level.places.pop_front();
            }
        }
        for (at, level) in self.levels.iter().enumerate() {
            let Some(head) = level.places.front() else { continue };
            let rank = self.rank(head.stamp, level.priority);
            if first.is_none_or(|(lowest, _)| rank < lowest) {
                first = Some((rank, at));
            }
        }
        let (_, at) = first?;
        let level = &mut self.levels[at];
        let place = level.places.pop_front();
        level.len -= 1;
        self.len -= 1;
        if level.places.is_empty() {
            self.tidy(at);
        }
        place
    }

    /// Of each priority the first place for which `value` has one.
    pub(super) fn heads<R>(&self, mut value: impl FnMut(Place) -> Option<R>) -> Vec<R> {
        self.levels.iter().filter_map(|level| level.places.iter().find_map(|&place| value(place))).collect()
    }

    /// How many keys are queued of each priority, the highest first.
    pub(super) fn by_priority(&self) -> Vec<(i32, usize)> {
        self.levels.iter().map(|level| (level.priority, level.len)).collect()
    }

    fn rank(&self, stamp: u64, priority: i32) -> i64 {
        let stamp = i64::try_from(stamp).unwrap_or(i64::MAX);
        stamp.saturating_sub(self.ageing.unwrap_or(0).saturating_mul(i64::from(priority)))
    }

    fn level(&mut self, priority: i32) -> &mut Level {
        let priority = if self.has_priorities() { priority } else { 0 };
        let at = match self.levels.binary_search_by(|level| priority.cmp(&level.priority)) {
            Ok(at) => at,
            Err(at) => {
                self.levels.insert(at, Level { priority, places: VecDeque::new(), len: 0 });
                at
            }
        };
        &mut self.levels[at]
    }

    /// Gives back what an empty priority does not need.
    fn tidy(&mut self, at: usize) {
        if self.levels.len() > LEVELS_KEPT {
            self.levels.remove(at);
        } else if self.levels[at].places.capacity() > PLACES_KEPT {
            self.levels[at].places = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn drain(levels: &mut Levels) -> Vec<u32> {
        std::iter::from_fn(|| levels.pop(|_| true).map(|place| place.number)).collect()
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
            let place = levels.pop(|_| true).unwrap();
            assert_eq!(place.number == 0, now > bound, "at {second} s");
            if place.number == 0 {
                break;
            }
        }
    }

    #[test]
    fn a_raised_key_moves_and_an_old_one_stays() {
        let mut levels = Levels::new(Some(Ageing::default()));
        let stamps: Vec<u64> = (0..3).map(|number| levels.push(number, LOW_PRIORITY, 5)).collect();
        let raised = levels.raise(Place { stamp: stamps[1], number: 1 }, LOW_PRIORITY, 0, 10).unwrap();
        assert_eq!((levels.len(), levels.by_priority()), (3, vec![(0, 1), (LOW_PRIORITY, 2)]));
        let old = Place { stamp: stamps[2], number: 2 };
        assert_eq!(levels.raise(old, LOW_PRIORITY, 0, 61 * SECOND), None, "it would lose by it");
        let is_current = |place: Place| place.number != 1 || place.stamp == raised;
        let order: Vec<u32> = std::iter::from_fn(|| levels.pop(is_current)).map(|p| p.number).collect();
        assert_eq!((order, levels.len()), (vec![1, 0, 2], 0));
    }

    #[test]
    fn empty_priorities_are_forgotten() {
        let mut levels = Levels::new(Some(Ageing::default()));
        for round in 0..1000 {
            levels.push(1, round, 0);
            levels.pop(|_| true);
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
                    let stamp = levels.push(number, priority, now);
                    now = now.max(stamp);
                    model.push((i64::try_from(stamp).unwrap() - 10 * i64::from(priority), number));
                    // Of equal ranks the higher priority, which is the later, goes first.
                    model.sort_by_key(|&(rank, number)| (rank, std::cmp::Reverse(number)));
                } else {
                    let expected = (!model.is_empty()).then(|| model.remove(0).1);
                    prop_assert_eq!(levels.pop(|_| true).map(|place| place.number), expected);
                }
                prop_assert_eq!(levels.len(), model.len());
            }
        }
    }
}
