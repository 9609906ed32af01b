use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use proptest::prelude::*;

use super::*;
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::controller::kinds::container::WantedContainer;
use crate::controller::kinds::deployment::{ObservedDeployment, WantedDeployment};
use crate::controller::kinds::difference::describe;
use crate::controller::kinds::ingress::WantedIngress;
use crate::controller::kinds::pod::WantedPod;
use crate::controller::kinds::service::{ServiceType, WantedService};
use crate::controller::kinds::tests::{applied, created, observe, patched, shown};

// --- one patch, on a server ---

/// The name of a field that no type knows.
const NEWER: &str = "newer";

/// Patches the live child as a server does; the result is what `write_into` makes of it, and newer fields are kept.
#[track_caller]
fn check<W: Wanted<Observed: Debug>>(wanted: &W, live: &Value) {
    let observed: W::Observed = observe(live);
    let changes = Changes::of(wanted, &observed);
    if changes.differences.is_empty() {
        return;
    }
    let patch = changes.patch(&observed, None);
    let is_whole = patch.needs_live;
    let patch = if patch.needs_live { changes.patch(&observed, Some(live)) } else { patch };
    let metadata = &patch.body["metadata"];
    assert_eq!((&metadata["uid"], &metadata["resourceVersion"]), (&json!("u"), &json!("7")));
    let patched = patched(live, &patch);
    let mut desired = observed;
    wanted.write_into(&mut desired);
    assert_eq!(observe::<W::Observed>(&patched), desired, "live {live}\npatch {}", patch.body);
    assert_eq!(shown(wanted, &patched), "", "{}", patch.body);
    let [before, after] = [live, &patched].map(|value| {
        let mut found = BTreeMap::new();
        have_newer(value, "", is_whole, &mut found);
        found
    });
    // What has gone is an item of a list, or in one.
    let is_gone_item = |path: &str| {
        let is_item =
            path.rsplit('/').next().is_some_and(|id| id.starts_with(|c: char| !c.is_ascii_alphabetic()));
        is_item && !after.contains_key(path)
    };
    let ends = |path: &'_ str| {
        path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]).collect::<Vec<_>>()
    };
    for (path, _) in before.iter().filter(|(path, has_newer)| **has_newer && !after.contains_key(*path)) {
        let is_gone = ends(path).into_iter().any(|end| is_gone_item(&path[..end]));
        assert!(is_gone, "{path} is lost: {live}\npatch {}", patch.body);
    }
    for (path, has_newer) in &after {
        assert_eq!(before.get(path).unwrap_or(&false), has_newer, "{path}: {live}\npatch {}", patch.body);
    }
}

