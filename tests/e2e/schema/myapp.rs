//! Bounds of Myapp: replicas, image, ports, host, environment, resources.

use serde_json::{Value, json};

use super::{Object, Refused, letters, named, shared, with};

fn spec(changes: Value) -> Value {
    with(json!({"image": "a:b", "containerPort": 80, "servicePort": 80}), changes)
}

fn myapp(changes: Value) -> Object {
    named("a", spec(changes))
}

fn host(host: &str) -> Object {
    myapp(json!({"host": host}))
}

pub(super) fn inside() -> Vec<Object> {
    let long = format!("{}.{}", letters(126), letters(126));
    let mut inside = vec![
        myapp(json!({})),
        myapp(json!({"replicas": 1})),
        myapp(json!({"replicas": 1000})),
        myapp(json!({"image": "abc"})),
        myapp(json!({"image": letters(1000)})),
        myapp(json!({"image": "registry:5000/a_b/c@sha256:0123"})),
        myapp(json!({"containerPort": 1, "servicePort": 1})),
        myapp(json!({"containerPort": 65535, "servicePort": 65535})),
        host("a.b"),
        host("*.a"),
        host("0-9.example.com"),
        host("1.2.3.4.example.com"),
        host(&long),
        named(letters(63), spec(json!({}))),
        named("a-0", spec(json!({}))),
    ];
    inside.extend(shared::environments().into_iter().map(|env| myapp(json!({"env": env}))));
    inside.extend(shared::resources().into_iter().map(|resources| myapp(json!({"resources": resources}))));
    inside
}

pub(super) fn outside() -> Vec<Refused> {
    let too_long = format!("{}.{}", letters(126), letters(127));
    let name = "metadata.name must be a DNS-1035 label of at most 63 characters";
    let mut outside = vec![
        (myapp(json!({"replicas": 0})), "spec.replicas"),
        (myapp(json!({"replicas": 1001})), "spec.replicas"),
        (myapp(json!({"replicas": "2"})), "spec.replicas"),
        (myapp(json!({"image": null})), "spec.image: Required value"),
        (myapp(json!({"image": "ab"})), "spec.image"),
        (myapp(json!({"image": letters(1001)})), "spec.image"),
        (myapp(json!({"image": "nginx "})), "spec.image"),
        (myapp(json!({"image": "ngi nx"})), "spec.image"),
        (myapp(json!({"image": "ñginx"})), "spec.image"),
        (myapp(json!({"containerPort": null})), "spec.containerPort: Required value"),
        (myapp(json!({"containerPort": 0})), "spec.containerPort"),
        (myapp(json!({"containerPort": 65536})), "spec.containerPort"),
        (myapp(json!({"servicePort": null})), "spec.servicePort: Required value"),
        (myapp(json!({"servicePort": 0})), "spec.servicePort"),
        (myapp(json!({"servicePort": 65536})), "spec.servicePort"),
        (myapp(json!({"servicePort": "http"})), "spec.servicePort"),
        (host(""), "spec.host"),
        (host("ab"), "spec.host"),
        (host(&too_long), "spec.host"),
        (host("A.b"), "spec.host"),
        (host("a..b"), "spec.host"),
        (host(".ab"), "spec.host"),
        (host("ab."), "spec.host"),
        (host("-ab"), "spec.host"),
        (host("*ab"), "spec.host"),
        (host("a.*.b"), "spec.host"),
        (host("a:80"), "spec.host"),
        (host("::1"), "spec.host"),
        (host("10.0.0.1"), "host must be a DNS name, not an IP address"),
        (named(letters(64), spec(json!({}))), name),
        (named("a.b", spec(json!({}))), name),
        (named("0a", spec(json!({}))), name),
    ];
    let environments = shared::wrong_environments().into_iter();
    outside.extend(environments.map(|(env, words)| (myapp(json!({"env": env})), words)));
    let resources = shared::wrong_resources().into_iter();
    outside.extend(resources.map(|(resources, words)| (myapp(json!({"resources": resources})), words)));
    outside
}
