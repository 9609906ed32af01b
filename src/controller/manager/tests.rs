//! Tests of a manager with one operator on the embedded server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use serde_json::{Value, json};

use super::*;
use crate::api::ApiResource;
use crate::api::samplecontroller::v1alpha1::{Foo, FooSpec, FooStatus};
use crate::cache::factory::Watched;
use crate::cache::{Cached, Deleted, EventHandler, ObjectName};
use crate::controller::{Builder, Reconcile, ReconcileContext, StopReason};
use crate::operators::foo;
use crate::sim::{InProcessTransport, Settings, Sim};
use crate::workqueue::{AddOptions, ItemExponentialFailure, RateLimitingQueue};

/// Counts passes, each of which takes a second.
#[derive(Clone, Default)]
struct Passes {
    ended: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
    /// The most that ran at once.
    most: Arc<AtomicUsize>,
}

impl Reconcile for Passes {
    type Resource = Foo;

    async fn reconcile(&self, ctx: &mut ReconcileContext<'_, Foo>) -> Result<FooStatus, StopReason> {
        self.most.fetch_max(self.running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(ctx.stored_status())
    }
}

impl Passes {
    /// Waits until more than `before` passes have ended and no more follow; returns their number.
    async fn come_to_rest(&self, before: usize) -> usize {
        loop {
            let ended = self.ended.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(5)).await;
            if ended > before && ended == self.ended.load(Ordering::Relaxed) {
                return ended;
            }
        }
    }
}

/// Adds the name of a new ConfigMap as a key.
struct EnqueueNamesake(RateLimitingQueue<ObjectName>);

impl EventHandler<ConfigMap> for EnqueueNamesake {
    fn on_add(&mut self, object: &Cached<ConfigMap>, _: bool) {
        self.0.add(object.object_name().clone(), AddOptions::default());
    }

    fn on_update(&mut self, _: &Cached<ConfigMap>, _: &Cached<ConfigMap>) {}

    fn on_delete(&mut self, _: &Deleted<ConfigMap>) {}
}

fn client(sim: &Sim, user: &str) -> ApiClient {
    ApiClient::new(kube_client::Client::new(InProcessTransport::new(sim, user), "default"))
}

/// Installs the CRD of Foo and creates Foos of these names.
async fn create_foos(user: &ApiClient, names: &[&str]) {
    let (crds, foos) = (ApiResource::of::<CustomResourceDefinition>(), ApiResource::of::<Foo>());
    user.create::<Value>(&crds, None, &json!(Foo::crd())).await.unwrap();
    for name in names {
        let foo = json!(Foo::new(name, FooSpec { deployment_name: "web".to_owned(), replicas: 1 }));
        while user.create::<Value>(&foos, Some("default"), &foo).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn given_queue_workers_and_handlers_are_used() {
    let (sim, stop) = (Sim::new(Settings::default()), CancellationToken::new());
    let (passes, user) = (Passes::default(), client(&sim, "user"));
    let no_delay = ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO);
    let queue = RateLimitingQueue::new(no_delay);
    let mut manager = Manager::new(client(&sim, "operator"), Limits::default());
    let add = manager.add(|shared| {
        let maps = shared.informers.informer::<ConfigMap>(Watched::default()).unwrap();
        let mut foos = Builder::<Foo>::with_queue(shared, "passes", |_| Vec::new(), queue.clone())?;
        foos.watches(&maps, EnqueueNamesake(foos.queue()))?;
        Ok(foos.with_workers(3).build(passes.clone()))
    });
    add.unwrap();
    let users = async {
        create_foos(&user, &["one", "two", "three"]).await;
        let ended = passes.come_to_rest(0).await;
        queue.add(ObjectName::new(Some("default"), "one"), AddOptions::default());
        let ended = passes.come_to_rest(ended).await;
        let maps = ApiResource::of::<ConfigMap>();
        user.create::<Value>(&maps, Some("default"), &json!({"metadata": {"name": "two"}})).await.unwrap();
        passes.come_to_rest(ended).await;
        stop.cancel();
    };
    let all = async { tokio::join!(manager.run(stop.clone()), users) };
    tokio::select! { _ = all => {}, () = sim.run() => {} }
    assert_eq!(passes.most.load(Ordering::Relaxed), 3, "the default is two workers");
}

#[tokio::test(start_paused = true)]
async fn events_are_written_before_the_manager_ends() {
    let (sim, stop) = (Sim::new(Settings::default()), CancellationToken::new());
    let mut manager = Manager::new(client(&sim, "operator"), Limits::default());
    manager.add(foo::controller).unwrap();
    let user = client(&sim, "user");
    let users = async {
        create_foos(&user, &["one"]).await;
        let deployments = ApiResource::new("apps", "v1", "Deployment", "deployments");
        while user.get::<Value>(&deployments, Some("default"), "web").await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.cancel();
    };
    let all = async { tokio::join!(manager.run(stop.clone()), users) };
    tokio::select! { _ = all => {}, () = sim.run() => {} }

    let events = ApiResource::new("events.k8s.io", "v1", "Event", "events");
    let events: Vec<Value> = user.list(&events, Some("default")).await.unwrap();
    assert!(events.iter().any(|event| event["reason"] == "ChildCreated"), "{events:?}");
}
