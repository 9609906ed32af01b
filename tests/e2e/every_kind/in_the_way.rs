//! What stands in the way of a child: a name that is taken, a quota.

use futures_util::future::join_all;
use kube_client::api::{DeleteParams, PostParams};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::{KINDS, Kind, controller, count, for_every_kind, is_about, uid};
use crate::support::{Scene, both_beds, condition_of, wait_until};

/// What somebody else's object asks for.
fn spec_of_theirs(kind: &str) -> Value {
    let containers = json!([{"name": "theirs", "image": "theirs"}]);
    match kind {
        "Deployment" => json!({"replicas": 1, "selector": {"matchLabels": {"app": "theirs"}},
            "template": {"metadata": {"labels": {"app": "theirs"}}, "spec": {"containers": containers}}}),
        "Pod" => json!({"containers": containers}),
        "Service" => json!({"ports": [{"port": 1}]}),
        "Ingress" => json!({"defaultBackend": {"service": {"name": "theirs", "port": {"number": 1}}}}),
        kind => panic!("{kind} is no kind of a child"),
    }
}

#[apply(both_beds)]
async fn somebody_elses_object_is_left_alone_and_it_heals_when_that_goes() {
    let scene = Scene::new("every-foreign").await;
    // Without it the server takes no Pods.
    wait_until("the account of the namespace", async || {
        scene.look("ServiceAccount", "default").await.ok_or("not there")
    })
    .await;
    // Each child of each kind is once in the way.
    let cases = KINDS.iter().flat_map(|kind| (0..kind.children.len()).map(move |at| (kind, at)));
    join_all(cases.map(|(kind, at)| one_is_in_the_way(&scene, kind, at))).await;
}

async fn one_is_in_the_way(scene: &Scene, kind: &Kind, at: usize) {
    let name = format!("{}-{at}", kind.object());
    let (child_kind, suffix) = kind.children[at];
    let child = format!("{name}{suffix}");
    let theirs = scene.make(child_kind, &child, spec_of_theirs(child_kind)).await;
    kind.make(scene, &name).await;
    let object = scene.until_reason(kind.name, &name, "ResourceExists").await;
    for (type_, status) in [("Ready", "False"), ("Reconciling", "False"), ("Stalled", "True")] {
        assert_eq!(condition_of(&object, type_).unwrap()["status"], status, "{name}: {type_}");
    }
    let words = format!("Resource \"{child}\" already exists and is not managed by {}", kind.name);
    assert_eq!(condition_of(&object, "Ready").unwrap()["message"], words);
    assert_eq!(scene.until_event(kind.name, &name, "ErrResourceExists").await, words);
    let now = scene.look(child_kind, &child).await.unwrap();
    for field in ["uid", "labels", "annotations", "ownerReferences", "finalizers"] {
        let keep = |object: &Value| {
            let mut found = object["metadata"][field].clone();
            if let Some(annotations) = found.as_object_mut() {
                // The Deployment controller's.
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
    // What has no label of ours is not watched, so its end is noticed within 30 s.
    let object = scene.until_ready(kind.name, &name).await;
    let now = scene.look(child_kind, &child).await.unwrap();
    assert_eq!(controller(&now).unwrap()["uid"], object["metadata"]["uid"], "{child_kind} {child}");
    assert_eq!(count(scene, kind.name, &name, "ErrResourceExists").await, 1, "{name}");
}

/// Two names that are taken, of which an object meets the second when it is rid of the first.
#[apply(both_beds)]
async fn a_second_obstacle_is_reported_of_as_the_first_was() {
    let scene = Scene::new("every-second").await;
    wait_until("the account of the namespace", async || {
        scene.look("ServiceAccount", "default").await.ok_or("not there")
    })
    .await;
    for (kind, child) in [("Deployment", "a"), ("Deployment", "b"), ("Pod", "cache-0"), ("Pod", "cache-1")] {
        scene.make(kind, child, spec_of_theirs(kind)).await;
    }
    let foo = async {
        scene.make("Foo", "web", json!({"deploymentName": "a", "replicas": 1})).await;
        until_told(&scene, "Foo", "web", "a").await;
        scene.change("Foo", "web", json!({"spec": {"deploymentName": "b"}})).await;
        until_told(&scene, "Foo", "web", "b").await;
        scene.unmake("Deployment", "b", DeleteParams::background()).await;
        scene.until_ready("Foo", "web").await;
        assert_eq!(count(&scene, "Foo", "web", "ErrResourceExists").await, 2);
    };
    let redis = async {
        scene.make("Redis", "cache", json!({"replicas": 2, "port": 6379, "image": "redis:7.4"})).await;
        for child in ["cache-0", "cache-1"] {
            until_told(&scene, "Redis", "cache", child).await;
            scene.unmake("Pod", child, DeleteParams::background()).await;
        }
        scene.until_ready("Redis", "cache").await;
        assert_eq!(count(&scene, "Redis", "cache", "ErrResourceExists").await, 2);
    };
    tokio::join!(foo, redis);
}

/// Waits for the event that says that the name of this child is taken.
async fn until_told(scene: &Scene, kind: &str, name: &str, child: &str) {
    let words = format!("Resource \"{child}\" already exists and is not managed by {kind}");
    scene.until_note(kind, name, "ErrResourceExists", &words).await;
}

#[apply(both_beds)]
async fn two_kinds_of_one_name_share_neither_children_nor_pods() {
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
    assert_eq!(pods, expected, "the Pods of Redis {name} are its own, and have stayed");
}

/// Takes all Pods and Deployments of a namespace away, as a quota.
async fn forbid(scene: &Scene) {
    let hard = json!({"count/deployments.apps": "0", "pods": "0"});
    scene.make("ResourceQuota", "none", json!({"hard": hard})).await;
    scene.until("ResourceQuota", "none", "counts", |quota| quota["status"]["hard"].is_object()).await;
}

/// Takes the quota away, and waits until no server counts by it any more.
async fn permit(scene: &Scene) {
    scene.unmake("ResourceQuota", "none", DeleteParams::default()).await;
    scene.until_gone("ResourceQuota", "none").await;
    wait_until("a Deployment would be taken", async || would_be_taken(scene).await).await;
}

/// Asks whether a Deployment would be taken, and makes none.
async fn would_be_taken(scene: &Scene) -> Result<(), String> {
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "probe"},
        "spec": spec_of_theirs("Deployment")});
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let object = serde_json::from_value(object).expect("it is an object");
    scene.of("Deployment").create(&dry_run, &object).await.map(drop).map_err(|error| error.to_string())
}

