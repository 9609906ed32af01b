//! Stale caches cause neither duplicate Pods nor surplus deletes.

use std::time::Duration;

use macro_rules_attribute::apply;
use serde_json::json;
use windlass::sim::Sim;

use super::rolls::until_rolled;
use super::{created, deleted, scene, spec};
use crate::support::{Bed, Scene, embedded_bed, pass};

fn sim(scene: &Scene) -> Sim {
    let Bed::Embedded(bed) = &scene.bed else { unreachable!("the case runs on the embedded bed") };
    bed.sim.clone()
}

/// Requests passes repeatedly, for longer than a key waits for the cache to show its writes.
async fn request_passes(scene: &Scene) {
    for at in 0..20 {
        scene
            .change(
                "Redis",
                "cache",
                json!({"metadata": {"annotations": {"windlass.dev/reconcile-at": at.to_string()}}}),
            )
            .await;
        pass(Duration::from_secs(4)).await;
    }
}

#[apply(embedded_bed)]
#[why = "a real server's cache cannot be frozen"]
async fn stale_cache_without_pods_creates_no_duplicates() {
    let scene = Scene::new("redis-late-create").await;
    sim(&scene).freeze_cache(0, "", "pods", true);
    scene.make("Redis", "cache", spec(3)).await;
    request_passes(&scene).await;
    assert_eq!(scene.names("Pod").await, ["cache-0", "cache-1", "cache-2"]);
    sim(&scene).freeze_cache(0, "", "pods", false);
    scene.until_ready("Redis", "cache").await;
    assert_eq!((created(&scene), deleted(&scene)), (3, vec![]));
}

#[apply(embedded_bed)]
#[why = "a real server's cache cannot be frozen"]
async fn stale_cache_with_deleted_pods_deletes_none_twice() {
    let scene = scene("redis-late-delete", 4).await;
    sim(&scene).freeze_cache(0, "", "pods", true);
    scene.change("Redis", "cache", json!({"spec": {"replicas": 2}})).await;
    request_passes(&scene).await;
    assert_eq!(scene.names("Pod").await, ["cache-0", "cache-1"]);
    sim(&scene).freeze_cache(0, "", "pods", false);
    scene.until_ready("Redis", "cache").await;
    assert_eq!((created(&scene), deleted(&scene)), (4, vec!["cache-3".to_owned(), "cache-2".to_owned()]));
}

#[apply(embedded_bed)]
#[why = "a real server's cache cannot be frozen"]
async fn stale_cached_spec_deletes_no_wanted_pod() {
    let scene = scene("redis-late-spec", 2).await;
    scene.change("Redis", "cache", json!({"spec": {"replicas": 1}})).await;
    scene.until_names("Pod", &["cache-0"]).await;
    scene.until_ready("Redis", "cache").await;
    sim(&scene).freeze_cache(0, "myapp.tangx.in", "redis", true);
    scene.change("Redis", "cache", json!({"spec": {"replicas": 3}})).await;
    // A Pod that the new spec wants exists already, created by another client for the same owner.
    let mut pod = scene.look("Pod", "cache-0").await.unwrap();
    let redis = scene.look("Redis", "cache").await.unwrap();
    pod["metadata"] = json!({"name": "cache-1", "labels": pod["metadata"]["labels"],
        "ownerReferences": [{"apiVersion": "myapp.tangx.in/v1", "kind": "Redis", "name": "cache",
            "uid": redis["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}]});
    pod["status"] = json!({});
    pod["spec"]["nodeName"] = json!(null);
    scene.make_whole("Pod", pod).await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(deleted(&scene), ["cache-1"], "only the first scale-down deletes a Pod");
    sim(&scene).freeze_cache(0, "myapp.tangx.in", "redis", false);
    scene.until_names("Pod", &["cache-0", "cache-1", "cache-2"]).await;
    scene.until_ready("Redis", "cache").await;
    assert_eq!(deleted(&scene), ["cache-1"]);
}

#[apply(embedded_bed)]
#[why = "a real server's cache cannot be delayed"]
async fn lagging_caches_keep_rollout_and_scaling_exact() {
    let scene = scene("redis-late-roll", 3).await;
    sim(&scene).set_lag(0, Duration::from_secs(2));
    scene.change("Redis", "cache", json!({"spec": {"image": "redis:8.0"}})).await;
    until_rolled(&scene, 2).await;
    assert_eq!(
        (created(&scene), deleted(&scene)),
        (6, ["cache-2", "cache-1", "cache-0"].map(str::to_owned).to_vec())
    );
    for replicas in 4..=9 {
        scene.change("Redis", "cache", json!({"spec": {"replicas": replicas}})).await;
        pass(Duration::from_millis(700)).await;
    }
    scene.until_ready("Redis", "cache").await;
    assert_eq!((created(&scene), deleted(&scene).len()), (12, 3));
}
