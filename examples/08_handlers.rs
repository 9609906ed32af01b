//! Handlers of different speed: a slow one holds up neither the cache nor the other handlers, and is named.
//!
//! Run with: `cargo run --example 08_handlers`; it needs no cluster.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::mpsc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::cache::{HandlerFns, HandlerOptions, InformerConfig, SharedInformer};
use windlass::testing::{FakeSource, config_map};

const OBJECTS: usize = 20;

fn named(name: &str) -> HandlerOptions {
    HandlerOptions { name: Some(name.to_owned()), ..HandlerOptions::default() }
}

// Handlers run in tasks: the slow one needs a thread of its own, or it would hold up everything.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let source = FakeSource::<ConfigMap>::new();
    let informer = SharedInformer::new(source.clone(), InformerConfig::default());

    let (told, mut fast) = tokio::sync::mpsc::unbounded_channel();
    let handler = HandlerFns::default().on_add(move |_, _| {
        told.send(()).ok();
    });
    informer.add_event_handler_with(handler, named("fast"))?;
    // A handler should only queue a key. This one waits for something else, 150 ms for each object.
    let (release, wait) = mpsc::channel::<()>();
    let handler = HandlerFns::default().on_add(move |_, _| {
        wait.recv_timeout(Duration::from_millis(150)).ok();
    });
    let slow = informer.add_event_handler_with(handler, named("slow"))?;

    let (shutdown, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let (running, stop) = (informer.clone(), shutdown.clone());
    tasks.spawn(async move { running.run(stop).await });
    informer.synced().synced().await;
    for number in 0..OBJECTS {
        source.put(config_map("default", &format!("map-{number}"), 0));
    }
    for _ in 0..OBJECTS {
        fast.recv().await;
    }
    println!("fast has seen all {OBJECTS} objects, the store has {}", informer.store().len());
    for handler in informer.state().handlers {
        println!("{}: {} pending", handler.name, handler.pending);
    }
    // Whoever waits no longer for a slow handler removes it; what is pending is dropped.
    drop(release);
    informer.shut_down_event_handler(&slow).await;
    println!("without the slow one: {} handler", informer.state().handlers.len());
    shutdown.cancel();
    tasks.join_next().await.expect("the informer's task")??;
    Ok(())
}
