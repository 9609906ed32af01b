use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::controller::kinds::deployment::WantedDeployment;
use crate::controller::kinds::difference::describe;
use crate::controller::kinds::pod::WantedPod;
use crate::controller::kinds::tests::{self, check_again, observe, shown};

fn resources(limits: &[(&str, &str)], requests: &[(&str, &str)]) -> ResourceRequirements {
    let amounts = |list: &[(&str, &str)]| {
        let all = list.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())));
        Some(all.collect::<BTreeMap<_, _>>()).filter(|all| !all.is_empty())
    };
    ResourceRequirements { limits: amounts(limits), requests: amounts(requests), claims: None }
}

fn wanted() -> WantedContainer {
    WantedContainer { name: "c".to_owned(), image: "nginx".to_owned(), ..WantedContainer::default() }
}

fn live_with(containers: &Value) -> Value {
    let template = json!({"spec": {"containers": containers}});
    json!({"metadata": {"name": "web", "uid": "u", "resourceVersion": "7"}, "spec": {"template": template}})
}

fn deployment(container: &WantedContainer) -> WantedDeployment {
    WantedDeployment {
        name: "web".to_owned(),
        replicas: 1,
        containers: vec![container.clone()],
        ..<_>::default()
    }
}

/// Describes the differences in one line.
fn differences(wanted: &WantedContainer, live: &Value) -> String {
    shown(&deployment(wanted), &live_with(live)).replace("spec.template.spec.", "")
}

fn outdates(wanted: &WantedContainer, live: &Value) -> String {
    let pod = WantedPod { container: wanted.clone(), ..WantedPod::default() };
    let live = json!({"metadata": {"name": "web"}, "spec": {"containers": live}});
    describe(&pod.is_outdated(&observe(&live))).replace("spec.", "")
}

/// Writes the container into the live ones.
#[track_caller]
fn applied(wanted: &WantedContainer, live: &Value) -> Value {
    tests::applied(&deployment(wanted), &live_with(live))["spec"]["template"]["spec"]["containers"].take()
}

#[test]
fn unmanaged_container_fields_are_left_alone() {
    let live = json!([
        {"name": "sidecar", "image": "proxy"},
        {"name": "c", "image": "old", "imagePullPolicy": "Never", "resources": {"limits": {"cpu": "1"}}, "tty": true},
    ]);
    let written = applied(&wanted(), &live);
    assert_eq!(written[0], json!({"name": "sidecar", "image": "proxy"}));
    let kept = json!({"name": "c", "image": "nginx", "imagePullPolicy": "Never",
        "resources": {"limits": {"cpu": "1"}}, "tty": true});
    assert_eq!(written[1], kept);
    assert_eq!(applied(&wanted(), &json!([])), json!([{"name": "c", "image": "nginx", "resources": {}}]));
}

