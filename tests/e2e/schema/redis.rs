//! Bounds of Redis: replicas, port, image.

use serde_json::{Value, json};

use super::{Object, Refused, letters, named, with};

fn spec(changes: Value) -> Value {
    with(json!({"port": 6379, "image": "a"}), changes)
}

fn redis(changes: Value) -> Object {
    named("a", spec(changes))
}

pub(super) fn inside() -> Vec<Object> {
    vec![
        redis(json!({})),
        redis(json!({"replicas": 0})),
        redis(json!({"replicas": 100_000})),
        redis(json!({"port": 1234})),
        redis(json!({"port": 54321})),
        redis(json!({"image": letters(1000)})),
        named(letters(57), spec(json!({}))),
        named("0-9", spec(json!({}))),
    ]
}

pub(super) fn outside() -> Vec<Refused> {
    let name = "metadata.name must be a DNS label of at most 57 characters";
    vec![
        (redis(json!({"replicas": -1})), "spec.replicas"),
        (redis(json!({"replicas": 100_001})), "spec.replicas"),
        (redis(json!({"port": null})), "spec.port: Required value"),
        (redis(json!({"port": 1233})), "spec.port"),
        (redis(json!({"port": 54322})), "spec.port"),
        (redis(json!({"port": "redis"})), "spec.port"),
        (redis(json!({"image": null})), "spec.image: Required value"),
        (redis(json!({"image": ""})), "spec.image"),
        (redis(json!({"image": letters(1001)})), "spec.image"),
        (redis(json!({"image": "a\tb"})), "spec.image"),
        (named(letters(58), spec(json!({}))), name),
        (named("a.b", spec(json!({}))), name),
    ]
}
