use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use windlass::sim::{Action, Fault, When};

use crate::ch9::{DEADLINE, DURATION, Elector};
use crate::cluster::{Api, Cluster, DEPLOYMENTS, LEASES, Object, Refused, until};

fn elector(cluster: &Cluster, name: &'static str) -> Arc<Elector> {
    let elector = Arc::new(Elector::new(cluster.api(name), name));
    let runs = elector.clone();
    drop(tokio::spawn(async move { runs.run().await }));
    elector
}

#[tokio::test(start_paused = true)]
async fn one_leads() {
    let cluster = Cluster::start().await;
    let (a, b) = (elector(&cluster, "a"), elector(&cluster, "b"));
    until(async || a.is_leader() || b.is_leader()).await;
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(a.is_leader() != b.is_leader(), "always one, and never both");
    }
}

/// The leader's network is gone; its clock goes on, and so does it.
#[tokio::test(start_paused = true)]
async fn leader_that_cannot_renew_stops_before_another_begins() {
    let cluster = Cluster::start().await;
    let a = elector(&cluster, "a");
    until(async || a.is_leader()).await;
    let b = elector(&cluster, "b");
    tokio::time::sleep(Duration::from_secs(30)).await;
    cluster.sim.suspend("a", true);
    let cut = Instant::now();
    while a.is_leader() {
        assert!(!b.is_leader());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(cut.elapsed() <= DEADLINE);
    until(async || b.is_leader()).await;
    assert!(cut.elapsed() > DEADLINE && cut.elapsed() < 2 * DURATION);
    cluster.sim.suspend("a", false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!a.is_leader() && b.is_leader(), "it is a follower now");
}

async fn create(api: Api) -> Result<Object, Refused> {
    let of =
        json!({"metadata": {"name": "web", "uid": "u"}, "spec": {"deploymentName": "web", "replicas": 1}});
    api.post(DEPLOYMENTS, &crate::ch1::new_deployment(&of)).await
}

#[tokio::test(start_paused = true)]
async fn follower_writes_nothing() {
    let cluster = Cluster::start().await;
    let elector = Elector::new(cluster.api("a"), "a");
    elector.fenced(create(cluster.api("a"))).await.unwrap_err();
    assert_eq!(cluster.count("a", "create"), 0);
    elector.try_acquire_or_renew().await.unwrap();
    elector.fenced(create(cluster.api("a"))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn write_that_hangs_is_cut_at_the_deadline() {
    let cluster = Cluster::start().await;
    let elector = Elector::new(cluster.api("a"), "a");
    let started = Instant::now();
    elector.try_acquire_or_renew().await.unwrap();
    cluster.sim.fault(Fault::new(
        When::verb("create").resource("deployments"),
        Action::Delay(Duration::from_secs(60)),
    ));
    elector.fenced(create(cluster.api("a"))).await.unwrap_err();
    assert_eq!(started.elapsed(), DEADLINE);
}

/// The server has had the renewal for a while when the answer comes; others count from then.
#[tokio::test(start_paused = true)]
async fn leadership_counts_from_the_request() {
    let cluster = Cluster::start().await;
    let elector = Elector::new(cluster.api("a"), "a");
    let slow = Action::Delay(Duration::from_secs(3));
    cluster.sim.fault(Fault::new(When::verb("create").resource("leases"), slow));
    let started = Instant::now();
    elector.try_acquire_or_renew().await.unwrap();
    assert!(elector.is_leader());
    tokio::time::sleep_until(started + DEADLINE).await;
    assert!(!elector.is_leader());
}

#[tokio::test(start_paused = true)]
async fn only_the_holder_releases() {
    let cluster = Cluster::start().await;
    let [a, b, c] = ["a", "b", "c"].map(|name| Elector::new(cluster.api(name), name));
    a.try_acquire_or_renew().await.unwrap();
    b.try_acquire_or_renew().await.unwrap_err();
    b.release().await.ok();
    c.try_acquire_or_renew().await.unwrap_err();
    a.try_acquire_or_renew().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn transitions_count_the_holders() {
    let cluster = Cluster::start().await;
    let [a, b] = ["a", "b"].map(|name| Elector::new(cluster.api(name), name));
    let transitions = async || {
        let lease = cluster.api("user").get(&format!("{LEASES}/book")).await.unwrap();
        lease["spec"]["leaseTransitions"].as_u64().unwrap()
    };
    a.try_acquire_or_renew().await.unwrap();
    a.try_acquire_or_renew().await.unwrap();
    assert_eq!(transitions().await, 0);
    a.release().await.unwrap();
    b.try_acquire_or_renew().await.unwrap();
    b.try_acquire_or_renew().await.unwrap();
    assert_eq!(transitions().await, 1);
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_taken_at_once() {
    let cluster = Cluster::start().await;
    let (a, b) = (Elector::new(cluster.api("a"), "a"), Elector::new(cluster.api("b"), "b"));
    a.try_acquire_or_renew().await.unwrap();
    b.try_acquire_or_renew().await.unwrap_err();
    a.release().await.unwrap();
    assert!(!a.is_leader());
    b.try_acquire_or_renew().await.unwrap();
    assert!(b.is_leader());
}
