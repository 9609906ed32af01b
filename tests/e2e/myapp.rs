//! Behaviour of Myapp.

use kube_client::api::{DeleteParams, Patch, PatchParams};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{LedgerEntry, Scene, both_beds, condition_of, real_bed};

fn spec(more: &Value) -> Value {
    let mut spec = json!({"replicas": 2, "image": "nginx:1.27", "containerPort": 80, "servicePort": 8080});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

async fn scene(name: &str, more: &Value) -> Scene {
    let scene = Scene::new(name).await;
    scene.make("Myapp", "web", spec(more)).await;
    scene.until_ready("Myapp", "web").await;
    scene
}

#[apply(both_beds)]
async fn a_myapp_gets_deployment_service_and_ingress() {
    let scene = scene("myapp", &json!({"host": "web.example.com"})).await;
    let myapp = scene.look("Myapp", "web").await.unwrap();
    for kind in ["Deployment", "Service", "Ingress"] {
        let child = scene.look(kind, "web").await.unwrap();
        assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], myapp["metadata"]["uid"], "{kind}");
        assert_eq!(child["metadata"]["labels"]["app.kubernetes.io/managed-by"], "windlass", "{kind}");
    }
    let labels = json!({"app": "web", "release": "canary", "app.kubernetes.io/name": "myapp",
        "app.kubernetes.io/instance": "web"});
    let deployment = scene.look("Deployment", "web").await.unwrap();
    assert_eq!(deployment["spec"]["selector"], json!({"matchLabels": labels}));
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let [container] = &containers[..] else { panic!("expected one container: {containers:?}") };
    for (field, expected) in [("name", "web"), ("image", "nginx:1.27"), ("imagePullPolicy", "IfNotPresent")] {
        assert_eq!(container[field], expected, "{field}");
    }
    assert_eq!(container["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
    let service = scene.look("Service", "web").await.unwrap();
    assert_eq!(service["spec"]["selector"], labels);
    let port = &service["spec"]["ports"][0];
    assert_eq!(
        (&port["port"], &port["targetPort"], &service["spec"]["type"]),
        (&json!(8080), &json!(80), &json!("ClusterIP"))
    );
    let ingress = scene.look("Ingress", "web").await.unwrap();
    assert_eq!(ingress["spec"]["ingressClassName"], "nginx");
    let rule = &ingress["spec"]["rules"][0];
    let path = json!({"path": "/", "pathType": "Prefix",
        "backend": {"service": {"name": "web", "port": {"number": 8080}}}});
    assert_eq!(*rule, json!({"host": "web.example.com", "http": {"paths": [path]}}));
    let status = &myapp["status"];
    assert_eq!(
        (&status["status"], &status["replicas"], &status["readyReplicas"]),
        (&json!("Running"), &json!(2), &json!(2))
    );
    assert_eq!(status["labelSelector"], labels);
    let conflicts: Vec<_> = scene.writes().into_iter().filter(|write| write.code == 409).collect();
    assert_eq!(conflicts, [], "a key is not synced before the cache has seen its own writes");
}

#[apply(both_beds)]
async fn the_ingress_comes_and_goes_with_the_host() {
    let scene = scene("myapp-host", &json!({})).await;
    assert_eq!(scene.names("Ingress").await, Vec::<String>::new());
    scene.change("Myapp", "web", json!({"spec": {"host": "a.example.com"}})).await;
    scene.until_names("Ingress", &["web"]).await;
    scene.change("Myapp", "web", json!({"spec": {"host": null}})).await;
    scene.until_names("Ingress", &[]).await;
    scene.until_ready("Myapp", "web").await;
    let note = scene.until_event("Myapp", "web", "ChildDeleted").await;
    assert_eq!(note, "Deleted Ingress \"web\": spec.host is not set");
}

#[apply(both_beds)]
async fn manual_changes_are_reverted() {
    let scene = scene("myapp-drift", &json!({"host": "a.example.com"})).await;
    let address = scene.look("Service", "web").await.unwrap()["spec"]["clusterIP"].clone();
    scene.change("Ingress", "web", json!({"spec": {"rules": [{"host": "evil.example.com"}]}})).await;
    scene.until("Ingress", "web", "has its host", |i| i["spec"]["rules"][0]["host"] == "a.example.com").await;
    scene.change("Service", "web", json!({"spec": {"selector": {"app": "other"}}})).await;
    let service =
        scene.until("Service", "web", "selects its Pods", |s| s["spec"]["selector"]["app"] == "web").await;
    assert_eq!(service["spec"]["clusterIP"], address);
    scene.change("Deployment", "web", json!({"spec": {"replicas": 7}})).await;
    scene.until("Deployment", "web", "has its replicas", |d| d["spec"]["replicas"] == 2).await;
}

/// Returns fields whose Pods never become ready: no node has enough CPU, and the embedded bed never pulls the image.
fn never_ready() -> Value {
    json!({"image": "missing:1", "resources": {"requests": {"cpu": "5G"}}})
}

fn word(myapp: &Value) -> &Value {
    &myapp["status"]["status"]
}

#[apply(both_beds)]
async fn status_reports_pending_not_ready_and_running() {
    let scene = Scene::new("myapp-word").await;
    scene.make("Myapp", "stuck", spec(&never_ready())).await;
    let stuck = scene.until("Myapp", "stuck", "is Pending with its Pods", |myapp| {
        word(myapp) == "Pending" && myapp["status"]["replicas"] == 2
    });
    assert_eq!(stuck.await["status"]["readyReplicas"], 0);
    scene.make("Myapp", "web", spec(&json!({}))).await;
    let web = scene.until_ready("Myapp", "web").await;
    assert_eq!(word(&web), "Running");
    // The rollout deletes old Pods before the new ones are ready.
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    scene.change("Deployment", "web", json!({"spec": {"strategy": strategy}})).await;
    scene.change("Myapp", "web", json!({"spec": never_ready()})).await;
    let web = scene.until("Myapp", "web", "is NotReady", |myapp| word(myapp) == "NotReady").await;
    assert_eq!(web["status"]["readyReplicas"], 1);
    let back = json!({"spec": {"image": "nginx:1.28", "resources": null}});
    scene.change("Myapp", "web", back).await;
    assert_eq!(word(&scene.until_ready("Myapp", "web").await), "Running");
}

/// The Pods get an image that the embedded bed never pulls, because with any other image it makes them Ready again.
#[apply(both_beds)]
async fn status_is_not_ready_when_all_pods_fail() {
    let scene = scene("myapp-lost", &json!({})).await;
    let pods = scene.names("Pod").await;
    assert_eq!(pods.len(), 2);
    for pod in &pods {
        let missing = json!([{"name": "web", "image": "missing:1"}]);
        let spec = Patch::Strategic(json!({"spec": {"containers": missing}}));
        drop(scene.of("Pod").patch(pod, &PatchParams::default(), &spec).await.unwrap());
        let mut conditions = scene.look("Pod", pod).await.unwrap()["status"]["conditions"].clone();
        for condition in conditions.as_array_mut().unwrap() {
            if condition["type"] == "Ready" || condition["type"] == "ContainersReady" {
                condition["status"] = json!("False");
            }
        }
        let status = Patch::Merge(json!({"status": {"conditions": conditions}}));
        drop(scene.of("Pod").patch_status(pod, &PatchParams::default(), &status).await.unwrap());
    }
    let lost = scene.until("Myapp", "web", "has no ready Pod", |myapp| {
        myapp["status"]["readyReplicas"] == 0 && myapp["status"]["replicas"] == 2
    });
    let lost = lost.await;
    assert_eq!(word(&lost), "NotReady");
    assert_eq!(condition_of(&lost, "Ready").unwrap()["status"], "False");
    for pod in &pods {
        scene.unmake("Pod", pod, DeleteParams::default()).await;
    }
    assert_eq!(word(&scene.until_ready("Myapp", "web").await), "Running");
}

#[apply(both_beds)]
async fn status_is_failed_while_a_child_is_refused() {
    let scene = Scene::new("myapp-failed").await;
    // The quota does not affect the Deployment and its Pods.
    scene.make("ResourceQuota", "none", json!({"hard": {"services": "0"}})).await;
    scene.until("ResourceQuota", "none", "is in effect", |quota| quota["status"]["hard"].is_object()).await;
    scene.make("Myapp", "web", spec(&json!({}))).await;
    let web = scene
        .until("Myapp", "web", "is Failed with ready Pods", |myapp| {
            word(myapp) == "Failed" && myapp["status"]["readyReplicas"] == 2
        })
        .await;
    assert_eq!(condition_of(&web, "Ready").unwrap()["reason"], "ChildRefused");
    scene.unmake("ResourceQuota", "none", DeleteParams::default()).await;
    scene.until_gone("ResourceQuota", "none").await;
    scene.tried_again("Myapp", "web").await;
    assert_eq!(word(&scene.until_ready("Myapp", "web").await), "Running");
}

#[apply(real_bed)]
#[why = "the embedded bed's Deployments have no deadlines"]
async fn status_is_failed_after_the_rollout_deadline() {
    let scene = Scene::new("myapp-deadline").await;
    scene.make("Myapp", "web", spec(&never_ready())).await;
    scene.until("Deployment", "web", "exists", |deployment| !deployment.is_null()).await;
    scene.change("Deployment", "web", json!({"spec": {"progressDeadlineSeconds": 1}})).await;
    let web = scene.until("Myapp", "web", "is Failed", |myapp| word(myapp) == "Failed").await;
    let ready = condition_of(&web, "Ready").unwrap();
    assert!(ready["message"].as_str().unwrap().contains("ProgressDeadlineExceeded"), "{ready}");
}

/// The source document of Myapp selects Pods by a label that all Myapps in a namespace share.
#[apply(both_beds)]
async fn two_myapps_in_a_namespace_share_no_pod() {
    let scene = Scene::new("myapp-two").await;
    let mut found = Vec::new();
    for name in ["web", "shop"] {
        scene.make("Myapp", name, spec(&json!({}))).await;
        scene.until_ready("Myapp", name).await;
    }
    for name in ["web", "shop"] {
        let service = scene.look("Service", name).await.unwrap();
        let labels = service["spec"]["selector"].as_object().unwrap();
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap())).collect();
        let pods = scene.matching("Pod", &labels.join(",")).await;
        assert_eq!(pods.len(), 2, "the Service {name} selects its Pods");
        for pod in &pods {
            assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/instance"], name);
        }
        found.extend(pods.iter().map(|pod| pod["metadata"]["uid"].to_string()));
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 4, "no Pod is selected twice");
}

