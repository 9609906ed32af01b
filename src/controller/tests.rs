//! Late caches, on the embedded API server. The controller keeps as many numbered children as its Foo asks for. The
//! server generates their names, so that only the guard keeps the controller from creating a child twice.
//!
//! Each seed is a history of its own: how late the cache is, when watches are cut, when the process is killed and
//! restarted, how the Foo is scaled. Two things hold at every request: there are never more children than the
//! highest number asked for, and no child is deleted whose number is asked for.
//!
//! The same histories expose controllers that are broken on purpose.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::CustomResourceExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::api::ApiResource;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::cache::factory::Watched;
use crate::cache::{Cached, Indexers, Lister, ObjectName, SharedInformerFactory};
use crate::client::{ApiClient, Clock};
use crate::controller::run::handlers::{EnqueueOwner, EnqueueSelf};
use crate::metrics::ControllerMetrics;
use crate::record::EventRecorder;
use crate::sim::{Action, Fault, InProcessTransport, LedgerEntry, Settings, Sim, When};
use crate::workqueue::{ItemExponentialFailure, RateLimitingQueue};

const HISTORIES: u64 = 150;

/// The part that is left out of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// Writes are not reported to the guard.
    Guard,
    /// Children are deleted without a live read.
    LiveRead,
    /// Failures are retried at once.
    Backoff,
}

struct SetSync {
    client: ApiClient,
    foos: Lister<Foo>,
    maps: Lister<ConfigMap>,
    tools: Tools<Foo>,
    broken: Broken,
    /// Whether a sync in progress has created only some of its children.
    half_done: Arc<AtomicBool>,
}

impl SyncHandler for SetSync {
    async fn sync(&self, key: &ObjectName, request: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        let Some(Cached::Readable(foo)) = self.foos.get(key) else { return Ok(Outcome::Done) };
        let (owner, pass) = (Owner::of(&*foo), Pass::new(&self.tools, foo.clone(), request));
        // A sync takes time: in paused time, syncs that are retried at once would otherwise stop the clock.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let wanted = usize::try_from(foo.spec.replicas).unwrap_or_default();
        let mut children = self.maps.controlled_by(&owner.uid);
        children.retain(|child| !child.is_deleting());
        let there: BTreeSet<usize> =
            children.iter().map(|child| number_of(child.object_name().name())).collect();
        let missing: Vec<usize> = (0..wanted).filter(|number| !there.contains(number)).collect();
        if !missing.is_empty() {
            let (_, failure) = slow_start_batch(missing.len(), |at| self.create(&pass, missing[at])).await;
            self.half_done.store(false, Ordering::Relaxed);
            return failure.map_or(Ok(Outcome::Done), |error| Err(error.into()));
        }
        for child in children.iter().filter(|child| number_of(child.object_name().name()) >= wanted) {
            let (name, uid) = (child.object_name(), child.uid());
            if self.broken == Broken::LiveRead {
                let maps = ApiResource::of::<ConfigMap>();
                let version = child.resource_version();
                self.client.delete(&maps, name.namespace(), name.name(), uid, version).await?;
                pass.deleted(&maps, name, uid);
            } else {
                let maps = ApiResource::of::<ConfigMap>();
                let deletion = pass.delete_surplus(&maps, &ChildRef::of(child)).await?;
                if deletion == Deletion::NotNow {
                    return Ok(Outcome::RequeueAfter(Duration::from_secs(1)));
                }
            }
        }
        Ok(Outcome::Done)
    }
}

impl SetSync {
    async fn create(&self, pass: &Pass<'_, Foo>, number: usize) -> Result<(), crate::client::Error> {
        let owner = pass.owner();
        let maps = ApiResource::of::<ConfigMap>();
        let body = json!({"metadata": {"generateName": format!("child-{number}-"), "ownerReferences": [{
            "apiVersion": owner.resource.api_version(), "kind": owner.resource.kind,
            "name": owner.name.name(), "uid": owner.uid, "controller": true}]}});
        // The request and its response take time.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let created: ConfigMap = self.client.create(&maps, owner.name.namespace(), &body).await?;
        self.half_done.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(2)).await;
        if self.broken != Broken::Guard {
            pass.wrote(&created);
        }
        Ok(())
    }
}

/// `child-3-x7k2p` is number 3.
fn number_of(child: &str) -> usize {
    child.split('-').nth(1).and_then(|number| number.parse().ok()).expect("a child has a number")
}

/// A server, a user, and a controller that reads from the server's second, late cache.
struct Bed {
    sim: Sim,
    user: ApiClient,
    broken: Broken,
    seed: u64,
    stop: CancellationToken,
    world: JoinSet<()>,
    machine: JoinSet<()>,
    half_done: Arc<AtomicBool>,
}

