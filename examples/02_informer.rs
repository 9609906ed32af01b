//! Watches Deployments and prints every change.
//!
//! Run with: `cargo run --example 02_informer`, on the embedded server, where a user creates, scales and deletes a
//! Deployment; or with `cargo run --example 02_informer -- cluster`, against the cluster of your kubeconfig (or of
//! `hack/control-plane/control-plane.sh up`), until Ctrl-C.

#![allow(clippy::print_stdout, reason = "an example prints")]

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::api::ApiResource;
use windlass::cache::factory::Watched;
use windlass::cache::{Cached, Deleted, EventHandler, SharedInformerFactory, object};
use windlass::client::{ApiClient, Config, ConfigSource};
use windlass::sim::{InProcessTransport, Settings, Sim};

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

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("cluster") {
        let config = Config::load(&ConfigSource::default()).await?;
        let client = ApiClient::connect(config).await?;
        return watch(client, async { Ok(tokio::signal::ctrl_c().await?) }).await;
    }
    let sim = Sim::new(Settings::default());
    let client =
        |user| ApiClient::new(kube_client::Client::new(InProcessTransport::new(&sim, user), "default"));
    tokio::select! {
        outcome = watch(client("informer"), use_a_deployment(client("user"))) => outcome,
        () = sim.run() => Ok(()),
    }
}

/// Prints every change of a Deployment while `users` work.
async fn watch(client: ApiClient, users: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
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
    users.await?;
    shutdown.cancel();
    tasks.join_all().await;
    Ok(())
}

/// Creates, scales and deletes a Deployment.
async fn use_a_deployment(client: ApiClient) -> anyhow::Result<()> {
    let deployments = ApiResource::of::<Deployment>();
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}});
    let web = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": template}});
    let web: Deployment = client.create(&deployments, Some("default"), &web).await?;
    let version = web.metadata.resource_version.unwrap_or_default();
    let scaled = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": 3}});
    client.patch_strategic::<Value>(&deployments, Some("default"), "web", &scaled).await?;
    // The simulated controllers have written its status meanwhile.
    let web: Option<Deployment> = client.get(&deployments, Some("default"), "web").await?;
    let meta = web.map(|web| web.metadata).unwrap_or_default();
    let (uid, version) = (meta.uid.unwrap_or_default(), meta.resource_version.unwrap_or_default());
    client.delete(&deployments, Some("default"), "web", &uid, &version).await?;
    Ok(())
}
