//! The API server refuses what cannot work, and names the field.

use kube_client::api::PostParams;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{Bed, Scene, both_beds};

/// A Foo that is valid but for what the test changes.
fn foo(name: &str, spec: impl Into<Value>) -> Value {
    let spec: Value = spec.into();
    json!({"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": name}, "spec": spec})
}

/// Asks the server to create it, without storing it.
async fn create(scene: &Scene, object: &Value) -> Result<(), String> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let object = serde_json::from_value(object.clone()).unwrap();
    scene.untyped_foos().await.create(&dry_run, &object).await.map(drop).map_err(|error| error.to_string())
}

#[apply(both_beds)]
async fn each_bound_holds_just_inside_and_just_outside() {
    let scene = Scene::on(Bed::shared().await, "bounds").await;
    let label = |length: usize| "a".repeat(length);
    let inside = [
        foo("a", json!({"deploymentName": "a"})),
        foo("a", json!({"deploymentName": label(63)})),
        foo("a", json!({"deploymentName": "0-9", "replicas": 1})),
        foo("a", json!({"deploymentName": "a", "replicas": 10})),
        foo(&label(63), json!({"deploymentName": "a"})),
        foo("dots.are.fine", json!({"deploymentName": "a"})),
    ];
    for object in inside {
        assert_eq!(create(&scene, &object).await, Ok(()), "{object}");
    }
    let outside = [
        (foo("a", json!({})), "spec.deploymentName"),
        (foo("a", json!({"deploymentName": ""})), "spec.deploymentName"),
        (foo("a", json!({"deploymentName": label(64)})), "spec.deploymentName"),
        (foo("a", json!({"deploymentName": "-a"})), "spec.deploymentName"),
        (foo("a", json!({"deploymentName": "a-"})), "spec.deploymentName"),
        (foo("a", json!({"deploymentName": "A"})), "spec.deploymentName"),
        (foo("a", json!({"deploymentName": "a.b"})), "spec.deploymentName"),
        (foo("a", json!({"deploymentName": 7})), "spec.deploymentName"),
        (foo("a", json!({"deploymentName": "a", "replicas": 0})), "spec.replicas"),
        (foo("a", json!({"deploymentName": "a", "replicas": 11})), "spec.replicas"),
        (foo("a", json!({"deploymentName": "a", "replicas": "2"})), "spec.replicas"),
        (foo(&label(64), json!({"deploymentName": "a"})), "metadata.name must have at most 63 characters"),
    ];
    for (object, field) in outside {
        let refusal = create(&scene, &object).await.expect_err("it is outside a bound");
        assert!(refusal.contains(field), "{object}: {field} is not in: {refusal}");
    }
}
