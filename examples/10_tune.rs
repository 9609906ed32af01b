//! How many workers does an operator of your own need? The greeter of `04_controller`, tried with 1 to 16 of them.
//!
//! Run with: `cargo run --release --example 10_tune`. `docs/adding-a-controller.md` explains it.

#![allow(clippy::print_stdout, reason = "an example prints")]

use windlass::prelude::*;
use windlass::tune::{Sweep, SweepError};

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

/// 50 Greetings, twelve changes a second for 20 seconds, and a webhook that takes 300 ms for each write of a ConfigMap.
const LOAD: &str = "
objects: {count: 50, converged: true}
changes: [{shape: steady, rate: 12, for: 20s}]
server:
  latency: [{median: 10ms, p99: 50ms}]
  webhooks: [{resource: configmaps, takes: 300ms}]
";

fn main() -> Result<(), SweepError> {
    let sample = Greeting::new("sample", GreetingSpec { text: "Hello".to_owned() });
    let report = Sweep::new(|manager| manager.add(controller))
        .kind("greetings", &sample, |nth| json!({"spec": {"text": format!("Hello, {nth}")}}))
        .with_load(LOAD)?
        .vary("workers", "1..16")?
        .run()?;
    println!("{report}");
    Ok(())
}
