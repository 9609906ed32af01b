//! Electors on the embedded server.

mod model;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;
use crate::api::ApiResource;
use crate::client::ApiClient;
use crate::sim::{Action, Fault, InProcessTransport, Settings, Sim, When};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: &str = "windlass";

fn client(sim: &Sim, user: &str) -> ApiClient {
    ApiClient::new(kube_client::Client::new(InProcessTransport::new(sim, user), "default"))
}

fn elector(client: &ApiClient, identity: &str, config: LeaderElectionConfig) -> LeaderElector {
    let lock = LeaseLock::new(client.clone(), "default".to_owned(), LEASE.to_owned());
    let (recorder, _) = EventRecorder::to_buffer(Clock::system(), 1);
    let seed = identity.bytes().map(u64::from).sum();
    LeaderElector::new(lock, identity.to_owned(), config, recorder, LeaderElectionMetrics::unread(), seed)
        .expect("the times are valid")
}

/// A running elector.
struct Candidate {
    client: ApiClient,
    leadership: Leadership,
    stop: CancellationToken,
    task: JoinSet<Ending>,
}

impl Candidate {
    fn start(sim: &Sim, identity: &str) -> Self {
        let client = client(sim, identity);
        let (elector, stop) =
            (elector(&client, identity, LeaderElectionConfig::default()), CancellationToken::new());
        let leadership = elector.leadership();
        let mut task = JoinSet::new();
        task.spawn(elector.run(stop.clone()));
        Self { client, leadership, stop, task }
    }

    fn may_write(&self) -> bool {
        self.client.gate().is_open()
    }

    /// How long it takes until it leads.
    async fn leads_after(&self) -> Duration {
        let started = Instant::now();
        self.leadership.acquired().await;
        started.elapsed()
    }

    async fn ended(mut self) -> Ending {
        self.task.join_next().await.expect("it runs").expect("the elector does not panic")
    }

    async fn stop(self) -> Ending {
        self.stop.cancel();
        self.ended().await
    }
}

/// A server, and the task that drives it.
fn start() -> (Sim, JoinSet<()>) {
    let (sim, mut driver) = (Sim::new(Settings::default()), JoinSet::new());
    let driven = sim.clone();
    driver.spawn(async move { driven.run().await });
    (sim, driver)
}

async fn lease(sim: &Sim) -> Value {
    let live = client(sim, "user").get_lease("default", LEASE).await.unwrap();
    json!(live.expect("there is a Lease"))
}

/// The verbs of the requests of `user` for the Lease.
fn requests(sim: &Sim, user: &str) -> Vec<String> {
    let all = sim.ledger().into_iter().filter(|entry| entry.user == user && entry.resource == "leases");
    all.map(|entry| entry.verb).collect()
}

/// client-go: `TestFastPathLeaderElection`
#[tokio::test(start_paused = true)]
async fn renewal_is_one_update() {
    let (sim, _driver) = start();
    let a = Candidate::start(&sim, "a");
    a.leadership.acquired().await;
    tokio::time::sleep(7 * SECOND).await;
    assert_eq!(requests(&sim, "a"), ["get", "create", "update", "update", "update"]);
    sim.fault(Fault::new(
        When::verb("update").resource("leases").times(1),
        Action::refuse(500, "InternalError"),
    ));
    tokio::time::sleep(4 * SECOND).await;
    assert_eq!(requests(&sim, "a")[5..], ["update", "get", "update", "update"], "after a failure it is read");
    let spec = &lease(&sim).await["spec"];
    assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&json!("a"), &json!(0)));
    assert_eq!(spec["leaseDurationSeconds"], 15);
}

#[tokio::test(start_paused = true)]
async fn expired_lease_is_taken_over() {
    let (sim, _driver) = start();
    let a = Candidate::start(&sim, "a");
    a.leadership.acquired().await;
    drop(a);
    let b = Candidate::start(&sim, "b");
    let took = b.leads_after().await;
    assert!((15 * SECOND..20 * SECOND).contains(&took), "{took:?}");
    assert_eq!(b.leadership.holder(), "b");
    assert_eq!(lease(&sim).await["spec"]["leaseTransitions"], 1);
}

