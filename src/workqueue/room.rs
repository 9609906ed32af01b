//! When a table that was large is to give back its room.

/// The room that stays, whatever is in it.
const KEPT: usize = 1024;

/// Whether a table has so much more room than entries that it is to shrink to twice its entries. Between two times at
/// least half of the entries have gone, so that each removal pays for a constant part of the copying.
///
/// A table that only gives back its room when it is empty keeps that of an outage for as long as one key still fails.
#[must_use]
pub(crate) fn has_spare_room(len: usize, capacity: usize) -> bool {
    capacity > KEPT && len < capacity / 8
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Counted in entries that are moved.
    #[test]
    fn a_removal_pays_for_a_constant_part_of_the_copying() {
        for count in [1_000, 100_000] {
            let mut table: HashSet<usize> = (0..count).collect();
            let mut moved = 0;
            for at in 0..count {
                table.remove(&at);
                if has_spare_room(table.len(), table.capacity()) {
                    moved += table.len();
                    table.shrink_to(2 * table.len());
                }
            }
            assert!(moved <= count / 4, "{moved} of {count}");
            assert!(table.capacity() <= 2 * KEPT, "{}", table.capacity());
        }
    }
}
