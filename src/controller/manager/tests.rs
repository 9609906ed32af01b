//! Tests of a manager with one operator on the embedded server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::running::drain;
use super::*;
use crate::api::ApiResource;
use crate::api::samplecontroller::v1alpha1::{Foo, FooSpec, FooStatus};
use crate::cache::factory::Watched;
use crate::cache::{Cached, Deleted, EventHandler, ObjectName};
use crate::controller::{
    Builder, Controller, OnceObserver, Outcome, Pass, Reconcile, StopReason, SyncError, SyncHandler,
    SyncRequest,
};
use crate::operators::foo;
use crate::sim::{Action, Fault, InProcessTransport, LedgerEntry, Settings, Sim, When};
use crate::workqueue::{ItemExponentialFailure, RateLimitingQueue};

/// Counts syncs, each of which takes a second.
#[derive(Clone, Default)]
struct Passes {
    ended: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
    /// The most that ran at once.
    most: Arc<AtomicUsize>,
}

impl Reconcile for Passes {
    type Resource = Foo;

    async fn reconcile(&self, pass: &mut Pass<'_, Foo>) -> Result<FooStatus, StopReason> {
        self.most.fetch_max(self.running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(pass.stored_status())
    }
}

impl Passes {
    /// Waits until more than `before` syncs have ended and no more follow; returns their number.
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

const SECOND: Duration = Duration::from_secs(1);
const DEPLOYMENTS: ApiResource = ApiResource::new("apps", "v1", "Deployment", "deployments");

/// A process with a manager of Foos that takes part in an election.
struct Process {
    leadership: Leadership,
    health: Health,
    stop: CancellationToken,
    task: JoinSet<Result<(), RunError>>,
}

impl Process {
    fn start(sim: &Sim, user: &str, shutdown_timeout: Duration) -> Self {
        let mut manager = Manager::new(client(sim, user), Limits::default())
            .with_leader_election("default", "foos", LeaderElectionConfig::default())
            .unwrap()
            .with_shutdown_timeout(shutdown_timeout);
        manager.add(foo::controller).unwrap();
        let (leadership, health) = (manager.leadership().unwrap(), manager.health());
        let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
        task.spawn(manager.run(stop.clone()));
        Self { leadership, health, stop, task }
    }

    async fn ended(&mut self) -> Result<(), RunError> {
        self.task.join_next().await.unwrap().unwrap()
    }