/// client-go: `TestReleaseLeaseLeases`
#[tokio::test(start_paused = true)]
async fn released_lease_is_taken_over_at_once() {
    let (sim, _driver) = start();
    let a = Candidate::start(&sim, "a");
    a.leadership.acquired().await;
    let b = Candidate::start(&sim, "b");
    tokio::time::sleep(60 * SECOND).await;
    assert!(a.may_write() && !b.may_write());
    assert_eq!(b.leadership.holder(), "a");
    let gate = a.client.clone();
    assert_eq!(a.stop().await, Ending::Stopped);
    assert!(!gate.gate().is_open(), "closed before the release");
    let spec = &lease(&sim).await["spec"];
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    let took = b.leads_after().await;
    assert!(took < 5 * SECOND, "{took:?}");
}

/// client-go: `TestReleaseRetriesOnConflict`
#[tokio::test(start_paused = true)]
async fn release_retries_on_conflict() {
    let (sim, _driver) = start();
    let a = Candidate::start(&sim, "a");
    a.leadership.acquired().await;
    tokio::time::sleep(SECOND).await;
    sim.fault(Fault::new(When::verb("update").resource("leases").times(2), Action::refuse(409, "Conflict")));
    assert_eq!(a.stop().await, Ending::Stopped);
    assert_eq!(lease(&sim).await["spec"]["holderIdentity"], "");
}

