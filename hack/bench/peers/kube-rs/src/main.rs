//! The Foo operator on kube-rs: a `Controller` that owns Deployments, server-side apply on each pass, status and event
//! as sample-controller writes them.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::watcher;
use kube::{Client, CustomResource, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

const MANAGER: &str = "kube-rs-peer";

#[derive(CustomResource, Deserialize, Serialize, Clone, Debug, JsonSchema)]
#[kube(group = "samplecontroller.k8s.io", version = "v1alpha1", kind = "Foo", namespaced)]
#[kube(status = "FooStatus")]
#[serde(rename_all = "camelCase")]
struct FooSpec {
    deployment_name: String,
    replicas: Option<i32>,
}

#[derive(Deserialize, Serialize, Clone, Debug, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FooStatus {
    available_replicas: i32,
}

#[derive(Parser)]
struct Cli {
    /// Kubeconfig file.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Reconciles at once; 0 for as many as come.
    #[arg(long, default_value_t = 2)]
    workers: u16,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("the Foo has no owner reference to give")]
    NoOwnerReference,
}

struct Context {
    client: Client,
    recorder: Recorder,
}

async fn reconcile(foo: Arc<Foo>, context: Arc<Context>) -> Result<Action, Error> {
    let namespace = foo.namespace().unwrap_or_default();
    let deployments: Api<Deployment> = Api::namespaced(context.client.clone(), &namespace);
    let apply = PatchParams::apply(MANAGER).force();
    let wanted = deployment(&foo)?;
    let stored = deployments.patch(&foo.spec.deployment_name, &apply, &Patch::Apply(&wanted)).await?;

    let available = stored.status.and_then(|status| status.available_replicas).unwrap_or_default();
    let foos: Api<Foo> = Api::namespaced(context.client.clone(), &namespace);
    let status = json!({
        "apiVersion": Foo::api_version(&()),
        "kind": Foo::kind(&()),
        "status": FooStatus { available_replicas: available },
    });
    foos.patch_status(&foo.name_any(), &apply, &Patch::Apply(&status)).await?;

    let synced = Event {
        type_: EventType::Normal,
        reason: "Synced".to_owned(),
        note: Some("Foo synced successfully".to_owned()),
        action: "Sync".to_owned(),
        secondary: None,
    };
    context.recorder.publish(&synced, &foo.object_ref(&())).await?;
    Ok(Action::await_change())
}

fn deployment(foo: &Foo) -> Result<Deployment, Error> {
    let owner = foo.controller_owner_ref(&()).ok_or(Error::NoOwnerReference)?;
    let labels = json!({"app": "nginx", "controller": foo.name_any()});
    let wanted = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": foo.spec.deployment_name, "ownerReferences": [owner]},
        "spec": {
            "replicas": foo.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    });
    Ok(serde_json::from_value(wanted).map_err(kube::Error::SerdeError)?)
}

fn error_policy(_: Arc<Foo>, error: &Error, _: Arc<Context>) -> Action {
    tracing::warn!(%error, "Reconcile failed");
    Action::requeue(Duration::from_secs(5))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt::init();
    let cli = Cli::parse();
    let kubeconfig = Kubeconfig::read_from(&cli.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let recorder = Recorder::new(client.clone(), Reporter::from(MANAGER));
    let context = Arc::new(Context { client: client.clone(), recorder });

    Controller::new(Api::<Foo>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Deployment>::all(client), watcher::Config::default())
        .with_config(Config::default().concurrency(cli.workers))
        .shutdown_on_signal()
        .run(reconcile, error_policy, context)
        .for_each(|outcome| async move {
            match outcome {
                Ok((foo, _)) => tracing::info!(%foo, "Synced"),
                Err(error) => tracing::warn!(%error, "Not synced"),
            }
        })
        .await;
    Ok(())
}
