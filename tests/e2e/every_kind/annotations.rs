//! The pause of every kind.

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

/// What was written of all children.
fn of_children(scene: &Scene) -> Vec<LedgerEntry> {
    let writes = scene.writes().into_iter();
    writes.filter(|write| CHILDREN.contains(&write.resource.as_str())).collect()
}

/// Makes one of each kind, and pauses them when they are Ready.
async fn all_are_paused(scene: &Scene) {
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
        assert_eq!(condition_of(&paused, "Ready").unwrap()["status"], "True", "{name}: as observed");
        scene.until_event(kind.name, &name, "Paused").await;
    })
    .await;
}

/// Ends the pause of them all: the spec that waited is applied.
async fn all_are_resumed(scene: &Scene) {
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

/// A new spec waits; what is said is what is true of the children that the former one has made.
#[apply(both_beds)]
async fn a_paused_object_has_no_child_written_until_it_is_resumed() {
    let scene = Scene::new("every-paused").await;
    all_are_paused(&scene).await;
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
        assert_eq!(object["status"]["observedGeneration"], 1, "{name}: that was applied last");
        assert_eq!(object["status"]["replicas"], 2, "{name}");
        let ready = condition_of(&object, "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("True"), &json!("Available")), "{name}");
        let message = ready["message"].as_str().unwrap();
        assert!(message.contains("2 of 2"), "{name}: not counted against a spec that waits: {message}");
    })
    .await;
    assert_eq!(of_children(&scene), before);
    all_are_resumed(&scene).await;
}

/// Before and after its spec changes.
#[apply(both_beds)]
async fn a_child_that_is_deleted_in_a_pause_is_missed_and_not_made_again() {
    let scene = Scene::new("every-paused-missing").await;
    all_are_paused(&scene).await;
    let before = of_children(&scene);
    for_every_kind(async |kind| {
        let name = kind.object();
        // The last Pod of a Redis leaves no gap.
        let children = kind.children(&scene, &name).await;
        let of_first = children.iter().rfind(|(child_kind, ..)| *child_kind == children[0].0);
        let (child_kind, child, _) = of_first.unwrap();
        scene.unmake(child_kind, child, DeleteParams::background()).await;
        scene.until_gone(child_kind, child).await;
        let object = scene.until_reason(kind.name, &name, "Paused").await;
        assert_eq!(condition_of(&object, "Ready").unwrap()["status"], "False", "{name}: as observed");
        scene.change(kind.name, &name, json!({"spec": {"replicas": 3}})).await;
    })
    .await;
    pass(Duration::from_secs(3)).await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let object = scene.look(kind.name, &name).await.unwrap();
        let ready = condition_of(&object, "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Paused")), "{name}");
        assert_eq!(object["status"]["observedGeneration"], 1, "{name}: that was applied last");
    })
    .await;
    assert_eq!(of_children(&scene), before);
    all_are_resumed(&scene).await;
}

/// The same is said twice: the second time is told by the first event.
#[apply(both_beds)]
async fn an_event_that_repeats_becomes_a_series() {
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
    wait_until("the series", async || {
        let events = scene.all_events().await;
        let paused = events.iter().filter(|event| event.reason.as_deref() == Some("Paused"));
        let counts: Vec<_> = paused.map(|event| event.series.as_ref().map(|series| series.count)).collect();
        if counts == [Some(2)] { Ok(()) } else { Err(counts) }
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
