use std::time::Duration;

use serde_json::json;

use super::*;
use crate::api::ApiResource;
use crate::api::labels::{self, Labels};
use crate::cache::ObjectName;
use crate::controller::key::stores::Frozen;
use crate::controller::kinds::container::WantedContainer;
use crate::controller::kinds::deployment::{ObservedDeployment, WantedDeployment};
use crate::controller::pass::owner::Owner;
use crate::controller::pass::tests::one_step::OneStep;
use crate::controller::{ChildRef, Deletion};
use crate::sim::Action;
use crate::testing::test_server::{TestServer, version_of};

const FOO: ApiResource = ApiResource::new("samplecontroller.k8s.io", "v1alpha1", "Foo", "foos");
const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/ns/foos";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/ns/deployments";
const WEB: &str = "/apis/apps/v1/namespaces/ns/deployments/web";

fn owner() -> Owner {
    let name = ObjectName::new(Some("ns"), "one");
    Owner { generation: 1, ..Owner::known_as(FOO, name, "owner-uid", "1") }
}

fn wanted(replicas: i32) -> WantedDeployment {
    let labels: Labels = [("app".to_owned(), "web".to_owned())].into();
    let nginx = WantedContainer { name: "nginx".into(), image: "nginx".into(), ..WantedContainer::default() };
    WantedDeployment {
        name: "web".to_owned(),
        labels: labels.clone(),
        selector: labels.clone(),
        pod_labels: labels,
        replicas,
        containers: vec![nginx],
    }
}

/// Stores a Deployment that matches `wanted(1)`, with this owner reference.
fn live(server: &TestServer, kind: &str, owner: &str, uid: &str) -> Value {
    let mut object = self::owner().body_of(&wanted(1));
    object["metadata"]["ownerReferences"] = json!([reference(kind, owner, uid)]);
    server.store(DEPLOYMENTS, object)
}

fn reference(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true,
        "blockOwnerDeletion": true})
}

fn cached(object: &Value) -> Cached<ObservedDeployment> {
    Cached::new(Ok(serde_json::from_value(object.clone()).unwrap()))
}

fn children_of(server: &TestServer) -> OneStep {
    OneStep::new(server.client())
}

type Answer = Result<ApplyOutcome<ObservedDeployment>, Error>;

async fn ensure(server: &TestServer, replicas: i32, cache: Option<&Value>) -> Answer {
    with_owner(server, "owner-uid", 1);
    let children = children_of(server);
    children.apply(&owner(), &wanted(replicas), cache.map(cached).as_ref(), false).await
}

#[tokio::test(start_paused = true)]
async fn no_difference_sends_nothing() {
    let server = TestServer::start().await;
    let object = live(&server, "Foo", "one", "owner-uid");
    let answer = ensure(&server, 1, Some(&object)).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Unchanged(_)), "{answer:?}");
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn missing_child_is_created_with_owner_reference() {
    let server = TestServer::start().await;
    let answer = ensure(&server, 3, None).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Created(_)), "{answer:?}");
    assert_eq!(server.requests(), [format!("POST {DEPLOYMENTS}")], "no read precedes it");
    let created = server.get(WEB).unwrap();
    assert_eq!(created["spec"]["replicas"], 3);
    let reference = &created["metadata"]["ownerReferences"][0];
    assert_eq!(*reference, self::reference("Foo", "one", "owner-uid"));
    assert_eq!(created["metadata"]["labels"][labels::INSTANCE], "one", "as the informer of children selects");
}

