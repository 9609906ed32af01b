//! Children of every kind: labels, owner references, and manual changes.

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::json;

use super::{controller, for_every_kind, hold, uid};
use crate::support::{Scene, both_beds, condition_status};

const NAME: &str = "app.kubernetes.io/name";
const INSTANCE: &str = "app.kubernetes.io/instance";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

#[apply(both_beds)]
async fn children_carry_common_labels_and_one_controller() {
    let scene = Scene::new("every-labels").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let object = kind.ready(&scene, &name).await;
        let labels = [(NAME, name.as_str()), (INSTANCE, &name), (MANAGED_BY, "windlass")];
        for (child_kind, child, found) in kind.children(&scene, &name).await {
            let owner = json!([{
                "apiVersion": object["apiVersion"], "kind": kind.name, "name": name, "uid": uid(&object),
                "controller": true, "blockOwnerDeletion": true,
            }]);
            assert_eq!(found["metadata"]["ownerReferences"], owner, "{child_kind} {child}");
            for (key, value) in labels {
                assert_eq!(found["metadata"]["labels"][key], value, "{child_kind} {child}: {key}");
            }
            let selector = match child_kind {
                "Deployment" => &found["spec"]["selector"]["matchLabels"],
                "Service" => &found["spec"]["selector"],
                _ => continue,
            };
            for (key, value) in &labels[..2] {
                assert_eq!(selector[*key], *value, "{child_kind} {child}: {selector}");
            }
        }
        let pods = kind.pods(&scene, &name).await;
        assert_eq!(pods.len(), 2, "{name}");
        for (pod, (key, value)) in pods.iter().flat_map(|pod| labels.map(|label| (pod, label))) {
            assert_eq!(pod["metadata"]["labels"][key], value, "a Pod of {name}: {key}");
        }
    })
    .await;
}

#[apply(both_beds)]
async fn a_child_deleted_by_hand_comes_back() {
    let scene = Scene::new("every-deleted").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        kind.ready(&scene, &name).await;
        for (child_kind, child, before) in kind.children(&scene, &name).await {
            scene.unmake(child_kind, &child, DeleteParams::background()).await;
            scene
                .until(child_kind, &child, "is a new one", |found| {
                    !found.is_null() && uid(found) != uid(&before)
                })
                .await;
        }
        scene.until_ready(kind.name, &name).await;
    })
    .await;
}

#[apply(both_beds)]
async fn manual_change_is_reverted_and_foreign_metadata_kept() {
    let scene = Scene::new("every-drift").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        kind.ready(&scene, &name).await;
        for (child_kind, child, before) in kind.children(&scene, &name).await {
            let theirs = json!({"labels": {"team": "a", INSTANCE: "other"}, "annotations": {"note": "theirs"}});
            scene.change(child_kind, &child, json!({"metadata": theirs})).await;
            let after = scene
                .until(child_kind, &child, "has its label", |found| {
                    found["metadata"]["labels"][INSTANCE] == name
                })
                .await;
            assert_eq!(uid(&after), uid(&before));
            let metadata = &after["metadata"];
            assert_eq!((&metadata["labels"]["team"], &metadata["annotations"]["note"]), (&json!("a"), &json!("theirs")));
            let words = format!("Repaired {child_kind} \"{child}\": metadata.labels[{INSTANCE}] was \"other\", wanted \"{name}\"");
            scene.until_note(kind.name, &name, "ChildRepaired", &words).await;
        }
        scene.until_ready(kind.name, &name).await;
    })
    .await;
}

