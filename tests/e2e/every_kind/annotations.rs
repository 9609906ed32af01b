//! Pausing every kind by annotation.

use std::time::Duration;

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{CHILDREN, KINDS, Kind, count, for_every_kind};
use crate::support::{LedgerEntry, Scene, both_beds, condition_of, pass, wait_until};

async fn pause(scene: &Scene, kind: &Kind, is_paused: bool) {
    let value = if is_paused { json!("true") } else { Value::Null };
    let note = json!({"metadata": {"annotations": {"windlass.dev/paused": value}}});
    scene.change(kind.name, &kind.object(), note).await;
}

/// Returns the operator's writes of children.
fn of_children(scene: &Scene) -> Vec<LedgerEntry> {
    let writes = scene.writes().into_iter();
    writes.filter(|write| CHILDREN.contains(&write.resource.as_str())).collect()
}

/// Creates one object of each kind and pauses it when it is Ready.
async fn create_and_pause_all(scene: &Scene) {
    for_every_kind(async |kind| {
        let name = kind.object();
        kind.ready(scene, &name).await;
        pause(scene, kind, true).await;
        let paused = scene
            .until(kind.name, &name, "is paused", |object| {
                condition_of(object, "Reconciling").is_some_and(|found| found["reason"] == "Paused")
            })
            .await;
        assert_eq!(condition_of(&paused, "Reconciling").unwrap()["status"], "False", "{name}");
        assert_eq!(condition_of(&paused, "Ready").unwrap()["status"], "True", "{name}: still reported");
        scene.until_event(kind.name, &name, "Paused").await;
    })
    .await;
}

/// Resumes the objects and waits until their pending specs are applied.
async fn resume_all(scene: &Scene) {
    for_every_kind(async |kind| {
        let name = kind.object();
        pause(scene, kind, false).await;
        let object = scene.until_ready(kind.name, &name).await;
        assert_eq!(object["status"]["observedGeneration"], 2, "{name}");
        assert_eq!(object["status"]["replicas"], 3, "{name}");
        scene.until_event(kind.name, &name, "Resumed").await;
    })
    .await;
}

/// A new spec is not applied; the status still describes the children of the previous spec.
#[apply(both_beds)]
async fn paused_object_writes_no_children_until_resumed() {
    let scene = Scene::new("every-paused").await;
    create_and_pause_all(&scene).await;
    let before = of_children(&scene);
    for_every_kind(async |kind| {
        scene.change(kind.name, &kind.object(), json!({"spec": {"replicas": 3}})).await;
    })
    .await;
    pass(Duration::from_secs(3)).await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let object = scene.look(kind.name, &name).await.unwrap();
        assert_eq!(object["metadata"]["generation"], 2, "{name}");
        assert_eq!(object["status"]["observedGeneration"], 1, "{name}: the generation applied last");
        assert_eq!(object["status"]["replicas"], 2, "{name}");
        let ready = condition_of(&object, "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("True"), &json!("Available")), "{name}");
        let message = ready["message"].as_str().unwrap();
        assert!(message.contains("2 of 2"), "{name}: counted against the applied spec: {message}");
    })
    .await;
    assert_eq!(of_children(&scene), before);
    resume_all(&scene).await;
}

/// The missing child is reported both before and after the spec changes.
#[apply(both_beds)]
async fn child_deleted_during_pause_is_reported_not_recreated() {
    let scene = Scene::new("every-paused-missing").await;
    create_and_pause_all(&scene).await;
    let before = of_children(&scene);
    for_every_kind(async |kind| {
        let name = kind.object();
        // Of a Redis, delete the last Pod, which leaves no gap in the ordinals.
        let children = kind.children(&scene, &name).await;
        let of_first = children.iter().rfind(|(child_kind, ..)| *child_kind == children[0].0);
        let (child_kind, child, _) = of_first.unwrap();
        scene.unmake(child_kind, child, DeleteParams::background()).await;
        scene.until_gone(child_kind, child).await;
        let object = scene.until_reason(kind.name, &name, "Paused").await;
        assert_eq!(condition_of(&object, "Ready").unwrap()["status"], "False", "{name}: a child is missing");
        scene.change(kind.name, &name, json!({"spec": {"replicas": 3}})).await;
    })
    .await;
    pass(Duration::from_secs(3)).await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let object = scene.look(kind.name, &name).await.unwrap();
        let ready = condition_of(&object, "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Paused")), "{name}");
        assert_eq!(object["status"]["observedGeneration"], 1, "{name}: the generation applied last");
    })
    .await;
    assert_eq!(of_children(&scene), before);
    resume_all(&scene).await;
}

/// The second occurrence of an event updates the first.
#[apply(both_beds)]
async fn repeated_event_becomes_a_series() {
    let scene = Scene::new("every-series").await;
    let foo = KINDS.iter().find(|kind| kind.name == "Foo").unwrap();
    foo.ready(&scene, &foo.object()).await;
    for _ in 0..2 {
        pause(&scene, foo, true).await;
        scene
            .until(foo.name, &foo.object(), "is paused", |object| {
                condition_of(object, "Reconciling").is_some_and(|found| found["reason"] == "Paused")
            })
            .await;
        pause(&scene, foo, false).await;
        scene.until_ready(foo.name, &foo.object()).await;
        scene
            .until(foo.name, &foo.object(), "is resumed", |object| {
                condition_of(object, "Reconciling").is_none_or(|found| found["reason"] != "Paused")
            })
            .await;
    }
    wait_until("the event is a series of 2", async || {
        let events = scene.all_events().await;
        let paused = events.iter().filter(|event| event.reason.as_deref() == Some("Paused"));
        let counts: Vec<_> = paused.map(|event| event.series.as_ref().map(|series| series.count)).collect();
        if counts == [Some(2)] { Ok(()) } else { Err(counts) }
    })
    .await;
}

#[apply(both_beds)]
async fn pause_does_not_delay_deletion() {
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

/// Not even the finalizer is written.
#[apply(both_beds)]
async fn object_created_paused_gets_only_its_status_written() {
    let scene = Scene::new("every-born-paused").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let spec: Value = serde_json::from_str(&kind.spec.replace("NAME", &name)).unwrap();
        let metadata = json!({"name": name, "annotations": {"windlass.dev/paused": "true"}});
        scene.make_whole(kind.name, json!({"metadata": metadata, "spec": spec})).await;
        let object = scene.until_reason(kind.name, &name, "Paused").await;
        assert_eq!(object["metadata"]["finalizers"], Value::Null, "{name}");
        assert_eq!(object["status"]["observedGeneration"], Value::Null, "{name}: no generation was applied");
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
