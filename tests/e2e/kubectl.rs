//! kubectl commands on Foos and their children.

use std::process::Output;

use macro_rules_attribute::apply;
use serde_json::json;

use crate::support::{Bed, Scene, both_beds_with_kubectl};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_wait_sees_ready() {
    let scene = Scene::new("wait").await;
    scene.create_foo("web", "web", 2).await;
    let text = scene.kubectl(&["wait", "--for=condition=Ready", "foo/web", "--timeout=60s"]);
    assert_eq!(text, "foo.samplecontroller.k8s.io/web condition met\n");
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_scale_scales_the_deployment() {
    let scene = Scene::new("kubectl-scale").await;
    scene.ready_foo("web", 1).await;
    scene.kubectl(&["scale", "foo/web", "--replicas=4"]);
    scene.deployment_until("web", "has 4 replicas", |d| d.spec.replicas == Some(4)).await;
    assert_eq!(scene.ready("web").await.spec.replicas, 4);
    let selector = scene.kubectl(&["get", "foo", "web", "-o", "jsonpath={.status.selector}"]);
    let pods = scene.kubectl(&["get", "pods", "-l", &selector, "-o", "name"]);
    assert_eq!(pods.lines().count(), 4, "the scale subresource's selector finds the Pods");
}

#[apply(both_beds_with_kubectl)]
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

#[apply(both_beds_with_kubectl)]
async fn kubectl_describe_shows_the_events() {
    let scene = Scene::new("describe").await;
    scene.ready_foo("web", 1).await;
    scene.event("web", "Synced").await;
    let text = scene.kubectl(&["describe", "foo", "web"]);
    for word in ["ChildCreated", "Created Deployment \"web\"", "Synced", "Foo synced successfully"] {
        assert!(text.contains(word), "{word} is not in:\n{text}");
    }
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_explain_describes_fields() {
    let bed = Bed::shared().await;
    let output = bed.kubectl(&["explain", "foos.spec.replicas"]);
    assert!(succeeded(&output).contains("1 to 10; 1 by default"));
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_applies_printed_crds_and_samples() {
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
    // A second apply changes nothing.
    let again = scene.kubectl(&["apply", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/crd/samples/foo.yaml")]);
    assert_eq!(again.matches("unchanged").count(), 2, "{again}");
}

#[apply(both_beds_with_kubectl)]
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

#[apply(both_beds_with_kubectl)]
async fn kubectl_scale_outside_the_bounds_is_refused() {
    let scene = Scene::on(Bed::shared().await, "scale-bounds").await;
    scene.create_foo("web", "web", 1).await;
    for replicas in ["--replicas=0", "--replicas=11"] {
        let (ok, said) = kubectl(&scene, &["scale", "foo/web", replicas]);
        assert!(!ok && said.contains("spec.replicas"), "{replicas}: {said}");
    }
}

/// Runs kubectl in the scene's namespace; returns whether it succeeded, and its output.
fn kubectl(scene: &Scene, args: &[&str]) -> (bool, String) {
    let output = scene.kubectl_output(args);
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_get_prints_every_format() {
    let scene = Scene::new("formats").await;
    scene.ready_foo("web", 2).await;
    let (_, wide) = kubectl(&scene, &["get", "foo", "web", "-o", "wide"]);
    assert!(wide.contains("REASON") && wide.contains("Available"), "{wide}");
    let (_, yaml) = kubectl(&scene, &["get", "foo", "web", "-o", "yaml"]);
    assert!(yaml.contains("kind: Foo\n") && yaml.contains("  replicas: 2\n"), "{yaml}");
    let (_, json) = kubectl(&scene, &["get", "foo", "web", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["spec"]["replicas"], 2);
    let (_, names) = kubectl(&scene, &["get", "pods", "-l", "controller=web", "-o", "name"]);
    assert_eq!(names.lines().count(), 2, "{names}");
    let (_, none) = kubectl(&scene, &["get", "pods", "-l", "controller!=web", "-o", "name"]);
    assert_eq!(none, "");
    let selector = format!("metadata.namespace={}", scene.namespace);
    let everywhere = succeeded(&scene.bed.kubectl(&["get", "foo", "-A", "--field-selector", &selector]));
    let header: Vec<&str> = everywhere.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header[..2], ["NAMESPACE", "NAME"]);
    assert!(everywhere.contains(&scene.namespace), "{everywhere}");
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_get_watch_shows_changes() {
    use std::io::{BufRead, BufReader};
    let scene = Scene::new("watch").await;
    scene.ready_foo("web", 1).await;
    let mut command = scene.bed.kubectl_command();
    command.args(["get", "foo", "-w", "--output-watch-events", "--namespace", &scene.namespace]);
    // If an event is missing, kubectl times out and the lines end.
    command.arg("--request-timeout=30s");
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut has = |type_: &str| lines.any(|line| line.starts_with(type_) && line.contains("web"));
    let mut seen = vec![has("ADDED")];
    scene.patch_foo("web", json!({"spec": {"replicas": 2}})).await;
    seen.push(has("MODIFIED"));
    scene.delete_foo("web", kube_client::api::DeleteParams::background()).await;
    seen.push(has("DELETED"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(seen, [true; 3], "added, modified, deleted");
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_create_apply_diff_and_replace_agree() {
    let scene = Scene::new("apply").await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("foo.yaml");
    let path = file.to_str().unwrap();
    let write = |replicas: i32| {
        let head = "apiVersion: samplecontroller.k8s.io/v1alpha1\nkind: Foo\nmetadata: {name: web}\n";
        std::fs::write(&file, format!("{head}spec: {{deploymentName: web, replicas: {replicas}}}\n"))
            .unwrap();
    };
    write(1);
    let (_, dry) = kubectl(&scene, &["apply", "-f", path, "--dry-run=server"]);
    assert!(dry.contains("created (server dry run)"), "{dry}");
    assert!(kubectl(&scene, &["create", "-f", path, "--save-config"]).0);
    let (is_new, again) = kubectl(&scene, &["create", "-f", path]);
    assert!(!is_new && again.contains("AlreadyExists"), "{again}");
    scene.ready("web").await;
    write(2);
    let (is_same, diff) = kubectl(&scene, &["diff", "-f", path]);
    assert!(!is_same && diff.contains("-  replicas: 1") && diff.contains("+  replicas: 2"), "{diff}");
    assert!(kubectl(&scene, &["apply", "-f", path]).1.contains("configured"));
    assert!(kubectl(&scene, &["apply", "-f", path]).1.contains("unchanged"));
    write(3);
    assert!(kubectl(&scene, &["replace", "-f", path]).1.contains("replaced"));
    assert_eq!(scene.ready("web").await.status.unwrap().available_replicas, 3);
}

/// Writes the object that kubectl would send to a file.
fn dry_run(scene: &Scene, file: &std::path::Path, args: &[&str]) {
    let yaml = scene.kubectl(&[args, &["--dry-run=client", "-o", "yaml"]].concat());
    std::fs::write(file, yaml).unwrap();
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_creates_without_a_file() {
    let scene = Scene::on(Bed::shared().await, "create").await;
    let namespace = format!("{}-more", scene.namespace);
    let autoscale = ["autoscale", "deployment", "web", "--max=3", "--cpu=80%"];
    for (made, args) in [
        (format!("namespace/{namespace}"), &["create", "namespace", namespace.as_str()][..]),
        ("secret/web".to_owned(), &["create", "secret", "generic", "web", "--from-literal=a=b"][..]),
        ("service/web".to_owned(), &["create", "service", "clusterip", "web", "--tcp=80:8080"][..]),
        ("serviceaccount/web".to_owned(), &["create", "serviceaccount", "web"][..]),
        ("quota/web".to_owned(), &["create", "quota", "web", "--hard=secrets=9"][..]),
        ("ingress/web".to_owned(), &["create", "ingress", "web", "--rule=a.example.com/=web:80"][..]),
        ("configmap/web".to_owned(), &["create", "configmap", "web", "--from-literal=a=b"][..]),
        ("deployment/web".to_owned(), &["create", "deployment", "web", "--image=nginx", "--port=80"][..]),
        ("hpa/web".to_owned(), &autoscale[..]),
    ] {
        scene.kubectl(args);
        assert!(scene.kubectl(&["get", &made, "-o", "name"]).contains('/'), "{made}");
    }
    let path =
        "jsonpath={.data.a} {.spec.template.spec.containers[0].ports[0].containerPort} {.spec.maxReplicas}";
    let shown = scene.kubectl(&["get", "configmap/web", "deployment/web", "hpa/web", "-o", "name"]);
    assert_eq!(shown.lines().count(), 3);
    let each = |made: &str| scene.kubectl(&["get", made, "-o", path]).trim().to_owned();
    assert_eq!(["configmap/web", "deployment/web", "hpa/web"].map(each), ["b", "80", "3"]);
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_auth_can_i_answers_yes() {
    let scene = Scene::on(Bed::shared().await, "can-i").await;
    assert_eq!(scene.kubectl(&["auth", "can-i", "create", "deployments.apps"]), "yes\n");
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_rollout_undo_works_repeatedly() {
    let scene = Scene::on(Bed::shared().await, "undo").await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("web.yaml");
    dry_run(&scene, &file, &["create", "deployment", "web", "--image=nginx:1"]);
    let web = "deployment/web";
    scene.kubectl(&["create", "-f", file.to_str().unwrap()]);
    scene.kubectl(&["rollout", "status", web, "--timeout=60s"]);
    scene.kubectl(&["set", "image", web, "nginx=nginx:2"]);
    for image in ["nginx:1", "nginx:2", "nginx:1"] {
        scene.kubectl(&["rollout", "status", web, "--timeout=60s"]);
        scene.kubectl(&["rollout", "undo", web]);
        let path = "jsonpath={.spec.template.spec.containers[0].image}";
        assert_eq!(scene.kubectl(&["get", web, "-o", path]), image);
    }
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_edits_patches_labels_and_annotates() {
    let scene = Scene::new("edit").await;
    scene.ready_foo("web", 1).await;
    let mut edit = scene.bed.kubectl_command();
    edit.env("KUBE_EDITOR", "sed -i /replicas/s/1/2/");
    succeeded(&edit.args(["edit", "foo", "web", "--namespace", &scene.namespace]).output().unwrap());
    assert_eq!(scene.ready("web").await.spec.replicas, 2);
    let patches = [
        ("foo/web", "merge", r#"{"spec": {"replicas": 3}}"#),
        ("foo/web", "json", r#"[{"op": "replace", "path": "/spec/replicas", "value": 4}]"#),
        ("deployment/web", "strategic", r#"{"metadata": {"annotations": {"by": "hand"}}}"#),
    ];
    for (object, type_, patch) in patches {
        let (ok, said) = kubectl(&scene, &["patch", object, "--type", type_, "-p", patch]);
        assert!(ok, "{type_}: {said}");
    }
    assert_eq!(scene.ready("web").await.spec.replicas, 4);
    let (ok, said) = kubectl(&scene, &["patch", "foo/web", "--type", "strategic", "-p", "{}"]);
    assert!(!ok && said.contains("application/merge-patch+json"), "{said}");
    assert!(kubectl(&scene, &["label", "foo/web", "team=a"]).0);
    assert!(kubectl(&scene, &["annotate", "foo/web", "note=b"]).0);
    let note = "jsonpath={.items[0].metadata.annotations.note}";
    assert_eq!(kubectl(&scene, &["get", "foo", "-l", "team=a", "-o", note]).1, "b");
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_delete_cascades_and_waits() {
    let scene = Scene::new("delete").await;
    for cascade in ["background", "foreground"] {
        scene.ready_foo("web", 1).await;
        let (ok, said) = kubectl(&scene, &["delete", "foo/web", &format!("--cascade={cascade}"), "--wait"]);
        assert!(ok, "{said}");
        assert_eq!(scene.foos.get_opt("web").await.unwrap().map(|foo| foo.metadata), None);
        scene.deployment_gone("web").await;
    }
    scene.ready_foo("web", 1).await;
    assert!(kubectl(&scene, &["delete", "foo", "--all", "--cascade=orphan"]).0);
    let orphan = scene.deployments.get("web").await.unwrap();
    assert_eq!(orphan.metadata.owner_references, None, "the orphan has no owner");
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_finds_kinds_and_events() {
    let scene = Scene::new("kinds").await;
    scene.ready_foo("web", 1).await;
    scene.event("web", "Synced").await;
    let (_, kinds) = kubectl(&scene, &["api-resources", "--categories=windlass", "--no-headers"]);
    let mut kinds: Vec<Vec<&str>> = kinds.lines().map(|line| line.split_whitespace().collect()).collect();
    kinds.sort();
    let expected = [
        ["appservices", "appsvc", "batch.schwarzeni.github.com/v1alpha1", "true", "AppService"],
        ["foos", "fo", "samplecontroller.k8s.io/v1alpha1", "true", "Foo"],
        ["myapps", "ma", "myapp.timd.cn/v1", "true", "Myapp"],
        ["redis", "rd", "myapp.tangx.in/v1", "true", "Redis"],
        ["webapps", "webapp", "jiajunhuang.com/v1", "true", "WebApp"],
    ];
    assert_eq!(kinds, expected);
    let (_, events) = kubectl(&scene, &["events", "--for", "foo/web"]);
    assert!(events.contains("Foo synced successfully"), "{events}");
    let (_, events) = kubectl(&scene, &["get", "events"]);
    assert!(events.contains("foo/web") && events.contains("ChildCreated"), "{events}");
    let (_, explained) = kubectl(&scene, &["explain", "deployment.spec.replicas"]);
    assert!(explained.contains("KIND:       Deployment") && explained.contains("<integer>"), "{explained}");
}

#[apply(both_beds_with_kubectl)]
async fn kubectl_applies_on_the_server() {
    let scene = Scene::new("server-side").await;
    let dir = tempfile::tempdir().unwrap();
    let file = |replicas: i64, image: &str| {
        let path = dir.path().join("web.json");
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}});
        let web =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
        std::fs::write(&path, web.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // An object of kubectl's own apply moves to the server's.
    scene.kubectl(&["apply", "-f", &file(1, "nginx:1")]);
    let told = scene.kubectl(&["apply", "--server-side", "-f", &file(1, "nginx:2")]);
    assert_eq!(told, "deployment.apps/web serverside-applied\n");
    let managers = scene.kubectl(&[
        "get",
        "deployment",
        "web",
        "--show-managed-fields",
        "-o",
        "jsonpath={range .metadata.managedFields[*]}{.manager} {.operation} {.subresource}{\"\\n\"}{end}",
    ]);
    assert!(
        managers.contains("kubectl Apply \n") && !managers.contains("kubectl-client-side-apply"),
        "{managers}"
    );

    scene.kubectl(&["scale", "deployment/web", "--replicas=2"]);
    let refused = scene.kubectl_output(&["apply", "--server-side", "-f", &file(3, "nginx:2")]);
    let why = text(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("conflict with \"kubectl\" with subresource \"scale\""),
        "{why}"
    );
    scene.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &file(3, "nginx:2")]);
    let replicas = scene.kubectl(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"]);
    assert_eq!(replicas, "3");
    let same = scene.kubectl_output(&["diff", "--server-side", "-f", &file(3, "nginx:2")]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stdout));
    let other = scene.kubectl_output(&["diff", "--server-side", "-f", &file(3, "nginx:3")]);
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stdout).contains("+      - image: nginx:3"), "{}", text(&other.stdout));
}
