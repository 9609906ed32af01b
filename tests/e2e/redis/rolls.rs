//! Rolling updates of a Redis to a new image or port.

use std::time::Duration;

use k8s_openapi::api::core::v1::LimitRange;
use kube_client::api::{Api, DeleteParams, ListParams, PostParams};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{deleted, image, scene};
use crate::support::{Bed, Scene, both_beds, condition_of, pass, wait_until};

/// Asserts continuously that at least `least` Pods are Ready.
pub(super) async fn at_least_are_ready(scene: &Scene, least: usize) -> ! {
    loop {
        let pods = scene.of("Pod").list(&ListParams::default()).await.unwrap().items;
        let is_ready = |pod: &Value| {
            pod["metadata"]["deletionTimestamp"].is_null()
                && condition_of(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
        };
        let ready = pods.iter().filter(|pod| is_ready(&serde_json::to_value(pod).unwrap())).count();
        assert!(ready >= least, "only {ready} Pods are Ready: {pods:#?}");
        pass(Duration::from_millis(20)).await;
    }
}

/// Waits until the Redis is Ready, and asserts that at least `least` of its Pods are Ready all the time.
pub(super) async fn until_rolled(scene: &Scene, least: usize) {
    tokio::select! {
        biased;
        () = async { at_least_are_ready(scene, least).await } => {}
        _ = scene.until_ready("Redis", "cache") => {}
    }
}

#[apply(both_beds)]
async fn rollout_waits_for_each_pod_to_be_ready() {
    let scene = scene("redis-one-by-one", 3).await;
    scene.change("Redis", "cache", json!({"spec": {"image": "redis:slow"}})).await;
    until_rolled(&scene, 2).await;
    assert_eq!(deleted(&scene), ["cache-2", "cache-1", "cache-0"]);
    scene.change("Redis", "cache", json!({"spec": {"port": 7000}})).await;
    until_rolled(&scene, 2).await;
    assert_eq!(deleted(&scene), ["cache-2", "cache-1", "cache-0", "cache-2", "cache-1", "cache-0"]);
    for name in ["cache-0", "cache-1", "cache-2"] {
        let pod = scene.look("Pod", name).await.unwrap();
        let port = &pod["spec"]["containers"][0]["ports"][0]["containerPort"];
        assert_eq!((image(&pod), port), (&json!("redis:slow"), &json!(7000)), "{name}");
    }
}

/// Sets whether Pods with the image `redis:missing` stay unready. On the embedded bed they always do, because of the
/// image's name; on the real one a LimitRange makes all new Pods request more CPU than the nodes have.
async fn block_new_pods(scene: &Scene, is_blocked: bool) {
    if matches!(scene.bed, Bed::Embedded(_)) {
        return;
    }
    let ranges: Api<LimitRange> = Api::namespaced(scene.bed.client(), &scene.namespace);
    if is_blocked {
        let range = json!({"metadata": {"name": "huge"},
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "5G"}}]}});
        ranges.create(&PostParams::default(), &serde_json::from_value(range).unwrap()).await.unwrap();
    } else {
        drop(ranges.delete("huge", &DeleteParams::default()).await.unwrap());
    }
    // The LimitRange takes effect with a delay.
    wait_until("admission applies the change", async || {
        let pod = json!({"metadata": {"generateName": "probe-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(scene.bed.client(), &scene.namespace);
        let pod = pods.create(&dry_run, &serde_json::from_value(pod).unwrap()).await.unwrap();
        let is_huge = pod.spec.unwrap().containers[0].resources.as_ref().is_some_and(|r| r.requests.is_some());
        if is_huge == is_blocked { Ok(()) } else { Err(is_huge) }
    })
    .await;
}

#[apply(both_beds)]
async fn new_spec_unblocks_rollout_stuck_on_bad_image() {
    let scene = scene("redis-bad-image", 3).await;
    block_new_pods(&scene, true).await;
    scene.change("Redis", "cache", json!({"spec": {"image": "redis:missing"}})).await;
    scene.until("Pod", "cache-2", "has the bad image", |pod| image(pod) == "redis:missing").await;
    scene
        .until("Redis", "cache", "has two Ready Pods", |redis| {
            redis["status"]["readyReplicas"] == 2 && redis["status"]["replicas"] == 3
        })
        .await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(deleted(&scene), ["cache-2"], "the rollout stops at the first unready Pod");
    let redis = scene.look("Redis", "cache").await.unwrap();
    assert_eq!(condition_of(&redis, "Ready").unwrap()["reason"], "RollingUpdate");
    block_new_pods(&scene, false).await;
    scene.change("Redis", "cache", json!({"spec": {"image": "redis:8.0"}})).await;
    until_rolled(&scene, 2).await;
    assert_eq!(deleted(&scene), ["cache-2", "cache-2", "cache-1", "cache-0"]);
    for name in ["cache-0", "cache-1", "cache-2"] {
        assert_eq!(image(&scene.look("Pod", name).await.unwrap()), "redis:8.0", "{name}");
    }
}

#[apply(both_beds)]
async fn scaling_to_0_and_back_mid_rollout_converges() {
    let scene = scene("redis-mid-roll", 3).await;
    scene.change("Redis", "cache", json!({"spec": {"image": "redis:slow"}})).await;
    scene.until("Pod", "cache-2", "has the new image", |pod| image(pod) == "redis:slow").await;
    scene.change("Redis", "cache", json!({"spec": {"replicas": 0}})).await;
    scene.until_names("Pod", &[]).await;
    let redis = scene.until_ready("Redis", "cache").await;
    assert_eq!(redis["status"]["replicas"], 0);
    scene.change("Redis", "cache", json!({"spec": {"replicas": 2}})).await;
    scene.until_names("Pod", &["cache-0", "cache-1"]).await;
    scene.until_ready("Redis", "cache").await;
    for name in ["cache-0", "cache-1"] {
        assert_eq!(image(&scene.look("Pod", name).await.unwrap()), "redis:slow", "{name}");
    }
}

#[apply(both_beds)]
async fn scaling_up_mid_rollout_converges() {
    let scene = scene("redis-roll-scale", 3).await;
    scene.change("Redis", "cache", json!({"spec": {"image": "redis:slow"}})).await;
    scene.until("Pod", "cache-2", "has the new image", |pod| image(pod) == "redis:slow").await;
    scene.change("Redis", "cache", json!({"spec": {"replicas": 5}})).await;
    scene.until_ready("Redis", "cache").await;
    assert_eq!(scene.names("Pod").await, ["cache-0", "cache-1", "cache-2", "cache-3", "cache-4"]);
    for name in scene.names("Pod").await {
        assert_eq!(image(&scene.look("Pod", &name).await.unwrap()), "redis:slow", "{name}");
    }
    assert_eq!(deleted(&scene), ["cache-2", "cache-1", "cache-0"]);
}