#[tokio::test(start_paused = true)]
async fn update_sends_one_patch_with_uid_and_version() {
    let server = TestServer::start().await;
    let mut object = live(&server, "Foo", "one", "owner-uid");
    object["spec"]["minReadySeconds"] = json!(7);
    let object = server.store(DEPLOYMENTS, object);
    let answer = ensure(&server, 2, Some(&object)).await.unwrap();
    let ApplyOutcome::Updated(observed, differences) = answer else { panic!("{answer:?}") };
    assert_eq!(describe(&differences), "spec.replicas was 1, wanted 2");
    assert_eq!(observed.spec.replicas, Some(2));
    assert_eq!(server.requests(), [format!("PATCH {WEB}")]);
    let metadata = &object["metadata"];
    let metadata = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
    assert_eq!(server.last_body(), json!({"metadata": metadata, "spec": {"replicas": 2}}));
    assert_eq!(server.get(WEB).unwrap()["spec"]["minReadySeconds"], 7, "a field that we do not know");
}

/// W1: another client wrote first. Both child and owner are read, as the cache may be stale for both.
#[tokio::test(start_paused = true)]
async fn w1_conflict_rereads_and_retries_once() {
    let server = TestServer::start().await;
    let stale = live(&server, "Foo", "one", "owner-uid");
    let mut newer = stale.clone();
    newer["spec"]["minReadySeconds"] = json!(7);
    let newer = server.store(DEPLOYMENTS, newer);
    let answer = ensure(&server, 2, Some(&stale)).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Updated(..)), "{answer:?}");
    let asked =
        [format!("PATCH {WEB}"), format!("GET {WEB}"), format!("GET {FOOS}/one"), format!("PATCH {WEB}")];
    assert_eq!(server.requests(), asked);
    assert_eq!(version_of(&server.last_body()), version_of(&newer));
    assert_eq!(server.get(WEB).unwrap()["spec"]["minReadySeconds"], 7);
}

#[tokio::test(start_paused = true)]
async fn second_conflict_is_returned_as_error() {
    let server = TestServer::start().await;
    let object = live(&server, "Foo", "one", "owner-uid");
    server.refuse("patch", 409, "Conflict");
    server.refuse("patch", 409, "Conflict");
    let error = ensure(&server, 2, Some(&object)).await.unwrap_err();
    assert!(error.is_conflict());
}

/// R18: after the store is restored from a backup, versions repeat and only the uid identifies an object.
#[tokio::test(start_paused = true)]
async fn r18_version_match_on_other_uid_writes_nothing() {
    let server = TestServer::start().await;
    let backup = server.sim.version();
    let stale = live(&server, "Foo", "one", "owner-uid");
    let mut other = stale.clone();
    other["metadata"]["uid"] = json!("another");
    other["metadata"]["ownerReferences"][0]["uid"] = json!("another-owner");
    assert!(server.sim.roll_back(backup));
    let other = server.store(DEPLOYMENTS, other);
    assert_eq!(version_of(&other), version_of(&stale));
    let answer = ensure(&server, 2, Some(&stale)).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Terminating(_)), "{answer:?}");
    assert_eq!(server.get(WEB).unwrap()["spec"]["replicas"], 1);
}

#[tokio::test(start_paused = true)]
async fn stale_difference_changes_nothing() {
    let server = TestServer::start().await;
    let mut stale = live(&server, "Foo", "one", "owner-uid");
    server.store(DEPLOYMENTS, stale.clone());
    stale["spec"]["replicas"] = json!(9);
    let answer = ensure(&server, 1, Some(&stale)).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Unchanged(_)), "{answer:?}");
    let asked = [format!("GET {FOOS}/one"), format!("PATCH {WEB}"), format!("GET {WEB}")];
    assert_eq!(server.requests(), asked, "a scale-down checks the owner");
}

/// W3: the name is taken by our own child: the cache was stale, or our label was removed.
#[tokio::test(start_paused = true)]
async fn w3_existing_child_missing_from_cache_is_repaired() {
    let server = TestServer::start().await;
    live(&server, "Foo", "one", "owner-uid");
    let answer = ensure(&server, 2, None).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Updated(..)), "{answer:?}");
    let asked = [
        format!("POST {DEPLOYMENTS}"),
        format!("GET {WEB}"),
        format!("GET {FOOS}/one"),
        format!("PATCH {WEB}"),
    ];
    assert_eq!(server.requests(), asked);
}

