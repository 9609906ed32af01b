//! Two operators, one Lease: one works and the other stands by, whatever becomes of the first.

use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube_client::Client;
use kube_client::api::{Api, ListParams, PostParams};
use kube_core::CustomResourceExt;
use macro_rules_attribute::apply;
use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use windlass::api::samplecontroller::v1alpha1::{Foo, FooSpec};
use windlass::client::Clock;
use windlass::sim::{Action, Fault, HttpServer, InProcessTransport, Settings, Sim, When};

use crate::support::{Bed, LedgerEntry, Operator, Scene, both_beds, no_bed, wait_until};

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

/// P11: each write hangs, and the process may open 256 files.
#[apply(no_bed)]
#[why = "it limits the files of a process of its own"]
async fn hanging_server_and_few_files_cost_no_lease() {
    let sim = Sim::new(Settings { epoch: Clock::system().now(), ..Settings::default() });
    let server = HttpServer::bind(&sim, ([127, 0, 0, 1], 0).into()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (kubeconfig, log) = (dir.path().join("kubeconfig"), dir.path().join("log"));
    std::fs::write(&kubeconfig, server.kubeconfig("windlass").unwrap().to_string()).unwrap();
    let (driven, mut tasks) = (sim.clone(), JoinSet::new());
    tasks.spawn(async move { driven.run().await });
    tasks.spawn(server.run());
    let user = Client::new(InProcessTransport::new(&sim, "user"), "default");
    Api::all(user.clone()).create(&PostParams::default(), &Foo::crd()).await.unwrap();
    let all: Api<Foo> = Api::all(user.clone());
    wait_until("the kind is served", async || all.list(&ListParams::default()).await.map(drop)).await;
    // One namespace may not have all writes that are in flight.
    for namespace in (0..6).map(|at| format!("team-{at}")) {
        let new = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::<Namespace>::all(user.clone()).create(&PostParams::default(), &new).await.unwrap();
        let foos: Api<Foo> = Api::namespaced(user.clone(), &namespace);
        for at in 0..50 {
            let spec = FooSpec { deployment_name: format!("web-{at}"), replicas: 1 };
            foos.create(&PostParams::default(), &Foo::new(&format!("foo-{at}"), spec)).await.unwrap();
        }
    }
    sim.fault(Fault::new(When::verb("create").resource("deployments"), Action::Hold));

    let mut operator = Command::new("bash");
    operator.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_windlass"), "run"]);
    operator.arg(format!("--kubeconfig={}", kubeconfig.display()));
    operator.args(["--controllers=foo", "--workers=100", "--leader-elect-resource-namespace=default"]);
    operator.args(["--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s"]);
    operator.args(["--leader-elect-retry-period=1s", "--metrics-bind-address=0"]);
    operator.args(["--health-probe-bind-address=0"]).stderr(std::fs::File::create(&log).unwrap());
    let mut operator = operator.spawn().unwrap();
    let leases: Api<Lease> = Api::default_namespaced(user);
    let renewed = async || Some(leases.get("windlass").await.ok()?.spec?.renew_time?.0);
    let hang = async || match sim.held() {
        120.. => Ok(()),
        held => Err(format!("{held}; the log: {}", std::fs::read_to_string(&log).unwrap())),
    };
    wait_until("as many writes hang as may", hang).await;
    let mut last = renewed().await;
    for _ in 0..6 {
        wait_until("the Lease is renewed", async || match renewed().await {
            now if now > last => Ok(()),
            now => Err(now),
        })
        .await;
        last = renewed().await;
    }
    let files = std::fs::read_dir(format!("/proc/{}/fd", operator.id())).unwrap().count();
    assert!((120..160).contains(&files), "half of them, and some for the caches and the Lease: {files}");
    let written = std::fs::read_to_string(&log).unwrap();
    for trouble in ["limit of open files", "does not answer", "Lost leadership"] {
        assert!(!written.contains(trouble), "{written}");
    }
    operator.kill().unwrap();
    operator.wait().unwrap();
}
