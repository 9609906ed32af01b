//! The store of objects: collections, one version counter for all of them, and a window of past changes.
//!
//! Plays etcd and the watch cache. A version older than the window is answered with 410, as after a
//! compaction. A paged list keeps the version of its first page for five minutes, however many changes the
//! window has forgotten since.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::kinds::Resource;

/// How long a paged list can be continued: a real server compacts etcd every five minutes.
const PAGED_FOR: Duration = Duration::from_secs(300);

/// The number of paged lists kept; the oldest ones beyond it depend on the window.
const PAGED_MAX: usize = 32;

/// Namespace (empty for cluster-scoped kinds) and name.
pub(super) type Key = (String, String);

/// One change of one object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) resource: Resource,
    pub(super) key: Key,
    /// The object before; `None` for a creation.
    pub(super) before: Option<Arc<Value>>,
    /// The object after; `None` for a deletion.
    pub(super) after: Option<Arc<Value>>,
}

/// A collection at some version.
pub(super) type Collection = BTreeMap<Key, Arc<Value>>;

/// A collection kept for the next pages of a list.
#[derive(Clone, Debug)]
struct Paged {
    resource: Resource,
    version: u64,
    all: Arc<Collection>,
    until: Duration,
}

/// Objects and their recent history; see the module.
#[derive(Clone, Debug)]
pub(super) struct Store {
    version: u64,
    collections: BTreeMap<Resource, Collection>,
    window: VecDeque<Change>,
    window_limit: usize,
    /// The oldest version from which changes are known.
    oldest: u64,
    /// The version of the newest forgotten change of each resource.
    forgotten: BTreeMap<Resource, u64>,
    /// Oldest first.
    paged: VecDeque<Paged>,
}

// === impl Store ===

impl Store {
    pub(super) fn new(window_limit: usize) -> Self {
        Self {
            version: 1,
            collections: BTreeMap::new(),
            window: VecDeque::new(),
            window_limit: window_limit.max(1),
            oldest: 1,
            forgotten: BTreeMap::new(),
            paged: VecDeque::new(),
        }
    }

    /// Returns the version of the last change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(super) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.collections.get(resource)?.get(&(namespace.to_owned(), name.to_owned()))
    }

    pub(super) fn collection(&self, resource: &Resource) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.collections.get(resource).into_iter().flatten()
    }

    /// Iterates over all stored objects.
    pub(super) fn everything(&self) -> impl Iterator<Item = (&Resource, &Key, &Arc<Value>)> {
        self.collections.iter().flat_map(|(resource, all)| all.iter().map(move |(key, o)| (resource, key, o)))
    }

    /// Stores an object under the next version and returns it.
    pub(super) fn put(&mut self, resource: &Resource, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let before =
            self.collections.entry(resource.clone()).or_default().insert(key.clone(), object.clone());
        self.remember(resource, key, before, Some(object.clone()));
        object
    }

    /// Removes an object; returns its last state with the version of the deletion.
    pub(super) fn remove(&mut self, resource: &Resource, key: &Key) -> Option<Arc<Value>> {
        let before = self.collections.get_mut(resource)?.remove(key)?;
        self.version += 1;
        let mut last = Value::clone(&before);
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.remember(resource, key.clone(), Some(before), None);
        Some(Arc::new(last))
    }

    fn remember(
        &mut self,
        resource: &Resource,
        key: Key,
        before: Option<Arc<Value>>,
        after: Option<Arc<Value>>,
    ) {
        if self.window.len() == self.window_limit
            && let Some(dropped) = self.window.pop_front()
        {
            self.oldest = dropped.version;
            self.forgotten.insert(dropped.resource, dropped.version);
        }
        self.window.push_back(Change {
            version: self.version,
            resource: resource.clone(),
            key,
            before,
            after,
        });
    }

    /// Restores the objects of a version and continues counting from it; returns false if it is forgotten.
    pub(super) fn roll_back(&mut self, version: u64) -> bool {
        if version < self.oldest || version > self.version {
            return false;
        }
        let resources: Vec<Resource> = self.collections.keys().cloned().collect();
        for resource in resources {
            let past = self.collection_at(&resource, version).unwrap_or_default();
            self.collections.insert(resource, past);
        }
        self.version = version;
        self.window.retain(|change| change.version <= version);
        self.compact();
        true
    }

    /// Forgets the history: changes can be followed from the present version only.
    pub(super) fn compact(&mut self) {
        self.paged.clear();
        for change in self.window.drain(..) {
            self.forgotten.insert(change.resource, change.version);
        }
        self.oldest = self.version;
    }

    /// Returns the last change.
    pub(super) fn last_change(&self) -> Option<&Change> {
        self.window.back()
    }

    /// Returns the changes of a collection after a version, oldest first; `None` if one of them is forgotten.
    pub(super) fn changes_since(
        &self,
        resource: &Resource,
        version: u64,
    ) -> Option<impl Iterator<Item = &Change> + use<'_>> {
        if self.forgotten.get(resource).is_some_and(|newest| version < *newest) {
            return None;
        }
        let first = self.window.partition_point(|change| change.version <= version);
        let resource = resource.clone();
        Some(self.window.range(first..).filter(move |change| change.resource == resource))
    }

    /// Returns a collection at a version by undoing later changes; `None` if that version is forgotten.
    pub(super) fn collection_at(&self, resource: &Resource, version: u64) -> Option<Collection> {
        if version < self.oldest {
            return None;
        }
        let later: Vec<&Change> = self.changes_since(resource, version)?.collect();
        let mut collection = self.collections.get(resource).cloned().unwrap_or_default();
        for change in later.into_iter().rev() {
            match &change.before {
                Some(before) => collection.insert(change.key.clone(), before.clone()),
                None => collection.remove(&change.key),
            };
        }
        Some(collection)
    }

    /// Keeps a collection for the next pages of a list that began at `now`.
    pub(super) fn keep_paged(
        &mut self,
        resource: &Resource,
        version: u64,
        all: &Arc<Collection>,
        now: Duration,
    ) {
        self.paged.retain(|paged| paged.until > now);
        if self.paged.iter().any(|paged| paged.version == version && paged.resource == *resource) {
            return;
        }
        if self.paged.len() == PAGED_MAX {
            self.paged.pop_front();
        }
        let (resource, all, until) = (resource.clone(), all.clone(), now + PAGED_FOR);
        self.paged.push_back(Paged { resource, version, all, until });
    }

    /// Returns the collection for a list's next page; `None` if its version is forgotten.
    pub(super) fn paged(&self, resource: &Resource, version: u64, now: Duration) -> Option<Arc<Collection>> {
        let is_it =
            |paged: &&Paged| paged.version == version && paged.resource == *resource && paged.until > now;
        let kept = self.paged.iter().find(is_it).map(|paged| paged.all.clone());
        kept.or_else(|| self.collection_at(resource, version).map(Arc::new))
    }
}