/// Covers creating, updating and deleting a child, and adding and removing a finalizer of the owner.
#[tokio::test(start_paused = true)]
async fn every_write_is_awaited_in_the_cache() {
    for what in ["create", "update", "delete", "add finalizer", "remove finalizer"] {
        let server = TestServer::start().await;
        let mut foo = with_owner(&server, "owner-uid", 1);
        let stale = (what != "create").then(|| live(&server, "Foo", "one", "owner-uid"));
        let children = children_of(&server);
        children.stores.add(ApiResource::of::<ObservedDeployment>(), None, Frozen);
        children.stores.add(FOO, None, Frozen);
        let owner = Owner { version: version_of(&foo).to_owned(), ..owner() };
        assert!(children.is_ready());
        match what {
            "delete" => {
                let child = child_ref(stale.as_ref().unwrap());
                let answer =
                    children.delete_surplus(&owner, &ApiResource::of::<ObservedDeployment>(), &child).await;
                assert_eq!(answer.unwrap(), Deletion::Deleted);
            }
            "add finalizer" => {
                assert!(children.add_finalizer(&owner, "windlass.dev/test").await.unwrap().is_some());
            }
            "remove finalizer" => {
                foo["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                foo["metadata"]["finalizers"] = json!(["windlass.dev/test"]);
                let version = version_of(&server.store(FOOS, foo)).to_owned();
                let finalizers = vec!["windlass.dev/test".to_owned()];
                let owner = Owner { version, finalizers, ..owner.clone() };
                assert!(children.remove_finalizer(&owner, "windlass.dev/test").await.unwrap());
            }
            _ => {
                let cache = stale.as_ref().map(cached);
                let answer = children.apply(&owner, &wanted(2), cache.as_ref(), false).await.unwrap();
                assert_eq!(matches!(answer, ApplyOutcome::Updated(..)), what == "update", "{answer:?}");
            }
        }
        assert!(!children.is_ready(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn create_with_lost_response_is_not_resent() {
    for lost in [Action::DropAfter, Action::FailAfter(504)] {
        let server = TestServer::start().await;
        server.hit("create", lost);
        let answer = ensure(&server, 2, None).await.unwrap();
        assert!(matches!(answer, ApplyOutcome::Created(_)), "{answer:?}");
        assert_eq!(server.requests(), [format!("POST {DEPLOYMENTS}"), format!("GET {WEB}")]);
    }
}

/// B4, B5: the name is taken by an object of another kind of owner, name or uid.
#[tokio::test(start_paused = true)]
async fn foreign_object_is_never_written() {
    for (kind, name, uid) in [("Bar", "one", "owner-uid-of-bar"), ("Foo", "two", "another")] {
        let server = TestServer::start().await;
        live(&server, kind, name, uid);
        let answer = ensure(&server, 5, None).await.unwrap();
        assert!(matches!(answer, ApplyOutcome::ResourceExists { .. }), "{kind} {name}: {answer:?}");
        assert_eq!(server.requests(), [format!("POST {DEPLOYMENTS}"), format!("GET {WEB}")]);
    }
    let server = TestServer::start().await;
    server.store(DEPLOYMENTS, json!({"metadata": {"name": "web", "namespace": "ns"}}));
    let answer = ensure(&server, 5, None).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::ResourceExists { .. }), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn terminating_or_previous_child_is_waited_for() {
    let server = TestServer::start().await;
    let object = live(&server, "Foo", "one", "previous uid");
    let answer = ensure(&server, 5, Some(&object)).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Terminating(None)), "{answer:?}");

    let server = TestServer::start().await;
    let mut object = live(&server, "Foo", "one", "owner-uid");
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    server.store(DEPLOYMENTS, object.clone());
    let answer = ensure(&server, 5, Some(&object)).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Terminating(Some(_))), "{answer:?}");
    assert_eq!(server.requests(), Vec::<String>::new(), "its deletion will be an event");
}

/// W10, W12: quota and validation.
#[tokio::test(start_paused = true)]
async fn refused_create_returns_refused_with_status() {
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid")] {
        let server = TestServer::start().await;
        server.refuse("create", code, reason);
        let answer = ensure(&server, 1, None).await.unwrap();
        let ApplyOutcome::Refused { status, observed: None, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((status.code, status.reason.as_str()), (code, reason));
    }
    let server = TestServer::start().await;
    server.refuse("create", 503, "ServiceUnavailable");
    assert!(ensure(&server, 1, None).await.is_err());
}

/// W10: quota is checked before existence, so a refusal does not imply that the name is free.
#[tokio::test(start_paused = true)]
async fn w10_refused_create_still_finds_existing_object() {
    let server = TestServer::start().await;
    live(&server, "Foo", "one", "owner-uid");
    server.refuse("create", 403, "Forbidden");
    let answer = ensure(&server, 2, None).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Updated(..)), "ours without its label: {answer:?}");

    let server = TestServer::start().await;
    live(&server, "Bar", "one", "another");
    server.refuse("create", 403, "Forbidden");
    let answer = ensure(&server, 2, None).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::ResourceExists { .. }), "{answer:?}");
}

