//! sample-controller, block by block, on the parts of this crate alone: factory, informers, listers, queue, recorder.
//!
//! Run with: `cargo run --example sample_controller`, on the embedded server, in virtual time. A user creates a Foo,
//! scales it, and deletes its Deployment. `windlass::operators::foo` is the same operator with what it takes to run one
//! (a guard for own writes, live reads before deletes, conditions, leader election); here nothing is hidden.
//!
//! | `controller.go` at 7e64d481 | here |
//! |---|---|
//! | 69-89 `Controller` | [`Controller`]; the listers and the queue are handles, so it is cheap to clone |
//! | 92-124 `NewController` | [`Controller::new`]; one client serves all kinds, [`record::pair`] is the broadcaster |
//! | 126-153 `AddEventHandler` | the two [`EventHandler`] implementations; one unknown type cannot arrive |
//! | 162-188 `Run` | [`Controller::run`]; it owns its workers, waits for them, and drives the queue's delays |
//! | 193-196 `runWorker` | [`Controller::run_worker`] |
//! | 200-236 `processNextWorkItem` | [`Controller::process_next_work_item`]; dropping `processing` is `Done` |
//! | 241-312 `syncHandler` | [`Controller::sync_handler`]; a miss is `None`, not an error |
//! | 314-326 `updateFooStatus` | [`Controller::update_foo_status`]; a patch, so nothing of the cache is copied |
//! | 331-338 `enqueueFoo` | [`Controller::enqueue_foo`] |
//! | 345-383 `handleObject` | [`Controller::handle_object`]; [`Deleted`] is the tombstone, and the compiler asks for it |
//! | 388-421 `newDeployment` | [`new_deployment`] |
//! | `main.go` 42-81 | [`main`] |

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::{CustomResourceExt, Resource};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::api::ApiResource;
use windlass::api::samplecontroller::v1alpha1::{Foo, FooSpec};
use windlass::cache::factory::Watched;
use windlass::cache::{
    Cached, Deleted, EventHandler, Lister, Object, ObjectName, SharedInformer, SharedInformerFactory, Synced,
    wait_for_cache_sync,
};
use windlass::client::{ApiClient, Clock};
use windlass::record::{self, EventRecorder, EventType, Regarding};
use windlass::sim::{InProcessTransport, Settings, Sim};
use windlass::workqueue::{Bucket, ItemExponentialFailure, MaxOf, RateLimitingQueue};

const AGENT: &str = "sample-controller";

/// Keeps one Deployment for each Foo.
#[derive(Clone)]
struct Controller {
    client: ApiClient,
    deployments: Lister<Deployment>,
    deployments_synced: Synced,
    foos: Lister<Foo>,
    foos_synced: Synced,
    queue: RateLimitingQueue<ObjectName>,
    recorder: EventRecorder,
}

impl Controller {
    fn new(
        client: ApiClient,
        deployments: &SharedInformer<Deployment>,
        foos: &SharedInformer<Foo>,
        recorder: EventRecorder,
    ) -> anyhow::Result<Self> {
        let (ms, second) = (Duration::from_millis(1), Duration::from_secs(1));
        let limiter = MaxOf::new(vec![
            Box::new(ItemExponentialFailure::new(5 * ms, 1000 * second)),
            Box::new(Bucket::new(50.0, 300, 1000 * second)),
        ]);
        let controller = Self {
            client,
            deployments: deployments.lister(),
            deployments_synced: deployments.synced(),
            foos: foos.lister(),
            foos_synced: foos.synced(),
            queue: RateLimitingQueue::new(limiter),
            recorder,
        };
        foos.add_event_handler(controller.clone())?;
        deployments.add_event_handler(controller.clone())?;
        Ok(controller)
    }

