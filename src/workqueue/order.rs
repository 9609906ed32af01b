//! The order in which workers get queued keys: first in, first out, or by priorities that age.
//!
//! Mirrors client-go's `Queue` interface (`Touch`, `Push`, `Len`, `Pop`) with its FIFO, and controller-runtime
//! `pkg/controller/priorityqueue`.
//! Flow: queue -> push -> **order** -> pop -> queue
//!
//! # How priorities age
//! A key of priority p that has waited for w competes as a new key of priority p + w / [`Ageing`]. All keys age at
//! the same pace, so the order of two waiting keys never changes and each key's rank is computed once: the time of the
//! add minus the priority times the ageing. The lowest rank is first.
//!
//! # Guarantees
//! - Keys of the same priority are first in, first out. (test: `order_agrees_with_a_sorted_list`)
//! - A key of priority p precedes every key of a higher priority q that is added at least (q - p) times the ageing
//!   later. (test: `low_priority_waits_no_longer_than_its_bound`)
//! - Without ageing, priorities have no effect. (test: `order_without_ageing_is_fifo`)
//!
//! # Differences from controller-runtime
//! Its priorities are strict: a low priority waits as long as there is work of a higher one. A long ageing has the same
//! effect.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The priority of work that can wait: objects of the first list, resyncs, audits.
pub const LOW_PRIORITY: i32 = -100;

/// How long a key waits before it counts as a key of the next higher priority.
///
/// The default is 600 ms: a key of [`LOW_PRIORITY`] precedes changes added a minute later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing(pub Duration);

impl Default for Ageing {
    fn default() -> Self {
        Self(Duration::from_millis(600))
    }
}

/// The queued keys; see the module.
#[derive(Debug)]
pub(super) enum Order<T> {
    /// First in, first out.
    Fifo(VecDeque<T>),
    /// By priorities that age.
    Aged(Aged<T>),
}

#[derive(Debug)]
pub(super) struct Aged<T> {
    keys: BTreeMap<Rank, T>,
    ageing: Ageing,
    /// Number of ranks computed so far.
    ranks: u64,
}

/// The position of a key in [`Order::Aged`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Time of the add minus the priority times the ageing, in nanoseconds.
    nanos: i64,
    /// Breaks ties: the earlier key is first.
    number: u64,
}

// === impl Order ===

impl<T> Order<T> {
    pub(super) fn new(ageing: Option<Ageing>) -> Self {
        match ageing {
            Some(ageing) => Self::Aged(Aged { keys: BTreeMap::new(), ageing, ranks: 0 }),
            None => Self::Fifo(VecDeque::new()),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Fifo(keys) => keys.len(),
            Self::Aged(aged) => aged.keys.len(),
        }
    }

    /// Queues a key that is not queued. Returns its rank, by which [`touch`](Self::touch) finds it.
    pub(super) fn push(&mut self, key: T, priority: i32, now: Duration) -> Rank {
        match self {
            Self::Fifo(keys) => {
                keys.push_back(key);
                Rank::default()
            }
            Self::Aged(aged) => {
                let rank = aged.rank(priority, now);
                aged.keys.insert(rank, key);
                rank
            }
        }
    }

    /// Moves a queued key forward if an add of this priority gives it a better rank. Returns its current rank.
    pub(super) fn touch(&mut self, rank: Rank, priority: i32, now: Duration) -> Rank {
        let Self::Aged(aged) = self else { return rank };
        let better = aged.rank(priority, now);
        if better < rank
            && let Some(key) = aged.keys.remove(&rank)
        {
            aged.keys.insert(better, key);
            return better;
        }
        rank
    }

    /// Removes and returns the first key.
    pub(super) fn pop(&mut self) -> Option<T> {
        match self {
            Self::Fifo(keys) => keys.pop_front(),
            Self::Aged(aged) => aged.keys.pop_first().map(|(_, key)| key),
        }
    }

    /// Frees memory beyond that for `len` keys.
    pub(super) fn shrink_to(&mut self, len: usize) {
        match self {
            Self::Fifo(keys) => keys.shrink_to(len),
            // A tree frees its nodes as keys leave.
            Self::Aged(_) => {}
        }
    }

    /// Returns the number of keys that fit without allocating.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(super) fn capacity(&self) -> usize {
        match self {
            Self::Fifo(keys) => keys.capacity(),
            Self::Aged(aged) => aged.keys.len(),
        }
    }
}

impl<T> Aged<T> {
    fn rank(&mut self, priority: i32, now: Duration) -> Rank {
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let head_start = nanos(self.ageing.0).saturating_mul(i64::from(priority));
        self.ranks += 1;
        Rank { nanos: nanos(now).saturating_sub(head_start), number: self.ranks }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn drain(order: &mut Order<u32>) -> Vec<u32> {
        std::iter::from_fn(|| order.pop()).collect()
    }

    #[test]
    fn order_without_ageing_is_fifo() {
        let mut order = Order::new(None);
        for (key, priority) in [(1, LOW_PRIORITY), (2, 0), (3, 50)] {
            order.push(key, priority, Duration::ZERO);
        }
        assert_eq!(order.len(), 3);
        assert_eq!(drain(&mut order), [1, 2, 3]);
    }

    /// A change is added and handed out each second, until it is the old key's turn.
    #[test]
    fn low_priority_waits_no_longer_than_its_bound() {
        let mut order = Order::new(Some(Ageing::default()));
        order.push(0, LOW_PRIORITY, Duration::ZERO);
        let bound = 60 * SECOND;
        for second in 1.. {
            let now = second * SECOND;
            order.push(1, 0, now);
            let key = order.pop().unwrap();
            assert_eq!(key == 0, now >= bound, "after {second} s");
            if key == 0 {
                break;
            }
        }
    }

    #[test]
    fn touch_moves_a_key_only_forward() {
        let mut order = Order::new(Some(Ageing::default()));
        let ranks: Vec<Rank> =
            (0..3).map(|key| order.push(key, LOW_PRIORITY, Duration::from_nanos(5))).collect();
        assert!(order.touch(ranks[1], 0, Duration::from_nanos(10)) < ranks[0]);
        assert_eq!(order.touch(ranks[0], LOW_PRIORITY, Duration::from_nanos(10)), ranks[0]);
        assert_eq!(order.touch(ranks[2], 0, 61 * SECOND), ranks[2], "a worse rank is ignored");
        assert_eq!(drain(&mut order), [1, 0, 2]);
    }

    proptest! {
        /// The model sorts by time minus priority times ageing at each step.
        #[test]
        fn order_agrees_with_a_sorted_list(
            steps in prop::collection::vec(prop::option::of((-3..3_i32, 0..5_u64)), 1..60)
        ) {
            let mut order = Order::new(Some(Ageing(Duration::from_nanos(10))));
            let mut model: Vec<(i64, u32)> = Vec::new();
            let mut now = 0;
            for (key, step) in (0..).zip(steps) {
                if let Some((priority, passed)) = step {
                    now += passed;
                    order.push(key, priority, Duration::from_nanos(now));
                    model.push((i64::try_from(now).unwrap() - 10 * i64::from(priority), key));
                    model.sort_unstable();
                } else {
                    let expected = (!model.is_empty()).then(|| model.remove(0).1);
                    prop_assert_eq!(order.pop(), expected);
                }
                prop_assert_eq!(order.len(), model.len());
            }
        }
    }
}
