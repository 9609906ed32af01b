//! Which object a sync sees, and whether it acts at all.

use super::*;
use crate::api::ApiResource;
use crate::cache::ObjectName;
use crate::controller::key::own_writes::Readiness;
use crate::controller::key::stores::{Frozen, Stores};

#[tokio::test(start_paused = true)]
async fn missing_object_sends_nothing() {
    assert_eq!(plain().await.sync("web").await, (Outcome::Done, vec![]));
}

/// R18: the caches of a restored store may never reach the versions that were written.
#[tokio::test(start_paused = true)]
async fn vanished_object_leaves_no_awaited_writes() {
    let mut f = plain().await;
    f.create("here", spec(1)).await;
    let foos = ApiResource::of::<Foo>();
    let stores = Stores::default();
    stores.add(foos.clone(), None, Frozen);
    for (name, is_ready) in [("here", false), ("vanished", true)] {
        let key = ObjectName::new(Some("default"), name);
        let state = f.states.entry(name.to_owned()).or_default();
        state.own_writes.awaits(&foos, &key, ("uid", "1000"));
        f.sync(name).await;
        let readiness = f.states.get_mut(name).unwrap().own_writes.readiness(&stores);
        assert_eq!(readiness == Readiness::Ready, is_ready, "only the existing object still waits");
    }
}

/// Its children are left to the garbage collector.
#[tokio::test(start_paused = true)]
async fn deleted_object_without_finalizer_is_left_alone() {
    let mut f = plain().await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    scale_by_hand(&f, 9).await;
    let deleted = |foo: &mut Value| {
        foo["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        foo["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    };
    f.edit_behind::<Foo>("web", deleted).await;
    f.catch_up().await;
    assert_eq!(f.sync("web").await, (Outcome::Done, vec![]));
}

/// R9: the watch has lost an event, so the caches are stale.
#[tokio::test(start_paused = true)]
async fn audit_repairs_drift_the_caches_missed() {
    repairs_on_audit(plain().await, "web", 2).await;
    repairs_on_audit(batch().await, "web-0", 1).await;
}

async fn repairs_on_audit<R: Reconcile<Resource = Foo>>(mut f: Fixture<R>, child: &str, replicas: i32) {
    f.create("web", spec(2)).await;
    f.converge("web").await;
    assert_eq!(f.audit("web").await.0, Outcome::Done);
    f.edit::<Deployment>(child, |live| live["spec"]["replicas"] = json!(7)).await;
    assert_eq!(
        f.sync_without_catch_up("web").await.1,
        Vec::<String>::new(),
        "a normal pass trusts the cache"
    );
    f.audit("web").await;
    assert_eq!(f.get::<Deployment>(child).await.unwrap()["spec"]["replicas"], replicas);
}

#[tokio::test(start_paused = true)]
async fn deletion_by_name_spares_what_is_not_ours() {
    for is_ours in [true, false] {
        let mut f = Fixture::new(|caches| CleaningKind { deployments: caches.lister() }).await;
        f.create("web", spec(1)).await;
        f.converge("web").await;
        if !is_ours {
            f.edit::<Deployment>("web", |live| live["metadata"]["ownerReferences"] = json!([])).await;
        }
        f.delete::<Foo>("web").await;
        f.catch_up().await;
        f.sync("web").await;
        assert_eq!(f.get::<Deployment>("web").await.is_none(), is_ours);
        assert_eq!(f.get::<Foo>("web").await, None);
    }
}