#[apply(both_beds)]
async fn update_keeps_allocated_and_foreign_fields() {
    let scene = scene("myapp-update", &json!({"host": "a.example.com"})).await;
    let before = scene.look("Service", "web").await.unwrap();
    let theirs = json!({
        "metadata": {"annotations": {"cert-manager.io/issuer": "theirs"}},
        "spec": {"tls": [{"hosts": ["a.example.com"], "secretName": "theirs"}]},
    });
    scene.change("Ingress", "web", theirs).await;
    let change = json!({"spec": {"servicePort": 9090, "containerPort": 81, "host": "b.example.com"}});
    scene.change("Myapp", "web", change).await;
    scene.until_ready("Myapp", "web").await;
    let after = scene.look("Service", "web").await.unwrap();
    for kept in ["/metadata/uid", "/spec/clusterIP", "/spec/clusterIPs"] {
        assert_eq!(after.pointer(kept), before.pointer(kept), "{kept}");
    }
    let port = &after["spec"]["ports"][0];
    assert_eq!((&port["port"], &port["targetPort"]), (&json!(9090), &json!(81)));
    let ingress = scene.look("Ingress", "web").await.unwrap();
    let rule = &ingress["spec"]["rules"][0];
    let backend = &rule["http"]["paths"][0]["backend"]["service"];
    assert_eq!((&rule["host"], &backend["port"]["number"]), (&json!("b.example.com"), &json!(9090)));
    assert_eq!(ingress["metadata"]["annotations"]["cert-manager.io/issuer"], "theirs");
    assert_eq!(ingress["spec"]["tls"][0]["secretName"], "theirs");
}

