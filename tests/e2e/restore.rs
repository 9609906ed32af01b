//! A restored backup: objects that come back with new uids, with and without their children and statuses.

use kube_client::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::dry_run::{converged, one_of_each};
use crate::support::{Scene, both_beds, condition_of, wait_until};

/// A finalizer that only the cases remove, which keeps restored children until the operator has seen them.
const HOLD: &str = "windlass.dev/hold-for-the-test";

/// The kinds of children.
const CHILDREN: [&str; 3] = ["Deployment", "Service", "Pod"];

/// What a backup holds: the custom resources and their children, each with its kind.
struct Backup {
    owners: Vec<(&'static str, Value)>,
    children: Vec<(&'static str, Value)>,
}

/// What becomes of the owner references of restored children.
#[derive(Clone, Copy, PartialEq, Eq)]
enum References {
    /// They name uids that do not exist any more.
    Kept,
    /// The restore drops them, as Velero does.
    Dropped,
}

impl Backup {
    /// Takes a backup of a converged object of each kind, and then loses all of them; no operator runs.
    async fn of_lost(name: &str) -> (Scene, Self) {
        let scene = converged(name).await;
        scene.foreign_deployment("bystander", json!({})).await;
        let mut backup = Self { owners: Vec::new(), children: owned(&scene).await };
        for (kind, _) in one_of_each() {
            let name = kind.to_lowercase();
            backup.owners.push((kind, scene.look(kind, &name).await.unwrap()));
            scene.change(kind, &name, json!({"metadata": {"finalizers": null}})).await;
            scene.unmake(kind, &name, DeleteParams::background()).await;
        }
        for (kind, child) in &backup.children {
            scene.until_gone(kind, text(child, "name")).await;
        }
        (scene, backup)
    }

    /// Restores the custom resources: with their finalizers, without their statuses.
    async fn restore_owners(&self, scene: &Scene) {
        for (kind, owner) in &self.owners {
            scene.make_whole(kind, restored(owner)).await;
        }
    }

    /// Restores the children, with a finalizer.
    async fn restore_children(&self, scene: &Scene, references: References) {
        for (kind, child) in &self.children {
            let mut again = restored(child);
            again["metadata"]["finalizers"] = json!([HOLD]);
            if references == References::Kept {
                again["metadata"]["ownerReferences"] = child["metadata"]["ownerReferences"].clone();
            }
            scene.make_whole(kind, again).await;
        }
    }

    /// Lets the restored children go that wait for it.
    async fn release_children(&self, scene: &Scene) {
        for (kind, child) in &self.children {
            scene.change(kind, text(child, "name"), json!({"metadata": {"finalizers": null}})).await;
        }
    }

    /// Waits until each object is Ready and has the children that it had, and nobody else has changed.
    async fn is_back(&self, scene: &Scene) {
        let mut uids = Vec::new();
        for (kind, old) in &self.owners {
            let new = scene.until_ready(kind, text(old, "name")).await;
            assert_ne!(text(&new, "uid"), text(old, "uid"), "{kind}");
            uids.push(new["metadata"]["uid"].clone());
        }
        wait_until("the children are those of the backup", async || {
            let names = |children: &[(&'static str, Value)]| -> Vec<(&'static str, String)> {
                children.iter().map(|(kind, child)| (*kind, text(child, "name").to_owned())).collect()
            };
            let now = owned(scene).await;
            let are_ours = now.iter().all(|(_, child)| {
                uids.contains(&child["metadata"]["ownerReferences"][0]["uid"])
                    && child["metadata"]["deletionTimestamp"].is_null()
            });
            let (now, then) = (names(&now), names(&self.children));
            if are_ours && now == then { Ok(()) } else { Err((now, are_ours)) }
        })
        .await;
        let bystander = scene.look("Deployment", "bystander").await.unwrap();
        assert_eq!(bystander["metadata"]["generation"], 1);
        assert!(bystander["metadata"]["labels"].is_null());
        let touched = scene.writes().into_iter().filter(|write| write.name == "bystander");
        assert_eq!(touched.collect::<Vec<_>>(), []);
    }
}

/// Returns the children of custom resources, sorted by kind and name.
async fn owned(scene: &Scene) -> Vec<(&'static str, Value)> {
    let mut children = Vec::new();
    for kind in CHILDREN {
        let mut all = scene.matching(kind, "").await;
        all.retain(|child| {
            let owner = &child["metadata"]["ownerReferences"][0]["kind"];
            one_of_each().iter().any(|(kind, _)| owner == kind)
        });
        all.sort_by(|a, b| text(a, "name").cmp(text(b, "name")));
        children.extend(all.into_iter().map(|child| (kind, child)));
    }
    children
}

/// Returns an object as a restore creates it: without what the server sets, without owner references and status.
fn restored(object: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "labels", "annotations", "finalizers"] {
        if !object["metadata"][field].is_null() {
            metadata[field] = object["metadata"][field].clone();
        }
    }
    let mut spec = object["spec"].clone();
    // The address of a Service and the node of a Pod are assigned again.
    for field in ["clusterIP", "clusterIPs", "nodeName"] {
        spec.as_object_mut().unwrap().remove(field);
    }
    json!({"metadata": metadata, "spec": spec})
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap()
}

/// Returns the operation IDs of a WebApp's steps.
fn operations(webapp: &Value) -> Vec<&str> {
    let steps = webapp["status"]["steps"].as_array().unwrap();
    steps.iter().map(|step| step["operationID"].as_str().unwrap()).collect()
}

/// Returns the finished writes of the scene's operators to children since the given number of requests.
fn writes_to_children(scene: &Scene, since: usize) -> Vec<(String, String, u64)> {
    let later = scene.ledger().split_off(since).into_iter().filter(|request| {
        request.is_write() && ["deployments", "services", "pods"].contains(&request.resource.as_str())
    });
    later.map(|write| (write.verb, write.name, write.code)).collect()
}

/// Waits until each object says this of its children.
async fn until_all(scene: &Scene, backup: &Backup, reason: &str) {
    for (kind, owner) in &backup.owners {
        scene.until_reason(kind, text(owner, "name"), reason).await;
    }
}

#[apply(both_beds)]
async fn objects_restored_alone_get_new_children() {
    let (mut scene, backup) = Backup::of_lost("restore-alone").await;
    scene.start_operator();
    backup.restore_owners(&scene).await;
    backup.is_back(&scene).await;
    let destroyed: Vec<_> = scene.writes().into_iter().filter(|write| write.verb == "delete").collect();
    assert_eq!(destroyed, []);
}

#[apply(both_beds)]
async fn restored_children_of_dead_owners_are_replaced() {
    let (mut scene, backup) = Backup::of_lost("restore-dead").await;
    backup.restore_children(&scene, References::Kept).await;
    backup.restore_owners(&scene).await;
    let since = scene.ledger().len();
    scene.start_operator();
    until_all(&scene, &backup, "WaitingForDeletion").await;
    scene.rest_for_a_while().await;
    for (verb, name, code) in writes_to_children(&scene, since) {
        assert_eq!((verb.as_str(), code), ("create", 409), "{name}: only the garbage collector deletes it");
    }
    for (kind, child) in &backup.children {
        scene
            .until(kind, text(child, "name"), "is collected", |found| {
                found["metadata"]["deletionTimestamp"].is_string()
            })
            .await;
    }
    backup.release_children(&scene).await;
    backup.is_back(&scene).await;
}

/// Velero drops owner references. Such children are nobody's, so they are neither adopted nor overwritten.
#[apply(both_beds)]
async fn restored_children_without_owners_are_left_alone() {
    let (mut scene, backup) = Backup::of_lost("restore-orphans").await;
    backup.restore_children(&scene, References::Dropped).await;
    backup.release_children(&scene).await;
    backup.restore_owners(&scene).await;
    let since = scene.ledger().len();
    scene.start_operator();
    until_all(&scene, &backup, "ResourceExists").await;
    for (kind, owner) in &backup.owners {
        let owner = scene.look(kind, text(owner, "name")).await.unwrap();
        assert_eq!(condition_of(&owner, "Stalled").unwrap()["status"], "True", "{kind}");
    }
    scene.rest_for_a_while().await;
    for (verb, name, code) in writes_to_children(&scene, since) {
        assert_eq!((verb.as_str(), code), ("create", 409), "{name} is nobody's");
    }
    let pods = pods_of_foo(&scene).await;
    for (kind, child) in &backup.children {
        let orphans =
            DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
        let how = if *kind == "Deployment" { orphans } else { DeleteParams::background() };
        scene.unmake(kind, text(child, "name"), how).await;
    }
    backup.is_back(&scene).await;
    scene.rest_for_a_while().await;
    assert_eq!(
        pods_of_foo(&scene).await,
        pods,
        "the new Deployment has adopted the Pods of the restored one"
    );
}

/// Returns the uids of the Pods of the Foo's Deployment. The embedded server has none.
async fn pods_of_foo(scene: &Scene) -> Vec<String> {
    let deployment = scene.look("Deployment", "foo").await.unwrap();
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object().unwrap();
    let selector: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap())).collect();
    let pods = scene.matching("Pod", &selector.join(",")).await;
    pods.iter().map(|pod| text(pod, "uid").to_owned()).collect()
}

/// A restored status speaks of another uid: in particular, the tasks that its steps record were run for that one.
#[apply(both_beds)]
async fn a_restored_status_is_not_believed() {
    let (mut scene, backup) = Backup::of_lost("restore-status").await;
    backup.restore_owners(&scene).await;
    for (kind, owner) in &backup.owners {
        let status = Patch::Merge(json!({"status": owner["status"]}));
        scene.of(kind).patch_status(text(owner, "name"), &PatchParams::default(), &status).await.unwrap();
    }
    scene.start_operator();
    backup.is_back(&scene).await;
    let (_, old) = backup.owners.iter().find(|(kind, _)| *kind == "WebApp").unwrap();
    let all_are_new = |webapp: &Value| operations(webapp).iter().all(|id| !operations(old).contains(id));
    let webapp = scene.until("WebApp", "webapp", "has run its tasks again", all_are_new).await;
    assert_eq!(operations(&webapp).len(), operations(old).len());
    scene.until_ready("WebApp", "webapp").await;
}
