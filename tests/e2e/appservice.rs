//! Behaviour of AppService.

use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use windlass::sim::{Action, Fault, When};

use crate::support::{Bed, LedgerEntry, Scene, both_beds, condition_of, real_bed, wait_until};

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
    assert_eq!(container["name"], "web");
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
    assert_eq!(recorded, applied["spec"], "the annotation holds the stored spec, with defaults");
}

#[apply(both_beds)]
async fn taken_node_port_is_reported_and_heals() {
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

async fn scene(name: &str, ports: &Value) -> Scene {
    let scene = Scene::new(name).await;
    scene.make("AppService", "web", spec(ports)).await;
    scene.until_ready("AppService", "web").await;
    scene
}

/// Returns the Service's ports: name, number, protocol, target.
async fn ports_of(scene: &Scene) -> Vec<[Value; 4]> {
    let service = scene.look("Service", "web").await.unwrap();
    let ports = service["spec"]["ports"].as_array().unwrap();
    let fields = ["name", "port", "protocol", "targetPort"];
    ports.iter().map(|port| fields.map(|field| port[field].clone())).collect()
}

async fn node_ports(scene: &Scene) -> Vec<Value> {
    let service = scene.look("Service", "web").await.unwrap();
    let ports = service["spec"]["ports"].as_array().unwrap();
    ports.iter().map(|port| port["nodePort"].clone()).collect()
}

/// Returns the container's ports: name, number, protocol.
async fn container_ports(scene: &Scene) -> Vec<[Value; 3]> {
    let deployment = scene.look("Deployment", "web").await.unwrap();
    let ports = &deployment["spec"]["template"]["spec"]["containers"][0]["ports"];
    let fields = ["name", "containerPort", "protocol"];
    ports.as_array().into_iter().flatten().map(|port| fields.map(|field| port[field].clone())).collect()
}

/// Counts the writes of the annotation.
fn annotated(scene: &Scene) -> usize {
    let of_object = |write: &LedgerEntry| write.resource == "appservices" && write.verb == "patch";
    let writes = scene.writes().into_iter().filter(of_object);
    writes.filter(|write| !write.uri.contains("/status") && write.code == 200).count()
}

async fn until_applied(scene: &Scene) {
    let is_applied = |app: &Value| {
        let recorded = app["metadata"]["annotations"][APPLIED].as_str();
        let recorded: Option<Value> = recorded.and_then(|text| serde_json::from_str(text).ok());
        recorded.as_ref() == Some(&app["spec"])
    };
    scene.until("AppService", "web", "has its spec in the annotation", is_applied).await;
}

#[apply(both_beds)]
async fn the_service_comes_and_goes_with_the_ports() {
    let scene = scene("appservice-ports", &json!([])).await;
    assert_eq!(scene.names("Service").await, Vec::<String>::new());
    assert_eq!(container_ports(&scene).await, Vec::<[Value; 3]>::new());
    scene.change("AppService", "web", json!({"spec": {"ports": [{"port": 80}]}})).await;
    scene.until_names("Service", &["web"]).await;
    scene.until_ready("AppService", "web").await;
    scene.change("AppService", "web", json!({"spec": {"ports": null}})).await;
    scene.until_names("Service", &[]).await;
    scene.until_ready("AppService", "web").await;
    assert_eq!(container_ports(&scene).await, Vec::<[Value; 3]>::new());
    let note = scene.until_event("AppService", "web", "ChildDeleted").await;
    assert_eq!(note, "Deleted Service \"web\": spec.ports is empty");
}

#[apply(both_beds)]
async fn ports_have_names_targets_and_protocols() {
    let ports = json!([
        {"name": "http", "port": 80, "targetPort": "web"},
        {"name": "admin", "port": 8080, "targetPort": 9090},
        {"name": "dns-udp", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53},
    ]);
    let scene = scene("appservice-names", &ports).await;
    let expected = [
        [json!("http"), json!(80), json!("TCP"), json!("web")],
        [json!("admin"), json!(8080), json!("TCP"), json!(9090)],
        [json!("dns-udp"), json!(53), json!("UDP"), json!(53)],
        [json!("dns-tcp"), json!(53), json!("TCP"), json!(53)],
    ];
    assert_eq!(ports_of(&scene).await, expected);
    let expected = [
        [json!("web"), json!(80), json!("TCP")],
        [Value::Null, json!(9090), json!("TCP")],
        [Value::Null, json!(53), json!("UDP")],
        [Value::Null, json!(53), json!("TCP")],
    ];
    assert_eq!(container_ports(&scene).await, expected, "a named target port has its port's number");
    assert!(node_ports(&scene).await.iter().all(Value::is_number));
    // Of the two ports with the same number, remove only the UDP one.
    let fewer = json!([ports[0], ports[3]]);
    scene.change("AppService", "web", json!({"spec": {"ports": fewer}})).await;
    scene
        .until("Service", "web", "has 2 ports", |s| s["spec"]["ports"].as_array().map(Vec::len) == Some(2))
        .await;
    scene.until_ready("AppService", "web").await;
    assert_eq!(ports_of(&scene).await[1][..3], [json!("dns-tcp"), json!(53), json!("TCP")]);
}

/// The server lets a TCP and a UDP port with the same number share a node port, in a new and in an updated Service.
#[apply(both_beds)]
async fn tcp_and_udp_port_may_share_node_port() {
    let shared = json!([{"name": "udp", "port": 53, "protocol": "UDP"}, {"name": "tcp", "port": 53}]);
    let scene = scene("appservice-shared", &shared).await;
    let given = node_ports(&scene).await;
    assert_eq!(given[0], given[1], "the server allocates one node port per port number");
    let asked: Vec<Value> = shared
        .as_array()
        .unwrap()
        .iter()
        .map(|port| {
            let mut port = port.clone();
            port["nodePort"] = given[0].clone();
            port["port"] = json!(54);
            port
        })
        .collect();
    scene.change("AppService", "web", json!({"spec": {"ports": asked}})).await;
    scene.until("Service", "web", "has its new ports", |s| s["spec"]["ports"][1]["port"] == 54).await;
    scene.until_ready("AppService", "web").await;
    assert_eq!(node_ports(&scene).await, given);
    let errors = scene.writes().into_iter().filter(|write| write.code >= 500);
    assert_eq!(errors.collect::<Vec<_>>(), []);
}

#[apply(both_beds)]
async fn an_update_keeps_address_and_node_ports() {
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let scene = scene("appservice-update", &ports).await;
    let before = scene.look("Service", "web").await.unwrap();
    let given = node_ports(&scene).await;
    // Port b gets another target, and port c is added in front.
    let more = json!([
        {"name": "c", "port": 82},
        {"name": "b", "port": 81, "targetPort": 8081},
        {"name": "a", "port": 80},
    ]);
    scene.change("AppService", "web", json!({"spec": {"image": "nginx:1.28", "ports": more}})).await;
    scene
        .until("Service", "web", "has 3 ports", |s| s["spec"]["ports"].as_array().map(Vec::len) == Some(3))
        .await;
    scene.until_ready("AppService", "web").await;
    let after = scene.look("Service", "web").await.unwrap();
    for kept in ["/metadata/uid", "/spec/clusterIP"] {
        assert_eq!(after.pointer(kept), before.pointer(kept), "{kept}");
    }
    let now = node_ports(&scene).await;
    assert_eq!((&now[1], &now[2]), (&given[1], &given[0]));
    assert!(now[0].is_number() && !given.contains(&now[0]));
    // The operator does not revert the ports that the server allocated.
    let updates = scene.writes().into_iter().filter(|w| w.verb == "patch" && w.resource == "services");
    assert_eq!(updates.count(), 1);
}

#[apply(both_beds)]
async fn freed_node_port_heals_without_a_new_spec() {
    let scene = Scene::new("appservice-freed").await;
    let theirs = json!({"type": "NodePort", "ports": [{"port": 1}]});
    let theirs = scene.make("Service", "first", theirs).await;
    let taken = &theirs["spec"]["ports"][0]["nodePort"];
    scene.make("AppService", "web", spec(&json!([{"port": 80, "nodePort": taken}]))).await;
    let app = scene.until_reason("AppService", "web", "ChildRefused").await;
    assert_eq!(condition_of(&app, "Stalled").unwrap()["status"], "True");
    let message = condition_of(&app, "Ready").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("The API server refuses Service \"web\": spec.ports[0].nodePort: "),
        "{message}"
    );
    // The other child and other AppServices are not affected.
    scene.until("AppService", "web", "has its Pods", |app| app["status"]["availableReplicas"] == 2).await;
    scene.make("AppService", "other", spec(&json!([{"port": 80}]))).await;
    scene.until_ready("AppService", "other").await;
    scene.tried_again("AppService", "web").await;
    scene.unmake("Service", "first", DeleteParams::default()).await;
    scene.until_gone("Service", "first").await;
    scene.tried_again("AppService", "web").await;
    let app = scene.until_ready("AppService", "web").await;
    assert_eq!(app["metadata"]["generation"], 1, "the spec has not changed");
    assert_eq!(&node_ports(&scene).await[0], taken);
    let events = scene.events_about("AppService", "web").await;
    assert_eq!(events.iter().filter(|(reason, _)| reason == "ChildRefused").count(), 1, "{events:?}");
}