    /// Runs until `shutdown`, then lets the workers finish the keys that they hold.
    async fn run(&self, workers: usize, shutdown: &CancellationToken) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        let queue = self.queue.clone();
        tasks.spawn(async move {
            queue.run().await;
        });
        let synced = [self.deployments_synced.clone(), self.foos_synced.clone()];
        let is_synced = wait_for_cache_sync(&synced, shutdown).await;
        if is_synced.is_ok() {
            for _ in 0..workers {
                let controller = self.clone();
                tasks.spawn(async move { controller.run_worker().await });
            }
            shutdown.cancelled().await;
        }
        self.queue.shut_down();
        tasks.join_all().await;
        Ok(is_synced?)
    }

    async fn run_worker(&self) {
        while self.process_next_work_item().await {}
    }

    /// Syncs the next key; `false` once the queue is shut down.
    async fn process_next_work_item(&self) -> bool {
        let Some(processing) = self.queue.get().await else { return false };
        let name = processing.key();
        match self.sync_handler(name).await {
            Ok(()) => self.queue.forget(name),
            Err(error) => {
                tracing::error!(object = %name, error = format!("{error:#}"), "Could not sync; trying again later");
                self.queue.add_rate_limited(name.clone());
            }
        }
        true
    }

    async fn sync_handler(&self, name: &ObjectName) -> anyhow::Result<()> {
        // 1. The Foo, from the cache.
        let cached = self.foos.get(name);
        let Some(foo) = cached.as_ref().and_then(Cached::readable) else { return Ok(()) };

        // 2. Its Deployment, from the cache or new.
        let child = ObjectName::new(name.namespace(), &foo.spec.deployment_name);
        let mut deployment = match self.deployments.get(&child) {
            Some(cached) => cached.readable().context("the Deployment does not decode")?.clone(),
            None => {
                let created = json!(new_deployment(foo));
                Arc::new(
                    self.client.create(&ApiResource::of::<Deployment>(), name.namespace(), &created).await?,
                )
            }
        };
        if deployment.controller().is_none_or(|owner| owner.uid != foo.uid()) {
            let note = format!("Deployment {:?} exists, and this Foo does not control it", child.name());
            let regarding = Regarding::of(&**foo);
            self.recorder.event(regarding, EventType::Warning, "ErrResourceExists", "Create", note.clone());
            bail!(note);
        }

        // 3. Its replicas. The version makes the server refuse a write that is decided from an old cache.
        if deployment.spec.replicas != Some(foo.spec.replicas) {
            let mut wanted = new_deployment(foo);
            wanted.metadata.resource_version = Some(deployment.resource_version().to_owned());
            let (resource, wanted) = (ApiResource::of::<Deployment>(), json!(wanted));
            let replaced = self.client.replace(&resource, child.namespace(), child.name(), &wanted).await?;
            deployment = Arc::new(replaced);
        }

        // 4. The status of the Foo.
        self.update_foo_status(foo, &deployment).await?;
        let note = format!("Deployment {:?} is as wanted", child.name());
        self.recorder.event(Regarding::of(&**foo), EventType::Normal, "Synced", "Sync", note);
        Ok(())
    }

    async fn update_foo_status(&self, foo: &Foo, deployment: &Deployment) -> anyhow::Result<()> {
        let available = deployment.status.as_ref().and_then(|status| status.available_replicas);
        let status = json!({"availableReplicas": available.unwrap_or(0)});
        let (resource, name) = (ApiResource::of::<Foo>(), foo.object_name());
        let (object, state) = ((name.namespace(), name.name()), (foo.uid(), foo.resource_version()));
        self.client.update_status::<Value>(&resource, object, state, &status).await?;
        Ok(())
    }

    fn enqueue_foo(&self, foo: &Cached<Foo>) {
        self.queue.add(foo.object_name());
    }

    /// Enqueues the Foo that controls this object, if any.
    fn handle_object(&self, object: &Cached<Deployment>) {
        let Some(owner) = object.controller().filter(|owner| owner.is_a(&ApiResource::of::<Foo>())) else {
            return;
        };
        let name = ObjectName::new(object.object_name().namespace(), owner.name);
        if let Some(foo) = self.foos.get(&name) {
            self.enqueue_foo(&foo);
        }
    }
}

impl EventHandler<Foo> for Controller {
    fn on_add(&mut self, foo: &Cached<Foo>, _is_in_initial_list: bool) {
        self.enqueue_foo(foo);
    }

    fn on_update(&mut self, _old: &Cached<Foo>, new: &Cached<Foo>) {
        self.enqueue_foo(new);
    }
}

