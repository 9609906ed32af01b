//! Behaviour of WebApp.

mod outside;

use http::StatusCode;
use kube_client::api::{DeleteParams, PropagationPolicy};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

pub(crate) use self::outside::Outside;
use crate::support::{Bed, Scene, both_beds, both_beds_with_kubectl, wait_until};

const FINALIZER: &str = "webapp.jiajunhuang.com/finalizer";

async fn scene(name: &str) -> Scene {
    let scene = Scene::new(name).await;
    scene.make("WebApp", "web", json!({"version": "1.27", "replicas": 2})).await;
    scene.until_ready("WebApp", "web").await;
    scene
}

/// Returns each step's task, phase, last hook and generation.
fn steps(webapp: &Value) -> Vec<(String, String, String, i64)> {
    let text = |step: &Value, field: &str| step[field].as_str().unwrap_or_default().to_owned();
    let steps = webapp["status"]["steps"].as_array().unwrap();
    let step = |step: &Value| {
        (text(step, "name"), text(step, "phase"), text(step, "hook"), step["generation"].as_i64().unwrap())
    };
    steps.iter().map(step).collect()
}

fn all_succeeded(generation: i64) -> Vec<(String, String, String, i64)> {
    let step = |name: &str| (name.to_owned(), "Succeeded".to_owned(), "post_create".to_owned(), generation);
    ["prepare", "workload", "announce"].map(step).into()
}

#[apply(both_beds)]
async fn a_webapp_goes_through_its_tasks() {
    let scene = scene("webapp").await;
    let webapp = scene.look("WebApp", "web").await.unwrap();
    assert_eq!(steps(&webapp), all_succeeded(1));
    for step in webapp["status"]["steps"].as_array().unwrap() {
        assert!(
            step["operationID"].is_string()
                && step["startedAt"].is_string()
                && step["finishedAt"].is_string()
        );
        assert_eq!(step["attempts"], 1);
    }
    assert_eq!(webapp["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(webapp["status"]["availableReplicas"], 2);
    assert_eq!(webapp["status"]["conditions"][0]["phase"], "Succeeded", "as in the source document");
    let deployment = scene.look("Deployment", "web").await.unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:1.27");
    assert_eq!(deployment["metadata"]["ownerReferences"][0]["uid"], webapp["metadata"]["uid"]);
    // The finalizer is stored before the first step starts.
    let writes = scene.writes();
    assert_eq!((writes[0].verb.as_str(), writes[0].resource.as_str()), ("patch", "webapps"));
    let conflicts: Vec<_> = writes.into_iter().filter(|write| write.code == 409).collect();
    assert_eq!(conflicts, [], "a key is not synced before the cache has seen its own writes");
    for task in ["prepare", "workload", "announce"] {
        wait_until(&format!("an event of {task}"), async || {
            let events = scene.events_about("WebApp", "web").await;
            let expected = ("TaskSucceeded".to_owned(), format!("Task {task:?} succeeded"));
            if events.contains(&expected) { Ok(()) } else { Err(events) }
        })
        .await;
    }
}

/// The source document of WebApp runs every step on every event.
#[apply(both_beds)]
async fn new_spec_reruns_tasks_but_label_does_not() {
    let scene = scene("webapp-spec").await;
    let ids = |webapp: &Value| -> Vec<String> {
        let steps = webapp["status"]["steps"].as_array().unwrap();
        steps.iter().map(|step| step["operationID"].as_str().unwrap().to_owned()).collect()
    };
    let before = ids(&scene.look("WebApp", "web").await.unwrap());
    scene.change("WebApp", "web", json!({"metadata": {"labels": {"a": "b"}}})).await;
    scene.change("WebApp", "web", json!({"spec": {"version": "1.28"}})).await;
    let webapp = scene.until_ready("WebApp", "web").await;
    assert_eq!(steps(&webapp), all_succeeded(2));
    assert!(ids(&webapp).iter().all(|id| !before.contains(id)));
    let deployment = scene.look("Deployment", "web").await.unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:1.28");
    scene.change("WebApp", "web", json!({"metadata": {"labels": {"a": "c"}}})).await;
    scene.change("Deployment", "web", json!({"spec": {"replicas": 7}})).await;
    scene.until("Deployment", "web", "is repaired", |d| d["spec"]["replicas"] == 2).await;
    let after = scene.until_ready("WebApp", "web").await;
    assert_eq!(ids(&after), ids(&webapp), "repair runs no task");
}

#[apply(both_beds)]
async fn deleted_webapp_undoes_its_tasks_in_reverse() {
    let scene = scene("webapp-gone").await;
    scene.unmake("WebApp", "web", DeleteParams::background()).await;
    scene.until_gone("WebApp", "web").await;
    scene.until_gone("Deployment", "web").await;
    let expected = ["announce", "workload", "prepare"].map(|task| format!("Task {task:?} was undone"));
    wait_until("each task's undo has an event, last task first", async || {
        let events = scene.events_about("WebApp", "web").await;
        let is_undone = |(reason, note): (String, String)| (reason == "TaskUndone").then_some(note);
        let undone: Vec<String> = events.into_iter().filter_map(is_undone).collect();
        if undone == expected { Ok(()) } else { Err(undone) }
    })
    .await;
}

#[apply(both_beds)]
async fn an_orphaned_webapp_leaves_its_deployment() {
    let scene = scene("webapp-orphan").await;
    let how = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    scene.unmake("WebApp", "web", how).await;
    scene.until_gone("WebApp", "web").await;
    let deployment = scene.look("Deployment", "web").await.unwrap();
    assert!(deployment["metadata"]["deletionTimestamp"].is_null());
    assert!(scene.writes().iter().all(|write| write.verb != "delete"));
}

#[apply(both_beds)]
async fn a_paused_webapp_starts_no_task() {
    let scene = Scene::new("webapp-paused").await;
    let paused = json!({"metadata": {"name": "web", "annotations": {"windlass.dev/paused": "true"}},
        "spec": {"version": "1.27", "replicas": 1}});
    scene.make_whole("WebApp", paused).await;
    let webapp = scene.until_reason("WebApp", "web", "Paused").await;
    assert!(webapp["metadata"]["finalizers"].is_null());
    assert!(steps(&webapp).iter().all(|(_, phase, ..)| phase == "Pending"));
    scene.change("WebApp", "web", json!({"metadata": {"annotations": {"windlass.dev/paused": null}}})).await;
    scene.until_ready("WebApp", "web").await;
}

const CREATION: [&str; 3] = ["pre_create", "create", "post_create"];
const DELETION: [&str; 3] = ["pre_delete", "delete", "post_delete"];

fn of(tasks: [&str; 2], hooks: [&str; 3], generation: i64) -> Vec<String> {
    tasks.iter().flat_map(|task| hooks.map(|hook| format!("{task}.{hook}@{generation}"))).collect()
}

/// Writes a tasks file with an HTTP task before and after the Deployment.
pub(crate) fn tasks_file(outside: &Outside) -> NamedTempFile {
    let task = |name: &str| json!({"name": name, "type": "http", "url": outside.url(), "timeout": "30s"});
    let tasks = json!({"tasks": [task("first"), {"name": "workload", "type": "deployment"}, task("last")]});
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), tasks.to_string()).unwrap();
    file
}

