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

/// Returns the commands of a page that move an object, a script a block.
fn commands(page: &str) -> Vec<String> {
    let text = fs::read_to_string(docs("book/src").join(page)).unwrap();
    let blocks = text.split("```sh takeover\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Returns a shell that runs a script whose kubectl is that of the scene, in its namespace.
fn shell(scene: &Scene, dir: &tempfile::TempDir, script: &str) -> Command {
    let kubectl = scene.bed.kubectl_command();
    let args: Vec<_> = kubectl.get_args().map(|arg| format!("{:?}", arg.to_str().unwrap())).collect();
    let call = [&[format!("{:?}", kubectl.get_program())], &args[..]].concat().join(" ");
    let program = dir.path().join("kubectl");
    fs::write(&program, format!("#!/bin/sh\nexec {call} --namespace={} \"$@\"\n", scene.namespace)).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", script]);
    shell.envs(kubectl.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{}:{path}", dir.path().display()));
    shell
}

#[track_caller]
fn succeeded(output: &Output, script: &str) {
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a script, and asserts meanwhile that the Service of this name always has as many Ready Pods.
async fn run_while_served(scene: &Scene, script: &str, service: &str, pods: usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = shell(scene, &dir, script);
    let mut running = tokio::task::spawn_blocking(move || shell.output().unwrap());
    loop {
        let found = served(scene, service).await;
        assert!(found >= pods, "{found} Ready Pods in\n{script}");
        if let Ok(output) = tokio::time::timeout(Duration::from_millis(50), &mut running).await {
            return succeeded(&output.unwrap(), script);
        }
    }
}

/// Returns how many Ready Pods a Service selects.
async fn served(scene: &Scene, service: &str) -> usize {
    let selector = async || scene.look("Service", service).await.unwrap()["spec"]["selector"].clone();
    loop {
        let (before, pods) = (selector().await, scene.matching("Pod", "").await);
        let wanted = before.as_object().unwrap();
        let is_served = |pod: &&Value| {
            let labels = &pod["metadata"]["labels"];
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let is_ready =
                conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            let is_going = !pod["metadata"]["deletionTimestamp"].is_null();
            is_ready && !is_going && wanted.iter().all(|(key, value)| labels[key] == *value)
        };
        let found = pods.iter().filter(is_served).count();
        // Between the two reads the selector may have changed.
        if selector().await == before {
            return found;
        }
    }
}

/// Makes the Deployment and the Service that another operator has made for an object, and waits for their Pods.
async fn made_by_another(scene: &Scene, object: &Value, labels: &Value, port: Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let owner = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": name,
        "uid": object["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    let metadata = json!({"name": name, "ownerReferences": [owner]});
    let container = json!({"name": name, "image": object["spec"]["image"]});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    scene.make_whole("Deployment", json!({"metadata": metadata, "spec": spec})).await;
    let spec = json!({"selector": labels, "ports": [port]});
    scene.make_whole("Service", json!({"metadata": metadata, "spec": spec})).await;
    scene.until("Deployment", name, "has 2 Pods", |it| it["status"]["availableReplicas"] == 2).await;
}

/// Moves an object by the commands of a page.
async fn move_here(scene: &mut Scene, page: &str, name: &str, kind: &str) {
    let [prepare, finish] = &commands(page)[..] else { panic!("{page} has two blocks of commands") };
    let prepare = prepare.replace("app=default,", &format!("app={},", scene.namespace));
    let before = scene.look("Service", name).await.unwrap();
    let old: Vec<Value> = scene.matching("Pod", "").await;
    run_while_served(scene, &prepare, name, 2).await;
    scene.start_operator();
    let assigned = prepare.lines().next().unwrap();
    run_while_served(scene, &format!("{assigned}\n{finish}"), name, 2).await;
    scene.until_ready(kind, name).await;
    let after = scene.look("Service", name).await.unwrap();
    assert_eq!(after["spec"]["clusterIP"], before["spec"]["clusterIP"]);
    let is_old = |pod: &Value| old.iter().any(|old| old["metadata"]["uid"] == pod["metadata"]["uid"]);
    let left = scene.matching("Pod", "").await;
    assert!(left.len() == 2 && !left.iter().any(is_old), "the old Pods are gone, and no others");
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
    assert!(scene.look("Ingress", "test-myapp").await.is_none(), "there is no host");
}

#[apply(both_beds_with_kubectl)]
async fn pods_of_a_myapp_serve_while_it_is_taken_over() {
    let mut scene = Scene::on(Bed::shared().await, "from-myapp").await;
    let spec = json!({"replicas": 2, "image": "nginx", "containerPort": 80, "servicePort": 80});
    let myapp = scene.make("Myapp", "test-myapp", spec).await;
    let labels = json!({"app": scene.namespace, "release": "canary"});
    made_by_another(&scene, &myapp, &labels, json!({"port": 80})).await;
    move_here(&mut scene, "from-myapp.md", "test-myapp", "Myapp").await;
}

#[apply(both_beds_with_kubectl)]
async fn pods_of_an_appservice_serve_while_it_is_taken_over() {
    let mut scene = Scene::on(Bed::shared().await, "from-appservice").await;
    let spec = json!({"replicas": 2, "image": "nginx", "ports": [{"port": 80, "targetPort": 80}]});
    let appservice = scene.make("AppService", "nginx-app", spec).await;
    let port = json!({"port": 80, "targetPort": 80});
    made_by_another(&scene, &appservice, &json!({"app": "nginx-app"}), port).await;
    move_here(&mut scene, "from-appservice.md", "nginx-app", "AppService").await;
}

/// Runs the one block of a page for an object with a finalizer of another operator.
fn take_finalizers_off(scene: &Scene, page: &str, name: &str) {
    let [script] = &commands(page)[..] else { panic!("{page} has one block of commands") };
    let dir = tempfile::tempdir().unwrap();
    succeeded(&shell(scene, &dir, script).env("name", name).output().unwrap(), script);
}

#[apply(both_beds_with_kubectl)]
async fn pods_of_a_redis_stay_while_it_is_taken_over() {
    let mut scene = Scene::on(Bed::shared().await, "from-redis").await;
    let metadata = json!({"name": "cache", "finalizers": ["cache-0", "cache-1"]});
    let spec = json!({"replicas": 2, "image": "redis", "port": 6379});
    let redis = scene.make_whole("Redis", json!({"metadata": metadata, "spec": spec})).await;
    let owner = json!({"apiVersion": "myapp.tangx.in/v1", "kind": "Redis", "name": "cache",
        "uid": redis["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    let container = json!({"name": "cache", "image": "redis", "imagePullPolicy": "IfNotPresent",
        "ports": [{"containerPort": 6379}]});
    for name in ["cache-0", "cache-1"] {
        let metadata = json!({"name": name, "ownerReferences": [owner]});
        scene.make_whole("Pod", json!({"metadata": metadata, "spec": {"containers": [container]}})).await;
    }
    let uids = async |scene: &Scene| -> Vec<Value> {
        scene.matching("Pod", "").await.iter().map(|pod| pod["metadata"]["uid"].clone()).collect()
    };
    let before = uids(&scene).await;
    take_finalizers_off(&scene, "from-redis.md", "cache");
    scene.start_operator();
    scene.until_ready("Redis", "cache").await;
    assert_eq!(uids(&scene).await, before, "no Pod was replaced");
    scene.unmake("Redis", "cache", Default::default()).await;
    scene.until_gone("Redis", "cache").await;
}

#[apply(both_beds_with_kubectl)]
async fn tasks_of_a_webapp_run_again_when_it_is_taken_over() {
    let mut scene = Scene::on(Bed::shared().await, "from-webapp").await;
    let metadata = json!({"name": "webapp-sample", "finalizers": ["example.com/theirs"]});
    let spec = json!({"replicas": 1, "version": "stable", "image": "nginx"});
    scene.make_whole("WebApp", json!({"metadata": metadata, "spec": spec})).await;
    take_finalizers_off(&scene, "from-webapp.md", "webapp-sample");
    scene.start_operator();
    let webapp = scene.until_ready("WebApp", "webapp-sample").await;
    let phases: Vec<_> =
        webapp["status"]["steps"].as_array().unwrap().iter().map(|step| &step["phase"]).collect();
    assert_eq!(phases, ["Succeeded"; 3]);
    scene.unmake("WebApp", "webapp-sample", Default::default()).await;
    scene.until_gone("WebApp", "webapp-sample").await;
}
