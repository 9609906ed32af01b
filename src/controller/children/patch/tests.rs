use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::ObjectName;
use crate::controller::kinds::container::WantedContainer;
use crate::controller::kinds::deployment::WantedDeployment;
use crate::controller::kinds::ingress::WantedIngress;
use crate::controller::kinds::pod::WantedPod;
use crate::controller::kinds::service::{ServiceType, WantedService};

fn owner() -> Owner {
    let foos = ApiResource::new("samplecontroller.k8s.io", "v1alpha1", "Foo", "foos");
    Owner::known_as(foos, ObjectName::new(Some("ns"), "one"), "owner-uid", "1")
}

/// Applies the patch as a server does, and compares the result with that of `write_into` on the same live object.
#[track_caller]
fn check<W: Wanted>(wanted: &W, live: &Value) {
    let mut live = live.clone();
    live["metadata"]["uid"] = json!("child-uid");
    live["metadata"]["resourceVersion"] = json!("7");
    let observed: W::Observed = serde_json::from_value(live.clone()).expect("the live object decodes");
    let owner = owner();
    let differences = owner.differences(wanted, &observed);
    let patch = strategic(&owner, wanted, &observed, Some(&live), &differences);
    assert_eq!(
        (&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]),
        (&json!("child-uid"), &json!("7"))
    );
    let patched = crate::sim::strategic_merge(&live, &patch).expect("the server accepts the patch");
    let left = owner.differences(wanted, &serde_json::from_value(patched.clone()).expect("it decodes"));
    assert_eq!(left, [], "{patch}");
    let mut applied = live.clone();
    wanted.write_into(&mut applied);
    if differences.iter().any(|one| one.field.starts_with("metadata.ownerReferences")) {
        owner.refer(&mut applied);
    }
    assert_eq!(normal(patched), normal(applied), "live {live}\npatch {patch}");
}

/// Removes what carries no meaning: empty maps and lists, the order of containers, and requests that equal their limits.
fn normal(value: Value) -> Value {
    match value {
        Value::Object(mut map) => {
            let limits = map.get("limits").cloned().unwrap_or_default();
            if let Some(requests) = map.get_mut("requests").and_then(Value::as_object_mut) {
                requests.retain(|name, amount| limits.get(name) != Some(amount));
            }
            let is_empty = |value: &Value| {
                value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
            };
            let members = map.into_iter().map(|(name, value)| {
                let mut value = normal(value);
                if name == "containers"
                    && let Some(list) = value.as_array_mut()
                {
                    list.sort_by_key(|item| item["name"].to_string());
                }
                (name, value)
            });
            Value::Object(members.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(list) => list.into_iter().map(normal).collect(),
        other => other,
    }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn some_labels() -> impl Strategy<Value = Labels> {
    prop::collection::btree_map("[a-c]", "[x-z]", 1..3)
}

fn some_container() -> impl Strategy<Value = WantedContainer> {
    let env = prop::collection::vec(("[A-C]", "[0-9]"), 0..3).prop_map(|all| {
        let named = all.into_iter().collect::<std::collections::BTreeMap<_, _>>();
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

/// Returns a child that matches a former spec and also has fields of others.
fn live<W: Wanted>(former: &W, odd: u8) -> Value {
    let mut live = json!({"metadata": {"name": "web", "namespace": "ns", "labels": {"theirs": "x"},
        "annotations": {"theirs": "x"}}, "spec": {"fieldOfTheFuture": {"a": [1]}}});
    if odd & 1 == 0 {
        owner().refer(&mut live);
    } else {
        live["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "theirs"},
            {"apiVersion": "samplecontroller.k8s.io/v0", "kind": "Foo", "name": "one", "uid": "owner-uid",
                "controller": true},
        ]);
    }
    former.write_into(&mut live);
    if odd & 2 != 0
        && let Some(pod) = live.pointer_mut("/spec/template/spec")
    {
        let theirs = json!({"name": "theirs", "image": "proxy", "env": [{"name": "A", "value": "theirs"}]});
        pod["containers"].as_array_mut().expect("a Pod template has containers").push(theirs);
        pod["volumes"] = json!([{"name": "theirs"}]);
        pod["containers"][0]["fieldOfTheFuture"] = json!(1);
    }
    if odd & 4 != 0 && live["spec"]["type"] == "NodePort" {
        live["spec"]["type"] = json!("LoadBalancer");
        live["spec"]["loadBalancerSourceRanges"] = json!(["10.0.0.0/8"]);
    }
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
    ) {
        check(&deployments.1, &live(&deployments.0, odd));
        check(&services.1, &live(&services.0, odd));
        check(&ingresses.1, &live(&ingresses.0, odd));
        let container = WantedContainer { name: "web".to_owned(), image: "a:1".to_owned(), ..<_>::default() };
        let of = |labels| WantedPod { name: "web".to_owned(), labels, container: container.clone() };
        check(&of(pods.1), &live(&of(pods.0), odd));
    }
}

#[test]
fn removed_container_is_restored_in_full() {
    let nginx = WantedContainer { name: "web".into(), image: "nginx".into(), ..WantedContainer::default() };
    let labels = labels(&[("app", "web")]);
    let (selector, pod_labels) = (labels.clone(), labels.clone());
    let wanted = WantedDeployment {
        name: "web".into(),
        labels,
        selector,
        pod_labels,
        replicas: 1,
        containers: vec![nginx],
    };
    let mut live = live(&wanted, 2);
    live["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().remove(0);
    check(&wanted, &live);
}

#[test]
fn patch_contains_only_differing_fields() {
    let nginx = WantedContainer { name: "web".into(), image: "nginx:2".into(), ..WantedContainer::default() };
    let labels = labels(&[("app", "web")]);
    let (selector, pod_labels) = (labels.clone(), labels.clone());
    let wanted = WantedDeployment {
        name: "web".into(),
        labels,
        selector,
        pod_labels,
        replicas: 3,
        containers: vec![nginx],
    };
    let mut live = live(&wanted, 2);
    live["metadata"]["uid"] = json!("u");
    live["metadata"]["resourceVersion"] = json!("7");
    live["spec"]["replicas"] = json!(2);
    live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:1");
    let observed = serde_json::from_value(live).unwrap();
    let differences = owner().differences(&wanted, &observed);
    let patch = strategic(&owner(), &wanted, &observed, None, &differences);
    let containers = json!([{"name": "web", "image": "nginx:2"}]);
    let expected = json!({"metadata": {"uid": "u", "resourceVersion": "7"},
        "spec": {"replicas": 3, "template": {"spec": {"containers": containers}}}});
    assert_eq!(patch, expected);
}