/// A refused update leaves the child unchanged and still reports it.
#[tokio::test(start_paused = true)]
async fn refused_update_returns_the_observed_child() {
    let server = TestServer::start().await;
    let object = live(&server, "Foo", "one", "owner-uid");
    server.refuse("patch", 422, "Invalid");
    let answer = ensure(&server, 2, Some(&object)).await.unwrap();
    let ApplyOutcome::Refused { observed: Some(observed), .. } = answer else { panic!("{answer:?}") };
    assert_eq!(observed.spec.replicas, Some(1));
}

/// B1, I5: re-creating, repairing or scaling down a child requires that its owner has not changed. New children
/// and increases need no read: see the header of the module.
#[tokio::test(start_paused = true)]
async fn repairs_and_scale_downs_require_unchanged_owner() {
    for (uid, generation) in [("another uid", 1), ("owner-uid", 2)] {
        let server = TestServer::start().await;
        with_owner(&server, uid, generation);
        let children = children_of(&server);
        let recreated = children.apply(&owner(), &wanted(1), None, true).await.unwrap();
        assert!(matches!(recreated, ApplyOutcome::OwnerChanged), "{recreated:?}");
        let object = cached(&live(&server, "Foo", "one", "owner-uid"));
        let repaired = children.apply(&owner(), &wanted(5), Some(&object), true).await.unwrap();
        assert!(matches!(repaired, ApplyOutcome::OwnerChanged), "{repaired:?}");
        let lowered = children.apply(&owner(), &wanted(0), Some(&object), false).await.unwrap();
        assert!(matches!(lowered, ApplyOutcome::OwnerChanged), "{lowered:?}");
        assert_eq!(server.requests(), vec![format!("GET {FOOS}/one"); 3], "one read per pass");

        let raised = children.apply(&owner(), &wanted(5), Some(&object), false).await.unwrap();
        assert!(
            matches!(raised, ApplyOutcome::Updated(..)),
            "an increase is harmless and needs no check: {raised:?}"
        );
        assert_eq!(server.requests(), [format!("PATCH {WEB}")]);
    }
}

/// I5: a pause changes no generation and takes effect once the cache shows it. Destructive writes and repairs read the
/// owner live, so they never pass a stored pause.
#[tokio::test(start_paused = true)]
async fn stored_pause_blocks_destructive_writes() {
    let server = TestServer::start().await;
    let paused = |value: &str| json!({"metadata": {"name": "one", "uid": "owner-uid", "annotations": {"windlass.dev/paused": value}}});
    server.store(FOOS, paused("true"));
    let children = children_of(&server);
    let object = live(&server, "Foo", "one", "owner-uid");
    for (replicas, cache, is_applied) in
        [(1, None, true), (5, Some(&object), true), (0, Some(&object), false)]
    {
        let cache = cache.map(cached);
        let answer = children.apply(&owner(), &wanted(replicas), cache.as_ref(), is_applied).await.unwrap();
        assert!(matches!(answer, ApplyOutcome::OwnerChanged), "{answer:?}");
    }
    with_replacement(&server);
    assert_eq!(delete(&server, &object).await, Deletion::NotNow);
    let deployments = ApiResource::of::<ObservedDeployment>();
    let surplus = children.delete_surplus(&owner(), &deployments, &child_ref(&object)).await.unwrap();
    assert_eq!(surplus, Deletion::NotNow);
    assert!(server.requests().iter().all(|request| request.starts_with("GET")));

    server.store(FOOS, paused("false"));
    assert_eq!(delete(&server, &object).await, Deletion::Deleted, "any other value is not a pause");
}