impl EventHandler<Deployment> for Controller {
    fn on_add(&mut self, deployment: &Cached<Deployment>, _is_in_initial_list: bool) {
        self.handle_object(deployment);
    }

    fn on_update(&mut self, old: &Cached<Deployment>, new: &Cached<Deployment>) {
        // A resync has nothing new.
        if !old.is_same_version(new) {
            self.handle_object(new);
        }
    }

    fn on_delete(&mut self, deployment: &Deleted<Deployment>) {
        self.handle_object(deployment.last_known());
    }
}

/// Returns the Deployment of a Foo, with the owner reference by which [`Controller::handle_object`] finds the Foo.
fn new_deployment(foo: &Foo) -> Deployment {
    let labels = json!({"app": "nginx", "controller": foo.object_name().name()});
    let mut owner = json!(foo.controller_owner_ref(&()));
    owner["blockOwnerDeletion"] = json!(true);
    let deployment = json!({
        "metadata": {
            "name": foo.spec.deployment_name,
            "namespace": foo.metadata.namespace,
            "ownerReferences": [owner],
        },
        "spec": {
            "replicas": foo.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    });
    serde_json::from_value(deployment).expect("the fields are those of the type")
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    let (sim, shutdown) = (Sim::new(Settings::default()), CancellationToken::new());
    let client =
        |user| ApiClient::new(kube_client::Client::new(InProcessTransport::new(&sim, user), "default"));
    let (recorder, sink) = record::pair(client(AGENT), Clock::system(), AGENT.to_owned());
    let factory = SharedInformerFactory::new(client(AGENT), Vec::new(), None, 0);
    let (deployments, foos) = (factory.informer(Watched::default())?, factory.informer(Watched::default())?);
    let controller = Controller::new(client(AGENT), &deployments, &foos, recorder)?;
    let user = async {
        let outcome = use_a_foo(&client("user")).await;
        shutdown.cancel();
        outcome
    };
    let all = async {
        let (used, run, ..) = tokio::join!(
            user,
            controller.run(2, &shutdown),
            factory.run(shutdown.clone()),
            sink.run(shutdown.clone())
        );
        used.and(run)
    };
    tokio::select! {
        outcome = all => outcome,
        () = sim.run() => Ok(()),
    }
}

/// Creates and scales a Foo, and deletes its Deployment.
async fn use_a_foo(client: &ApiClient) -> anyhow::Result<()> {
    let kinds = ApiResource::of::<CustomResourceDefinition>();
    client.create::<Value>(&kinds, None, &json!(Foo::crd())).await?;
    // Until the informer asks again for the kind that did not exist.
    tokio::time::sleep(Duration::from_secs(60)).await;

    let (foos, namespace) = (ApiResource::of::<Foo>(), Some("default"));
    let foo = json!(Foo::new("example", FooSpec { deployment_name: "web".to_owned(), replicas: 2 }));
    client.create::<Value>(&foos, namespace, &foo).await?;
    let mut foo = show(client, "created").await?;
    foo.spec.replicas = 3;
    client.replace::<Value>(&foos, namespace, "example", &json!(foo)).await?;
    show(client, "scaled").await?;
    let deployments = ApiResource::of::<Deployment>();
    let web = client.get::<Deployment>(&deployments, namespace, "web").await?.context("no Deployment")?;
    client.delete(&deployments, namespace, "web", web.uid(), web.resource_version()).await?;
    show(client, "Deployment deleted").await.map(drop)
}

/// Gives the cluster a minute, and prints the Foo's status.
async fn show(client: &ApiClient, after: &str) -> anyhow::Result<Foo> {
    tokio::time::sleep(Duration::from_secs(60)).await;
    let foos = ApiResource::of::<Foo>();
    let foo = client.get::<Foo>(&foos, Some("default"), "example").await?.context("no Foo")?;
    let available = foo.status.as_ref().map_or(0, |status| status.available_replicas);
    println!("{after}: {available} of {} replicas are available", foo.spec.replicas);
    Ok(foo)
}

#[cfg(test)]
#[path = "sample_controller/tests.rs"]
mod tests;