#[apply(both_beds)]
async fn applied_spec_is_written_only_when_spec_changes() {
    let scene = scene("appservice-applied", &json!([{"port": 80}])).await;
    until_applied(&scene).await;
    assert_eq!(annotated(&scene), 1);
    // Changes of a child or of a label do not change the spec.
    scene.change("Deployment", "web", json!({"spec": {"replicas": 5}})).await;
    scene.until("Deployment", "web", "is repaired", |d| d["spec"]["replicas"] == 2).await;
    scene.change("AppService", "web", json!({"metadata": {"labels": {"team": "a"}}})).await;
    scene.until_ready("AppService", "web").await;
    scene.rest().await;
    assert_eq!(annotated(&scene), 1);
    scene.change("AppService", "web", json!({"spec": {"replicas": 3}})).await;
    until_applied(&scene).await;
    scene.until_ready("AppService", "web").await;
    assert_eq!(annotated(&scene), 2);
    // A change of the annotation has no effect on the children.
    scene.change("AppService", "web", json!({"metadata": {"annotations": {APPLIED: "{}"}}})).await;
    until_applied(&scene).await;
    let deployment = scene.look("Deployment", "web").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 3);
}

/// In the source document of AppService a single conflict before that write breaks the resource permanently.
#[apply(both_beds)]
async fn a_conflict_on_the_annotation_does_no_harm() {
    let scene = scene("appservice-conflict", &json!([{"port": 80}])).await;
    until_applied(&scene).await;
    if let Bed::Embedded(bed) = &scene.bed {
        let first = When::verb("patch").resource("appservices").user(&scene.user()).times(2);
        bed.sim.fault(Fault::new(first, Action::refuse(409, "Conflict")));
    }
    for replicas in [3, 4, 5] {
        scene.change("AppService", "web", json!({"spec": {"replicas": replicas}})).await;
        // On the real bed these concurrent patches cause the conflicts.
        for at in 0..5 {
            let note = json!({"metadata": {"annotations": {"note": format!("{replicas}-{at}")}}});
            scene.change("AppService", "web", note).await;
        }
    }
    scene.until_ready("AppService", "web").await;
    until_applied(&scene).await;
    assert_eq!(scene.look("Deployment", "web").await.unwrap()["spec"]["replicas"], 5);
    if let Bed::Embedded(_) = &scene.bed {
        let conflicts = scene.writes().into_iter().filter(|write| write.code == 409).count();
        assert_eq!(conflicts, 2, "both injected conflicts occurred");
    }
}

