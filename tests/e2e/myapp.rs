//! Myapp does what its specification says.

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{Scene, both_beds};

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
    let service = scene.look("Service", "web").await.unwrap();
    let port = &service["spec"]["ports"][0];
    assert_eq!(
        (&port["port"], &port["targetPort"], &service["spec"]["type"]),
        (&json!(8080), &json!(80), &json!("ClusterIP"))
    );
    let ingress = scene.look("Ingress", "web").await.unwrap();
    assert_eq!(ingress["spec"]["ingressClassName"], "nginx");
    let rule = &ingress["spec"]["rules"][0];
    assert_eq!(
        (&rule["host"], &rule["http"]["paths"][0]["pathType"]),
        (&json!("web.example.com"), &json!("Prefix"))
    );
    let status = &myapp["status"];
    assert_eq!(
        (&status["status"], &status["replicas"], &status["readyReplicas"]),
        (&json!("Running"), &json!(2), &json!(2))
    );
    assert_eq!(status["labelSelector"]["release"], "canary");
    let conflicts: Vec<_> = scene.writes().into_iter().filter(|write| write.code == 409).collect();
    assert_eq!(conflicts, [], "a key waits until the caches have seen its own writes");
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
    assert_eq!(note, "Deleted Ingress \"web\": spec.host is empty now");
}

#[apply(both_beds)]
async fn what_was_changed_by_hand_is_put_back() {
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
