//! Audits find and repair changes that the caches have missed.

use std::time::Duration;

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::json;
use windlass::sim::{Action, Fault, Sim, When};

use crate::support::{Bed, Scene, both_beds, embedded_bed, pass, wait_until};

/// Waits for the informer's first list, in pages of 5,000, and two audits, in pages of 500.
#[apply(both_beds)]
async fn audits_list_each_kind_once_per_period() {
    let mut scene = Scene::new("audited").await;
    scene.start_operator_with(&["--audit-period=2s"]);
    scene.ready_foo("web", 1).await;
    for resource in ["foos", "deployments", "services", "ingresses", "pods", "webapps"] {
        wait_until("the kind is listed once and audited twice", async || {
            let lists = scene.ledger().into_iter().filter(|entry| entry.verb == "list" && entry.code == 200);
            let of_kind = lists.filter(|entry| entry.resource == resource);
            let newest: Vec<String> =
                of_kind.map(|entry| entry.uri).filter(|uri| !uri.contains("resourceVersion=")).collect();
            let count =
                |limit| newest.iter().filter(|uri| uri.split(['?', '&']).any(|pair| pair == limit)).count();
            let (first, audits) = (count("limit=5000"), count("limit=500"));
            if first == 1 && audits >= 2 { Ok(()) } else { Err((resource, first, audits)) }
        })
        .await;
    }
    let log = scene.operator().log();
    assert!(!log.contains("Audit failed"), "no audit fails: {log}");
    assert!(!log.contains("; relisting"), "nothing was missed: {log}");
}

fn sim(scene: &Scene) -> Sim {
    let Bed::Embedded(bed) = &scene.bed else { unreachable!("the case runs on the embedded bed") };
    bed.sim.clone()
}

/// Watches silently drop events of Foos and Deployments.
#[apply(embedded_bed)]
#[why = "a real server does not drop events"]
async fn lost_events_are_repaired_within_one_period() {
    let mut scene = Scene::new("lost").await;
    scene.start_operator_with(&["--audit-period=5m"]);
    for name in ["changed", "scaled", "gone"] {
        scene.ready_foo(name, 1).await;
    }
    let lost = ["foos", "deployments"].map(|plural| {
        let watch = When::verb("watch").resource(plural).user(&scene.user());
        sim(&scene).fault(Fault::new(watch, Action::SkipEvent))
    });
    scene.make("Foo", "unheard", json!({"deploymentName": "unheard", "replicas": 1})).await;
    scene.patch_foo("changed", json!({"spec": {"replicas": 3}})).await;
    scene.patch_deployment("scaled", json!({"spec": {"replicas": 7}})).await;
    drop(scene.deployments.delete("gone", &DeleteParams::background()).await.unwrap());
    pass(Duration::from_secs(1)).await;
    for id in lost {
        sim(&scene).heal(id);
    }
    assert_eq!(scene.names("Deployment").await, ["changed", "scaled"]);
    // One audit period, a minute until the next bookmark, and a second for the syncs.
    pass(Duration::from_secs(5 * 60 + 61)).await;
    assert_eq!(scene.names("Deployment").await, ["changed", "gone", "scaled", "unheard"]);
    for (name, replicas) in [("changed", 3), ("scaled", 1), ("gone", 1), ("unheard", 1)] {
        assert_eq!(scene.look("Deployment", name).await.unwrap()["spec"]["replicas"], replicas, "{name}");
        scene.ready(name).await;
    }
}

/// The server's watch cache is stuck: the watch stays open, but its bookmarks do not advance.
#[apply(embedded_bed)]
#[why = "a real server's cache cannot be frozen"]
async fn stuck_cache_is_repaired_within_two_periods() {
    let mut scene = Scene::new("unheard").await;
    scene.start_operator_with(&["--audit-period=5m"]);
    scene.ready_foo("heard", 1).await;
    sim(&scene).freeze_cache(0, "samplecontroller.k8s.io", "foos", true);
    scene.make("Foo", "unheard", json!({"deploymentName": "unheard", "replicas": 1})).await;
    pass(Duration::from_secs(2 * 5 * 60 + 121)).await;
    assert_eq!(scene.names("Deployment").await, ["heard", "unheard"]);
    sim(&scene).freeze_cache(0, "samplecontroller.k8s.io", "foos", false);
    scene.ready("unheard").await;
}

/// A surplus Pod without the operator's label is in no labelled list.
#[apply(both_beds)]
async fn unlabelled_surplus_pod_is_deleted_within_eight_periods() {
    let mut scene = Scene::new("unlabelled").await;
    scene.start_operator_with(&["--audit-period=2s"]);
    scene.make("Redis", "cache", json!({"replicas": 1, "port": 6379, "image": "redis:7.4"})).await;
    let redis = scene.until_ready("Redis", "cache").await;
    let owner = json!({"apiVersion": "myapp.tangx.in/v1", "kind": "Redis", "name": "cache",
        "uid": redis["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    let container = json!({"name": "cache", "image": "redis:7.4"});
    let pod = json!({"metadata": {"name": "cache-7", "ownerReferences": [owner]},
        "spec": {"containers": [container]}});
    scene.make_whole("Pod", pod).await;
    scene.until_names("Pod", &["cache-0"]).await;
    let of_pods = |uri: &str| uri.contains("/pods?") && uri.contains("managed-by%21%3Dwindlass");
    let lists =
        scene.ledger().into_iter().filter(|entry| entry.verb == "list" && of_pods(&entry.uri)).count();
    assert!(lists >= 1);
}
