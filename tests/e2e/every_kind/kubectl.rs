//! kubectl commands on every kind.

use macro_rules_attribute::apply;
use serde_json::json;

use super::KINDS;
use crate::support::{Bed, Scene, both_beds_with_kubectl};

#[apply(both_beds_with_kubectl)]
async fn kubectl_waits_for_and_scales_every_kind() {
    let scene = Scene::new("every-scale").await;
    for kind in &KINDS {
        let name = kind.object();
        kind.make(&scene, &name).await;
        let path = format!("{}/{name}", kind.plural);
        scene.kubectl(&["wait", "--for=condition=Ready", &path, "--timeout=120s"]);
        scene.kubectl(&["scale", &path, "--replicas=3"]);
        let object = scene.until_ready(kind.name, &name).await;
        assert_eq!(
            (&object["spec"]["replicas"], &object["status"]["replicas"]),
            (&json!(3), &json!(3)),
            "{name}"
        );
        let selector = scene.kubectl(&["get", &path, "-o", "jsonpath={.status.selector}"]);
        let pods = scene.kubectl(&["get", "pods", "-l", &selector, "-o", "name"]);
        assert_eq!(pods.lines().count(), 3, "{name}: the scale's selector finds the Pods");
    }
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_prints_columns_of_every_kind() {
    let scene = Scene::new("every-columns").await;
    for kind in &KINDS {
        let name = kind.object();
        kind.ready(&scene, &name).await;
        for resource in [kind.plural, kind.short] {
            let table = scene.kubectl(&["get", resource, &name]);
            let header: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
            assert_eq!(header.join(" "), kind.columns, "{resource}");
            assert!(table.lines().nth(1).unwrap().contains("True"), "{table}");
        }
        let wide = scene.kubectl(&["get", kind.short, &name, "-o", "wide"]);
        assert!(wide.contains("REASON") && wide.contains("Available"), "{wide}");
        let text = scene.kubectl(&["describe", kind.short, &name]);
        let events = scene.events_about(kind.name, &name).await;
        assert!(!events.is_empty() && events.iter().all(|(reason, _)| text.contains(reason)), "{text}");
    }
    let all = scene.kubectl(&["get", "windlass", "-o", "name"]);
    let mut all: Vec<&str> = all.lines().collect();
    all.sort_unstable();
    let mut expected: Vec<String> = KINDS
        .iter()
        .map(|kind| {
            let group = kind.plural.split_once('.').unwrap().1;
            format!("{}.{group}/{}", kind.object(), kind.object())
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(all, expected);
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_wide_output_shows_the_redis_uuid() {
    let scene = Scene::new("redis-wide").await;
    let kind = KINDS.iter().find(|kind| kind.name == "Redis").unwrap();
    let redis = kind.ready(&scene, "cache").await;
    let wide = scene.kubectl(&["get", kind.plural, "cache", "-o", "wide"]);
    let rows: Vec<Vec<&str>> = wide.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0].join(" "), format!("{} REASON UUID", kind.columns), "{wide}");
    assert_eq!(rows[1].last().copied(), redis["metadata"]["uid"].as_str(), "{wide}");
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_explains_every_kind() {
    let bed = Bed::shared().await;
    for kind in &KINDS {
        for (field, words) in [("spec.replicas", "Number of Pods"), ("status.conditions", "`Ready` (")] {
            let path = format!("{}.{field}", kind.plural.split('.').next().unwrap());
            let group = kind.plural.split_once('.').unwrap().1;
            let output = bed.kubectl(&["explain", &path]);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(text.contains(group) && text.contains(kind.name) && text.contains(words), "{text}");
        }
    }
}
