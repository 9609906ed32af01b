//! Scaling of a Redis by its spec, by kubectl and by an autoscaler.

use std::time::Duration;

use macro_rules_attribute::apply;
use serde_json::json;
use windlass::sim::{Action, Fault, When};

use super::{created, deleted, scene, spec};
use crate::support::{Bed, Scene, both_beds, both_beds_with_kubectl, embedded_bed};

#[apply(both_beds)]
async fn only_the_missing_ordinal_is_created() {
    let scene = scene("redis-gap", 3).await;
    let kept = scene.look("Pod", "cache-2").await.unwrap();
    scene.unmake("Pod", "cache-1", Default::default()).await;
    scene.until_event("Redis", "cache", "PodRecreated").await;
    scene.until_names("Pod", &["cache-0", "cache-1", "cache-2"]).await;
    scene.until_ready("Redis", "cache").await;
    assert_eq!(scene.look("Pod", "cache-2").await.unwrap()["metadata"]["uid"], kept["metadata"]["uid"]);
    assert_eq!((created(&scene), deleted(&scene)), (4, vec![]));
}

#[apply(embedded_bed)]
#[why = "the embedded bed can delay each create by a second, which separates the batches"]
async fn pods_are_created_in_doubling_batches() {
    let mut scene = Scene::on(Bed::shared().await, "redis-slow-start").await;
    let Bed::Embedded(bed) = scene.bed.clone() else { unreachable!("the case runs on the embedded bed") };
    let second = Action::Delay(Duration::from_secs(1));
    bed.sim.fault(Fault::new(When::verb("create").resource("pods").user(&scene.user()), second));
    scene.start_operator();
    scene.make("Redis", "cache", spec(20)).await;
    scene.until_ready("Redis", "cache").await;
    let mut batches: Vec<(u64, usize)> = Vec::new();
    let creations = bed
        .sim
        .ledger()
        .into_iter()
        .filter(|entry| entry.verb == "create" && entry.resource == "pods" && entry.user == scene.user());
    for creation in creations {
        match batches.last_mut() {
            Some((at, count)) if *at == creation.at.as_secs() => *count += 1,
            _ => batches.push((creation.at.as_secs(), 1)),
        }
    }
    let sizes: Vec<usize> = batches.into_iter().map(|(_, count)| count).collect();
    assert_eq!(sizes, [1, 2, 4, 8, 5]);
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_scale_scales_a_redis() {
    let scene = scene("redis-kubectl", 1).await;
    scene.kubectl(&["scale", "redis/cache", "--replicas=3"]);
    scene.until_names("Pod", &["cache-0", "cache-1", "cache-2"]).await;
    let redis = scene.until_ready("Redis", "cache").await;
    assert_eq!(redis["spec"]["replicas"], 3);
    let selector = redis["status"]["selector"].as_str().unwrap();
    let pods = scene.kubectl(&["get", "pods", "-l", selector, "-o", "name"]);
    assert_eq!(pods.lines().count(), 3, "the scale subresource's selector finds the Pods");
    scene.kubectl(&["scale", "redis/cache", "--replicas=0"]);
    scene.until_names("Pod", &[]).await;
}

#[apply(both_beds_with_kubectl)]
async fn an_autoscaler_raises_a_redis_to_its_minimum() {
    let scene = scene("redis-autoscale", 1).await;
    scene.kubectl(&["autoscale", "redis", "cache", "--min=3", "--max=5"]);
    scene.until("Redis", "cache", "has 3 replicas", |redis| redis["spec"]["replicas"] == 3).await;
    scene.until_names("Pod", &["cache-0", "cache-1", "cache-2"]).await;
    scene.until_ready("Redis", "cache").await;
}

#[apply(both_beds)]
async fn foreign_pod_blocks_only_its_ordinal_until_deleted() {
    let scene = scene("redis-foreign", 1).await;
    let theirs = json!({"containers": [{"name": "theirs", "image": "theirs"}]});
    let before = scene.make("Pod", "cache-1", theirs).await;
    scene.change("Redis", "cache", json!({"spec": {"replicas": 3}})).await;
    let redis = scene.until_reason("Redis", "cache", "ResourceExists").await;
    let message = &crate::support::condition_of(&redis, "Ready").unwrap()["message"];
    assert_eq!(message, "Resource \"cache-1\" already exists and is not managed by Redis");
    scene.until_names("Pod", &["cache-0", "cache-1", "cache-2"]).await;
    let after = scene.look("Pod", "cache-1").await.unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(after["metadata"]["ownerReferences"].is_null());
    scene.unmake("Pod", "cache-1", Default::default()).await;
    scene.until_ready("Redis", "cache").await;
    assert_eq!(deleted(&scene), Vec::<String>::new());
}
