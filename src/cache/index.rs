//! Inverted indexes: map a value to the objects that have it.
//!
//! Mirrors client-go `tools/cache/index.go`.
//!
//! # Guarantees
//! - A value is removed with its last object. (test: `delete_removes_empty_sets_from_the_index`)
//! - An object may have several values, and they may change. (test: `an_object_may_have_several_values`)

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use dashmap::DashMap;
use foldhash::fast::RandomState;

use super::object::{Cached, Object};
use super::object_name::ObjectName;

/// Name of the index of objects by the uid of their controlling owner.
pub const OWNER_UID: &str = "owner-uid";

/// Returns the values of an object in one index. It must be pure and must not panic: it runs while the
/// store is being written.
pub type IndexFn<K> = Box<dyn Fn(&Cached<K>) -> Vec<String> + Send + Sync>;

/// Named index functions, fixed when the store is created. The default contains [`OWNER_UID`].
pub struct Indexers<K> {
    functions: HashMap<&'static str, IndexFn<K>>,
}

// === impl Indexers ===

impl<K: Object> Indexers<K> {
    /// Adds an index.
    ///
    /// # Panics
    /// If an index of this name exists.
    #[must_use]
    pub fn with(
        mut self,
        name: &'static str,
        function: impl Fn(&Cached<K>) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let before = self.functions.insert(name, Box::new(function));
        assert!(before.is_none(), "an index named {name:?} already exists");
        self
    }

    pub(crate) fn into_functions(self) -> HashMap<&'static str, IndexFn<K>> {
        self.functions
    }
}

impl<K: Object> Default for Indexers<K> {
    fn default() -> Self {
        Self { functions: HashMap::new() }.with(OWNER_UID, |object: &Cached<K>| {
            object.controller().map(|owner| owner.uid.to_owned()).into_iter().collect()
        })
    }
}

impl<K> fmt::Debug for Indexers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.functions.keys()).finish()
    }
}

/// One inverted index. Only the store's writer changes it.
pub(crate) struct Index<K> {
    function: IndexFn<K>,
    /// Never holds an empty set.
    names: DashMap<String, BTreeSet<ObjectName>, RandomState>,
}

impl<K: Object> Index<K> {
    pub(crate) fn new(function: IndexFn<K>) -> Self {
        Self { function, names: DashMap::default() }
    }

    pub(crate) fn values(&self, object: &Cached<K>) -> Vec<String> {
        (self.function)(object)
    }

    pub(crate) fn names(&self, value: &str) -> Vec<ObjectName> {
        self.names.get(value).map(|names| names.iter().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn live_values(&self) -> Vec<String> {
        self.names.iter().map(|entry| entry.key().clone()).collect()
    }

    pub(crate) fn insert(&self, name: &ObjectName, values: &[String]) {
        for value in values {
            self.names.entry(value.clone()).or_default().insert(name.clone());
        }
    }

    pub(crate) fn remove(&self, name: &ObjectName, values: &[String]) {
        for value in values {
            self.names.remove_if_mut(value, |_, names| {
                names.remove(name);
                names.is_empty()
            });
        }
    }
}