#[apply(both_beds)]
async fn removed_field_returns_to_its_default() {
    let more = json!({
        "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Mi"}},
    });
    let scene = scene("myapp-dropped", &more).await;
    let of_container = async || {
        let deployment = scene.look("Deployment", "web").await.unwrap();
        (
            deployment["spec"]["replicas"].clone(),
            deployment["spec"]["template"]["spec"]["containers"][0].clone(),
        )
    };
    let (replicas, container) = of_container().await;
    assert_eq!((&replicas, &container["env"][0]["name"]), (&json!(2), &json!("A")));
    assert_eq!(container["resources"]["limits"]["cpu"], "1");
    let none = json!({"spec": {"env": null, "resources": null, "replicas": null}});
    scene.change("Myapp", "web", none).await;
    scene.until_ready("Myapp", "web").await;
    let (replicas, container) = of_container().await;
    assert_eq!((&replicas, &container["env"]), (&json!(1), &Value::Null));
    let resources = container["resources"].as_object().cloned().unwrap_or_default();
    assert!(resources.values().all(|amounts| amounts == &json!({})), "{resources:?}");
}

/// The schema accepts strings and numbers and stores each as it is.
#[apply(both_beds)]
async fn quantity_may_be_a_number() {
    let divisor = json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": 1}});
    let more = json!({
        "resources": {"limits": {"cpu": 1}, "requests": {"cpu": 1}},
        "env": [{"name": "CORES", "valueFrom": divisor}],
    });
    let scene = scene("myapp-number", &more).await;
    assert_eq!(scene.look("Myapp", "web").await.unwrap()["spec"]["resources"]["limits"]["cpu"], 1);
    let deployment = scene.look("Deployment", "web").await.unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["cpu"], "1");
    assert_eq!(container["env"][0]["valueFrom"]["resourceFieldRef"]["divisor"], "1");
    let app =
        json!({"replicas": 1, "image": "nginx:1.27", "resources": more["resources"], "envs": more["env"]});
    scene.make("AppService", "app", app).await;
    scene.until_ready("AppService", "app").await;
    let of_children = |write: &LedgerEntry| write.verb == "patch" && write.resource == "deployments";
    let updates = scene.writes().into_iter().filter(of_children);
    assert_eq!(updates.collect::<Vec<_>>(), [], "a number equals the same quantity as a string");
}