/// W13: an admission webhook changes what we write.
#[tokio::test(start_paused = true)]
async fn w13_webhook_mutation_reports_stored_otherwise() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    server.mutate(&json!({"spec": {"replicas": 7}}));
    let children = children_of(&server);
    let answer = children.apply(&owner(), &wanted(2), None, false).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::StoredOtherwise { is_new: true, .. }), "{answer:?}");
}

/// W13: the webhook does so each time.
#[tokio::test(start_paused = true)]
async fn repeatedly_reverted_child_is_contended() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    server.mutate(&json!({"spec": {"replicas": 7}}));
    let children = children_of(&server);
    let again = async || {
        let now = server.get(WEB).map(|object| cached(&object));
        children.apply(&owner(), &wanted(2), now.as_ref(), false).await.unwrap()
    };
    let mut undone = 0;
    let answer = loop {
        match again().await {
            ApplyOutcome::StoredOtherwise { is_new, .. } => {
                assert_eq!(is_new, undone == 0);
                undone += 1;
            }
            answer => break answer,
        }
    };
    assert_eq!(undone, 6, "one create and five repairs");
    let ApplyOutcome::Contended { difference, requeue_after, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(difference, "spec.replicas was 7, wanted 2");
    assert_eq!(requeue_after, Duration::from_secs(120));

    let patches = || server.requests().iter().filter(|request| request.starts_with("PATCH")).count();
    patches();
    assert!(matches!(again().await, ApplyOutcome::Contended { .. }));
    assert_eq!(patches(), 0, "nothing more is written");
    tokio::time::advance(requeue_after).await;
    assert!(matches!(again().await, ApplyOutcome::Contended { .. }), "the retry does not end the contention");
    assert_eq!(patches(), 1);

    let asked = Owner { reconcile_at: Some("now".to_owned()), ..owner() };
    for tries in [1, 0] {
        let now = server.get(WEB).map(|object| cached(&object));
        let answer = children.apply(&asked, &wanted(2), now.as_ref(), false).await.unwrap();
        assert!(matches!(answer, ApplyOutcome::Contended { .. }), "{answer:?}");
        assert_eq!(patches(), tries, "a user's request grants one immediate retry");
    }
}

fn with_owner(server: &TestServer, uid: &str, generation: i64) -> Value {
    let metadata = json!({"name": "one", "uid": uid, "generation": generation});
    server.store(FOOS, json!({"metadata": metadata, "spec": {"deploymentName": "web", "replicas": 1}}))
}

/// Returns the reference of a child as it was observed.
fn child_ref(object: &Value) -> ChildRef {
    ChildRef::of(&cached(object))
}

/// Deletes `web` as it was observed, which `replacement()` replaces.
async fn delete(server: &TestServer, web: &Value) -> Deletion {
    let replacement = (&replacement(), false);
    children_of(server).delete_replaced(&owner(), replacement, &child_ref(web)).await.unwrap()
}

fn replacement() -> WantedDeployment {
    WantedDeployment { name: "new".to_owned(), ..wanted(1) }
}

fn with_replacement(server: &TestServer) -> Value {
    server.store(DEPLOYMENTS, owner().body_of(&replacement()))
}

mod deletions;
mod reference;
mod seldom;