/// Collects all objects by their paths, and whether they have a newer field. An item of a list has the path of its key;
/// a port in a list that is replaced as a whole, of its number and protocol.
fn have_newer(value: &Value, path: &str, is_whole: bool, found: &mut BTreeMap<String, bool>) {
    match value {
        Value::Object(map) => {
            found.insert(path.to_owned(), map.contains_key(NEWER));
            for (key, value) in map.iter().filter(|(key, _)| *key != NEWER) {
                have_newer(value, &format!("{path}/{key}"), is_whole, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                let number =
                    [&item["containerPort"], &item["port"]].into_iter().find(|number| !number.is_null());
                let id = match number {
                    Some(number) if is_whole => format!("{number} {}", item["protocol"]),
                    Some(number) => number.to_string(),
                    None => item["name"].to_string(),
                };
                have_newer(item, &format!("{path}/{id}"), is_whole, found);
            }
        }
        _ => {}
    }
}

/// Adds fields that no type knows to objects and items.
fn add_newer(value: &mut Value, name: &str, which: &mut u32) {
    match value {
        // Only structs: all keys of a map are known. Rules are a list without a key, which is replaced as a whole.
        Value::Object(map) if !MAPS.contains(&name) && name != "selector" => {
            for (key, value) in map.iter_mut().filter(|(key, _)| *key != "rules" && *key != "ownerReferences")
            {
                add_newer(value, key, which);
            }
            *which = which.rotate_right(1);
            if *which & 1 == 1 {
                map.insert(NEWER.to_owned(), json!({"a": [1]}));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| add_newer(item, name, which)),
        _ => {}
    }
}

// --- what is wanted ---

fn some_labels() -> impl Strategy<Value = Labels> {
    prop::collection::btree_map("[a-c]", "[x-z]", 1..3)
}

fn some_container() -> impl Strategy<Value = WantedContainer> {
    let env = prop::collection::vec(("[A-C]", "[0-9]"), 0..3).prop_map(|all| {
        let named = all.into_iter().collect::<BTreeMap<_, _>>();
        let list: Vec<Value> =
            named.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        serde_json::from_value(json!(list)).expect("variables decode")
    });
    let ports = prop::collection::btree_set((80..83_i32, any::<bool>()), 0..3).prop_map(|all| {
        let protocol = |is_udp: bool| if is_udp { "UDP" } else { "TCP" };
        let list: Vec<Value> = all
            .iter()
            .map(|&(port, is_udp)| json!({"containerPort": port, "protocol": protocol(is_udp)}))
            .collect();
        serde_json::from_value(json!(list)).expect("ports decode")
    });
    let amounts = || prop::collection::btree_map("cpu|memory", "[1-3]", 0..3);
    let resources = prop::option::of((amounts(), amounts()));
    ("[a-b]:1", env, ports, resources, prop::option::of(Just("IfNotPresent".to_owned()))).prop_map(
        |(image, env, ports, resources, image_pull_policy)| WantedContainer {
            name: "web".to_owned(),
            image,
            env,
            ports,
            resources: resources.map(|(limits, requests)| {
                serde_json::from_value(json!({"limits": limits, "requests": requests})).expect("they decode")
            }),
            image_pull_policy,
        },
    )
}

fn some_deployment() -> impl Strategy<Value = WantedDeployment> {
    (some_labels(), some_labels(), some_labels(), 0..4_i32, some_container()).prop_map(
        |(labels, selector, pod_labels, replicas, container)| WantedDeployment {
            name: "web".to_owned(),
            labels,
            selector,
            pod_labels,
            replicas,
            containers: vec![container],
        },
    )
}

fn some_service() -> impl Strategy<Value = WantedService> {
    let ports =
        prop::collection::btree_map((80..83_i32, any::<bool>()), prop::option::of(30_000..30_003_i32), 1..4);
    (some_labels(), some_labels(), any::<bool>(), ports).prop_map(|(labels, selector, is_inside, ports)| {
        let list: Vec<Value> = ports
            .iter()
            .map(|(&(port, is_udp), &node_port)| {
                let mut one = json!({"name": format!("p{port}{is_udp}"), "port": port,
                    "protocol": if is_udp { "UDP" } else { "TCP" }});
                if let Some(node_port) = node_port.filter(|_| !is_inside) {
                    one["nodePort"] = json!(node_port);
                }
                one
            })
            .collect();
        WantedService {
            name: "web".to_owned(),
            labels,
            selector,
            service_type: if is_inside { ServiceType::ClusterIp } else { ServiceType::NodePort },
            ports: serde_json::from_value(json!(list)).expect("ports decode"),
        }
    })
}

fn some_ingress() -> impl Strategy<Value = WantedIngress> {
    (some_labels(), "[a-b]", "[a-b].example", 80..82_i32).prop_map(|(labels, class, host, service_port)| {
        WantedIngress { name: "web".to_owned(), labels, class, host, service: "web".to_owned(), service_port }
    })
}

/// Returns a child that matches a former spec and also has what others have added.
fn live<W: Wanted>(former: &W, odd: u8, mut newer: u32) -> Value {
    let mut live = created(former);
    live["metadata"]["annotations"] = json!({"theirs": "x"});
    live["metadata"]["labels"]["theirs"] = json!("x");
    if odd & 1 != 0
        && let Some(pod) = live.pointer_mut("/spec/template/spec")
    {
        let theirs = json!({"name": "theirs", "image": "proxy", "env": [{"name": "A", "value": "theirs"}]});
        let at = if odd & 4 == 0 { 0 } else { 1 };
        pod["containers"].as_array_mut().expect("a Pod template has containers").insert(at, theirs);
        pod["volumes"] = json!([{"name": "theirs"}]);
    }
    if odd & 2 != 0 && live["spec"]["type"] == "NodePort" {
        live["spec"]["type"] = json!("LoadBalancer");
        live["spec"]["loadBalancerSourceRanges"] = json!(["10.0.0.0/8"]);
    }
    add_newer(&mut live, "", &mut newer);
    live
}

proptest! {
    /// Covers a Deployment, a Service, an Ingress and a Pod, from any former spec to any new one.
    #[test]
    fn patch_gives_the_same_result_as_write_into(
        deployments in (some_deployment(), some_deployment()),
        services in (some_service(), some_service()),
        ingresses in (some_ingress(), some_ingress()),
        pods in (some_labels(), some_labels()),
        odd in 0..8_u8,
        newer in any::<u32>(),
    ) {
        check(&deployments.1, &live(&deployments.0, odd, newer));
        check(&services.1, &live(&services.0, odd, newer));
        check(&ingresses.1, &live(&ingresses.0, odd, newer));
        let container = WantedContainer { name: "web".to_owned(), image: "a:1".to_owned(), ..<_>::default() };
        let of = |labels| WantedPod { name: "web".to_owned(), labels, container: container.clone() };
        check(&of(pods.1), &live(&of(pods.0), odd, newer));
    }

    /// Covers each value of a child, changed by somebody.
    #[test]
    fn every_written_value_is_repaired(
        deployment in some_deployment(),
        service in some_service(),
        ingress in some_ingress(),
    ) {
        check_each(&deployment);
        check_each(&service);
        check_each(&ingress);
    }
}

/// Changes each value that is written into a child, one at a time.
fn check_each<W: Wanted<Observed: Debug>>(wanted: &W) {
    let live = created(wanted);
    let mut leaves = Vec::new();
    pointers(&live, "", &mut leaves);
    for pointer in leaves {
        // What identifies the object, and what is only set at creation.
        let is_ours = pointer.starts_with("/metadata/labels/") || pointer.starts_with("/spec/");
        if !is_ours || pointer.ends_with("automountServiceAccountToken") || pointer.ends_with("/nodePort") {
            continue;
        }
        let mut changed = live.clone();
        let value = changed.pointer_mut(&pointer).expect("the pointer is of this object");
        *value = other(value);
        assert!(!shown(wanted, &changed).is_empty(), "{pointer} is not noticed");
        check(wanted, &changed);
    }
}

fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter()
                .for_each(|(key, value)| pointers(value, &format!("{at}/{}", key.replace('/', "~1")), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(key, value)| pointers(value, &format!("{at}/{key}"), found));
        }
        _ => found.push(at.to_owned()),
    }
}

