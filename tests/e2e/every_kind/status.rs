//! Status and events of every kind.

use std::time::Duration;

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{KINDS, Kind, for_every_kind, uid};
use crate::support::{Scene, both_beds, condition_of, condition_status, embedded_bed, pass};

#[apply(both_beds)]
async fn conditions_report_state_and_generation() {
    let scene = Scene::new("every-status").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let before = kind.ready(&scene, &name).await;
        scene.change(kind.name, &name, json!({"spec": {"replicas": 3}})).await;
        let after = scene.until_ready(kind.name, &name).await;
        for (object, generation) in [(&before, 1), (&after, 2)] {
            assert_eq!(object["status"]["observedGeneration"], generation, "{name}");
            let condition = condition_of(object, "Ready").unwrap();
            assert_eq!(condition["status"], "True", "{name}");
            assert_eq!(condition["observedGeneration"], generation, "{name}");
            let has_words = |field: &str| condition[field].as_str().is_some_and(|words| !words.is_empty());
            assert!(has_words("reason") && has_words("message"), "{condition}");
            let others = ["Reconciling", "Stalled"].map(|type_| condition_status(object, type_));
            assert_eq!(others, ["absent"; 2], "{name}: present only while true");
        }
        assert_eq!(
            (&before["status"]["replicas"], &after["status"]["replicas"]),
            (&json!(2), &json!(3)),
            "{name}"
        );
    })
    .await;
}

/// Unlike sample-controller, which writes the status on every sync, and the source document of Myapp, which writes
/// all children on every pass.
#[apply(both_beds)]
async fn nothing_is_written_for_a_day_at_rest() {
    let scene = Scene::new("every-rest").await;
    for_every_kind(async |kind| drop(kind.ready(&scene, &kind.object()).await)).await;
    // Events are written with a delay.
    pass(Duration::from_secs(2)).await;
    let before = scene.writes();
    scene.rest().await;
    assert_eq!(scene.writes(), before);
}

#[apply(both_beds)]
async fn restart_repeats_no_events() {
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
    // On the embedded bed, taken names are retried meanwhile.
    scene.rest_for_a_while().await;
    assert_eq!(all_events(&scene).await, before);
}

/// Stores a version of the object that does not decode, and waits until its condition says so.
async fn make_undecodable(scene: &Scene, kind: &Kind, mut stored: Value) -> Value {
    stored["spec"]["replicas"] = json!("three");
    stored["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let (plural, group) = kind.plural.split_once('.').unwrap();
    scene.bed.write_behind_the_server(group, plural, &stored).await;
    scene.until_reason(kind.name, &kind.object(), "Unreadable").await
}

/// R16: an object stored under an older schema.
#[apply(both_beds)]
async fn undecodable_object_keeps_its_children_and_heals() {
    let scene = Scene::new("every-unreadable").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let stored = kind.ready(&scene, &name).await;
        let before = kind.children(&scene, &name).await;
        let object = make_undecodable(&scene, kind, stored).await;
        assert_eq!(condition_of(&object, "Stalled").unwrap()["status"], "True", "{name}");
        let after = kind.children(&scene, &name).await;
        for ((child_kind, child, before), (_, _, after)) in before.iter().zip(&after) {
            assert_eq!(uid(after), uid(before), "{child_kind} {child}");
        }
        scene.change(kind.name, &name, json!({"spec": {"replicas": 3}})).await;
        let object = scene.until_ready(kind.name, &name).await;
        assert_eq!(object["status"]["replicas"], 3, "{name}: a corrected object is reconciled again");
    })
    .await;
}

/// The operator removes its finalizer although it cannot decode the spec, because orphaning undoes nothing.
#[apply(embedded_bed)]
#[why = "the real garbage collector cannot remove the orphan finalizer from an object that violates its schema"]
async fn orphan_deletion_removes_an_undecodable_object() {
    let scene = Scene::new("every-unreadable-gone").await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let stored = kind.ready(&scene, &name).await;
        let before = kind.children(&scene, &name).await;
        make_undecodable(&scene, kind, stored).await;
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

/// With background deletion the finalizer keeps the object until its spec is corrected.
#[apply(both_beds)]
async fn undecodable_object_explains_how_to_delete_it() {
    let scene = Scene::new("every-unreadable-held").await;
    for_every_kind(async |kind| {
        let Some(finalizer) = kind.finalizer else { return };
        let name = kind.object();
        let stored = kind.ready(&scene, &name).await;
        make_undecodable(&scene, kind, stored).await;
        scene.unmake(kind.name, &name, DeleteParams::background()).await;
        let words = format!("remove the finalizer {finalizer}");
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

/// Returns the events about each object.
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
