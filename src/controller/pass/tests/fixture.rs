//! A fixture for testing sync handlers: the embedded API server, caches that are updated only on demand, and a log of
//! the handler's requests.
//!
//! Mirrors sample-controller `controller_test.go` (`fixture`): seeded listers, recorded actions.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::CustomResourceExt;
use kube_core::object::{HasSpec, HasStatus};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::api::ApiResource;
use crate::api::conditions::{self, READY};
use crate::api::labels;
use crate::cache::store::{self, StoreWriter};
use crate::cache::{Cached, Indexers, Lister, ObjectName, Slim, TypedObject};
use crate::client::{ApiClient, Clock};
use crate::controller::key::KeyState;
use crate::controller::{
    Outcome, Reconcile, Reconciler, Relist, SyncError, SyncHandler, SyncRequest, Tools, Trust,
};
use crate::metrics::{ControllerMetrics, Metrics};
use crate::record::{Event, EventRecorder};
use crate::sim::{InProcessTransport, Settings, Sim};
use crate::workqueue::{ItemExponentialFailure, RateLimitingQueue, Reason, Reasons};

const NAMESPACE: &str = "default";

/// Fills one cache from the server's objects.
struct Feed {
    resource: ApiResource,
    fill: Fill,
}

type Fill = Box<dyn FnMut(&[Value]) + Send>;

/// The caches that a handler reads.
#[derive(Default)]
pub(crate) struct Caches(Vec<Feed>);

/// A custom resource, whole or slim, with the definition that a server needs to serve it.
pub(crate) trait Defined {
    fn definition() -> CustomResourceDefinition;
}

impl<K: CustomResourceExt> Defined for K {
    fn definition() -> CustomResourceDefinition {
        K::crd()
    }
}

impl<K: CustomResourceExt + HasSpec + HasStatus> Defined for Slim<K> {
    fn definition() -> CustomResourceDefinition {
        K::crd()
    }
}

/// A handler under test; see the [module docs](self).
pub(crate) struct Fixture<R: Reconcile> {
    pub(crate) sim: Sim,
    pub(crate) sync: Reconciler<R>,
    pub(crate) user: ApiClient,
    caches: Caches,
    events: mpsc::Receiver<Event>,
    clock: Clock,
    heard: usize,
    /// The keys that wait beside the handler's.
    pub(crate) others: RateLimitingQueue<ObjectName>,
    /// What is remembered of each object.
    pub(crate) states: BTreeMap<String, KeyState>,
}

impl Caches {
    /// Adds an empty cache for one kind, and returns its lister.
    pub(crate) fn lister<O: TypedObject>(&mut self) -> Lister<O> {
        let (store, mut writer) = store::pair(Indexers::default());
        let fill = Box::new(move |live: &[Value]| fill(live, &mut writer));
        self.0.push(Feed { resource: ApiResource::of::<O>(), fill });
        Lister::new(store)
    }
}

fn fill<O: TypedObject>(live: &[Value], writer: &mut StoreWriter<O>) {
    let cached =
        |object: &Value| Cached::new(crate::cache::decode::decode(object.to_string().as_bytes()).unwrap());
    let live: Vec<Cached<O>> = live.iter().map(cached).collect();
    for name in writer.reader().names() {
        writer.remove(&name);
    }
    for object in live {
        writer.put(object);
    }
    writer.set_resource_version("1");
}

