//! Bounds of WebApp: version, replicas, image.

use serde_json::{Value, json};

use super::{Object, Refused, letters, named, with};

fn spec(changes: Value) -> Value {
    with(json!({"version": "1", "replicas": 1}), changes)
}

fn webapp(changes: Value) -> Object {
    named("a", spec(changes))
}

pub(super) fn inside() -> Vec<Object> {
    vec![
        webapp(json!({})),
        webapp(json!({"replicas": 0})),
        webapp(json!({"replicas": i32::MAX})),
        webapp(json!({"version": letters(128)})),
        webapp(json!({"version": "stable-alpine3.20-perl", "image": "nginx:latest"})),
        webapp(json!({"version": "_1.2-3", "image": "localhost:5000/team/my_app__x:latest"})),
        webapp(json!({"image": "registry.example.com/a-b.c/d"})),
        webapp(json!({"image": "[::1]:5000/nginx"})),
        webapp(json!({"image": letters(1000)})),
        named(letters(63), spec(json!({}))),
        named("0-9", spec(json!({}))),
    ]
}

pub(super) fn outside() -> Vec<Refused> {
    let name = "metadata.name must be a DNS label of at most 63 characters";
    let digest = format!("nginx@sha256:{}", "0".repeat(64));
    vec![
        (webapp(json!({"version": null})), "spec.version: Required value"),
        (webapp(json!({"version": ""})), "spec.version"),
        (webapp(json!({"version": letters(129)})), "spec.version"),
        (webapp(json!({"version": ".1"})), "spec.version"),
        (webapp(json!({"version": "-1"})), "spec.version"),
        (webapp(json!({"version": "1 2"})), "spec.version"),
        (webapp(json!({"version": "a:b"})), "spec.version"),
        (webapp(json!({"version": 1})), "spec.version"),
        (webapp(json!({"replicas": null})), "spec.replicas: Required value"),
        (webapp(json!({"replicas": -1})), "spec.replicas"),
        (webapp(json!({"replicas": "1"})), "spec.replicas"),
        (webapp(json!({"image": ""})), "spec.image"),
        (webapp(json!({"image": letters(1001)})), "spec.image"),
        (webapp(json!({"image": "Nginx Latest"})), "spec.image"),
        (webapp(json!({"image": "https://example.com/nginx"})), "spec.image"),
        (webapp(json!({"image": "nginx:"})), "spec.image"),
        (webapp(json!({"image": digest})), "spec.image must not have a digest"),
        (webapp(json!({"image": format!("team/nginx:latest@sha256:{}", "0".repeat(64))})), "remove the @"),
        (named(letters(64), spec(json!({}))), name),
        (named("a.b", spec(json!({}))), name),
        (named("-a", spec(json!({}))), "metadata.name"),
    ]
}