fn client(sim: &Sim, name: &str, server: usize) -> ApiClient {
    ApiClient::new(kube_client::Client::new(InProcessTransport::new(sim, name).to_server(server), "default"))
}

impl Bed {
    async fn start(seed: u64, broken: Broken) -> Self {
        let sim = Sim::new(Settings { seed, ..Settings::default() });
        let (stop, mut world) = (CancellationToken::new(), JoinSet::new());
        let (server, end) = (sim.clone(), stop.clone());
        world.spawn(async move {
            tokio::select! { () = server.run() => {}, () = end.cancelled() => {} }
        });
        let user = client(&sim, "user", 0);
        let crds = ApiResource::new(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        );
        let crd = serde_json::to_value(Foo::crd()).expect("a CRD is JSON");
        let _: Value = user.create(&crds, None, &crd).await.expect("the server takes it");
        // The kind is served once its CRD is established.
        while user.list::<Value>(&ApiResource::of::<Foo>(), None).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }

        let mut bed =
            Self { sim, user, broken, seed, stop, world, machine: JoinSet::new(), half_done: Arc::default() };
        bed.operate();
        bed
    }

    /// Starts a controller.
    fn operate(&mut self) {
        let Self { seed, broken, .. } = *self;
        let client = client(&self.sim, "controller", 1);
        let informers = SharedInformerFactory::new(client.clone(), Vec::new(), None, seed);
        let foos = informers.informer(Watched {
            indexers: Indexers::default().with(run::handlers::CHILD_NAME, |_| vec![]),
            ..<_>::default()
        });
        let foos = foos.unwrap();
        let maps = informers.informer(Watched::<ConfigMap>::default()).unwrap();
        let delays = if broken == Broken::Backoff { (0, 0) } else { (5, 10_000) };
        let (base, max) = (Duration::from_millis(delays.0), Duration::from_millis(delays.1));
        let queue = RateLimitingQueue::new(ItemExponentialFailure::new(base, max));
        let sync = SetSync {
            foos: foos.lister(),
            maps: maps.lister(),
            tools: Tools {
                client: client.clone(),
                objects: foos.lister(),
                relist: Relist::default(),
                recorder: EventRecorder::to_buffer(Clock::system(), 1).0,
                clock: Clock::system(),
                metrics: ControllerMetrics::unread("set"),
            },
            client,
            broken,
            half_done: self.half_done.clone(),
        };
        let controller = Controller::new("set", queue.clone(), sync)
            .watches(&foos, EnqueueSelf::new(queue.clone()))
            .unwrap()
            .watches(&maps, EnqueueOwner::new(foos.store(), queue).unwrap())
            .unwrap()
            .with_workers(2);
        let (scope, other) = (self.stop.clone(), self.stop.clone());
        self.machine.spawn(async move { informers.run(scope).await });
        self.machine.spawn(controller.run(other));
    }

    /// Kills the controller and starts a new one without its memory. Returns whether a sync had created only some
    /// of its children.
    async fn crash(&mut self) -> bool {
        self.machine.shutdown().await;
        self.operate();
        self.half_done.swap(false, Ordering::Relaxed)
    }

    /// Creates the Foo, or changes how many children it asks for.
    async fn scale(&self, replicas: usize) {
        let foos = ApiResource::of::<Foo>();
        let live: Option<Value> =
            self.user.get(&foos, Some("default"), "set").await.expect("the server takes it");
        if let Some(mut live) = live {
            live["spec"]["replicas"] = json!(replicas);
            let _: Value =
                self.user.replace(&foos, Some("default"), "set", &live).await.expect("the server takes it");
        } else {
            let foo = json!({"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo",
                "metadata": {"name": "set"}, "spec": {"deploymentName": "x", "replicas": replicas}});
            let _: Value = self.user.create(&foos, Some("default"), &foo).await.expect("the server takes it");
        }
    }

    async fn stop(mut self) {
        self.stop.cancel();
        for tasks in [&mut self.machine, &mut self.world] {
            while let Some(ended) = tasks.join_next().await {
                ended.expect("no task panics");
            }
        }
    }
}

