//! When a map that was large gives back memory.
//!
//! A map that frees its memory only when it is empty keeps that of an outage for as long as one key still fails.
//!
//! # Guarantees
//! - Giving back costs each removal a constant share. (test: `shrinking_costs_each_removal_a_constant`)

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// The room that a map always keeps, in entries.
pub(super) const KEPT: usize = 1024;

/// Whether a map has so much more room than entries that it should shrink to twice its entries. Between two
/// shrinks at least half of the entries are removed, so each removal pays for a constant share of the copying.
#[must_use]
pub(crate) fn has_spare_room(len: usize, capacity: usize) -> bool {
    capacity > KEPT && len < capacity / 8
}

/// Shrinks a map that [has spare room](has_spare_room).
pub(super) fn give_back_room<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if has_spare_room(map.len(), map.capacity()) {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the entries that shrinking moves.
    #[test]
    fn shrinking_costs_each_removal_a_constant() {
        for count in [1_000, 100_000] {
            let mut map: HashMap<usize, ()> = (0..count).map(|at| (at, ())).collect();
            let mut moved = 0;
            for at in 0..count {
                map.remove(&at);
                let before = map.capacity();
                give_back_room(&mut map);
                moved += if map.capacity() < before { map.len() } else { 0 };
            }
            assert!(moved <= count / 4, "{moved} of {count}");
            assert!(map.capacity() <= 2 * KEPT, "{}", map.capacity());
        }
    }
}
