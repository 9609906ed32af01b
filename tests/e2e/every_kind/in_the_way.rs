//! Children that cannot be created: a taken name, a quota.

use futures_util::future::join_all;
use kube_client::api::{DeleteParams, PostParams};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{KINDS, Kind, controller, count, for_every_kind, is_about, uid};
use crate::support::{Scene, both_beds, condition_of, condition_status, wait_until};

/// Returns the spec of a foreign object of a child kind.
pub(super) fn foreign_spec(kind: &str) -> Value {
    let containers = json!([{"name": "theirs", "image": "theirs"}]);
    match kind {
        "Deployment" => json!({"replicas": 1, "selector": {"matchLabels": {"app": "theirs"}},
            "template": {"metadata": {"labels": {"app": "theirs"}}, "spec": {"containers": containers}}}),
        "Pod" => json!({"containers": containers}),
        "Service" => json!({"ports": [{"port": 1}]}),
        "Ingress" => json!({"defaultBackend": {"service": {"name": "theirs", "port": {"number": 1}}}}),
        kind => panic!("{kind} is not a child kind"),
    }
}

#[apply(both_beds)]
async fn foreign_object_is_untouched_and_blocks_until_deleted() {
    let scene = Scene::new("every-foreign").await;
    // The server rejects Pods until the service account exists.
    wait_until("the default service account exists", async || {
        scene.look("ServiceAccount", "default").await.ok_or("not found")
    })
    .await;
    // Take the name of each child of each kind in turn.
    let cases = KINDS.iter().flat_map(|kind| (0..kind.children.len()).map(move |at| (kind, at)));
    join_all(cases.map(|(kind, at)| check_taken_name(&scene, kind, at))).await;
}

async fn check_taken_name(scene: &Scene, kind: &Kind, at: usize) {
    let name = format!("{}-{at}", kind.object());
    let (child_kind, suffix) = kind.children[at];
    let child = format!("{name}{suffix}");
    let theirs = scene.make(child_kind, &child, foreign_spec(child_kind)).await;
    kind.make(scene, &name).await;
    let object = scene.until_reason(kind.name, &name, "ResourceExists").await;
    let conditions = ["Ready", "Reconciling", "Stalled"].map(|type_| condition_status(&object, type_));
    assert_eq!(conditions, ["False", "absent", "True"], "{name}");
    let words = format!("Resource \"{child}\" already exists and is not managed by {}", kind.name);
    assert_eq!(condition_of(&object, "Ready").unwrap()["message"], words);
    assert_eq!(scene.until_event(kind.name, &name, "ErrResourceExists").await, words);
    let now = scene.look(child_kind, &child).await.unwrap();
    for field in ["uid", "labels", "annotations", "ownerReferences", "finalizers"] {
        let keep = |object: &Value| {
            let mut found = object["metadata"][field].clone();
            if let Some(annotations) = found.as_object_mut() {
                // The Deployment controller sets this annotation.
                annotations.remove("deployment.kubernetes.io/revision");
            }
            if found == json!({}) { Value::Null } else { found }
        };
        assert_eq!(keep(&now), keep(&theirs), "{child_kind} {child}: {field}");
    }
    let writes = scene.writes().into_iter();
    let touched: Vec<_> = writes
        .filter(|write| write.name == child && write.verb != "create" && !is_about(write, kind))
        .collect();
    assert_eq!(touched, [], "{child_kind} {child}");
    scene.unmake(child_kind, &child, DeleteParams::background()).await;
    // The operator does not watch objects without its label, so it notices the deletion within 30 s.
    let object = scene.until_ready(kind.name, &name).await;
    let now = scene.look(child_kind, &child).await.unwrap();
    assert_eq!(controller(&now).unwrap()["uid"], object["metadata"]["uid"], "{child_kind} {child}");
    assert_eq!(count(scene, kind.name, &name, "ErrResourceExists").await, 1, "{name}");
}