/// Returns another value of the same type.
fn other(value: &Value) -> Value {
    match value.as_i64() {
        Some(number) => json!(number + 7),
        None if *value == "Prefix" => json!("Exact"),
        None => json!(format!("{}9", value.as_str().expect("a child has texts and numbers"))),
    }
}

fn web(replicas: i32, image: &str) -> WantedDeployment {
    let container = WantedContainer { name: "web".into(), image: image.into(), ..<_>::default() };
    WantedDeployment { name: "web".into(), replicas, containers: vec![container], ..<_>::default() }
}

#[test]
fn removed_container_is_restored_in_full() {
    let wanted = web(1, "nginx");
    let mut live = live(&wanted, 1, 0);
    live["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().remove(1);
    assert_eq!(shown(&wanted, &live), "spec.template.spec.containers[web] was missing");
    check(&wanted, &live);
}

#[test]
fn patch_contains_only_differing_fields() {
    let wanted = web(3, "nginx:2");
    let live = live(&web(2, "nginx:2"), 1, 0);
    let metadata = json!({"uid": "u", "resourceVersion": "7"});
    let observed = observe(&live);
    let patch = Changes::of(&wanted, &observed).patch(&observed, None);
    let expected = Patch {
        body: json!({"metadata": metadata, "spec": {"replicas": 3}}),
        is_strategic: false,
        needs_live: false,
    };
    assert_eq!(patch, expected);
    let patch = Changes::of(&web(2, "nginx:3"), &observed).patch(&observed, None);
    let containers = json!([{"name": "web", "image": "nginx:3"}]);
    let template = json!({"spec": {"containers": containers}});
    let expected = Patch {
        body: json!({"metadata": metadata, "spec": {"template": template}}),
        is_strategic: true,
        needs_live: false,
    };
    assert_eq!(patch, expected);
}

#[test]
fn items_get_the_wanted_order() {
    let with = |names: &[&str]| {
        let mut wanted = web(1, "nginx");
        let all: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
        wanted.containers[0].env = serde_json::from_value(json!(all)).unwrap();
        wanted
    };
    for (before, after) in
        [("A B C", "C A B"), ("A B C", "A X B C"), ("A B C", "C X"), ("A", "B A"), ("A B", "A B C")]
    {
        let [before, after] = [before, after].map(|names| names.split(' ').collect::<Vec<_>>());
        let live = created(&with(&before));
        check(&with(&after), &live);
        let env = applied(&with(&after), &live)["spec"]["template"]["spec"]["containers"][0]["env"].take();
        let names: Vec<&str> =
            env.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, after, "{before:?}");
    }
}

