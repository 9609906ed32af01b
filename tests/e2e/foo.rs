//! Behaviour of Foo.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use macro_rules_attribute::apply;
use serde_json::json;

use crate::support::{LedgerEntry, Scene, both_beds, condition, pass, wait_until};

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.replicas
}

fn image(deployment: &Deployment) -> Option<&str> {
    deployment.spec.template.spec.as_ref()?.containers[0].image.as_deref()
}

fn label<'a>(deployment: &'a Deployment, key: &str) -> Option<&'a str> {
    deployment.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn owner_uid(deployment: &Deployment) -> Option<&str> {
    let owners = deployment.metadata.owner_references.as_ref()?;
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

#[apply(both_beds)]
async fn a_foo_gets_its_deployment() {
    let scene = Scene::new("create").await;
    let deployment = scene.ready_foo("web", 2).await;
    let foo = scene.foos.get("web").await.unwrap();
    let owner = &deployment.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Foo", foo.metadata.uid.as_deref().unwrap()));
    assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
    let selector = deployment.spec.selector.match_labels.clone().unwrap();
    let expected = [
        ("app", "nginx"),
        ("app.kubernetes.io/instance", "web"),
        ("app.kubernetes.io/name", "foo"),
        ("controller", "web"),
    ];
    assert_eq!(selector, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    assert_eq!((replicas(&deployment), image(&deployment)), (Some(2), Some("nginx:latest")));
    assert_eq!(label(&deployment, "app.kubernetes.io/managed-by"), Some("windlass"));
    assert_eq!(scene.event("web", "ChildCreated").await, "Created Deployment \"web\"");
    assert_eq!(scene.event("web", "Synced").await, "Foo synced successfully");
    let conflicts: Vec<_> = scene.writes().into_iter().filter(|write| write.code == 409).collect();
    assert_eq!(conflicts, [], "a key is not synced before the cache has seen its own writes");
}

#[apply(both_beds)]
async fn status_reports_the_observed_state() {
    let scene = Scene::new("status").await;
    scene.ready_foo("web", 3).await;
    let foo = scene.ready("web").await;
    let status = foo.status.as_ref().unwrap();
    assert_eq!((status.available_replicas, status.replicas), (3, 3));
    assert_eq!(status.observed_generation, foo.metadata.generation);
    assert!(status.selector.contains("app.kubernetes.io/instance=web"), "{}", status.selector);
    let conditions: Vec<_> = status.conditions.iter().map(|found| (&*found.type_, &*found.status)).collect();
    assert_eq!(conditions, [("Ready", "True")], "Reconciling and Stalled are absent");
}

#[apply(both_beds)]
async fn foo_without_replicas_defaults_to_one() {
    let scene = Scene::new("default").await;
    let foo = json!({"metadata": {"name": "web"}, "spec": {"deploymentName": "web"}});
    let foo: windlass::api::samplecontroller::v1alpha1::Foo = serde_json::from_value(foo).unwrap();
    scene.foos.create(&PostParams::default(), &foo).await.unwrap();
    assert_eq!(scene.ready("web").await.status.unwrap().available_replicas, 1);
}

#[apply(both_beds)]
async fn the_deployment_follows_the_spec() {
    let scene = Scene::new("scale").await;
    let before = scene.ready_foo("web", 1).await;
    scene.patch_foo("web", json!({"spec": {"replicas": 3}})).await;
    let after = scene.deployment_until("web", "has 3 replicas", |d| replicas(d) == Some(3)).await;
    assert_eq!(after.metadata.uid, before.metadata.uid);
    assert_eq!(scene.ready("web").await.status.unwrap().available_replicas, 3);
}

#[apply(both_beds)]
async fn a_deleted_deployment_comes_back() {
    let scene = Scene::new("deleted").await;
    let before = scene.ready_foo("web", 1).await;
    drop(scene.deployments.delete("web", &DeleteParams::background()).await.unwrap());
    scene.deployment_until("web", "is a new one", |d| d.metadata.uid != before.metadata.uid).await;
    scene.ready("web").await;
}

#[apply(both_beds)]
async fn manual_scaling_is_reverted() {
    let scene = Scene::new("rescaled").await;
    scene.ready_foo("web", 2).await;
    scene.patch_deployment("web", json!({"spec": {"replicas": 5}})).await;
    assert!(scene.event("web", "ChildRepaired").await.contains("spec.replicas was 5, wanted 2"));
    scene.deployment_until("web", "has 2 replicas", |d| replicas(d) == Some(2)).await;
}

#[apply(both_beds)]
async fn manual_edit_of_the_deployment_is_reverted() {
    let scene = Scene::new("edited").await;
    scene.ready_foo("web", 1).await;
    let container = json!({"name": "nginx", "image": "nginx:1.0", "env": [{"name": "A", "value": "b"}],
        "ports": [{"containerPort": 80}]});
    scene.patch_deployment("web", json!({"spec": {"template": {"spec": {"containers": [container]}}}})).await;
    let note = scene.event("web", "ChildRepaired").await;
    for field in ["image", "env", "ports"] {
        assert!(note.contains(&format!("spec.template.spec.containers[nginx].{field}")), "{note}");
    }
    let repaired = scene.deployment_until("web", "has its image", |d| image(d) == Some("nginx:latest")).await;
    let container = &repaired.spec.template.spec.unwrap().containers[0];
    assert_eq!((&container.env, &container.ports), (&None, &None));
}

#[apply(both_beds)]
async fn foreign_fields_and_labels_are_kept() {
    let scene = Scene::new("foreign-fields").await;
    scene.ready_foo("web", 1).await;
    let theirs = json!({
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": "theirs"}},
        "spec": {"minReadySeconds": 1, "template": {
            "metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}},
            "spec": {"terminationGracePeriodSeconds": 5, "containers": [
                {"name": "sidecar", "image": "proxy"},
                {"name": "nginx", "resources": {"requests": {"cpu": "1m"}}},
            ]},
        }},
    });
    scene.patch_deployment("web", theirs).await;
    // The operator's next write must preserve these fields.
    scene.patch_foo("web", json!({"spec": {"replicas": 2}})).await;
    let deployment = scene.deployment_until("web", "has 2 replicas", |d| replicas(d) == Some(2)).await;
    assert_eq!(label(&deployment, "team"), Some("a"));
    assert_eq!(deployment.metadata.annotations.as_ref().unwrap()["note"], "theirs");
    let spec = deployment.spec;
    assert_eq!(spec.min_ready_seconds, Some(1));
    let template = spec.template;
    assert!(
        template.metadata.unwrap().annotations.unwrap().contains_key("kubectl.kubernetes.io/restartedAt")
    );
    let pod = template.spec.unwrap();
    assert_eq!(pod.termination_grace_period_seconds, Some(5));
    assert_eq!(pod.containers.len(), 2);
    let nginx = pod.containers.iter().find(|container| container.name == "nginx").unwrap();
    assert!(nginx.resources.as_ref().unwrap().requests.as_ref().unwrap().contains_key("cpu"));
}

#[apply(both_beds)]
async fn removed_label_is_restored_without_a_second_deployment() {
    let scene = Scene::new("label").await;
    let before = scene.ready_foo("web", 1).await;
    let key = "app.kubernetes.io/managed-by";
    scene.patch_deployment("web", json!({"metadata": {"labels": {key: null}}})).await;
    let after = scene.deployment_until("web", "has our label", |d| label(d, key) == Some("windlass")).await;
    assert_eq!(after.metadata.uid, before.metadata.uid);
    assert!(scene.event("web", "ChildRepaired").await.contains(key));
    assert_eq!(scene.deployments.list(&Default::default()).await.unwrap().items.len(), 1);
}

#[apply(both_beds)]
async fn foreign_deployment_blocks_foo_until_deleted() {
    let scene = Scene::new("foreign").await;
    let theirs = scene.foreign_deployment("web", json!({})).await;
    scene.create_foo("web", "web", 1).await;
    let foo = scene.reason("web", "ResourceExists").await;
    assert_eq!(condition(&foo, "Ready").unwrap().status, "False");
    assert_eq!(condition(&foo, "Stalled").unwrap().status, "True");
    let words = "Resource \"web\" already exists and is not managed by Foo";
    assert_eq!(scene.event("web", "ErrResourceExists").await, words);
    let untouched = scene.deployments.get("web").await.unwrap();
    assert_eq!(untouched.spec, theirs.spec);
    assert_eq!(untouched.metadata.labels, theirs.metadata.labels);
    assert_eq!(untouched.metadata.owner_references, None);
    drop(scene.deployments.delete("web", &DeleteParams::background()).await.unwrap());
    // The operator does not watch Deployments without its label, so it notices the deletion within 30 s.
    scene.ready("web").await;
    let reasons = scene.event_reasons("web").await;
    assert_eq!(reasons.iter().filter(|reason| *reason == "ErrResourceExists").count(), 1, "{reasons:?}");
}

#[apply(both_beds)]
async fn owner_reference_with_wrong_uid_is_not_adopted() {
    let scene = Scene::new("forged").await;
    let forged = json!({
        "labels": {"app.kubernetes.io/managed-by": "windlass"},
        "ownerReferences": [{"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "name": "web",
            "uid": "11111111-2222-3333-4444-555555555555", "controller": true, "blockOwnerDeletion": true}],
    });
    let forged = scene.foreign_deployment("web", forged).await;
    let foo = scene.create_foo("web", "web", 1).await;
    scene.ready("web").await;
    let ours = scene.deployments.get("web").await.unwrap();
    assert_ne!(ours.metadata.uid, forged.metadata.uid, "the operator creates its own Deployment");
    assert_eq!(owner_uid(&ours), foo.metadata.uid.as_deref());
    let touched: Vec<_> =
        scene.writes().into_iter().filter(|w| w.resource == "deployments" && w.verb != "create").collect();
    assert_eq!(touched, [], "the operator never writes the forged Deployment");
}

#[apply(both_beds)]
async fn a_new_deployment_name_moves_the_deployment() {
    let scene = Scene::new("renamed").await;
    scene.create_foo("web", "old", 2).await;
    scene.ready("web").await;
    scene.patch_foo("web", json!({"spec": {"deploymentName": "new"}})).await;
    scene.deployment_gone("old").await;
    scene.ready("web").await;
    assert_eq!(replicas(&scene.deployments.get("new").await.unwrap()), Some(2));
    scene.event("web", "ChildDeleted").await;
    let done = |write: &LedgerEntry| write.resource == "deployments" && write.code < 300;
    let order: Vec<String> = scene.writes().into_iter().filter(done).map(|write| write.verb).collect();
    assert_eq!(order, ["create", "create", "delete"], "the create precedes the delete");
}

#[apply(both_beds)]
async fn old_deployment_stays_while_new_name_is_taken() {
    let scene = Scene::new("taken").await;
    scene.create_foo("web", "old", 1).await;
    scene.ready("web").await;
    scene.foreign_deployment("new", json!({})).await;
    scene.patch_foo("web", json!({"spec": {"deploymentName": "new"}})).await;
    let status = scene.reason("web", "ResourceExists").await.status.unwrap();
    assert_eq!((status.replicas, status.available_replicas), (1, 1), "the old Deployment's Pods still count");
    pass(Duration::from_secs(2)).await;
    assert!(scene.deployments.get_opt("old").await.unwrap().is_some());
    let deletes: Vec<_> = scene.writes().into_iter().filter(|write| write.verb == "delete").collect();
    assert_eq!(deletes, []);
}

#[apply(both_beds)]
async fn second_foo_takes_over_name_of_deleted_first() {
    let scene = Scene::new("two").await;
    scene.create_foo("first", "web", 1).await;
    scene.ready("first").await;
    let second = scene.create_foo("second", "web", 1).await;
    scene.reason("second", "ResourceExists").await;
    scene.delete_foo("first", DeleteParams::background()).await;
    scene.ready("second").await;
    assert_eq!(owner_uid(&scene.deployments.get("web").await.unwrap()), second.metadata.uid.as_deref());
}

#[apply(both_beds)]
async fn background_deletion_removes_the_deployment() {
    let scene = Scene::new("background").await;
    scene.ready_foo("web", 1).await;
    scene.delete_foo("web", DeleteParams::background()).await;
    scene.foo_gone("web").await;
    scene.deployment_gone("web").await;
}

#[apply(both_beds)]
async fn foreground_deletion_waits_for_the_deployment() {
    let scene = Scene::new("foreground").await;
    scene.ready_foo("web", 1).await;
    let hold = json!({"metadata": {"finalizers": ["windlass.dev/hold-for-the-test"]}});
    scene.deployments.patch("web", &PatchParams::default(), &Patch::Merge(hold)).await.unwrap();
    scene.delete_foo("web", DeleteParams::foreground()).await;
    scene.deployment_until("web", "is being deleted", |d| d.metadata.deletion_timestamp.is_some()).await;
    assert!(scene.foos.get_opt("web").await.unwrap().is_some(), "blockOwnerDeletion keeps the Foo");
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    scene.deployments.patch("web", &PatchParams::default(), &release).await.unwrap();
    scene.deployment_gone("web").await;
    scene.foo_gone("web").await;
}

#[apply(both_beds)]
async fn orphan_deletion_keeps_the_deployment() {
    let scene = Scene::new("orphan").await;
    let before = scene.ready_foo("web", 1).await;
    scene.delete_foo("web", DeleteParams::orphan()).await;
    scene.foo_gone("web").await;
    let after = scene.deployments.get("web").await.unwrap();
    assert_eq!(after.metadata.uid, before.metadata.uid);
    assert_eq!(owner_uid(&after), None);
    assert!(after.metadata.deletion_timestamp.is_none());
}

#[apply(both_beds)]
async fn recreated_foo_gets_a_new_deployment() {
    let scene = Scene::new("recreate").await;
    let before = scene.ready_foo("web", 1).await;
    scene.delete_foo("web", DeleteParams::background()).await;
    scene.foo_gone("web").await;
    let foo = scene.create_foo("web", "web", 2).await;
    scene.ready("web").await;
    let after = scene.deployments.get("web").await.unwrap();
    assert_ne!(after.metadata.uid, before.metadata.uid);
    assert_eq!(owner_uid(&after), foo.metadata.uid.as_deref());
    assert_eq!(replicas(&after), Some(2));
    let reasons = scene.event_reasons("web").await;
    assert!(!reasons.contains(&"ErrResourceExists".to_owned()), "{reasons:?}");
}

/// R16: a Foo stored under an older schema.
#[apply(both_beds)]
async fn undecodable_foo_keeps_deployment_and_blocks_no_other() {
    let scene = Scene::new("unreadable").await;
    let before = scene.ready_foo("broken", 1).await;
    let mut stored = serde_json::to_value(scene.foos.get("broken").await.unwrap()).unwrap();
    stored["spec"]["replicas"] = json!("three");
    stored["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    scene.bed.write_behind_the_server("samplecontroller.k8s.io", "foos", &stored).await;
    // The Foo does not decode for the test either, so the test reads it untyped.
    let untyped = scene.untyped_foos().await;
    wait_until("the condition is Unreadable", async || {
        let foo = untyped.get("broken").await.map_err(|e| e.to_string())?;
        let status = foo.data["status"].to_string();
        if status.contains("\"reason\":\"Unreadable\"") { Ok(()) } else { Err(status) }
    })
    .await;
    scene.ready_foo("other", 1).await;
    assert_eq!(scene.deployments.get("broken").await.unwrap().metadata.uid, before.metadata.uid);
    let corrected = Patch::Merge(json!({"spec": {"replicas": 2}}));
    untyped.patch("broken", &PatchParams::default(), &corrected).await.unwrap();
    assert_eq!(scene.ready("broken").await.status.unwrap().available_replicas, 2, "the Foo recovers");
}

#[apply(both_beds)]
async fn refused_deployment_is_retried_when_the_spec_changes() {
    let scene = Scene::new("quota").await;
    let quotas: Api<ResourceQuota> = Api::namespaced(scene.bed.client(), &scene.namespace);
    let none = json!({"metadata": {"name": "none"}, "spec": {"hard": {"count/deployments.apps": "0"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(none).unwrap()).await.unwrap();
    wait_until("the quota is in effect", async || {
        let quota = quotas.get("none").await.unwrap();
        quota.status.and_then(|status| status.hard).ok_or("no status yet")
    })
    .await;
    scene.create_foo("web", "web", 1).await;
    let foo = scene.reason("web", "ChildRefused").await;
    let message = &condition(&foo, "Ready").unwrap().message;
    assert!(message.contains("exceeded quota"), "{message}");
    assert_eq!(condition(&foo, "Stalled").unwrap().status, "True");
    scene.event("web", "ChildRefused").await;
    drop(quotas.delete("none", &DeleteParams::default()).await.unwrap());
    wait_until("the quota is gone", async || match quotas.get_opt("none").await.unwrap() {
        None => Ok(()),
        Some(quota) => Err(quota),
    })
    .await;
    scene.patch_foo("web", json!({"spec": {"replicas": 2}})).await;
    scene.ready("web").await;
}

/// W13: another client reverts every repair.
#[apply(both_beds)]
async fn repair_stops_when_a_rival_keeps_reverting() {
    let scene = Scene::new("contended").await;
    scene.ready_foo("web", 1).await;
    let rival = async {
        loop {
            let deployment = scene.deployments.get("web").await.unwrap();
            if replicas(&deployment) == Some(1) {
                scene.patch_deployment("web", json!({"spec": {"replicas": 4}})).await;
            }
            pass(Duration::from_millis(10)).await;
        }
    };
    let foo = tokio::select! {
        biased;
        () = rival => unreachable!("the rival runs until it is dropped"),
        foo = scene.reason("web", "Contended") => foo,
    };
    assert_eq!(condition(&foo, "Stalled").unwrap().status, "True");
    assert!(condition(&foo, "Ready").unwrap().message.contains("spec.replicas was 4, wanted 1"));
    // A patch that conflicts with the rival's is not a repair.
    let is_repair = |w: &LedgerEntry| w.resource == "deployments" && w.verb == "patch" && w.code == 200;
    let repairs = || scene.writes().iter().filter(|write| is_repair(write)).count();
    assert_eq!(repairs(), 5);
    pass(Duration::from_secs(3)).await;
    assert_eq!(repairs(), 5, "a contended Deployment is not written");
    // The rival is gone, and a user requests a retry.
    let asked = tokio::time::Instant::now();
    let note = json!({"metadata": {"annotations": {"windlass.dev/reconcile-at": "now"}}});
    scene.change("Foo", "web", note).await;
    scene.until("Deployment", "web", "is repaired", |live| live["spec"]["replicas"] == 1).await;
    assert!(asked.elapsed().as_secs() < 100, "the retry does not wait for the two-minute backoff");
    assert_eq!(repairs(), 6);
}

#[apply(both_beds)]
async fn nothing_is_written_at_rest() {
    let scene = Scene::new("rest").await;
    scene.ready_foo("web", 2).await;
    scene.event("web", "Synced").await;
    let before = scene.writes();
    pass(Duration::from_secs(5)).await;
    assert_eq!(scene.writes(), before);
}

#[apply(both_beds)]
async fn requests_name_user_agent_and_field_manager() {
    let scene = Scene::new("agent").await;
    scene.ready_foo("web", 1).await;
    let agents: std::collections::BTreeSet<String> =
        scene.ledger().into_iter().map(|e| e.user_agent).collect();
    let expected = format!("windlass/{} (linux/", env!("CARGO_PKG_VERSION"));
    assert!(agents.iter().all(|agent| agent.starts_with(&expected)), "{agents:?}");
    let writes = scene.writes().into_iter().filter(|write| write.verb != "delete");
    let unnamed: Vec<_> = writes.filter(|write| !write.uri.contains("fieldManager=windlass")).collect();
    assert_eq!(unnamed, [], "every write names its field manager");
}
