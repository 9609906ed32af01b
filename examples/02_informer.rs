//! Watches Deployments and prints every change.
//!
//! Run with: `cargo run --example 02_informer`, against the cluster of your kubeconfig (or of
//! `hack/control-plane/control-plane.sh up`); Ctrl-C stops it.

#![allow(clippy::print_stdout, reason = "an example prints")]

use k8s_openapi::api::apps::v1::Deployment;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::cache::factory::Watched;
use windlass::cache::{Cached, Deleted, EventHandler, SharedInformerFactory, object};
use windlass::client::{ApiClient, Config, ConfigSource};

/// Prints every change, in order; a real handler only enqueues a key and returns.
struct Print;

impl EventHandler<Deployment> for Print {
    fn on_add(&mut self, object: &Cached<Deployment>, is_in_initial_list: bool) {
        println!("+ {object:?}{}", if is_in_initial_list { " (was there)" } else { "" });
    }

    fn on_update(&mut self, _old: &Cached<Deployment>, new: &Cached<Deployment>) {
        println!("~ {new:?}");
    }

    fn on_delete(&mut self, object: &Deleted<Deployment>) {
        println!("- {object:?}");
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::load(&ConfigSource::default()).await?;
    let client = ApiClient::connect(config).await?;
    let factory = SharedInformerFactory::new(client, None, None, 0);
    let informer = factory.informer(|| Watched { transform: Some(object::trim), ..Watched::default() });
    let registration = informer.add_event_handler(Print)?;

    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let stop = shutdown.clone();
    tasks.spawn(async move { factory.run(stop).await });

    registration.synced().synced().await;
    println!(
        "synced: {} Deployments at version {}",
        informer.store().len(),
        informer.store().resource_version()
    );
    tokio::signal::ctrl_c().await?;
    shutdown.cancel();
    tasks.join_all().await;
    Ok(())
}