/// Creates a WebApp whose tasks call an HTTP endpoint, which holds back its answer to the request after `hold` others.
/// Also returns the tasks file, which the operator reads at startup.
async fn scene_with_outside(name: &str, hold: Option<usize>) -> (Scene, Outside, NamedTempFile) {
    let mut scene = Scene::on(Bed::shared().await, name).await;
    let outside = Outside::start().await;
    let file = tasks_file(&outside);
    if let Some(more) = hold {
        outside.hold_after(more);
    }
    scene.start_operator_with(&[&format!("--webapp-tasks={}", file.path().display())]);
    scene.make("WebApp", "web", json!({"version": "1.27", "replicas": 1})).await;
    (scene, outside, file)
}

/// Requests a retry of the failed task.
async fn request_retry(scene: &Scene) {
    let annotations = json!({"windlass.dev/reconcile-at": "now"});
    scene.change("WebApp", "web", json!({"metadata": {"annotations": annotations}})).await;
}

#[apply(both_beds_with_kubectl)]
async fn new_spec_waits_for_the_running_hook() {
    let (scene, outside, _file) = scene_with_outside("webapp-mid-run", Some(1)).await;
    outside.until_held().await;
    scene.change("WebApp", "web", json!({"spec": {"version": "1.28"}})).await;
    scene.until("WebApp", "web", "observes the new spec", |w| w["status"]["observedGeneration"] == 2).await;
    let mut expected = vec!["first.pre_create@1".to_owned(), "first.create@1".to_owned()];
    assert_eq!(outside.effects(), expected, "no other hook runs meanwhile");
    outside.release();
    scene.until_ready("WebApp", "web").await;
    expected.extend(of(["first", "last"], CREATION, 2));
    assert_eq!(outside.effects(), expected);
    let events = scene.events_about("WebApp", "web").await;
    assert!(events.iter().all(|(reason, _)| reason != "TaskFailed"), "{events:?}");
}

