use super::*;
use crate::sim::Switches;

const REVISION: &str = "deployment.kubernetes.io/revision";

fn owned(name: &str, owner: &Value, blocks: bool) -> Value {
    let mut map = map(name);
    map["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks}]);
    map
}

/// Starts a foreground deletion of an owner, which waits for a child that a finalizer keeps.
async fn block_foreground_deletion(bed: &Bed) {
    let owner = bed.ok("POST", MAPS, map("owner")).await;
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    bed.ok("POST", MAPS, child).await;
    bed.ok("DELETE", &format!("{MAPS}/owner"), json!({"propagationPolicy": "Foreground"})).await;
    settle().await;
    let owner = bed.get(&format!("{MAPS}/owner")).await.1;
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

#[tokio::test(start_paused = true)]
async fn deployment_creates_pods_that_become_ready() {
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
    assert_eq!(bed.sim.version(), version, "an idle cluster writes nothing");
}

#[tokio::test(start_paused = true)]
async fn deployment_without_pods_has_the_same_status() {
    let mut statuses = Vec::new();
    for status_of_workloads in [false, true] {
        let world = Switches { status_of_workloads, ..Switches::default() };
        let bed = Bed::with(Settings { world, ..Settings::default() });
        let web = format!("{DEPLOYMENTS}/web");
        let mut of_bed = Vec::new();
        bed.ok("POST", DEPLOYMENTS, deployment("web", 3)).await;
        for replicas in [3, 5, 1] {
            bed.ok("PATCH", &web, json!({"spec": {"replicas": replicas}})).await;
            settle().await;
            let mut status = bed.get(&web).await.1["status"].take();
            for condition in status["conditions"].as_array_mut().unwrap() {
                let condition = condition.as_object_mut().unwrap();
                condition.retain(|field, _| field == "type" || field == "status" || field == "reason");
            }
            of_bed.push(status);
        }
        let pods = bed.get(PODS).await.1["items"].as_array().unwrap().len();
        assert_eq!(pods, usize::from(!status_of_workloads));
        statuses.push(of_bed);
    }
    assert_eq!(statuses[0], statuses[1]);
}

/// As with a Deployment controller that has its own limit of requests.
/// The cluster does in both what was due when the snapshot was taken.
#[cfg(feature = "tune")]
#[tokio::test(start_paused = true)]
async fn server_goes_on_from_a_snapshot() {
    let web = format!("{DEPLOYMENTS}/web");
    let bed = Bed::new();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let made = bed.ok("POST", DEPLOYMENTS, deployment("web", 3)).await;
    bed.sim.stop(1);
    let snapshot = bed.sim.snapshot();
    let mut later = Bed::of(Sim::restore(&snapshot, 7));
    assert_eq!((later.sim.version(), later.sim.ledger()), (bed.sim.version(), Vec::new()));
    assert_eq!(later.sim.elapsed(), Duration::from_secs(60));
    assert_eq!(later.get(&web).await.1, made);
    for bed in [&bed, &later] {
        settle().await;
        assert_eq!(bed.get(&web).await.1["status"]["availableReplicas"], 3);
    }
    later.ok("DELETE", &web, json!({})).await;
    assert_eq!(bed.get(&web).await.0, 200, "each has objects of its own");
    let created = |object: &Value| object["metadata"]["creationTimestamp"].as_str().unwrap().to_owned();
    assert!(created(&later.ok("POST", MAPS, map("new")).await) > created(&made), "time goes on");
    later.server = 1;
    assert_eq!(later.get(MAPS).await.0, 200, "faults stay behind");
}

#[tokio::test(start_paused = true)]
async fn paced_rollouts_end_one_after_the_other() {
    let world = Switches { status_of_workloads: true, ..Switches::default() };
    let bed = Bed::with(Settings { world, ..Settings::default() });
    let available = async || {
        let mut count = 0;
        for name in ["a", "b", "c"] {
            let status = bed.get(&format!("{DEPLOYMENTS}/{name}")).await.1["status"].take();
            count += usize::from(status["availableReplicas"] == 2);
        }
        count
    };
    bed.sim.pace_rollouts(Duration::from_secs(10));
    for name in ["a", "b", "c"] {
        bed.ok("POST", DEPLOYMENTS, deployment(name, 2)).await;
    }
    // Turns of 5 s: a, b, c, and once more.
    tokio::time::sleep(Duration::from_secs(14)).await;
    for count in 0..=3 {
        assert_eq!(available().await, count);
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    bed.sim.pace_rollouts(Duration::ZERO);
    for name in ["a", "b", "c"] {
        bed.ok("PATCH", &format!("{DEPLOYMENTS}/{name}"), json!({"spec": {"replicas": 4}})).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for name in ["a", "b", "c"] {
        assert_eq!(bed.get(&format!("{DEPLOYMENTS}/{name}")).await.1["status"]["availableReplicas"], 4);
    }
}

/// This lets `kubectl rollout undo` find the previous revision repeatedly.
#[tokio::test(start_paused = true)]
async fn restored_template_becomes_a_new_revision() {
    let bed = Bed::new();
    let web = format!("{DEPLOYMENTS}/web");
    bed.ok("POST", DEPLOYMENTS, deployment("web", 1)).await;
    settle().await;
    for (image, revisions) in [("other", ["1", "2"]), ("nginx", ["2", "3"]), ("other", ["3", "4"])] {
        let template = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        bed.ok("PATCH", &web, json!({"spec": {"template": template}})).await;
        settle().await;
        let sets = bed.get("/apis/apps/v1/namespaces/default/replicasets").await.1["items"].clone();
        let revision = |object: &Value| object["metadata"]["annotations"][REVISION].clone();
        let mut found: Vec<Value> = sets.as_array().unwrap().iter().map(revision).collect();
        found.sort_by_key(ToString::to_string);
        assert_eq!(found, revisions, "{image}");
        assert_eq!(revision(&bed.get(&web).await.1), revisions[1], "{image}");
    }
}

/// In Kubernetes: `syncRolloutStatus`.
#[tokio::test(start_paused = true)]
async fn finished_rollout_stays_finished_while_pods_change() {
    let bed = Bed::new();
    let web = format!("{DEPLOYMENTS}/web");
    let progress = async || {
        let status = bed.get(&web).await.1["status"].clone();
        let mut conditions = status["conditions"].as_array().unwrap().iter();
        let progress = conditions.find(|condition| condition["type"] == "Progressing").unwrap();
        (status["readyReplicas"].as_i64().unwrap_or_default(), progress["reason"].clone())
    };
    bed.ok("POST", DEPLOYMENTS, deployment("web", 2)).await;
    settle().await;
    assert_eq!(progress().await, (2, json!("NewReplicaSetAvailable")));
    for name in names(&bed.get(PODS).await.1) {
        let broken = json!({"spec": {"containers": [{"name": "c", "image": "missing"}]}});
        bed.ok("PATCH", &format!("{PODS}/{name}"), broken).await;
        let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        bed.ok("PATCH", &format!("{PODS}/{name}/status"), unready).await;
    }
    settle().await;
    assert_eq!(progress().await, (0, json!("NewReplicaSetAvailable")));
    bed.ok("PATCH", &web, json!({"spec": {"replicas": 3}})).await;
    settle().await;
    assert_eq!(progress().await, (1, json!("NewReplicaSetAvailable")), "scaling is no rollout");
    let missing =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "missing"}]}}}});
    bed.ok("PATCH", &web, missing).await;
    settle().await;
    assert_eq!(progress().await.1, json!("ReplicaSetUpdated"), "a new template is a rollout");
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

