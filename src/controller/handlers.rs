//! From a changed object to the key of whom it concerns.
//!
//! Mirrors sample-controller `controller.go` (`enqueueFoo`, `handleObject`) and in-tree
//! `resolveControllerRef`.
//!
//! # Guarantees
//! - A child wakes the owner that its controller reference names, by kind, name and uid. (test: `a_child_wakes_its_owner_by_uid`)
//! - A new spec, life or deletion mark of the object ends its backoff; nothing else does. (test: `a_new_spec_ends_the_backoff`)
//! - A child that goes wakes every custom resource that wants its name. (test: `a_child_that_goes_wakes_all_who_want_its_name`)
//!
//! # Differences from client-go
//! sample-controller compares kind and name only, so that the children of an owner's earlier life wake
//! the present one. Ours compares the uid, as in-tree controllers do.

use std::fmt;

use crate::cache::{Cached, Deleted, EventHandler, Object, ObjectName, Store};
use crate::workqueue::{AddOptions, RateLimitingQueue};

/// The index of custom resources by the children that they want, `namespace/name`.
pub const CHILD_NAME: &str = "child-name";

/// Queues the key of the object itself.
#[derive(Debug)]
pub struct EnqueueSelf {
    queue: RateLimitingQueue<ObjectName>,
}

impl EnqueueSelf {
    /// Queues into this queue.
    #[must_use]
    pub fn new(queue: RateLimitingQueue<ObjectName>) -> Self {
        Self { queue }
    }
}

/// What may have cured the cause of a failure: the key comes at once, also when it backs off.
const BYPASS_BACKOFF: AddOptions = AddOptions { after: None, rate_limited: false, bypass_backoff: true };

impl<K: Object> EventHandler<K> for EnqueueSelf {
    fn on_add(&mut self, object: &Cached<K>, _is_in_initial_list: bool) {
        self.queue.add(object.object_name(), BYPASS_BACKOFF);
    }

    fn on_update(&mut self, old: &Cached<K>, new: &Cached<K>) {
        let state = |object: &Cached<K>| (object.uid().to_owned(), object.generation(), object.is_deleting());
        let is_new = state(old) != state(new);
        self.queue.add(new.object_name(), if is_new { BYPASS_BACKOFF } else { AddOptions::default() });
    }

    fn on_delete(&mut self, object: &Deleted<K>) {
        self.queue.add(object.object_name(), BYPASS_BACKOFF);
    }
}

/// Queues the key of the owner of a changed child.
pub struct EnqueueOwner<P> {
    owners: Store<P>,
    queue: RateLimitingQueue<ObjectName>,
}

impl<P: Object> EnqueueOwner<P> {
    /// Looks owners up in this store, which has the index [`CHILD_NAME`], and queues into this queue.
    #[must_use]
    pub fn new(owners: Store<P>, queue: RateLimitingQueue<ObjectName>) -> Self {
        Self { owners, queue }
    }

    fn enqueue_owner<K: Object>(&self, child: &Cached<K>) {
        let Some(reference) = child.controller().filter(|owner| owner.is_a(&P::resource())) else { return };
        let owner = ObjectName::new(child.object_name().namespace(), reference.name);
        if self.owners.get(&owner).is_some_and(|found| found.uid() == reference.uid) {
            self.queue.add(owner, AddOptions::default());
        }
    }
}

impl<P: Object, K: Object> EventHandler<K> for EnqueueOwner<P> {
    fn on_add(&mut self, object: &Cached<K>, _is_in_initial_list: bool) {
        self.enqueue_owner(object);
    }

    fn on_update(&mut self, old: &Cached<K>, new: &Cached<K>) {
        self.enqueue_owner(new);
        if old.controller().map(|owner| owner.uid) != new.controller().map(|owner| owner.uid) {
            self.enqueue_owner(old);
        }
    }

    fn on_delete(&mut self, object: &Deleted<K>) {
        self.enqueue_owner(object.last_known());
        let name = object.object_name().to_string();
        let wanting = self.owners.index_names(CHILD_NAME, &name).expect("owners are indexed by child name");
        for owner in wanting {
            self.queue.add(owner, AddOptions::default());
        }
    }
}

