use super::*;

fn owned(name: &str, owner: &Value, blocks: bool) -> Value {
    let mut map = map(name);
    map["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks}]);
    map
}

#[tokio::test(start_paused = true)]
async fn a_deployment_makes_pods_that_become_ready() {
    let bed = Bed::new();
    bed.ok("POST", DEPLOYMENTS, deployment("web", 3)).await;
    settle().await;
    let made = bed.get(&format!("{DEPLOYMENTS}/web")).await.1;
    assert_eq!(
        (&made["status"]["availableReplicas"], &made["status"]["observedGeneration"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(bed.get(PODS).await.1["items"].as_array().unwrap().len(), 3);
    let version = bed.sim.version();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(bed.sim.version(), version, "at rest nothing is written");
}

#[tokio::test(start_paused = true)]
async fn a_rollout_keeps_enough_pods_available() {
    let bed = Bed::new();
    bed.ok("POST", DEPLOYMENTS, deployment("web", 4)).await;
    settle().await;
    let slow = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "slow"}]}}}});
    bed.ok("PATCH", &format!("{DEPLOYMENTS}/web"), slow).await;
    let started = tokio::time::Instant::now();
    loop {
        let status = bed.get(&format!("{DEPLOYMENTS}/web")).await.1["status"].clone();
        assert!(status["availableReplicas"].as_i64().unwrap() >= 3, "{status}");
        assert!(status["replicas"].as_i64().unwrap() <= 5, "{status}");
        if status["observedGeneration"] == 2
            && status["updatedReplicas"] == 4
            && status["replicas"] == 4
            && status["availableReplicas"] == 4
        {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "{status}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let sets = bed.get("/apis/apps/v1/namespaces/default/replicasets").await.1;
    assert_eq!(sets["items"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn images_by_name_fail() {
    let bed = Bed::new();
    for (image, waiting) in [("missing", "ImagePullBackOff"), ("crash", "CrashLoopBackOff")] {
        let pod =
            json!({"metadata": {"name": image}, "spec": {"containers": [{"name": "c", "image": image}]}});
        bed.ok("POST", PODS, pod).await;
        settle().await;
        let status = bed.get(&format!("{PODS}/{image}")).await.1["status"].clone();
        assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], waiting);
        assert_eq!(status["containerStatuses"][0]["ready"], false);
    }
}

#[tokio::test(start_paused = true)]
async fn the_collector_follows_owners() {
    let bed = Bed::new();
    let owner = bed.ok("POST", MAPS, map("owner")).await;
    bed.ok("POST", MAPS, owned("child", &owner, false)).await;
    let mut forged = owner.clone();
    forged["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    bed.ok("POST", MAPS, owned("forged", &forged, false)).await;
    settle().await;
    assert_eq!(bed.get(&format!("{MAPS}/forged")).await.0, 404, "its owner was never there");
    assert_eq!(bed.get(&format!("{MAPS}/child")).await.0, 200);
    bed.ok("DELETE", &format!("{MAPS}/owner"), json!({"propagationPolicy": "Orphan"})).await;
    settle().await;
    let child = bed.get(&format!("{MAPS}/child")).await.1;
    assert_eq!(child["metadata"]["ownerReferences"], Value::Null);
    let owner = bed.ok("POST", MAPS, map("owner")).await;
    bed.ok("POST", MAPS, owned("second", &owner, false)).await;
    bed.ok("DELETE", &format!("{MAPS}/owner"), Value::Null).await;
    settle().await;
    assert_eq!(bed.get(&format!("{MAPS}/second")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn foreground_waits_for_dependents_that_block() {
    let bed = Bed::new();
    let owner = bed.ok("POST", MAPS, map("owner")).await;
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    bed.ok("POST", MAPS, child).await;
    bed.ok("DELETE", &format!("{MAPS}/owner"), json!({"propagationPolicy": "Foreground"})).await;
    settle().await;
    assert_eq!(
        bed.get(&format!("{MAPS}/owner")).await.1["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    bed.ok("PATCH", &format!("{MAPS}/child"), json!({"metadata": {"finalizers": null}})).await;
    settle().await;
    assert_eq!(bed.get(&format!("{MAPS}/owner")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_ends_takes_nothing_new_and_is_emptied() {
    let bed = Bed::new();
    bed.ok("POST", "/api/v1/namespaces", json!({"metadata": {"name": "team"}})).await;
    let maps = "/api/v1/namespaces/team/configmaps";
    let mut held = map("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    bed.ok("POST", maps, held).await;
    bed.ok("DELETE", "/api/v1/namespaces/team", Value::Null).await;
    settle().await;
    let refused = bed.call("POST", maps, map("b")).await;
    assert_eq!(reason(&refused), (403, "Forbidden"));
    assert_eq!(refused.1["details"]["causes"][0]["reason"], "NamespaceTerminating");
    bed.ok("PATCH", &format!("{maps}/a"), json!({"metadata": {"finalizers": null}})).await;
    settle().await;
    assert_eq!(bed.get("/api/v1/namespaces/team").await.0, 404);
    assert_eq!(bed.call("POST", maps, map("b")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_quota_refuses_before_the_name_is_looked_at() {
    let bed = Bed::new();
    bed.ok("POST", MAPS, map("a")).await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "1"}}});
    bed.ok("POST", "/api/v1/namespaces/default/resourcequotas", quota).await;
    settle().await;
    let refused = bed.call("POST", MAPS, map("a")).await;
    assert_eq!(reason(&refused), (403, "Forbidden"));
    assert!(refused.1["message"].as_str().unwrap().contains("exceeded quota: q"));
}

#[tokio::test(start_paused = true)]
async fn a_definition_makes_its_kind_and_takes_it_along() {
    let bed = Bed::new();
    assert_eq!(bed.get(FOOS).await.0, 404);
    bed.define_foos().await;
    bed.ok("POST", FOOS, foo("a")).await;
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.example.com";
    let mut watch = bed.watch(&format!("{FOOS}?watch=true")).await;
    assert_eq!(watch.event().await, event("ADDED", "a"));
    bed.ok("DELETE", crd, Value::Null).await;
    settle().await;
    assert_eq!(bed.get(crd).await.0, 404);
    assert_eq!(bed.get(FOOS).await.0, 404);
    assert_eq!(watch.event().await, event("DELETED", "a"));
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn each_part_of_the_world_can_be_switched_off() {
    let world = crate::sim::Switches { collector: false, workloads: false, pods: false, quotas: false };
    let bed = Bed::with(Settings { world, ..Settings::default() });
    bed.ok("POST", DEPLOYMENTS, deployment("web", 3)).await;
    let owner = bed.ok("POST", MAPS, map("owner")).await;
    bed.ok("POST", MAPS, owned("child", &owner, false)).await;
    bed.ok("DELETE", &format!("{MAPS}/owner"), Value::Null).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    bed.ok("POST", PODS, pod).await;
    settle().await;
    assert_eq!(bed.get(&format!("{DEPLOYMENTS}/web")).await.1["status"], json!({}));
    assert_eq!(bed.get(&format!("{MAPS}/child")).await.0, 200);
    assert_eq!(bed.get(&format!("{PODS}/p")).await.1["status"]["phase"], "Pending");
}

/// A dependent that is let go, not removed, holds its owner no longer.
#[tokio::test(start_paused = true)]
async fn foreground_goes_on_when_a_dependent_loses_its_reference() {
    let bed = Bed::new();
    let owner = bed.ok("POST", MAPS, map("owner")).await;
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    bed.ok("POST", MAPS, child).await;
    bed.ok("DELETE", &format!("{MAPS}/owner"), json!({"propagationPolicy": "Foreground"})).await;
    settle().await;
    bed.ok("PATCH", &format!("{MAPS}/child"), json!({"metadata": {"ownerReferences": null}})).await;
    settle().await;
    assert_eq!(bed.get(&format!("{MAPS}/owner")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_takes_over_orphans_and_tries_again_what_a_quota_refused() {
    let bed = Bed::new();
    bed.ok("POST", DEPLOYMENTS, deployment("web", 2)).await;
    settle().await;
    let pods = bed.get(PODS).await.1;
    bed.ok("DELETE", &format!("{DEPLOYMENTS}/web"), json!({"propagationPolicy": "Orphan"})).await;
    settle().await;
    bed.ok("POST", DEPLOYMENTS, deployment("web", 2)).await;
    settle().await;
    assert_eq!(names(&bed.get(PODS).await.1), names(&pods), "the same Pods");
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}});
    bed.ok("POST", quotas, quota).await;
    settle().await;
    bed.ok("PATCH", &format!("{DEPLOYMENTS}/web"), json!({"spec": {"replicas": 3}})).await;
    settle().await;
    assert_eq!(bed.get(PODS).await.1["items"].as_array().unwrap().len(), 2);
    bed.ok("DELETE", &format!("{quotas}/q"), Value::Null).await;
    settle().await;
    assert_eq!(bed.get(PODS).await.1["items"].as_array().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_definition_cannot_take_the_place_of_a_built_in_kind() {
    let bed = Bed::new();
    let crd = json!({"metadata": {"name": "deployments.apps"}, "spec": {"group": "apps", "scope": "Namespaced",
        "names": {"plural": "deployments", "kind": "Deployment"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let refused = bed.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await;
    assert_eq!(reason(&refused), (422, "Invalid"));
    settle().await;
    bed.ok("POST", DEPLOYMENTS, deployment("web", 1)).await;
}

#[tokio::test(start_paused = true)]
async fn events_are_kept_for_an_hour() {
    let bed = Bed::new();
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default", "name": "a"}});
    bed.ok("POST", "/api/v1/namespaces/default/events", event).await;
    tokio::time::sleep(Duration::from_secs(3500)).await;
    assert_eq!(bed.get("/api/v1/namespaces/default/events/e").await.0, 200);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(bed.get("/api/v1/namespaces/default/events/e").await.0, 404);
}