#[cfg(test)]
mod tests {
    use super::super::kinds::resource;
    use super::*;

    fn key(name: &str) -> Key {
        ("default".to_owned(), name.to_owned())
    }

    /// Formats a collection as names with versions.
    fn shown(collection: Option<Collection>) -> Option<Vec<String>> {
        let one = |((_, name), object): (Key, Arc<Value>)| {
            format!("{name}{}", object["metadata"]["resourceVersion"].as_str().unwrap())
        };
        collection.map(|all| all.into_iter().map(one).collect())
    }

    #[test]
    fn past_version_is_readable_until_forgotten() {
        let foos = resource("example.com", "foos");
        let mut store = Store::new(3);
        store.put(&foos, key("a"), json!({"metadata": {}}));
        store.put(&foos, key("b"), json!({"metadata": {}}));
        store.remove(&foos, &key("a"));
        let at = |store: &Store, version| shown(store.collection_at(&foos, version));
        assert_eq!(at(&store, 1), Some(vec![]));
        assert_eq!(at(&store, 3), Some(vec!["a2".to_owned(), "b3".to_owned()]));
        assert_eq!(at(&store, 4), Some(vec!["b3".to_owned()]));
        store.put(&foos, key("c"), json!({"metadata": {}}));
        assert_eq!(at(&store, 1), None, "the window holds three changes");
        store.compact();
        assert_eq!(at(&store, 4), None);
        assert_eq!(at(&store, 5), Some(vec!["b3".to_owned(), "c5".to_owned()]));
    }

    #[test]
    fn forgotten_changes_of_other_resources_are_not_missed() {
        let (foos, bars) = (resource("example.com", "foos"), resource("example.com", "bars"));
        let mut store = Store::new(1);
        store.put(&foos, key("a"), json!({"metadata": {}}));
        store.put(&bars, key("a"), json!({"metadata": {}}));
        store.put(&bars, key("b"), json!({"metadata": {}}));
        let follows = |store: &Store, resource, version| store.changes_since(resource, version).is_some();
        assert!(follows(&store, &foos, 2) && !follows(&store, &foos, 1));
        assert!(follows(&store, &bars, 3) && !follows(&store, &bars, 2));
    }
}
