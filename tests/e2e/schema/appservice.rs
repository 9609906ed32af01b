//! Bounds of AppService: replicas, image, ports, environment, resources.

use serde_json::{Value, json};

use super::{Object, Refused, letters, named, shared, with};

fn spec(changes: Value) -> Value {
    with(json!({"replicas": 1, "image": "a"}), changes)
}

fn service(changes: Value) -> Object {
    named("a", spec(changes))
}

fn ports(ports: Value) -> Object {
    let mut spec = spec(json!({}));
    spec["ports"] = ports;
    named("a", spec)
}

/// Returns this many ports, each with a name and a number.
fn many(count: u32) -> Value {
    (1..=count).map(|at| json!({"name": format!("p{at}"), "port": at})).collect()
}

pub(super) fn inside() -> Vec<Object> {
    let mut inside = vec![
        service(json!({"replicas": 0})),
        service(json!({"replicas": 2_147_483_647})),
        service(json!({"image": letters(1000)})),
        named(letters(63), spec(json!({}))),
        ports(json!([])),
        ports(json!([{"port": 1}])),
        ports(json!([{"port": 1, "name": null, "targetPort": null, "protocol": null}])),
        ports(json!([{"port": 65535, "nodePort": 65535, "targetPort": 65535}])),
        ports(json!([{"port": 80, "nodePort": 1, "targetPort": 1, "appProtocol": "kubernetes.io/h2c"}])),
        ports(json!([{"port": 80, "name": letters(63), "appProtocol": "HTTP_2.x"}])),
        ports(json!([{"port": 80, "name": "0-9", "targetPort": "a"}])),
        ports(json!([{"port": 80, "targetPort": "0-1a2-b34567890"}])),
        ports(json!([{"port": 80, "appProtocol": format!("{}/{}", letters(253), letters(63))}])),
        // Ports are distinct by number and protocol, which defaults to TCP.
        ports(json!([
            {"name": "a", "port": 53, "nodePort": 30053},
            {"name": "b", "port": 53, "nodePort": 30053, "protocol": "UDP"},
            {"name": "c", "port": 53, "nodePort": 30053, "protocol": "SCTP"},
        ])),
        // Two ports may have the same target.
        ports(
            json!([{"name": "a", "port": 80, "targetPort": "web"}, {"name": "b", "port": 81, "targetPort": "web"}]),
        ),
        ports(many(64)),
    ];
    inside.extend(shared::environments().into_iter().map(|env| service(json!({"envs": env}))));
    inside.extend(shared::resources().into_iter().map(|resources| service(json!({"resources": resources}))));
    inside
}

pub(super) fn outside() -> Vec<Refused> {
    let name = "metadata.name must be a DNS-1035 label of at most 63 characters";
    let mut outside = vec![
        (service(json!({"replicas": null})), "spec.replicas: Required value"),
        (service(json!({"replicas": -1})), "spec.replicas"),
        (service(json!({"replicas": 2_147_483_648_u32})), "spec.replicas"),
        (service(json!({"image": null})), "spec.image: Required value"),
        (service(json!({"image": ""})), "spec.image"),
        (service(json!({"image": letters(1001)})), "spec.image"),
        (service(json!({"image": " a"})), "spec.image"),
        (named(letters(64), spec(json!({}))), name),
        (named("a.b", spec(json!({}))), name),
        (named("0a", spec(json!({}))), name),
    ];
    outside.extend(wrong_ports());
    let environments = shared::wrong_environments().into_iter();
    outside.extend(environments.map(|(env, words)| (service(json!({"envs": env})), words)));
    let resources = shared::wrong_resources().into_iter();
    outside.extend(resources.map(|(resources, words)| (service(json!({"resources": resources})), words)));
    outside
}

fn wrong_ports() -> Vec<Refused> {
    let target = |target: Value| ports(json!([{"port": 80, "targetPort": target}]));
    let protocol = |protocol: &str| ports(json!([{"port": 80, "appProtocol": protocol}]));
    vec![
        (ports(json!([{}])), "spec.ports[0].port: Required value"),
        (ports(json!([{"port": 0}])), "spec.ports[0].port"),
        (ports(json!([{"port": 65536}])), "spec.ports[0].port"),
        (ports(json!([{"port": 80, "name": ""}])), "spec.ports[0].name"),
        (ports(json!([{"port": 80, "name": letters(64)}])), "spec.ports[0].name"),
        (ports(json!([{"port": 80, "name": "A"}])), "spec.ports[0].name"),
        (ports(json!([{"port": 80, "name": "a."}])), "spec.ports[0].name"),
        (ports(json!([{"port": 80, "protocol": "tcp"}])), "spec.ports[0].protocol"),
        (ports(json!([{"port": 80, "protocol": ""}])), "spec.ports[0].protocol"),
        (target(json!(0)), "spec.ports[0].targetPort"),
        (target(json!(65536)), "spec.ports[0].targetPort"),
        (target(json!(1.5)), "spec.ports[0].targetPort"),
        (target(json!("")), "spec.ports[0].targetPort"),
        (target(json!("80")), "spec.ports[0].targetPort"),
        (target(json!("a--b")), "spec.ports[0].targetPort"),
        (target(json!("-a")), "spec.ports[0].targetPort"),
        (target(json!("a-")), "spec.ports[0].targetPort"),
        (target(json!("Web")), "spec.ports[0].targetPort"),
        (target(json!(letters(16))), "spec.ports[0].targetPort"),
        (ports(json!([{"port": 80, "nodePort": 0}])), "spec.ports[0].nodePort"),
        (ports(json!([{"port": 80, "nodePort": 65536}])), "spec.ports[0].nodePort"),
        (protocol(""), "spec.ports[0].appProtocol"),
        (protocol("a/b/c"), "spec.ports[0].appProtocol"),
        (protocol(&letters(64)), "spec.ports[0].appProtocol"),
        (ports(many(65)), "must have at most 64 items"),
        (
            ports(json!([{"name": "a", "port": 1}, {"port": 2}])),
            "port 2 has no name: where there are several ports, give each a name",
        ),
        (
            ports(json!([{"name": "a", "port": 1}, {"name": "web", "port": 2}, {"name": "web", "port": 3}])),
            "more than one port has the name web: give each a name of its own",
        ),
        (
            ports(json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "TCP"}])),
            "more than one port is 80/TCP: give each another port or protocol",
        ),
        (
            ports(
                json!([{"name": "a", "port": 1, "nodePort": 30001}, {"name": "b", "port": 2, "nodePort": 30001}]),
            ),
            "nodePort 30001 is used by ports with different numbers: give each its own nodePort",
        ),
        (
            ports(json!([
                {"name": "a", "port": 1, "nodePort": 30001},
                {"name": "b", "port": 2, "nodePort": 30001, "protocol": "UDP"},
            ])),
            "nodePort 30001 is used by ports with different numbers: give each its own nodePort",
        ),
    ]
}
