//! A whole operator in one file: each Greeting gets a ConfigMap with its text.
//!
//! Run with: `cargo run --example 04_controller`. `docs/adding-a-controller.md` explains the code.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::CustomResourceExt;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass::api::ApiResource;
use windlass::cache::Lister;
use windlass::client::ApiClient;
use windlass::controller::{
    BuildError, Builder, Controller, Limits, Manager, Pass, Reconcile, Reconciler, Shared, StopReason,
    Wanted, own_name,
};
use windlass::sim::{InProcessTransport, Settings, Sim};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Greeting",
    namespaced,
    status = "GreetingStatus",
    crates(kube_core = "::kube_core")
)]
struct GreetingSpec {
    text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct GreetingStatus {
    observed_generation: Option<i64>,
    conditions: Vec<Condition>,
}

windlass::common_status!(GreetingStatus);

struct WantedMap {
    name: String,
    text: String,
}

impl Wanted for WantedMap {
    type Observed = ConfigMap;

    fn name(&self) -> &str {
        &self.name
    }

    fn write_into(&self, map: &mut ConfigMap) {
        map.data.get_or_insert_default().insert("text".to_owned(), self.text.clone());
    }
}

struct GreetingSync {
    maps: Lister<ConfigMap>,
}

impl Reconcile for GreetingSync {
    type Resource = Greeting;

    async fn reconcile(&self, pass: &mut Pass<'_, Greeting>) -> Result<GreetingStatus, StopReason> {
        let wanted = WantedMap { name: pass.name().to_owned(), text: pass.object().spec.text.clone() };
        pass.apply(&wanted, &self.maps).await?;
        Ok(pass.stored_status())
    }
}

fn controller(shared: &Shared<'_>) -> Result<Controller<Reconciler<GreetingSync>>, BuildError> {
    let mut greetings = Builder::new(shared, "greetings", own_name)?;
    let maps = greetings.owns()?;
    Ok(greetings.build(GreetingSync { maps }))
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let (sim, stop) = (Sim::new(Settings::default()), CancellationToken::new());
    let client = kube_client::Client::new(InProcessTransport::new(&sim, "greeter"), "default");
    let client = ApiClient::new(client).with_manager("greeter");
    let mut manager = Manager::new(client.clone(), Limits::default());
    manager.add(controller).expect("it is the only controller");
    let operator = manager.run(stop.clone());
    let users = async {
        let kinds = ApiResource::of::<CustomResourceDefinition>();
        client.create::<Value>(&kinds, None, &json!(Greeting::crd())).await.expect("the kind is new");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let greeting = json!(Greeting::new("hello", GreetingSpec { text: "Hello, world".to_owned() }));
        let greetings = ApiResource::of::<Greeting>();
        client.create::<Value>(&greetings, Some("default"), &greeting).await.expect("the name is free");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let maps = ApiResource::of::<ConfigMap>();
        let map: Option<Value> = client.get(&maps, Some("default"), "hello").await.expect("read succeeds");
        println!("{}", map.expect("the operator has created it")["data"]["text"]);
        stop.cancel();
    };
    let machine = async { tokio::join!(operator, users) };
    tokio::select! { _ = machine => {}, () = sim.run() => {} }
}
