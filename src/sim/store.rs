//! What is stored: objects, one version counter over all of them, and a window of past changes.
//!
//! Plays etcd and the watch cache. A version from before the window is gone for good: who asks for it is
//! told 410, as after a compaction. A list that comes in pages keeps the version of its first page for minutes,
//! however many changes the window has forgotten since.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::kinds::Resource;

/// How long a list may take to ask for its next page: a real server compacts etcd every five minutes.
const PAGED_FOR: Duration = Duration::from_secs(300);

/// How many lists may be between two pages; beyond that the oldest depend on the window.
const PAGED_MAX: usize = 32;

/// Namespace (empty for kinds without) and name.
pub(super) type Key = (String, String);

/// One change of one object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) resource: Resource,
    pub(super) key: Key,
    /// What was there.
    pub(super) before: Option<Arc<Value>>,
    /// What is there now.
    pub(super) after: Option<Arc<Value>>,
}

/// A collection at some version.
pub(super) type Collection = BTreeMap<Key, Arc<Value>>;

/// A collection that a list returns in pages.
#[derive(Debug)]
struct Paged {
    resource: Resource,
    version: u64,
    all: Arc<Collection>,
    until: Duration,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Store {
    version: u64,
    collections: BTreeMap<Resource, Collection>,
    window: VecDeque<Change>,
    window_limit: usize,
    /// The oldest version from which changes can still be followed.
    oldest: u64,
    /// The version of the newest change of each resource that is forgotten.
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

    /// The version of the last change.
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

    /// Everything that is stored.
    pub(super) fn everything(&self) -> impl Iterator<Item = (&Resource, &Key, &Arc<Value>)> {
        self.collections.iter().flat_map(|(resource, all)| all.iter().map(move |(key, o)| (resource, key, o)))
    }

    /// Stores an object, stamped with the next version; returns what is now stored.
    pub(super) fn put(&mut self, resource: &Resource, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let before =
            self.collections.entry(resource.clone()).or_default().insert(key.clone(), object.clone());
        self.remember(resource, key, before, Some(object.clone()));
        object
    }

    /// Removes an object; returns its last state, stamped with the version of the deletion.
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

    /// Brings back the objects of a version, and counts on from it; whether that could be done.
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

    /// Forgets the history: from now on only the present version can be followed.
    pub(super) fn compact(&mut self) {
        self.paged.clear();
        for change in self.window.drain(..) {
            self.forgotten.insert(change.resource, change.version);
        }
        self.oldest = self.version;
    }

    /// The last change.
    pub(super) fn last_change(&self) -> Option<&Change> {
        self.window.back()
    }

    /// The changes of a collection behind a version, oldest first; `None` when one of them is forgotten.
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

    /// A collection as it was at a version, by undoing what came later; `None` when that is forgotten.
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

    /// Keeps a collection for the later pages of a list that began at `now`.
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

    /// The collection of a list's later page; `None` when its version is forgotten.
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

    /// Names and versions.
    fn shown(collection: Option<Collection>) -> Option<Vec<String>> {
        let one = |((_, name), object): (Key, Arc<Value>)| {
            format!("{name}{}", object["metadata"]["resourceVersion"].as_str().unwrap())
        };
        collection.map(|all| all.into_iter().map(one).collect())
    }

    #[test]
    fn a_past_version_is_what_it_was_until_it_is_forgotten() {
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
    fn only_a_resources_own_changes_are_missed() {
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
