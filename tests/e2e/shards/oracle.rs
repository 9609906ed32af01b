//! Three operators share eight shards. They are killed, stopped, frozen and cut off from Leases, while users change objects.
//!
//! From the server's ledger: each write in a namespace is its holder's, as the Leases have it at that time. In the end all
//! objects are as one operator that nothing disturbs makes them elsewhere, and at rest nothing is written but Leases. There
//! are two API servers, the second of which lags behind; each may filter by shard or not. `WINDLASS_SHARDS_SEED` repeats
//! a run, `WINDLASS_SHARDS_RUNS` says how many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube_client::Client;
use kube_client::api::{Api, WatchEvent, WatchParams};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use windlass::api::shards::{Division, Sharding};
use windlass::sim::{Action, Fault, InProcessTransport, LedgerEntry, Sim, When};

use super::crowd::Crowd;
use crate::support::{Bed, Operator, number};

const USERS: [&str; 3] = ["one", "two", "three"];
/// How long things go wrong.
const TROUBLE: Duration = Duration::from_secs(180);
/// How long it takes until all is Ready, when all is well again.
const RECOVERY: Duration = Duration::from_secs(180);
/// How long nothing may be written then.
const REST: Duration = Duration::from_secs(1800);

const FLAGS: [&str; 2] = ["--shards=8", "--leader-elect-resource-namespace=default"];

/// The holders of a Lease over time.
type History = BTreeMap<String, Vec<(Duration, String)>>;

/// Records the holders of all Leases.
async fn record(sim: Sim, client: Client, history: Arc<Mutex<History>>) {
    let leases: Api<Lease> = Api::namespaced(client, "default");
    loop {
        let mut events = leases.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
        while let Ok(Some(event)) = events.try_next().await {
            if let WatchEvent::Added(lease) | WatchEvent::Modified(lease) = event {
                let name = lease.metadata.name.unwrap_or_default();
                let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
                let mut history = history.lock();
                let of_lease = history.entry(name).or_default();
                if of_lease.last().is_none_or(|(_, last)| *last != holder) {
                    of_lease.push((sim.elapsed(), holder));
                }
            }
        }
    }
}

fn is_work(entry: &LedgerEntry) -> bool {
    let is_write = ["create", "update", "patch", "delete"].contains(&entry.verb.as_str());
    is_write
        && USERS.contains(&entry.user.as_str())
        && !["leases", "events"].contains(&entry.resource.as_str())
}

/// Returns the writes of operators that did not hold the shard.
fn trespasses(ledger: &[LedgerEntry], history: &History, sharding: Sharding) -> Vec<String> {
    let mut users = BTreeMap::new();
    // Only a member itself renews its Lease.
    let renewals =
        |entry: &&LedgerEntry| entry.verb == "update" && entry.name.starts_with("windlass-member-");
    for entry in ledger.iter().filter(renewals) {
        for (_, identity) in history.get(&entry.name).into_iter().flatten() {
            users.insert(identity.as_str(), entry.user.as_str());
        }
    }
    let mut found = Vec::new();
    for entry in ledger.iter().filter(|entry| is_work(entry)) {
        let shard = sharding.shard_of(&entry.namespace);
        let of_shard = history.get(&format!("windlass-{shard}")).map(Vec::as_slice).unwrap_or_default();
        // A change at the same instant may be before it or after it.
        let before = of_shard.iter().rfind(|(at, _)| *at < entry.at);
        let at_once = of_shard.iter().filter(|(at, _)| *at == entry.at);
        let holders: Vec<&str> = before
            .into_iter()
            .chain(at_once)
            .filter_map(|(_, identity)| users.get(identity.as_str()).copied())
            .collect();
        if !holders.contains(&entry.user.as_str()) {
            found.push(format!("{entry}: shard {shard} is held by {holders:?}"));
        }
    }
    found
}

fn some_fault(random: &mut fastrand::Rng) -> Fault {
    let action = match random.u8(..4) {
        0 => Action::refuse(500, "InternalError"),
        1 => Action::DropAfter,
        2 => Action::Hold,
        _ => Action::Delay(Duration::from_millis(random.u64(1..20_000))),
    };
    let verb = ["list", "update", "update", ""][random.usize(..4)];
    Fault::new(When::verb(verb).resource("leases").user(USERS[random.usize(..USERS.len())]), action)
}

/// Kills, stops, freezes or thaws an operator, or starts one.
async fn disturb(
    random: &mut fastrand::Rng,
    operator: Option<Operator>,
    start: impl FnOnce() -> Operator,
) -> Option<Operator> {
    let Some(operator) = operator else { return Some(start()) };
    match random.u8(..12) {
        0 => {
            operator.signal(Signal::CONT);
            operator.kill();
            None
        }
        1 => {
            operator.signal(Signal::CONT);
            assert_eq!(operator.terminate().await.code(), Some(0));
            None
        }
        2..4 => {
            operator.signal(Signal::STOP);
            Some(operator)
        }
        _ => {
            operator.signal(Signal::CONT);
            Some(operator)
        }
    }
}

