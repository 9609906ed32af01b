mod pauses;
mod renames;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::api::conditions::{self, READY, RECONCILING};
use crate::cache::store::StoreWriter;
use crate::cache::{Cached, Indexers, ObjectName, store};
use crate::client::{Clock, Error};
use crate::controller::{Children, Outcome, Reconciler, SyncHandler, SyncRequest, Tools};
use crate::controller::{Consistency, Frozen};
use crate::metrics::ControllerMetrics;
use crate::record::{Event, EventRecorder, EventType};
use crate::sim::Action;
use crate::testing::test_server::TestServer;
use crate::workqueue::{Reason, Reasons};

const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/ns/foos";
const FOO: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/ns/foos/one";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/ns/deployments";

/// Seeded caches and a server that logs requests, like sample-controller's `fixture`.
struct Fixture {
    server: TestServer,
    foos: StoreWriter<Foo>,
    deployments: StoreWriter<ObservedDeployment>,
    sync: Reconciler<FooSync>,
    events: mpsc::Receiver<Event>,
}

/// Returns a request without reasons.
fn pass() -> SyncRequest<'static> {
    static NONE: std::sync::LazyLock<Reasons> = std::sync::LazyLock::new(Reasons::default);
    SyncRequest::new(&NONE)
}

impl Fixture {
    async fn new() -> Self {
        let server = TestServer::start().await;
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let (recorder, events) = EventRecorder::to_buffer(clock, 100);
        let (foo_store, foos) = store::pair(Indexers::default());
        let (deployment_store, deployments) = store::pair(Indexers::default());
        let tools = Tools {
            client: server.client(),
            objects: Lister::new(foo_store),
            children: Children::new(server.client(), Arc::default()),
            consistency: Arc::default(),
            recorder,
            clock,
            metrics: ControllerMetrics::unread("foo"),
        };
        let sync = Reconciler::new(tools, FooSync { deployments: Lister::new(deployment_store) });
        Self { server, foos, deployments, sync, events }
    }

    /// Stores a Foo on the server and in the cache.
    fn foo(&mut self, deployment_name: &str, generation: i64) -> Value {
        let foo = json!({
            "metadata": {"name": "one", "namespace": "ns", "uid": "foo-uid", "generation": generation},
            "spec": {"deploymentName": deployment_name, "replicas": 2},
        });
        let foo = self.server.store(FOOS, foo);
        self.catch_up();
        foo
    }

    /// Updates the caches from the server.
    fn catch_up(&mut self) {
        if let Some(foo) = self.server.get(FOO) {
            let decoded = crate::cache::object::decode(foo.to_string().as_bytes()).unwrap();
            self.foos.upsert(Cached::new(decoded));
        }
        let names = ["old", "new", "web"];
        let live = names.iter().filter_map(|name| self.server.get(&format!("{DEPLOYMENTS}/{name}")));
        let live: Vec<_> = live.map(|d| Cached::new(Ok(serde_json::from_value(d).unwrap()))).collect();
        self.deployments.replace(&live, "1");
    }

