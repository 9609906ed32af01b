use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::controller::kinds::tests::{self, applied, check_again, shown};

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn ports(ports: Value) -> Vec<ServicePort> {
    serde_json::from_value(ports).expect("ports decode")
}

fn wanted(service_type: ServiceType, wanted: Value) -> WantedService {
    WantedService {
        name: "web".to_owned(),
        labels: labels(&[("managed-by", "windlass")]),
        selector: labels(&[("app", "web")]),
        service_type,
        ports: ports(wanted),
    }
}

/// Returns a new Service as the server stores it, with defaults and allocated values.
fn created(wanted: &WantedService) -> Value {
    let mut live = tests::created(wanted);
    let spec = live["spec"].as_object_mut().unwrap();
    for (key, value) in [
        ("clusterIP", json!("10.0.0.9")),
        ("clusterIPs", json!(["10.0.0.9"])),
        ("ipFamilies", json!(["IPv4"])),
        ("ipFamilyPolicy", json!("SingleStack")),
        ("internalTrafficPolicy", json!("Cluster")),
        ("sessionAffinity", json!("None")),
    ] {
        spec.insert(key.to_owned(), value);
    }
    for (at, port) in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
        let number = port["port"].clone();
        let fields = port.as_object_mut().unwrap();
        fields.entry("protocol").or_insert(json!("TCP"));
        fields.entry("targetPort").or_insert(number);
        if wanted.service_type == ServiceType::NodePort {
            fields.entry("nodePort").or_insert(json!(30_000 + at));
        }
    }
    live
}

#[test]
fn server_defaults_of_a_service_are_no_difference() {
    for service_type in [ServiceType::ClusterIp, ServiceType::NodePort] {
        let all = json!([{"port": 80}, {"port": 81, "targetPort": 0, "name": "b", "protocol": ""},
            {"port": 82, "targetPort": "", "name": "c", "nodePort": 0}]);
        let wanted = wanted(service_type, all);
        let live = created(&wanted);
        assert_eq!(shown(&wanted, &live), "");
        assert_eq!(applied(&wanted, &live), live);
    }
}