/// Writes the Lease as another process would.
async fn seize(sim: &Sim, holder: &str) {
    let user = client(sim, "user");
    let mut lease: Lease = user.get_lease("default", LEASE).await.unwrap().expect("there is a Lease");
    lease.spec.get_or_insert_default().holder_identity = Some(holder.to_owned());
    user.replace_lease("default", LEASE, &lease).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn successors_lease_is_not_released() {
    let (sim, _driver) = start();
    let a = Candidate::start(&sim, "a");
    a.leadership.acquired().await;
    tokio::time::sleep(SECOND).await;
    seize(&sim, "b").await;
    assert!(a.may_write(), "it cannot know yet");
    assert_eq!(a.stop().await, Ending::Stopped);
    assert_eq!(lease(&sim).await["spec"]["holderIdentity"], "b");
}

#[tokio::test(start_paused = true)]
async fn another_holder_ends_leadership_at_once() {
    let (sim, _driver) = start();
    let a = Candidate::start(&sim, "a");
    a.leadership.acquired().await;
    tokio::time::sleep(SECOND).await;
    seize(&sim, "b").await;
    let started = Instant::now();
    let client = a.client.clone();
    assert_eq!(a.ended().await, Ending::Lost);
    assert!(started.elapsed() < 3 * SECOND);
    assert!(!client.gate().is_open());
}

/// I15
#[tokio::test(start_paused = true)]
async fn leadership_is_lost_at_the_renew_deadline() {
    for action in [Action::refuse(500, "InternalError"), Action::DropBefore, Action::Delay(600 * SECOND)] {
        let (sim, _driver) = start();
        let a = Candidate::start(&sim, "a");
        a.leadership.acquired().await;
        let renewed = Instant::now();
        sim.fault(Fault::new(When::any().resource("leases"), action.clone()));
        tokio::time::sleep(99 * SECOND / 10).await;
        assert!(a.may_write(), "{action:?}");
        tokio::time::sleep(SECOND / 5).await;
        assert!(!a.may_write(), "{action:?}");
        assert_eq!(a.ended().await, Ending::Lost);
        assert!(renewed.elapsed() <= 11 * SECOND, "{action:?}");
    }
}

/// The answer to the write that acquired the lease is lost, and the process is stopped before it asks again.
#[tokio::test(start_paused = true)]
async fn stop_during_a_lost_answer_releases_the_lease() {
    let (sim, _driver) = start();
    let create = When::verb("create").resource("leases").times(1);
    sim.fault(Fault::new(create, Action::DropAfter));
    let a = Candidate::start(&sim, "a");
    tokio::time::sleep(SECOND / 10).await;
    assert!(!a.leadership.is_leader());
    assert_eq!(lease(&sim).await["spec"]["holderIdentity"], "a");
    assert_eq!(a.stop().await, Ending::Stopped);
    assert_eq!(lease(&sim).await["spec"]["holderIdentity"], "");
}

/// client-go: `TestTryAcquireOrRenewLeases`
#[tokio::test(start_paused = true)]
async fn lease_is_tried_by_what_it_holds() {
    let now = Timestamp::UNIX_EPOCH;
    for (holder, seconds, waited, expected, transitions) in [
        ("", 15, 0, Attempt::Succeeded, 4),
        ("other", 15, 0, Attempt::HeldByAnother, 3),
        ("other", 15, 14, Attempt::HeldByAnother, 3),
        ("other", 15, 15, Attempt::Succeeded, 4),
        ("other", 60, 15, Attempt::HeldByAnother, 3),
        ("a", 15, 0, Attempt::Succeeded, 3),
        ("a", 15, 100, Attempt::Succeeded, 3),
    ] {
        let (sim, _driver) = start();
        let client = client(&sim, "a");
        let mut other = LeaseLock::new(client.clone(), "default".to_owned(), LEASE.to_owned());
        let record = LeaderElectionRecord {
            holder_identity: holder.to_owned(),
            lease_duration: Duration::from_secs(seconds),
            acquire_time: Some(now),
            // However old it says that it is: clocks of others do not count.
            renew_time: Some(Timestamp::UNIX_EPOCH),
            leader_transitions: 3,
        };
        other.create(&record).await.unwrap();
        let mut a = elector(&client, "a", LeaderElectionConfig::default());
        if waited > 0 {
            a.observe(record, Instant::now());
            tokio::time::advance(Duration::from_secs(waited)).await;
        }
        let case = format!("held by {holder:?} for {seconds} s, observed for {waited} s");
        assert_eq!(a.try_acquire_or_renew().await.unwrap(), expected, "{case}");
        let spec = &lease(&sim).await["spec"];
        let holder = if expected == Attempt::Succeeded { "a" } else { holder };
        assert_eq!(spec["holderIdentity"], holder, "{case}");
        assert_eq!(spec["leaseTransitions"], transitions, "{case}");
        assert_eq!(client.gate().is_open(), expected == Attempt::Succeeded, "{case}");
    }
}

/// client-go: `TestLeaderElectionConfigValidation`
#[test]
fn times_that_exclude_each_other_are_refused() {
    let valid = LeaderElectionConfig::default();
    assert_eq!(valid.validate(), Ok(()));
    let with = |lease, renew, retry| LeaderElectionConfig {
        lease_duration: Duration::from_millis(lease),
        renew_deadline: Duration::from_millis(renew),
        retry_period: Duration::from_millis(retry),
        ..valid
    };
    for (config, expected) in [
        (with(500, 100, 10), "the lease duration (500ms) must be at least 1s, in whole seconds"),
        (with(1500, 100, 10), "the lease duration (1.5s) must be at least 1s, in whole seconds"),
        (with(15000, 15000, 10), "the renew deadline (15s) must be below the lease duration (15s)"),
        (with(15000, 10000, 0), "the retry period must not be zero"),
        (with(15000, 10000, 9000), "the retry period (9s) times 1.2 must be below the renew deadline (10s)"),
    ] {
        assert_eq!(config.validate().unwrap_err().to_string(), expected);
    }
    assert_eq!(with(1000, 999, 1).validate(), Ok(()));
}

/// client-go: `TestLeaderElectionHealthChecker`
#[tokio::test(start_paused = true)]
async fn leader_that_does_not_renew_is_unhealthy() {
    let (state, leadership) = {
        let state = watch::Sender::new(LeaderState::default());
        let leadership = Leadership { state: state.subscribe(), lease_duration: 15 * SECOND };
        (state, leadership)
    };
    for (is_leader, age, is_healthy) in
        [(false, None, true), (false, Some(100), true), (true, Some(0), true), (true, Some(35), true)]
            .into_iter()
            .chain([(true, Some(36), false)])
    {
        let now = Instant::now();
        let renewed = age.map(|_| now);
        state.send_replace(LeaderState { is_leader, renewed, ..LeaderState::default() });
        tokio::time::advance(Duration::from_secs(age.unwrap_or(0))).await;
        assert_eq!(leadership.check().is_ok(), is_healthy, "leader: {is_leader}, renewed {age:?} s ago");
    }
}

#[tokio::test(start_paused = true)]
async fn new_leader_is_announced() {
    let (sim, _driver) = start();
    let client = client(&sim, "a");
    let lock = LeaseLock::new(client.clone(), "default".to_owned(), LEASE.to_owned());
    let (recorder, mut events) = EventRecorder::to_buffer(Clock::system(), 8);
    let (config, metrics) = (LeaderElectionConfig::default(), LeaderElectionMetrics::unread());
    let elector = LeaderElector::new(lock, "a".to_owned(), config, recorder, metrics, 1).unwrap();
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(elector.run(stop.clone()));
    let event = events.recv().await.unwrap();
    assert_eq!((event.reason, &*event.note), ("LeaderElection", "a became leader"));
    assert_eq!((&*event.regarding.kind, &*event.regarding.name), ("Lease", LEASE));
    assert!(!event.regarding.uid.is_empty());
    stop.cancel();
    assert_eq!(running.join_next().await.unwrap().unwrap(), Ending::Stopped);
}

/// A Lease has labels of somebody, who finds the Lease by them.
#[tokio::test(start_paused = true)]
async fn labels_of_the_lease_stay() {
    let (sim, _driver) = start();
    let user = client(&sim, "user");
    let body = json!({"metadata": {"name": LEASE, "labels": {"team": "x"}}});
    user.create::<Value>(&ApiResource::of::<Lease>(), Some("default"), &body).await.unwrap();
    let a = Candidate::start(&sim, "a");
    a.leadership.acquired().await;
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(lease(&sim).await["metadata"]["labels"], json!({"team": "x"}));
}

#[tokio::test(start_paused = true)]
async fn leadership_is_counted() {
    let (sim, _driver) = start();
    let (client, metrics) = (client(&sim, "a"), crate::metrics::Metrics::new());
    let lock = LeaseLock::new(client.clone(), "default".to_owned(), LEASE.to_owned());
    let (recorder, _) = EventRecorder::to_buffer(Clock::system(), 1);
    let (config, of_lease) = (LeaderElectionConfig::default(), metrics.leader_election(LEASE));
    let elector = LeaderElector::new(lock, "a".to_owned(), config, recorder, of_lease, 1).unwrap();
    let (leadership, stop, mut running) = (elector.leadership(), CancellationToken::new(), JoinSet::new());
    let status = |value: u8| format!("leader_election_master_status{{name=\"windlass\"}} {value}\n");
    assert!(metrics.encode().contains(&status(0)), "{}", metrics.encode());
    running.spawn(elector.run(stop.clone()));
    leadership.acquired().await;
    assert!(metrics.encode().contains(&status(1)), "{}", metrics.encode());
    sim.fault(Fault::new(
        When::verb("update").resource("leases").times(1),
        Action::refuse(500, "InternalError"),
    ));
    tokio::time::sleep(10 * SECOND).await;
    assert!(metrics.encode().contains("leader_election_slowpath_total{name=\"windlass\"} 1\n"));
    stop.cancel();
    running.join_next().await.unwrap().unwrap();
    assert!(metrics.encode().contains(&status(0)), "{}", metrics.encode());
}

#[tokio::test(start_paused = true)]
async fn missing_permission_is_logged_once_a_minute() {
    let log = crate::testing::capture_log();
    let (sim, _driver) = start();
    let fault =
        sim.fault(Fault::new(When::any().resource("leases").user("a"), Action::refuse(403, "Forbidden")));
    let a = Candidate::start(&sim, "a");
    tokio::time::sleep(150 * SECOND).await;
    assert!(!a.leadership.is_known());
    assert!(a.leadership.error().is_some_and(|error| error.contains("403")), "{:?}", a.leadership.error());
    let warnings = log.lines().iter().filter(|line| line.starts_with("WARN Could not acquire")).count();
    assert_eq!(warnings, 3, "at once, and after one and two minutes: {:?}", log.lines());
    sim.heal(fault);
    a.leadership.acquired().await;
    assert_eq!((a.leadership.is_known(), a.leadership.error()), (true, None));
}
