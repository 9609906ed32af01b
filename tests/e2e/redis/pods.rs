//! Changes to single Pods of a Redis: termination, deletion, lost labels, webhooks.

use std::time::Duration;

use kube_client::api::{DeleteParams, Patch, PatchParams};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use windlass::sim::{Action, Fault, When};

use super::{HOLD, created, deleted, image, scene, spec, until_replaced};
use crate::support::{Bed, Scene, both_beds, condition_of, embedded_bed, pass};

async fn set_status(scene: &Scene, pod: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    drop(scene.of("Pod").patch_status(pod, &PatchParams::default(), &patch).await.unwrap());
}

#[apply(both_beds)]
async fn terminated_pod_is_replaced_under_its_name() {
    let scene = scene("redis-ended", 2).await;
    let ends = [
        json!({"phase": "Failed"}),
        json!({"phase": "Succeeded"}),
        json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
    ];
    for end in ends {
        let before = scene.look("Pod", "cache-1").await.unwrap();
        set_status(&scene, "cache-1", end).await;
        until_replaced(&scene, &before).await;
        scene
            .until("Pod", "cache-1", "is Ready", |pod| {
                condition_of(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
            })
            .await;
        scene.until_ready("Redis", "cache").await;
    }
    assert_eq!(deleted(&scene), ["cache-1"; 3]);
    assert_eq!(created(&scene), 5);
    scene.until_event("Redis", "cache", "PodRecreated").await;
}

/// I3: a Pod that somebody else made, with our labels and a reference to the Redis that is not its controller's.
#[apply(both_beds)]
async fn pod_without_controller_reference_is_left_alone() {
    let scene = scene("redis-lookalike", 2).await;
    let mut pod = scene.look("Pod", "cache-1").await.unwrap();
    let reference = &mut pod["metadata"]["ownerReferences"][0];
    (reference["controller"], reference["blockOwnerDeletion"]) = (json!(false), json!(false));
    let references = pod["metadata"]["ownerReferences"].clone();
    let metadata =
        json!({"name": "cache-7", "labels": pod["metadata"]["labels"], "ownerReferences": references});
    scene
        .make_whole(
            "Pod",
            json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "redis"}]}}),
        )
        .await;
    scene.change("Redis", "cache", json!({"spec": {"replicas": 1}})).await;
    scene.until_names("Pod", &["cache-0", "cache-7"]).await;
    scene.until_ready("Redis", "cache").await;
    scene.rest().await;
    assert_eq!(deleted(&scene), ["cache-1"]);
}

#[apply(both_beds)]
async fn terminating_pod_is_awaited_without_a_loop() {
    let scene = scene("redis-stuck", 2).await;
    scene.change("Pod", "cache-1", json!({"metadata": {"finalizers": [HOLD]}})).await;
    let before = scene.look("Pod", "cache-1").await.unwrap();
    scene.unmake("Pod", "cache-1", DeleteParams::default()).await;
    let redis = scene.until_reason("Redis", "cache", "WaitingForDeletion").await;
    assert_eq!(condition_of(&redis, "Reconciling").unwrap()["status"], "True");
    let message = condition_of(&redis, "Ready").unwrap()["message"].as_str().unwrap();
    assert!(message.contains("\"cache-1\" is terminating"), "{message}");
    pass(Duration::from_secs(2)).await;
    let requests = || scene.ledger().into_iter().filter(|entry| entry.verb != "watch").count();
    let (asked, written) = (requests(), scene.writes());
    pass(Duration::from_secs(10)).await;
    assert_eq!(scene.writes(), written);
    assert!(requests() - asked <= 5, "{} requests in 10 s", requests() - asked);
    scene.change("Pod", "cache-1", json!({"metadata": {"finalizers": null}})).await;
    until_replaced(&scene, &before).await;
    scene.until_ready("Redis", "cache").await;
    assert_eq!((created(&scene), deleted(&scene)), (3, vec![]));
}

#[apply(both_beds)]
async fn lost_pod_labels_are_restored_on_same_pod() {
    let scene = scene("redis-label", 2).await;
    for (key, value) in [("app.kubernetes.io/managed-by", json!("windlass")), ("app", json!("cache"))] {
        let before = scene.look("Pod", "cache-0").await.unwrap();
        scene.change("Pod", "cache-0", json!({"metadata": {"labels": {key: null, "theirs": "stays"}}})).await;
        let after = scene
            .until("Pod", "cache-0", "has its label", |pod| pod["metadata"]["labels"][key] == value)
            .await;
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(after["metadata"]["labels"]["theirs"], "stays");
        scene.until_ready("Redis", "cache").await;
    }
    let note = scene.until_event("Redis", "cache", "ChildRepaired").await;
    assert!(note.contains("Pod \"cache-0\"") && note.contains("app.kubernetes.io/managed-by"), "{note}");
    assert_eq!((created(&scene), deleted(&scene)), (2, vec![]));
}

/// W13: an admission webhook rewrites the image of every Pod.
#[apply(embedded_bed)]
#[why = "the embedded bed can simulate an admission webhook"]
async fn webhook_rewritten_pods_are_contended_and_heal() {
    let mut scene = Scene::on(Bed::shared().await, "redis-webhook").await;
    let Bed::Embedded(bed) = scene.bed.clone() else { unreachable!("the case runs on the embedded bed") };
    let mirrored = json!({"spec": {"containers": [{"name": "cache", "image": "mirror/redis:7.4"}]}});
    let webhook = bed.sim.fault(Fault::new(When::verb("create").resource("pods"), Action::Edit(mirrored)));
    scene.start_operator();
    scene.make("Redis", "cache", spec(2)).await;
    let redis = scene.until_reason("Redis", "cache", "Contended").await;
    let stalled = condition_of(&redis, "Stalled").unwrap();
    assert_eq!((&stalled["status"], &stalled["reason"]), (&json!("True"), &json!("Contended")));
    assert!(stalled["message"].as_str().unwrap().contains("wanted \"redis:7.4\""), "{stalled}");
    scene.until_event("Redis", "cache", "Contended").await;
    assert_eq!(deleted(&scene), ["cache-1"; 5]);
    pass(Duration::from_secs(100)).await;
    assert_eq!(deleted(&scene).len(), 5, "contention pauses deletes for two minutes");
    pass(Duration::from_secs(100)).await;
    assert_eq!(deleted(&scene).len(), 6, "then one retry follows");
    scene.until_reason("Redis", "cache", "Contended").await;
    bed.sim.heal(webhook);
    pass(Duration::from_secs(300)).await;
    scene.until_ready("Redis", "cache").await;
    for pod in ["cache-0", "cache-1"] {
        assert_eq!(image(&scene.look("Pod", pod).await.unwrap()), "redis:7.4");
    }
}
