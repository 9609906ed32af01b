//! A map that forgets what was not renewed for a while, without ever looking through its entries.
//!
//! # How it works
//! There are two generations. What is inserted or renewed is young. When the young generation has reached the map's
//! lifetime, it becomes the old one, and the old one is dropped as a whole, after the lock is released. A map that
//! nobody touches keeps what it has until the next access.
//!
//! Names are not kept: an entry is found by a seeded hash of 64 bits.
//!
//! # Guarantees
//! - An entry lives for the lifetime at least, and twice that at most. (test: `an_entry_lives_for_one_to_two_lifetimes`)
//! - An access costs the same beside 1,000 entries and beside 100,000. (test: `no_access_visits_other_entries`)
//! - What is over is dropped outside of the lock. (test: `entries_are_dropped_outside_of_the_lock`)
//!
//! Mirrors apimachinery's `util/cache/expiring.go`, which keeps a heap of expiry times.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::time::Instant;

type Map<V> = HashMap<u64, V, RandomState>;

/// See the module.
pub(in crate::controller) struct Recent<V> {
    lifetime: Duration,
    hasher: RandomState,
    generations: Mutex<Generations<V>>,
}

struct Generations<V> {
    young: Map<V>,
    old: Map<V>,
    /// When the young generation began.
    since: Instant,
}

/// The place of one name in the map, under the map's lock.
pub(in crate::controller) struct Slot<'a, V> {
    generations: &'a mut Generations<V>,
    key: u64,
}

// === impl Recent ===

impl<V> Recent<V> {
    pub(in crate::controller) fn new(lifetime: Duration) -> Self {
        let generations = Generations { young: Map::default(), old: Map::default(), since: Instant::now() };
        Self { lifetime, hasher: RandomState::default(), generations: Mutex::new(generations) }
    }

    /// Looks at the place of this name, under the lock.
    pub(in crate::controller) fn at<R>(
        &self,
        name: &(impl Hash + ?Sized),
        look: impl FnOnce(Slot<'_, V>) -> R,
    ) -> R {
        let key = self.hasher.hash_one(name);
        let mut generations = self.generations.lock();
        let over = generations.age(self.lifetime);
        let answer = look(Slot { generations: &mut generations, key });
        drop(generations);

        drop(over);
        answer
    }

    /// How many entries there are, with those that are over and not dropped yet.
    pub(in crate::controller) fn len(&self) -> usize {
        let generations = self.generations.lock();
        generations.young.len() + generations.old.len()
    }

    #[cfg(test)]
    fn is_locked(&self) -> bool {
        self.generations.is_locked()
    }
}

/// The number alone: what a server says may be long.
impl<V> fmt::Debug for Recent<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("entries", &self.len()).finish_non_exhaustive()
    }
}

// === impl Generations ===

impl<V> Generations<V> {
    /// Begins a generation when the young one is old enough; returns what is over.
    fn age(&mut self, lifetime: Duration) -> [Map<V>; 2] {
        let age = self.since.elapsed();
        if age < lifetime {
            return [Map::default(), Map::default()];
        }
        self.since = Instant::now();
        let old = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        let young = if age >= 2 * lifetime { std::mem::take(&mut self.old) } else { Map::default() };
        [old, young]
    }
}

// === impl Slot ===