async fn all_are_refused(scene: &Scene) {
    for_every_kind(async |kind| {
        let name = kind.object();
        kind.make(scene, &name).await;
        let object = scene.until_reason(kind.name, &name, "ChildRefused").await;
        for (type_, status) in [("Ready", "False"), ("Reconciling", "False"), ("Stalled", "True")] {
            assert_eq!(condition_of(&object, type_).unwrap()["status"], status, "{name}: {type_}");
        }
        let message = condition_of(&object, "Ready").unwrap()["message"].as_str().unwrap();
        let child = format!("{} \"{name}{}\"", kind.children[0].0, kind.children[0].1);
        assert!(message.starts_with(&format!("The API server refuses {child}: ")), "{message}");
        assert!(message.contains("exceeded quota: none"), "{message}");
        assert_eq!(scene.until_event(kind.name, &name, "ChildRefused").await, message);
    })
    .await;
}

#[apply(both_beds)]
async fn a_refused_child_is_reported_once_and_tried_again() {
    let scene = Scene::new("every-refused").await;
    forbid(&scene).await;
    all_are_refused(&scene).await;
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
async fn reconcile_at_asks_for_a_try_at_once() {
    let scene = Scene::new("every-at-once").await;
    forbid(&scene).await;
    all_are_refused(&scene).await;
    permit(&scene).await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let asked = tokio::time::Instant::now();
        let note = json!({"metadata": {"annotations": {"windlass.dev/reconcile-at": "now"}}});
        scene.change(kind.name, &name, note).await;
        let object = scene.until_ready(kind.name, &name).await;
        assert!(asked.elapsed().as_secs() < 100, "{name}: not after the two minutes of a refusal");
        assert_eq!(object["metadata"]["generation"], 1, "{name}: the spec has not changed");
    })
    .await;
}

#[apply(both_beds)]
async fn a_new_spec_is_tried_at_once() {
    let scene = Scene::new("every-new-spec").await;
    forbid(&scene).await;
    all_are_refused(&scene).await;
    permit(&scene).await;
    for_every_kind(async |kind| {
        let name = kind.object();
        let asked = tokio::time::Instant::now();
        scene.change(kind.name, &name, json!({"spec": {"replicas": 3}})).await;
        scene.until_ready(kind.name, &name).await;
        assert!(asked.elapsed().as_secs() < 100, "{name}: not after the two minutes of a refusal");
    })
    .await;
}

/// Each Pod of a rollout changes the Deployment, and that wakes the Myapp.
#[apply(both_beds)]
async fn a_refused_child_is_not_asked_for_with_each_change_of_another() {
    let scene = Scene::new("every-seldom").await;
    scene.make("ResourceQuota", "none", json!({"hard": {"count/services": "0"}})).await;
    scene.until("ResourceQuota", "none", "counts", |quota| quota["status"]["hard"].is_object()).await;
    let kind = KINDS.iter().find(|kind| kind.name == "Myapp").unwrap();
    kind.make(&scene, "web").await;
    scene.until_reason("Myapp", "web", "ChildRefused").await;
    scene
        .until("Deployment", "web", "runs", |deployment| deployment["status"]["availableReplicas"] == 2)
        .await;
    scene.until("Myapp", "web", "tells of it", |myapp| myapp["status"]["readyReplicas"] == 2).await;
    scene.rest_for_a_while().await;
    let tries =
        scene.writes().iter().filter(|write| write.verb == "create" && write.resource == "services").count();
    assert_eq!(tries, 1);
}
