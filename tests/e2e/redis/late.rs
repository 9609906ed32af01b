//! D5: caches that are late neither double a Pod nor delete one too many.

use std::time::Duration;

use macro_rules_attribute::apply;
use serde_json::json;
use windlass::sim::Sim;

use super::rolls::until_rolled;
use super::{created, deleted, scene, spec};
use crate::support::{Bed, Scene, embedded_bed, pass};

fn sim(scene: &Scene) -> Sim {
    let Bed::Embedded(bed) = &scene.bed else { unreachable!("it runs on the embedded bed") };
    bed.sim.clone()
}

/// Asks for a pass again and again, for longer than the guard waits for its caches.
async fn pokes(scene: &Scene) {
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
#[why = "a real server's cache cannot be stopped"]
async fn a_cache_that_shows_no_pod_doubles_none() {
    let scene = Scene::new("redis-late-create").await;
    sim(&scene).freeze_cache(0, "", "pods", true);
    scene.make("Redis", "cache", spec(3)).await;
    pokes(&scene).await;
    assert_eq!(scene.names("Pod").await, ["cache-0", "cache-1", "cache-2"]);
    sim(&scene).freeze_cache(0, "", "pods", false);
    scene.until_ready("Redis", "cache").await;
    assert_eq!((created(&scene), deleted(&scene)), (3, vec![]));
}

#[apply(embedded_bed)]
#[why = "a real server's cache cannot be stopped"]
async fn a_cache_that_shows_deleted_pods_deletes_none_twice() {
    let scene = scene("redis-late-delete", 4).await;
    sim(&scene).freeze_cache(0, "", "pods", true);
    scene.change("Redis", "cache", json!({"spec": {"replicas": 2}})).await;
    pokes(&scene).await;
    assert_eq!(scene.names("Pod").await, ["cache-0", "cache-1"]);
    sim(&scene).freeze_cache(0, "", "pods", false);
    scene.until_ready("Redis", "cache").await;
    assert_eq!((created(&scene), deleted(&scene)), (4, vec!["cache-3".to_owned(), "cache-2".to_owned()]));
}

#[apply(embedded_bed)]
#[why = "a real server's cache cannot be stopped"]
async fn a_cache_that_shows_an_old_spec_deletes_nothing_for_it() {
    let scene = scene("redis-late-spec", 2).await;
    scene.change("Redis", "cache", json!({"spec": {"replicas": 1}})).await;
    scene.until_names("Pod", &["cache-0"]).await;
    scene.until_ready("Redis", "cache").await;
    sim(&scene).freeze_cache(0, "myapp.tangx.in", "redis", true);
    scene.change("Redis", "cache", json!({"spec": {"replicas": 3}})).await;
    // A Pod of the new spec is there already, by another hand of the same owner.
    let mut pod = scene.look("Pod", "cache-0").await.unwrap();
    let redis = scene.look("Redis", "cache").await.unwrap();
    pod["metadata"] = json!({"name": "cache-1", "labels": pod["metadata"]["labels"],
        "ownerReferences": [{"apiVersion": "myapp.tangx.in/v1", "kind": "Redis", "name": "cache",
            "uid": redis["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}]});
    pod["status"] = json!({});
    pod["spec"]["nodeName"] = json!(null);
    scene.make_whole("Pod", pod).await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(deleted(&scene), ["cache-1"], "the first scale-down, and no other");
    sim(&scene).freeze_cache(0, "myapp.tangx.in", "redis", false);
    scene.until_names("Pod", &["cache-0", "cache-1", "cache-2"]).await;
    scene.until_ready("Redis", "cache").await;
    assert_eq!(deleted(&scene), ["cache-1"]);
}

#[apply(embedded_bed)]
#[why = "a real server's cache cannot be made late"]
async fn with_all_caches_late_a_roll_still_goes_one_at_a_time_and_a_scale_makes_each_pod_once() {
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