#[test]
fn every_changed_service_field_is_named() {
    let wanted = wanted(ServiceType::NodePort, json!([{"name": "http", "port": 80, "targetPort": "web"}]));
    #[track_caller]
    fn check(wanted: &WantedService, change: impl FnOnce(&mut Value), expected: &str) {
        let mut live = created(wanted);
        change(&mut live);
        assert_eq!(shown(wanted, &live), expected);
        assert_eq!(shown(wanted, &applied(wanted, &live)), "");
    }
    check(&wanted, |_| {}, "");
    check(
        &wanted,
        |s| s["metadata"]["labels"] = json!({}),
        r#"metadata.labels[managed-by] was none, wanted "windlass""#,
    );
    check(
        &wanted,
        |s| s["spec"]["type"] = json!("ClusterIP"),
        r#"spec.type was "ClusterIP", wanted "NodePort""#,
    );
    let selector = r#"spec.selector.more was "x", wanted none"#;
    check(&wanted, |s| s["spec"]["selector"]["more"] = json!("x"), selector);
    let number = "spec.ports[80] was missing; spec.ports[81] was present, wanted none";
    check(&wanted, |s| s["spec"]["ports"][0]["port"] = json!(81), number);
    for (field, value, wanted_) in [
        ("name", json!("other"), r#""http""#),
        ("protocol", json!("UDP"), r#""TCP""#),
        ("targetPort", json!(80), r#""web""#),
        ("appProtocol", json!("kubernetes.io/h2c"), "none"),
    ] {
        let expected = format!("spec.ports[80].{field} was {value}, wanted {wanted_}");
        check(&wanted, |s| s["spec"]["ports"][0][field] = value, &expected);
    }
    check(&wanted, |s| s["spec"]["ports"][0]["nodePort"] = json!(31_000), "");
}

#[test]
fn allocated_and_foreign_service_fields_are_kept() {
    let wanted_ = wanted(ServiceType::NodePort, json!([{"port": 80}]));
    let mut live = created(&wanted_);
    live["metadata"]["labels"]["team"] = json!("a");
    live["metadata"]["annotations"] = json!({"note": "b"});
    live["spec"]["healthCheckNodePort"] = json!(30_999);
    live["spec"]["sessionAffinity"] = json!("ClientIP");
    live["spec"]["newer"] = json!({"deep": [1]});
    live["spec"]["ports"][0]["newer"] = json!(2);
    live["status"] = json!({"loadBalancer": {}});
    let other = wanted(ServiceType::NodePort, json!([{"port": 80, "targetPort": 8080}]));
    let written = applied(&other, &live);
    live["spec"]["ports"][0]["targetPort"] = json!(8080);
    assert_eq!(written, live);
}

#[test]
fn service_ports_are_replaced_as_a_whole() {
    let with = |ports: Value| wanted(ServiceType::ClusterIp, ports);
    let live = created(&with(
        json!([{"name": "a", "port": 80, "targetPort": 1, "protocol": "UDP", "appProtocol": "http"},
        {"name": "by-hand", "port": 81}]),
    ));
    let bare = with(json!([{"port": 80}]));
    let different = r#"spec.ports[80].appProtocol was "http", wanted none; spec.ports[80].name was "a", wanted none; spec.ports[80].protocol was "UDP", wanted "TCP"; spec.ports[80].targetPort was 1, wanted 80; spec.ports[81] was present, wanted none"#;
    assert_eq!(shown(&bare, &live), different);
    assert_eq!(
        applied(&bare, &live)["spec"]["ports"],
        json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]),
        "everything returns to its default"
    );
    // The order does not matter.
    let [a, b] = [json!({"name": "a", "port": 80}), json!({"name": "b", "port": 81})];
    let live = created(&with(json!([a, b])));
    assert_eq!(shown(&with(json!([b, a])), &live), "");
    assert_eq!(applied(&with(json!([b, a])), &live), live);
    let none = with(json!([]));
    assert_eq!(applied(&none, &live)["spec"].get("ports"), None, "none are wanted");
}

/// Each case has the live ports, the wanted ones, and the node ports that are sent.
#[test]
fn node_ports_follow_their_ports() {
    #[track_caller]
    fn check(live: &Value, wanted_: Value, expected: &[Option<i32>]) {
        let live = json!({"spec": {"type": "NodePort", "ports": live}});
        let wanted = wanted(ServiceType::NodePort, wanted_);
        let written = applied(&wanted, &live);
        let sent: Vec<Option<i32>> =
            ports(written["spec"]["ports"].clone()).iter().map(|port| port.node_port).collect();
        assert_eq!(sent, expected);
        assert_eq!(shown(&wanted, &written), "");
    }
    let a = json!([{"name": "a", "port": 80, "protocol": "TCP", "nodePort": 30_001}]);
    // By number and protocol; a new port gets none from us.
    check(&a, json!([{"name": "other", "port": 80}, {"name": "new", "port": 81}]), &[Some(30_001), None]);
    // By name: another number, another protocol.
    check(&a, json!([{"name": "a", "port": 8080}]), &[Some(30_001)]);
    check(&a, json!([{"name": "a", "port": 80, "protocol": "UDP"}]), &[Some(30_001)]);
    let unnamed = json!([{"port": 80, "protocol": "TCP", "nodePort": 30_001}]);
    check(&unnamed, json!([{"port": 8080, "name": ""}]), &[Some(30_001)]);
    // By neither.
    check(&a, json!([{"name": "b", "port": 81}]), &[None]);
    // A requested node port is sent, and not kept for another port of the same protocol.
    check(&a, json!([{"name": "a", "port": 80, "nodePort": 30_009}]), &[Some(30_009)]);
    check(
        &a,
        json!([{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30_001}]),
        &[None, Some(30_001)],
    );
    check(
        &a,
        json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP", "nodePort": 30_001}]),
        &[Some(30_001), Some(30_001)],
    );
    // Two protocols on one number may share a node port on the server; here they swap places.
    let dns = json!([
        {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30_053},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "nodePort": 30_053},
    ]);
    let turned = json!([{"name": "dns-tcp", "port": 53, "targetPort": 5}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    check(&dns, turned, &[Some(30_053), Some(30_053)]);
    // One port takes the protocol of the other: it must not get the node port that the other keeps.
    let one_protocol = json!([{"name": "dns", "port": 54}, {"name": "dns-tcp", "port": 53}]);
    check(&dns, one_protocol, &[None, Some(30_053)]);
    // The names are swapped: the number decides.
    let two = json!([
        {"name": "a", "port": 80, "protocol": "TCP", "nodePort": 30_001},
        {"name": "b", "port": 81, "protocol": "TCP", "nodePort": 30_002},
    ]);
    check(&two, json!([{"name": "b", "port": 80}, {"name": "a", "port": 81}]), &[Some(30_001), Some(30_002)]);
    // One port takes the number of the other, and with it the other's node port.
    check(&two, json!([{"name": "a", "port": 81}]), &[Some(30_002)]);
}

#[test]
fn unrequested_node_port_is_kept() {
    let asked = wanted(ServiceType::NodePort, json!([{"port": 80, "nodePort": 30_080}]));
    let live = created(&asked);
    let dropped = wanted(ServiceType::NodePort, json!([{"port": 80}]));
    assert_eq!(shown(&dropped, &live), "");
    assert_eq!(applied(&dropped, &live), live);
    let other = wanted(ServiceType::NodePort, json!([{"port": 80, "nodePort": 30_081}]));
    assert_eq!(shown(&other, &live), "spec.ports[80].nodePort was 30080, wanted 30081");
}

#[test]
fn changed_service_type_is_restored() {
    let inside = wanted(ServiceType::ClusterIp, json!([{"name": "a", "port": 80}]));
    let outside = wanted(ServiceType::NodePort, json!([{"name": "a", "port": 80}]));
    let mut live = created(&outside);
    live["spec"]["type"] = json!("LoadBalancer");
    live["spec"]["loadBalancerSourceRanges"] = json!(["10.0.0.0/8"]);
    let written = applied(&outside, &live);
    assert_eq!(
        written["spec"].get("loadBalancerSourceRanges"),
        None,
        "the server refuses the ranges with that type"
    );
    assert_eq!(written["spec"]["ports"][0]["nodePort"], 30_000);
    let written = applied(&inside, &live);
    assert_eq!(
        written["spec"]["ports"],
        json!([{"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80}]),
        "no node port for this type"
    );
    assert_eq!(written["spec"]["clusterIP"], "10.0.0.9");
    let back = applied(&outside, &written);
    assert_eq!(back["spec"]["type"], "NodePort");
    assert_eq!(shown(&outside, &back), "");
}

fn some_port() -> impl Strategy<Value = Value> {
    let protocol = prop::option::of(prop::sample::select(vec!["TCP", "UDP"]));
    let target = prop::option::of(prop::sample::select(vec![json!(80), json!(8080), json!("web")]));
    let node_port = prop::option::of(30_000..30_003_i32);
    (80..83_i32, prop::option::of("[ab]"), protocol, target, node_port).prop_map(
        |(port, name, protocol, target, node_port)| {
            let mut fields = json!({"port": port});
            for (key, value) in [
                ("name", json!(name)),
                ("protocol", json!(protocol)),
                ("targetPort", json!(target)),
                ("nodePort", json!(node_port)),
            ] {
                if !value.is_null() {
                    fields[key] = value;
                }
            }
            fields
        },
    )
}

fn some_wanted() -> impl Strategy<Value = WantedService> {
    let service_type = prop::sample::select(vec![ServiceType::ClusterIp, ServiceType::NodePort]);
    (service_type, prop::collection::vec(some_port(), 0..4)).prop_map(|(service_type, mut all)| {
        let mut seen = BTreeSet::new();
        all.retain(|port| seen.insert((port["port"].to_string(), port["protocol"] == "UDP")));
        wanted(service_type, json!(all))
    })
}

fn some_live() -> impl Strategy<Value = Value> {
    let types = vec!["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
    let selector = prop::collection::btree_map("(app|team)", "(web|x)", 0..2);
    (prop::sample::select(types), prop::option::of(selector), prop::collection::vec(some_port(), 0..4)).prop_map(
        |(type_, selector, ports)| {
            let mut live = json!({"metadata": {"name": "web"}, "spec": {"type": type_, "clusterIP": "10.0.0.1", "ports": ports}});
            if let Some(selector) = selector {
                live["spec"]["selector"] = json!(selector);
            }
            live
        },
    )
}

proptest! {
    #[test]
    fn writing_a_service_again_changes_nothing(
        wanted in some_wanted(),
        live in prop_oneof![some_live(), some_wanted().prop_map(|before| created(&before))],
    ) {
        check_again(&wanted, &live);
        let written = applied(&wanted, &live);
        prop_assert_eq!(&written["spec"]["clusterIP"], &live["spec"]["clusterIP"]);
    }

    /// Excludes the node ports that were requested.
    #[test]
    fn node_ports_are_not_assigned_twice(wanted in some_wanted(), live in some_live()) {
        let asked = |port: &ServicePort| wanted.ports.iter().any(|wanted| wanted.node_port == port.node_port);
        let written = ports(applied(&wanted, &live)["spec"].get("ports").cloned().unwrap_or(json!([])));
        let mut kept = BTreeSet::new();
        for port in written.iter().filter(|port| port.node_port.is_some() && !asked(port)) {
            prop_assert!(kept.insert((port.node_port, text_or(port.protocol.as_deref(), "TCP").to_owned())), "{written:?}");
        }
    }
}
