//! A read-only typed view of a store, by namespace and selector.
//!
//! Mirrors client-go `tools/cache/listers.go`.
//!
//! # Differences from client-go
//! A miss is `None`, not an error. Returned objects are shared and immutable. Stores have no namespace index: no
//! controller here lists by namespace, and the index would cost memory and time for each object.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_core::{Selector, SelectorExt};

use super::index::OWNER_UID;
use super::{Store, UnknownIndex};
use crate::cache::object::Object;
use crate::cache::object::cached::Cached;
use crate::cache::object::object_name::ObjectName;

/// Reads what an informer has cached, or what several have in a namespace each. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lister<K> {
    stores: Stores<K>,
}

#[derive(Clone, Debug)]
enum Stores<K> {
    One(Store<K>),
    ByNamespace(Arc<BTreeMap<String, Store<K>>>),
}

// === impl Lister ===

impl<K: Object> Lister<K> {
    /// Creates a view of `store`.
    #[must_use]
    pub fn new(store: Store<K>) -> Self {
        Self { stores: Stores::One(store) }
    }

    /// Creates a view of the stores of several namespaces.
    #[must_use]
    pub fn of_namespaces(stores: BTreeMap<String, Store<K>>) -> Self {
        Self { stores: Stores::ByNamespace(Arc::new(stores)) }
    }

    /// Returns the object with this name.
    #[must_use]
    pub fn get(&self, name: &ObjectName) -> Option<Cached<K>> {
        match &self.stores {
            Stores::One(store) => store.get(name),
            Stores::ByNamespace(stores) => stores.get(name.namespace()?)?.get(name),
        }
    }

    /// Returns the objects of one namespace, or of all with `None`, that match the selector, in no particular order.
    /// Scans the whole store: a sync handler should use an [`index`](Self::index) instead.
    #[must_use]
    pub fn list(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Cached<K>> {
        let mut objects = match &self.stores {
            Stores::One(store) => store.list(),
            Stores::ByNamespace(stores) => stores.values().flat_map(Store::list).collect(),
        };
        if let Some(namespace) = namespace {
            objects.retain(|object| object.object_name().namespace() == Some(namespace));
        }
        if !selector.selects_all() {
            objects.retain(|object| selector.matches(&object.labels()));
        }
        objects
    }

    /// Returns the names of the objects that have `value` in `index`, sorted.
    ///
    /// # Errors
    /// [`UnknownIndex`].
    pub fn index_names(&self, index: &str, value: &str) -> Result<Vec<ObjectName>, UnknownIndex> {
        match &self.stores {
            Stores::One(store) => store.index_names(index, value),
            Stores::ByNamespace(stores) => {
                let names = stores.values().map(|store| store.index_names(index, value));
                Ok(names.collect::<Result<Vec<_>, _>>()?.concat())
            }
        }
    }

    /// Returns the objects controlled by the owner with this uid, sorted by name.
    #[must_use]
    pub fn controlled_by(&self, uid: &str) -> Vec<Cached<K>> {
        self.index(OWNER_UID, uid)
    }

    /// Returns the objects that have `value` in `index`, sorted by name.
    ///
    /// # Panics
    /// If the store was created without this index.
    #[must_use]
    pub fn index(&self, index: &str, value: &str) -> Vec<Cached<K>> {
        let found = |store: &Store<K>| {
            store.by_index(index, value).expect("the lister's informer was created without this index")
        };
        match &self.stores {
            Stores::One(store) => found(store),
            // Sorted by namespace, then by name.
            Stores::ByNamespace(stores) => stores.values().flat_map(found).collect(),
        }
    }
}

impl<K: Object> From<Store<K>> for Lister<K> {
    fn from(store: Store<K>) -> Self {
        Self::new(store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Indexers, store};
    use crate::testing::config_map;
    use kube_core::Expression;

    /// client-go: `TestListAll` and the namespace lister
    #[test]
    fn a_lister_selects_by_namespace_and_labels() {
        let (store, mut writer) = store::pair(Indexers::default());
        for (namespace, name, colour) in [("x", "a", "red"), ("x", "b", "blue"), ("y", "a", "red")] {
            let mut map = config_map(namespace, name, 1);
            map.metadata.labels = Some([("colour".to_owned(), colour.to_owned())].into());
            writer.upsert(Cached::new(Ok(map)));
        }
        let lister = Lister::new(store);
        let red: Selector = Expression::Equal("colour".into(), "red".into()).into();
        let names = |namespace, selector: &Selector| {
            let mut names: Vec<String> =
                lister.list(namespace, selector).iter().map(|o| o.object_name().to_string()).collect();
            names.sort();
            names
        };
        assert_eq!(names(None, &Selector::default()), ["x/a", "x/b", "y/a"]);
        assert_eq!(names(None, &red), ["x/a", "y/a"]);
        assert_eq!(names(Some("x"), &red), ["x/a"]);
        assert_eq!(names(Some("z"), &red), Vec::<String>::new());
    }
}