/// TCP and UDP of one number.
#[test]
fn list_whose_key_repeats_is_replaced_from_a_live_read() {
    let with = |target: i32| {
        let port = |protocol: &str| json!({"name": protocol.to_lowercase(), "port": 53, "protocol": protocol, "targetPort": target});
        let ports = serde_json::from_value(json!([port("TCP"), port("UDP")])).unwrap();
        WantedService { name: "dns".into(), ports, ..<_>::default() }
    };
    let mut live = created(&with(53));
    live["spec"]["ports"][1][NEWER] = json!(1);
    let observed = observe(&live);
    let changes = Changes::of(&with(54), &observed);
    assert!(changes.patch(&observed, None).needs_live);
    let patch = changes.patch(&observed, Some(&live));
    assert!(!patch.needs_live);
    let patched = patched(&live, &patch);
    live["spec"]["ports"].as_array_mut().unwrap().iter_mut().for_each(|port| port["targetPort"] = json!(54));
    assert_eq!(patched["spec"], live["spec"]);
}

/// An object of which only the versions are known.
fn seventh() -> ObservedDeployment {
    observe(&json!({"metadata": {"uid": "u", "resourceVersion": "7"}}))
}

#[test]
fn keys_may_have_characters_that_json_escapes() {
    let state = |image: &str| json!({"a\"b": 1, "c\"d": {"e\"f": image}});
    let foos = ApiResource::new("example.com", "v1", "Foo", "foos");
    let patch = Changes::between(&foos, &state("a"), &state("b")).patch(&seventh(), None);
    let expected = json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "c\"d": {"e\"f": "b"}});
    assert_eq!(patch.body, expected);
}

#[test]
fn list_of_another_kind_is_replaced() {
    let foos = ApiResource::new("example.com", "v1", "Foo", "foos");
    let [from, to] =
        ["a", "b"].map(|image| json!({"spec": {"containers": [{"name": "web", "image": image}]}}));
    let patch = Changes::between(&foos, &from, &to).patch(&seventh(), None);
    assert!(!patch.is_strategic);
    assert_eq!(patch.body["spec"], to["spec"]);
}

