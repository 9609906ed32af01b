//! Measures the processor time of comparing a child with what is wanted, as each sync does: of one that matches, and of
//! one that has to be scaled, with the patch for it.
//!
//! `cargo bench --bench compare` compares 100,000 Deployments of two shapes, and prints the time for each.

#![allow(clippy::print_stdout, reason = "its results go to standard output")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

use std::hint::black_box;
use std::time::Duration;

use cpu_time::ProcessTime;
use serde_json::{Value, json};
use windlass::controller::Wanted;
use windlass::controller::kinds::deployment::{ObservedDeployment, WantedContainer, WantedDeployment};
use windlass::controller::kinds::diff::{Changes, body_of, differences};

const OBJECTS: usize = 100_000;
const ROUNDS: usize = 5;

fn wanted(is_rich: bool) -> WantedDeployment {
    let labels = |more: &[(&str, &str)]| {
        let common = [
            ("app.kubernetes.io/instance", "web"),
            ("app.kubernetes.io/managed-by", "windlass"),
            ("app.kubernetes.io/name", "foo"),
        ];
        common.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let plain = json!({"name": "web", "image": "registry.example.com/team/web:1.27"});
    let container = WantedContainer {
        name: "web".to_owned(),
        image: plain["image"].as_str().unwrap().to_owned(),
        ..WantedContainer::default()
    };
    let container = match is_rich {
        false => container,
        true => WantedContainer {
            image_pull_policy: Some("IfNotPresent".to_owned()),
            env: serde_json::from_value(json!([
                {"name": "ADDRESS", "value": "0.0.0.0:8080"},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "LEVEL", "value": "info"},
            ]))
            .unwrap(),
            ports: serde_json::from_value(
                json!([{"containerPort": 8080}, {"containerPort": 9090, "name": "metrics"}]),
            )
            .unwrap(),
            resources: serde_json::from_value(
                json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}}),
            )
            .unwrap(),
            ..container
        },
    };
    WantedDeployment {
        name: "web".to_owned(),
        labels: labels(&[]),
        selector: labels(&[("app", "web")]),
        pod_labels: labels(&[("app", "web")]),
        replicas: 2,
        containers: vec![container],
    }
}

/// A Deployment as a server stores it.
fn stored(wanted: &WantedDeployment, at: usize) -> ObservedDeployment {
    let mut child = ObservedDeployment::default();
    wanted.write_into(&mut child);
    let mut live = body_of(&child, Some("default"), "web");
    let condition =
        |type_: &str| json!({"type": type_, "status": "True", "reason": "Good", "message": "All is well."});
    live["metadata"]["name"] = json!(format!("web-{at}"));
    live["metadata"]["uid"] = json!(format!("00000000-0000-0000-0000-{at:012}"));
    live["metadata"]["resourceVersion"] = json!(at.to_string());
    live["metadata"]["generation"] = json!(1);
    live["metadata"]["ownerReferences"] = json!([{"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo",
        "name": format!("web-{at}"), "uid": format!("10000000-0000-0000-0000-{at:012}"), "controller": true, "blockOwnerDeletion": true}]);
    let container = &mut live["spec"]["template"]["spec"]["containers"][0];
    if let Some(ports) = container.get_mut("ports").and_then(Value::as_array_mut) {
        ports.iter_mut().for_each(|port| port["protocol"] = json!("TCP"));
        container["env"][1]["valueFrom"]["fieldRef"]["apiVersion"] = json!("v1");
    }
    live["status"] = json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        "conditions": [condition("Available"), condition("Progressing")]});
    serde_json::from_value(live).unwrap()
}

fn time_of_each(stored: &[ObservedDeployment], compare: impl Fn(&ObservedDeployment)) -> Duration {
    let start = ProcessTime::now();
    stored.iter().for_each(|one| compare(black_box(one)));
    start.elapsed() / u32::try_from(stored.len()).unwrap()
}

fn main() {
    for (name, is_rich) in [("Foo", false), ("AppService", true)] {
        let wanted = wanted(is_rich);
        let stored: Vec<ObservedDeployment> = (0..OBJECTS).map(|at| stored(&wanted, at)).collect();
        for round in 0..ROUNDS {
            let each = time_of_each(&stored, |one| assert!(differences(black_box(&wanted), one).is_empty()));
            println!("{name}, round {round}: {each:?} for each Deployment that matches");
        }
        let scaled = WantedDeployment { replicas: 3, ..wanted };
        for round in 0..ROUNDS {
            let each = time_of_each(&stored, |one| {
                let patch = Changes::of(black_box(&scaled), one).patch(one, None);
                assert_eq!(black_box(patch).body["spec"], json!({"replicas": 3}));
            });
            println!("{name}, round {round}: {each:?} for each Deployment that is scaled");
        }
    }
}
