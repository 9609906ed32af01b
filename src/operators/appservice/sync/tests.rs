use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::*;
use crate::controller::Fixture;
use crate::controller::Outcome;
use crate::sim::{Action, Fault, When};
use crate::workqueue::Reasons;

async fn fixture() -> Fixture<AppServiceSync> {
    Fixture::new(|caches| AppServiceSync { deployments: caches.lister(), services: caches.lister() }).await
}

fn spec(ports: &Value) -> Value {
    json!({"replicas": 2, "image": "nginx:1.27", "ports": ports})
}

async fn edit(f: &mut Fixture<AppServiceSync>, edit: impl FnOnce(&mut Value)) {
    f.edit::<AppService>("web", edit).await;
    f.catch_up().await;
}

fn applied(app: &Value) -> Value {
    serde_json::from_str(app["metadata"]["annotations"][APPLIED_SPEC].as_str().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_converged_appservice_sends_nothing() {
    let mut f = fixture().await;
    f.create(
        "web",
        spec(&json!([{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}])),
    )
    .await;
    f.converge("web").await;
    assert_eq!(f.ready("web").await, (true, "Available".to_owned()));
    let status = f.status("web").await;
    assert_eq!((&status["replicas"], &status["availableReplicas"]), (&json!(2), &json!(2)));
    let conditions = status["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|condition| condition["type"] == "Available"), "{conditions:?}");
    let service = f.get::<Service>("web").await.unwrap();
    assert_eq!(service["spec"]["type"], "NodePort");
    assert!(service["spec"]["ports"].as_array().unwrap().iter().all(|port| port["nodePort"].is_number()));
    for _ in 0..3 {
        assert_eq!(f.sync("web").await, (Outcome::Done, vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_follows_the_ports() {
    let mut f = fixture().await;
    f.create("web", spec(&json!([]))).await;
    f.converge("web").await;
    assert_eq!(f.names::<Service>().await, Vec::<String>::new());
    edit(&mut f, |app| app["spec"]["ports"] = json!([{"port": 80}])).await;
    f.converge("web").await;
    let before = f.get::<Service>("web").await.unwrap();
    edit(&mut f, |app| app["spec"]["ports"] = json!([{"port": 80, "targetPort": 8080}])).await;
    f.converge("web").await;
    let after = f.get::<Service>("web").await.unwrap();
    for kept in ["/spec/clusterIP", "/spec/ports/0/nodePort"] {
        assert_eq!(before.pointer(kept), after.pointer(kept), "values allocated by the server are kept");
    }
    edit(&mut f, |app| app["spec"]["ports"] = json!([])).await;
    f.converge("web").await;
    assert_eq!(f.names::<Service>().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_applied_spec_is_recorded_when_it_changes() {
    let mut f = fixture().await;
    f.create("web", spec(&json!([{"port": 80}]))).await;
    let (_, asked) = f.sync("web").await;
    assert_eq!(asked.iter().filter(|asked| *asked == "patch appservices/web").count(), 1);
    let app = f.get::<AppService>("web").await.unwrap();
    assert_eq!(applied(&app)["image"], "nginx:1.27");
    f.converge("web").await;
    edit(&mut f, |app| app["metadata"]["labels"] = json!({"a": "b"})).await;
    assert_eq!(f.sync("web").await.1, Vec::<String>::new());
    edit(&mut f, |app| app["spec"]["replicas"] = json!(3)).await;
    f.converge("web").await;
    assert_eq!(applied(&f.get::<AppService>("web").await.unwrap())["replicas"], 3);
}

/// In the source document, one lost write of the annotation breaks the resource for good.
#[tokio::test(start_paused = true)]
async fn a_conflict_on_the_annotation_breaks_nothing() {
    let mut f = fixture().await;
    f.create("web", spec(&json!([{"port": 80}]))).await;
    f.sim.fault(Fault::new(
        When::verb("patch").resource("appservices").times(1),
        Action::refuse(409, "Conflict"),
    ));
    assert!(f.pass("web", &Reasons::default()).await.0.is_err());
    f.catch_up().await;
    f.converge("web").await;
    edit(&mut f, |app| app["metadata"]["annotations"] = json!({APPLIED_SPEC: "nonsense"})).await;
    f.edit::<Deployment>("web", |live| live["spec"]["replicas"] = json!(7)).await;
    f.catch_up().await;
    f.converge("web").await;
    assert_eq!(f.get::<Deployment>("web").await.unwrap()["spec"]["replicas"], 2, "a hand edit is repaired");
    assert!(f.ready("web").await.0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_service_is_reported_and_heals() {
    let mut f = fixture().await;
    f.put::<Service>(json!({"metadata": {"name": "first"},
        "spec": {"type": "NodePort", "ports": [{"port": 1, "nodePort": 30080}]}}))
        .await;
    f.create("web", spec(&json!([{"port": 80, "nodePort": 30080}]))).await;
    let (outcome, _) = f.sync("web").await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(120)) });
    assert_eq!(f.ready("web").await, (false, "ChildRefused".to_owned()));
    let status = f.status("web").await.to_string();
    assert!(status.contains("provided port is already allocated"), "{status}");
    f.delete::<Service>("first").await;
    f.pass_time(Duration::from_secs(120)).await;
    f.converge("web").await;
    assert!(f.ready("web").await.0);
}

/// The order has no meaning, and writing it would roll all Pods.
#[tokio::test(start_paused = true)]
async fn reordered_ports_write_no_child() {
    let mut f = fixture().await;
    let ports = [json!({"name": "a", "port": 80}), json!({"name": "b", "port": 81, "targetPort": "web"})];
    f.create("web", spec(&json!(ports))).await;
    f.converge("web").await;
    let before = f.get::<Deployment>("web").await.unwrap();
    edit(&mut f, |app| app["spec"]["ports"] = json!([ports[1], ports[0]])).await;
    let (_, asked) = f.sync("web").await;
    assert_eq!(asked, ["patch appservices/web", "update appservices/web/status"]);
    f.edit::<Deployment>("web", |live| {
        live["spec"]["template"]["spec"]["containers"][0]["ports"].as_array_mut().unwrap().reverse();
    })
    .await;
    f.catch_up().await;
    f.sync("web").await;
    let after = f.get::<Deployment>("web").await.unwrap();
    let ports = |live: &Value| live["spec"]["template"]["spec"]["containers"][0]["ports"].clone();
    assert_eq!(
        (ports(&after)[0].clone(), ports(&after)[1].clone()),
        (ports(&before)[1].clone(), ports(&before)[0].clone())
    );
    assert!(f.events().iter().all(|reason| *reason == "ChildCreated"), "reordering records no event");
}
