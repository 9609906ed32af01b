//! Objects of one kind by name, with inverted indexes: one writer, readers that never wait for a relist.
//!
//! Mirrors client-go `tools/cache/{store,thread_safe_store}.go` (`Store`, `Indexer`, `ThreadSafeStore`).
//! Flow: API server -> reflector -> fifo -> **store** -> listers
//!
//! # How it works
//! A `DashMap` from name to shared object, one more for each index. The writer is not `Clone` and
//! belongs to the pump; a reader locks one shard for the time of one look-up, and so does the writer.
//!
//! # What a reader sees during a write
//! Each object is seen whole, as it was before or as it is after; so is the answer to
//! [`get`](Store::get). While a relist is applied, [`list`](Store::list) may mix objects from before
//! and after it. [`by_index`](Store::by_index) returns only objects that have the value, and misses
//! none that had it before and has it after. [`resource_version`](Store::resource_version) moves last:
//! when it has passed a version, the objects up to that version are there.
//!
//! # Guarantees
//! - Every stored object is in exactly the index sets of its values. (test: `the_store_agrees_with_a_naive_model`)
//! - A reader never sees an object without the value that it asked for. (test: `a_reader_sees_only_objects_that_have_the_value`)
//! - A relist drops what the list does not have, at once. (test: `replace_returns_what_vanished`)
//! - The version follows the last event, bookmark or relist. (test: `the_version_follows_the_last_change`)
//! - A walk visits each object once. (test: `for_each_visits_every_object_once`)
//!
//! # Differences from client-go
//! client-go holds one lock over the whole map, so a relist blocks all readers; ours does not, hence
//! the section above. Indexers are chosen when the store is made. Objects are `Arc`s: no mutation
//! detector is needed.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::RwLock;

use super::index::{Index, Indexers};
use super::object::{Cached, Object};
use super::object_name::ObjectName;

/// Reads the objects of one kind. Cheap to clone.
pub struct Store<K> {
    inner: Arc<Inner<K>>,
}

/// Writes them; there is one, and it is not `Clone`.
pub struct StoreWriter<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    objects: DashMap<ObjectName, Cached<K>, RandomState>,
    indexes: HashMap<&'static str, Index<K>>,
    /// Version of the last change that is in the store.
    resource_version: RwLock<Arc<str>>,
}

/// An index that was not given when the store was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("index with name {0} does not exist")]
pub struct UnknownIndex(String);

/// Makes an empty store: its reader and its one writer.
#[must_use]
pub fn pair<K: Object>(indexers: Indexers<K>) -> (Store<K>, StoreWriter<K>) {
    let functions = indexers.into_functions().into_iter();
    let inner = Arc::new(Inner {
        objects: DashMap::default(),
        indexes: functions.map(|(name, function)| (name, Index::new(function))).collect(),
        resource_version: RwLock::new("".into()),
    });
    (Store { inner: inner.clone() }, StoreWriter { inner })
}

// === impl Store ===

impl<K: Object> Store<K> {
    /// The object of this name.
    #[must_use]
    pub fn get(&self, name: &ObjectName) -> Option<Cached<K>> {
        self.inner.objects.get(name).map(|object| object.value().clone())
    }

    /// All objects, in no particular order.
    #[must_use]
    pub fn list(&self) -> Vec<Cached<K>> {
        self.inner.objects.iter().map(|entry| entry.value().clone()).collect()
    }

    /// All names, in no particular order.
    #[must_use]
    pub fn names(&self) -> Vec<ObjectName> {
        self.inner.objects.iter().map(|entry| entry.key().clone()).collect()
    }

    /// Calls `visit` with every object, in no particular order and without a copy of all. A part of the store is locked
    /// for its writer meanwhile: `visit` must be quick, and must not use this store.
    pub fn for_each(&self, mut visit: impl FnMut(&ObjectName, &Cached<K>)) {
        self.inner.objects.iter().for_each(|entry| visit(entry.key(), entry.value()));
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.objects.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.objects.is_empty()
    }

