//! Deletion of a Redis, whose finalizer keeps it until its Pods are gone.

use std::time::Duration;

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::json;

use super::{HOLD, created, deleted, scene, spec};
use crate::support::{LedgerEntry, both_beds, condition_of, is_ready, pass};

const FINALIZER: &str = "redis.myapp.tangx.in/pods";

fn is_update(write: &LedgerEntry) -> bool {
    let is_of_object = write.uri.split('?').next().is_some_and(|path| !path.ends_with("/status"));
    write.verb == "patch" && write.resource == "redis" && is_of_object && write.code < 300
}

fn is_creation(write: &LedgerEntry) -> bool {
    write.verb == "create" && write.resource == "pods"
}

/// In the source document of Redis a crash after a Pod is created, but before it is recorded, leaks the Pod.
#[apply(both_beds)]
async fn finalizer_is_stored_before_first_pod_is_created() {
    let scene = scene("redis-finalizer", 2).await;
    let redis = scene.look("Redis", "cache").await.unwrap();
    assert_eq!(redis["metadata"]["finalizers"], json!([FINALIZER]));
    let writes = scene.writes();
    let update = writes.iter().position(is_update).expect("the finalizer is written");
    let creation = writes.iter().position(is_creation).expect("a Pod is created");
    assert!(update < creation, "{writes:?}");
    assert_eq!(writes.iter().filter(|write| is_update(write)).count(), 1);
}

#[apply(both_beds)]
async fn removed_finalizer_is_restored_before_next_pod() {
    let scene = scene("redis-unheld", 1).await;
    let before = scene.writes().len();
    scene.change("Redis", "cache", json!({"metadata": {"finalizers": null}, "spec": {"replicas": 2}})).await;
    scene.until_names("Pod", &["cache-0", "cache-1"]).await;
    scene
        .until("Redis", "cache", "is Ready with its finalizer", |redis| {
            is_ready(redis) && redis["metadata"]["finalizers"] == json!([FINALIZER])
        })
        .await;
    let writes = scene.writes().split_off(before);
    let update = writes.iter().position(is_update).expect("the finalizer is restored");
    let creation = writes.iter().position(is_creation).expect("a Pod is created");
    assert!(update < creation, "{writes:?}");
}

#[apply(both_beds)]
async fn redis_deleted_while_scaling_leaves_no_pod() {
    let scene = scene("redis-scale-delete", 2).await;
    scene.change("Redis", "cache", json!({"spec": {"replicas": 30}})).await;
    scene.unmake("Redis", "cache", DeleteParams::background()).await;
    scene.until_gone("Redis", "cache").await;
    scene.until_names("Pod", &[]).await;
    pass(Duration::from_secs(3)).await;
    assert_eq!(scene.names("Pod").await, Vec::<String>::new());
    let writes = scene.writes();
    let released = writes.iter().rposition(is_update).expect("the finalizer is removed");
    assert!(!writes[released..].iter().any(is_creation), "{writes:?}");
}

#[apply(both_beds)]
async fn deleted_redis_waits_for_a_pod_with_finalizer() {
    let scene = scene("redis-held", 2).await;
    scene.change("Pod", "cache-1", json!({"metadata": {"finalizers": [HOLD]}})).await;
    scene.unmake("Redis", "cache", DeleteParams::background()).await;
    scene.until_names("Pod", &["cache-1"]).await;
    let redis = scene.until_reason("Redis", "cache", "Deleting").await;
    assert_eq!(condition_of(&redis, "Reconciling").unwrap()["status"], "True");
    pass(Duration::from_secs(3)).await;
    assert!(scene.look("Redis", "cache").await.is_some());
    assert_eq!(deleted(&scene), ["cache-1", "cache-0"], "each Pod is deleted once, highest ordinal first");
    scene.change("Pod", "cache-1", json!({"metadata": {"finalizers": null}})).await;
    scene.until_gone("Redis", "cache").await;
    assert_eq!(created(&scene), 2);
}

#[apply(both_beds)]
async fn foreground_deletion_removes_redis_and_pods() {
    let scene = scene("redis-foreground", 2).await;
    scene.unmake("Redis", "cache", DeleteParams::foreground()).await;
    scene.until_gone("Redis", "cache").await;
    assert_eq!(scene.names("Pod").await, Vec::<String>::new());
}

#[apply(both_beds)]
async fn orphan_deletion_keeps_the_pods() {
    let scene = scene("redis-orphan", 2).await;
    let before = scene.look("Pod", "cache-1").await.unwrap();
    scene.unmake("Redis", "cache", DeleteParams::orphan()).await;
    scene.until_gone("Redis", "cache").await;
    pass(Duration::from_secs(3)).await;
    let after = scene.look("Pod", "cache-1").await.unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(
        after["metadata"]["ownerReferences"].is_null() && after["metadata"]["deletionTimestamp"].is_null()
    );
    assert_eq!(deleted(&scene), Vec::<String>::new());
}

#[apply(both_beds)]
async fn recreated_redis_gets_new_pods() {
    let scene = scene("redis-again", 2).await;
    scene.unmake("Redis", "cache", DeleteParams::background()).await;
    scene.until_gone("Redis", "cache").await;
    let redis = scene.make("Redis", "cache", spec(3)).await;
    scene.until_ready("Redis", "cache").await;
    for name in ["cache-0", "cache-1", "cache-2"] {
        let pod = scene.look("Pod", name).await.unwrap();
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], redis["metadata"]["uid"], "{name}");
    }
    let events = scene.events_about("Redis", "cache").await;
    assert!(events.iter().all(|(reason, _)| reason != "ErrResourceExists"), "{events:?}");
}

#[apply(both_beds)]
async fn restarted_operator_finishes_interrupted_work() {
    let mut scene = scene("redis-crash", 1).await;
    scene.take_operator().kill();
    scene.change("Redis", "cache", json!({"spec": {"replicas": 4}})).await;
    scene.unmake("Pod", "cache-0", DeleteParams::default()).await;
    scene.start_operator();
    scene.until_names("Pod", &["cache-0", "cache-1", "cache-2", "cache-3"]).await;
    scene.until_ready("Redis", "cache").await;
    scene.take_operator().kill();
    scene.unmake("Redis", "cache", DeleteParams::background()).await;
    pass(Duration::from_secs(1)).await;
    assert!(scene.look("Redis", "cache").await.is_some(), "the finalizer keeps the Redis");
    scene.start_operator();
    scene.until_gone("Redis", "cache").await;
    assert_eq!(scene.names("Pod").await, Vec::<String>::new());
}
