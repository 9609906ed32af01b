//! `windlass run --dry-run`: it reports what the operator would change, and changes nothing.

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    Bed, DryRun, LedgerEntry, Scene, both_beds, both_beds_with_kubectl, no_bed, run_to_end, wait_until,
};
use crate::webapp::{Outside, tasks_file};

/// The kinds and a converging spec of each.
pub(crate) fn one_of_each() -> [(&'static str, Value); 5] {
    let template = json!({"image": "nginx:1.27", "containerPort": 80, "servicePort": 80});
    [
        ("Foo", json!({"deploymentName": "foo", "replicas": 1})),
        ("Myapp", template),
        (
            "AppService",
            json!({"image": "nginx:1.27", "replicas": 1, "envs": [{"name": "TOKEN", "value": "s3cret"}]}),
        ),
        ("Redis", json!({"image": "redis:7.4", "port": 6379, "replicas": 3})),
        ("WebApp", json!({"version": "1.27", "replicas": 1})),
    ]
}

/// Returns a scene with a Ready object of each kind and no operator; the name of each object is its kind in lower case.
pub(crate) async fn converged(name: &str) -> Scene {
    let mut scene = Scene::on(Bed::shared().await, name).await;
    scene.start_operator();
    for (kind, spec) in one_of_each() {
        scene.make(kind, &kind.to_lowercase(), spec).await;
    }
    for (kind, _) in one_of_each() {
        scene.until_ready(kind, &kind.to_lowercase()).await;
    }
    // Statuses without a condition may still follow.
    scene.rest_for_a_while().await;
    assert_eq!(scene.take_operator().terminate().await.code(), Some(0));
    scene
}

/// Makes a dry run, asserts that it has changed nothing, and returns it with its requests.
async fn dry_run(scene: &Scene, flags: &[&str]) -> (DryRun, Vec<LedgerEntry>) {
    // A controller creates it some time after the namespace, and would change the snapshot.
    let account = async || scene.look("ServiceAccount", "default").await.ok_or("no account");
    wait_until("the default service account exists", account).await;
    let before = scene.snapshot_at_rest().await;
    let sent = scene.ledger().len();
    let ended = scene.dry_run(flags).await;
    assert_eq!(scene.snapshot().await, before, "{ended:#?}");
    let requests = scene.ledger().split_off(sent);
    for write in requests.iter().filter(|request| request.is_write()) {
        assert!(write.uri.contains("dryRun=All"), "a real write: {write:?}");
        assert!(!["events", "leases"].contains(&write.resource.as_str()), "{write:?}");
    }
    (ended, requests)
}

/// Returns the verbs and names of all requests but those of the caches.
fn sent(requests: &[LedgerEntry]) -> Vec<String> {
    let of_pass = requests.iter().filter(|request| !["list", "watch"].contains(&request.verb.as_str()));
    of_pass.map(|request| format!("{} {} {}", request.verb, request.resource, request.name)).collect()
}

#[apply(both_beds)]
async fn converged_cluster_would_not_change() {
    let scene = converged("dry-converged").await;
    let (ended, requests) = dry_run(&scene, &[]).await;
    ended.reports(0, &["nothing would change (5 objects)"]);
    assert_eq!(ended.report.lines().count(), 1, "{}", ended.report);
    assert_eq!(sent(&requests), Vec::<String>::new());
}

#[apply(both_beds)]
async fn hand_edited_children_are_named() {
    let scene = converged("dry-edited").await;
    let container = |of: Value| json!({"spec": {"template": {"spec": {"containers": [of]}}}});
    scene.patch_deployment("foo", json!({"spec": {"replicas": 3}})).await;
    scene.patch_deployment("webapp", container(json!({"name": "webapp", "image": "nginx:0"}))).await;
    let env = json!([{"name": "TOKEN", "value": "s3cret-2"}]);
    scene.patch_deployment("appservice", container(json!({"name": "appservice", "env": env}))).await;
    scene.change("Service", "myapp", json!({"spec": {"selector": {"more": "x"}}})).await;
    for name in ["foo", "webapp", "appservice"] {
        scene
            .until("Deployment", name, "is rolled out", |one| {
                let (spec, status) = (&one["spec"], &one["status"]);
                status["observedGeneration"] == one["metadata"]["generation"]
                    && ["replicas", "updatedReplicas", "availableReplicas"]
                        .iter()
                        .all(|field| status[*field] == spec["replicas"])
            })
            .await;
    }
    scene.rest_for_a_while().await;
    let (ended, requests) = dry_run(&scene, &[]).await;
    let ns = &scene.namespace;
    ended.reports(
        1,
        &[
            &format!("Foo {ns}/foo"),
            &format!("would patch Deployment {ns}/foo"),
            "spec.replicas: 3 -> 1",
            &format!("would patch Deployment {ns}/webapp"),
            "spec.template.spec.containers[webapp].image: \"nginx:0\" -> \"nginx:1.27\"",
            &format!("would patch Service {ns}/myapp"),
            "spec.selector.more: \"x\" -> none",
            "spec.template.spec.containers[appservice].env[TOKEN].value: \"(hidden)\" -> \"(hidden)\"",
            "and what follows from it",
            "4 objects would change, 1 would not",
        ],
    );
    assert!(!ended.report.contains("s3cret") && !ended.report.contains('\x1b'), "{}", ended.report);
    // The owner is read before a repair; then the live child, for the difference.
    let of_foo: Vec<String> =
        sent(&requests).into_iter().filter(|request| request.ends_with(" foo")).collect();
    assert_eq!(
        of_foo[..3],
        ["get foos foo", "get deployments foo", "patch deployments foo"].map(str::to_owned),
        "{of_foo:?}"
    );

    let (ended, _) = dry_run(&scene, &["--controllers=foo", "--output=json"]).await;
    let report: Value = serde_json::from_str(&ended.report).unwrap();
    assert_eq!(
        (ended.code, &report["summary"]),
        (Some(1), &json!({"changed": 1, "unchanged": 0, "failed": 0}))
    );
    let write = &report["objects"][0]["writes"][0];
    assert_eq!(
        (&write["verb"], &write["name"], &write["changes"]),
        (&json!("patch"), &json!("foo"), &json!([{"field": "spec.replicas", "before": 3, "after": 1}]))
    );
}

#[apply(both_beds)]
async fn new_objects_would_get_their_children() {
    let scene = Scene::on(Bed::shared().await, "dry-new").await;
    for (kind, spec) in one_of_each() {
        scene.make(kind, &kind.to_lowercase(), spec).await;
    }
    let (ended, _) = dry_run(&scene, &[]).await;
    let ns = &scene.namespace;
    ended.reports(
        1,
        &[
            &format!("would create Deployment {ns}/foo"),
            &format!("would create Deployment {ns}/myapp"),
            &format!("would create Service {ns}/myapp"),
            &format!("would create Deployment {ns}/appservice"),
            &format!("would patch Redis {ns}/redis"),
            "metadata.finalizers: none -> [\"redis.myapp.tangx.in/pods\"]",
            &format!("would create Pod {ns}/redis-2"),
            &format!("would patch WebApp {ns}/webapp (status)"),
            "would call task \"prepare\" (pre_create)",
            "5 objects would change, 0 would not",
        ],
    );
    assert!(!ended.report.contains("s3cret"), "{}", ended.report);
    assert_eq!(ended.report.matches("and what follows from it").count(), 5, "{}", ended.report);
}

/// The table of `docs/requests.md`.
#[apply(both_beds)]
async fn dry_run_costs_what_is_documented() {
    let scene = Scene::on(Bed::shared().await, "dry-costs").await;
    let page = include_str!("../../docs/requests.md");
    let (_, section) = page.split_once("## A dry run").unwrap();
    for (kind, spec) in one_of_each() {
        let row = section.lines().find(|line| line.starts_with(&format!("| {kind} "))).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).skip(2).take(3).collect();
        let expected: Vec<usize> =
            cells.into_iter().map(|cell| if cell == "N" { 3 } else { cell.parse().unwrap() }).collect();
        let controller = kind.to_lowercase();
        scene.make(kind, &controller, spec).await;
        let (_, requests) = dry_run(&scene, &[&format!("--controllers={controller}")]).await;
        let count = |verb: &str| requests.iter().filter(|request| request.verb == verb).count();
        let found = [count("get"), count("create"), count("patch") + count("update")];
        assert_eq!(found.to_vec(), expected, "{kind}: {:?}", sent(&requests));
        assert_eq!(count("delete"), 0);
    }
}