impl<'a, V> Slot<'a, V> {
    pub(in crate::controller) fn get(self) -> Option<&'a V> {
        let Generations { young, old, .. } = self.generations;
        young.get(&self.key).or_else(|| old.get(&self.key))
    }

    /// The entry, to be changed; this does not renew it.
    pub(in crate::controller) fn get_mut(self) -> Option<&'a mut V> {
        let Generations { young, old, .. } = self.generations;
        young.get_mut(&self.key).or_else(|| old.get_mut(&self.key))
    }

    /// The entry, made if it is missing, with its life begun anew.
    pub(in crate::controller) fn renewed(self, make: impl FnOnce() -> V) -> &'a mut V {
        let Generations { young, old, .. } = self.generations;
        young.entry(self.key).or_insert_with(|| old.remove(&self.key).unwrap_or_else(make))
    }

    /// Puts in an entry; returns the one that it replaces, to be dropped after the lock is released.
    pub(in crate::controller) fn insert(self, value: V) -> Option<V> {
        let before = self.generations.old.remove(&self.key);
        self.generations.young.insert(self.key, value).or(before)
    }

    /// Takes out the entry.
    pub(in crate::controller) fn remove(self) -> Option<V> {
        let Generations { young, old, .. } = self.generations;
        young.remove(&self.key).or_else(|| old.remove(&self.key))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(100);
    const SECOND: Duration = Duration::from_secs(1);

    fn has(recent: &Recent<u32>, name: &str) -> bool {
        recent.at(name, |slot| slot.get().is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_lives_for_one_to_two_lifetimes() {
        for late in [0, 1, 50, 99] {
            let recent = Recent::new(LIFETIME);
            tokio::time::advance(late * SECOND).await;
            recent.at("a", |slot| slot.insert(1));
            tokio::time::advance(LIFETIME - SECOND).await;
            assert!(has(&recent, "a"), "{late}");
            tokio::time::advance(LIFETIME + SECOND).await;
            assert!(!has(&recent, "a"), "{late}");
            assert_eq!(recent.len(), 0, "{late}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewed_entry_begins_its_life_anew() {
        let recent = Recent::new(LIFETIME);
        recent.at("a", |slot| slot.insert(1));
        for _ in 0..100 {
            tokio::time::advance(LIFETIME * 9 / 10).await;
            recent.at("a", |slot| *slot.renewed(|| 0) += 1);
        }
        assert_eq!(recent.at("a", |slot| slot.get().copied()), Some(101));
        tokio::time::advance(3 * LIFETIME).await;
        assert_eq!(recent.at("a", |slot| *slot.renewed(|| 7)), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_removed_entry_is_gone_from_both_generations() {
        let recent = Recent::new(LIFETIME);
        for age in [Duration::ZERO, LIFETIME] {
            recent.at("a", |slot| slot.insert(1));
            tokio::time::advance(age).await;
            recent.at("a", |slot| slot.remove());
            assert_eq!((has(&recent, "a"), recent.len()), (false, 0));
        }
        recent.at("a", |slot| slot.insert(1));
        tokio::time::advance(LIFETIME).await;
        recent.at("a", |slot| slot.insert(2));
        assert_eq!((recent.at("a", |slot| slot.get().copied()), recent.len()), (Some(2), 1));
    }

    /// Counts drops, and those under the lock.
    struct Witness(Arc<Witnessed>);

    #[derive(Default)]
    struct Witnessed {
        recent: std::sync::OnceLock<Arc<Recent<Witness>>>,
        dropped: AtomicUsize,
        under_the_lock: AtomicUsize,
    }

    impl Drop for Witness {
        fn drop(&mut self) {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            if self.0.recent.get().is_some_and(|recent| recent.is_locked()) {
                self.0.under_the_lock.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn witnessed(entries: usize) -> (Arc<Recent<Witness>>, Arc<Witnessed>) {
        let (recent, seen) = (Arc::new(Recent::new(LIFETIME)), Arc::new(Witnessed::default()));
        assert!(seen.recent.set(recent.clone()).is_ok());
        for at in 0..entries {
            recent.at(&at, |slot| slot.insert(Witness(seen.clone())));
        }
        (recent, seen)
    }

    #[tokio::test(start_paused = true)]
    async fn entries_are_dropped_outside_of_the_lock() {
        for entries in [1_000, 100_000] {
            let (recent, seen) = witnessed(entries);
            tokio::time::advance(LIFETIME).await;
            recent.at("another", |slot| assert!(slot.get().is_none()));
            assert_eq!(seen.dropped.load(Ordering::Relaxed), 0, "they are old");
            tokio::time::advance(LIFETIME).await;
            recent.at("another", |slot| assert!(slot.get().is_none()));
            assert_eq!(seen.dropped.load(Ordering::Relaxed), entries);
            assert_eq!((seen.under_the_lock.load(Ordering::Relaxed), recent.len()), (0, 0));
        }
    }

    /// A name whose hashing and comparing is counted: a map that looks at other entries hashes or compares them.
    #[tokio::test(start_paused = true)]
    async fn no_access_visits_other_entries() {
        struct Name<'a>(&'a AtomicUsize);
        impl Hash for Name<'_> {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.0.fetch_add(1, Ordering::Relaxed);
                0_u8.hash(state);
            }
        }
        for entries in [1_000, 100_000] {
            let (recent, seen) = witnessed(entries);
            let hashed = AtomicUsize::new(0);
            for _ in 0..3 {
                recent.at(&Name(&hashed), |slot| slot.insert(Witness(seen.clone())));
                recent.at(&Name(&hashed), |slot| assert!(slot.get_mut().is_some()));
                recent.at(&Name(&hashed), |slot| slot.remove());
                assert_eq!(seen.under_the_lock.load(Ordering::Relaxed), 0);
                tokio::time::advance(LIFETIME).await;
            }
            assert_eq!(hashed.load(Ordering::Relaxed), 9, "each access hashes its own name");
            let room = recent.generations.lock().young.capacity();
            assert!(room < 64, "the memory of the many is given back: {room}");
        }
    }

    impl<V> Recent<V> {
        /// The room of both generations.
        fn room(&self) -> usize {
            let generations = self.generations.lock();
            generations.young.capacity() + generations.old.capacity()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_map_that_is_over_gives_back_its_memory() {
        let (recent, _) = witnessed(100_000);
        assert!(recent.room() >= 100_000);
        tokio::time::advance(2 * LIFETIME).await;
        recent.at("another", |slot| assert!(slot.get().is_none()));
        assert_eq!(recent.room(), 0);
    }
}