#[test]
fn resources_are_removed_when_none_are_wanted() {
    let live = json!([{"name": "c", "image": "nginx", "resources":
        {"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}, "claims": [{"name": "gpu"}], "newer": 1}}]);
    let none = WantedContainer { resources: Some(ResourceRequirements::default()), ..wanted() };
    let shown = "containers[c].resources.claims was different; \
        containers[c].resources.limits[cpu] was \"1\", wanted none; \
        containers[c].resources.requests[memory] was \"1Gi\", wanted none";
    assert_eq!(differences(&none, &live), shown);
    let written = applied(&none, &live);
    assert_eq!(written[0]["resources"], json!({"newer": 1}), "unknown fields are kept");
    assert_eq!(differences(&none, &written), "");
    // The server stores an empty object.
    assert_eq!(differences(&none, &json!([{"name": "c", "image": "nginx", "resources": {}}])), "");
    assert_eq!(applied(&none, &json!([])), json!([{"name": "c", "image": "nginx", "resources": {}}]));
}

#[test]
fn resources_are_compared_by_value() {
    #[track_caller]
    fn check([live, wanted_]: [ResourceRequirements; 2], expected: &str) {
        let live = json!([{"name": "c", "image": "nginx", "resources": live}]);
        let wanted = WantedContainer { resources: Some(wanted_), ..wanted() };
        let found = differences(&wanted, &live).replace("containers[c].resources.", "");
        assert_eq!(found, expected);
        assert_eq!(differences(&wanted, &applied(&wanted, &live)), "", "after writing");
    }
    let cpu = |limit: &str| resources(&[("cpu", limit)], &[]);
    check([cpu("1"), cpu("1000m")], "");
    check([resources(&[("memory", "1Gi")], &[]), resources(&[("memory", "1024Mi")], &[])], "");
    check([cpu("1m"), cpu("100u")], "");
    check([cpu("1"), cpu("1001m")], r#"limits[cpu] was "1", wanted "1001m""#);
    check([cpu("1"), cpu("two")], r#"limits[cpu] was "1", wanted "two""#);
    // A request that equals the limit, and no request.
    let both = |limit: &str, request: &str| resources(&[("cpu", limit)], &[("cpu", request)]);
    check([both("2", "2"), cpu("2")], "");
    check([cpu("2"), both("2", "2000m")], "");
    check([both("2", "1"), cpu("2")], r#"requests[cpu] was "1", wanted none"#);
    check([cpu("2"), both("2", "1")], r#"requests[cpu] was none, wanted "1""#);
    // A missing request would change with the limit.
    check(
        [cpu("2"), both("3", "2")],
        r#"limits[cpu] was "2", wanted "3"; requests[cpu] was none, wanted "2""#,
    );
    check([both("2", "1"), cpu("1")], r#"limits[cpu] was "2", wanted "1""#);
    check([cpu("2"), resources(&[], &[])], r#"limits[cpu] was "2", wanted none"#);
    let claim = |request: Option<&str>| ResourceRequirements {
        claims: Some(vec![ResourceClaim { name: "gpu".to_owned(), request: request.map(str::to_owned) }]),
        ..ResourceRequirements::default()
    };
    check([claim(None), claim(None)], "");
    check([claim(None), claim(Some("one"))], "claims was different");
}

#[test]
fn pull_policy_is_managed_only_if_wanted() {
    let live = json!([{"name": "c", "image": "nginx", "imagePullPolicy": "Always"}]);
    assert_eq!(differences(&wanted(), &live), "");
    let wanted = WantedContainer { image_pull_policy: Some("IfNotPresent".to_owned()), ..wanted() };
    assert_eq!(
        differences(&wanted, &live),
        r#"containers[c].imagePullPolicy was "Always", wanted "IfNotPresent""#
    );
    assert_eq!(applied(&wanted, &live)[0]["imagePullPolicy"], "IfNotPresent");
}

#[test]
fn equivalent_container_values_stay() {
    let wanted = WantedContainer {
        env: serde_json::from_value(json!([
            {"name": "A"},
            {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1000m"}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": ""}}},
            {"name": "D", "value": "", "valueFrom": {"fileKeyRef": {"key": "k", "path": "p", "volumeName": "v"}}},
        ]))
        .unwrap(),
        ports: serde_json::from_value(json!([{"containerPort": 80, "name": "", "hostPort": 0}])).unwrap(),
        resources: Some(resources(&[("cpu", "1000m")], &[])),
        ..wanted()
    };
    let live = json!([{"name": "c", "image": "nginx",
        "env": [
            {"name": "A", "value": ""},
            {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1", "newer": 1}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}},
            {"name": "D", "valueFrom": {"fileKeyRef": {"key": "k", "path": "p", "volumeName": "v", "optional": false}}},
        ],
        "ports": [{"containerPort": 80, "protocol": "TCP", "newer": 2}],
        "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}, "newer": 3},
    }]);
    assert_eq!(differences(&wanted, &live), "");
    assert_eq!(outdates(&wanted, &live), "");
    assert_eq!(applied(&wanted, &live), live);
}

#[test]
fn port_order_is_ignored_but_duplicates_count() {
    let ports = |all: &[i32]| {
        let port = |port: &i32| ContainerPort { container_port: *port, ..ContainerPort::default() };
        WantedContainer { ports: all.iter().map(port).collect(), ..wanted() }
    };
    let live = applied(&ports(&[80, 81, 80]), &json!([]));
    assert_eq!(
        live[0]["ports"],
        json!([{"containerPort": 80}, {"containerPort": 81}, {"containerPort": 80}])
    );
    for same in [&[80, 81, 80][..], &[81, 80, 80]] {
        assert_eq!(differences(&ports(same), &live), "");
        assert_eq!(outdates(&ports(same), &live), "");
        assert_eq!(applied(&ports(same), &live), live, "the list is not rewritten");
    }
    for other in [&[80, 81][..], &[81, 80, 82], &[]] {
        assert_eq!(differences(&ports(other), &live), "containers[c].ports was different", "{other:?}");
    }
}

#[test]
fn admission_additions_do_not_outdate_a_pod() {
    let wanted = WantedContainer {
        env: serde_json::from_value(json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]))
            .unwrap(),
        ports: serde_json::from_value(json!([{"containerPort": 80}])).unwrap(),
        resources: Some(resources(&[("cpu", "1")], &[])),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        ..wanted()
    };
    let live = json!([{"name": "proxy", "image": "sidecar"}, {"name": "c", "image": "nginx",
        "env": [{"name": "X", "value": "0"}, {"name": "A", "value": "1"}, {"name": "Y"}, {"name": "B", "value": "2"}],
        "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 9090, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        "imagePullPolicy": "Always",
        "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets"}],
    }]);
    assert_eq!(outdates(&wanted, &live), "");
    let without = WantedContainer { resources: Some(ResourceRequirements::default()), ..wanted.clone() };
    assert_eq!(outdates(&without, &live), "");

    #[track_caller]
    fn check(wanted: &WantedContainer, live: &Value, change: impl Fn(&mut Value), expected: &str) {
        let mut live = live.clone();
        change(&mut live[1]);
        assert_eq!(outdates(wanted, &live), expected);
    }
    check(&wanted, &live, |c| c["name"] = json!("d"), "containers[c] was missing");
    check(&wanted, &live, |c| c["image"] = json!("old"), r#"containers[c].image was "old", wanted "nginx""#);
    check(&wanted, &live, |c| c["env"][1]["value"] = json!("9"), "containers[c].env was different");
    check(
        &wanted,
        &live,
        |c| c["env"] = json!([{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]),
        "containers[c].env was different",
    );
    check(
        &wanted,
        &live,
        |c| c["ports"] = json!([{"containerPort": 81}]),
        "containers[c].ports[80] was missing; containers[c].ports[81] was present, wanted none",
    );
    let policy = r#"containers[c].imagePullPolicy was "Never", wanted "IfNotPresent""#;
    check(&wanted, &live, |c| c["imagePullPolicy"] = json!("Never"), policy);
    let limit = r#"containers[c].resources.limits[cpu] was "2", wanted "1""#;
    check(&wanted, &live, |c| c["resources"]["limits"]["cpu"] = json!("2"), limit);
}

fn some_resources() -> impl Strategy<Value = ResourceRequirements> {
    let amount = prop::option::of(prop::sample::select(vec!["1", "1000m", "2", "2000m", "two", ".5"]));
    let names = ["cpu", "memory"];
    prop::collection::vec(amount, 4).prop_map(move |all| {
        let list = |from: &[Option<&'static str>]| {
            names.iter().zip(from).filter_map(|(name, amount)| Some((*name, (*amount)?))).collect::<Vec<_>>()
        };
        resources(&list(&all[..2]), &list(&all[2..]))
    })
}

fn some_wanted() -> impl Strategy<Value = WantedContainer> {
    let policy = prop::option::of(prop::sample::select(vec!["Always", "Never"]));
    let env = prop::collection::vec(("[A-C]", prop::option::of("[0-9]?")), 0..3);
    let ports =
        prop::collection::vec((80..83_i32, prop::option::of(prop::sample::select(vec!["TCP", "UDP"]))), 0..3);
    (policy, env, ports, prop::option::of(some_resources())).prop_map(|(policy, env, ports, resources)| {
        WantedContainer {
            env: env.into_iter().map(|(name, value)| EnvVar { name, value, value_from: None }).collect(),
            ports: ports
                .into_iter()
                .map(|(port, protocol)| ContainerPort {
                    container_port: port,
                    protocol: protocol.map(str::to_owned),
                    ..ContainerPort::default()
                })
                .collect(),
            resources,
            image_pull_policy: policy.map(str::to_owned),
            ..wanted()
        }
    })
}

/// A container as written for another spec, with optional defaults of the server and foreign fields.
fn some_live() -> impl Strategy<Value = Value> {
    (some_wanted(), any::<[bool; 4]>()).prop_map(|(before, by_the_server)| {
        let mut live =
            tests::created(&deployment(&before))["spec"]["template"]["spec"]["containers"][0].take();
        let fields = live.as_object_mut().unwrap();
        let [defaults, policy, resources, odd] = by_the_server;
        if defaults {
            for port in fields.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                port.as_object_mut().unwrap().entry("protocol").or_insert(json!("TCP"));
            }
            for variable in fields.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
                variable.as_object_mut().unwrap().entry("value").or_insert(json!(""));
            }
        }
        if policy {
            fields.entry("imagePullPolicy").or_insert(json!("IfNotPresent"));
        }
        if resources {
            fields.entry("resources").or_insert(json!({}));
        }
        if odd {
            fields.insert("terminationMessagePath".to_owned(), json!("/dev/x"));
        }
        live
    })
}

proptest! {
    /// Covers live and wanted containers of every shape.
    #[test]
    fn writing_a_container_again_changes_nothing(wanted in some_wanted(), live in some_live()) {
        let live = json!([live, {"name": "other", "image": "x"}]);
        check_again(&deployment(&wanted), &live_with(&live));
        let written = applied(&wanted, &live);
        prop_assert_eq!(outdates(&wanted, &written), "");
        prop_assert_eq!(&written[1], &live[1]);
    }

    /// A Pod may have more than is wanted; missing parts make it outdated.
    #[test]
    fn outdated_container_also_differs_in_a_template(wanted in some_wanted(), live in some_live()) {
        let live = json!([live]);
        let (outdated, different) = (outdates(&wanted, &live), differences(&wanted, &live));
        prop_assert!(outdated.is_empty() || !different.is_empty(), "{outdated}");
    }
}