    /// Sets the Deployment's status to fully rolled out.
    fn roll_out(&mut self, name: &str) {
        let mut deployment = self.server.get(&format!("{DEPLOYMENTS}/{name}")).unwrap();
        deployment["status"] = json!({"observedGeneration": deployment["metadata"]["generation"],
            "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        self.server.store(DEPLOYMENTS, deployment);
        self.catch_up();
    }

    async fn sync(&mut self) -> (Outcome, Vec<String>) {
        let ended = self.sync_without_catch_up().await;
        self.catch_up();
        ended
    }

    /// Runs a pass; the caches stay stale.
    async fn sync_without_catch_up(&mut self) -> (Outcome, Vec<String>) {
        self.server.requests();
        let outcome = self.sync.sync(&ObjectName::new(Some("ns"), "one"), pass()).await.unwrap();
        let short = |request: String| request.replace(FOOS, "foos").replace(DEPLOYMENTS, "deployments");
        (outcome, self.server.requests().into_iter().map(short).collect())
    }

    fn events(&mut self) -> Vec<&'static str> {
        self.notes().into_iter().map(|(reason, _)| reason).collect()
    }

    fn notes(&mut self) -> Vec<(&'static str, String)> {
        std::iter::from_fn(|| self.events.try_recv().ok()).map(|event| (event.reason, event.note)).collect()
    }

    fn ready(&self) -> (String, String) {
        let foo = self.server.get(FOO).unwrap();
        let ready = conditions_of(&foo).into_iter().find(|condition| condition.type_ == READY).unwrap();
        (ready.status, ready.reason)
    }
}

fn conditions_of(foo: &Value) -> Vec<Condition> {
    serde_json::from_value(foo["status"]["conditions"].clone()).unwrap()
}

/// Changes `spec.deploymentName` to `new`.
fn renamed(f: &mut Fixture) {
    let mut foo = f.server.get(FOO).unwrap();
    foo["spec"]["deploymentName"] = json!("new");
    foo["metadata"]["generation"] = json!(2);
    f.server.store(FOOS, foo);
    f.catch_up();
}

/// client-go: sample-controller `TestCreatesDeployment`
#[tokio::test(start_paused = true)]
async fn a_new_foo_gets_its_deployment() {
    let mut f = Fixture::new().await;
    f.foo("web", 1);
    let (outcome, requests) = f.sync().await;
    assert_eq!(outcome, Outcome::Done);
    assert_eq!(requests, ["POST deployments", "PATCH foos/one/status"]);
    assert_eq!(f.events(), ["ChildCreated"]);
    assert_eq!(f.ready(), ("False".to_owned(), "Progressing".to_owned()));
    let deployment = f.server.get(&format!("{DEPLOYMENTS}/web")).unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(deployment["metadata"]["ownerReferences"][0]["uid"], "foo-uid");
}

/// client-go: sample-controller `TestDoNothing`
#[tokio::test(start_paused = true)]
async fn a_converged_foo_sends_nothing() {
    let mut f = Fixture::new().await;
    f.foo("web", 1);
    f.sync().await;
    f.roll_out("web");
    let (_, requests) = f.sync().await;
    assert_eq!(requests, ["PATCH foos/one/status"]);
    assert_eq!(f.ready(), ("True".to_owned(), "Available".to_owned()));
    for _ in 0..3 {
        let (outcome, requests) = f.sync().await;
        assert_eq!((outcome, requests), (Outcome::Done, vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn events_come_on_transitions_only() {
    let mut f = Fixture::new().await;
    f.foo("web", 1);
    f.sync().await;
    f.roll_out("web");
    f.sync().await;
    assert_eq!(f.events(), ["ChildCreated", "Synced"]);
    f.sync().await;
    let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let (recorder, events) = EventRecorder::to_buffer(clock, 100);
    (f.sync.tools().recorder, f.events) = (recorder, events);
    f.sync().await;
    assert_eq!(f.events(), Vec::<&str>::new(), "a restart repeats no event");
}

/// client-go: sample-controller `TestUpdateDeployment`
#[tokio::test(start_paused = true)]
async fn hand_edit_is_repaired_and_new_spec_applied() {
    let mut f = Fixture::new().await;
    let mut foo = f.foo("web", 1);
    f.sync().await;
    f.events();
    let mut edited = f.server.get(&format!("{DEPLOYMENTS}/web")).unwrap();
    edited["spec"]["replicas"] = json!(9);
    f.server.store(DEPLOYMENTS, edited);
    f.catch_up();
    let (_, requests) = f.sync().await;
    assert_eq!(requests, ["GET foos/one", "PATCH deployments/web"]);
    assert_eq!(f.events(), ["ChildRepaired"]);

    foo["spec"]["replicas"] = json!(3);
    foo["metadata"]["generation"] = json!(2);
    foo["status"] = f.server.get(FOO).unwrap()["status"].clone();
    f.server.store(FOOS, foo);
    f.catch_up();
    f.sync().await;
    assert_eq!(f.events(), ["ChildUpdated"]);
    assert_eq!(f.server.get(&format!("{DEPLOYMENTS}/web")).unwrap()["spec"]["replicas"], 3);
}

/// client-go: sample-controller `TestNotControlledByUs`
#[tokio::test(start_paused = true)]
async fn foreign_deployment_is_untouched_and_reported_once() {
    let mut f = Fixture::new().await;
    f.server
        .store(DEPLOYMENTS, json!({"metadata": {"name": "web", "namespace": "ns"}, "spec": {"replicas": 5}}));
    f.foo("web", 1);
    f.deployments.replace(&[], "1");
    let (outcome, requests) = f.sync().await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(30)) });
    assert_eq!(requests, ["POST deployments", "GET deployments/web", "PATCH foos/one/status"]);
    let event = f.events.try_recv().unwrap();
    assert_eq!((event.event_type, event.reason), (EventType::Warning, "ErrResourceExists"));
    assert_eq!(event.note, "Resource \"web\" already exists and is not managed by Foo");
    assert_eq!(f.ready(), ("False".to_owned(), "ResourceExists".to_owned()));
    f.sync().await;
    assert_eq!(f.events(), Vec::<&str>::new());
    f.server.remove(&format!("{DEPLOYMENTS}/web"));
    f.catch_up();
    f.sync().await;
    assert_eq!(f.events(), ["ChildCreated"], "the Foo recovers once the name is free");
}

#[tokio::test(start_paused = true)]
async fn new_spec_refused_for_another_cause_is_reported() {
    let mut f = Fixture::new().await;
    f.foo("web", 1);
    for (generation, cause, expected) in
        [(1, "no such class", 1), (2, "no such class", 0), (3, "no such account", 1)]
    {
        let mut foo = f.server.get(FOO).unwrap();
        foo["metadata"]["generation"] = json!(generation);
        f.server.store(FOOS, foo);
        f.catch_up();
        let (reason, message) = ("Forbidden".to_owned(), cause.to_owned());
        f.server.hit("create", Action::Refuse { code: 403, reason, message, retry_after: None });
        f.sync().await;
        assert_eq!(f.events(), vec!["ChildRefused"; expected], "{cause}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_deployment_is_retried_every_two_minutes() {
    let mut f = Fixture::new().await;
    f.foo("web", 1);
    f.server.refuse("create", 403, "Forbidden");
    let (outcome, _) = f.sync().await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(120)) });
    assert_eq!(f.events(), ["ChildRefused"]);
    assert_eq!(f.ready().1, "ChildRefused");
    tokio::time::advance(Duration::from_secs(119)).await;
    let (outcome, requests) = f.sync().await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(1)) });
    assert_eq!(requests, Vec::<String>::new());
    tokio::time::advance(Duration::from_secs(1)).await;
    f.sync().await;
    assert_eq!(f.events(), ["ChildCreated"]);
}

