//! A whole operator in one file: each Greeting gets a ConfigMap with its text.
//!
//! Run with: `cargo run --example 04_controller`. `docs/adding-a-controller.md` explains the code.

#![allow(clippy::print_stdout, reason = "an example prints")]

use windlass::prelude::*;

custom_resource! {
    #[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced, status = "BasicStatus")]
    struct GreetingSpec {
        text: String,
    }
}

struct GreetingSync {
    maps: Lister<ConfigMap>,
}

impl Reconcile for GreetingSync {
    type Resource = Greeting;

    async fn reconcile(&self, pass: &mut Pass<'_, Greeting>) -> Result<BasicStatus, StopReason> {
        let text = pass.object().spec.text.clone();
        let wanted = wanted(pass.name(), |map: &mut ConfigMap| {
            map.data.get_or_insert_default().insert("text".to_owned(), text.clone());
        });
        pass.apply(&wanted, &self.maps).await?;
        Ok(pass.stored_status())
    }
}

fn controller(context: &ControllerContext<'_>) -> Result<Controller<Reconciler<GreetingSync>>, BuildError> {
    let mut greetings = Builder::new(context, "greetings", own_name)?;
    let maps = greetings.owns()?;
    Ok(greetings.build(GreetingSync { maps }))
}

/// Runs the operator on the embedded API server, and does what users would.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    use std::time::Duration;
    use windlass::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use windlass::serde_json::Value;
    use windlass::sim::{Settings, Sim};

    let (sim, stop) = (Sim::new(Settings::default()), CancellationToken::new());
    let client = windlass::testing::embedded_client(&sim, "greeter").with_manager("greeter");
    let mut manager = Manager::new(client.clone(), Limits::default());
    manager.add(controller).expect("it is the only controller");
    let operator = manager.run(stop.clone());
    let users = async {
        let kinds = ApiResource::of::<CustomResourceDefinition>();
        client.create::<Value>(&kinds, None, &json!(Greeting::crd())).await.expect("the kind is new");
        // A kind that was missing is looked for again every 10 to 30 s. Time is virtual here, and passes at once.
        tokio::time::sleep(Duration::from_secs(60)).await;
        let greeting = json!(Greeting::new("hello", GreetingSpec { text: "Hello, world".to_owned() }));
        let greetings = ApiResource::of::<Greeting>();
        client.create::<Value>(&greetings, Some("default"), &greeting).await.expect("the name is free");
        // The operator needs a few round trips.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let maps = ApiResource::of::<ConfigMap>();
        let map: Option<Value> = client.get(&maps, Some("default"), "hello").await.expect("it can be read");
        println!("{}", map.expect("the operator has created it")["data"]["text"]);
        stop.cancel();
    };
    let machine = async { tokio::join!(operator, users) };
    tokio::select! { _ = machine => {}, () = sim.run() => {} }
}
