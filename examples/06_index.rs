//! A lister with an index of its own: which Pods run on a node, without looking at all of them.
//!
//! Run with: `cargo run --example 06_index`; it needs no cluster.

#![allow(clippy::print_stdout, reason = "an example prints")]

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::cache::{Cached, HandlerFns, Indexers, InformerConfig, Lister, SharedInformer};
use windlass::testing::FakeSource;

/// The name of the index.
const NODE: &str = "node";

/// Returns the values of a Pod in the index: its node, once it is scheduled.
fn node_of(pod: &Cached<Pod>) -> Vec<String> {
    let spec = pod.readable().and_then(|pod| pod.spec.as_ref());
    spec.and_then(|spec| spec.node_name.clone()).into_iter().collect()
}

fn pod(name: &str, node: Option<&str>) -> serde_json::Value {
    json!({"metadata": {"namespace": "default", "name": name}, "spec": {"containers": [], "nodeName": node}})
}

fn print(lister: &Lister<Pod>, node: &str) {
    println!("on {node}: {:?}", lister.index(NODE, node));
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    // In place of a cluster; `SharedInformerFactory::informer` takes the same indexers.
    let source = FakeSource::<Pod>::new();
    for (name, node) in [("web-1", Some("node-a")), ("web-2", Some("node-b")), ("web-3", None)] {
        source.put(pod(name, node));
    }
    let indexers = Indexers::default().with(NODE, node_of);
    let informer =
        SharedInformer::new(source.clone(), InformerConfig { indexers, ..InformerConfig::default() });
    let (told, mut updates) = tokio::sync::mpsc::unbounded_channel();
    informer.add_event_handler(HandlerFns::default().on_update(move |_, _| {
        told.send(()).ok();
    }))?;

    let (shutdown, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let (running, stop) = (informer.clone(), shutdown.clone());
    tasks.spawn(async move { running.run(stop).await });
    informer.synced().synced().await;

    let lister = informer.lister();
    print(&lister, "node-a");
    // The scheduler finds a node for the last Pod; the index follows.
    source.put(pod("web-3", Some("node-a")));
    updates.recv().await;
    print(&lister, "node-a");
    print(&lister, "node-b");
    shutdown.cancel();
    tasks.join_next().await.expect("the informer's task")??;
    Ok(())
}