/// Two names are taken; the object meets the second one after the first is resolved.
#[apply(both_beds)]
async fn second_name_conflict_is_reported_like_the_first() {
    let scene = Scene::new("every-second").await;
    wait_until("the default service account exists", async || {
        scene.look("ServiceAccount", "default").await.ok_or("not found")
    })
    .await;
    for (kind, child) in [("Deployment", "a"), ("Deployment", "b"), ("Pod", "cache-0"), ("Pod", "cache-1")] {
        scene.make(kind, child, foreign_spec(kind)).await;
    }
    let foo = async {
        scene.make("Foo", "web", json!({"deploymentName": "a", "replicas": 1})).await;
        until_conflict_event(&scene, "Foo", "web", "a").await;
        scene.change("Foo", "web", json!({"spec": {"deploymentName": "b"}})).await;
        until_conflict_event(&scene, "Foo", "web", "b").await;
        scene.unmake("Deployment", "b", DeleteParams::background()).await;
        scene.until_ready("Foo", "web").await;
        assert_eq!(count(&scene, "Foo", "web", "ErrResourceExists").await, 2);
    };
    let redis = async {
        scene.make("Redis", "cache", json!({"replicas": 2, "port": 6379, "image": "redis:7.4"})).await;
        for child in ["cache-0", "cache-1"] {
            until_conflict_event(&scene, "Redis", "cache", child).await;
            scene.unmake("Pod", child, DeleteParams::background()).await;
        }
        scene.until_ready("Redis", "cache").await;
        assert_eq!(count(&scene, "Redis", "cache", "ErrResourceExists").await, 2);
    };
    tokio::join!(foo, redis);
}

/// Waits for the event that reports that this child's name is taken.
async fn until_conflict_event(scene: &Scene, kind: &str, name: &str, child: &str) {
    let words = format!("Resource \"{child}\" already exists and is not managed by {kind}");
    scene.until_note(kind, name, "ErrResourceExists", &words).await;
}

#[apply(both_beds)]
async fn same_named_kinds_share_no_children_or_pods() {
    let scene = Scene::new("every-pair").await;
    let of_deployments: Vec<&Kind> = KINDS.iter().filter(|kind| kind.children[0].0 == "Deployment").collect();
    let pairs = of_deployments.iter().zip(of_deployments.iter().cycle().skip(1));
    join_all(pairs.enumerate().map(|(at, (first, second))| {
        let scene = &scene;
        async move { pair(scene, first, second, &format!("web{at}")).await }
    }))
    .await;
}

async fn pair(scene: &Scene, first: &Kind, second: &Kind, name: &str) {
    let redis = KINDS.iter().find(|kind| kind.name == "Redis").unwrap();
    let owner = first.ready(scene, name).await;
    redis.ready(scene, name).await;
    let theirs = redis.children(scene, name).await;
    let before = scene.look("Deployment", name).await.unwrap();

    second.make(scene, name).await;
    scene.until_reason(second.name, name, "ResourceExists").await;
    let words = format!("Resource \"{name}\" already exists and is not managed by {}", second.name);
    assert_eq!(scene.until_event(second.name, name, "ErrResourceExists").await, words);
    let now = scene.look("Deployment", name).await.unwrap();
    assert_eq!((uid(&now), &now["spec"]), (uid(&before), &before["spec"]), "{name}");
    assert_eq!(controller(&now).unwrap()["uid"], owner["metadata"]["uid"], "{name}");
    assert_eq!(first.pods(scene, name).await.len(), 2, "{name}");
    assert_eq!(second.pods(scene, name).await, Vec::<Value>::new(), "{name}");

    scene.unmake(first.name, name, DeleteParams::background()).await;
    let owner = scene.until_ready(second.name, name).await;
    for (child_kind, child, found) in second.children(scene, name).await {
        assert_eq!(controller(&found).unwrap()["uid"], owner["metadata"]["uid"], "{child_kind} {child}");
    }
    let mine: Vec<Value> = second.pods(scene, name).await;
    assert!(mine.iter().all(|pod| controller(pod).unwrap()["kind"] == "ReplicaSet"), "{mine:?}");
    let mut pods: Vec<String> = redis.pods(scene, name).await.iter().map(|pod| uid(pod).to_owned()).collect();
    let mut expected: Vec<String> = theirs.iter().map(|(_, _, pod)| uid(pod).to_owned()).collect();
    pods.sort();
    expected.sort();
    assert_eq!(pods, expected, "Redis {name} keeps its own Pods");
}

/// Creates a quota that refuses all Pods and Deployments.
async fn forbid(scene: &Scene) {
    let hard = json!({"count/deployments.apps": "0", "pods": "0"});
    scene.make("ResourceQuota", "none", json!({"hard": hard})).await;
    scene.until("ResourceQuota", "none", "is in effect", |quota| quota["status"]["hard"].is_object()).await;
}

