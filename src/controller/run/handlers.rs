//! Maps changed objects to the keys to enqueue.
//!
//! Mirrors sample-controller `controller.go` (`enqueueFoo`, `handleObject`) and in-tree
//! `resolveControllerRef`.
//!
//! # Guarantees
//! - A changed child enqueues the owner in its controller reference, matched by kind, name and uid.
//!   (test: `child_enqueues_its_owner_by_uid`)
//! - Only creation, deletion, a new spec or [`RECONCILE_AT`](annotations::RECONCILE_AT) ends an object's backoff.
//!   (test: `a_new_spec_ends_the_backoff`)
//! - The first list and resyncs are queued behind changes.
//!   (test: `first_list_and_resyncs_are_queued_behind_changes`, `owners_of_listed_children_are_queued_behind_changes`)
//! - Each enqueued key carries its reason. (test: `enqueued_key_carries_its_reasons`)
//! - A deleted child enqueues every custom resource that wants its name.
//!   (test: `deleted_child_enqueues_every_owner_wanting_its_name`)
//!
//! # Differences from client-go
//! sample-controller matches owners by kind and name only, so that children of a deleted owner enqueue its
//! successor. This module matches the uid, too, as in-tree controllers do. sample-controller ignores resyncs of
//! children; this module enqueues the owner behind changes.

use std::fmt;

use crate::api::{ApiResource, annotations};
use crate::cache::{Cached, Deleted, EventHandler, Lister, ObjectName, TypedObject, UnknownIndex};
use crate::workqueue::{AddOptions, LOW_PRIORITY, RateLimitingQueue, Reason};

/// The index of custom resources by the children they want, as `namespace/name`.
pub const CHILD_NAME: &str = "child-name";

/// Enqueues the key of the changed object.
#[derive(Debug)]
pub struct EnqueueSelf {
    queue: RateLimitingQueue<ObjectName>,
}

impl EnqueueSelf {
    /// Creates a handler that adds to `queue`.
    #[must_use]
    pub fn new(queue: RateLimitingQueue<ObjectName>) -> Self {
        Self { queue }
    }
}

/// Options for a change that may have fixed the cause of a failure: the add bypasses the backoff.
fn at_once(reason: Reason) -> AddOptions {
    AddOptions { bypass_backoff: true, ..AddOptions::because(reason) }
}

/// Options for an add that is served behind changes.
fn when_there_is_time(reason: Reason) -> AddOptions {
    AddOptions { priority: LOW_PRIORITY, ..AddOptions::because(reason) }
}

/// Returns the annotation by which users request a sync.
fn reconcile_at<K: TypedObject>(object: &Cached<K>) -> Option<&String> {
    object.annotations()?.get(annotations::RECONCILE_AT)
}

impl<K: TypedObject> EventHandler<K> for EnqueueSelf {
    fn on_add(&mut self, object: &Cached<K>, is_in_initial_list: bool) {
        let options =
            if is_in_initial_list { when_there_is_time(Reason::Initial) } else { at_once(Reason::Created) };
        self.queue.add_with(object.object_name(), options);
    }

    fn on_update(&mut self, old: &Cached<K>, new: &Cached<K>) {
        let options = if old.uid() != new.uid() {
            at_once(Reason::Created)
        } else if old.generation() != new.generation() {
            at_once(Reason::SpecChanged { from: old.generation(), to: new.generation() })
        } else if reconcile_at(old) != reconcile_at(new) {
            at_once(Reason::Manual)
        } else if old.is_deleting() != new.is_deleting() {
            at_once(Reason::Deleted)
        } else if old.resource_version() == new.resource_version() {
            when_there_is_time(Reason::Resync)
        } else {
            AddOptions::because(Reason::Changed)
        };
        self.queue.add_with(new.object_name(), options);
    }

    fn on_delete(&mut self, object: &Deleted<K>) {
        self.queue.add_with(object.object_name(), at_once(Reason::Deleted));
    }
}

/// Enqueues the key of a changed child's owner.
pub struct EnqueueOwner<P> {
    owners: Lister<P>,
    queue: RateLimitingQueue<ObjectName>,
    /// Maps the name of a child to its name in the index.
    known_by: fn(&ObjectName) -> Option<ObjectName>,
}

impl<P: TypedObject> EnqueueOwner<P> {
    /// Creates a handler that looks up owners in `owners` and adds their keys to `queue`.
    ///
    /// # Errors
    /// [`UnknownIndex`] if `owners` lacks the index [`CHILD_NAME`].
    pub fn new(
        owners: impl Into<Lister<P>>,
        queue: RateLimitingQueue<ObjectName>,
    ) -> Result<Self, UnknownIndex> {
        let owners = owners.into();
        owners.index_names(CHILD_NAME, "")?;
        Ok(Self { owners, queue, known_by: |child| Some(child.clone()) })
    }