#[apply(both_beds)]
async fn scale_down_would_delete_pods_after_reading_owner() {
    let scene = converged("dry-scale").await;
    scene.change("Redis", "redis", json!({"spec": {"replicas": 1}})).await;
    let (ended, requests) = dry_run(&scene, &["--controllers=redis"]).await;
    let ns = &scene.namespace;
    let deletes = [2, 1].map(|ordinal| format!("would delete Pod {ns}/redis-{ordinal}"));
    ended.reports(1, &[&deletes[0], &deletes[1], "1 object would change, 0 would not"]);
    let sent = sent(&requests);
    let position = |of: &str| sent.iter().position(|request| request == of);
    let [owner, first, second] =
        ["get redis redis", "delete pods redis-2", "delete pods redis-1"].map(position);
    assert!(owner == Some(0) && first.is_some() && first < second, "{sent:?}");
}

#[apply(both_beds)]
async fn deletions_would_release_their_objects() {
    let scene = converged("dry-gone").await;
    for kind in ["Redis", "WebApp"] {
        scene.unmake(kind, &kind.to_lowercase(), Default::default()).await;
    }
    let (ended, _) = dry_run(&scene, &["--controllers=redis,webapp"]).await;
    let ns = &scene.namespace;
    let pod = format!("would delete Pod {ns}/redis-0");
    ended.reports(
        1,
        &[&pod, "would call task \"announce\" (pre_delete)", "2 objects would change, 0 would not"],
    );
}

