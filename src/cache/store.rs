//! A store of objects by name with inverted indexes: one writer, and readers that never wait for a relist.
//!
//! Mirrors client-go `tools/cache/{store,thread_safe_store}.go` (`Store`, `Indexer`, `ThreadSafeStore`).
//! Flow: API server -> reflector -> fifo -> **store** -> listers
//! Chapter 3 of `docs/book` builds this from nothing.
//!
//! # How it works
//! One `DashMap` maps names to shared objects, and each index is another. The writer is not `Clone` and
//! belongs to the pump. Readers and writer lock one shard for the duration of one look-up.
//!
//! # What a reader sees during a write
//! A reader sees each object entirely as it was before or after the write. While a relist is applied,
//! [`list`](Store::list) may mix objects from before and after it. [`by_index`](Store::by_index) returns
//! only objects that have the value, and every object that has it both before and after the write.
//! [`resource_version`](Store::resource_version) is updated last: once it has passed a version, the
//! objects up to that version are visible.
//!
//! # Guarantees
//! - Every stored object is in exactly the index sets of its values. (test: `the_store_agrees_with_a_naive_model`)
//! - An index lookup never returns an object without the requested value. (test: `lookup_returns_only_objects_with_the_value`)
//! - The version follows the last event, bookmark or relist. (test: `the_version_follows_the_last_change`)
//! - [`for_each`](Store::for_each) visits each object once. (test: `for_each_visits_every_object_once`)
//!
//! # Differences from client-go
//! client-go holds one lock over the whole map, so a relist blocks all readers; here it does not, hence
//! the section above. Objects are `Arc`s, so no mutation detector is needed.

pub mod fifo;
pub mod index;
pub mod listers;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use parking_lot::RwLock;

use self::index::{Index, IndexConflict, Indexers};
use super::object::Object;
use super::object::cached::Cached;
use super::object::decode::Identity;
use super::object::object_name::ObjectName;

/// Reads the objects of one kind. Cheap to clone.
pub struct Store<K> {
    inner: Arc<Inner<K>>,
}

/// The only writer of a store; not `Clone`.
pub struct StoreWriter<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    objects: DashMap<ObjectName, Cached<K>, RandomState>,
    /// A set that is replaced as a whole when an index is added.
    indexes: RwLock<Arc<Indexes<K>>>,
    /// Version of the last change in the store.
    resource_version: RwLock<Arc<str>>,
}

type Indexes<K> = BTreeMap<&'static str, Arc<Index<K>>>;

/// The store has no such index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("index with name {0} does not exist")]
pub struct UnknownIndex(String);

/// Creates an empty store and returns its reader and its only writer.
#[must_use]
pub fn pair<K: Object>(indexers: Indexers<K>) -> (Store<K>, StoreWriter<K>) {
    let functions = indexers.into_functions().into_iter();
    let indexes = functions.map(|(name, indexer)| (name, Arc::new(Index::new(indexer)))).collect();
    let inner = Arc::new(Inner {
        objects: DashMap::default(),
        indexes: RwLock::new(Arc::new(indexes)),
        resource_version: RwLock::new("".into()),
    });
    (Store { inner: inner.clone() }, StoreWriter { inner })
}

// === impl Store ===

impl<K: Object> Store<K> {
    /// Returns the object with this name.
    #[must_use]
    pub fn get(&self, name: &ObjectName) -> Option<Cached<K>> {
        self.inner.objects.get(name).map(|object| object.value().clone())
    }

    /// Returns the name of the object that has this identity, in this version.
    pub(crate) fn has_version(&self, identity: &Identity<'_>) -> Option<ObjectName> {
        let name = ObjectName::new(identity.namespace.as_deref(), &identity.name);
        let stored = self.inner.objects.get(&name)?;
        let is_same = stored.resource_version() == identity.resource_version && stored.uid() == identity.uid;
        is_same.then(|| stored.key().clone())
    }

    /// Returns all objects, in no particular order.
    #[must_use]
    pub fn list(&self) -> Vec<Cached<K>> {
        self.inner.objects.iter().map(|entry| entry.value().clone()).collect()
    }

    /// Returns all names, in no particular order.
    #[must_use]
    pub fn names(&self) -> Vec<ObjectName> {
        self.inner.objects.iter().map(|entry| entry.key().clone()).collect()
    }