/// This also holds when the template returns to one whose ReplicaSet still exists.
#[tokio::test(start_paused = true)]
async fn recreate_never_runs_two_versions_at_once() {
    let bed = Bed::new();
    let mut web = deployment("web", 3);
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    bed.ok("POST", DEPLOYMENTS, web).await;
    for image in ["a", "b", "a"] {
        let containers = json!([{"name": "c", "image": image}]);
        let change = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        bed.ok("PATCH", &format!("{DEPLOYMENTS}/web"), change).await;
        let mut running = Vec::new();
        for _ in 0..500 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let pods = bed.get(PODS).await.1;
            let images = pods["items"].as_array().unwrap().iter();
            running = images.map(|pod| pod["spec"]["containers"][0]["image"].clone()).collect();
            assert!(running.iter().all(|image| *image == running[0]), "{running:?}");
        }
        assert_eq!(running, [image; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn image_names_select_failure_or_completion() {
    let bed = Bed::new();
    for (policy, phase) in [("Always", "Running"), ("Never", "Succeeded")] {
        let name = policy.to_lowercase();
        let containers = json!([{"name": "c", "image": "complete"}]);
        let spec = json!({"restartPolicy": policy, "containers": containers});
        bed.ok("POST", PODS, json!({"metadata": {"name": name}, "spec": spec})).await;
        settle().await;
        assert_eq!(bed.get(&format!("{PODS}/{name}")).await.1["status"]["phase"], phase);
    }
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
async fn collector_follows_owner_references() {
    let bed = Bed::new();
    let owner = bed.ok("POST", MAPS, map("owner")).await;
    bed.ok("POST", MAPS, owned("child", &owner, false)).await;
    let mut forged = owner.clone();
    forged["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    bed.ok("POST", MAPS, owned("forged", &forged, false)).await;
    settle().await;
    assert_eq!(bed.get(&format!("{MAPS}/forged")).await.0, 404, "its owner never existed");
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
async fn unresolvable_owner_keeps_its_dependents() {
    let bed = Bed::new();
    let references =
        |version: &str, kind: &str| json!([{"apiVersion": version, "kind": kind, "name": "x", "uid": "y"}]);
    let mut team = json!({"metadata": {"name": "team"}});
    team["metadata"]["ownerReferences"] = references("v1", "ConfigMap");
    bed.ok("POST", "/api/v1/namespaces", team).await;
    for (name, version, kind) in [
        ("group", "example.com/v1", "ConfigMap"),
        ("kind", "v1", "Nothing"),
        ("version", "apps/v9", "Deployment"),
    ] {
        let mut kept = map(name);
        kept["metadata"]["ownerReferences"] = references(version, kind);
        bed.ok("POST", MAPS, kept).await;
    }
    settle().await;
    assert_eq!(names(&bed.get(MAPS).await.1), ["group", "kind", "version"]);
    let team = bed.get("/api/v1/namespaces/team").await.1;
    assert_eq!(
        team["metadata"]["deletionTimestamp"],
        Value::Null,
        "a cluster-scoped object cannot have a namespaced owner"
    );
}

#[tokio::test(start_paused = true)]
async fn crd_deletion_collects_dependents_of_custom_objects() {
    let bed = Bed::new();
    bed.define_foos().await;
    let owner = bed.ok("POST", FOOS, foo("a")).await;
    let mut child = owned("child", &owner, false);
    for key in ["apiVersion", "kind"] {
        child["metadata"]["ownerReferences"][0][key] = owner[key].clone();
    }
    bed.ok("POST", MAPS, child).await;
    settle().await;
    assert_eq!(bed.get(&format!("{MAPS}/child")).await.0, 200);
    bed.ok("DELETE", &format!("{CRDS}/foos.example.com"), Value::Null).await;
    settle().await;
    assert_eq!(bed.get(&format!("{MAPS}/child")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let bed = Bed::new();
    block_foreground_deletion(&bed).await;
    bed.ok("PATCH", &format!("{MAPS}/child"), json!({"metadata": {"finalizers": null}})).await;
    settle().await;
    assert_eq!(bed.get(&format!("{MAPS}/owner")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_refuses_objects_and_is_emptied() {
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
async fn quota_is_checked_before_the_name() {
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
async fn crd_adds_and_removes_its_kind() {
    let bed = Bed::new();
    assert_eq!(bed.get(FOOS).await.0, 404);
    bed.define_foos().await;
    bed.ok("POST", FOOS, foo("a")).await;
    let crd = &format!("{CRDS}/foos.example.com");
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
async fn kind_is_served_while_its_crd_is_stored() {
    let bed = Bed::new();
    bed.define_foos().await;
    let mut held = foo("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    bed.ok("POST", FOOS, held).await;
    let defined = bed.sim.version();
    let mut watch = bed.watch(&format!("{FOOS}?watch=true&resourceVersion={defined}")).await;
    let crd = &format!("{CRDS}/foos.example.com");
    bed.ok("DELETE", crd, Value::Null).await;
    settle().await;
    assert_eq!(bed.get(FOOS).await.0, 200, "one object still exists");
    assert_eq!(watch.event().await, event("MODIFIED", "a"));
    bed.ok("PATCH", crd, json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(bed.get(FOOS).await.0, 404);
    assert_eq!(watch.next().await, None);
    assert!(bed.sim.roll_back(defined));
    assert_eq!(names(&bed.get(FOOS).await.1), ["a"]);

    let bed = Bed::new();
    let undefined = bed.sim.version();
    bed.define_foos().await;
    assert!(bed.sim.roll_back(undefined));
    assert_eq!(bed.get(FOOS).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn scope_and_kind_of_a_crd_are_immutable() {
    let bed = Bed::new();
    bed.define_foos().await;
    for (change, field) in [
        (json!({"spec": {"scope": "Cluster"}}), "spec.scope"),
        (json!({"spec": {"names": {"kind": "Bar"}}}), "spec.names.kind"),
    ] {
        let refused = bed.call("PATCH", &format!("{CRDS}/foos.example.com"), change).await;
        assert_eq!(reason(&refused), (422, "Invalid"));
        let cause = &refused.1["details"]["causes"][0];
        assert_eq!((&cause["field"], &cause["reason"]), (&json!(field), &json!("FieldValueInvalid")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_groups_most_stable_version_is_preferred() {
    let bed = Bed::new();
    bed.define_foos().await;
    let bars = json!({"metadata": {"name": "bars.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "bars", "kind": "Bar"},
        "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    bed.ok("POST", CRDS, bars).await;
    settle().await;
    let group = bed.get("/apis/example.com").await.1;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(group["versions"][1]["version"], "v1alpha1");
}

#[tokio::test(start_paused = true)]
async fn each_simulated_controller_can_be_disabled() {
    let world =
        Switches { collector: false, workloads: false, pods: false, quotas: false, ..Switches::default() };
    let bed = Bed::with(Settings { world, ..Settings::default() });
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "1"}}});
    bed.ok("POST", quotas, quota).await;
    settle().await;
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
    assert_eq!(bed.get(&format!("{quotas}/q")).await.1["status"], json!({}), "the quota is not enforced");
}

/// A dependent that drops its owner reference no longer blocks its owner.
#[tokio::test(start_paused = true)]
async fn foreground_deletion_ends_when_dependent_drops_reference() {
    let bed = Bed::new();
    block_foreground_deletion(&bed).await;
    bed.ok("PATCH", &format!("{MAPS}/child"), json!({"metadata": {"ownerReferences": null}})).await;
    settle().await;
    assert_eq!(bed.get(&format!("{MAPS}/owner")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn deployment_adopts_orphans_and_retries_after_quota() {
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
async fn crd_cannot_replace_a_built_in_kind() {
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

/// As on a real server: it runs on, and another one takes its place.
#[tokio::test(start_paused = true)]
async fn pod_with_other_labels_is_released() {
    let bed = Bed::new();
    bed.ok("POST", DEPLOYMENTS, deployment("web", 1)).await;
    settle().await;
    let name = bed.get(PODS).await.1["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("{PODS}/{name}");
    bed.ok("PATCH", &path, json!({"metadata": {"labels": {"pod-template-hash": null}}})).await;
    settle().await;
    assert!(bed.get(&path).await.1["metadata"]["ownerReferences"].is_null());
    assert_eq!(bed.get(PODS).await.1["items"].as_array().unwrap().len(), 2);
    bed.ok("DELETE", &format!("{DEPLOYMENTS}/web"), json!({})).await;
    settle().await;
    let left = bed.get(PODS).await.1["items"].take();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["metadata"]["name"]), (1, &json!(name)));
}

#[tokio::test(start_paused = true)]
async fn autoscaler_follows_the_load() {
    let bed = Bed::new();
    bed.ok("POST", DEPLOYMENTS, deployment("web", 1)).await;
    settle().await;
    let autoscalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5});
    bed.ok("POST", autoscalers, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    settle().await;
    let replicas = async || {
        settle().await;
        let web = bed.get(&format!("{DEPLOYMENTS}/web")).await.1;
        let seen = bed.get(&format!("{autoscalers}/web")).await.1;
        let active = seen["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["type"] == "ScalingActive");
        let reason = active.unwrap()["reason"].as_str().unwrap().to_owned();
        (web["spec"]["replicas"].clone(), seen["status"]["currentReplicas"].clone(), reason)
    };
    assert_eq!(
        replicas().await,
        (json!(2), json!(2), "FailedGetResourceMetric".to_owned()),
        "without a metric"
    );
    for (load, expected) in [("330", 5), ("1000", 5), ("80", 2), ("0", 2), ("240", 3)] {
        let annotations = json!({"windlass.dev/demo-load": load});
        bed.ok("PATCH", &format!("{autoscalers}/web"), json!({"metadata": {"annotations": annotations}}))
            .await;
        let found = replicas().await;
        assert_eq!(found, (json!(expected), json!(expected), "ValidMetricFound".to_owned()), "load {load}");
    }
    let version = bed.sim.version();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(bed.sim.version(), version, "it writes nothing at rest");
    // Without replicas it is switched off.
    bed.ok("PATCH", &format!("{DEPLOYMENTS}/web"), json!({"spec": {"replicas": 0}})).await;
    assert_eq!(replicas().await, (json!(0), json!(0), "ScalingDisabled".to_owned()));
    let able = async || {
        settle().await;
        let seen = bed.get(&format!("{autoscalers}/web")).await.1;
        let able =
            seen["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "AbleToScale");
        able.unwrap()["reason"].clone()
    };
    assert_eq!(able().await, "ReadyForNewScale");
    bed.ok("DELETE", &format!("{DEPLOYMENTS}/web"), json!({})).await;
    assert_eq!(able().await, "FailedGetScale");
}

/// The target's schema has a lower bound than the autoscaler.
#[tokio::test(start_paused = true)]
async fn autoscaler_does_not_scale_to_what_is_invalid() {
    use crate::api::samplecontroller::v1alpha1::Foo;
    let bed = Bed::new();
    bed.ok("POST", CRDS, json!(<Foo as kube_core::CustomResourceExt>::crd())).await;
    settle().await;
    let foos = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos";
    let api_version = "samplecontroller.k8s.io/v1alpha1";
    let foo = json!({"apiVersion": api_version, "kind": "Foo", "metadata": {"name": "web"},
        "spec": {"deploymentName": "web", "replicas": 2}});
    bed.ok("POST", foos, foo).await;
    let autoscalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let target = json!({"apiVersion": api_version, "kind": "Foo", "name": "web"});
    let metadata = json!({"name": "web", "annotations": {"windlass.dev/demo-load": "9999"}});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": 20});
    bed.ok("POST", autoscalers, json!({"metadata": metadata, "spec": spec})).await;
    settle().await;
    assert_eq!(bed.get(&format!("{foos}/web")).await.1["spec"]["replicas"], 2);
    let seen = bed.get(&format!("{autoscalers}/web")).await.1;
    let conditions = seen["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|one| one["reason"] == "FailedUpdateScale"), "{seen}");
}
