//! The pause of every kind.

use std::time::Duration;

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{CHILDREN, Kind, count, for_every_kind};
use crate::support::{LedgerEntry, Scene, both_beds, condition_of, pass};

async fn pause(scene: &Scene, kind: &Kind, is_paused: bool) {
    let value = if is_paused { json!("true") } else { Value::Null };
    let note = json!({"metadata": {"annotations": {"windlass.dev/paused": value}}});
    scene.change(kind.name, &kind.object(), note).await;
}

/// What was written of all children.
fn of_children(scene: &Scene) -> Vec<LedgerEntry> {
    let writes = scene.writes().into_iter();
    writes.filter(|write| CHILDREN.contains(&write.resource.as_str())).collect()
}

#[apply(both_beds)]
async fn a_paused_object_has_no_child_written_until_it_is_resumed() {
    let scene = Scene::new("every-paused").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        kind.ready(&scene, &name).await;
        pause(&scene, kind, true).await;
        let paused = scene
            .until(kind.name, &name, "is paused", |object| {
                condition_of(object, "Reconciling").is_some_and(|found| found["reason"] == "Paused")
            })
            .await;
        assert_eq!(condition_of(&paused, "Reconciling").unwrap()["status"], "False", "{name}");
        assert_eq!(condition_of(&paused, "Ready").unwrap()["status"], "True", "{name}: as observed");
        scene.until_event(kind.name, &name, "Paused").await;
    })
    .await;
    let before = of_children(&scene);
    for_every_kind(async |kind| {
        let name = kind.object();
        scene.change(kind.name, &name, json!({"spec": {"replicas": 3}})).await;
        let (child_kind, child, _) = kind.children(&scene, &name).await.remove(0);
        scene.unmake(child_kind, &child, DeleteParams::background()).await;
        scene.until_gone(child_kind, &child).await;
        let object = scene.until_reason(kind.name, &name, "Paused").await;
        assert_eq!(condition_of(&object, "Ready").unwrap()["status"], "False", "{name}: as observed");
        pass(Duration::from_secs(2)).await;
        let object = scene.look(kind.name, &name).await.unwrap();
        assert_eq!(object["metadata"]["generation"], 2, "{name}");
        assert_eq!(object["status"]["observedGeneration"], 1, "{name}: that was applied last");
    })
    .await;
    assert_eq!(of_children(&scene), before);
    for_every_kind(async |kind| {
        let name = kind.object();
        pause(&scene, kind, false).await;
        let object = scene.until_ready(kind.name, &name).await;
        assert_eq!(object["status"]["observedGeneration"], 2, "{name}");
        assert_eq!(object["status"]["replicas"], 3, "{name}");
        scene.until_event(kind.name, &name, "Resumed").await;
    })
    .await;
}

#[apply(both_beds)]
async fn the_deletion_of_a_paused_object_is_not_held_up() {
    let scene = Scene::new("every-paused-end").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        kind.ready(&scene, &name).await;
        let children = kind.children(&scene, &name).await;
        pause(&scene, kind, true).await;
        scene.until_event(kind.name, &name, "Paused").await;
        scene.unmake(kind.name, &name, DeleteParams::background()).await;
        scene.until_gone(kind.name, &name).await;
        for (child_kind, child, _) in children {
            scene.until_gone(child_kind, &child).await;
        }
        assert_eq!(count(&scene, kind.name, &name, "Resumed").await, 0, "{name}");
    })
    .await;
}

/// A finalizer is a write, too.
#[apply(both_beds)]
async fn an_object_that_is_made_paused_has_nothing_written_but_its_status() {
    let scene = Scene::new("every-born-paused").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let spec: Value = serde_json::from_str(&kind.spec.replace("NAME", &name)).unwrap();
        let metadata = json!({"name": name, "annotations": {"windlass.dev/paused": "true"}});
        scene.make_whole(kind.name, json!({"metadata": metadata, "spec": spec})).await;
        let object = scene.until_reason(kind.name, &name, "Paused").await;
        assert_eq!(object["metadata"]["finalizers"], Value::Null, "{name}");
        assert_eq!(object["status"]["observedGeneration"], Value::Null, "{name}: none was applied");
    })
    .await;
    pass(Duration::from_secs(2)).await;
    let is_status = |write: &LedgerEntry| write.uri.contains("/status") || write.resource == "events";
    let other: Vec<_> = scene.writes().into_iter().filter(|write| !is_status(write)).collect();
    assert_eq!(other, []);
    for_every_kind(async |kind| {
        pause(&scene, kind, false).await;
        scene.until_ready(kind.name, &kind.object()).await;
    })
    .await;
}
