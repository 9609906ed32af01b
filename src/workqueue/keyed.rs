//! Keys with a number each: a map whose values are reached without hashing once the number is known.
//!
//! A number is a key's for as long as it is in the map; then another key may get it. Each key is stored
//! once. An empty map gives back the memory of a great burst.

use std::fmt;
use std::hash::BuildHasher;

use hashbrown::HashTable;

use super::queue::Key;

/// What a map that has become empty keeps.
const KEPT: usize = 1024;

/// See the module.
pub(super) struct Keyed<T, V> {
    slots: Vec<Slot<T, V>>,
    /// The first of the free slots, each of which names the next.
    free: Option<u32>,
    numbers: HashTable<Numbered>,
    hasher: foldhash::fast::RandomState,
}

enum Slot<T, V> {
    /// With its hash, so that a key is taken out without looking at it again.
    Taken {
        key: T,
        value: V,
        hash: u32,
    },
    Free(Option<u32>),
}

/// A key's number beside its hash: a table that grows, and a look that meets another key, need not touch keys.
#[derive(Clone, Copy)]
struct Numbered {
    hash: u32,
    number: u32,
}

impl Numbered {
    /// The hash as the table wants it, good in all its bits.
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

// === impl Keyed ===

impl<T, V> Default for Keyed<T, V> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: None, numbers: HashTable::new(), hasher: <_>::default() }
    }
}

impl<T: Key, V> Keyed<T, V> {
    /// How many keys there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    fn hash_of(&self, key: &T) -> u32 {
        // The upper half is as good as the lower one.
        (self.hasher.hash_one(key) >> 32) as u32
    }

    /// The number of a key.
    pub(super) fn find(&self, key: &T) -> Option<u32> {
        self.find_hashed(key, self.hash_of(key))
    }

    fn find_hashed(&self, key: &T, hash: u32) -> Option<u32> {
        let is_key = |known: &Numbered| {
            known.hash == hash
                && matches!(&self.slots[known.number as usize], Slot::Taken { key: k, .. } if k == key)
        };
        self.numbers.find(Numbered::spread(hash), is_key).map(|known| known.number)
    }

    /// The number of a key that is put in with `value` if it is not there; whether it was.
    pub(super) fn find_or_insert(&mut self, key: T, value: impl FnOnce() -> V) -> (u32, bool) {
        let hash = self.hash_of(&key);
        if let Some(number) = self.find_hashed(&key, hash) {
            return (number, true);
        }
        let taken = Slot::Taken { key, value: value(), hash };
        let number = match self.free {
            Some(number) => {
                let slot = std::mem::replace(&mut self.slots[number as usize], taken);
                self.free = if let Slot::Free(next) = slot { next } else { None };
                number
            }
            None => {
                self.slots.push(taken);
                u32::try_from(self.slots.len() - 1).expect("there are fewer than four billion keys")
            }
        };
        let numbered = Numbered { hash, number };
        self.numbers.insert_unique(Numbered::spread(hash), numbered, |known| Numbered::spread(known.hash));
        (number, false)
    }

    /// A key and its value, if the number is in use.
    pub(super) fn get(&self, number: u32) -> Option<(&T, &V)> {
        match self.slots.get(number as usize) {
            Some(Slot::Taken { key, value, .. }) => Some((key, value)),
            Some(Slot::Free(_)) | None => None,
        }
    }

    /// The value, to be changed, if the number is in use.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut V> {
        match self.slots.get_mut(number as usize) {
            Some(Slot::Taken { value, .. }) => Some(value),
            Some(Slot::Free(_)) | None => None,
        }
    }

    /// Takes out a key.
    pub(super) fn remove(&mut self, number: u32) -> Option<(T, V)> {
        let Some(&Slot::Taken { hash, .. }) = self.slots.get(number as usize) else { return None };
        self.numbers.find_entry(Numbered::spread(hash), |known| known.number == number).ok()?.remove();
        let slot = std::mem::replace(&mut self.slots[number as usize], Slot::Free(self.free));
        self.free = Some(number);
        if self.numbers.is_empty() && self.slots.capacity() > KEPT {
            *self = Self::default();
        }
        match slot {
            Slot::Taken { key, value, .. } => Some((key, value)),
            Slot::Free(_) => None,
        }
    }
}

impl<T, V> fmt::Debug for Keyed<T, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("len", &self.numbers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_map(steps in prop::collection::vec((0..3, 0..8_u8), 1..80)) {
            let mut keyed = Keyed::<u8, usize>::default();
            let mut model = BTreeMap::<u8, usize>::new();
            for (at, (step, key)) in steps.into_iter().enumerate() {
                match step {
                    0 => {
                        let (number, was_there) = keyed.find_or_insert(key, || at);
                        prop_assert_eq!(was_there, model.contains_key(&key));
                        let value = *model.entry(key).or_insert(at);
                        prop_assert_eq!(keyed.get(number), Some((&key, &value)));
                    }
                    1 => {
                        let removed = keyed.find(&key).and_then(|number| keyed.remove(number));
                        prop_assert_eq!(removed, model.remove_entry(&key));
                    }
                    _ => {
                        let value = keyed.find(&key).and_then(|number| keyed.get_mut(number)).copied();
                        prop_assert_eq!(value, model.get(&key).copied());
                    }
                }
                prop_assert_eq!(keyed.len(), model.len());
            }
        }
    }

    #[test]
    fn an_empty_map_gives_back_the_memory_of_a_burst() {
        let mut keyed = Keyed::<usize, ()>::default();
        let numbers: Vec<u32> = (0..10_000).map(|key| keyed.find_or_insert(key, || ()).0).collect();
        for number in numbers {
            keyed.remove(number).unwrap();
        }
        assert_eq!((keyed.slots.capacity(), keyed.numbers.capacity()), (0, 0));
    }
}
