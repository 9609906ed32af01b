//! The stores in which the writes of a controller show up.
//!
//! # How it works
//! The versions of one resource grow, so a store that has reached the version of a write has seen the write. If a
//! resource has several stores, for several namespaces or selectors, those of another namespace are not asked, and a
//! store that holds the written object has seen it even if the others are behind.
//!
//! # Guarantees
//! - A write is seen by the store that holds the object, or once all stores of its namespace have passed its version.
//!   (test: `write_is_seen_by_the_store_that_holds_the_object`)
//! - Stores of other namespaces are not asked. (test: `stores_of_other_namespaces_are_not_asked`)
//! - A version that is not a number, and a resource without a store, hold nothing up.
//!   (test: `incomparable_versions_fail_open`)

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::api::ApiResource;
use crate::cache::{ObjectName, SharedInformer, Store, TypedObject, compare_versions};

/// How often a store is listed again at most because it misses writes.
const RELIST_PERIOD: Duration = Duration::from_secs(300);

/// The guard's view of a store.
pub trait StoreView: Send + Sync {
    /// Returns the resource version of the last change in the store.
    fn resource_version(&self) -> Arc<str>;
    /// Returns whether the object with this uid is in the store, and whether it is being deleted.
    fn presence(&self, name: &ObjectName, uid: &str) -> Presence;
    /// Returns the resource version of the object with this uid, if it is in the store.
    fn version_of(&self, _name: &ObjectName, _uid: &str) -> Option<String> {
        None
    }
    /// Asks for the server's newest state, because the store lacks a write that the server has answered.
    fn relist(&self) {}
}

/// The state of an object in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// The object is in the store.
    Alive,
    /// The object is in the store and being deleted.
    Deleting,
    /// The object is not in the store.
    Gone,
}

impl<K: TypedObject> StoreView for Store<K> {
    fn resource_version(&self) -> Arc<str> {
        Self::resource_version(self)
    }

    fn presence(&self, name: &ObjectName, uid: &str) -> Presence {
        match self.get(name).filter(|object| object.uid() == uid) {
            Some(object) if object.is_deleting() => Presence::Deleting,
            Some(_) => Presence::Alive,
            None => Presence::Gone,
        }
    }

    fn version_of(&self, name: &ObjectName, uid: &str) -> Option<String> {
        let object = self.get(name).filter(|object| object.uid() == uid)?;
        Some(object.resource_version().to_owned())
    }
}

impl<K: TypedObject> StoreView for SharedInformer<K> {
    fn resource_version(&self) -> Arc<str> {
        self.store().resource_version()
    }

    fn presence(&self, name: &ObjectName, uid: &str) -> Presence {
        self.store().presence(name, uid)
    }

    fn version_of(&self, name: &ObjectName, uid: &str) -> Option<String> {
        StoreView::version_of(&self.store(), name, uid)
    }

    fn relist(&self) {
        Self::relist(self);
    }
}

/// A write of an object: a create, change or delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The object's kind.
    pub kind: Cow<'static, str>,
    /// The object's name.
    pub name: ObjectName,
    /// The object's uid.
    pub uid: String,
}

/// A write, and what a store has to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Awaited {
    pub(super) resource: ApiResource,
    pub(super) write: Write,
    pub(super) until: Until,
}

/// What a store has to show of a written object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// This version, or a later one.
    Version(String),
    /// This state, or a later one.
    Presence(Presence),
}

/// The stores of all resources that a controller writes.
#[derive(Default)]
pub(in crate::controller) struct Stores {
    by_resource: RwLock<HashMap<ApiResource, Vec<Observed>>>,
}

/// A store, and the namespace of its objects; `None` for all.
struct Observed {
    namespace: Option<String>,
    store: Box<dyn StoreView>,
    /// When a write was last missed in it for too long.
    relisted: Mutex<Option<Instant>>,
}

// === impl Write ===

impl Write {
    pub(super) fn of(resource: &ApiResource, name: ObjectName, uid: &str) -> Self {
        Self { kind: resource.kind.clone(), name, uid: uid.to_owned() }
    }

    pub(super) fn name(&self) -> (&ObjectName, &str) {
        (&self.name, &self.uid)
    }
}

// === impl Stores ===

impl Stores {
    pub(in crate::controller) fn add(
        &self,
        resource: ApiResource,
        namespace: Option<String>,
        store: impl StoreView + 'static,
    ) {
        let observed = Observed { namespace, store: Box::new(store), relisted: Mutex::default() };
        self.by_resource.write().entry(resource).or_default().push(observed);
    }

    /// Whether the caches show a write.
    pub(super) fn show(&self, Awaited { resource, write, until }: &Awaited) -> bool {
        let all = self.by_resource.read();
        let stores = all.get(resource).map(Vec::as_slice).unwrap_or_default();
        let mut of_namespace = stores.iter().filter(|one| one.covers(write.name.namespace()));
        match until {
            Until::Version(version) => {
                let mut again = of_namespace.clone();
                !of_namespace.any(|one| one.is_behind(version))
                    || stores.len() > 1 && again.any(|one| one.holds(write.name(), version))
            }
            Until::Presence(presence) => {
                of_namespace.all(|one| one.store.presence(&write.name, &write.uid) >= *presence)
            }
        }
    }

    /// Has the stores that lack a write list again, each at most once in [`RELIST_PERIOD`]: its event may be lost.
    pub(super) fn relist(&self, missed: &Awaited) {
        let all = self.by_resource.read();
        let stores = all.get(&missed.resource).into_iter().flatten();
        for store in stores.filter(|one| one.covers(missed.write.name.namespace())) {
            let mut relisted = store.relisted.lock();
            if relisted.is_none_or(|at| at.elapsed() >= RELIST_PERIOD) {
                *relisted = Some(Instant::now());
                store.store.relist();
            }
        }
    }

    /// Returns the resources that have a store, in a fixed order.
    pub(in crate::controller) fn resources(&self) -> Vec<ApiResource> {
        let mut all: Vec<ApiResource> = self.by_resource.read().keys().cloned().collect();
        all.sort_by_key(ToString::to_string);
        all
    }

    /// Whether a store of this resource in this namespace, or in any with `None`, has not reached `version`.
    pub(in crate::controller) fn is_behind(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        version: &str,
    ) -> bool {
        let all = self.by_resource.read();
        let mut stores = all.get(resource).into_iter().flatten();
        stores.any(|one| (namespace.is_none() || one.covers(namespace)) && one.is_behind(version))
    }
}

impl Observed {
    fn covers(&self, namespace: Option<&str>) -> bool {
        self.namespace.is_none() || self.namespace.as_deref() == namespace
    }

    fn is_behind(&self, version: &str) -> bool {
        compare_versions(&self.store.resource_version(), version) == Some(Ordering::Less)
    }

    /// Whether the store holds this object at `version` or later.
    fn holds(&self, (name, uid): (&ObjectName, &str), version: &str) -> bool {
        let held = self.store.version_of(name, uid);
        held.is_some_and(|held| compare_versions(&held, version).is_some_and(Ordering::is_ge))
    }
}

/// A cache that receives no more events.
#[cfg(all(test, feature = "sim"))]
pub(crate) struct Frozen;

#[cfg(all(test, feature = "sim"))]
impl StoreView for Frozen {
    fn resource_version(&self) -> Arc<str> {
        "1".into()
    }

    fn presence(&self, _: &ObjectName, _: &str) -> Presence {
        Presence::Alive
    }
}
