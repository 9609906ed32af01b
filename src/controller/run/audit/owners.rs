//! Enqueues the custom resources that an audit finds affected.

use std::sync::Arc;

use crate::api::ApiResource;
use crate::cache::{ControllerRef, ObjectName, SharedInformer, TypedObject};
use crate::controller::key::Keys;
use crate::workqueue::{AddOptions, LOW_PRIORITY, RateLimitingQueue, Reason};

/// The kinds of custom resources that are audited, with their queues.
#[derive(Default)]
pub(super) struct Owners(Vec<OwnerKind>);

/// Whether the cache has the object of this name with this uid.
type Has = Box<dyn Fn(&ObjectName, &str) -> bool + Send + Sync>;

struct OwnerKind {
    resource: ApiResource,
    /// The namespace of the cached objects; `None` for all.
    namespace: Option<String>,
    has: Has,
    queue: RateLimitingQueue<ObjectName>,
    keys: Arc<Keys>,
}

// === impl Owners ===

impl Owners {
    pub(super) fn add<K: TypedObject>(
        &mut self,
        informer: &SharedInformer<K>,
        queue: RateLimitingQueue<ObjectName>,
        keys: Arc<Keys>,
    ) {
        let (store, namespace) = (informer.store(), informer.selection().namespace.clone());
        let has = Box::new(move |name: &ObjectName, uid: &str| {
            store.get(name).is_some_and(|owner| owner.uid() == uid)
        });
        self.0.push(OwnerKind { resource: ApiResource::of::<K>(), namespace, has, queue, keys });
    }

    /// Enqueues an object of this kind in every queue of the kind.
    pub(super) fn queue_key(&self, resource: &ApiResource, name: &ObjectName) {
        let is_cached_in = |kind: &&OwnerKind| {
            let is_there = kind.namespace.is_none() || kind.namespace.as_deref() == name.namespace();
            kind.resource == *resource && is_there
        };
        for kind in self.0.iter().filter(is_cached_in) {
            kind.enqueue(name.clone());
        }
    }

    /// Enqueues the owner of a child in this namespace if the owner is cached with the reference's uid; returns
    /// whether it is.
    pub(super) fn queue_owner(&self, namespace: Option<&str>, reference: ControllerRef<'_>) -> bool {
        let mut of_its_kind = self.0.iter().filter(|kind| reference.is_a(&kind.resource)).peekable();
        if of_its_kind.peek().is_none() {
            return false;
        }
        let name = ObjectName::new(namespace, reference.name);
        let Some(kind) = of_its_kind.find(|kind| (kind.has)(&name, reference.uid)) else { return false };
        kind.enqueue(name);
        true
    }
}

impl OwnerKind {
    /// Enqueues an object behind changes, for a sync that trusts no cache.
    fn enqueue(&self, name: ObjectName) {
        self.keys.distrust(&name);
        self.queue
            .add_with(name, AddOptions { priority: LOW_PRIORITY, ..AddOptions::because(Reason::Audit) });
    }
}
