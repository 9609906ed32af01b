//! Watches Pods and prints what happens to them.
//!
//! Run with: `cargo run --example 02_informer`, on the embedded server, where a user creates, scales and deletes a
//! Deployment, whose Pods come and go; or with `cargo run --example 02_informer -- cluster`, against the cluster of your kubeconfig (or of
//! `hack/control-plane/control-plane.sh up`), until Ctrl-C.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::api::ApiResource;
use windlass::cache::factory::Watched;
use windlass::cache::{Cached, Deleted, EventHandler, SharedInformerFactory, Transform, object};
use windlass::client::{ApiClient, Config, ConfigSource};
use windlass::sim::{InProcessTransport, Settings, Sim};

/// Prints every change, in order; a real handler only enqueues a key and returns.
struct Print {
    /// Has a permit for each addition and each deletion.
    told: Arc<Semaphore>,
}

impl EventHandler<Pod> for Print {
    fn on_add(&mut self, object: &Cached<Pod>, is_in_initial_list: bool) {
        println!("+ {object:?}{}", if is_in_initial_list { " (was there)" } else { "" });
        self.told.add_permits(1);
    }

    fn on_update(&mut self, _old: &Cached<Pod>, new: &Cached<Pod>) {
        let status = new.readable().and_then(|pod| pod.status.as_ref());
        println!("~ {new:?} {}", status.and_then(|status| status.phase.as_deref()).unwrap_or_default());
    }

    fn on_delete(&mut self, object: &Deleted<Pod>) {
        println!("- {object:?}");
        self.told.add_permits(1);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("cluster") {
        let config = Config::load(&ConfigSource::default()).await?;
        let client = ApiClient::connect(config).await?;
        let print = Print { told: Arc::new(Semaphore::new(0)) };
        return watch(client, print, async { Ok(tokio::signal::ctrl_c().await?) }).await;
    }
    let sim = Sim::new(Settings::default());
    let client =
        |user| ApiClient::new(kube_client::Client::new(InProcessTransport::new(&sim, user), "default"));
    let told = Arc::new(Semaphore::new(0));
    let print = Print { told: told.clone() };
    tokio::select! {
        outcome = watch(client("informer"), print, use_a_deployment(client("user"), &told)) => outcome,
        () = sim.run() => Ok(()),
    }
}

/// Prints every change of a Pod while `users` work.
async fn watch(
    client: ApiClient,
    print: Print,
    users: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let factory = SharedInformerFactory::new(client, Vec::new(), None, 0);
    let informer =
        factory.informer(Watched { transform: Some(Transform::new(object::trim)), ..Watched::default() })?;
    let registration = informer.add_event_handler(print)?;

    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let stop = shutdown.clone();
    tasks.spawn(async move { factory.run(stop).await });

    registration.synced().synced().await;
    println!("synced: {} Pods at version {}", informer.store().len(), informer.store().resource_version());
    users.await?;
    shutdown.cancel();
    tasks.join_all().await;
    Ok(())
}

/// Creates, scales and deletes a Deployment, and waits until the handler has seen its three Pods come and go.
async fn use_a_deployment(client: ApiClient, told: &Semaphore) -> anyhow::Result<()> {
    let deployments = ApiResource::of::<Deployment>();
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}});
    let web = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": template}});
    client.create::<Value>(&deployments, Some("default"), &web).await?;
    // The simulated controllers write its status meanwhile, so each write may meet a newer version.
    loop {
        let (_, version) = current(&client).await?;
        let scaled = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": 3}});
        match client.patch_strategic::<Value>(&deployments, Some("default"), "web", &scaled).await {
            Err(error) if error.is_conflict() => {}
            outcome => break drop(outcome?),
        }
    }
    told.acquire_many(3).await?.forget();
    loop {
        let (uid, version) = current(&client).await?;
        match client.delete(&deployments, Some("default"), "web", &uid, &version).await {
            Err(error) if error.is_conflict() => {}
            outcome => break outcome?,
        }
    }
    told.acquire_many(3).await?.forget();
    Ok(())
}

/// Returns uid and version of the Deployment.
async fn current(client: &ApiClient) -> anyhow::Result<(String, String)> {
    let web: Option<Deployment> =
        client.get(&ApiResource::of::<Deployment>(), Some("default"), "web").await?;
    let meta = web.map(|web| web.metadata).unwrap_or_default();
    Ok((meta.uid.unwrap_or_default(), meta.resource_version.unwrap_or_default()))
}