#[apply(both_beds_with_kubectl)]
async fn deletion_during_creation_undoes_only_started_tasks() {
    let (scene, outside, _file) = scene_with_outside("webapp-mid-deletion", Some(1)).await;
    outside.until_held().await;
    scene.unmake("WebApp", "web", DeleteParams::background()).await;
    scene.until_reason("WebApp", "web", "Deleting").await;
    let mut expected = vec!["first.pre_create@1".to_owned(), "first.create@1".to_owned()];
    assert_eq!(outside.effects(), expected, "nothing is undone while the hook runs");
    outside.release();
    scene.until_gone("WebApp", "web").await;
    expected.extend(DELETION.map(|hook| format!("first.{hook}@2")));
    assert_eq!(outside.effects(), expected);
    assert!(scene.look("Deployment", "web").await.is_none());
}

#[apply(both_beds_with_kubectl)]
async fn permanently_failed_task_waits_for_a_user() {
    let (scene, outside, _file) = scene_with_outside("webapp-for-good", Some(0)).await;
    outside.until_held().await;
    outside.refuse("first.create", StatusCode::NOT_FOUND);
    outside.release();
    let webapp = scene.until_reason("WebApp", "web", "TaskFailed").await;
    let step = &webapp["status"]["steps"][0];
    assert_eq!(
        (&step["phase"], &step["hook"], &step["permanent"]),
        (&json!("Failed"), &json!("create"), &json!(true))
    );
    let note = until_failure(&scene).await;
    assert!(note.contains("404") && note.contains("windlass.dev/reconcile-at"), "{note}");
    outside.heal();
    request_retry(&scene).await;
    scene.until_ready("WebApp", "web").await;
    assert_eq!(outside.effects(), of(["first", "last"], CREATION, 1));
}

#[apply(both_beds_with_kubectl)]
async fn permanently_failed_undo_keeps_the_finalizer() {
    let (scene, outside, _file) = scene_with_outside("webapp-undo", None).await;
    scene.until_ready("WebApp", "web").await;
    outside.refuse("last.delete", StatusCode::FORBIDDEN);
    scene.unmake("WebApp", "web", DeleteParams::background()).await;
    let webapp = scene.until_reason("WebApp", "web", "UndoFailed").await;
    assert_eq!(webapp["metadata"]["finalizers"], json!([FINALIZER]));
    let note = until_failure(&scene).await;
    assert!(note.contains("403") && note.contains(FINALIZER), "{note}");
    outside.heal();
    request_retry(&scene).await;
    scene.until_gone("WebApp", "web").await;
    let undone = of(["last", "first"], DELETION, 2);
    assert_eq!(outside.effects()[6..], undone);
}

/// Waits for the TaskFailed event and returns its note.
async fn until_failure(scene: &Scene) -> String {
    wait_until("the failure has an event", async || {
        let events = scene.events_about("WebApp", "web").await;
        let failure = events.iter().find(|(reason, _)| reason == "TaskFailed");
        failure.map(|(_, note)| note.clone()).ok_or(events)
    })
    .await
}

/// Despite kills and lost answers, the endpoint performs each operation once and in order.
#[apply(both_beds_with_kubectl)]
async fn each_operation_takes_effect_once_across_kills() {
    let mut scene = Scene::on(Bed::shared().await, "webapp-kills").await;
    let outside = Outside::start_with_losses(scene.namespace.len() as u64).await;
    let file = tasks_file(&outside);
    let flag = format!("--webapp-tasks={}", file.path().display());
    // Kills the operator while its held request has taken effect but is not answered.
    let kill = async |scene: &mut Scene| {
        outside.until_held().await;
        scene.take_operator().kill();
    };
    outside.hold_after(1);
    scene.start_operator_with(&[&flag]);
    scene.make("WebApp", "web", json!({"version": "1.27", "replicas": 1})).await;
    for more in [1, 2] {
        kill(&mut scene).await;
        outside.hold_after(more);
        scene.start_operator_with(&[&flag]);
    }
    kill(&mut scene).await;
    scene.start_operator_with(&[&flag]);
    scene.until_ready("WebApp", "web").await;
    let mut expected = of(["first", "last"], CREATION, 1);
    assert_eq!(outside.effects(), expected);

    outside.hold_after(3);
    scene.change("WebApp", "web", json!({"spec": {"version": "1.28"}})).await;
    kill(&mut scene).await;
    scene.start_operator_with(&[&flag]);
    scene.until_ready("WebApp", "web").await;
    expected.extend(of(["first", "last"], CREATION, 2));
    assert_eq!(outside.effects(), expected);

    outside.hold_after(2);
    scene.unmake("WebApp", "web", DeleteParams::background()).await;
    kill(&mut scene).await;
    scene.start_operator_with(&[&flag]);
    scene.until_gone("WebApp", "web").await;
    expected.extend(of(["last", "first"], DELETION, 3));
    assert_eq!(outside.effects(), expected);
    assert!(outside.repeats() > 0, "lost answers cause repeated requests");
}