// --- any JSON ---

fn some_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        (0..3).prop_map(|n| json!(n)),
        Just(json!("a")),
        Just(json!([])),
        Just(json!(1.0))
    ];
    let value = leaf.prop_recursive(4, 24, 3, |inner| {
        let item = prop::collection::btree_map("name|value", inner.clone(), 0..3);
        prop_oneof![
            prop::collection::btree_map("spec|env|containers|labels|ports|args|a\"b", inner, 0..3)
                .prop_map(|map| json!(map)),
            prop::collection::vec(item, 0..3).prop_map(|list| json!(list)),
        ]
    });
    prop::collection::btree_map("spec|env|labels", value, 0..3).prop_map(|map| json!(map))
}

proptest! {
    #[test]
    fn states_are_the_same_but_for_nulls(one in some_json(), other in some_json()) {
        let is_same = without_nulls(one.clone()) == without_nulls(other.clone());
        prop_assert_eq!(are_same(&one, &other), is_same);
        prop_assert!(are_same(&one, &without_nulls(one.clone())));
    }

    #[test]
    fn differences_and_patch_agree(from in some_json(), to in some_json()) {
        for group in ["", "networking.k8s.io", "example.com"] {
            let resource = ApiResource::new(group, "v1", "Foo", "foos");
            let changes = Changes::between(&resource, &from, &to);
            let mut patch = changes.patch(&seventh(), None);
            let body = patch.body.as_object_mut().unwrap();
            body.remove("metadata");
            prop_assert_eq!(changes.differences.is_empty(), body.is_empty(), "{} {:?}", patch.body, changes.differences);
            if !patch.is_strategic {
                let mut patched = without_nulls(from.clone());
                json_patch::merge(&mut patched, &patch.body);
                let left = Changes::between(&resource, &patched, &to).differences;
                prop_assert_eq!(left, Vec::new(), "{}", patch.body);
            }
        }
    }
}

// --- what people are shown ---

/// I17
#[test]
fn secret_values_are_not_shown() {
    #[track_caller]
    fn check<O: TypedObject + Serialize + PartialEq>(change: &Value, expected: &str) {
        let read = |value: &Value| -> O { serde_json::from_value(value.clone()).expect("an object") };
        let none = json!({"metadata": {"name": "a"}});
        let mut with = none.clone();
        json_patch::merge(&mut with, change);
        let [none, with] = [none, with].map(|value| read(&value));
        let all = Changes::between(&ApiResource::of::<O>(), &none, &with).differences;
        assert_eq!(describe(&all), expected);
        assert!(!format!("{all:?}").contains("canary"));
        let all = Changes::between(&ApiResource::of::<O>(), &with, &none).differences;
        assert!(!format!("{all:?}").contains("canary"));
    }
    check::<Secret>(&json!({"data": {"key": "Y2FuYXJ5"}}), "data[key] was different");
    check::<Secret>(&json!({"stringData": {"key": "canary"}}), "stringData[key] was different");
    check::<ConfigMap>(&json!({"data": {"key": "canary"}}), "data[key] was different");
    let annotations = json!({"metadata": {"annotations": {"a": "canary"}, "labels": {"b": "1"}}});
    check::<ConfigMap>(
        &annotations,
        "metadata.annotations[a] was different; metadata.labels[b] was none, wanted \"1\"",
    );
    let foos = ApiResource::new("example.com", "v1", "Foo", "foos");
    for odd in [
        json!({"dbPassword": "canary"}),
        json!({"args": ["canary"]}),
        json!({"token": {"value": "canary"}}),
        json!({"text": "canary".repeat(30)}),
    ] {
        let all = Changes::between(&foos, &json!({"spec": {}}), &json!({"spec": odd})).differences;
        assert_eq!(all.len(), 1);
        assert!(!format!("{all:?}").contains("canary"), "{all:?}");
    }
}
