//! kubectl's own verbs on our resources.

use std::process::Output;

use macro_rules_attribute::apply;
use serde_json::json;

use crate::support::{Bed, Scene, real_bed};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[apply(real_bed)]
#[why = "kubectl needs a socket"]
async fn kubectl_wait_sees_ready() {
    let scene = Scene::new("wait").await;
    scene.create_foo("web", "web", 2).await;
    let text = scene.kubectl(&["wait", "--for=condition=Ready", "foo/web", "--timeout=60s"]);
    assert_eq!(text, "foo.samplecontroller.k8s.io/web condition met\n");
}

#[apply(real_bed)]
#[why = "kubectl needs a socket"]
async fn kubectl_scale_scales_the_deployment() {
    let scene = Scene::new("kubectl-scale").await;
    scene.ready_foo("web", 1).await;
    scene.kubectl(&["scale", "foo/web", "--replicas=4"]);
    scene
        .deployment_until("web", "has 4 replicas", |d| d.spec.as_ref().is_some_and(|s| s.replicas == Some(4)))
        .await;
    assert_eq!(scene.ready("web").await.spec.replicas, 4);
    let selector = scene.kubectl(&["get", "foo", "web", "-o", "jsonpath={.status.selector}"]);
    let pods = scene.kubectl(&["get", "pods", "-l", &selector, "-o", "name"]);
    assert_eq!(pods.lines().count(), 4, "the scale subresource's selector finds the Pods");
}

#[apply(real_bed)]
#[why = "kubectl needs a socket"]
async fn kubectl_get_shows_the_columns() {
    let scene = Scene::new("columns").await;
    scene.ready_foo("web", 2).await;
    let table = scene.kubectl(&["get", "foo", "web"]);
    let mut lines = table.lines();
    let header: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "DEPLOYMENT", "REPLICAS", "AVAILABLE", "READY", "AGE"]);
    let row: Vec<&str> = lines.next().unwrap().split_whitespace().take(5).collect();
    assert_eq!(row, ["web", "web", "2", "2", "True"]);
    assert!(scene.kubectl(&["get", "fo"]).contains("web"), "the short name");
    assert!(scene.kubectl(&["get", "windlass"]).contains("web"), "the category");
}

#[apply(real_bed)]
#[why = "kubectl needs a socket"]
async fn kubectl_describe_shows_the_events() {
    let scene = Scene::new("describe").await;
    scene.ready_foo("web", 1).await;
    scene.event("web", "Synced").await;
    let text = scene.kubectl(&["describe", "foo", "web"]);
    for word in ["ChildCreated", "Created Deployment \"web\"", "Synced", "Foo synced successfully"] {
        assert!(text.contains(word), "{word} is not in:\n{text}");
    }
}

#[apply(real_bed)]
#[why = "kubectl needs a socket"]
async fn kubectl_explain_teaches_the_fields() {
    let bed = Bed::shared().await;
    let output = bed.kubectl(&["explain", "foos.spec.replicas"]);
    assert!(succeeded(&output).contains("1 to 10; 1 when left out"));
}

#[apply(real_bed)]
#[why = "kubectl needs a socket"]
async fn kubectl_apply_of_the_printed_crds_and_the_samples_works() {
    let scene = Scene::new("samples").await;
    let crds = crate::support::run_to_end(&["crds"], &[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("crds.yaml");
    std::fs::write(&file, succeeded(&crds)).unwrap();
    scene.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    scene.kubectl(&["apply", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/crd/samples/foo.yaml")]);
    for (name, replicas) in [("example", 1), ("example-full", 3)] {
        assert_eq!(scene.ready(name).await.status.unwrap().available_replicas, replicas);
    }
    // Applied again, nothing changes.
    let again = scene.kubectl(&["apply", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/crd/samples/foo.yaml")]);
    assert_eq!(again.matches("unchanged").count(), 2, "{again}");
}

#[apply(real_bed)]
#[why = "kubectl needs a socket"]
async fn kubectl_rollout_restart_is_not_undone() {
    let scene = Scene::new("restart").await;
    scene.ready_foo("web", 1).await;
    scene.kubectl(&["rollout", "restart", "deployment/web"]);
    scene.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    scene.patch_foo("web", json!({"spec": {"replicas": 2}})).await;
    scene.ready("web").await;
    let path = "jsonpath={.spec.template.metadata.annotations}";
    let annotations = scene.kubectl(&["get", "deployment", "web", "-o", path]);
    assert!(annotations.contains("restartedAt"), "{annotations}");
}

#[apply(real_bed)]
#[why = "kubectl needs a socket"]
async fn kubectl_scale_outside_the_bounds_is_refused() {
    let scene = Scene::on(Bed::shared().await, "scale-bounds").await;
    scene.create_foo("web", "web", 1).await;
    let namespace = format!("--namespace={}", scene.namespace);
    for replicas in ["--replicas=0", "--replicas=11"] {
        let output = scene.bed.kubectl(&[&namespace, "scale", "foo/web", replicas]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains("spec.replicas"), "{replicas}: {text}");
    }
}
