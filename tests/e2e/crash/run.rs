//! One run: a server, a process, what is done, and what comes of it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::Service;
use windlass::client::{ApiClient, Clock};
use windlass::sim::{Door, Settings, Sim};

use super::gate::{Act, Call, Flaw, Gate, Made};
use super::outcome::{self, Lives, State};
use super::workloads::{Kind, NAME, Step, Workload};

/// Longer than anybody waits who still has something to do.
const QUIET: Duration = Duration::from_secs(300);
/// So many times that long is never quiet.
const PATIENCE: usize = 50;
/// How often a name is asked for that is not free yet.
const RETRY: Duration = Duration::from_millis(20);
/// For longer than what was refused is not tried again.
const RETRIES: usize = 10_000;
const NAMESPACE: &str = "crash";

/// What is to be run.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) kind: &'a Kind,
    pub(super) workload: &'a Workload,
    pub(super) seed: u64,
    pub(super) flaw: Flaw,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Of the first process, while they counted.
    pub(super) calls: Vec<Made>,
    /// Of its successor.
    pub(super) later_calls: Vec<Made>,
    pub(super) state: State,
    pub(super) lives: Lives,
    pub(super) was_reached: bool,
    /// Why it did not come to its end.
    pub(super) trouble: Option<String>,
    /// What was done to the server.
    pub(super) recipe: String,
}

/// A server with an operator and watchers.
struct World<'a> {
    order: Order<'a>,
    sim: Sim,
    admin: Door,
    gates: Vec<Gate>,
    /// The process that lives; none when it stays dead.
    process: JoinSet<Result<(), (u8, String)>>,
    /// Keep it running for as long as it lives.
    signals: Vec<mpsc::Sender<&'static str>>,
}

/// Runs it in a time of its own.
pub(super) fn run(order: Order<'_>, planned: Option<(Call, Act)>) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(run_here(order, planned))
}

async fn run_here(order: Order<'_>, planned: Option<(Call, Act)>) -> Run {
    let sim = Sim::new(Settings { seed: order.seed, epoch: Clock::system().now(), ..Settings::default() });
    let mut driver = JoinSet::new();
    let driven = sim.clone();
    driver.spawn(async move { driven.run().await });
    let admin = Door::new(&sim, "admin");
    let mut world =
        World { order, sim, admin, gates: Vec::new(), process: JoinSet::new(), signals: Vec::new() };
    let mut run = Run::default();
    world.furnish().await;
    let mut watches = world.watch().await;
    run.trouble = world.operate(planned).await.err();
    run.state = outcome::state(&world.objects().await);
    for watch in &mut watches {
        outcome::count(&mut run.lives, &heard(watch));
    }
    let [first, later @ ..] = &world.gates[..] else { return run };
    run.calls = first.made();
    run.later_calls = later.iter().flat_map(Gate::made).collect();
    run.was_reached = first.was_reached();
    run.recipe = world.sim.recipe();
    if driver.try_join_next().is_some() {
        run.trouble = Some("the server has panicked".to_owned());
    }
    run
}

/// An open watch.
type Watch = <Door as Service<http::Request<Full<Bytes>>>>::Response;

/// What a watch has heard so far.
fn heard(watch: &mut Watch) -> Vec<Value> {
    let mut text = Vec::new();
    while let Some(Some(Ok(frame))) = watch.frame().now_or_never() {
        text.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("an event is JSON")).collect()
}

