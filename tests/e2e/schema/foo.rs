//! Bounds of Foo: the Deployment's name and the replicas.

use serde_json::{Value, json};

use super::{Object, Refused, letters, named};

fn foo(spec: Value) -> Object {
    named("a", spec)
}

pub(super) fn inside() -> Vec<Object> {
    vec![
        foo(json!({"deploymentName": "a"})),
        foo(json!({"deploymentName": letters(63)})),
        foo(json!({"deploymentName": "0-9", "replicas": 1})),
        foo(json!({"deploymentName": "a", "replicas": 10})),
        named(letters(63), json!({"deploymentName": "a"})),
        named("dots.are.fine", json!({"deploymentName": "a"})),
    ]
}

pub(super) fn outside() -> Vec<Refused> {
    vec![
        (foo(json!({})), "spec.deploymentName"),
        (foo(json!({"deploymentName": ""})), "spec.deploymentName"),
        (foo(json!({"deploymentName": letters(64)})), "spec.deploymentName"),
        (foo(json!({"deploymentName": "-a"})), "spec.deploymentName"),
        (foo(json!({"deploymentName": "a-"})), "spec.deploymentName"),
        (foo(json!({"deploymentName": "A"})), "spec.deploymentName"),
        (foo(json!({"deploymentName": "a.b"})), "spec.deploymentName"),
        (foo(json!({"deploymentName": 7})), "spec.deploymentName"),
        (foo(json!({"deploymentName": "a", "replicas": 0})), "spec.replicas"),
        (foo(json!({"deploymentName": "a", "replicas": 11})), "spec.replicas"),
        (foo(json!({"deploymentName": "a", "replicas": "2"})), "spec.replicas"),
        (
            named(letters(64), json!({"deploymentName": "a"})),
            "metadata.name must have at most 63 characters: it becomes the value of a label",
        ),
    ]
}