    /// The objects that have `value` under the index of this name, sorted by name.
    ///
    /// # Errors
    /// [`UnknownIndex`].
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Cached<K>>, UnknownIndex> {
        let index = self.index(index)?;
        // Between the index and the object a write may pass: what lost the value meanwhile is left out.
        let has_value = |object: &Cached<K>| index.values(object).iter().any(|v| v == value);
        let names = index.names(value);
        Ok(names.iter().filter_map(|name| self.get(name)).filter(has_value).collect())
    }

    /// The names of the objects that have `value`, sorted.
    ///
    /// # Errors
    /// [`UnknownIndex`].
    pub fn index_names(&self, index: &str, value: &str) -> Result<Vec<ObjectName>, UnknownIndex> {
        Ok(self.index(index)?.names(value))
    }

    /// The values that at least one object has, in no particular order.
    ///
    /// # Errors
    /// [`UnknownIndex`].
    pub fn index_values(&self, index: &str) -> Result<Vec<String>, UnknownIndex> {
        Ok(self.index(index)?.live_values())
    }

    /// Version of the last change that is in the store; empty before the first list.
    #[must_use]
    pub fn resource_version(&self) -> Arc<str> {
        self.inner.resource_version.read().clone()
    }

    fn index(&self, name: &str) -> Result<&Index<K>, UnknownIndex> {
        self.inner.indexes.get(name).ok_or_else(|| UnknownIndex(name.to_owned()))
    }
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("len", &self.inner.objects.len()).finish_non_exhaustive()
    }
}

// === impl StoreWriter ===

impl<K: Object> StoreWriter<K> {
    /// Stores an object and returns the one that it replaces.
    pub fn upsert(&mut self, object: Cached<K>) -> Option<Cached<K>> {
        let version: Arc<str> = object.resource_version().into();
        let before = self.put(object);
        *self.inner.resource_version.write() = version;
        before
    }

    /// Removes the object of this name and returns it; `resource_version` is that of the deletion.
    pub fn delete(&mut self, name: &ObjectName, resource_version: &str) -> Option<Cached<K>> {
        let before = self.take(name);
        *self.inner.resource_version.write() = resource_version.into();
        before
    }

    /// Stores exactly these objects and returns, sorted by name, what was there and is not among them.
    /// Of two objects of one name the last wins.
    pub fn replace(&mut self, objects: &[Cached<K>], resource_version: &str) -> Vec<Cached<K>> {
        let listed: HashSet<ObjectName> = objects.iter().map(Cached::object_name).collect();
        for object in objects {
            self.put(object.clone());
        }
        let reader = Store { inner: self.inner.clone() };
        let mut vanished: Vec<ObjectName> =
            reader.names().into_iter().filter(|name| !listed.contains(name)).collect();
        vanished.sort();
        let vanished = vanished.iter().filter_map(|name| self.take(name)).collect();
        *self.inner.resource_version.write() = resource_version.into();
        vanished
    }

    /// Notes that the store is as of this version, though no object changed.
    pub fn bookmark(&mut self, resource_version: &str) {
        *self.inner.resource_version.write() = resource_version.into();
    }

    /// New values first, then the object, then the old values away: so a reader of a value that the
    /// object keeps finds it at every moment.
    fn put(&mut self, object: Cached<K>) -> Option<Cached<K>> {
        let name = object.object_name();
        let new: Vec<(&Index<K>, Vec<String>)> =
            self.inner.indexes.values().map(|index| (index, index.values(&object))).collect();
        for (index, values) in &new {
            index.insert(&name, values);
        }
        let before = self.inner.objects.insert(name.clone(), object);
        if let Some(before) = &before {
            for (index, values) in &new {
                let mut gone = index.values(before);
                gone.retain(|value| !values.contains(value));
                index.remove(&name, &gone);
            }
        }
        before
    }

    fn take(&mut self, name: &ObjectName) -> Option<Cached<K>> {
        let (_, before) = self.inner.objects.remove(name)?;
        for index in self.inner.indexes.values() {
            index.remove(name, &index.values(&before));
        }
        Some(before)
    }
}

impl<K> fmt::Debug for StoreWriter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreWriter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
