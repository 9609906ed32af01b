//! Members on the embedded server.

mod model;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::api::shards::{Division, Sharding};
use crate::client::ApiClient;
use crate::client::shards::{Admission, Shards};
use crate::leader_election::{Ending, LeaderElectionConfig, LeaderElector, LeaseLock};
use crate::metrics::LeaderElectionMetrics;
use crate::record::EventRecorder;
use crate::sim::{Action, Fault, InProcessTransport, Settings, Sim, When};

const SECOND: Duration = Duration::from_secs(1);
const NAME: &str = "windlass";

fn sharding(of: u16) -> Sharding {
    Sharding { of, by: Division::Hash }
}

fn client(sim: &Sim, user: &str) -> ApiClient {
    ApiClient::new(kube_client::Client::new(InProcessTransport::new(sim, user), "default"))
}

fn elector(client: &ApiClient, identity: &str, shards: &Shards) -> ShardElector {
    let id = identity.bytes().fold(7, |id, byte| id * 31 + u64::from(byte));
    let lease = ("default".to_owned(), NAME.to_owned());
    let (config, metrics) = (LeaderElectionConfig::default(), LeaderElectionMetrics::unread());
    let elector =
        ShardElector::new(client.clone(), lease, (identity.to_owned(), id), config, shards.clone(), metrics);
    elector.expect("the times are valid")
}

/// A running member.
struct Member {
    client: ApiClient,
    shards: Shards,
    release: CancellationToken,
    task: JoinSet<Ending>,
}

impl Member {
    fn start(sim: &Sim, identity: &str, of: u16) -> Self {
        let (client, shards) = (client(sim, identity), Shards::new(sharding(of)));
        let (elector, release) = (elector(&client, identity, &shards), CancellationToken::new());
        let mut task = JoinSet::new();
        task.spawn(elector.run(CancellationToken::new(), release.clone()));
        Self { client, shards, release, task }
    }

    fn count(&self) -> usize {
        self.shards.held().len()
    }

    /// How long it takes until it holds this many shards.
    async fn holds(&self, count: usize) -> Duration {
        let (started, mut changes) = (Instant::now(), self.shards.changes());
        while self.count() != count {
            changes.next().await;
        }
        started.elapsed()
    }

    async fn stop(mut self) {
        self.release.cancel();
        self.task.join_next().await.expect("it runs").expect("the elector does not panic");
    }
}

fn start() -> (Sim, JoinSet<()>) {
    let (sim, mut driver) = (Sim::new(Settings::default()), JoinSet::new());
    let driven = sim.clone();
    driver.spawn(async move { driven.run().await });
    (sim, driver)
}

async fn leases(sim: &Sim) -> Vec<Lease> {
    client(sim, "user").list_leases("default", &format!("{SET}={NAME}")).await.expect("the server answers")
}

/// A namespace of the shard.
fn namespace(shard: u16, of: u16) -> String {
    (0..)
        .map(|n| format!("n{n}"))
        .find(|name| sharding(of).shard_of(name) == shard)
        .expect("each shard has some")
}

