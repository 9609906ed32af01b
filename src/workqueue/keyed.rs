//! Keys with a number each: a map whose values are reached without hashing once the number is known.
//!
//! A number is a key's for as long as it is in the map; then another key may get it. Each key is stored
//! once. An empty map gives back the memory of a great burst.
//!
//! # How it works
//! Keys and values stand in slots, side by side in the order in which they came; [`Index`] finds a key's slot by its
//! hash. To take a key out frees its slot and leaves the index alone: what it says about a slot that is free, or
//! another key's by now, is stale and found to be so where the keys are compared. When the index is full it is made
//! anew from the slots. So a key that comes and goes costs one look into random memory, not two.
//!
//! # Guarantees
//! - It finds what a plain map finds. (test: `it_agrees_with_a_plain_map`)
//! - Keys that come and go make it no larger. (test: `keys_that_come_and_go_need_no_more_memory`)
//! - An empty map gives back the memory of a burst. (test: `an_empty_map_gives_back_the_memory_of_a_burst`)

use std::fmt;
use std::hash::BuildHasher;

use super::queue::Key;

/// What a map that has become empty keeps.
const KEPT: usize = 1024;
/// The places of the smallest index.
const LEAST: usize = 64;
/// From here on a vector grows by an eighth, which costs little: the pages of a large one are moved, not copied.
const LARGE: usize = 4096;

/// Hashes keys; the same for all maps that are made of it.
pub(super) type Hasher = foldhash::fast::RandomState;

/// See the module.
pub(super) struct Keyed<T, V> {
    slots: Vec<Slot<T, V>>,
    /// Of the keys in the slots, or of those that were there last.
    hashes: Vec<u32>,
    /// The first of the free slots, each of which names the next.
    free: Option<u32>,
    len: usize,
    index: Index,
    hasher: Hasher,
}

enum Slot<T, V> {
    Taken { key: T, value: V },
    Free(Option<u32>),
}

/// What a look for a key has found.
pub(super) enum Look {
    /// It is there, with this number.
    Found(u32),
    /// It is not; where it goes.
    Missing(Vacancy),
}

/// Where a key goes that was looked for and is not there.
#[derive(Clone, Copy)]
pub(super) struct Vacancy {
    hash: u32,
    /// In the index; `None` where the index has it so already, as the key was in the slot that is used next.
    at: Option<usize>,
}

// === impl Keyed ===

impl<T, V> Default for Keyed<T, V> {
    fn default() -> Self {
        Self::with_hasher(Hasher::default())
    }
}

impl<T, V> Keyed<T, V> {
    pub(super) fn with_hasher(hasher: Hasher) -> Self {
        Self { slots: Vec::new(), hashes: Vec::new(), free: None, len: 0, index: Index::default(), hasher }
    }
}

/// A key's hash, for [`Keyed::look`].
#[inline]
pub(super) fn hash_of<T: Key>(hasher: &Hasher, key: &T) -> u32 {
    // The upper half is as good as the lower one.
    (hasher.hash_one(key) >> 32) as u32
}

impl<T: Key, V> Keyed<T, V> {
    /// The number of a key.
    pub(super) fn find(&self, key: &T) -> Option<u32> {
        match self.look(hash_of(&self.hasher, key), |known| known == key) {
            Look::Found(number) => Some(number),
            Look::Missing(_) => None,
        }
    }

    /// The number of a key that is put in with `value` if it is not there; whether it was.
    pub(super) fn find_or_insert(&mut self, key: T, value: impl FnOnce() -> V) -> (u32, bool) {
        match self.look(hash_of(&self.hasher, &key), |known| *known == key) {
            Look::Found(number) => (number, true),
            Look::Missing(vacancy) => (self.insert(vacancy, key, value()), false),
        }
    }
}

impl<T, V> Keyed<T, V> {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many keys there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Looks for what has this hash and of which `is_it` holds.
    #[inline]
    pub(super) fn look(&self, hash: u32, mut is_it: impl FnMut(&T) -> bool) -> Look {
        let mut is_known = false;
        let found = self.index.find(hash, |number| {
            if self.hashes[number as usize] != hash {
                return false;
            }
            match &self.slots[number as usize] {
                Slot::Taken { key, .. } => is_it(key),
                Slot::Free(_) => {
                    is_known |= self.free == Some(number);
                    false
                }
            }
        });
        match found {
            Ok(number) => Look::Found(number),
            Err(at) => Look::Missing(Vacancy { hash, at: (!is_known).then_some(at) }),
        }
    }

    /// Puts in a key that was looked for just before; its number.
    #[inline]
    pub(super) fn insert(&mut self, vacancy: Vacancy, key: T, value: V) -> u32 {
        let Vacancy { hash, at } = vacancy;
        self.len += 1;
        let number = match self.free {
            Some(number) => {
                let slot = &mut self.slots[number as usize];
                self.free = if let Slot::Free(next) = slot { *next } else { None };
                *slot = Slot::Taken { key, value };
                self.hashes[number as usize] = hash;
                number
            }
            None => {
                push(&mut self.slots, Slot::Taken { key, value });
                push(&mut self.hashes, hash);
                u32::try_from(self.slots.len() - 1).expect("there are fewer than four billion keys")
            }
        };
        match at {
            None => {}
            Some(at) if self.index.has_room() => self.index.put(at, hash, number),
            Some(_) => self.index_anew(),
        }
        number
    }

