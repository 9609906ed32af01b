//! A set of uids in 8 to 16 bytes per uid.
//!
//! Uids are kept as seeded hashes. A collision hides one stale object from one audit; the next audit has another
//! seed.
//!
//! # Guarantees
//! - The set holds at most 16 bytes per uid once it has the expected number.
//!   (test: `set_holds_at_most_16_bytes_per_uid`)

use std::hash::{BuildHasher, RandomState};

/// The least capacity of a part.
const ROOM_MIN: usize = 512;

/// A set that is being filled; see the module.
#[derive(Debug)]
pub(super) struct Uids {
    seed: RandomState,
    /// Hashes in parts of equal capacity: growing one vector would hold the hashes twice while it copies them.
    parts: Vec<Vec<u64>>,
    room: usize,
}

// === impl Uids ===

impl Uids {
    /// Creates an empty set with capacity for `count` uids.
    pub(super) fn expecting(count: usize) -> Self {
        let room = count.max(ROOM_MIN);
        Self { seed: RandomState::new(), parts: vec![Vec::with_capacity(room)], room }
    }

    pub(super) fn insert(&mut self, uid: &str) {
        let hash = self.seed.hash_one(uid);
        match self.parts.last_mut() {
            Some(part) if part.len() < self.room => part.push(hash),
            Some(_) | None => {
                let mut part = Vec::with_capacity(self.room);
                part.push(hash);
                self.parts.push(part);
            }
        }
    }

    /// Sorts the set for look-ups.
    pub(super) fn sorted(mut self) -> Sorted {
        self.parts.iter_mut().for_each(|part| part.sort_unstable());
        Sorted(self)
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.capacity() * size_of::<u64>()).sum()
    }
}

/// A complete set, ready for look-ups.
#[derive(Debug)]
pub(super) struct Sorted(Uids);

impl Sorted {
    pub(super) fn contains(&self, uid: &str) -> bool {
        let Self(Uids { seed, parts, .. }) = self;
        let hash = seed.hash_one(uid);
        parts.iter().any(|part| part.binary_search(&hash).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_holds_at_most_16_bytes_per_uid() {
        for (expected, found, most) in
            [(20_000, 20_000, 8), (20_000, 20_001, 16), (20_000, 100_000, 8), (600, 2000, 10)]
        {
            let mut uids = Uids::expecting(expected);
            (0..found).for_each(|at| uids.insert(&format!("uid-{at}")));
            assert!(uids.bytes() <= most * found, "{} bytes for {found} objects", uids.bytes());
        }
    }

    #[test]
    fn set_contains_exactly_the_inserted_uids() {
        let mut uids = Uids::expecting(0);
        let uid = |at: usize| format!("2f6d1b7a-8f1b-4b53-9a0e-{at:012}");
        (0..2000).for_each(|at| uids.insert(&uid(at)));
        let sorted = uids.sorted();
        assert!((0..2000).all(|at| sorted.contains(&uid(at))));
        assert!(!(2000..4000).any(|at| sorted.contains(&uid(at))));
    }
}
