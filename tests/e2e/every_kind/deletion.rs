//! Deletion of every kind with each propagation policy, and finalizers.

use std::time::Duration;

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{CHILDREN, controller, for_every_kind, hold, is_about, uid};
use crate::support::{LedgerEntry, Scene, both_beds, pass, wait_until};

#[apply(both_beds)]
async fn background_deletion_removes_children_and_pods() {
    let scene = Scene::new("every-background").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let object = kind.ready(&scene, &name).await;
        let children = kind.children(&scene, &name).await;
        scene.unmake(kind.name, &name, DeleteParams::background()).await;
        scene.until_gone(kind.name, &name).await;
        for (child_kind, child, _) in children {
            scene.until_gone(child_kind, &child).await;
        }
        let selector = object["status"]["selector"].as_str().unwrap();
        wait_until(&format!("the Pods of {name} are gone"), async || {
            let pods = scene.matching("Pod", selector).await;
            if pods.is_empty() { Ok(()) } else { Err(pods) }
        })
        .await;
    })
    .await;
}

#[apply(both_beds)]
async fn foreground_deletion_waits_for_every_child() {
    let scene = Scene::new("every-foreground").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        kind.ready(&scene, &name).await;
        let children = kind.children(&scene, &name).await;
        for (child_kind, child, _) in &children {
            hold(&scene, child_kind, child, true).await;
        }
        scene.unmake(kind.name, &name, DeleteParams::foreground()).await;
        for (child_kind, child, before) in children {
            let deleting = scene
                .until(child_kind, &child, "is being deleted", |found| {
                    !found["metadata"]["deletionTimestamp"].is_null()
                })
                .await;
            assert_eq!(uid(&deleting), uid(&before));
            let object = scene.look(kind.name, &name).await;
            assert!(object.is_some(), "blockOwnerDeletion of {child_kind} {child} keeps {name}");
            hold(&scene, child_kind, &child, false).await;
            scene.until_gone(child_kind, &child).await;
        }
        scene.until_gone(kind.name, &name).await;
    })
    .await;
}

#[apply(both_beds)]
async fn orphan_deletion_keeps_children_and_pods() {
    let scene = Scene::new("every-orphan").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        kind.ready(&scene, &name).await;
        let children = kind.children(&scene, &name).await;
        let mut pods: Vec<String> =
            kind.pods(&scene, &name).await.iter().map(|pod| uid(pod).to_owned()).collect();
        let selector = scene.look(kind.name, &name).await.unwrap()["status"]["selector"].clone();
        scene.unmake(kind.name, &name, DeleteParams::orphan()).await;
        scene.until_gone(kind.name, &name).await;
        pass(Duration::from_secs(2)).await;
        for (child_kind, child, before) in children {
            let after =
                scene.look(child_kind, &child).await.unwrap_or_else(|| panic!("no {child_kind} {child}"));
            assert_eq!(uid(&after), uid(&before), "{child_kind} {child}");
            assert_eq!(after["metadata"]["deletionTimestamp"], Value::Null, "{child_kind} {child}");
            assert_eq!(controller(&after), None, "{child_kind} {child}");
        }
        let left = scene.matching("Pod", selector.as_str().unwrap()).await;
        let mut left: Vec<String> = left.iter().map(|pod| uid(pod).to_owned()).collect();
        left.sort();
        pods.sort();
        assert_eq!(left, pods, "{name}: no Pod is deleted");
        kind.make(&scene, &name).await;
        scene.until_reason(kind.name, &name, "ResourceExists").await;
    })
    .await;
    let deletes = scene.writes().into_iter().filter(|write| write.verb.starts_with("delete"));
    assert_eq!(deletes.collect::<Vec<_>>(), []);
}

#[apply(both_beds)]
async fn removed_finalizer_is_restored_before_children_change() {
    for_every_kind(async |kind| {
        let Some(finalizer) = kind.finalizer else { return };
        let scene = Scene::new("every-finalizer").await;
        let name = kind.object();
        let object = kind.ready(&scene, &name).await;
        assert_eq!(object["metadata"]["finalizers"], json!([finalizer]));
        let of_object = |write: &LedgerEntry| {
            let is_status = write.uri.split('?').next().is_some_and(|path| path.ends_with("/status"));
            is_about(write, kind) && write.verb == "patch" && !is_status
        };
        let of_child = |write: &LedgerEntry| CHILDREN.contains(&write.resource.as_str());
        let before = scene.writes().len();
        let both = json!({"metadata": {"finalizers": null}, "spec": {"replicas": 3}});
        scene.change(kind.name, &name, both).await;
        let object = scene.until_ready(kind.name, &name).await;
        assert_eq!(object["metadata"]["finalizers"], json!([finalizer]));
        let writes = scene.writes().split_off(before);
        let held = writes.iter().position(of_object).expect("the finalizer is written");
        let effect = writes.iter().position(of_child).expect("the new spec reaches the children");
        assert!(held < effect, "{writes:?}");
    })
    .await;
}
