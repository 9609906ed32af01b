//! AppService does what its specification says.

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{Scene, both_beds, condition_of};

fn spec(ports: &Value) -> Value {
    json!({"replicas": 2, "image": "nginx:1.27", "ports": ports})
}

const APPLIED: &str = "batch.schwarzeni.github.com/applied-spec";

#[apply(both_beds)]
async fn an_appservice_gets_deployment_and_service() {
    let scene = Scene::new("appservice").await;
    scene.make("AppService", "web", spec(&json!([{"port": 80, "targetPort": 8080}]))).await;
    let app = scene.until_ready("AppService", "web").await;
    let service = scene.look("Service", "web").await.unwrap();
    assert_eq!(
        (&service["spec"]["type"], &service["spec"]["ports"][0]["targetPort"]),
        (&json!("NodePort"), &json!(8080))
    );
    assert!(service["spec"]["ports"][0]["nodePort"].is_number());
    let deployment = scene.look("Deployment", "web").await.unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["ports"][0]["containerPort"], &container["imagePullPolicy"]),
        (&json!(8080), &json!("IfNotPresent"))
    );
    assert_eq!((&app["status"]["replicas"], &app["status"]["availableReplicas"]), (&json!(2), &json!(2)));
    let available = condition_of(&app, "Available").expect("the Deployment's condition is shown");
    assert_eq!(available["status"], "True");
    let applied = scene
        .until("AppService", "web", "has the applied spec", |app| {
            !app["metadata"]["annotations"][APPLIED].is_null()
        })
        .await;
    let recorded: Value =
        serde_json::from_str(applied["metadata"]["annotations"][APPLIED].as_str().unwrap()).unwrap();
    assert_eq!(recorded, applied["spec"], "the spec as stored, after defaults");
}

#[apply(both_beds)]
async fn a_node_port_that_is_taken_is_reported_and_heals() {
    let scene = Scene::new("appservice-port").await;
    let first = scene
        .make_whole(
            "Service",
            json!({"metadata": {"name": "first"}, "spec": {"type": "NodePort", "ports": [{"port": 1}]}}),
        )
        .await;
    let taken = &first["spec"]["ports"][0]["nodePort"];
    scene.make("AppService", "web", spec(&json!([{"port": 80, "nodePort": taken}]))).await;
    let app = scene.until_reason("AppService", "web", "ChildRefused").await;
    let message = condition_of(&app, "Ready").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("provided port is already allocated"), "{message}");
    scene.make("AppService", "other", spec(&json!([{"port": 80}]))).await;
    scene.until_ready("AppService", "other").await;
    scene.unmake("Service", "first", Default::default()).await;
    scene.change("AppService", "web", json!({"spec": {"replicas": 1}})).await;
    scene.until_ready("AppService", "web").await;
}