/// The cache holds the broken object, which has been corrected on the server.
#[tokio::test(start_paused = true)]
async fn a_corrected_foo_is_not_called_unreadable() {
    let mut f = Fixture::new().await;
    let mut foo = f.foo("web", 1);
    foo["spec"]["replicas"] = json!("three");
    f.server.store(FOOS, foo.clone());
    f.catch_up();
    foo["spec"]["replicas"] = json!(3);
    f.server.store(FOOS, foo);
    let (_, requests) = f.sync().await;
    assert_eq!(requests, ["GET foos/one"]);
}

#[tokio::test(start_paused = true)]
async fn a_foo_being_deleted_is_left_alone() {
    let mut f = Fixture::new().await;
    let mut foo = f.foo("web", 1);
    foo["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    f.server.store(FOOS, foo);
    f.catch_up();
    assert_eq!(f.sync().await, (Outcome::Done, vec![]));
}

#[tokio::test(start_paused = true)]
async fn missing_foo_sends_nothing() {
    let mut f = Fixture::new().await;
    assert_eq!(f.sync().await, (Outcome::Done, vec![]));
}

/// R16
#[tokio::test(start_paused = true)]
async fn an_unreadable_foo_keeps_its_deployment() {
    let mut f = Fixture::new().await;
    let mut foo = f.foo("web", 1);
    f.sync().await;
    foo["spec"]["replicas"] = json!("three");
    f.server.store(FOOS, foo);
    f.catch_up();
    let (outcome, requests) = f.sync().await;
    assert_eq!(outcome, Outcome::Done);
    assert_eq!(requests, ["GET foos/one", "PATCH foos/one/status"]);
    assert!(f.server.get(&format!("{DEPLOYMENTS}/web")).is_some());
    assert_eq!(f.ready().1, "Unreadable");
    let (_, requests) = f.sync().await;
    assert_eq!(requests, ["GET foos/one"], "the status is written once");
}

/// W1: somebody else wrote the status meanwhile.
#[tokio::test(start_paused = true)]
async fn conflicting_status_write_is_retried_once() {
    for conflicts in [1, 2] {
        let mut f = Fixture::new().await;
        f.foo("web", 1);
        f.sync().await;
        f.roll_out("web");
        f.events();
        f.server.requests();
        for _ in 0..conflicts {
            f.server.refuse("patch", 409, "Conflict");
        }
        let key = ObjectName::new(Some("ns"), "one");
        let outcome = f.sync.sync(&key, pass()).await;
        let verbs: Vec<String> =
            f.server.requests().iter().map(|request| request.split(' ').next().unwrap().to_owned()).collect();
        assert_eq!(verbs, ["PATCH", "GET", "PATCH"]);
        match outcome {
            Ok(_) => assert_eq!((conflicts, f.events()), (1, vec!["Synced"])),
            Err(error) => {
                assert!(conflicts == 2 && error.of_client().is_some_and(Error::is_conflict));
                assert_eq!(f.events(), Vec::<&str>::new());
            }
        }
    }
}

/// The spec has changed as well, so neither status nor events are written.
#[tokio::test(start_paused = true)]
async fn status_of_an_outdated_spec_is_not_written() {
    let mut f = Fixture::new().await;
    let mut foo = f.foo("web", 1);
    f.sync().await;
    f.roll_out("web");
    f.events();
    foo["metadata"]["generation"] = json!(2);
    foo["status"] = f.server.get(FOO).unwrap()["status"].clone();
    let newer = f.server.store(FOOS, foo);
    let (outcome, requests) = f.sync_without_catch_up().await;
    assert_eq!(requests, ["PATCH foos/one/status", "GET foos/one"]);
    assert!(matches!(outcome, Outcome::RequeueAfter(_)), "{outcome:?}");
    assert_eq!(f.server.get(FOO).unwrap()["status"], newer["status"]);
    assert_eq!(f.events(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn key_waits_for_its_own_status_write() {
    let mut f = Fixture::new().await;
    let (key, guard) = (ObjectName::new(Some("ns"), "one"), Consistency::new().with(Foo::resource(), Frozen));
    let guard = Arc::new(guard);
    f.sync.tools().consistency = guard.clone();
    f.foo("web", 1);
    assert!(guard.is_ready(&key));
    f.sync().await;
    assert!(!guard.is_ready(&key));
}

/// R9: the watch has lost an event, so the caches are stale.
#[tokio::test(start_paused = true)]
async fn audit_repairs_drift_the_caches_missed() {
    let mut f = Fixture::new().await;
    f.foo("web", 1);
    f.sync().await;
    f.roll_out("web");
    f.sync().await;
    let (key, why) = (ObjectName::new(Some("ns"), "one"), Reasons::from(Reason::Audit));
    assert_eq!(f.sync.sync(&key, SyncRequest::new(&why)).await.unwrap(), Outcome::Done);

    let mut deployment = f.server.get(&format!("{DEPLOYMENTS}/web")).unwrap();
    deployment["spec"]["replicas"] = json!(7);
    f.server.store(DEPLOYMENTS, deployment);
    let (_, requests) = f.sync_without_catch_up().await;
    assert_eq!(requests, Vec::<String>::new(), "a normal pass trusts the cache");
    f.sync.sync(&key, SyncRequest::new(&why)).await.unwrap();
    assert_eq!(f.server.get(&format!("{DEPLOYMENTS}/web")).unwrap()["spec"]["replicas"], 2);
}

/// W13
#[tokio::test(start_paused = true)]
async fn child_altered_by_webhook_is_reported_as_created() {
    let mut f = Fixture::new().await;
    f.server.mutate(&json!({"spec": {"replicas": 7}}));
    f.foo("web", 1);
    for _ in 0..3 {
        f.sync().await;
    }
    assert_eq!(f.ready().1, "StoredOtherwise");
    assert_eq!(f.events(), ["ChildCreated"]);
}

/// W12
#[tokio::test(start_paused = true)]
async fn spec_refused_at_first_is_reported_as_update() {
    let mut f = Fixture::new().await;
    let mut foo = f.foo("web", 1);
    f.sync().await;
    f.events();
    foo["spec"]["replicas"] = json!(3);
    foo["metadata"]["generation"] = json!(2);
    f.server.store(FOOS, foo);
    f.catch_up();
    f.server.refuse("patch", 422, "Invalid");
    f.sync().await;
    tokio::time::advance(Duration::from_secs(120)).await;
    f.sync().await;
    assert_eq!(f.events(), ["ChildRefused", "ChildUpdated"]);
}

/// The cached Foo is stale: nothing is repaired or reported for its old spec.
#[tokio::test(start_paused = true)]
async fn pass_over_an_outdated_spec_reports_nothing() {
    let mut f = Fixture::new().await;
    let mut foo = f.foo("web", 1);
    f.sync().await;
    f.events();
    let mut edited = f.server.get(&format!("{DEPLOYMENTS}/web")).unwrap();
    edited["spec"]["replicas"] = json!(9);
    f.server.store(DEPLOYMENTS, edited);
    f.catch_up();
    f.server.requests();
    foo["metadata"]["generation"] = json!(2);
    f.server.store(FOOS, foo);
    let (outcome, requests) = f.sync_without_catch_up().await;
    assert_eq!(f.events(), Vec::<&str>::new());
    assert_eq!((outcome, requests), (Outcome::Done, vec!["GET foos/one".to_owned()]));
}