/// Returns the first fault in a history, given the server's requests in order and the number of children that each
/// write of the user asked for.
fn fault_of(ledger: &[LedgerEntry], asked: &[usize]) -> Option<String> {
    let mut asked = asked.iter().copied();
    let (mut wanted, mut most, mut children) = (0, 0, 0_usize);
    // The controller's last live read of its Foo, which justifies deletes for a second.
    let mut read = None;
    for entry in ledger.iter().filter(|entry| (200..300).contains(&entry.code)) {
        match (entry.user.as_str(), entry.verb.as_str(), entry.resource.as_str()) {
            ("user", "create" | "update", "foos") => {
                wanted = asked.next().expect("each write of the user is in `asked`");
                most = most.max(wanted);
            }
            ("controller", "get", "foos") => read = Some((wanted, entry.at)),
            ("controller", "create", "configmaps") => {
                children += 1;
                if children > most {
                    return Some(format!("{children} children, and never more than {most} were asked for"));
                }
            }
            ("controller", "delete", "configmaps") => {
                // The user may ask for more between the live read and the delete.
                let fresh = read.filter(|(_, at)| entry.at - *at <= Duration::from_secs(1));
                let (decided_on, number) =
                    (fresh.map_or(wanted, |(wanted, _)| wanted), number_of(&entry.name));
                if number < decided_on {
                    return Some(format!(
                        "number {number} of {children} children is deleted, and {decided_on} are asked for"
                    ));
                }
                children -= 1;
            }
            _ => {}
        }
    }
    (children != wanted).then(|| format!("{children} children at the end, and {wanted} are asked for"))
}

/// Returns the seeds of the histories: random, unless `WINDLASS_HISTORIES_SEED` sets the first.
fn seeds() -> std::ops::Range<u64> {
    let named = std::env::var("WINDLASS_HISTORIES_SEED").ok();
    let first = named.map_or_else(|| fastrand::u64(..1 << 40), |text| text.parse().expect("a number"));
    first..first + HISTORIES
}

/// Runs one history; returns what went wrong, if anything, and how often the controller was killed between writes.
async fn history(seed: u64, broken: Broken) -> (Option<String>, usize) {
    let mut bed = Bed::start(seed, broken).await;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut killed = 0;
    let asked: Vec<usize> = (0..random.usize(3..7)).map(|_| random.usize(1..8)).collect();
    for wanted in &asked {
        let lag = Duration::from_millis(random.u64(0..8000));
        bed.sim.set_lag(1, lag);
        if random.bool() {
            bed.sim.cut_watches("controller", if random.bool() { "foos" } else { "configmaps" });
        }
        bed.scale(*wanted).await;
        if random.bool() {
            // The change arrives after the lag of the cache; the sync then takes some milliseconds.
            tokio::time::sleep(lag + Duration::from_millis(random.u64(1..40))).await;
            killed += usize::from(bed.crash().await);
        }
        // Often too short for the controller to converge.
        tokio::time::sleep(Duration::from_millis(random.u64(1..15_000))).await;
    }
    bed.sim.set_lag(1, Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let fault = fault_of(&bed.sim.ledger(), &asked);
    let fault = fault.map(|fault| format!("seed {seed}: {fault}; {}", bed.sim.recipe()));
    bed.stop().await;
    (fault, killed)
}

#[tokio::test(start_paused = true)]
async fn late_caches_cause_no_surplus_or_wrong_delete() {
    let mut killed = 0;
    for seed in seeds() {
        let (fault, times) = history(seed, Broken::Nothing).await;
        assert_eq!(fault, None);
        killed += times;
    }
    assert!(killed >= 5, "the controller was killed between writes only {killed} times");
}

/// Returns how many histories it takes to expose a broken controller.
async fn histories_until_exposed(broken: Broken) -> Option<u64> {
    for (tried, seed) in (1..).zip(seeds()) {
        if history(seed, broken).await.0.is_some() {
            return Some(tried);
        }
    }
    None
}

#[tokio::test(start_paused = true)]
async fn histories_expose_a_controller_without_the_guard() {
    assert!(histories_until_exposed(Broken::Guard).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn histories_expose_a_controller_without_live_reads() {
    assert!(histories_until_exposed(Broken::LiveRead).await.is_some());
}

/// Returns how many creates are tried while they fail for ten seconds.
async fn tries(broken: Broken) -> usize {
    let bed = Bed::start(1, broken).await;
    let creates = When::verb("create").resource("configmaps");
    bed.sim.fault(Fault::new(creates, Action::refuse(500, "InternalError")));
    bed.scale(1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let is_try = |entry: &&LedgerEntry| entry.user == "controller" && entry.verb == "create";
    let tries = bed.sim.ledger().iter().filter(is_try).count();
    bed.stop().await;
    tries
}

#[tokio::test(start_paused = true)]
async fn backoff_spaces_out_retries_against_a_failing_server() {
    // 5 ms doubling: 5, 10, ... 5120 ms.
    assert!((8..=14).contains(&tries(Broken::Nothing).await));
    assert!(tries(Broken::Backoff).await > 100);
}
