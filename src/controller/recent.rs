//! A map that drops entries not renewed within its lifetime, without ever scanning them.
//!
//! # How it works
//! Entries live in two generations. Inserted and renewed entries go to the young one. When the young generation is
//! as old as the map's lifetime, it becomes the old one, and the previous old one is dropped as a whole, after the
//! lock is released. Generations age on access: an untouched map keeps its entries.
//!
//! # Guarantees
//! - An entry lives for at least one lifetime and at most two. (test: `an_entry_lives_for_one_to_two_lifetimes`)
//! - The cost of an access does not grow with the number of entries. (test: `access_visits_no_other_entries`)
//! - Expired entries are dropped outside of the lock. (test: `entries_are_dropped_outside_of_the_lock`)
//!
//! Mirrors apimachinery's `util/cache/expiring.go`, which keeps a heap of expiry times.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::time::Instant;

type Map<K, V> = HashMap<K, V, RandomState>;

/// A map with a lifetime for its entries; see the module.
pub(in crate::controller) struct Recent<K, V> {
    lifetime: Duration,
    generations: Mutex<Generations<K, V>>,
}

struct Generations<K, V> {
    young: Map<K, V>,
    old: Map<K, V>,
    /// When the young generation began.
    since: Instant,
}

/// The slot of one key, occupied or not, under the map's lock.
pub(in crate::controller) struct Slot<'a, K, V, Q: ?Sized> {
    generations: &'a mut Generations<K, V>,
    key: &'a Q,
}

// === impl Recent ===

impl<K: Hash + Eq, V> Recent<K, V> {
    pub(in crate::controller) fn new(lifetime: Duration) -> Self {
        let generations = Generations { young: Map::default(), old: Map::default(), since: Instant::now() };
        Self { lifetime, generations: Mutex::new(generations) }
    }

    /// Calls `look` with the slot of `key`, under the lock.
    pub(in crate::controller) fn at<Q: ?Sized, R>(
        &self,
        key: &Q,
        look: impl FnOnce(Slot<'_, K, V, Q>) -> R,
    ) -> R {
        let mut generations = self.generations.lock();
        let over = generations.age(self.lifetime);
        let answer = look(Slot { generations: &mut generations, key });
        drop(generations);

        drop(over);
        answer
    }
}

impl<K, V> Recent<K, V> {
    /// Returns the number of entries, including expired ones that are not dropped yet.
    pub(in crate::controller) fn len(&self) -> usize {
        let generations = self.generations.lock();
        generations.young.len() + generations.old.len()
    }

    #[cfg(test)]
    fn is_locked(&self) -> bool {
        self.generations.is_locked()
    }
}

/// Shows only the number of entries: values may hold long messages from a server.
impl<K, V> fmt::Debug for Recent<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("entries", &self.len()).finish_non_exhaustive()
    }
}

// === impl Generations ===

impl<K, V> Generations<K, V> {
    /// Starts a new generation if the young one is old enough; returns the expired ones.
    fn age(&mut self, lifetime: Duration) -> [Map<K, V>; 2] {
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

impl<'a, K, V, Q> Slot<'a, K, V, Q>
where
    K: Borrow<Q> + Hash + Eq,
    Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
{
    pub(in crate::controller) fn get(self) -> Option<&'a V> {
        let Generations { young, old, .. } = self.generations;
        young.get(self.key).or_else(|| old.get(self.key))
    }

    /// Returns the entry for changes, without renewing it.
    pub(in crate::controller) fn get_mut(self) -> Option<&'a mut V> {
        let Generations { young, old, .. } = self.generations;
        young.get_mut(self.key).or_else(|| old.get_mut(self.key))
    }

