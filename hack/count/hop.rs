//! What `hack/count.sh` traces: one Foo whose Deployment becomes available, from the watch event to the status.
//!
//! The operator of `windlass run` on the embedded server, in virtual time and one thread. Nothing else happens within
//! [`hop`], so that a tool that collects while `hop` is on the stack sees that event alone.

#![allow(clippy::print_stdout, reason = "the script reads it")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use windlass::api::ApiResource;
use windlass::api::samplecontroller::v1alpha1::Foo;
use windlass::cli::InProcess;
use windlass::client::ApiClient;
use windlass::sim::{InProcessTransport, Settings, Sim};

/// Enough for every timer that a change starts.
const LONG: Duration = Duration::from_secs(60);

/// Hands the change over, and waits until nothing is left to do.
#[inline(never)]
fn hop(runtime: &Runtime, sim: &Sim, deployment: &Value) {
    sim.write_behind("apps", "deployments", deployment);
    runtime.block_on(async { tokio::time::sleep(Duration::from_secs(1)).await });
}

fn main() {
    let runtime =
        Builder::new_current_thread().enable_all().start_paused(true).build().expect("it can be built");
    let sim = Sim::new(Settings::default());
    let client = |user: &str| kube_client::Client::new(InProcessTransport::new(&sim, user), "default");
    let (operator, user) = runtime.block_on(async { (client("operator"), ApiClient::new(client("user"))) });
    let (_signals, received) = tokio::sync::mpsc::channel(1);
    runtime.spawn(async move {
        let flags = [
            "--controllers=foo",
            "--leader-elect=false",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            "--audit-period=0s",
        ];
        windlass::cli::run_over(ApiClient::new(operator), &flags, InProcess::new(1), received).await
    });
    let (foos, deployments) = (ApiResource::of::<Foo>(), ApiResource::of::<Deployment>());
    let deployment = runtime.block_on(async {
        let kinds = ApiResource::of::<CustomResourceDefinition>();
        let foo = json!({"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": "a"},
            "spec": {"deploymentName": "a", "replicas": 1}});
        let kind = json!(Foo::crd());
        let _: Value = user.create(&kinds, None, &kind).await.expect("the kind is new");
        tokio::time::sleep(LONG).await;
        let _: Value = user.create(&foos, Some("default"), &foo).await.expect("the name is free");
        tokio::time::sleep(LONG).await;
        let live: Option<Value> = user.get(&deployments, Some("default"), "a").await.expect("it can be read");
        let mut live = live.expect("the operator has created it");
        live["status"] = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
            "availableReplicas": 1,
            "conditions": [{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}]});
        live
    });
    hop(&runtime, &sim, &deployment);
    let foo: Option<Value> = runtime.block_on(user.get(&foos, Some("default"), "a")).expect("it can be read");
    let foo = foo.expect("it exists");
    assert_eq!(foo["status"]["availableReplicas"], 1, "{foo}");
    println!("the status of the Foo is written");
}