/// Creates a cluster as it is in the end, and returns what an operator that nothing disturbs makes of it.
async fn undisturbed(crowd: &Crowd) -> BTreeMap<String, Value> {
    let bed = Bed::own(true).await;
    let mut same = Crowd::on(bed.client()).await;
    same.repeat(crowd).await;
    let operator = bed.operator("undisturbed", &["--leader-elect=false"]);
    tokio::time::sleep(RECOVERY).await;
    let (outcome, unready) = same.outcome().await;
    assert!(unready.is_empty(), "{unready:#?}");
    assert_eq!(operator.terminate().await.code(), Some(0));
    outcome
}

async fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let bed = Bed::own(true).await;
    let (by, division) = match random.bool() {
        true => (Division::Range, "--shard-ranges"),
        false => (Division::Hash, "--shard-ranges=false"),
    };
    let flags = [&FLAGS[..], &[division]].concat();
    let Bed::Embedded(embedded) = &bed else { unreachable!("the case is for the embedded bed") };
    let sim = embedded.sim.clone();
    for server in [0, 1] {
        sim.set_sharding(server, random.bool());
    }
    let start = |at: usize| {
        let way = InProcessTransport::new(&sim, USERS[at]).to_server(at % 2);
        Operator::in_process(&sim, USERS[at], Client::new(way, "default"), &flags)
    };
    let (history, mut recorder) = (Arc::<Mutex<History>>::default(), JoinSet::new());
    recorder.spawn(record(sim.clone(), embedded.client("recorder"), history.clone()));
    let mut crowd = Crowd::on(bed.client()).await;
    let mut operators = [0, 1, 2].map(|at| Some(start(at)));
    let (mut faults, started) = (Vec::new(), Instant::now());
    while started.elapsed() < TROUBLE {
        tokio::time::sleep(Duration::from_millis(random.u64(200..8_000))).await;
        for fault in faults.drain(..) {
            sim.heal(fault);
        }
        sim.release();
        sim.set_lag(1, Duration::from_millis(random.u64(..3_000)));
        for (at, operator) in operators.iter_mut().enumerate() {
            *operator = disturb(&mut random, operator.take(), || start(at)).await;
        }
        if random.u8(..3) > 0 {
            faults.push(sim.fault(some_fault(&mut random)));
        }
        for _ in 0..random.u8(..4) {
            crowd.change_something(&mut random).await;
        }
    }
    for fault in faults.drain(..) {
        sim.heal(fault);
    }
    sim.release();
    sim.set_lag(1, Duration::ZERO);
    for (at, operator) in operators.iter_mut().enumerate() {
        match operator {
            Some(operator) => operator.signal(Signal::CONT),
            None => *operator = Some(start(at)),
        }
    }
    tokio::time::sleep(RECOVERY).await;
    let (outcome, unready) = crowd.outcome().await;
    assert!(unready.is_empty(), "WINDLASS_SHARDS_SEED={seed}: {unready:#?}");
    let work = || sim.ledger().iter().filter(|entry| is_work(entry)).count();
    let before = work();
    tokio::time::sleep(REST).await;
    assert_eq!(work(), before, "WINDLASS_SHARDS_SEED={seed}: writes at rest");
    let trespasses = trespasses(&sim.ledger(), &history.lock(), Sharding { of: 8, by });
    assert!(trespasses.is_empty(), "WINDLASS_SHARDS_SEED={seed}: {trespasses:#?}");
    assert!(before > 20, "WINDLASS_SHARDS_SEED={seed}: {before} writes");
    let expected = undisturbed(&crowd).await;
    let names: BTreeSet<&String> = outcome.keys().chain(expected.keys()).collect();
    let both =
        |name| (name, outcome.get(name).map(Value::to_string), expected.get(name).map(Value::to_string));
    let differ: Vec<_> =
        names.into_iter().map(both).filter(|(_, found, expected)| found != expected).collect();
    assert!(differ.is_empty(), "WINDLASS_SHARDS_SEED={seed}: {differ:#?}");
}

/// Tries some runs.
pub(super) async fn check() {
    let first = number("WINDLASS_SHARDS_SEED", fastrand::u64(..1 << 40));
    for seed in first..first + number("WINDLASS_SHARDS_RUNS", 1) {
        eprintln!("WINDLASS_SHARDS_SEED={seed}");
        run(seed).await;
    }
}
