//! A custom task for WebApps that registers a DNS name for each, here in an in-memory map.
//!
//! Run with: `cargo run --example 05_task_executor`. It runs each hook once, in the order of the controller.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use windlass::api::webapp::v1::WebApp;
use windlass::cache::Slim;
use windlass::operators::webapp::tasks::{Hook, HookCall, HookError, HookFuture, TaskExecutor, run};

/// The zone: each name, with the generation of the WebApp that wrote it.
#[derive(Default)]
struct Dns {
    zone: Mutex<BTreeMap<String, i64>>,
}

impl TaskExecutor for Dns {
    fn name(&self) -> &'static str {
        "dns"
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn pre_create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        Box::pin(async move {
            match call.name() {
                "www" => Err(HookError::permanent("www is reserved; choose another name")),
                _ => Ok(()),
            }
        })
    }

    // The hook may run more than once, and late: an older generation must not replace a newer one.
    fn create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        Box::pin(async move {
            let mut zone = self.zone.lock();
            let written_for = zone.entry(call.object().to_string()).or_default();
            *written_for = call.generation().max(*written_for);
            Ok(())
        })
    }

    fn delete<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        Box::pin(async move {
            // A missing entry counts as deleted.
            self.zone.lock().remove(&call.object().to_string());
            Ok(())
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let uid = "0b4f6a0e-6d0d-4b0a-9d0f-3a5f0c1f6f5e";
    let webapp: Slim<WebApp> = serde_json::from_value(json!({
        "metadata": {"name": "shop", "namespace": "default", "uid": uid, "generation": 1},
        "spec": {"version": "1.2", "replicas": 2, "image": "nginx"},
    }))?;
    let (webapp, dns) = (Arc::new(webapp), Dns::default());
    for hook in Hook::CREATION.into_iter().chain(Hook::DELETION) {
        let call = HookCall::new(dns.name(), hook, webapp.clone());
        run(&dns, &call).await?;
        println!("{hook:<11} operation {}  zone {:?}", call.operation_id(), dns.zone.lock());
    }
    Ok(())
}
