//! Status and events of every kind.

use std::time::Duration;

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{KINDS, Kind, for_every_kind, uid};
use crate::support::{Scene, both_beds, condition_of, embedded_bed, pass};

const TYPES: [&str; 3] = ["Ready", "Reconciling", "Stalled"];

#[apply(both_beds)]
async fn three_conditions_say_how_it_is_and_of_which_generation() {
    let scene = Scene::new("every-status").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let before = kind.ready(&scene, &name).await;
        // So that a stamp of whole seconds can tell before from after.
        pass(Duration::from_secs(2)).await;
        scene.change(kind.name, &name, json!({"spec": {"replicas": 3}})).await;
        let after = scene.until_ready(kind.name, &name).await;
        for (object, generation) in [(&before, 1), (&after, 2)] {
            assert_eq!(object["status"]["observedGeneration"], generation, "{name}");
            for (type_, expected) in TYPES.into_iter().zip(["True", "False", "False"]) {
                let condition = condition_of(object, type_).unwrap();
                assert_eq!(condition["status"], expected, "{name}: {type_}");
                assert_eq!(condition["observedGeneration"], generation, "{name}: {type_}");
                let has_words =
                    |field: &str| condition[field].as_str().is_some_and(|words| !words.is_empty());
                assert!(has_words("reason") && has_words("message"), "{condition}");
            }
        }
        assert_eq!(
            (&before["status"]["replicas"], &after["status"]["replicas"]),
            (&json!(2), &json!(3)),
            "{name}"
        );
        let since =
            |object: &Value, type_| condition_of(object, type_).unwrap()["lastTransitionTime"].clone();
        assert_eq!(
            since(&before, "Stalled"),
            since(&after, "Stalled"),
            "{name}: it was not stalled in between"
        );
    })
    .await;
}

/// sample-controller writes the status on every sync, the source document of Myapp all children on every pass.
#[apply(both_beds)]
async fn at_rest_nothing_is_written_for_a_day() {
    let scene = Scene::new("every-rest").await;
    for_every_kind(async |kind| drop(kind.ready(&scene, &kind.object()).await)).await;
    // Events are still on their way.
    pass(Duration::from_secs(2)).await;
    let before = scene.writes();
    scene.rest().await;
    assert_eq!(scene.writes(), before);
}

#[apply(both_beds)]
async fn events_come_on_transitions_only_also_across_a_restart() {
    let mut scene = Scene::new("every-events").await;
    for_every_kind(async |kind| {
        kind.ready(&scene, &kind.object()).await;
        if kind.children[0].0 == "Deployment" {
            let name = format!("{}-stuck", kind.object());
            let mut spec: Value = serde_json::from_str(&kind.spec.replace("NAME", &name)).unwrap();
            spec["replicas"] = json!(1);
            scene.foreign_deployment(&name, json!({})).await;
            scene.make(kind.name, &name, spec).await;
            scene.until_event(kind.name, &name, "ErrResourceExists").await;
        }
    })
    .await;
    pass(Duration::from_secs(2)).await;
    let before = all_events(&scene).await;
    assert_eq!(scene.take_operator().terminate().await.code(), Some(0));
    scene.start_operator();
    scene.operator().logged("starting workers").await;
    // The names that are taken are looked at again meanwhile, where time is cheap.
    scene.rest_for_a_while().await;
    assert_eq!(all_events(&scene).await, before);
}

/// Stores the object anew as no schema would let it be, and waits until that is told.
async fn spoil(scene: &Scene, kind: &Kind, mut stored: Value) -> Value {
    stored["spec"]["replicas"] = json!("three");
    stored["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let (plural, group) = kind.plural.split_once('.').unwrap();
    scene.bed.write_behind_the_server(group, plural, &stored).await;
    scene.until_reason(kind.name, &kind.object(), "Unreadable").await
}

/// R16: an object that was stored under an older schema.
#[apply(both_beds)]
async fn an_object_that_does_not_decode_keeps_its_children_and_heals() {
    let scene = Scene::new("every-unreadable").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let stored = kind.ready(&scene, &name).await;
        let before = kind.children(&scene, &name).await;
        let object = spoil(&scene, kind, stored).await;
        assert_eq!(condition_of(&object, "Stalled").unwrap()["status"], "True", "{name}");
        let after = kind.children(&scene, &name).await;
        for ((child_kind, child, before), (_, _, after)) in before.iter().zip(&after) {
            assert_eq!(uid(after), uid(before), "{child_kind} {child}");
        }
        scene.change(kind.name, &name, json!({"spec": {"replicas": 3}})).await;
        let object = scene.until_ready(kind.name, &name).await;
        assert_eq!(object["status"]["replicas"], 3, "{name}: corrected, it goes on");
    })
    .await;
}

/// What holds it is let go, though nobody knows what it has asked for: nothing of it is to be undone.
#[apply(embedded_bed)]
#[why = "a real server's own garbage collector cannot take `orphan` off what has another type than the schema says"]
async fn an_object_that_does_not_decode_goes_when_it_is_orphaned() {
    let scene = Scene::new("every-unreadable-gone").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let stored = kind.ready(&scene, &name).await;
        let before = kind.children(&scene, &name).await;
        spoil(&scene, kind, stored).await;
        scene.unmake(kind.name, &name, DeleteParams::orphan()).await;
        scene.until_gone(kind.name, &name).await;
        for ((child_kind, child, before), (_, _, after)) in
            before.iter().zip(&kind.children(&scene, &name).await)
        {
            assert_eq!(uid(after), uid(before), "{child_kind} {child}");
        }
    })
    .await;
}

/// Deleted in another way it stays for its finalizer, and says what to do; corrected, it goes.
#[apply(both_beds)]
async fn an_object_that_does_not_decode_says_how_it_can_go() {
    let scene = Scene::new("every-unreadable-held").await;
    for_every_kind(async |kind| {
        let Some(finalizer) = kind.finalizer else { return };
        let name = kind.object();
        let stored = kind.ready(&scene, &name).await;
        spoil(&scene, kind, stored).await;
        scene.unmake(kind.name, &name, DeleteParams::background()).await;
        let words = format!("take the finalizer {finalizer} off");
        scene
            .until(kind.name, &name, &words, |found| {
                let stalled = condition_of(found, "Stalled");
                stalled.is_some_and(|stalled| stalled["message"].as_str().unwrap().contains(&words))
            })
            .await;
        scene.change(kind.name, &name, json!({"spec": {"replicas": 2}})).await;
        scene.until_gone(kind.name, &name).await;
    })
    .await;
}

/// The events about all objects.
async fn all_events(scene: &Scene) -> Vec<(String, Vec<(String, String)>)> {
    let mut all = Vec::new();
    for kind in &KINDS {
        for name in [kind.object(), format!("{}-stuck", kind.object())] {
            let events = scene.events_about(kind.name, &name).await;
            all.push((name, events));
        }
    }
    all
}
