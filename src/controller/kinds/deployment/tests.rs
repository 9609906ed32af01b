use k8s_openapi::api::core::v1::{ContainerPort, EnvVar};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::controller::kinds::diff::differences;
use crate::controller::kinds::tests::{applied, check_again, created, observe};

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn wanted() -> WantedDeployment {
    WantedDeployment {
        name: "web".to_owned(),
        labels: labels(&[("managed-by", "windlass")]),
        selector: labels(&[("app", "web")]),
        pod_labels: labels(&[("app", "web"), ("managed-by", "windlass")]),
        replicas: 2,
        containers: vec![WantedContainer {
            name: "nginx".to_owned(),
            image: "nginx:latest".to_owned(),
            ..WantedContainer::default()
        }],
    }
}

fn fields(wanted: &WantedDeployment, live: &Value) -> Vec<String> {
    differences(wanted, &observe(live)).into_iter().map(|difference| difference.field).collect()
}

#[track_caller]
fn check(change: impl FnOnce(&mut Value), expected: &[&str]) {
    let mut live = created(&wanted());
    change(&mut live);
    assert_eq!(fields(&wanted(), &live), expected);
    assert_eq!(fields(&wanted(), &applied(&wanted(), &live)), Vec::<String>::new());
}

#[test]
fn only_a_new_deployment_is_told_to_mount_no_token() {
    let token = |live: &Value| live["spec"]["template"]["spec"]["automountServiceAccountToken"].clone();
    let mut live = created(&wanted());
    assert_eq!(token(&live), false);
    live["spec"]["template"]["spec"]["automountServiceAccountToken"].take();
    assert_eq!(fields(&wanted(), &live), Vec::<String>::new());
    live["spec"]["replicas"] = json!(7);
    assert_eq!(token(&applied(&wanted(), &live)), Value::Null);
}

