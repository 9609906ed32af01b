//! A new image or port reaches the Pods of a Redis.

use std::time::Duration;

use k8s_openapi::api::core::v1::LimitRange;
use kube_client::api::{Api, DeleteParams, ListParams, PostParams};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{deleted, image, scene};
use crate::support::{Bed, Scene, both_beds, condition_of, pass, wait_until};

/// Looks at the Pods as long as it is polled: so many at least are Ready all the time.
pub(super) async fn at_least_are_ready(scene: &Scene, least: usize) -> ! {
    loop {
        let pods = scene.of("Pod").list(&ListParams::default()).await.unwrap().items;
        let is_ready = |pod: &Value| {
            pod["metadata"]["deletionTimestamp"].is_null()
                && condition_of(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
        };
        let ready = pods.iter().filter(|pod| is_ready(&serde_json::to_value(pod).unwrap())).count();
        assert!(ready >= least, "{ready} are Ready: {pods:#?}");
        pass(Duration::from_millis(20)).await;
    }
}

/// Waits until the Redis is Ready, while so many of its Pods are Ready all the time.
pub(super) async fn until_rolled(scene: &Scene, least: usize) {
    tokio::select! {
        biased;
        () = async { at_least_are_ready(scene, least).await } => {}
        _ = scene.until_ready("Redis", "cache") => {}
    }
}

#[apply(both_beds)]
async fn a_roll_waits_for_ready_after_each_pod() {
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

/// Pods of the image `redis:missing` never become Ready. The embedded bed goes by the name; on the real one new
/// Pods ask for more than its nodes have.
async fn nothing_new_starts(scene: &Scene, is_so: bool) {
    if matches!(scene.bed, Bed::Embedded(_)) {
        return;
    }
    let ranges: Api<LimitRange> = Api::namespaced(scene.bed.client(), &scene.namespace);
    if is_so {
        let range = json!({"metadata": {"name": "huge"},
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "5G"}}]}});
        ranges.create(&PostParams::default(), &serde_json::from_value(range).unwrap()).await.unwrap();
    } else {
        drop(ranges.delete("huge", &DeleteParams::default()).await.unwrap());
    }
    // Admission learns of it a moment later.
    wait_until("admission does so", async || {
        let pod = json!({"metadata": {"generateName": "probe-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(scene.bed.client(), &scene.namespace);
        let pod = pods.create(&dry_run, &serde_json::from_value(pod).unwrap()).await.unwrap();
        let is_huge = pod.spec.unwrap().containers[0].resources.as_ref().is_some_and(|r| r.requests.is_some());
        if is_huge == is_so { Ok(()) } else { Err(is_huge) }
    })
    .await;
}

#[apply(both_beds)]
async fn a_roll_that_is_stuck_on_a_bad_image_is_got_past_by_a_new_spec() {
    let scene = scene("redis-bad-image", 3).await;
    nothing_new_starts(&scene, true).await;
    scene.change("Redis", "cache", json!({"spec": {"image": "redis:missing"}})).await;
    scene.until("Pod", "cache-2", "has the bad image", |pod| image(pod) == "redis:missing").await;
    scene
        .until("Redis", "cache", "has two that are Ready", |redis| {
            redis["status"]["readyReplicas"] == 2 && redis["status"]["replicas"] == 3
        })
        .await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(deleted(&scene), ["cache-2"], "the roll stops at the first that does not become Ready");
    let redis = scene.look("Redis", "cache").await.unwrap();
    assert_eq!(condition_of(&redis, "Ready").unwrap()["reason"], "RollingUpdate");
    nothing_new_starts(&scene, false).await;
    scene.change("Redis", "cache", json!({"spec": {"image": "redis:8.0"}})).await;
    until_rolled(&scene, 2).await;
    assert_eq!(deleted(&scene), ["cache-2", "cache-2", "cache-1", "cache-0"]);
    for name in ["cache-0", "cache-1", "cache-2"] {
        assert_eq!(image(&scene.look("Pod", name).await.unwrap()), "redis:8.0", "{name}");
    }
}

#[apply(both_beds)]
async fn scaled_to_0_and_from_0_in_mid_roll_it_ends_at_the_new_spec() {
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
async fn scaled_in_mid_roll_it_ends_at_the_new_spec() {
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