/// Deletes the quota and waits until the server no longer enforces it.
async fn permit(scene: &Scene) {
    scene.unmake("ResourceQuota", "none", DeleteParams::default()).await;
    scene.until_gone("ResourceQuota", "none").await;
    wait_until("a Deployment would be accepted", async || try_deployment(scene).await).await;
}

/// Checks with a dry run whether the server accepts a Deployment.
async fn try_deployment(scene: &Scene) -> Result<(), String> {
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "probe"},
        "spec": foreign_spec("Deployment")});
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let object = serde_json::from_value(object).expect("the JSON is an object");
    scene.of("Deployment").create(&dry_run, &object).await.map(drop).map_err(|error| error.to_string())
}

/// Creates one object of each kind, whose child the quota refuses, and checks conditions and event.
async fn create_refused_objects(scene: &Scene) {
    for_every_kind(async |kind| {
        let name = kind.object();
        kind.make(scene, &name).await;
        let object = scene.until_reason(kind.name, &name, "ChildRefused").await;
        let conditions = ["Ready", "Reconciling", "Stalled"].map(|type_| condition_status(&object, type_));
        assert_eq!(conditions, ["False", "absent", "True"], "{name}");
        let message = condition_of(&object, "Ready").unwrap()["message"].as_str().unwrap();
        let child = format!("{} \"{name}{}\"", kind.children[0].0, kind.children[0].1);
        assert!(message.starts_with(&format!("The API server refuses {child}: ")), "{message}");
        assert!(message.contains("exceeded quota: none"), "{message}");
        assert_eq!(scene.until_event(kind.name, &name, "ChildRefused").await, message);
    })
    .await;
}

#[apply(both_beds)]
async fn refused_child_is_reported_once_and_retried() {
    let scene = Scene::new("every-refused").await;
    forbid(&scene).await;
    create_refused_objects(&scene).await;
    for_every_kind(async |kind| scene.tried_again(kind.name, &kind.object()).await).await;
    permit(&scene).await;
    for_every_kind(async |kind| {
        let name = kind.object();
        scene.tried_again(kind.name, &name).await;
        scene.until_ready(kind.name, &name).await;
        assert_eq!(count(&scene, kind.name, &name, "ChildRefused").await, 1, "{name}");
    })
    .await;
}

#[apply(both_beds)]
async fn reconcile_at_triggers_an_immediate_retry() {
    let scene = Scene::new("every-at-once").await;
    forbid(&scene).await;
    create_refused_objects(&scene).await;
    permit(&scene).await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let asked = tokio::time::Instant::now();
        let note = json!({"metadata": {"annotations": {"windlass.dev/reconcile-at": "now"}}});
        scene.change(kind.name, &name, note).await;
        let object = scene.until_ready(kind.name, &name).await;
        assert!(asked.elapsed().as_secs() < 100, "{name}: retried before the two-minute backoff");
        assert_eq!(object["metadata"]["generation"], 1, "{name}: the spec has not changed");
    })
    .await;
}

#[apply(both_beds)]
async fn a_new_spec_is_tried_at_once() {
    let scene = Scene::new("every-new-spec").await;
    forbid(&scene).await;
    create_refused_objects(&scene).await;
    permit(&scene).await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let asked = tokio::time::Instant::now();
        scene.change(kind.name, &name, json!({"spec": {"replicas": 3}})).await;
        scene.until_ready(kind.name, &name).await;
        assert!(asked.elapsed().as_secs() < 100, "{name}: retried before the two-minute backoff");
    })
    .await;
}

/// The Deployment's status changes with each Pod of a rollout, which triggers a sync of the Myapp.
#[apply(both_beds)]
async fn refused_child_is_not_retried_when_siblings_change() {
    let scene = Scene::new("every-seldom").await;
    scene.make("ResourceQuota", "none", json!({"hard": {"count/services": "0"}})).await;
    scene.until("ResourceQuota", "none", "is in effect", |quota| quota["status"]["hard"].is_object()).await;
    let kind = KINDS.iter().find(|kind| kind.name == "Myapp").unwrap();
    kind.make(&scene, "web").await;
    scene.until_reason("Myapp", "web", "ChildRefused").await;
    scene
        .until("Deployment", "web", "runs", |deployment| deployment["status"]["availableReplicas"] == 2)
        .await;
    scene.until("Myapp", "web", "counts the ready Pods", |myapp| myapp["status"]["readyReplicas"] == 2).await;
    scene.rest_for_a_while().await;
    let tries =
        scene.writes().iter().filter(|write| write.verb == "create" && write.resource == "services").count();
    assert_eq!(tries, 1);
}