#[apply(both_beds_with_kubectl)]
async fn pending_tasks_are_not_called() {
    let scene = Scene::on(Bed::shared().await, "dry-tasks").await;
    let outside = Outside::start().await;
    let file = tasks_file(&outside);
    let tasks = format!("--webapp-tasks={}", file.path().display());
    let flags = [tasks.as_str(), "--controllers=webapp"];
    scene.make("WebApp", "web", json!({"version": "1.27", "replicas": 1})).await;
    let (ended, _) = dry_run(&scene, &flags).await;
    ended.reports(1, &["would call task \"first\" (pre_create)", "and what follows from it"]);

    // An operator that dies after it has recorded the start of a hook leaves the call to the next process.
    outside.hold_after(0);
    let mut scene = scene;
    scene.start_operator_with(&flags);
    outside.until_held().await;
    scene.take_operator().kill();
    let effects = outside.effects();
    let (ended, _) = dry_run(&scene, &flags).await;
    ended.reports(1, &["would call task \"first\" (pre_create)", "1 object would change, 0 would not"]);
    assert_eq!((outside.effects(), outside.repeats()), (effects, 0), "no hook is called");
}

#[apply(both_beds)]
async fn refusal_by_the_server_is_named() {
    let mut scene = Scene::on(Bed::shared().await, "dry-refused").await;
    scene.make("ResourceQuota", "none", json!({"hard": {"count/deployments.apps": "0"}})).await;
    scene.until("ResourceQuota", "none", "is in effect", |quota| quota["status"]["hard"].is_object()).await;
    scene.create_foo("web", "web", 1).await;
    let (ended, _) = dry_run(&scene, &[]).await;
    ended.reports(2, &["0 objects would change, 0 would not, 1 failed"]);
    let refusal = format!("could not create Deployment {}/web: 403 Forbidden: ", scene.namespace);
    assert!(ended.report.contains(&refusal) && ended.report.contains("exceeded quota"), "{}", ended.report);

    // Once the operator has met and reported the refusal, it is nothing new.
    scene.start_operator();
    scene.reason("web", "ChildRefused").await;
    scene.event("web", "ChildRefused").await;
    assert_eq!(scene.take_operator().terminate().await.code(), Some(0));
    let (ended, _) = dry_run(&scene, &[]).await;
    ended.reports(
        0,
        &["nothing new: the status of the object stays as it is", "nothing would change (1 object)"],
    );
    assert!(ended.report.contains(&refusal), "{}", ended.report);
}

