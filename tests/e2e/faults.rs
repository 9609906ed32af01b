//! Faults of the API server that the operator must survive. A case that breaks a control plane starts its own.

use std::time::Duration;

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::json;

use crate::support::{Bed, Scene, both_beds, pass, wait_until};

async fn scene(name: &str) -> Scene {
    let mut scene = Scene::on(Bed::own(true).await, name).await;
    // Audits send lists, too, which would be counted.
    scene.start_operator_with(&["--audit-period=0"]);
    scene
}

/// Returns the informers' initial lists, which are paged and carry no resource version.
fn first_lists(scene: &Scene) -> Vec<String> {
    let lists = scene.ledger().into_iter().filter(|entry| entry.verb == "list" && entry.code == 200);
    lists
        .map(|entry| entry.uri)
        // The search for lost labels is not an informer's list.
        .filter(|uri| !uri.contains("managed-by%21%3D"))
        .filter(|uri| uri.contains("limit=") && !uri.contains("resourceVersion="))
        .collect()
}

/// R4, R15, W8: the server is killed and restarted.
#[apply(both_beds)]
async fn watches_resume_after_an_api_server_restart() {
    let scene = scene("killed").await;
    scene.ready_foo("web", 1).await;
    let lists = first_lists(&scene);
    scene.bed.kill_server();
    scene.operator().logged("API server does not answer").await;
    scene.bed.start_server().await;
    scene.patch_foo("web", json!({"spec": {"replicas": 3}})).await;
    drop(scene.deployments.delete("web", &DeleteParams::background()).await.unwrap());
    assert_eq!(scene.ready("web").await.status.unwrap().available_replicas, 3);
    scene.ready_foo("new", 1).await;
    scene.operator().logged("API server answers again").await;
    assert_eq!(first_lists(&scene), lists, "the watches resume without a relist");
    let lines = scene.operator().log().matches("API server does not answer").count();
    assert_eq!(lines, 1, "an outage is logged once");
}

/// R11: half-open connections; the kernel still accepts the operator's data.
#[apply(both_beds)]
async fn server_frozen_for_30s_loses_nothing() {
    let scene = scene("frozen").await;
    scene.ready_foo("web", 1).await;
    let before = scene.writes();
    scene.bed.freeze_server();
    pass(Duration::from_secs(30)).await;
    scene.bed.thaw_server();
    scene.patch_foo("web", json!({"spec": {"replicas": 2}})).await;
    assert_eq!(scene.ready("web").await.status.unwrap().available_replicas, 2);
    let deletes = scene.writes().into_iter().skip(before.len()).filter(|w| w.verb == "delete").count();
    assert_eq!(deletes, 0, "an unresponsive server causes no deletes");
}

/// R5: the history is compacted while no watch is open; the relist finds the deletions in the gap.
#[apply(both_beds)]
async fn compaction_while_disconnected_causes_a_relist() {
    let mut scene = Scene::on(Bed::own(true).await, "compacted").await;
    scene.start_operator();
    scene.ready_foo("kept", 1).await;
    scene.ready_foo("deleted", 1).await;
    // A stopped operator keeps its caches and resource versions, and misses the following changes.
    scene.operator().signal(rustix::process::Signal::STOP);
    drop(scene.deployments.delete("kept", &DeleteParams::background()).await.unwrap());
    scene.deployment_gone("kept").await;
    scene.delete_foo("deleted", DeleteParams::background()).await;
    scene.deployment_gone("deleted").await;
    scene.bed.kill_server();
    scene.bed.start_server().await;
    scene.bed.compact().await;
    // The watch cache of a restarted server has no older events.
    scene.operator().signal(rustix::process::Signal::CONT);
    scene.ready_foo("new", 1).await;
    scene.ready("kept").await;
    wait_until("the operator received a 410", async || {
        let ledger = scene.ledger();
        let log = scene.operator().log();
        let gone = ledger.iter().any(|entry| entry.code == 410) || log.contains("410 ");
        if gone { Ok(()) } else { Err(ledger) }
    })
    .await;
    assert!(scene.deployments.get_opt("deleted").await.unwrap().is_none());
}

/// R14: the CRD is installed after the operator has started.
#[apply(both_beds)]
async fn crd_installed_after_startup_is_picked_up() {
    let bed = Bed::own(false).await;
    let mut scene = Scene::on(bed, "late-crd").await;
    scene.start_operator();
    scene.operator().logged("install its CRD").await;
    scene.bed.install_crds().await;
    scene.ready_foo("web", 1).await;
    let log = scene.operator().log();
    let of_foos =
        |line: &&str| line.contains("install its CRD") && line.contains("foos.samplecontroller.k8s.io");
    assert_eq!(log.lines().filter(of_foos).count(), 1, "a missing CRD is logged once: {log}");
}

/// W9: a permission is missing; other kinds are not affected, and a grant takes effect without a restart.
#[apply(both_beds)]
async fn missing_permission_is_reported_until_granted() {
    let mut scene = Scene::on(Bed::shared().await, "denied").await;
    scene.deny_deployments().await;
    let line = scene.operator().logged("kind=\"deployments.apps\" error").await;
    assert!(line.contains("grant both verbs"), "{line}");
    scene.operator().logged("Listed kind=foos.samplecontroller.k8s.io").await;
    scene.create_foo("web", "web", 1).await;
    scene.grant_deployments().await;
    scene.ready("web").await;
}
