mod renames;

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use super::*;
use crate::controller::{Fixture, Outcome};
use crate::record::EventType;
use crate::sim::{Action, Fault, When};

async fn fixture() -> Fixture<FooSync> {
    Fixture::new(|caches| FooSync { deployments: caches.lister() }).await
}

fn spec(deployment_name: &str) -> Value {
    json!({"deploymentName": deployment_name, "replicas": 2})
}

/// Creates a Deployment of somebody else.
async fn put_foreign(f: &Fixture<FooSync>, name: &str) {
    f.put::<Deployment>(json!({"metadata": {"name": name}, "spec": {"replicas": 5,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}}))
        .await;
}

/// client-go: sample-controller `TestCreatesDeployment`
#[tokio::test(start_paused = true)]
async fn a_new_foo_gets_its_deployment() {
    let mut f = fixture().await;
    let foo = f.create("one", spec("web")).await;
    let asked = ["create deployments", "update foos/one/status"].map(str::to_owned).to_vec();
    assert_eq!(f.sync("one").await, (Outcome::Done, asked));
    assert_eq!(f.events(), ["ChildCreated"]);
    assert_eq!(f.ready("one").await, (false, "Progressing".to_owned()));
    let deployment = f.get::<Deployment>("web").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(deployment["metadata"]["ownerReferences"][0]["uid"], foo["metadata"]["uid"]);
}

/// client-go: sample-controller `TestDoNothing`
#[tokio::test(start_paused = true)]
async fn a_converged_foo_sends_nothing() {
    let mut f = fixture().await;
    f.create("one", spec("web")).await;
    f.converge("one").await;
    assert_eq!(f.ready("one").await, (true, "Available".to_owned()));
    assert_eq!(f.events(), ["ChildCreated", "Synced"]);
    for _ in 0..3 {
        assert_eq!(f.sync("one").await, (Outcome::Done, vec![]));
    }
}

/// client-go: sample-controller `TestUpdateDeployment`
#[tokio::test(start_paused = true)]
async fn hand_edit_is_repaired_and_new_spec_applied() {
    let mut f = fixture().await;
    f.create("one", spec("web")).await;
    f.sync("one").await;
    f.events();
    f.edit::<Deployment>("web", |live| live["spec"]["replicas"] = json!(9)).await;
    f.catch_up().await;
    let (_, asked) = f.sync("one").await;
    assert_eq!(asked, ["get foos/one", "patch deployments/web"]);
    assert_eq!(f.events(), ["ChildRepaired"]);

    f.edit::<Foo>("one", |foo| foo["spec"]["replicas"] = json!(3)).await;
    f.catch_up().await;
    f.sync("one").await;
    assert_eq!(f.events(), [""; 0], "it was asked for");
    assert_eq!(f.get::<Deployment>("web").await.unwrap()["spec"]["replicas"], 3);
}

/// client-go: sample-controller `TestNotControlledByUs`
#[tokio::test(start_paused = true)]
async fn foreign_deployment_is_untouched_and_reported_once() {
    let mut f = fixture().await;
    put_foreign(&f, "web").await;
    f.create("one", spec("web")).await;
    let (outcome, asked) = f.sync("one").await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(30)) });
    assert_eq!(asked, ["create deployments", "get deployments/web", "update foos/one/status"]);
    let recorded = f.recorded();
    let [event] = &recorded[..] else { panic!("{recorded:?}") };
    assert_eq!((event.event_type, event.reason), (EventType::Warning, "ErrResourceExists"));
    assert_eq!(event.note, "Resource \"web\" already exists and is not managed by Foo");
    assert_eq!(f.ready("one").await, (false, "ResourceExists".to_owned()));
    f.pass_time(Duration::from_secs(30)).await;
    f.sync("one").await;
    assert_eq!(f.events(), Vec::<&str>::new());
    assert_eq!(f.get::<Deployment>("web").await.unwrap()["spec"]["replicas"], 5);
    f.delete::<Deployment>("web").await;
    f.pass_time(Duration::from_secs(30)).await;
    f.sync("one").await;
    assert_eq!(f.events(), ["ChildCreated"], "the Foo recovers once the name is free");
}