impl<R: Reconcile> Fixture<R>
where
    R::Resource: Defined,
{
    /// Creates a server that serves the kind, empty caches, and the handler.
    pub(crate) async fn new(make: impl FnOnce(&mut Caches) -> R) -> Self {
        Self::with_client(|caches, _| make(caches)).await
    }

    /// Like [`new`](Self::new), for a handler that needs the operator's client.
    pub(crate) async fn with_client(make: impl FnOnce(&mut Caches, ApiClient) -> R) -> Self {
        let sim = Sim::new(Settings::default());
        let of =
            |name| ApiClient::new(kube_client::Client::new(InProcessTransport::new(&sim, name), "default"));
        let (user, client) = (of("user"), of("operator"));
        let crd = serde_json::to_value(R::Resource::definition()).unwrap();
        let crds = ApiResource::of::<CustomResourceDefinition>();
        let _: Value = user.create(&crds, None, &crd).await.unwrap();
        while user.list::<Value>(&ApiResource::of::<R::Resource>(), None).await.is_err() {
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let (sync, caches, events) = Self::process(&client, clock, make);
        let others = RateLimitingQueue::new(ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO));
        Self { sim, sync, user, caches, events, clock, heard: 0, others, states: BTreeMap::new() }
    }

    /// Simulates a restart of the operator: nothing is remembered, and the caches are refilled.
    pub(crate) async fn restart(&mut self, make: impl FnOnce(&mut Caches, ApiClient) -> R) {
        let client = ApiClient::new(kube_client::Client::new(
            InProcessTransport::new(&self.sim, "operator"),
            "default",
        ));
        (self.sync, self.caches, self.events) = Self::process(&client, self.clock, make);
        self.states.clear();
        self.catch_up().await;
    }

    fn process(
        client: &ApiClient,
        clock: Clock,
        make: impl FnOnce(&mut Caches, ApiClient) -> R,
    ) -> (Reconciler<R>, Caches, mpsc::Receiver<Event>) {
        let (recorder, events) = EventRecorder::to_buffer(clock, 1000);
        let mut caches = Caches::default();
        let tools = Tools {
            client: client.clone(),
            objects: caches.lister(),
            relist: Relist::default(),
            recorder,
            clock,
            metrics: ControllerMetrics::unread("test"),
        };
        (Reconciler::new(tools, make(&mut caches, client.clone())), caches, events)
    }

    /// Returns metrics that count from now on.
    pub(crate) fn metrics(&mut self) -> Metrics {
        let metrics = Metrics::new();
        self.sync.tools().metrics = metrics.controller("test");
        metrics
    }

    // --- actions of a user ---

    /// Creates an object of the kind, and updates the caches.
    pub(crate) async fn create(&mut self, name: &str, spec: Value) -> Value {
        let resource = ApiResource::of::<R::Resource>();
        let object = json!({"apiVersion": resource.api_version(), "kind": resource.kind,
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec});
        let created = self.user.create(&resource, Some(NAMESPACE), &object).await.unwrap();
        self.catch_up().await;
        created
    }

    /// Edits an object of any kind; the caches stay stale.
    pub(crate) async fn edit<O: TypedObject>(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut live = self.get::<O>(name).await.unwrap();
        edit(&mut live);
        let _: Value =
            self.user.replace(&ApiResource::of::<O>(), Some(NAMESPACE), name, &live).await.unwrap();
    }

    /// Merge-patches the status of an object of any kind; the caches stay stale.
    pub(crate) async fn edit_status<O: TypedObject>(&self, name: &str, patch: Value) {
        let patch = kube_client::api::Patch::Merge(json!({"status": patch}));
        drop(self.api::<O>().patch_status(name, &Default::default(), &patch).await.unwrap());
    }

    /// Creates an object of any kind; the caches stay stale.
    pub(crate) async fn put<O: TypedObject>(&self, object: Value) {
        let _: Value = self.user.create(&ApiResource::of::<O>(), Some(NAMESPACE), &object).await.unwrap();
    }

    /// Changes an object of any kind without validation; the caches stay stale.
    pub(crate) async fn edit_behind<O: TypedObject>(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut live = self.get::<O>(name).await.unwrap();
        edit(&mut live);
        let resource = ApiResource::of::<O>();
        self.sim.write_behind(&resource.group, &resource.plural, &live);
    }

    /// Deletes an object of any kind; the caches stay stale.
    pub(crate) async fn delete<O: TypedObject>(&self, name: &str) {
        let live = self.get::<O>(name).await.unwrap();
        let of = |field: &str| live["metadata"][field].as_str().unwrap().to_owned();
        let (uid, version) = (of("uid"), of("resourceVersion"));
        self.user.delete(&ApiResource::of::<O>(), Some(NAMESPACE), name, &uid, &version).await.unwrap();
    }

    /// Returns a user's access to the objects of a kind.
    fn api<O: TypedObject>(&self) -> kube_client::Api<kube_core::DynamicObject> {
        let client = kube_client::Client::new(InProcessTransport::new(&self.sim, "user"), "default");
        let ApiResource { group, version, kind, plural } = ApiResource::of::<O>();
        let kind = kube_core::GroupVersionKind::gvk(&group, &version, &kind);
        let resource = kube_core::ApiResource::from_gvk_with_plural(&kind, &plural);
        kube_client::Api::namespaced_with(client, NAMESPACE, &resource)
    }

    /// Deletes an object like `kubectl delete --cascade=orphan`, and updates the caches.
    pub(crate) async fn orphan(&mut self, name: &str) {
        let how = kube_client::api::DeleteParams {
            propagation_policy: Some(kube_client::api::PropagationPolicy::Orphan),
            ..Default::default()
        };
        drop(self.api::<R::Resource>().delete(name, &how).await.unwrap());
        self.catch_up().await;
    }

    /// Returns an object from the server.
    pub(crate) async fn get<O: TypedObject>(&self, name: &str) -> Option<Value> {
        self.user.get(&ApiResource::of::<O>(), Some(NAMESPACE), name).await.unwrap()
    }

    /// Returns the sorted names of all objects of a kind on the server.
    pub(crate) async fn names<O: TypedObject>(&self) -> Vec<String> {
        let all: Vec<Value> = self.user.list(&ApiResource::of::<O>(), Some(NAMESPACE)).await.unwrap();
        let mut names: Vec<String> =
            all.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        // Every cluster has this Service.
        names.retain(|name| name != "kubernetes");
        names.sort();
        names
    }

    // --- time and passes ---

    /// Advances time, and updates the caches.
    pub(crate) async fn pass_time(&mut self, time: Duration) {
        self.pass_time_without_catch_up(time).await;
        self.catch_up().await;
    }

    /// Advances time; the caches stay stale.
    pub(crate) async fn pass_time_without_catch_up(&mut self, time: Duration) {
        for _ in 0..10 {
            tokio::time::advance(time / 10).await;
            // The server carries out due work when accessed.
            drop(self.sim.ledger());
        }
    }

    /// Updates the caches from the server; like the informers, takes only children with our label.
    pub(crate) async fn catch_up(&mut self) {
        for feed in &mut self.caches.0 {
            let mut live: Vec<Value> = self.user.list(&feed.resource, None).await.unwrap();
            if feed.resource.kind != ApiResource::of::<R::Resource>().kind {
                live.retain(|child| child["metadata"]["labels"][labels::MANAGED_BY] == labels::MANAGER);
            }
            (feed.fill)(&live);
        }
    }

    /// Runs a sync and updates the caches. Returns the outcome and the requests, such as `create pods`.
    pub(crate) async fn sync(&mut self, name: &str) -> (Outcome, Vec<String>) {
        let (outcome, asked) = self.pass(name, &Reasons::default()).await;
        self.catch_up().await;
        (outcome.unwrap(), asked)
    }

    /// Runs a sync; the caches stay stale.
    pub(crate) async fn sync_without_catch_up(&mut self, name: &str) -> (Outcome, Vec<String>) {
        let (outcome, asked) = self.pass(name, &Reasons::default()).await;
        (outcome.unwrap(), asked)
    }

    /// Runs a sync for an audit, with live reads, and updates the caches.
    pub(crate) async fn audit(&mut self, name: &str) -> (Outcome, Vec<String>) {
        let (outcome, asked) = self.pass_with(name, Trust::Nothing, &Reason::Audit.into()).await;
        self.catch_up().await;
        (outcome.unwrap(), asked)
    }

    /// Runs a sync that may fail; the caches stay stale.
    pub(crate) async fn pass(
        &mut self,
        name: &str,
        why: &Reasons,
    ) -> (Result<Outcome, SyncError>, Vec<String>) {
        self.pass_with(name, Trust::Cache, why).await
    }

    /// Like [`pass`](Self::pass), with this trust in the caches.
    pub(crate) async fn pass_with(
        &mut self,
        name: &str,
        trust: Trust,
        why: &Reasons,
    ) -> (Result<Outcome, SyncError>, Vec<String>) {
        self.heard = self.sim.ledger().len();
        let key = ObjectName::new(Some(NAMESPACE), name);
        let state = self.states.entry(name.to_owned()).or_default();
        let request = SyncRequest::new(why, state).beside(&self.others).with_trust(trust);
        let outcome = self.sync.sync(&key, request).await;
        state.own_writes.end_sync();
        let ours =
            self.sim.ledger().split_off(self.heard).into_iter().filter(|entry| entry.user == "operator");
        let asked = ours.map(|entry| {
            let parts = [&entry.resource, &entry.name, &entry.subresource];
            let path: Vec<&str> =
                parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
            format!("{} {}", entry.verb, path.join("/"))
        });
        (outcome, asked.collect())
    }

    /// Runs syncs and advances time until a sync sends no requests.
    pub(crate) async fn converge(&mut self, name: &str) {
        for _ in 0..50 {
            let (_, asked) = self.sync(name).await;
            self.pass_time(Duration::from_secs(10)).await;
            if asked.is_empty() && self.sync(name).await.1.is_empty() {
                return;
            }
        }
        panic!("{name} does not converge");
    }

    // --- observations ---

    /// Returns the reasons of the events since the last call.
    pub(crate) fn events(&mut self) -> Vec<&'static str> {
        self.notes().into_iter().map(|(reason, _)| reason).collect()
    }

    /// Returns reasons and notes of the events since the last call.
    pub(crate) fn notes(&mut self) -> Vec<(&'static str, String)> {
        self.recorded().into_iter().map(|event| (event.reason, event.note)).collect()
    }

    /// Returns the events since the last call.
    pub(crate) fn recorded(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }

    /// Returns status and reason of the Ready condition.
    pub(crate) async fn ready(&self, name: &str) -> (bool, String) {
        let object = self.get::<R::Resource>(name).await.unwrap();
        let conditions: Vec<Condition> =
            serde_json::from_value(object["status"]["conditions"].clone()).unwrap();
        let reason = conditions::reason(&conditions, READY).unwrap_or_default();
        (conditions::is_true(&conditions, READY), reason.to_owned())
    }

    /// Returns the whole status.
    pub(crate) async fn status(&self, name: &str) -> Value {
        self.get::<R::Resource>(name).await.unwrap()["status"].clone()
    }
}