#[apply(both_beds)]
async fn missing_permission_is_named_with_its_kind() {
    let scene = Scene::on(Bed::own(true).await, "dry-forbidden").await;
    scene.bed.grant_foos(&scene.user(), &scene.namespace).await;
    let namespace = format!("--namespace={}", scene.namespace);
    let flags = [namespace.as_str(), "--controllers=foo", "--dry-run-timeout=10s"];
    let ended = scene.bed.dry_run(&scene.user(), false, &flags).await;
    assert_eq!((ended.code, ended.report.as_str()), (Some(2), ""), "{ended:#?}");
    let cause = "these kinds could not be listed within 10s: deployments.apps (403 Forbidden)";
    assert!(ended.error.contains(cause), "{}", ended.error);
}

#[apply(both_beds)]
async fn running_operator_is_not_disturbed() {
    let mut scene = Scene::on(Bed::shared().await, "dry-beside").await;
    scene.start_operator_with(&[
        "--leader-elect",
        &format!("--leader-elect-resource-namespace={}", scene.namespace),
    ]);
    scene.ready_foo("web", 1).await;
    scene.rest_for_a_while().await;
    let user = format!("{}-dry", scene.user());
    let namespace = format!("--namespace={}", scene.namespace);
    let ended = scene.bed.dry_run(&user, true, &[&namespace]).await;
    ended.reports(0, &["nothing would change (1 object)"]);
    assert_eq!(scene.bed.ledger(&user).iter().filter(|request| request.is_write()).count(), 0);
    scene.patch_foo("web", json!({"spec": {"replicas": 2}})).await;
    wait_until("the operator still leads", async || {
        let deployment = scene.deployments.get("web").await.unwrap();
        let replicas = deployment.spec.replicas;
        if replicas == Some(2) { Ok(()) } else { Err(replicas) }
    })
    .await;
}

/// Why a delete is marked in its body: a server ignores the query of a delete that has one.
#[apply(both_beds)]
async fn body_of_a_delete_overrides_its_query() {
    let scene = Scene::on(Bed::shared().await, "dry-delete").await;
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/one?dryRun=All", scene.namespace);
    for (body, is_left) in [
        (json!({}), true),
        (json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}), true),
        (json!({"kind": "DeleteOptions", "apiVersion": "v1"}), false),
    ] {
        scene.make_whole("ServiceAccount", json!({"metadata": {"name": "one"}})).await;
        let bytes = if body == json!({}) { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::delete(&path).header("content-type", "application/json").body(bytes);
        scene.bed.client().request_text(request.unwrap()).await.unwrap();
        assert_eq!(scene.look("ServiceAccount", "one").await.is_some(), is_left, "{body}");
        if is_left {
            scene.unmake("ServiceAccount", "one", Default::default()).await;
        }
    }
}

#[apply(no_bed)]
#[why = "it tests the program without a server"]
async fn dry_run_without_a_server_exits_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = crate::program::unreachable_server(&dir);
    let flag = format!("--kubeconfig={}", kubeconfig.display());
    let output = run_to_end(&["run", "--dry-run", &flag, "--controllers=foo", "--dry-run-timeout=2s"], &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{text}");
    assert!(
        text.contains("within 2s:") && text.contains("foos.samplecontroller.k8s.io (no response)"),
        "{text}"
    );
    assert!(!text.contains("secret-s3cret"), "{text}");
    let output = run_to_end(&["run", "--output=json", &flag], &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("--dry-run"), "a report is for dry runs only: {text}");
}