    /// Renews and returns the entry; inserts the result of `make` if it is missing.
    pub(in crate::controller) fn renewed(self, make: impl FnOnce() -> V) -> &'a mut V {
        let Generations { young, old, .. } = self.generations;
        young.entry(self.key.to_owned()).or_insert_with(|| old.remove(self.key).unwrap_or_else(make))
    }

    /// Inserts an entry; returns the replaced one, to be dropped after the lock is released.
    pub(in crate::controller) fn insert(self, value: V) -> Option<V> {
        let before = self.generations.old.remove(self.key);
        self.generations.young.insert(self.key.to_owned(), value).or(before)
    }

    /// Removes and returns the entry.
    pub(in crate::controller) fn remove(self) -> Option<V> {
        let Generations { young, old, .. } = self.generations;
        young.remove(self.key).or_else(|| old.remove(self.key))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(100);
    const SECOND: Duration = Duration::from_secs(1);

    fn has(recent: &Recent<String, u32>, name: &str) -> bool {
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
    async fn renewed_entry_starts_a_new_lifetime() {
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

    /// Counts all drops, and those under the lock.
    struct Witness(Arc<Witnessed>);

    /// A key that counts how often it is hashed.
    #[derive(Clone)]
    struct Key(usize, Arc<AtomicUsize>);

    impl Hash for Key {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.hash(state);
        }
    }

    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    impl Eq for Key {}

    /// A key beside those of [`witnessed`].
    fn another(hashed: &Arc<AtomicUsize>) -> Key {
        Key(usize::MAX, hashed.clone())
    }

    #[derive(Default)]
    struct Witnessed {
        recent: std::sync::OnceLock<Arc<Recent<Key, Witness>>>,
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

    fn witnessed(entries: usize) -> (Arc<Recent<Key, Witness>>, Arc<Witnessed>) {
        let (recent, seen) = (Arc::new(Recent::new(LIFETIME)), Arc::new(Witnessed::default()));
        assert!(seen.recent.set(recent.clone()).is_ok());
        let hashed = Arc::default();
        for at in 0..entries {
            recent.at(&Key(at, Arc::clone(&hashed)), |slot| slot.insert(Witness(seen.clone())));
        }
        (recent, seen)
    }

    #[tokio::test(start_paused = true)]
    async fn entries_are_dropped_outside_of_the_lock() {
        for entries in [1_000, 100_000] {
            let (recent, seen) = witnessed(entries);
            tokio::time::advance(LIFETIME).await;
            recent.at(&another(&Arc::default()), |slot| assert!(slot.get().is_none()));
            assert_eq!(seen.dropped.load(Ordering::Relaxed), 0, "the entries are in the old generation");
            tokio::time::advance(LIFETIME).await;
            recent.at(&another(&Arc::default()), |slot| assert!(slot.get().is_none()));
            assert_eq!(seen.dropped.load(Ordering::Relaxed), entries);
            assert_eq!((seen.under_the_lock.load(Ordering::Relaxed), recent.len()), (0, 0));
        }
    }

    /// Counts how often keys are hashed and entries are dropped under the lock.
    #[tokio::test(start_paused = true)]
    async fn access_visits_no_other_entries() {
        for entries in [1_000, 100_000] {
            let (recent, seen) = witnessed(entries);
            let hashed = Arc::<AtomicUsize>::default();
            for _ in 0..3 {
                recent.at(&another(&hashed), |slot| slot.insert(Witness(seen.clone())));
                recent.at(&another(&hashed), |slot| assert!(slot.get_mut().is_some()));
                recent.at(&another(&hashed), |slot| slot.remove());
                assert_eq!(seen.under_the_lock.load(Ordering::Relaxed), 0);
                tokio::time::advance(LIFETIME).await;
            }
            let hashed = hashed.load(Ordering::Relaxed);
            assert!(hashed <= 9 * 3, "each access hashes its own key, at most once per generation: {hashed}");
            let room = recent.generations.lock().young.capacity();
            assert!(room < 64, "the capacity of the dropped entries is released: {room}");
        }
    }

    impl<K, V> Recent<K, V> {
        /// Returns the capacity of both generations.
        fn room(&self) -> usize {
            let generations = self.generations.lock();
            generations.young.capacity() + generations.old.capacity()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn expired_map_releases_its_memory() {
        let (recent, _) = witnessed(100_000);
        assert!(recent.room() >= 100_000);
        tokio::time::advance(2 * LIFETIME).await;
        recent.at(&another(&Arc::default()), |slot| assert!(slot.get().is_none()));
        assert_eq!(recent.room(), 0);
    }
}
