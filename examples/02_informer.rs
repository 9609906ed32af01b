//! Watches Deployments and prints every change.
//!
//! Run with: `cargo run --example 02_informer`, on the embedded server, where a user creates, scales and deletes a
//! Deployment; or with `cargo run --example 02_informer -- cluster`, against the cluster of your kubeconfig (or of
//! `hack/control-plane/control-plane.sh up`), until Ctrl-C.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::api::ApiResource;
use windlass::cache::factory::Watched;
use windlass::cache::{Cached, Deleted, EventHandler, SharedInformerFactory, Transform, object};
use windlass::client::{ApiClient, Config, ConfigSource};
use windlass::sim::{InProcessTransport, Settings, Sim};

/// Prints every change, in order; a real handler only enqueues a key and returns.
#[derive(Default)]
struct Print {
    /// Notified of each deletion.
    deleted: Arc<Notify>,
}

impl EventHandler<Deployment> for Print {
    fn on_add(&mut self, object: &Cached<Deployment>, is_in_initial_list: bool) {
        println!("+ {object:?}{}", if is_in_initial_list { " (was there)" } else { "" });
    }

    fn on_update(&mut self, _old: &Cached<Deployment>, new: &Cached<Deployment>) {
        println!("~ {new:?}");
    }

    fn on_delete(&mut self, object: &Deleted<Deployment>) {
        println!("- {object:?}");
        self.deleted.notify_one();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("cluster") {
        let config = Config::load(&ConfigSource::default()).await?;
        let client = ApiClient::connect(config).await?;
        return watch(client, Print::default(), async { Ok(tokio::signal::ctrl_c().await?) }).await;
    }
    let sim = Sim::new(Settings::default());
    let client =
        |user| ApiClient::new(kube_client::Client::new(InProcessTransport::new(&sim, user), "default"));
    let print = Print::default();
    let deleted = print.deleted.clone();
    tokio::select! {
        outcome = watch(client("informer"), print, use_a_deployment(client("user"), &deleted)) => outcome,
        () = sim.run() => Ok(()),
    }
}

/// Prints every change of a Deployment while `users` work.
async fn watch(
    client: ApiClient,
    print: Print,
    users: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let factory = SharedInformerFactory::new(client, None, None, 0);
    let informer =
        factory.informer(Watched { transform: Some(Transform::new(object::trim)), ..Watched::default() })?;
    let registration = informer.add_event_handler(print)?;

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

/// Creates, scales and deletes a Deployment, and waits until the handler has seen the end.
async fn use_a_deployment(client: ApiClient, deleted: &Notify) -> anyhow::Result<()> {
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
    loop {
        let (uid, version) = current(&client).await?;
        match client.delete(&deployments, Some("default"), "web", &uid, &version).await {
            Err(error) if error.is_conflict() => {}
            outcome => break outcome?,
        }
    }
    deleted.notified().await;
    Ok(())
}

/// Returns uid and version of the Deployment.
async fn current(client: &ApiClient) -> anyhow::Result<(String, String)> {
    let web: Option<Deployment> =
        client.get(&ApiResource::of::<Deployment>(), Some("default"), "web").await?;
    let meta = web.map(|web| web.metadata).unwrap_or_default();
    Ok((meta.uid.unwrap_or_default(), meta.resource_version.unwrap_or_default()))
}