impl World<'_> {
    // --- the administrator ---

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Watch {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(Full::new(body)).expect("it is a request");
        self.admin.clone().call(request).await.expect("the administrator is answered")
    }

    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let answer = self.send(method, path, body).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("it has a body").to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// As [`ask`](Self::ask), for what must succeed.
    async fn must(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (code, answer) = self.ask(method, path, body).await;
        assert!(code < 300, "{method} {path}: {code} {answer}");
        answer
    }

    /// Namespace and definition.
    async fn furnish(&self) {
        self.must("POST", "/api/v1/namespaces", Some(&json!({"metadata": {"name": NAMESPACE}}))).await;
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.must("POST", path, Some(&self.order.kind.definition)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// Where the objects are: kind and path.
    fn paths(&self) -> [(&'static str, String); 6] {
        let Kind { kind, group_version, plural, .. } = self.order.kind;
        let at = |prefix: &str, plural: &str| format!("{prefix}/namespaces/{NAMESPACE}/{plural}");
        [
            (kind, at(&format!("/apis/{group_version}"), plural)),
            ("Deployment", at("/apis/apps/v1", "deployments")),
            ("ReplicaSet", at("/apis/apps/v1", "replicasets")),
            ("Pod", at("/api/v1", "pods")),
            ("Service", at("/api/v1", "services")),
            ("Ingress", at("/apis/networking.k8s.io/v1", "ingresses")),
        ]
    }

    async fn watch(&self) -> Vec<Watch> {
        let mut watches = Vec::new();
        for (_, path) in self.paths() {
            watches.push(self.send("GET", &format!("{path}?watch=true&timeoutSeconds=86400"), None).await);
        }
        watches
    }

    async fn objects(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for (kind, path) in self.paths() {
            let mut list = self.must("GET", &path, None).await;
            let Some(items) = list["items"].as_array_mut() else { continue };
            for item in items {
                item["kind"] = json!(kind);
                all.push(item.take());
            }
        }
        all
    }

    // --- the process ---

    /// Starts a process; what a dead one has under way comes in its time.
    fn start(&mut self) {
        let user = if self.gates.is_empty() { "first" } else { "second" };
        let gate = Gate::new(&self.sim, user, self.order.flaw);
        if let Some(dead) = self.gates.last() {
            gate.inherit(dead);
            gate.open(None);
        }
        let client = ApiClient::new(kube_client::Client::new(gate.clone(), NAMESPACE));
        let controllers = format!("--controllers={}", self.order.kind.controller);
        let (signals, received) = mpsc::channel(1);
        let seed = self.order.seed;
        self.process.spawn(async move {
            // Nothing is repaired by an audit that should have been right before.
            let namespace = format!("--namespace={NAMESPACE}");
            let others = ["--audit-period=0", "--metrics-bind-address=0", "--health-probe-bind-address=0"];
            let flags = [&[namespace.as_str(), controllers.as_str()][..], &others].concat();
            windlass::cli::run_over(client, &flags, seed, received).await
        });
        self.signals.push(signals);
        self.gates.push(gate);
    }

    fn gate(&self) -> &Gate {
        self.gates.last().expect("a process was started")
    }

    /// Buries the dead, and starts its successor.
    async fn restart(&mut self) {
        self.gate().close();
        self.process.shutdown().await;
        if self.order.flaw != Flaw::StaysDead {
            self.start();
        }
    }

    /// Lets time pass, in which the process may die.
    async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let gate = self.gate().clone();
            tokio::select! {
                biased;
                () = gate.died() => self.restart().await,
                () = tokio::time::sleep_until(end) => return,
            }
        }
    }

    /// Waits until nobody has anything more to do; what is late comes then.
    async fn settle(&mut self) -> Result<(), String> {
        for _ in 0..PATIENCE {
            let before = (self.gates.len(), self.gate().activity(), self.sim.version());
            self.pass(QUIET).await;
            if let Some(ended) = self.process.try_join_next() {
                return Err(format!("the operator has ended: {ended:?}"));
            }
            let is_quiet = before == (self.gates.len(), self.gate().activity(), self.sim.version());
            if is_quiet && !self.gate().release(|_| true).await {
                return Ok(());
            }
        }
        Err("it is never quiet".to_owned())
    }

    // --- what is done ---

    async fn operate(&mut self, planned: Option<(Call, Act)>) -> Result<(), String> {
        let Workload { before, steps, .. } = self.order.workload;
        self.start();
        // Without anything before, the start counts, too.
        for step in before {
            self.perform(step).await?;
        }
        self.gate().open(planned);
        for step in steps {
            self.perform(step).await?;
        }
        if self.gate().is_doomed() {
            // It had nothing more to send.
            self.restart().await;
            self.settle().await?;
        }
        Ok(())
    }

    async fn perform(&mut self, step: &Step) -> Result<(), String> {
        let Kind { kind, group_version, .. } = self.order.kind;
        let [(_, all), ..] = self.paths();
        let one = format!("{all}/{NAME}");
        let object = |spec: &Value| {
            json!({
                "kind": kind,
                "apiVersion": group_version,
                "metadata": {"name": NAME, "namespace": NAMESPACE},
                "spec": spec,
            })
        };
        match step {
            Step::Create(spec) => drop(self.must("POST", &all, Some(&object(spec))).await),
            Step::Change(spec) => drop(self.must("PATCH", &one, Some(&json!({"spec": spec}))).await),
            Step::Delete => drop(self.must("DELETE", &one, None).await),
            Step::Recreate(spec) => {
                self.must("DELETE", &one, None).await;
                let mut tries = 0;
                while self.ask("POST", &all, Some(&object(spec))).await.0 != 201 {
                    tries += 1;
                    if tries > RETRIES {
                        return Err("the name is never free".to_owned());
                    }
                    self.pass(RETRY).await;
                }
            }
        }
        self.settle().await
    }
}
