//! The API server refuses what cannot work, and names the field.

use kube_client::api::PostParams;
use serde_json::{Value, json};
use windlass::api::samplecontroller::v1alpha1::{Foo, FooSpec};

use crate::support::{Bed, Scene};

/// A Foo that is valid but for what the test changes.
fn foo(name: &str, spec: impl Into<Value>) -> Value {
    let spec: Value = spec.into();
    json!({"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": name}, "spec": spec})
}

async fn apply(scene: &Scene, object: &Value) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), object.to_string()).unwrap();
    let namespace = format!("--namespace={}", scene.namespace);
    let path = file.path().to_str().unwrap();
    let output = scene.bed.kubectl(&[&namespace, "create", "--dry-run=server", "-f", path]);
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[tokio::test]
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
        assert_eq!(apply(&scene, &object).await, Ok(()), "{object}");
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
        let refusal = apply(&scene, &object).await.expect_err("it is outside a bound");
        assert!(refusal.contains(field), "{object}: {field} is not in: {refusal}");
    }
}

#[tokio::test]
async fn kubectl_scale_outside_the_bounds_is_refused() {
    let scene = Scene::on(Bed::shared().await, "scale-bounds").await;
    let foo = Foo::new("web", FooSpec { deployment_name: "web".to_owned(), replicas: 1 });
    scene.foos.create(&PostParams::default(), &foo).await.unwrap();
    let namespace = format!("--namespace={}", scene.namespace);
    for replicas in ["--replicas=0", "--replicas=11"] {
        let output = scene.bed.kubectl(&[&namespace, "scale", "foo/web", replicas]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains("spec.replicas"), "{replicas}: {text}");
    }
}