/// Without its flags, the reference neither delays a foreground deletion nor marks the child's controller.
#[apply(both_beds)]
async fn owner_reference_is_restored_and_foreign_ones_kept() {
    let scene = Scene::new("every-owner").await;
    let theirs = scene.make("ResourceQuota", "theirs", json!({"hard": {"count/secrets": "100"}})).await;
    let theirs = json!({"apiVersion": "v1", "kind": "ResourceQuota", "name": "theirs", "uid": uid(&theirs)});
    for_every_kind(async |kind| {
        let name = kind.object();
        kind.ready(&scene, &name).await;
        for (child_kind, child, before) in kind.children(&scene, &name).await {
            let ours = controller(&before).unwrap();
            for flag in ["blockOwnerDeletion", "controller"] {
                let mut edited = ours.clone();
                edited[flag] = json!(false);
                scene
                    .change(child_kind, &child, json!({"metadata": {"ownerReferences": [theirs, edited]}}))
                    .await;
                let after = scene
                    .until(child_kind, &child, flag, |found| {
                        controller(found).is_some_and(|owner| owner[flag] == true)
                    })
                    .await;
                assert_eq!(uid(&after), uid(&before), "{child_kind} {child}");
                let references = after["metadata"]["ownerReferences"].as_array().unwrap();
                assert_eq!(references.len(), 2, "{child_kind} {child}: {references:?}");
                assert!(references.contains(ours), "{child_kind} {child}: {references:?}");
                let words = format!("metadata.ownerReferences[{name}].{flag} was none, wanted true");
                scene.until_note(kind.name, &name, "ChildRepaired", &words).await;
            }
        }
        scene.until_ready(kind.name, &name).await;
    })
    .await;
}

/// For example the annotation of `kubectl rollout restart`, and injected containers.
#[apply(both_beds)]
async fn foreign_template_fields_are_kept() {
    let scene = Scene::new("every-template").await;
    for_every_kind(async |kind| {
        if kind.children[0].0 != "Deployment" {
            return;
        }
        let name = kind.object();
        kind.ready(&scene, &name).await;
        let restarted = "kubectl.kubernetes.io/restartedAt";
        let theirs = json!({"spec": {"replicas": 5, "template": {
            "metadata": {"annotations": {restarted: "2026-01-01T00:00:00Z"}},
            "spec": {"containers": [{"name": "sidecar", "image": "proxy"}]},
        }}});
        scene.patch_deployment(&name, theirs).await;
        scene.until_note(kind.name, &name, "ChildRepaired", "spec.replicas was 5, wanted 2").await;
        scene.change(kind.name, &name, json!({"spec": {"replicas": 3}})).await;
        scene.until_ready(kind.name, &name).await;
        let deployment = scene.look("Deployment", &name).await.unwrap();
        assert_eq!(deployment["spec"]["replicas"], 3, "{name}");
        let template = &deployment["spec"]["template"];
        assert!(template["metadata"]["annotations"][restarted].is_string(), "{name}: {template}");
        assert_eq!(template["spec"]["containers"].as_array().unwrap().len(), 2, "{name}: {template}");
    })
    .await;
}

#[apply(both_beds)]
async fn child_of_previous_incarnation_is_awaited_without_warning() {
    let scene = Scene::new("every-earlier").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        kind.ready(&scene, &name).await;
        let (child_kind, child, earlier) = kind.children(&scene, &name).await.remove(0);
        hold(&scene, child_kind, &child, true).await;
        scene.unmake(kind.name, &name, DeleteParams::background()).await;
        if kind.finalizer.is_some() {
            // A user removes the finalizer, so the object is gone before its children are.
            scene.change(kind.name, &name, json!({"metadata": {"finalizers": null}})).await;
        }
        scene.until_gone(kind.name, &name).await;
        kind.make(&scene, &name).await;
        let object = scene.until_reason(kind.name, &name, "WaitingForDeletion").await;
        let conditions = ["Ready", "Reconciling", "Stalled"].map(|type_| condition_status(&object, type_));
        assert_eq!(conditions, ["False", "True", "absent"], "{name}");
        scene
            .until(child_kind, &child, "is being deleted", |found| {
                !found["metadata"]["deletionTimestamp"].is_null()
            })
            .await;
        let released = tokio::time::Instant::now();
        hold(&scene, child_kind, &child, false).await;
        let new = scene
            .until(child_kind, &child, "is a new one", |found| {
                !found.is_null() && uid(found) != uid(&earlier)
            })
            .await;
        assert!(
            released.elapsed().as_secs() < 25,
            "{name}: the deletion triggers a sync before the next retry"
        );
        let object = scene.until_ready(kind.name, &name).await;
        assert_eq!(controller(&new).unwrap()["uid"], object["metadata"]["uid"], "{name}");
        let events = scene.events_about(kind.name, &name).await;
        assert!(events.iter().all(|(reason, _)| reason != "ErrResourceExists"), "{events:?}");
    })
    .await;
}