    /// Looks up a child in the index under the name that `known_by` returns, for owners that want too many names to
    /// index.
    #[must_use]
    pub fn known_by(self, known_by: fn(&ObjectName) -> Option<ObjectName>) -> Self {
        Self { known_by, ..self }
    }

    fn enqueue_owner<K: TypedObject>(&self, child: &Cached<K>, priority: i32) {
        let Some(reference) = child.controller().filter(|owner| owner.is_a(&ApiResource::of::<P>())) else {
            return;
        };
        let owner = ObjectName::new(child.object_name().namespace(), reference.name);
        if self.owners.get(&owner).is_some_and(|found| found.uid() == reference.uid) {
            self.queue.add_with(owner, because_of(child, priority));
        }
    }
}

fn because_of<K: TypedObject>(child: &Cached<K>, priority: i32) -> AddOptions {
    let name = child.object_name().to_string().into();
    AddOptions { priority, ..AddOptions::because(Reason::Child { kind: ApiResource::of::<K>().kind, name }) }
}

impl<P: TypedObject, K: TypedObject> EventHandler<K> for EnqueueOwner<P> {
    fn on_add(&mut self, object: &Cached<K>, is_in_initial_list: bool) {
        self.enqueue_owner(object, if is_in_initial_list { LOW_PRIORITY } else { 0 });
    }

    fn on_update(&mut self, old: &Cached<K>, new: &Cached<K>) {
        let is_resync = old.resource_version() == new.resource_version();
        self.enqueue_owner(new, if is_resync { LOW_PRIORITY } else { 0 });
        // Enqueue the old owner, too, so that it repairs a reference that somebody has edited.
        if old.controller() != new.controller() {
            self.enqueue_owner(old, 0);
        }
    }