impl<P> fmt::Debug for EnqueueOwner<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueOwner").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::samplecontroller::v1alpha1::Foo;
    use crate::cache::{Indexers, store};
    use crate::controller::deployment::ObservedDeployment;
    use crate::workqueue::ItemExponentialFailure;
    use futures_util::FutureExt;
    use serde_json::json;
    use std::time::Duration;

    fn foo(name: &str, uid: &str) -> Cached<Foo> {
        let foo = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "1"},
            "spec": {"deploymentName": "web"},
        });
        Cached::new(Ok(serde_json::from_value(foo).unwrap()))
    }

    fn deployment(owner_kind: &str, owner: &str, uid: &str) -> Cached<ObservedDeployment> {
        let deployment = json!({"metadata": {
            "name": "web", "namespace": "ns", "uid": "d", "resourceVersion": "2",
            "ownerReferences": [{"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": owner_kind,
                "name": owner, "uid": uid, "controller": true}],
        }});
        Cached::new(Ok(serde_json::from_value(deployment).unwrap()))
    }

    fn rig(foos: &[(&str, &str)]) -> (EnqueueOwner<Foo>, RateLimitingQueue<ObjectName>) {
        let by_child = |foo: &Cached<Foo>| {
            foo.readable().map(|foo| format!("ns/{}", foo.spec.deployment_name)).into_iter().collect()
        };
        let (store, mut writer) = store::pair(Indexers::default().with(CHILD_NAME, by_child));
        for (name, uid) in foos {
            writer.upsert(foo(name, uid));
        }
        let queue = RateLimitingQueue::new(ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO));
        (EnqueueOwner::new(store, queue.clone()), queue)
    }

    fn queued(queue: &RateLimitingQueue<ObjectName>) -> Vec<String> {
        std::iter::from_fn(|| queue.get().now_or_never().flatten()).map(|p| p.key().to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_spec_ends_the_backoff() {
        let queue = RateLimitingQueue::new(ItemExponentialFailure::new(
            Duration::from_secs(60),
            Duration::from_secs(60),
        ));
        let mut handler = EnqueueSelf::new(queue.clone());
        let at = |generation: i64, version: &str| {
            let foo = json!({
                "metadata": {"name": "one", "namespace": "ns", "uid": "u", "resourceVersion": version,
                    "generation": generation},
                "spec": {"deploymentName": "web"},
            });
            Cached::<Foo>::new(Ok(serde_json::from_value(foo).unwrap()))
        };
        queue.back_off("ns/one".parse().unwrap(), Duration::ZERO);
        handler.on_update(&at(1, "1"), &at(1, "2"));
        assert_eq!(queued(&queue), Vec::<String>::new(), "its own status, say");
        handler.on_update(&at(1, "2"), &at(2, "3"));
        assert_eq!(queued(&queue), ["ns/one"]);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_child_wakes_its_owner_by_uid() {
        let (mut handler, queue) = rig(&[("one", "u1")]);
        handler.on_add(&deployment("Foo", "one", "u1"), false);
        assert_eq!(queued(&queue), ["ns/one"]);
        handler.on_add(&deployment("Foo", "one", "earlier life"), false);
        handler.on_add(&deployment("Bar", "one", "u1"), false);
        handler.on_add(&deployment("Foo", "unknown", "u9"), false);
        assert_eq!(queued(&queue), Vec::<String>::new());
    }

    #[test]
    fn a_child_that_changes_hands_wakes_both_owners() {
        let (mut handler, queue) = rig(&[("one", "u1"), ("two", "u2")]);
        handler.on_update(&deployment("Foo", "one", "u1"), &deployment("Foo", "two", "u2"));
        assert_eq!(queued(&queue), ["ns/two", "ns/one"]);
    }

    #[test]
    fn a_child_that_goes_wakes_all_who_want_its_name() {
        let (mut handler, queue) = rig(&[("one", "u1"), ("two", "u2")]);
        handler.on_delete(&Deleted::Observed(deployment("Foo", "one", "earlier life")));
        assert_eq!(queued(&queue), ["ns/one", "ns/two"]);
    }
}