#[tokio::test(start_paused = true)]
async fn shards_of_a_dead_member_are_taken() {
    let (sim, _driver) = start();
    let (a, b) = (Member::start(&sim, "a", 4), Member::start(&sim, "b", 4));
    tokio::join!(a.holds(2), b.holds(2));
    drop(a);
    let took = b.holds(4).await;
    assert!((13 * SECOND..20 * SECOND).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn new_member_gets_its_share() {
    let (sim, _driver) = start();
    let a = Member::start(&sim, "a", 4);
    a.holds(4).await;
    // One sync in each shard is in flight.
    let mut syncs: Vec<Admission> = (0..4).map(|shard| a.shards.admit(&namespace(shard, 4))).collect();
    let b = Member::start(&sim, "b", 4);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!((a.count(), b.count()), (4, 0), "syncs in flight are waited for");
    syncs.clear();
    assert!(b.holds(2).await <= 4 * SECOND);
    assert_eq!(a.count(), 2);
    for shard in 0..4 {
        let namespace = namespace(shard, 4);
        let writers = [&a, &b].map(|member| member.client.gate().is_open_for(&namespace));
        assert!(writers[0] != writers[1], "{shard}: {writers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shard_whose_sync_hangs_is_released_late() {
    let (sim, _driver) = start();
    let a = Member::start(&sim, "a", 2);
    a.holds(2).await;
    let syncs = [0, 1].map(|shard| a.shards.admit(&namespace(shard, 2)));
    let b = Member::start(&sim, "b", 2);
    // The drain timeout of a test is the lease duration; then its requests are cut, and may arrive for as long.
    let took = b.holds(1).await;
    assert!((30 * SECOND..40 * SECOND).contains(&took), "{took:?}");
    drop(syncs);
}

#[tokio::test(start_paused = true)]
async fn released_shards_are_taken_soon() {
    let (sim, _driver) = start();
    let (a, b) = (Member::start(&sim, "a", 4), Member::start(&sim, "b", 4));
    tokio::join!(a.holds(2), b.holds(2));
    a.stop().await;
    let ledger = sim.ledger();
    let last = |verb: &str| ledger.iter().rposition(|entry| entry.user == "a" && entry.verb == verb);
    assert!(last("update") < last("delete"), "shards are released before the member's Lease is deleted");
    let took = b.holds(4).await;
    assert!(took <= 4 * SECOND, "{took:?}");
    b.stop().await;
    let left = leases(&sim).await;
    let held = left.iter().filter(|lease| !board::holder(lease).is_empty());
    assert_eq!((held.count(), left.len()), (0, 5), "the Leases of the set and of its shards remain, unheld");
}

/// A member may stop before it is told which shards it has taken. Unless it releases them, nobody else takes them before
/// the lease duration is over.
#[tokio::test(start_paused = true)]
async fn shards_taken_at_the_end_are_released() {
    let (sim, _driver) = start();
    let a = Member::start(&sim, "a", 4);
    stop_while_taking(&sim, a, Action::DropAfter, async || {}).await;
}

#[tokio::test(start_paused = true)]
async fn shards_taken_after_the_end_are_released() {
    let (sim, _driver) = start();
    let a = Member::start(&sim, "a", 4);
    // The requests to take shards arrive when the member has read the Leases and begun to delete its own.
    let late = When::verb("delete").resource("leases").user("a");
    sim.fault(Fault::new(late, Action::Delay(2 * SECOND)));
    let arrive = async || {
        tokio::time::sleep(SECOND).await;
        sim.release();
    };
    stop_while_taking(&sim, a, Action::Hold, arrive).await;
}

/// Stops a member whose requests to take shards suffer a fault.
async fn stop_while_taking(sim: &Sim, member: Member, fault: Action, meanwhile: impl AsyncFnOnce()) {
    // It takes the shards in the second round, after two seconds.
    tokio::time::sleep(SECOND).await;
    let fault = sim.fault(Fault::new(When::verb("create").resource("leases").user("a"), fault));
    tokio::time::sleep(3 * SECOND / 2).await;
    assert_eq!(member.count(), 0);
    tokio::join!(member.stop(), meanwhile());
    assert!(sim.heal(fault), "shards were being taken");
    let leases = leases(sim).await;
    let held: Vec<&str> = leases.iter().map(board::holder).filter(|holder| !holder.is_empty()).collect();
    assert_eq!(
        (leases.len(), held),
        (5, Vec::new()),
        "the Leases of the set and of its shards remain, unheld"
    );
}

#[tokio::test(start_paused = true)]
async fn sets_and_single_leaders_wait_for_each_other() {
    let (sim, _driver) = start();
    let four = Member::start(&sim, "four", 4);
    four.holds(4).await;
    let single = client(&sim, "single");
    let lock = LeaseLock::new(single.clone(), "default".to_owned(), NAME.to_owned());
    let (recorder, _) = EventRecorder::to_buffer(crate::client::Clock::system(), 1);
    let (config, metrics) = (LeaderElectionConfig::default(), LeaderElectionMetrics::unread());
    let leader = LeaderElector::new(lock, "single".to_owned(), config, recorder, metrics, 1).unwrap();
    let (leadership, stop) = (leader.leadership(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(leader.run(stop.clone()));
    tokio::time::sleep(120 * SECOND).await;
    assert!(!leadership.is_leader() && !single.gate().is_open());
    assert_eq!((leadership.holder(), four.count()), ("4-shards".to_owned(), 4));
    four.stop().await;
    leadership.acquired().await;
    let two = Member::start(&sim, "two", 2);
    tokio::time::sleep(120 * SECOND).await;
    assert_eq!((two.count(), leadership.is_leader()), (0, true));
    assert!(!two.client.gate().is_open());
    stop.cancel();
    assert!(two.holds(2).await <= 6 * SECOND, "a released Lease is taken at the next round");
}

#[tokio::test(start_paused = true)]
async fn membership_costs_a_write_and_a_list() {
    let (sim, _driver) = start();
    let (a, b) = (Member::start(&sim, "a", 16), Member::start(&sim, "b", 16));
    tokio::join!(a.holds(8), b.holds(8));
    let before = sim.ledger().len();
    tokio::time::sleep(100 * SECOND).await;
    let ledger = sim.ledger();
    let count = |verb: &str| ledger[before..].iter().filter(|entry| entry.verb == verb).count();
    assert!((98..=102).contains(&count("list")), "{} lists", count("list"));
    assert!((100..=152).contains(&count("update")), "{} updates", count("update"));
    assert_eq!(count("list") + count("update"), ledger.len() - before, "and nothing else");
}

#[tokio::test(start_paused = true)]
async fn lease_of_a_dead_member_is_deleted() {
    let (sim, _driver) = start();
    let (a, b) = (Member::start(&sim, "a", 2), Member::start(&sim, "b", 2));
    tokio::join!(a.holds(1), b.holds(1));
    drop(a);
    tokio::time::sleep(200 * SECOND).await;
    assert_eq!(leases(&sim).await.len(), 5);
    tokio::time::sleep(200 * SECOND).await;
    assert_eq!(leases(&sim).await.len(), 4);
    assert_eq!(b.count(), 2);
}