    fn is_ready(&self) -> bool {
        self.health.answer("/readyz", "").unwrap().0 == 200
    }
}

/// Starts a server with the CRD of Foo; returns it with its user and the task that drives it.
async fn server() -> (Sim, ApiClient, JoinSet<()>) {
    let (sim, mut driver) = (Sim::new(Settings::default()), JoinSet::new());
    let driven = sim.clone();
    driver.spawn(async move { driven.run().await });
    let user = client(&sim, "user");
    create_foos(&user, &["first"]).await;
    (sim, user, driver)
}

/// Returns the holder of the Lease, empty after a release.
async fn holder(user: &ApiClient) -> String {
    let lease = json!(user.get_lease("default", "foos").await.unwrap().unwrap());
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

async fn is_created(user: &ApiClient) -> bool {
    user.get::<Value>(&DEPLOYMENTS, Some("default"), "web").await.unwrap().is_some()
}

/// Adds the name of a new ConfigMap as a key.
struct EnqueueNamesake(RateLimitingQueue<ObjectName>);

impl EventHandler<ConfigMap> for EnqueueNamesake {
    fn on_add(&mut self, object: &Cached<ConfigMap>, _: bool) {
        self.0.add(object.object_name().clone());
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
        queue.add(ObjectName::new(Some("default"), "one"));
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

/// Takes a second for each sync.
struct TakesASecond;

impl SyncHandler for TakesASecond {
    async fn sync(&self, _: &ObjectName, _: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        tokio::time::sleep(SECOND).await;
        Ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn number_of_workers_follows_the_load() {
    let (sim, _user, _driver) = server().await;
    let leader = Process::start(&sim, "first", SHUTDOWN_TIMEOUT);
    leader.leadership.acquired().await;
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO));
    let mut manager = Manager::new(client(&sim, "operator"), Limits::default())
        .with_leader_election("default", "foos", LeaderElectionConfig::default())
        .unwrap();
    let add = manager.add(|shared| {
        let controller = Controller::new("slow", queue.clone(), TakesASecond)
            .with_metrics(shared.metrics.controller("slow"));
        Ok(Runnable::from(controller).with_auto_workers(AutoWorkers::up_to(3)))
    });
    add.unwrap();
    let (view, metrics) = (manager.views().remove(0), manager.metrics().clone());
    let (stop, mut running) = (CancellationToken::new(), JoinSet::new());
    running.spawn(manager.run(stop.clone()));
    // Returns the numbers of workers that were seen while keys always waited.
    let under_load = async |seconds: usize| {
        let mut counts = Vec::new();
        for _ in 0..seconds {
            (0..20).for_each(|key| queue.add(ObjectName::new(Some("default"), &format!("key-{key}"))));
            tokio::time::sleep(SECOND).await;
            counts.push(view.workers.count());
        }
        counts.dedup();
        counts
    };
    assert_eq!(under_load(200).await, [1], "a standby changes nothing");
    leader.stop.cancel();
    assert_eq!(under_load(300).await, [1, 2, 3]);
    assert_eq!(view.workers.why().unwrap(), "2 were busy for 100 % of the time");
    tokio::time::sleep(30 * 60 * SECOND).await;
    assert_eq!(view.workers.count(), 1);
    let text = metrics.encode();
    for series in [
        "windlass_worker_changes_total{controller=\"slow\",direction=\"up\"} 2\n",
        "windlass_worker_changes_total{controller=\"slow\",direction=\"down\"} 2\n",
        "controller_runtime_max_concurrent_reconciles{controller=\"slow\"} 1\n",
    ] {
        assert!(text.contains(series), "no {series} in\n{text}");
    }
    stop.cancel();
    running.join_next().await.unwrap().unwrap().unwrap();
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

#[tokio::test(start_paused = true)]
async fn one_of_two_managers_works_until_it_stops() {
    let (sim, user, _driver) = server().await;
    let mut first = Process::start(&sim, "first", SHUTDOWN_TIMEOUT);
    first.leadership.acquired().await;
    let second = Process::start(&sim, "second", SHUTDOWN_TIMEOUT);
    while !is_created(&user).await || !second.is_ready() {
        tokio::time::sleep(SECOND / 100).await;
    }
    assert!(first.is_ready() && !second.leadership.is_leader());
    let writes = sim.ledger().into_iter().filter(|entry| entry.user == "second");
    let writes = writes.filter(|entry| !["get", "list", "watch"].contains(&&*entry.verb));
    assert_eq!(writes.map(|entry| entry.resource).collect::<Vec<_>>(), Vec::<String>::new());

    let stopped = Instant::now();
    first.stop.cancel();
    assert_eq!(first.ended().await, Ok(()));
    assert!(!first.is_ready());
    second.leadership.acquired().await;
    assert!(stopped.elapsed() < 5 * SECOND, "at the standby's next check: {:?}", stopped.elapsed());
}

/// An admission webhook that takes 25 s holds the create of a Deployment.
#[tokio::test(start_paused = true)]
async fn lease_is_released_after_syncs_in_flight() {
    let (sim, user, _driver) = server().await;
    sim.fault(Fault::new(When::verb("create").resource("deployments"), Action::Hold));
    let mut process = Process::start(&sim, "operator", 30 * SECOND);
    tokio::time::sleep(5 * SECOND).await;
    process.stop.cancel();
    tokio::time::sleep(20 * SECOND).await;
    assert!(!is_created(&user).await && process.leadership.is_leader(), "it renews the Lease meanwhile");
    sim.release();
    assert_eq!(process.ended().await, Ok(()));
    assert!(is_created(&user).await);
    assert_eq!(holder(&user).await, "");
}

/// Blocks its thread in the first sync, until told to go on.
struct Blocking {
    began: mpsc::Sender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl SyncHandler for Blocking {
    async fn sync(&self, _: &ObjectName, _: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        self.began.send(()).unwrap();
        // It fails once the sender is dropped.
        self.go_on.lock().recv().unwrap_err();
        Ok(Outcome::Done)
    }
}

/// In real time: a paused clock would stop while a thread computes.
#[test]
fn blocked_thread_delays_no_renewal() {
    let (began, has_begun) = mpsc::channel();
    let (go_on, wait) = mpsc::channel();
    let apart = runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    // The server works apart, too.
    let _entered = apart.enter();
    let (sim, user, _driver) = apart.block_on(server());
    let config = LeaderElectionConfig {
        lease_duration: 60 * SECOND,
        renew_deadline: 50 * SECOND,
        retry_period: SECOND / 100,
        release_on_cancel: true,
    };
    let mut manager = Manager::new(client(&sim, "operator"), Limits::default())
        .with_leader_election("default", "foos", config)
        .unwrap()
        .with_election_runtime(apart.handle().clone());
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO));
    queue.add(ObjectName::new(Some("default"), "key"));
    let blocking = Blocking { began, go_on: Mutex::new(wait) };
    manager.add(|_| Ok(Controller::new("blocking", queue, blocking))).unwrap();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let one = thread::spawn(move || {
        let only = runtime::Builder::new_current_thread().enable_time().build().unwrap();
        only.block_on(manager.run(stopped))
    });
    has_begun.recv_timeout(60 * SECOND).unwrap();
    // From here on the manager's only thread does nothing else.
    apart.block_on(async {
        let is_renewal = |entry: &LedgerEntry| entry.resource == "leases" && entry.verb == "update";
        let renewals = || sim.ledger().iter().filter(|entry| is_renewal(entry)).count();
        let before = renewals();
        let renewed = async {
            while renewals() < before + 3 {
                tokio::time::sleep(SECOND / 100).await;
            }
        };
        tokio::time::timeout(60 * SECOND, renewed).await.expect("the Lease is renewed meanwhile");
    });
    drop(go_on);
    stop.cancel();
    assert_eq!(one.join().unwrap(), Ok(()));
    assert_eq!(apart.block_on(holder(&user)), "");
}

#[tokio::test(start_paused = true)]
async fn lease_is_not_released_while_a_write_may_be_in_flight() {
    let (sim, user, _driver) = server().await;
    sim.fault(Fault::new(When::verb("create").resource("deployments"), Action::Hold));
    let mut first = Process::start(&sim, "first", SHUTDOWN_TIMEOUT);
    tokio::time::sleep(2 * SECOND).await;
    let second = Process::start(&sim, "second", SHUTDOWN_TIMEOUT);
    first.stop.cancel();
    let keys = "default/first".to_owned();
    assert_eq!(first.ended().await, Err(RunError::DrainTimedOut { timeout: SHUTDOWN_TIMEOUT, keys }));
    let ended = Instant::now();
    tokio::time::sleep(5 * SECOND).await;
    assert!(!is_created(&user).await, "the write is still in the webhook");
    assert!(!second.leadership.is_leader() && !holder(&user).await.is_empty());
    sim.release();
    second.leadership.acquired().await;
    assert!(is_created(&user).await);
    let took = ended.elapsed();
    // The standby reads the Lease every 2 to 4.4 s, and waits 15 s from when it saw the last renewal.
    assert!((13 * SECOND..24 * SECOND).contains(&took), "once the Lease has expired: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_leadership_stops_the_manager() {
    let (sim, user, _driver) = server().await;
    let mut process = Process::start(&sim, "operator", SHUTDOWN_TIMEOUT);
    process.leadership.acquired().await;
    let of_lease = When::any().resource("leases").user("operator");
    sim.fault(Fault::new(of_lease, Action::refuse(500, "InternalError")));
    assert_eq!(process.ended().await, Err(RunError::LostLeadership));
    assert!(!process.is_ready() && !holder(&user).await.is_empty());
}

/// R20
#[tokio::test(start_paused = true)]
async fn readiness_names_a_kind_that_may_not_be_watched() {
    let (sim, user, _driver) = server().await;
    let mut process = Process::start(&sim, "windlass", SECOND);
    while !is_created(&user).await {
        tokio::time::sleep(SECOND).await;
    }
    let readiness = || process.health.answer("/readyz", "verbose").unwrap();
    assert!(readiness().1.contains("[+]cache-foos.samplecontroller.k8s.io ok\n"), "{}", readiness().1);
    let watches = When::verb("watch").user("windlass").resource("foos");
    sim.fault(Fault::new(watches, Action::refuse(403, "Forbidden")));
    sim.cut_watches("windlass", "foos");
    let foo = json!(Foo::new("second", FooSpec { deployment_name: "other".to_owned(), replicas: 1 }));
    user.create::<Value>(&ApiResource::of::<Foo>(), Some("default"), &foo).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let found = user.get::<Value>(&DEPLOYMENTS, Some("default"), "other").await.unwrap();
    assert!(found.is_some(), "it is listed each minute");
    let (code, text) = readiness();
    let named = text.lines().any(|line| line.contains("cache-foos") && line.contains("403"));
    assert!(code == 200 && named, "{text}");
    process.stop.cancel();
    process.ended().await.unwrap();
}

#[tokio::test]
async fn task_panic_fails_drain_after_other_tasks_finish() {
    let mut tasks = JoinSet::new();
    let (ended, others) = tokio::sync::oneshot::channel();
    tasks.spawn(async { std::panic::resume_unwind(Box::new("a part panicked")) });
    tasks.spawn(async move { ended.send(()).unwrap() });
    assert_eq!(drain(&mut tasks).await, Err(RunError::Panicked));
    others.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn manager_without_controllers_runs_until_stopped() {
    let (sim, stop) = (Sim::new(Settings::default()), CancellationToken::new());
    let mut running = Box::pin(Manager::new(client(&sim, "operator"), Limits::default()).run(stop.clone()));
    assert!(tokio::time::timeout(60 * SECOND, &mut running).await.is_err());
    stop.cancel();
    assert_eq!(running.await, Ok(()));
}

struct NoObserver;

impl OnceObserver for NoObserver {
    fn expects(&self, _: usize) {}

    fn observe<'a>(
        &'a self,
        _: &'a str,
        _: &'a ObjectName,
        sync: BoxFuture<'a, Result<(), String>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async { sync.await.expect("the sync succeeds") })
    }
}

/// The caches will never fill.
#[tokio::test(start_paused = true)]
async fn failed_informer_ends_run_once() {
    let service = tower::service_fn(|_: http::Request<kube_client::client::Body>| async {
        if true {
            std::panic::resume_unwind(Box::new("the machinery is broken"));
        }
        Ok::<_, std::convert::Infallible>(http::Response::new(kube_client::client::Body::empty()))
    });
    let client = ApiClient::new(kube_client::Client::new(service, "default"));
    let mut manager = Manager::new(client, Limits::default()).without_events();
    manager.add(foo::controller).unwrap();
    let running = manager.run_once(Arc::new(NoObserver), CancellationToken::new());
    let ended = tokio::time::timeout(3600 * SECOND, running).await;
    assert_eq!(ended, Ok(Err(RunError::Panicked)));
}

/// The caches of both namespaces show its writes there, and a new leader asks each namespace for its version.
#[tokio::test(start_paused = true)]
async fn named_namespaces_are_synced_and_no_other() {
    let (sim, user, _driver) = server().await;
    let namespaces = ["default", "kube-system"];
    let mut manager = Manager::new(client(&sim, "operator"), Limits::default())
        .with_namespaces(namespaces)
        .with_leader_election("default", "foos", LeaderElectionConfig::default())
        .unwrap();
    manager.add(foo::controller).unwrap();
    let caches: Vec<_> = manager.caches()().into_iter().map(|cache| (cache.kind, cache.namespace)).collect();
    assert_eq!(caches.len(), 4, "{caches:?}");
    let mut tasks = JoinSet::new();
    tasks.spawn(manager.run(CancellationToken::new()));
    let foos = ApiResource::of::<Foo>();
    for namespace in ["kube-system", "kube-public"] {
        let foo = json!(Foo::new("first", FooSpec { deployment_name: "web".to_owned(), replicas: 1 }));
        user.create::<Value>(&foos, Some(namespace), &foo).await.unwrap();
    }
    let web = async |namespace| user.get::<Value>(&DEPLOYMENTS, Some(namespace), "web").await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    for (at, namespace) in (2..).zip(namespaces.into_iter().cycle().take(6)) {
        let mut foo: Value = user.get(&foos, Some(namespace), "first").await.unwrap().unwrap();
        foo["spec"]["replicas"] = json!(at);
        user.replace::<Value>(&foos, Some(namespace), "first", &foo).await.unwrap();
        tokio::time::sleep(SECOND).await;
        let found = web(namespace).await.unwrap();
        assert_eq!(found["spec"]["replicas"], at, "{namespace} waits for no cache of another namespace");
    }
    assert!(web("kube-public").await.is_none());
    let requests = sim.ledger().into_iter().filter(|entry| entry.user == "operator");
    let elsewhere = requests
        .map(|entry| entry.uri)
        .filter(|uri| !namespaces.iter().any(|namespace| uri.contains(&format!("/namespaces/{namespace}/"))));
    assert_eq!(elsewhere.collect::<Vec<_>>(), Vec::<String>::new());
}
