use k8s_openapi::api::core::v1::ContainerPort;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cache::Object;
use crate::controller::HealthPhase;
use crate::controller::kinds::tests::{self, applied, check_again, observe, shown};

fn wanted(image: &str, port: i32) -> WantedPod {
    WantedPod {
        name: "web-0".to_owned(),
        labels: Labels::from([("app".to_owned(), "web".to_owned())]),
        container: WantedContainer {
            name: "web".to_owned(),
            image: image.to_owned(),
            ports: vec![ContainerPort { container_port: port, ..ContainerPort::default() }],
            image_pull_policy: Some("IfNotPresent".to_owned()),
            ..WantedContainer::default()
        },
    }
}

/// Returns a Pod as server, admission and scheduler leave it.
fn created(wanted: &WantedPod) -> Value {
    let mut pod = tests::created(wanted);
    let container = &mut pod["spec"]["containers"][0];
    container["ports"][0]["protocol"] = json!("TCP");
    container["imagePullPolicy"] = json!("Always");
    container["resources"] = json!({"requests": {"cpu": "100m"}});
    container["terminationMessagePath"] = json!("/dev/termination-log");
    container["volumeMounts"] = json!([{"name": "token", "mountPath": "/var/run/secrets"}]);
    pod["spec"]["containers"].as_array_mut().unwrap().insert(0, json!({"name": "proxy", "image": "sidecar"}));
    for (field, value) in [
        ("nodeName", json!("node-0")),
        ("serviceAccountName", json!("default")),
        ("tolerations", json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}])),
        ("volumes", json!([{"name": "token"}])),
    ] {
        pod["spec"][field] = value;
    }
    pod
}

fn outdated(wanted: &WantedPod, live: &Value) -> String {
    describe(&wanted.is_outdated(&observe(live)))
}

#[test]
fn server_additions_to_a_pod_are_no_difference() {
    let wanted = wanted("redis:7", 6379);
    let live = created(&wanted);
    assert_eq!(shown(&wanted, &live), "");
    assert_eq!(outdated(&wanted, &live), "");
}

#[test]
fn changed_container_outdates_a_pod() {
    let live = created(&wanted("redis:7", 6379));
    let image = r#"spec.containers[web].image was "redis:7", wanted "redis:8""#;
    assert_eq!(outdated(&wanted("redis:8", 6379), &live), image);
    let port = "spec.containers[web].ports[6380] was missing; spec.containers[web].ports[6379] was present, wanted none";
    assert_eq!(outdated(&wanted("redis:7", 6380), &live), port);
    let mut renamed = wanted("redis:7", 6379);
    renamed.container.name = "other".to_owned();
    assert_eq!(outdated(&renamed, &live), "spec.containers[other] was missing");
}

#[test]
fn only_labels_are_written_in_place() {
    let mut live = created(&wanted("redis:7", 6379));
    live["metadata"]["labels"] = json!({"team": "a"});
    let other = wanted("redis:8", 6380);
    assert_eq!(shown(&other, &live), r#"metadata.labels[app] was none, wanted "web""#);
    let written = applied(&other, &live);
    assert_eq!(written["spec"], live["spec"]);
    assert_eq!(written["metadata"]["labels"], json!({"team": "a", "app": "web"}));
}

#[test]
fn ready_and_finished_follow_the_status() {
    #[track_caller]
    fn check(status: Value, is_ready: bool, is_finished: bool, progress: &str) {
        let wanted = wanted("redis:7", 6379);
        let mut live = created(&wanted);
        live["status"] = status;
        let pod: ObservedPod = observe(&live);
        assert_eq!((pod.is_ready(), pod.is_finished()), (is_ready, is_finished));
        let health = wanted.progress(&pod);
        assert_eq!((health.phase == HealthPhase::Ready, health.message.as_str()), (is_ready, progress));
    }
    let conditions = |ready: &str, reason: &str| json!([{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready, "reason": reason}]);
    check(json!({}), false, false, "Pod \"web-0\" is not ready: ");
    check(
        json!({"phase": "Pending", "conditions": conditions("False", "ContainersNotReady")}),
        false,
        false,
        "Pod \"web-0\" is not ready: Pending, ContainersNotReady",
    );
    check(
        json!({"phase": "Running", "conditions": conditions("True", "")}),
        true,
        false,
        "Pod \"web-0\" is ready",
    );
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"});
    check(evicted, false, true, "Pod \"web-0\" is not ready: Failed, Evicted, low on memory");
    check(json!({"phase": "Succeeded"}), false, true, "Pod \"web-0\" is not ready: Succeeded");
}

#[test]
fn ready_but_outdated_pod_is_reconciling() {
    let mut live = created(&wanted("redis:7", 6379));
    live["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let health = wanted("redis:8", 6379).progress(&observe(&live));
    assert_eq!(health.phase, HealthPhase::Reconciling);
    let expected = "Pod \"web-0\" is outdated and will be replaced: spec.containers[web].image";
    assert!(health.message.starts_with(expected), "{}", health.message);
}

#[test]
fn observed_pod_exposes_its_metadata() {
    let live = json!({"metadata": {"name": "web-0", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 2,
        "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"},
        "ownerReferences": [{"apiVersion": "g/v1", "kind": "Redis", "name": "web", "uid": "o", "controller": true}]},
        "spec": {"nodeName": "node-0"}});
    let pod: ObservedPod = observe(&live);
    assert_eq!(
        (pod.object_name().to_string(), pod.uid(), pod.resource_version()),
        ("ns/web-0".to_owned(), "u", "7")
    );
    assert_eq!((pod.generation(), pod.is_deleting(), pod.controller().unwrap().uid), (2, true, "o"));
    assert_eq!(pod.label("a"), Some("b"));
    assert_eq!(ApiResource::of::<ObservedPod>(), PODS);
    assert_eq!(pod.spec.node_name, "node-0");
}

proptest! {
    #[test]
    fn writing_a_pod_again_changes_nothing(
        labels in prop::collection::btree_map("(app|team)", "[a-c]", 0..3),
        live_labels in prop::option::of(prop::collection::btree_map("(app|team|x)", "[a-c]", 0..3)),
        port in 1..3_i32,
    ) {
        let wanted = WantedPod { labels, ..wanted("redis:7", port) };
        check_again(&wanted, &json!({"metadata": {"name": "web-0"}}));
        let mut live = created(&wanted);
        if let Some(labels) = live_labels {
            live["metadata"]["labels"] = json!(labels);
        }
        check_again(&wanted, &live);
        prop_assert_eq!(outdated(&wanted, &applied(&wanted, &live)), "");
    }
}
