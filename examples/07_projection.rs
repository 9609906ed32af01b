//! A projection: a cache that keeps only what is used of each object, decoded straight from the wire.
//!
//! Run with: `cargo run --example 07_projection`; it needs no cluster.

#![allow(clippy::print_stdout, reason = "an example prints")]

use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::api::ApiResource;
use windlass::cache::{Cached, InformerConfig, Meta, SharedInformer};
use windlass::testing::FakeSource;

/// What is kept of a Pod; all other fields are skipped while it is decoded.
#[derive(Debug, Deserialize)]
struct PodPhase {
    metadata: Meta,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

windlass::object_by_metadata!(PodPhase, ApiResource::new("", "v1", "Pod", "pods"));

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let source = FakeSource::<PodPhase>::new();
    let spec =
        json!({"containers": [{"name": "web", "image": "nginx", "env": [{"name": "A", "value": "b"}]}]});
    let metadata =
        |name: &str| json!({"namespace": "default", "name": name, "annotations": {"note": "not kept"}});
    source.put(json!({"metadata": metadata("web-1"), "spec": spec, "status": {"phase": "Running"}}));
    // An object that does not decode is kept by its name, and hides no other.
    source.put(json!({"metadata": metadata("web-2"), "spec": spec, "status": {"phase": 7}}));

    let informer = SharedInformer::new(source, InformerConfig::default());
    let (shutdown, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let (running, stop) = (informer.clone(), shutdown.clone());
    tasks.spawn(async move { running.run(stop).await });
    informer.synced().synced().await;

    let mut pods = informer.store().list();
    pods.sort_by_key(Cached::object_name);
    for pod in pods {
        match &pod {
            Cached::Readable(pod) => println!("{} is {}", pod.metadata.name, pod.status.phase),
            Cached::Unreadable(pod) => println!("{} is unreadable: {}", pod.meta.name, pod.error),
        }
    }
    shutdown.cancel();
    tasks.join_next().await.expect("the informer's task")??;
    Ok(())
}
