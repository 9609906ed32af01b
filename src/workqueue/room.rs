//! Shrinks maps that were large.
//!
//! A map that frees memory only when empty would keep that of an outage for as long as one key still fails.
//!
//! # Guarantees
//! - Shrinking adds a constant amortised cost to each removal. (test: `shrinking_has_constant_cost_per_removal`)

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// The capacity that a map always keeps, in entries.
pub(super) const KEPT: usize = 1024;

/// Returns whether a map has so much spare capacity that it should shrink to twice its entries. At least half of
/// the entries are removed between two shrinks, so copying costs each removal a constant share.
#[must_use]
pub(super) fn has_spare_room(len: usize, capacity: usize) -> bool {
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
    fn shrinking_has_constant_cost_per_removal() {
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