#[apply(both_beds)]
async fn status_mirrors_the_deployment() {
    let scene = scene("appservice-status", &json!([])).await;
    wait_until("the status mirrors the Deployment's", async || {
        let app = scene.look("AppService", "web").await.unwrap();
        let deployment = scene.look("Deployment", "web").await.unwrap();
        let shown = |object: &Value| {
            let numbers = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
            let numbers = numbers.map(|field| object["status"][field].clone());
            let conditions = ["Available", "Progressing", "ReplicaFailure"].map(|type_| {
                let found = condition_of(object, type_)?;
                Some(["status", "reason", "message"].map(|field| found[field].clone()))
            });
            (numbers, conditions)
        };
        if shown(&app) == shown(&deployment) { Ok(()) } else { Err([app, deployment]) }
    })
    .await;
    let app = scene.look("AppService", "web").await.unwrap();
    let numbers = (&app["status"]["availableReplicas"], &app["status"]["unavailableReplicas"]);
    assert_eq!(numbers, (&json!(2), &json!(0)));
    assert!(
        condition_of(&app, "Available").is_some() && condition_of(&app, "Progressing").is_some(),
        "{app}"
    );
    // The observed generation is the AppService's, not the Deployment's.
    let by_hand = json!({"spec": {"minReadySeconds": 1}});
    scene.change("Deployment", "web", by_hand).await;
    scene.change("AppService", "web", json!({"spec": {"replicas": 3}})).await;
    let app = scene.until_ready("AppService", "web").await;
    let deployment = scene.look("Deployment", "web").await.unwrap();
    assert_eq!(
        (&app["status"]["observedGeneration"], &deployment["metadata"]["generation"]),
        (&json!(2), &json!(3))
    );
}

#[apply(both_beds)]
async fn zero_wanted_replicas_are_ready() {
    let scene = Scene::new("appservice-none").await;
    scene.make("AppService", "web", json!({"replicas": 0, "image": "nginx:1.27"})).await;
    let app = scene.until_ready("AppService", "web").await;
    assert_eq!(condition_of(&app, "Ready").unwrap()["message"], "0 of 0 replicas are available");
    scene.change("AppService", "web", json!({"spec": {"replicas": 2}})).await;
    assert_eq!(scene.until_ready("AppService", "web").await["status"]["replicas"], 2);
    scene.change("AppService", "web", json!({"spec": {"replicas": 0}})).await;
    assert_eq!(scene.until_ready("AppService", "web").await["status"]["replicas"], 0);
}

#[apply(real_bed)]
#[why = "the embedded bed's ReplicaSets do not report failed creations"]
async fn failed_pod_creation_sets_a_condition() {
    let scene = Scene::new("appservice-failure").await;
    scene.make("ResourceQuota", "none", json!({"hard": {"pods": "0"}})).await;
    scene.until("ResourceQuota", "none", "is in effect", |quota| quota["status"]["hard"].is_object()).await;
    scene.make("AppService", "web", spec(&json!([]))).await;
    let app = scene
        .until("AppService", "web", "has a ReplicaFailure", |app| {
            condition_of(app, "ReplicaFailure").is_some_and(|failure| failure["status"] == "True")
        })
        .await;
    let ready = condition_of(&app, "Ready").unwrap();
    assert_eq!(ready["status"], "False");
    assert!(ready["message"].as_str().unwrap().contains("exceeded quota"), "{ready}");
}