    fn on_delete(&mut self, object: &Deleted<K>) {
        self.enqueue_owner(object.last_known(), 0);
        let Some(name) = (self.known_by)(&object.object_name()) else { return };
        let wanting =
            self.owners.index_names(CHILD_NAME, &name.to_string()).expect("owners are indexed by child name");
        for owner in wanting {
            self.queue.add_with(owner, because_of(object.last_known(), 0));
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
    use crate::controller::kinds::deployment::ObservedDeployment;
    use crate::workqueue::{Ageing, ItemExponentialFailure, QueueOptions};
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
        (EnqueueOwner::new(store, queue.clone()).unwrap(), queue)
    }

    fn queued(queue: &RateLimitingQueue<ObjectName>) -> Vec<String> {
        std::iter::from_fn(|| queue.get().now_or_never().flatten()).map(|p| p.key().to_string()).collect()
    }

    fn reasons(queue: &RateLimitingQueue<ObjectName>) -> Vec<String> {
        let processing = std::iter::from_fn(|| queue.get().now_or_never().flatten());
        processing.map(|processing| processing.reasons().to_string()).collect()
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
        assert_eq!(queued(&queue), Vec::<String>::new(), "a status update does not end the backoff");
        handler.on_update(&at(1, "2"), &at(2, "3"));
        assert_eq!(queued(&queue), ["ns/one"]);
        assert_eq!(queue.waiting(), 0);

        let with = |metadata: serde_json::Value| {
            let mut foo = json!({"metadata": {"name": "one", "namespace": "ns", "uid": "u", "generation": 1},
                "spec": {"deploymentName": "web"}});
            for (key, value) in metadata.as_object().unwrap() {
                foo["metadata"][key] = value.clone();
            }
            Cached::<Foo>::new(Ok(serde_json::from_value(foo).unwrap()))
        };
        let asked = json!({"resourceVersion": "2", "annotations": {"windlass.dev/reconcile-at": "now"}});
        let marked = json!({"resourceVersion": "2", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let old = with(json!({"resourceVersion": "1"}));
        for (new, why) in [
            (with(asked), "retry 1, manual"),
            (with(marked), "retry 1, deleted"),
            (with(json!({"resourceVersion": "2", "uid": "another uid"})), "retry 1, created"),
            (
                with(json!({"resourceVersion": "2", "generation": 4})),
                "retry 1, spec changed (generation 1 to 4)",
            ),
        ] {
            queue.back_off("ns/one".parse().unwrap(), Duration::ZERO);
            handler.on_update(&old, &new);
            assert_eq!((reasons(&queue), queue.waiting()), (vec![why.to_owned()], 0));
            queue.forget(&"ns/one".parse().unwrap());
        }
        for gone in [Deleted::Observed(old.clone()), Deleted::FinalStateUnknown { last_known: old.clone() }] {
            queue.back_off("ns/one".parse().unwrap(), Duration::ZERO);
            handler.on_delete(&gone);
            assert_eq!(reasons(&queue), ["retry 1, deleted"]);
            queue.forget(&"ns/one".parse().unwrap());
        }
        queue.back_off("ns/one".parse().unwrap(), Duration::ZERO);
        handler.on_update(&old, &with(json!({"resourceVersion": "2", "annotations": {"other": "x"}})));
        handler.on_update(&old, &old);
        assert_eq!((reasons(&queue), queue.waiting()), (vec![], 1));
    }

    #[test]
    fn first_list_and_resyncs_are_queued_behind_changes() {
        let limiter = ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO);
        let options = QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() };
        let queue = RateLimitingQueue::with(limiter, options);
        let mut handler = EnqueueSelf::new(queue.clone());
        handler.on_add(&foo("listed", "u1"), true);
        handler.on_update(&foo("resynced", "u2"), &foo("resynced", "u2"));
        handler.on_add(&foo("new", "u3"), false);
        assert_eq!(queued(&queue), ["ns/new", "ns/listed", "ns/resynced"]);
    }

    /// The owner of the changed child is added last and comes first.
    #[test]
    fn owners_of_listed_children_are_queued_behind_changes() {
        let (store, mut writer) = store::pair(Indexers::default().with(CHILD_NAME, |_| vec![]));
        for (name, uid) in [("listed", "u1"), ("resynced", "u2"), ("changed", "u3")] {
            writer.upsert(foo(name, uid));
        }
        let limiter = ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO);
        let options = QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() };
        let queue = RateLimitingQueue::with(limiter, options);
        let mut handler = EnqueueOwner::<Foo>::new(store, queue.clone()).unwrap();
        handler.on_add(&deployment("Foo", "listed", "u1"), true);
        handler.on_update(&deployment("Foo", "resynced", "u2"), &deployment("Foo", "resynced", "u2"));
        handler.on_add(&deployment("Foo", "changed", "u3"), false);
        assert_eq!(queued(&queue), ["ns/changed", "ns/listed", "ns/resynced"]);
    }

    #[test]
    fn enqueued_key_carries_its_reasons() {
        let (mut owner, queue) = rig(&[("one", "u1")]);
        let mut own = EnqueueSelf::new(queue.clone());
        own.on_add(&foo("one", "u1"), true);
        owner.on_add(&deployment("Foo", "one", "u1"), true);
        owner.on_update(&deployment("Foo", "one", "u1"), &deployment("Foo", "one", "u1"));
        assert_eq!(reasons(&queue), ["initial, Deployment ns/web changed"]);
        own.on_delete(&Deleted::Observed(foo("one", "u1")));
        assert_eq!(reasons(&queue), ["deleted"]);
        own.on_add(&foo("one", "u1"), false);
        assert_eq!(reasons(&queue), ["created"]);
        own.on_update(&foo("one", "u1"), &foo("one", "u1"));
        assert_eq!(reasons(&queue), ["resync"]);
        let mut newer = Foo::clone(foo("one", "u1").readable().unwrap());
        newer.metadata.resource_version = Some("2".to_owned());
        own.on_update(&foo("one", "u1"), &Cached::new(Ok(newer)));
        assert_eq!(reasons(&queue), ["changed"]);
    }

    #[test]
    fn child_enqueues_its_owner_by_uid() {
        let (mut handler, queue) = rig(&[("one", "u1")]);
        handler.on_add(&deployment("Foo", "one", "u1"), false);
        assert_eq!(queued(&queue), ["ns/one"]);
        handler.on_add(&deployment("Foo", "one", "previous uid"), false);
        handler.on_add(&deployment("Bar", "one", "u1"), false);
        handler.on_add(&deployment("Foo", "unknown", "u9"), false);
        assert_eq!(queued(&queue), Vec::<String>::new());
    }

    #[test]
    fn child_with_a_new_owner_enqueues_both_owners() {
        let (mut handler, queue) = rig(&[("one", "u1"), ("two", "u2")]);
        handler.on_update(&deployment("Foo", "one", "u1"), &deployment("Foo", "two", "u2"));
        assert_eq!(queued(&queue), ["ns/two", "ns/one"]);
        handler.on_update(&deployment("Foo", "one", "u1"), &deployment("Foo", "renamed by hand", "u1"));
        assert_eq!(queued(&queue), ["ns/one"]);
    }

    #[test]
    fn deleted_child_enqueues_every_owner_wanting_its_name() {
        let (mut handler, queue) = rig(&[("one", "u1"), ("two", "u2")]);
        let child = || deployment("Foo", "one", "previous uid");
        for gone in [Deleted::Observed(child()), Deleted::FinalStateUnknown { last_known: child() }] {
            handler.on_delete(&gone);
            assert_eq!(queued(&queue), ["ns/one", "ns/two"]);
        }
    }
}