#[test]
fn every_changed_deployment_field_is_named() {
    check(|_| {}, &[]);
    check(|live| live["spec"]["replicas"] = json!(7), &["spec.replicas"]);
    check(|live| live["metadata"]["labels"] = json!({}), &["metadata.labels[managed-by]"]);
    check(
        |live| live["spec"]["template"]["metadata"]["labels"]["app"] = json!("other"),
        &["spec.template.metadata.labels[app]"],
    );
    check(
        |live| live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:1"),
        &["spec.template.spec.containers[nginx].image"],
    );
    check(
        |live| {
            live["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "1"}])
        },
        &["spec.template.spec.containers[nginx].env"],
    );
    check(
        |live| live["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]),
        &["spec.template.spec.containers[nginx].ports[80]"],
    );
    check(
        |live| live["spec"]["template"]["spec"]["containers"] = json!([{"name": "other", "image": "x"}]),
        &["spec.template.spec.containers[nginx]"],
    );
}

/// I17
#[test]
fn environment_values_are_not_shown() {
    let mut live = created(&wanted());
    let container = &mut live["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{"name": "PASSWORD", "value": "canary"}]);
    let found = differences(&wanted(), &observe(&live));
    assert_eq!(found[0].to_string(), "spec.template.spec.containers[nginx].env was different");
    assert!(!format!("{found:?}").contains("canary"));
    let first = found[0].fingerprint;
    live["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "PASSWORD", "value": "other"}]);
    let found = differences(&wanted(), &observe(&live));
    assert_eq!(found[0].fingerprint, first, "the same field, changed to another value");
}

#[test]
fn foreign_deployment_fields_are_kept() {
    let live = json!({
        "metadata": {"name": "web", "uid": "u", "labels": {"team": "a"}, "annotations": {"note": "b"}},
        "spec": {
            "minReadySeconds": 3,
            "template": {
                "metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}, "labels": {"tier": "x"}},
                "spec": {"newField": {"deep": [1]}, "containers": [
                    {"name": "sidecar", "image": "proxy"},
                    {"name": "nginx", "image": "old", "resources": {"limits": {"cpu": "1"}}},
                ]},
            },
        },
    });
    let live = applied(&wanted(), &live);
    assert_eq!(live["metadata"]["labels"]["team"], "a");
    assert_eq!(live["metadata"]["annotations"], json!({"note": "b"}));
    assert_eq!(live["spec"]["minReadySeconds"], 3);
    let template = &live["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"], "now");
    assert_eq!(template["metadata"]["labels"]["tier"], "x");
    assert_eq!(template["spec"]["newField"], json!({"deep": [1]}));
    assert_eq!(template["spec"]["containers"][0], json!({"name": "sidecar", "image": "proxy"}));
    assert_eq!(template["spec"]["containers"][1]["resources"], json!({"limits": {"cpu": "1"}}));
    assert_eq!(template["spec"]["containers"][1]["image"], "nginx:latest");
}

#[test]
fn server_defaults_of_a_deployment_are_no_difference() {
    let mut wanted = wanted();
    wanted.replicas = 1;
    wanted.containers[0].ports = vec![ContainerPort { container_port: 80, ..ContainerPort::default() }];
    wanted.containers[0].env = serde_json::from_value(json!([
        {"name": "EMPTY"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]))
    .unwrap();
    let mut live = created(&wanted);
    live["spec"].as_object_mut().unwrap().remove("replicas");
    let container = &mut live["spec"]["template"]["spec"]["containers"][0];
    container["ports"][0]["protocol"] = json!("TCP");
    container["env"][0]["value"] = json!("");
    container["env"][1]["valueFrom"]["fieldRef"]["apiVersion"] = json!("v1");
    container["imagePullPolicy"] = json!("Always");
    assert_eq!(fields(&wanted, &live), Vec::<String>::new());
}

#[test]
fn available_requires_complete_rollout_of_current_spec() {
    let mut deployment: ObservedDeployment = observe(&json!({
        "metadata": {"generation": 2},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
    }));
    assert!(deployment.is_available());
    let done = deployment.clone();
    deployment.metadata.generation = 3;
    assert!(!deployment.is_available(), "the counts refer to an older spec");
    deployment = done.clone();
    deployment.status.replicas = 3;
    assert!(!deployment.is_available(), "an old Pod still exists");
    deployment = done;
    deployment.status.available_replicas = 1;
    assert!(!deployment.is_available());
    let none: ObservedDeployment = observe(&json!({"metadata": {"generation": 1}, "spec": {"replicas": 0},
        "status": {"observedGeneration": 1}}));
    assert!(none.is_available(), "none are wanted and none exist");
}

fn some_labels() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        prop::collection::btree_map("(app|managed-by|team)", "[a-c]", 0..3).prop_map(|labels| json!(labels)),
    ]
}

fn some_container() -> impl Strategy<Value = Value> {
    ("(nginx|sidecar|proxy)", "[a-c]", any::<bool>(), any::<bool>()).prop_map(|(name, image, env, ports)| {
        let mut container = json!({"name": name, "image": image, "terminationMessagePath": "/dev/x"});
        if env {
            container["env"] = json!([{"name": "A", "value": "1"}, {"name": "B"}]);
        }
        if ports {
            container["ports"] = json!([{"containerPort": 80, "protocol": "UDP"}]);
        }
        container
    })
}

fn some_wanted() -> impl Strategy<Value = WantedDeployment> {
    (0..4i32, "[a-c]", prop::collection::vec(("[A-C]", "[0-9]?"), 0..3), any::<bool>()).prop_map(
        |(replicas, image, env, port)| {
            let mut wanted = wanted();
            wanted.replicas = replicas;
            let container = &mut wanted.containers[0];
            container.image = image;
            container.env = env
                .into_iter()
                .map(|(name, value)| EnvVar { name, value: Some(value), ..EnvVar::default() })
                .collect();
            if port {
                container.ports = vec![ContainerPort { container_port: 8080, ..ContainerPort::default() }];
            }
            wanted
        },
    )
}

proptest! {
    /// Covers live objects and specs of every shape.
    #[test]
    fn writing_a_deployment_again_changes_nothing(
        wanted in some_wanted(),
        labels in some_labels(),
        pod_labels in some_labels(),
        replicas in prop::option::of(0..4i32),
        mut containers in prop::collection::vec(some_container(), 0..3),
    ) {
        let mut names = std::collections::BTreeSet::new();
        containers.retain(|container| names.insert(container["name"].to_string()));
        let mut live = json!({
            "metadata": {"name": "web", "uid": "u"},
            "spec": {"template": {"metadata": {}, "spec": {"containers": containers}}},
        });
        if !labels.is_null() {
            live["metadata"]["labels"] = labels;
        }
        if !pod_labels.is_null() {
            live["spec"]["template"]["metadata"]["labels"] = pod_labels;
        }
        if let Some(replicas) = replicas {
            live["spec"]["replicas"] = json!(replicas);
        }
        check_again(&wanted, &live);
        applied(&wanted, &live);
    }
}

#[test]
fn rollout_is_done_with_exactly_the_wanted_pods() {
    let deployment = |wanted: i32, [replicas, updated, available]: [i32; 3]| -> ObservedDeployment {
        serde_json::from_value(json!({
            "metadata": {"generation": 2}, "spec": {"replicas": wanted},
            "status": {"observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated,
                "availableReplicas": available},
        }))
        .unwrap()
    };
    assert!(deployment(2, [2, 2, 2]).is_available());
    assert!(deployment(0, [0, 0, 0]).is_available());
    for (wanted, numbers) in [(2, [2, 2, 1]), (2, [3, 2, 3]), (2, [2, 1, 2]), (0, [2, 2, 2]), (1, [2, 2, 2])]
    {
        assert!(!deployment(wanted, numbers).is_available(), "{wanted} {numbers:?}");
    }
    let mut late = deployment(2, [2, 2, 2]);
    late.metadata.generation = 3;
    assert!(!late.is_available(), "the counts refer to an older spec");
}

#[test]
fn equal_containers_are_shared() {
    let read = |image: &str| -> ObservedDeployment {
        let containers = json!([{"name": "web", "image": image}]);
        serde_json::from_value(json!({"spec": {"template": {"spec": {"containers": containers}}}})).unwrap()
    };
    let [one, two, other, again] = ["a", "a", "b", "a"].map(read);
    let containers = |of: &ObservedDeployment| of.spec.template.spec.containers.as_ptr();
    assert_eq!(containers(&one), containers(&two));
    assert_ne!(containers(&one), containers(&other));
    assert_eq!(one, again);
}
