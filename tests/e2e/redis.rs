//! Behaviour of Redis.

mod ending;
mod late;
mod neighbours;
mod pods;
mod rolls;
mod scaling;

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{Scene, both_beds, condition_status};

/// A finalizer with which a case delays an object's deletion.
const HOLD: &str = "windlass.dev/hold-for-the-test";

fn spec(replicas: i32) -> Value {
    json!({"replicas": replicas, "port": 6379, "image": "redis:7.4"})
}

async fn scene(name: &str, replicas: i32) -> Scene {
    let scene = Scene::new(name).await;
    scene.make("Redis", "cache", spec(replicas)).await;
    scene.until_ready("Redis", "cache").await;
    scene
}

/// Returns the names of the Pods that the operator deleted, in order.
fn deleted(scene: &Scene) -> Vec<String> {
    let writes = scene.writes().into_iter();
    let deletes =
        writes.filter(|write| write.verb == "delete" && write.resource == "pods" && write.code < 300);
    deletes.map(|write| write.name).collect()
}

/// Counts the Pods that the operator created.
fn created(scene: &Scene) -> usize {
    let writes = scene.writes().into_iter();
    writes.filter(|write| write.verb == "create" && write.resource == "pods" && write.code == 201).count()
}

/// Waits until a new Pod replaces `before` under its name.
async fn until_replaced(scene: &Scene, before: &Value) -> Value {
    let (name, uid) = (before["metadata"]["name"].as_str().unwrap(), &before["metadata"]["uid"]);
    scene.until("Pod", name, "is a new one", |pod| !pod.is_null() && pod["metadata"]["uid"] != *uid).await
}

fn image(pod: &Value) -> &Value {
    &pod["spec"]["containers"][0]["image"]
}

#[apply(both_beds)]
async fn a_redis_gets_its_pods() {
    let scene = scene("redis", 3).await;
    assert_eq!(scene.names("Pod").await, ["cache-0", "cache-1", "cache-2"]);
    let redis = scene.look("Redis", "cache").await.unwrap();
    let pod = scene.look("Pod", "cache-1").await.unwrap();
    let owner = &pod["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Redis"), &redis["metadata"]["uid"]));
    assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &json!(true)));
    let labels = &pod["metadata"]["labels"];
    assert_eq!((&labels["app"], &labels["app.kubernetes.io/name"]), (&json!("cache"), &json!("redis")));
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["name"], "cache");
    assert_eq!(
        (&container["ports"][0]["containerPort"], &container["imagePullPolicy"]),
        (&json!(6379), &json!("IfNotPresent"))
    );
    let status = &redis["status"];
    assert_eq!((&status["replicas"], &status["readyReplicas"]), (&json!(3), &json!(3)));
    assert_eq!(status["selector"], "app=cache,app.kubernetes.io/instance=cache,app.kubernetes.io/name=redis");
    let conditions = ["Ready", "Reconciling", "Stalled"].map(|type_| condition_status(&redis, type_));
    assert_eq!(conditions, ["True", "absent", "absent"]);
    let conflicts: Vec<_> = scene.writes().into_iter().filter(|write| write.code == 409).collect();
    assert_eq!(conflicts, [], "a key is not synced before the cache has seen its own writes");
}

#[apply(both_beds)]
async fn a_redis_is_scaled_up_and_down() {
    let scene = scene("redis-scale", 1).await;
    scene.change("Redis", "cache", json!({"spec": {"replicas": 4}})).await;
    scene.until_names("Pod", &["cache-0", "cache-1", "cache-2", "cache-3"]).await;
    scene.until_ready("Redis", "cache").await;
    scene.change("Redis", "cache", json!({"spec": {"replicas": 2}})).await;
    scene.until_names("Pod", &["cache-0", "cache-1"]).await;
    scene.until_ready("Redis", "cache").await;
    assert_eq!(deleted(&scene), ["cache-3", "cache-2"]);
    assert_eq!(
        scene.until_event("Redis", "cache", "ScaledDown").await,
        "Scaled down from 4 to 2: cache-3, cache-2"
    );
    scene.change("Redis", "cache", json!({"spec": {"replicas": 0}})).await;
    scene.until_names("Pod", &[]).await;
    scene.until_ready("Redis", "cache").await;
}

#[apply(both_beds)]
async fn deleted_pod_is_recreated_under_its_name() {
    let scene = scene("redis-deleted", 2).await;
    let before = scene.look("Pod", "cache-0").await.unwrap();
    scene.unmake("Pod", "cache-0", DeleteParams::default()).await;
    until_replaced(&scene, &before).await;
    scene.until_ready("Redis", "cache").await;
    assert_eq!(scene.until_event("Redis", "cache", "PodRecreated").await, "Recreated cache-0");
}

#[apply(both_beds)]
async fn a_new_image_reaches_every_pod() {
    let scene = scene("redis-roll", 3).await;
    scene.change("Redis", "cache", json!({"spec": {"image": "redis:8.0"}})).await;
    for name in ["cache-2", "cache-1", "cache-0"] {
        scene.until("Pod", name, "has the new image", |pod| image(pod) == "redis:8.0").await;
    }
    scene.until_ready("Redis", "cache").await;
    assert_eq!(deleted(&scene), ["cache-2", "cache-1", "cache-0"]);
}

#[apply(both_beds)]
async fn a_deleted_redis_waits_for_its_pods() {
    let scene = scene("redis-gone", 2).await;
    scene.unmake("Redis", "cache", DeleteParams::background()).await;
    scene.until_gone("Redis", "cache").await;
    assert_eq!(scene.names("Pod").await, Vec::<String>::new());
    assert_eq!(
        scene.until_event("Redis", "cache", "Deleting").await,
        "Deleting 2 Pods before this Redis is removed"
    );
}
