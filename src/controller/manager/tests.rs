//! Tests of a manager with one operator on the embedded server.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use serde_json::{Value, json};

use super::*;
use crate::api::ApiResource;
use crate::api::samplecontroller::v1alpha1::{Foo, FooSpec};
use crate::operators::foo;
use crate::sim::{InProcessTransport, Settings, Sim};

#[tokio::test(start_paused = true)]
async fn events_are_written_before_the_manager_ends() {
    let (sim, stop) = (Sim::new(Settings::default()), CancellationToken::new());
    let client =
        |name| ApiClient::new(kube_client::Client::new(InProcessTransport::new(&sim, name), "default"));
    let mut manager = Manager::new(client("operator"), Limits::default());
    manager.add(foo::controller).unwrap();
    let user = client("user");
    let users = async {
        let (crds, foos) = (ApiResource::of::<CustomResourceDefinition>(), ApiResource::of::<Foo>());
        user.create::<Value>(&crds, None, &json!(Foo::crd())).await.unwrap();
        let foo = json!(Foo::new("one", FooSpec { deployment_name: "web".to_owned(), replicas: 1 }));
        while user.create::<Value>(&foos, Some("default"), &foo).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let deployments = ApiResource::new("apps", "v1", "Deployment", "deployments");
        while user.get::<Value>(&deployments, Some("default"), "web").await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.cancel();
    };
    let all = async { tokio::join!(manager.run(stop.clone()), users) };
    tokio::select! { _ = all => {}, () = sim.run() => {} }

    let events = ApiResource::new("events.k8s.io", "v1", "Event", "events");
    let events: Vec<Value> = user.list(&events, Some("default")).await.unwrap();
    assert!(events.iter().any(|event| event["reason"] == "ChildCreated"), "{events:?}");
}
