//! What the book's pages promise to readers of the texts that the project began with: the texts' manifests work, and the
//! pages' commands move live objects here.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{Bed, Scene, both_beds_with_kubectl};

fn docs(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs").join(path)
}

/// Returns the page's commands that move an object, with the scene's namespace.
fn commands(scene: &Scene, page: &str) -> String {
    let text = fs::read_to_string(docs("book/src").join(page)).unwrap();
    let mut blocks = text.split("```sh takeover\n").skip(1);
    let block = blocks.next().and_then(|block| block.split("```").next()).unwrap();
    assert!(blocks.next().is_none(), "{page} has one block");
    assert_eq!(block.matches("namespace=default ").count(), 1, "{page}");
    block.replace("namespace=default ", &format!("namespace={} ", scene.namespace))
}

/// Returns a shell that runs a script whose kubectl is that of the scene.
fn shell(scene: &Scene, dir: &tempfile::TempDir, script: &str) -> Command {
    let kubectl = scene.bed.kubectl_command();
    let args: Vec<_> = kubectl.get_args().map(|arg| format!("{:?}", arg.to_str().unwrap())).collect();
    let call = [&[format!("{:?}", kubectl.get_program())], &args[..]].concat().join(" ");
    let program = dir.path().join("kubectl");
    fs::write(&program, format!("#!/bin/sh\nexec {call} \"$@\"\n")).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut shell = Command::new("timeout");
    shell.args(["400", "bash", "-c", script]);
    shell.envs(kubectl.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{}:{path}", dir.path().display()));
    shell
}

#[track_caller]
fn succeeded(output: &Output, script: &str) {
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a script, and asserts that the object's Service selects at least this many Ready Pods of its own throughout.
async fn run_while_served(scene: &Scene, script: &str, name: &str, pods: usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = shell(scene, &dir, script);
    let mut running = tokio::task::spawn_blocking(move || shell.output().unwrap());
    loop {
        let found = served(scene, name).await;
        assert!(found >= pods, "{found} Ready Pods in\n{script}");
        if let Ok(output) = tokio::time::timeout(Duration::from_millis(50), &mut running).await {
            return succeeded(&output.unwrap(), script);
        }
    }
}

/// Whether a Pod has the name of one of this Deployment's.
fn is_of(pod: &Value, deployment: &str) -> bool {
    let name = pod["metadata"]["name"].as_str().unwrap();
    let rest = name.strip_prefix(deployment).and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|rest| rest.split('-').count() == 2)
}

/// Returns how many Ready Pods of an object its Service selects.
async fn served(scene: &Scene, name: &str) -> usize {
    let selector = async || scene.look("Service", name).await.unwrap()["spec"]["selector"].clone();
    loop {
        let (before, pods) = (selector().await, scene.matching("Pod", "").await);
        let wanted = before.as_object().unwrap();
        let is_served = |pod: &&Value| {
            let labels = &pod["metadata"]["labels"];
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let is_ready =
                conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            let is_going = !pod["metadata"]["deletionTimestamp"].is_null();
            is_of(pod, name)
                && is_ready
                && !is_going
                && wanted.iter().all(|(key, value)| labels[key] == *value)
        };
        let found = pods.iter().filter(is_served).count();
        // Between the two reads the selector may have changed.
        if selector().await == before {
            return found;
        }
    }
}

/// Creates a paused object and the children that another operator would have created, and waits for the Pods.
async fn made_by_another(scene: &Scene, kind: &str, name: &str, spec: &Value, labels: &Value) {
    let metadata = json!({"name": name, "annotations": {"windlass.dev/paused": "true"}});
    let object = scene.make_whole(kind, json!({"metadata": metadata, "spec": spec})).await;
    let owner = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": name,
        "uid": object["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    let metadata = json!({"name": name, "ownerReferences": [owner]});
    let container = json!({"name": name, "image": object["spec"]["image"]});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    // As many as somebody has set by hand.
    let spec = json!({"replicas": 3, "selector": {"matchLabels": labels}, "template": template});
    scene.make_whole("Deployment", json!({"metadata": metadata, "spec": spec})).await;
    let type_ = if kind == "AppService" { "NodePort" } else { "ClusterIP" };
    let spec = json!({"type": type_, "selector": labels, "ports": [{"port": 80}]});
    scene.make_whole("Service", json!({"metadata": metadata, "spec": spec})).await;
    scene.until("Deployment", name, "has 3 Pods", |it| it["status"]["availableReplicas"] == 3).await;
}

/// Moves an object by the commands of a page; another that has nearly its name is left alone.
async fn move_here(scene: &mut Scene, page: &str, kind: &str, name: &str, other: &str) {
    let before = scene.look("Service", name).await.unwrap();
    let old = scene.matching("Pod", "").await;
    let uids = |pods: &[Value], name: &str| -> Vec<Value> {
        pods.iter().filter(|pod| is_of(pod, name)).map(|pod| pod["metadata"]["uid"].clone()).collect()
    };
    scene.start_operator();
    run_while_served(scene, &commands(scene, page), name, 3).await;
    scene.until_ready(kind, name).await;
    let after = scene.look("Service", name).await.unwrap();
    for field in ["/spec/clusterIP", "/spec/ports/0/nodePort"] {
        assert_eq!(after.pointer(field), before.pointer(field), "{field}");
    }
    let new = scene.matching("Pod", "").await;
    assert!(uids(&new, name).iter().all(|uid| !uids(&old, name).contains(uid)), "the old Pods are gone");
    assert_eq!(uids(&new, name).len(), 3);
    assert_eq!(uids(&new, other), uids(&old, other), "those of another are as they were");
    assert_eq!(uids(&old, other).len(), 3);
}

#[apply(both_beds_with_kubectl)]
async fn manifests_of_the_texts_become_ready() {
    let scene = Scene::new("coming-from").await;
    let dir = tempfile::tempdir().unwrap();
    for (file, kind, name) in
        [("myapp.yaml", "Myapp", "test-myapp"), ("appservice.yaml", "AppService", "nginx-app")]
    {
        let path = docs("coming-from").join(file);
        scene.kubectl(&["apply", "-f", path.to_str().unwrap()]);
        scene.until_ready(kind, name).await;
        let deployment = scene.look("Deployment", name).await.unwrap();
        assert_eq!(deployment["status"]["availableReplicas"], 2, "{name}");
        // As the text does it: another number, applied again.
        let more = fs::read_to_string(path).unwrap().replace("replicas: 2", "replicas: 5");
        let file = dir.path().join(file);
        fs::write(&file, more).unwrap();
        scene.kubectl(&["apply", "-f", file.to_str().unwrap()]);
        scene.until("Deployment", name, "has 5 Pods", |it| it["status"]["availableReplicas"] == 5).await;
    }
    let port = &scene.look("Service", "nginx-app").await.unwrap()["spec"]["ports"][0];
    assert_eq!((&port["nodePort"], &port["targetPort"]), (&json!(30002), &json!(80)));
    let ingress = scene.look("Ingress", "test-myapp").await.unwrap();
    assert_eq!(ingress["spec"]["rules"][0]["host"], "myapp.com");
}

#[apply(both_beds_with_kubectl)]
async fn pods_of_a_myapp_serve_while_it_is_taken_over() {
    let mut scene = Scene::on(Bed::shared().await, "from-myapp").await;
    let spec = json!({"replicas": 2, "image": "nginx", "containerPort": 80, "servicePort": 80});
    // The old operator gives all Myapps of a namespace the same labels.
    let labels = json!({"app": scene.namespace, "release": "canary"});
    for name in ["test-myapp", "test-myapp-two"] {
        made_by_another(&scene, "Myapp", name, &spec, &labels).await;
    }
    move_here(&mut scene, "from-myapp.md", "Myapp", "test-myapp", "test-myapp-two").await;
}

#[apply(both_beds_with_kubectl)]
async fn pods_of_an_appservice_serve_while_it_is_taken_over() {
    let mut scene = Scene::on(Bed::shared().await, "from-appservice").await;
    let spec = json!({"replicas": 2, "image": "nginx", "ports": [{"port": 80, "targetPort": 80}]});
    for name in ["nginx-app", "nginx-app-two"] {
        made_by_another(&scene, "AppService", name, &spec, &json!({"app": name})).await;
    }
    move_here(&mut scene, "from-appservice.md", "AppService", "nginx-app", "nginx-app-two").await;
}

/// Runs the page's commands for an object with another operator's finalizers, and returns the remaining ones.
async fn finalizers_left(scene: &Scene, page: &str, kind: &str, name: &str) -> Value {
    let script = commands(scene, page);
    let dir = tempfile::tempdir().unwrap();
    let mut shell = shell(scene, &dir, &script);
    succeeded(&tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap(), &script);
    scene.look(kind, name).await.unwrap()["metadata"]["finalizers"].clone()
}

#[apply(both_beds_with_kubectl)]
async fn pods_of_a_redis_stay_while_it_is_taken_over() {
    let mut scene = Scene::on(Bed::shared().await, "from-redis").await;
    let metadata = json!({"name": "example", "finalizers": ["example-0", "example.com/kept", "example-1"]});
    let spec = json!({"replicas": 2, "image": "redis", "port": 6379});
    let redis = scene.make_whole("Redis", json!({"metadata": metadata, "spec": spec})).await;
    let owner = json!({"apiVersion": "myapp.tangx.in/v1", "kind": "Redis", "name": "example",
        "uid": redis["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    let container = json!({"name": "example", "image": "redis", "imagePullPolicy": "IfNotPresent",
        "ports": [{"containerPort": 6379}]});
    for name in ["example-0", "example-1"] {
        let metadata = json!({"name": name, "ownerReferences": [owner]});
        scene.make_whole("Pod", json!({"metadata": metadata, "spec": {"containers": [container]}})).await;
    }
    let uids = async |scene: &Scene| -> Vec<Value> {
        scene.matching("Pod", "").await.iter().map(|pod| pod["metadata"]["uid"].clone()).collect()
    };
    let before = uids(&scene).await;
    let left = finalizers_left(&scene, "from-redis.md", "Redis", "example").await;
    assert_eq!(left, json!(["example.com/kept"]));
    scene.start_operator();
    scene.until_ready("Redis", "example").await;
    assert_eq!(uids(&scene).await, before, "no Pod was replaced");
    scene.unmake("Redis", "example", Default::default()).await;
    let is_last = |redis: &Value| redis["metadata"]["finalizers"] == json!(["example.com/kept"]);
    scene.until("Redis", "example", "waits for others alone", is_last).await;
    scene.change("Redis", "example", json!({"metadata": {"finalizers": null}})).await;
    scene.until_gone("Redis", "example").await;
}

#[apply(both_beds_with_kubectl)]
async fn tasks_of_a_webapp_run_again_when_it_is_taken_over() {
    let mut scene = Scene::on(Bed::shared().await, "from-webapp").await;
    let metadata = json!({"name": "webapp-sample", "finalizers": ["example.com/theirs"]});
    let spec = json!({"replicas": 1, "version": "stable", "image": "nginx"});
    scene.make_whole("WebApp", json!({"metadata": metadata, "spec": spec})).await;
    let left = finalizers_left(&scene, "from-webapp.md", "WebApp", "webapp-sample").await;
    assert_eq!(left, json!(null));
    scene.start_operator();
    let webapp = scene.until_ready("WebApp", "webapp-sample").await;
    let phases: Vec<_> =
        webapp["status"]["steps"].as_array().unwrap().iter().map(|step| &step["phase"]).collect();
    assert_eq!(phases, ["Succeeded"; 3]);
    scene.unmake("WebApp", "webapp-sample", Default::default()).await;
    scene.until_gone("WebApp", "webapp-sample").await;
}
