//! Two operators, one Lease: one works and the other stands by, whatever becomes of the first.

use std::time::Duration;

use kube_client::api::ListParams;
use macro_rules_attribute::apply;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::support::{Bed, LedgerEntry, Operator, Scene, both_beds, wait_until};

/// How many Foos are created while the leader changes.
const FOOS: usize = 30;

/// Two operators of one scene, the first of which leads.
struct Pair {
    scene: Scene,
    /// `None` once it was killed.
    first: Option<Operator>,
    second: Operator,
}

impl Pair {
    /// Short times, so that a lease expires within the case.
    async fn start(name: &str) -> Self {
        let scene = Scene::on(Bed::shared().await, name).await;
        let first = operator(&scene, "first");
        first.logged("Became the leader").await;
        let second = operator(&scene, "second");
        second.logged("Standing by").await;
        scene.ready_foo("before", 1).await;
        Self { scene, first: Some(first), second }
    }

    /// All requests of the second operator but those for the Lease, and its events.
    fn writes_of_second(&self) -> Vec<LedgerEntry> {
        let ledger = self.scene.bed.ledger(&user(&self.scene, "second")).into_iter();
        ledger.filter(|entry| entry.is_write() && entry.resource != "leases").collect()
    }

    /// Creates Foos while the leader changes, and returns how long nobody led.
    async fn create_foos_until_second_leads(&self) -> Duration {
        let started = Instant::now();
        for at in 0..FOOS {
            self.scene.create_foo(&format!("foo-{at}"), &format!("web-{at}"), 1).await;
        }
        self.second.logged("Became the leader").await;
        started.elapsed()
    }

    /// Every Foo is Ready and has one Deployment.
    async fn all_ready(&self) {
        for at in 0..FOOS {
            self.scene.ready(&format!("foo-{at}")).await;
        }
        let deployments = self.scene.deployments.list(&ListParams::default()).await.unwrap().items;
        assert_eq!(deployments.len(), FOOS + 1);
        let line = self.second.logged("First write as the leader").await;
        eprintln!("leader election: {}", line.split("First write").nth(1).unwrap_or_default());
    }
}

fn user(scene: &Scene, which: &str) -> String {
    format!("{}-{which}", scene.user())
}

fn operator(scene: &Scene, which: &str) -> Operator {
    let flags = [
        format!("--namespace={}", scene.namespace),
        "--controllers=foo".to_owned(),
        "--leader-elect".to_owned(),
        format!("--leader-elect-resource-namespace={}", scene.namespace),
        "--leader-elect-lease-duration=4s".to_owned(),
        "--leader-elect-renew-deadline=3s".to_owned(),
        "--leader-elect-retry-period=500ms".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    scene.bed.operator(&user(scene, which), &flags)
}

fn print_gap(of: &str, gap: Duration) {
    eprintln!("leader election: {of}, and the next one led after {gap:?}");
}

#[apply(both_beds)]
async fn standby_takes_over_when_the_leader_stops() {
    let mut pair = Pair::start("elect-term").await;
    assert_eq!(pair.writes_of_second(), Vec::<LedgerEntry>::new());
    let mut first = pair.first.take().expect("it runs");
    first.signal(Signal::TERM);
    let gap = pair.create_foos_until_second_leads().await;
    print_gap("the leader was stopped by SIGTERM", gap);
    assert_eq!(first.ended().await.code(), Some(0));
    pair.all_ready().await;
    let log = first.log();
    let steps = ["Stopping: waiting for syncs in flight", "Workers stopped", "Released the lease", "Stopped"];
    let at = steps.map(|step| log.rfind(step).unwrap_or_else(|| panic!("{step} is not in {log}")));
    assert!(at.is_sorted(), "{log}");
    assert_eq!(pair.second.terminate().await.code(), Some(0));
}

#[apply(both_beds)]
async fn standby_takes_over_when_the_leader_is_killed() {
    let mut pair = Pair::start("elect-kill").await;
    pair.first.take().expect("it runs").kill();
    let gap = pair.create_foos_until_second_leads().await;
    print_gap("the leader was killed", gap);
    pair.all_ready().await;
    assert_eq!(pair.second.terminate().await.code(), Some(0));
}

/// P4, I15: frozen past the lease, then thawed, while another one leads.
#[apply(both_beds)]
async fn thawed_leader_writes_nothing_and_exits_with_1() {
    let mut pair = Pair::start("elect-freeze").await;
    let mut frozen = pair.first.take().expect("it runs");
    frozen.signal(Signal::STOP);
    let gap = pair.create_foos_until_second_leads().await;
    print_gap("the leader was frozen", gap);
    pair.all_ready().await;
    let first = user(&pair.scene, "first");
    let writes = |ledger: Vec<LedgerEntry>| {
        ledger.into_iter().filter(|entry| entry.is_write() && entry.resource != "leases").count()
    };
    let before = writes(pair.scene.bed.ledger(&first));
    frozen.signal(Signal::CONT);
    assert_eq!(frozen.ended().await.code(), Some(1));
    assert!(frozen.log().contains("Lost leadership"), "{}", frozen.log());
    assert_eq!(writes(pair.scene.bed.ledger(&first)), before, "nothing after the renew deadline");
    wait_until("the second still leads", async || {
        let is_led = pair.scene.foos.get("before").await.is_ok();
        if is_led && pair.second.is_running() { Ok(()) } else { Err("not running") }
    })
    .await;
}
