//! The operator's role: every permission is used, and a missing one is named.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use windlass::sim::{Action, Fault, When};

use super::in_the_way::foreign_spec;
use super::{KINDS, Kind};
use crate::plans::share::Share;
use crate::support::{Bed, EmbeddedBed, Scene, embedded_bed, pass};

/// How many permissions are taken away, one at a time, unless `WINDLASS_PERMISSIONS` is set.
const PERMISSIONS: Share = Share::Some(6);
const ROLE: &str = include_str!("../../../hack/deploy/base/role.yaml");

/// Returns each resource, with its subresource, and each verb of the role. Finalizers have a subresource for permissions
/// alone, which no request names.
fn granted() -> BTreeSet<(String, String)> {
    let role: Value = serde_saphyr::from_str(ROLE).expect("the role is YAML");
    let list = |rule: &Value, field: &str| -> Vec<String> {
        rule[field].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let rules = role["rules"].as_array().unwrap().iter();
    let pairs = rules.flat_map(|rule| {
        let verbs = list(rule, "verbs");
        let resources = list(rule, "resources").into_iter();
        resources
            .flat_map(move |resource| verbs.clone().into_iter().map(move |verb| (resource.clone(), verb)))
    });
    pairs.filter(|(resource, _)| !resource.ends_with("/finalizers")).collect()
}

/// Returns the resources and verbs of the operator's requests.
fn used(bed: &EmbeddedBed, user: &str) -> BTreeSet<(String, String)> {
    let requests =
        bed.sim.ledger().into_iter().filter(|entry| entry.user == user && !entry.resource.is_empty());
    let resource = |resource: String, subresource: &str| match subresource {
        "" => resource,
        subresource => format!("{resource}/{subresource}"),
    };
    requests.map(|entry| (resource(entry.resource, &entry.subresource), entry.verb)).collect()
}

/// Applies a merge patch, if the object exists: without a permission the operator may not have created it.
async fn change(scene: &Scene, kind: &str, name: &str, patch: Value) {
    if scene.look(kind, name).await.is_some() {
        scene.change(kind, name, patch).await;
    }
}

/// Returns the conditions of all custom resources as text.
async fn conditions(scene: &Scene) -> String {
    let mut text = String::new();
    for kind in &KINDS {
        for object in scene.matching(kind.name, "").await {
            text += &object["status"]["conditions"].to_string();
        }
    }
    text
}

/// Makes the operator use every permission: it creates, repairs and deletes children of all kinds, and finds names that
/// are taken. Returns the conditions that the custom resources had on the way.
async fn exercise(scene: &Scene) -> String {
    let taken =
        [("Deployment", "taken"), ("Service", "taken-svc"), ("Ingress", "taken-ing"), ("Pod", "taken-0")];
    for (kind, name) in taken {
        scene.make(kind, name, foreign_spec(kind)).await;
    }
    let kind = |name: &str| -> &'static Kind { KINDS.iter().find(|kind| kind.name == name).unwrap() };
    for (of, name) in
        [("Foo", "taken"), ("AppService", "taken-svc"), ("Myapp", "taken-ing"), ("Redis", "taken")]
    {
        kind(of).make(scene, name).await;
    }
    for kind in &KINDS {
        kind.make(scene, &kind.object()).await;
    }
    pass(Duration::from_secs(60)).await;
    let mut seen = conditions(scene).await;

    // Three times, so that an event repeats and becomes a series.
    for replicas in 7..10 {
        for kind in ["foo", "myapp", "appservice", "webapp"] {
            change(scene, "Deployment", kind, json!({"spec": {"replicas": replicas}})).await;
        }
        change(scene, "Service", "myapp", json!({"spec": {"ports": [{"port": replicas}]}})).await;
        change(scene, "Service", "appservice", json!({"spec": {"ports": [{"port": replicas}]}})).await;
        change(scene, "Ingress", "myapp", json!({"spec": {"rules": [{"host": "theirs.example.com"}]}})).await;
        let unlabelled = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}});
        change(scene, "Pod", "redis-0", unlabelled).await;
        pass(Duration::from_secs(30)).await;
        seen += &conditions(scene).await;
    }

    scene.change("Foo", "foo", json!({"spec": {"deploymentName": "renamed"}})).await;
    scene.change("Myapp", "myapp", json!({"spec": {"host": null}})).await;
    scene.change("AppService", "appservice", json!({"spec": {"ports": []}})).await;
    scene.change("Redis", "redis", json!({"spec": {"replicas": 1}})).await;
    pass(Duration::from_secs(60)).await;
    seen += &conditions(scene).await;
    for kind in &KINDS {
        scene.unmake(kind.name, &kind.object(), DeleteParams::background()).await;
    }
    pass(Duration::from_secs(120)).await;
    seen + &conditions(scene).await
}

async fn scene(name: &str) -> (Scene, Arc<EmbeddedBed>) {
    let scene = Scene::on(Bed::own(true).await, name).await;
    let Bed::Embedded(bed) = scene.bed.clone() else { unreachable!("the case runs on the embedded bed") };
    (scene, bed)
}

#[apply(embedded_bed)]
#[why = "it takes minutes, which pass at once there; the real bed runs the operator with exactly this role"]
async fn every_permission_of_the_role_is_used() {
    let (mut scene, bed) = scene("all-used").await;
    scene.start_operator();
    exercise(&scene).await;
    let (used, granted) = (used(&bed, &scene.user()), granted());
    let unused: Vec<_> = granted.difference(&used).collect();
    assert!(unused.is_empty(), "granted and not used: {unused:?}");
    let missing: Vec<_> = used.difference(&granted).collect();
    assert!(missing.is_empty(), "used and not granted: {missing:?}");
}

#[apply(embedded_bed)]
#[why = "it takes minutes for each permission, which pass at once there"]
async fn each_missing_permission_is_named() {
    let mut silent = Vec::new();
    let share = Share::from_env("WINDLASS_PERMISSIONS", PERMISSIONS);
    let chosen = share.of(granted().into_iter().collect(), &mut fastrand::Rng::new());
    for (resource, verb) in chosen {
        let (mut scene, bed) = scene("one-missing").await;
        let user = scene.user();
        let (plural, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
        let of = When::verb(&verb).resource(&format!("{plural}/{subresource}")).user(&user);
        let message = format!("{plural} is forbidden: User {user:?} cannot {verb} resource {resource:?}");
        let refusal =
            Action::Refuse { code: 403, reason: "Forbidden".to_owned(), message, retry_after: None };
        bed.sim.fault(Fault::new(of, refusal));
        scene.start_operator();
        let conditions = exercise(&scene).await;
        let mut operator = scene.take_operator();
        assert!(operator.is_running(), "without {verb} {resource} the operator ends");
        let log = operator.log();
        let is_named = log.lines().any(|line| {
            (line.contains("WARN") || line.contains("ERROR"))
                && (line.contains("forbidden") || line.contains("Forbidden"))
                && line.contains(plural)
        });
        if !is_named && !conditions.contains("forbidden") {
            silent.push(format!("{verb} {resource}"));
        }
        assert_eq!(operator.terminate().await.code(), Some(0), "without {verb} {resource}");
    }
    assert!(silent.is_empty(), "nobody is told that these are missing: {silent:?}");
}
