use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use serde_json::{Value, json};

use super::*;
use crate::controller::Fixture;
use crate::controller::Outcome;

async fn fixture() -> Fixture<MyappSync> {
    Fixture::new(|caches| MyappSync {
        deployments: caches.lister(),
        services: caches.lister(),
        ingresses: caches.lister(),
    })
    .await
}

fn spec(more: &Value) -> Value {
    let mut spec = json!({"replicas": 2, "image": "nginx:1.27", "containerPort": 80, "servicePort": 8080});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

async fn edit(f: &mut Fixture<MyappSync>, edit: impl FnOnce(&mut Value)) {
    f.edit::<Myapp>("web", edit).await;
    f.catch_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_myapp_gets_its_children() {
    let mut f = fixture().await;
    f.create("web", spec(&json!({"host": "web.example.com"}))).await;
    let (_, asked) = f.sync("web").await;
    let writes: Vec<&String> = asked.iter().filter(|asked| !asked.starts_with("get")).collect();
    assert_eq!(
        writes,
        ["create deployments", "create services", "create ingresses", "update myapps/web/status"]
    );
    let note = "Created Deployment \"web\", Service \"web\", Ingress \"web\"";
    assert_eq!(f.notes(), [("ChildCreated", note.to_owned())], "one event for all three");
    assert_eq!(f.status("web").await["status"], "Pending");
    let service = f.get::<Service>("web").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 80);
    assert_eq!(service["metadata"]["ownerReferences"][0]["kind"], "Myapp");
    let ingress = f.get::<Ingress>("web").await.unwrap();
    assert_eq!(ingress["spec"]["ingressClassName"], "nginx");
    assert_eq!(ingress["spec"]["rules"][0]["host"], "web.example.com");
}

#[tokio::test(start_paused = true)]
async fn a_converged_myapp_sends_nothing() {
    let mut f = fixture().await;
    let full = json!({"host": "*.example.com",
        "resources": {"limits": {"cpu": "1000m", "memory": "1Gi"}, "requests": {"cpu": "0.5"}},
        "env": [{"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]});
    f.create("web", spec(&full)).await;
    f.converge("web").await;
    assert_eq!(f.ready("web").await, (true, "Available".to_owned()));
    let status = f.status("web").await;
    assert_eq!((&status["status"], &status["readyReplicas"]), (&json!("Running"), &json!(2)));
    assert_eq!(status["labelSelector"]["release"], "canary");
    for _ in 0..3 {
        assert_eq!(f.sync("web").await, (Outcome::Done, vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn the_ingress_follows_the_host() {
    let mut f = fixture().await;
    f.create("web", spec(&json!({}))).await;
    f.converge("web").await;
    assert_eq!(f.names::<Ingress>().await, Vec::<String>::new());
    edit(&mut f, |myapp| myapp["spec"]["host"] = json!("a.example.com")).await;
    f.converge("web").await;
    f.events();
    edit(&mut f, |myapp| myapp["spec"]["host"] = json!("b.example.com")).await;
    f.converge("web").await;
    assert_eq!(f.get::<Ingress>("web").await.unwrap()["spec"]["rules"][0]["host"], "b.example.com");
    assert_eq!(f.events(), [""; 0], "it was asked for");
    edit(&mut f, |myapp| {
        myapp["spec"].as_object_mut().unwrap().remove("host");
    })
    .await;
    f.converge("web").await;
    assert_eq!(f.names::<Ingress>().await, Vec::<String>::new());
    assert_eq!(f.notes(), [("ChildDeleted", "Deleted Ingress \"web\": spec.host is not set".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn taken_child_name_does_not_block_other_children() {
    let mut f = fixture().await;
    f.put::<Service>(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 1}]}})).await;
    f.create("web", spec(&json!({"host": "a.example.com"}))).await;
    let (outcome, _) = f.sync("web").await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(30)) });
    assert_eq!(f.ready("web").await, (false, "ResourceExists".to_owned()));
    assert_eq!(
        (f.names::<Deployment>().await, f.names::<Ingress>().await.len()),
        (vec!["web".to_owned()], 1)
    );
    assert_eq!(f.events(), ["ChildCreated", "ErrResourceExists"]);
    assert_eq!(f.get::<Service>("web").await.unwrap()["spec"]["ports"][0]["port"], 1);
    f.delete::<Service>("web").await;
    f.pass_time(Duration::from_secs(30)).await;
    f.converge("web").await;
    assert!(f.ready("web").await.0, "the Myapp recovers");
}

#[tokio::test(start_paused = true)]
async fn fields_dropped_from_spec_return_to_defaults() {
    let mut f = fixture().await;
    let more = json!({"resources": {"limits": {"cpu": "1"}}, "env": [{"name": "A", "value": "1"}]});
    f.create("web", spec(&more)).await;
    f.converge("web").await;
    edit(&mut f, |myapp| myapp["spec"] = spec(&json!({}))).await;
    f.converge("web").await;
    let deployment = f.get::<Deployment>("web").await.unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert!(container["env"].is_null() && container["resources"].as_object().is_none_or(|r| r.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn hand_edits_are_repaired_and_events_name_fields() {
    let mut f = fixture().await;
    f.create("web", spec(&json!({"host": "a.example.com"}))).await;
    f.converge("web").await;
    let address = f.get::<Service>("web").await.unwrap()["spec"]["clusterIP"].clone();
    f.events();
    f.edit::<Deployment>("web", |live| live["spec"]["replicas"] = json!(9)).await;
    f.edit::<Service>("web", |live| live["spec"]["ports"][0]["port"] = json!(9)).await;
    f.edit::<Ingress>("web", |live| live["spec"]["rules"][0]["host"] = json!("evil.example.com")).await;
    f.catch_up().await;
    f.sync("web").await;
    let notes = f.notes();
    assert!(notes.iter().all(|(reason, _)| *reason == "ChildRepaired"), "{notes:?}");
    let text = notes.into_iter().map(|(_, note)| note).collect::<Vec<_>>().join("\n");
    for field in ["spec.replicas was 9, wanted 2", "spec.ports", "spec.rules"] {
        assert!(text.contains(field), "{field} is not in {text}");
    }
    assert_eq!(f.get::<Service>("web").await.unwrap()["spec"]["clusterIP"], address);
    assert_eq!(f.get::<Ingress>("web").await.unwrap()["spec"]["rules"][0]["host"], "a.example.com");
}

#[tokio::test(start_paused = true)]
async fn extra_key_in_status_map_is_removed() {
    let mut f = fixture().await;
    f.create("web", spec(&json!({}))).await;
    f.converge("web").await;
    f.edit_status::<Myapp>("web", json!({"labelSelector": {"extra": "x"}})).await;
    assert_eq!(f.status("web").await["labelSelector"]["extra"], "x");
    f.catch_up().await;
    assert_eq!(f.sync("web").await.1, ["update myapps/web/status"]);
    assert_eq!(f.status("web").await["labelSelector"]["extra"], Value::Null);
    assert_eq!(f.sync("web").await.1, Vec::<String>::new(), "one patch suffices");
}

#[tokio::test(start_paused = true)]
async fn phase_describes_the_applied_spec_while_paused() {
    let mut f = fixture().await;
    f.create("web", spec(&json!({}))).await;
    f.converge("web").await;
    edit(&mut f, |myapp| {
        myapp["metadata"]["annotations"] = json!({"windlass.dev/paused": "true"});
        myapp["spec"]["replicas"] = json!(5);
    })
    .await;
    f.sync("web").await;
    assert_eq!(f.status("web").await["status"], "Running");
    assert_eq!(f.ready("web").await, (true, "Available".to_owned()));
}