    /// All keys with their values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&T, &V)> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Taken { key, value } => Some((key, value)),
            Slot::Free(_) => None,
        })
    }

    /// A key and its value, if the number is in use.
    pub(super) fn get(&self, number: u32) -> Option<(&T, &V)> {
        match self.slots.get(number as usize) {
            Some(Slot::Taken { key, value }) => Some((key, value)),
            Some(Slot::Free(_)) | None => None,
        }
    }

    /// The same, to be changed; the key's hash stays.
    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<(&mut T, &mut V)> {
        match self.slots.get_mut(number as usize) {
            Some(Slot::Taken { key, value }) => Some((key, value)),
            Some(Slot::Free(_)) | None => None,
        }
    }

    /// Takes out a key.
    pub(super) fn remove(&mut self, number: u32) -> Option<(T, V)> {
        let slot = self.slots.get_mut(number as usize).filter(|slot| matches!(slot, Slot::Taken { .. }))?;
        let slot = std::mem::replace(slot, Slot::Free(None));
        self.free(number);
        match slot {
            Slot::Taken { key, value } => Some((key, value)),
            Slot::Free(_) => None,
        }
    }

    /// Forgets a key whose number is in use.
    #[inline]
    pub(super) fn free(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        *slot = Slot::Free(None);
        if let Slot::Free(next) = slot {
            *next = self.free.replace(number);
        }
        self.len -= 1;
        if self.len == 0 && self.slots.capacity() > KEPT {
            *self = Self::with_hasher(self.hasher.clone());
        }
    }

    /// Forgets what is stale, and makes room.
    fn index_anew(&mut self) {
        self.index.clear_for(self.len, self.slots.len());
        for (number, (slot, &hash)) in (0..).zip(self.slots.iter().zip(&self.hashes)) {
            if matches!(slot, Slot::Taken { .. }) {
                self.index.add(hash, number);
            }
        }
    }
}

/// Puts something at the end of a vector, which then has little room to spare when it is large.
pub(super) fn push<T>(all: &mut Vec<T>, one: T) {
    if all.len() == all.capacity() && all.len() >= LARGE {
        all.reserve_exact(all.len() / 8);
    }
    all.push(one);
}

impl<T, V> fmt::Debug for Keyed<T, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("len", &self.len).finish_non_exhaustive()
    }
}

// === impl Index ===

/// Numbers by hash, in four bytes each: open addressing, the next place where one is taken.
///
/// A place is empty (0), or holds a number plus one in as many low bits as the index is large, and in the bits above
/// those of the hash: so hardly a number is looked at whose hash is another.
#[derive(Default)]
struct Index {
    /// As many as a power of two.
    places: Vec<u32>,
    /// How many less one.
    mask: u32,
    /// How many are not empty.
    used: usize,
}

impl Index {
    /// Makes it empty, with room for nearly twice as many keys; numbers are below `numbers`.
    fn clear_for(&mut self, keys: usize, numbers: usize) {
        let size = (keys * 9 / 4).max(numbers + 2).max(LEAST).next_power_of_two();
        self.mask = u32::try_from(size - 1).expect("there are fewer than four billion keys");
        self.used = 0;
        self.places.clear();
        self.places.shrink_to(size);
        self.places.resize(size, 0);
    }

    fn has_room(&self) -> bool {
        (self.used + 1) * 5 <= self.places.len() * 4
    }

    /// The first number of this hash for which `is_it` holds, or the empty place where such a number goes.
    #[inline]
    fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Result<u32, usize> {
        let mask = self.mask;
        let mut at = hash & mask;
        loop {
            let place = self.places.get(at as usize).copied().unwrap_or_default();
            if place == 0 {
                return Err(at as usize);
            }
            if (place ^ hash) & !mask == 0 && is_it((place & mask) - 1) {
                return Ok((place & mask) - 1);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn put(&mut self, at: usize, hash: u32, number: u32) {
        self.places[at] = hash & !self.mask | (number + 1);
        self.used += 1;
    }

    fn add(&mut self, hash: u32, number: u32) {
        if let Err(at) = self.find(hash, |_| false) {
            self.put(at, hash, number);
        }
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
                        let value = keyed.find(&key).and_then(|number| keyed.get_mut(number)).map(|(_, value)| *value);
                        prop_assert_eq!(value, model.get(&key).copied());
                    }
                }
                prop_assert_eq!(keyed.len(), model.len());
            }
        }
    }

    #[test]
    fn keys_that_come_and_go_need_no_more_memory() {
        let mut keyed = Keyed::<usize, ()>::default();
        let mut numbers: Vec<u32> = (0..500).map(|key| keyed.find_or_insert(key, || ()).0).collect();
        for key in 500..100_000 {
            assert_eq!(keyed.remove(numbers[key % 500]), Some((key - 500, ())));
            numbers[key % 500] = keyed.find_or_insert(key, || ()).0;
            assert_eq!(keyed.find(&key), Some(numbers[key % 500]));
            assert_eq!(keyed.find(&(key - 500)), None);
        }
        assert_eq!((keyed.len(), keyed.slots.len()), (500, 500));
        assert!(keyed.index.places.len() <= 2048, "{}", keyed.index.places.len());
    }

    #[test]
    fn one_key_again_and_again_has_one_place() {
        let mut keyed = Keyed::<usize, ()>::default();
        for _ in 0..1000 {
            let (number, _) = keyed.find_or_insert(7, || ());
            keyed.remove(number).unwrap();
        }
        assert_eq!((keyed.slots.len(), keyed.index.used), (1, 1));
    }

    #[test]
    fn an_empty_map_gives_back_the_memory_of_a_burst() {
        let mut keyed = Keyed::<usize, ()>::default();
        let numbers: Vec<u32> = (0..10_000).map(|key| keyed.find_or_insert(key, || ()).0).collect();
        for number in numbers {
            keyed.remove(number).unwrap();
        }
        assert_eq!((keyed.slots.capacity(), keyed.index.places.capacity()), (0, 0));
    }
}