    /// Calls `visit` with every object, in no particular order and without copying them all. A shard of the store is
    /// locked against writes meanwhile: `visit` must be quick, and must not use this store.
    pub fn for_each(&self, mut visit: impl FnMut(&ObjectName, &Cached<K>)) {
        self.inner.objects.iter().for_each(|entry| visit(entry.key(), entry.value()));
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.objects.len()
    }

    /// Returns whether the store has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.objects.is_empty()
    }

    /// Returns the objects that have `value` in `index`, sorted by name.
    ///
    /// # Errors
    /// [`UnknownIndex`] if there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Cached<K>>, UnknownIndex> {
        let index = self.index(index)?;
        // A write may happen between the two look-ups: leave out objects that have lost the value.
        let has_value = |object: &Cached<K>| index.values(object).iter().any(|v| v == value);
        let names = index.names(value);
        Ok(names.iter().filter_map(|name| self.get(name)).filter(has_value).collect())
    }

    /// Returns the names of the objects that have `value` in `index`, sorted.
    ///
    /// # Errors
    /// [`UnknownIndex`] if there is no such index.
    pub fn index_names(&self, index: &str, value: &str) -> Result<Vec<ObjectName>, UnknownIndex> {
        Ok(self.index(index)?.names(value))
    }

    /// Returns the values that at least one object has, in no particular order.
    ///
    /// # Errors
    /// [`UnknownIndex`] if there is no such index.
    pub fn index_values(&self, index: &str) -> Result<Vec<String>, UnknownIndex> {
        Ok(self.index(index)?.live_values())
    }

    /// Returns the version of the last change in the store; empty before the first list.
    #[must_use]
    pub fn resource_version(&self) -> Arc<str> {
        self.inner.resource_version.read().clone()
    }

    fn index(&self, name: &str) -> Result<Arc<Index<K>>, UnknownIndex> {
        self.inner.indexes.read().get(name).cloned().ok_or_else(|| UnknownIndex(name.to_owned()))
    }

    /// Adds indexes over the stored objects; all of them or none. One that exists with the same function is kept. The
    /// caller holds the delivery lock, so that nothing is written meanwhile.
    pub(super) fn add_indexers(&self, indexers: Indexers<K>) -> Result<(), IndexConflict> {
        let before = self.inner.indexes.read().clone();
        let mut indexes = (*before).clone();
        for (name, indexer) in indexers.into_functions() {
            match indexes.get(name) {
                Some(existing) if existing.is_of(indexer.id) => {}
                Some(_) => return Err(IndexConflict(name)),
                None => {
                    let index = Index::new(indexer);
                    self.for_each(|name, object| index.insert(name, &index.values(object)));
                    indexes.insert(name, Arc::new(index));
                }
            }
        }
        *self.inner.indexes.write() = Arc::new(indexes);
        Ok(())
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
    /// Returns a reader of the store.
    #[must_use]
    pub fn reader(&self) -> Store<K> {
        Store { inner: self.inner.clone() }
    }

    /// Stores an object and returns the one that it replaces.
    pub fn upsert(&mut self, object: Cached<K>) -> Option<Cached<K>> {
        let version: Arc<str> = object.resource_version().into();
        let before = self.put(object);
        *self.inner.resource_version.write() = version;
        before
    }

    /// Removes the object with this name and returns it; `resource_version` is that of the deletion.
    pub fn delete(&mut self, name: &ObjectName, resource_version: &str) -> Option<Cached<K>> {
        let before = self.remove(name);
        self.set_resource_version(resource_version);
        before
    }

    /// Sets the version of the store.
    pub fn set_resource_version(&mut self, resource_version: &str) {
        *self.inner.resource_version.write() = resource_version.into();
    }

    /// Like [`upsert`](Self::upsert), but leaves the version of the store: a relist sets it at its end.
    ///
    /// Inserts the new index values, then the object, then removes the old values, so that a lookup by a
    /// value that the object keeps always finds the object.
    pub fn put(&mut self, object: Cached<K>) -> Option<Cached<K>> {
        let name = object.object_name();
        let indexes = self.inner.indexes.read().clone();
        let new: Vec<(&Index<K>, Vec<String>)> =
            indexes.values().map(|index| (&**index, index.values(&object))).collect();
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

    /// Removes an object, but leaves the version of the store.
    pub fn remove(&mut self, name: &ObjectName) -> Option<Cached<K>> {
        let (_, before) = self.inner.objects.remove(name)?;
        let indexes = self.inner.indexes.read().clone();
        for index in indexes.values() {
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
