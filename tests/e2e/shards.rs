//! Several active operators: each works on its share of the namespaces, whatever becomes of the others.

mod crowd;
mod oracle;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube_client::api::{Api, ListParams, PostParams};
use macro_rules_attribute::apply;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass::api::samplecontroller::v1alpha1::{Foo, FooSpec};
use windlass::leader_election::shards::{COUNT, SET};

use crate::endpoints::{address_of, get};
use crate::support::{Bed, Operator, both_beds, embedded_bed, is_ready, status, wait_until};

const NAMESPACES: usize = 24;
const SHARDS: usize = 16;

/// Some namespaces with Foos, and operators for all of them.
struct Fleet {
    bed: Bed,
    operators: BTreeMap<&'static str, Operator>,
    foos: usize,
    division: &'static str,
}

/// Short times, so that a lease expires within the case.
const FLAGS: [&str; 5] = [
    "--controllers=foo",
    "--leader-elect-resource-namespace=default",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

/// Names that differ early, so that ranges of Kubernetes' hash tell them apart, too.
fn team(at: usize) -> String {
    format!("{at}-team")
}

impl Fleet {
    async fn on(bed: Bed, division: &'static str) -> Self {
        let namespaces: Api<Namespace> = Api::all(bed.client());
        for at in 0..NAMESPACES {
            let namespace = json!({"metadata": {"name": team(at)}});
            let namespace = serde_json::from_value(namespace).expect("a namespace");
            namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace is created");
        }
        Self { bed, operators: BTreeMap::new(), foos: 0, division }
    }

    fn start(&mut self, name: &'static str, shards: &[&str]) {
        let operator = self.bed.operator(&user(name), &[&FLAGS[..], shards].concat());
        self.operators.insert(name, operator);
    }

    fn start_all(&mut self, names: &[&'static str]) {
        for name in names {
            self.start(name, &["--shards=16", self.division]);
        }
    }

    /// Creates a Foo in each namespace, and waits until all are Ready; returns the time that took.
    async fn more_foos_are_ready(&mut self) -> Duration {
        let started = Instant::now();
        for at in 0..NAMESPACES {
            let spec = FooSpec { deployment_name: format!("web-{}", self.foos), replicas: 1 };
            let foos: Api<Foo> = Api::namespaced(self.bed.client(), &team(at));
            let foo = Foo::new(&format!("foo-{}", self.foos), spec);
            foos.create(&PostParams::default(), &foo).await.expect("a Foo is created");
        }
        self.foos += 1;
        let all: Api<Foo> = Api::all(self.bed.client());
        wait_until("all Foos are Ready", async || {
            let foos = all.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
            let ready = foos.iter().filter(|foo| is_ready(&json!(foo))).count();
            if ready == foos.len() { Ok(()) } else { Err(format!("{ready} of {}", foos.len())) }
        })
        .await;
        started.elapsed()
    }

    /// Returns the number of shards of each member.
    async fn shares(&self) -> Result<BTreeMap<String, usize>, String> {
        let leases: Api<Lease> = Api::namespaced(self.bed.client(), "default");
        let of_set = ListParams::default().labels(&format!("{SET}=windlass"));
        let leases = leases.list(&of_set).await.map_err(|error| error.to_string())?.items;
        let mut shares = BTreeMap::new();
        for lease in leases {
            let name = lease.metadata.name.unwrap_or_default();
            let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            let is_shard = name.strip_prefix("windlass-").is_some_and(|rest| rest.parse::<u16>().is_ok());
            if lease.metadata.annotations.is_some_and(|annotations| annotations.contains_key(COUNT)) {
                shares.entry(holder).or_insert(0);
            } else if is_shard {
                *shares.entry(holder).or_insert(0) += 1;
            }
        }
        Ok(shares)
    }

    /// Waits until this many members hold shares that differ by one at most; returns the time that took. Members that
    /// ended without a word have none.
    async fn balanced(&self, members: usize) -> Duration {
        let started = Instant::now();
        wait_until(&format!("{members} members hold even shares"), async || {
            let shares = self.shares().await?;
            let held: Vec<usize> = shares.values().copied().filter(|share| *share > 0).collect();
            let (least, most) = (held.iter().min().copied(), held.iter().max().copied());
            let is_even = least.zip(most).is_some_and(|(least, most)| most - least <= 1);
            let is_all = held.iter().sum::<usize>() == SHARDS && !shares.contains_key("");
            if held.len() == members && is_even && is_all { Ok(()) } else { Err(format!("{shares:?}")) }
        })
        .await;
        started.elapsed()
    }

    /// Returns the namespaces in which an operator has written anything but Leases and events, and its failed creates,
    /// unless the server ran out of time. (An update may conflict with one of the cluster's own controllers.)
    fn writes(&self, name: &str) -> (BTreeSet<String>, Vec<String>) {
        let ledger = self.bed.ledger(&user(name)).into_iter();
        let writes = ledger
            .filter(|entry| entry.is_write() && !["leases", "events"].contains(&entry.resource.as_str()));
        let (mut namespaces, mut failed) = (BTreeSet::new(), Vec::new());
        for entry in writes {
            let after = entry.uri.split_once("/namespaces/").map_or("", |(_, after)| after);
            namespaces.insert(after.split('/').next().unwrap_or_default().to_owned());
            if entry.verb == "create" && entry.code >= 400 && entry.code != 504 {
                failed.push(format!("{} {}: {}", entry.uri, entry.name, entry.code));
            }
        }
        (namespaces, failed)
    }

    /// Whether the server sends the replicas each other's objects, from their metrics.
    async fn server_sends_others_objects(&self, expected: bool) {
        // The embedded bed's clock is paused, so its operators have no endpoints; other versions may not have the feature.
        if matches!(self.bed, Bed::Embedded(_)) || std::env::var("WINDLASS_KUBERNETES").is_ok() {
            return;
        }
        for operator in self.operators.values() {
            let metrics = get(&address_of(operator, "/metrics").await, "/metrics").await.1;
            let skipped =
                metrics.lines().filter(|line| line.starts_with("windlass_cache_skipped_objects_total"));
            let skipped: Vec<&str> = skipped.collect();
            assert!(
                !skipped.is_empty() && skipped.iter().any(|line| !line.ends_with(" 0")) == expected,
                "{skipped:?}"
            );
        }
    }

    /// Waits until `windlass status` shows that this many members live, and that they hold all shards.
    async fn status_shows(&self, living: usize) {
        let Bed::Real(bed) = &self.bed else { return };
        let kubeconfig = bed.kubeconfig("viewer", true);
        // It counts in whole seconds, so a Lease expires a little later than for the other members.
        wait_until(&format!("the status shows {living} members with all shards"), async || {
            let report = status(&kubeconfig, &["--leader-elect-resource-namespace=default"]);
            let shards = &report["shards"];
            let members = shards["members"].as_array().ok_or("no members")?.iter();
            let alive: Vec<&Value> = members.filter(|member| member["hasExpired"] == false).collect();
            let held: usize =
                alive.iter().filter_map(|member| member["shards"].as_array()).map(Vec::len).sum();
            let is_shown = alive.len() == living && held == SHARDS && shards["unheld"] == json!([]);
            if is_shown { Ok(()) } else { Err(report.to_string()) }
        })
        .await;
    }

    /// Each Foo has one Deployment.
    async fn nothing_is_doubled(&self) {
        let deployments: Api<Deployment> = Api::all(self.bed.client());
        let deployments = deployments.list(&ListParams::default()).await.expect("they are listed").items;
        assert_eq!(deployments.len(), self.foos * NAMESPACES);
    }
}

fn user(name: &str) -> String {
    format!("replica-{name}")
}

/// What becomes of three replicas; `filters` says whether the server does.
async fn three_replicas(bed: Bed, filters: bool) {
    let (how, division) = match filters {
        true => ("filtered by the server", "--shard-ranges=true"),
        false => ("filtered by the client", "--shard-ranges=false"),
    };
    let mut fleet = Fleet::on(bed, division).await;
    fleet.start_all(&["a", "b", "c"]);
    let balanced = fleet.balanced(3).await;
    eprintln!("shards, {how}: three replicas hold even shares after {balanced:?}");
    fleet.more_foos_are_ready().await;
    let writes = ["a", "b", "c"].map(|name| fleet.writes(name));
    for (at, (namespaces, failed)) in writes.iter().enumerate() {
        assert!(failed.is_empty(), "{failed:?}");
        let others = writes.iter().enumerate().filter(|(other, _)| *other != at);
        let shared: Vec<&String> =
            others.flat_map(|(_, (theirs, _))| namespaces.intersection(theirs)).collect();
        assert!(!namespaces.is_empty() && shared.is_empty(), "each namespace has one writer: {writes:?}");
    }

    fleet.server_sends_others_objects(!filters).await;

    fleet.operators.remove("b").expect("it runs").kill();
    let ready = fleet.more_foos_are_ready().await;
    eprintln!("shards, {how}: one was killed, and new Foos of all namespaces were Ready after {ready:?}");
    fleet.balanced(2).await;
    fleet.status_shows(2).await;

    fleet.start_all(&["d"]);
    let balanced = fleet.balanced(3).await;
    eprintln!("shards, {how}: a new one has its share after {balanced:?}");
    fleet.more_foos_are_ready().await;

    fleet.operators["a"].signal(Signal::STOP);
    let ready = fleet.more_foos_are_ready().await;
    eprintln!("shards, {how}: one was frozen, and new Foos of all namespaces were Ready after {ready:?}");
    fleet.balanced(2).await;
    fleet.operators["a"].signal(Signal::CONT);
    let balanced = fleet.balanced(3).await;
    eprintln!("shards, {how}: the thawed one has a share again after {balanced:?}");
    fleet.operators["a"].logged("Lost shards").await;
    fleet.more_foos_are_ready().await;
    for name in ["a", "c", "d"] {
        assert_eq!(fleet.writes(name).1, [""; 0], "no child was there when {name} created it");
    }

    // A rolling update: each is replaced in turn.
    for (old, new) in [("a", "e"), ("c", "f"), ("d", "g")] {
        fleet.start_all(&[new]);
        fleet.balanced(4).await;
        let ended = fleet.operators.remove(old).expect("it runs").terminate().await;
        assert_eq!(ended.code(), Some(0));
        let balanced = fleet.balanced(3).await;
        eprintln!("shards, {how}: after one was stopped in order, shares are even after {balanced:?}");
    }
    fleet.more_foos_are_ready().await;
    fleet.nothing_is_doubled().await;
    for operator in std::mem::take(&mut fleet.operators).into_values() {
        assert_eq!(operator.terminate().await.code(), Some(0));
    }
    // The Lease of the one that was killed is deleted later.
    let mut shares = fleet.shares().await.expect("the Leases are listed");
    shares.retain(|_, share| *share > 0);
    assert_eq!(shares, BTreeMap::from([(String::new(), SHARDS)]), "all shards are released");
}

#[apply(both_beds)]
async fn replicas_share_the_namespaces() {
    three_replicas(Bed::own(true).await, false).await;
}

#[apply(both_beds)]
async fn replicas_share_the_namespaces_and_the_server_filters() {
    three_replicas(Bed::own_with_sharded_lists().await, true).await;
}

/// From one leader to shards, and back, by rolling updates: the new ones stand by until the last old one has stopped.
#[apply(both_beds)]
async fn one_leader_and_shards_follow_each_other() {
    let mut fleet = Fleet::on(Bed::own(true).await, "--shard-ranges=false").await;
    fleet.start("one", &["--shards=1"]);
    fleet.operators["one"].logged("Became the leader").await;
    fleet.more_foos_are_ready().await;
    fleet.start_all(&["a", "b"]);
    fleet.more_foos_are_ready().await;
    assert_eq!(fleet.writes("a").0.len() + fleet.writes("b").0.len(), 0, "they stand by");
    let gap = Instant::now();
    assert_eq!(fleet.operators.remove("one").expect("it runs").terminate().await.code(), Some(0));
    fleet.balanced(2).await;
    eprintln!("shards: all of them are held {:?} after the one leader began to stop", gap.elapsed());
    fleet.more_foos_are_ready().await;

    fleet.start("two", &["--shards=1"]);
    fleet.operators["two"].logged("Standing by").await;
    fleet.more_foos_are_ready().await;
    assert_eq!(fleet.writes("two").0.len(), 0, "it stands by");
    let gap = Instant::now();
    for name in ["a", "b"] {
        assert_eq!(fleet.operators.remove(name).expect("it runs").terminate().await.code(), Some(0));
    }
    fleet.operators["two"].logged("Became the leader").await;
    eprintln!("shards: one leads {:?} after the shards began to stop", gap.elapsed());
    fleet.more_foos_are_ready().await;
    fleet.nothing_is_doubled().await;
    for name in ["one", "two", "a", "b"] {
        assert_eq!(fleet.writes(name).1, [""; 0], "no child was there when {name} created it");
    }
}

#[apply(embedded_bed)]
#[why = "the clock is paused, and the server's store is read"]
async fn only_the_holder_writes_in_a_shard() {
    oracle::check().await;
}
