//! One run of a plan: two API servers over one store, an operator, and others that start later. `disturb` does the rest.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use windlass::cli::InProcess;
use windlass::client::Clock;
use windlass::sim::FaultId;

use super::flaw::Flaw;
use super::gate::OperatorGate;
use super::neighbour::{self, Neighbour};
use super::oracle::{self, Event, Findings};
use super::outside::Outside;
use super::plan::Plan;
use crate::plans::call::Made;
use crate::plans::cluster::{ALONE, Cluster, NAMESPACE, Watch, heard};
use crate::plans::outcome::{self, State};
use crate::plans::workloads::{Kind, NAME, Step, Workload};

/// A run is settled after this many seconds without activity, which exceeds every timer that leads to a write:
/// contention is remembered for 600 s.
const QUIET: u32 = 900;
/// Like `QUIET`, but while an operator is suspended, whose requests time out after 30 s.
const QUIET_FOR_NOW: u32 = 3;
/// How many seconds a run may take to settle.
const PATIENCE: u32 = 5 * QUIET;
const TICK: Duration = Duration::from_secs(1);
/// The flags of operators that elect a leader.
const ELECTED: [&str; 2] = ["--audit-period=0", "--leader-elect-resource-namespace=plans"];
/// The flags of operators that audit their caches.
const AUDITED: [&str; 2] = ["--leader-elect=false", "--audit-period=30m"];
/// The exit code of an operator that has lost its lease.
const LOST_LEASE: u8 = 1;

/// The workload to run, and how.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) kind: &'a Kind,
    pub(super) workload: &'a Workload,
    pub(super) seed: u64,
    pub(super) flaw: Flaw,
    /// How long nothing may be written at the end.
    pub(super) rest: Duration,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// The recorded calls of the first operator.
    pub(super) calls: Vec<Made>,
    /// The calls of the second operator.
    pub(super) later_calls: Vec<Made>,
    pub(super) state: State,
    /// The version before the first recorded step.
    pub(super) begin: u64,
    /// The version and the objects before the first step and after each step.
    pub(super) quiet: Vec<(u64, State)>,
    /// The events since the last rollback.
    pub(super) events: Vec<Event>,
    pub(super) findings: Findings,
    pub(super) neighbour: Neighbour,
    pub(super) was_reached: bool,
    /// Errors that do not depend on the comparison with an undisturbed run.
    pub(super) trouble: Vec<String>,
    pub(super) recipe: String,
}

/// A running operator.
pub(super) struct Process {
    pub(super) gate: OperatorGate,
    pub(super) tasks: JoinSet<Result<(), (u8, String)>>,
    /// The sender of the operator's signals, which is never used.
    _signals: mpsc::Sender<&'static str>,
}

/// What starts another operator while a plan is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Substitute {
    None,
    /// The planned call is held.
    OnceHeld,
    /// An operator has died. The next one dies at this of its calls.
    OnceDead {
        again: Option<usize>,
    },
}

pub(super) struct World<'a> {
    pub(super) order: Order<'a>,
    pub(super) plan: &'a Plan,
    pub(super) cluster: Cluster<'a>,
    pub(super) watches: Vec<Watch>,
    pub(super) events: Vec<Event>,
    pub(super) processes: Vec<Process>,
    pub(super) substitute: Substitute,
    /// How many hours the clock of the next operator is off.
    pub(super) hours_off: i64,
    /// The fault that hides events.
    pub(super) hiding: Option<FaultId>,
    pub(super) outside: Outside,
    pub(super) run: Run,
}

/// Runs a plan on a runtime of its own, with the clock paused.
pub(super) fn run(order: Order<'_>, plan: &Plan) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("the runtime starts").block_on(run_here(order, plan))
}

async fn run_here(order: Order<'_>, plan: &Plan) -> Run {
    let cluster = Cluster::new(order.kind, order.seed);
    let mut driver = JoinSet::new();
    let driven = cluster.sim.clone();
    driver.spawn(async move { driven.run().await });
    cluster.furnish().await;
    let watches = cluster.watch().await;
    let mut world = World {
        order,
        plan,
        cluster,
        watches,
        events: Vec::new(),
        processes: Vec::new(),
        substitute: Substitute::None,
        hours_off: 0,
        hiding: None,
        outside: Outside::default(),
        run: Run::default(),
    };
    world.plant_strangers().await;
    let strangers = world.strangers().await;
    if let Err(trouble) = world.operate().await {
        world.run.trouble.push(trouble);
    }
    world.listen();
    let objects = world.cluster.objects().await;
    let mut run = world.run;
    run.trouble.extend(orphans(order.kind.kind, &objects));
    if strangers != strangers_of(&objects) {
        run.trouble.push("a foreign object was modified".to_owned());
    }
    // A restored status says of the restored spec's tasks that they are done, so they do not run again.
    let is_restored = matches!(plan, Plan::RolledBack { next: None, .. });
    if order.kind.kind == "WebApp" && !is_restored {
        let is_done = |object: &&Value| object["kind"] == "WebApp" && crate::support::is_ready(object);
        let webapps: Vec<&Value> = objects.iter().filter(is_done).collect();
        run.trouble.extend(world.outside.wrong(&webapps));
    }
    for process in &world.processes {
        run.trouble.extend(process.gate.forbidden());
        run.neighbour.count(&process.gate.made());
    }
    run.state = state(&objects);
    run.findings = oracle::findings(order.kind.kind, &world.events);
    run.events = world.events;
    let calls = |at: usize| world.processes.get(at).map(|process| process.gate.made()).unwrap_or_default();
    (run.calls, run.later_calls) = (calls(0), [calls(1), calls(2)].concat());
    run.recipe = world.cluster.sim.recipe();
    if driver.try_join_next().is_some() {
        run.trouble.push("the server has panicked".to_owned());
    }
    run
}

/// Describes the children whose owner does not exist.
fn orphans(kind: &str, objects: &[Value]) -> Vec<String> {
    let is_there = |uid: &str| objects.iter().any(|one| one["kind"] == kind && one["metadata"]["uid"] == uid);
    let is_left = |object: &&Value| oracle::owner_of(object, kind).is_some_and(|uid| !is_there(uid));
    let tell =
        |object: &Value| format!("{} {} has lost its owner", object["kind"], object["metadata"]["name"]);
    objects.iter().filter(is_left).map(tell).collect()
}

fn strangers_of(objects: &[Value]) -> Vec<Value> {
    objects.iter().filter(|object| oracle::owner_of(object, "ConfigMap").is_some()).cloned().collect()
}

/// Returns the objects in comparable form, without fields that count the changes of children or that the server
/// allocates in order.
fn state(objects: &[Value]) -> State {
    let mut plain = objects.to_vec();
    for object in &mut plain {
        if object["metadata"]["ownerReferences"].is_array() {
            forget_changes(object);
        }
        if object["kind"] == "Service" {
            forget_allocations(&mut object["spec"]);
        }
    }
    let mut state = outcome::state(&plain);
    // A ReplicaSet is left for each template that was ever wanted.
    state.retain(|label, _| !label.starts_with("ReplicaSet "));
    state
}

fn forget_allocations(spec: &mut Value) {
    if let Some(members) = spec.as_object_mut() {
        members.retain(|key, _| key != "clusterIP" && key != "clusterIPs");
    }
    let ports = spec["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
    ports.for_each(|port| port.retain(|key, _| key != "nodePort"));
}

fn forget_changes(object: &mut Value) {
    for (parent, key) in [("metadata", "generation"), ("status", "observedGeneration")] {
        object[parent].as_object_mut().map(|members| members.remove(key));
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove("deployment.kubernetes.io/revision");
    }
}

impl World<'_> {
    // --- foreign objects and events ---

    /// Creates objects with names and labels like the operator's, but with an owner of another kind.
    async fn plant_strangers(&self) {
        let at = |prefix: &str, plural: &str| format!("{prefix}/namespaces/{NAMESPACE}/{plural}");
        let owner = json!({"metadata": {"name": NAME}});
        let owner = self.cluster.must("POST", &at("/api/v1", "configmaps"), Some(&owner)).await;
        let metadata = |name: &str| {
            json!({
                "name": name,
                "labels": {
                    "app": NAME,
                    "app.kubernetes.io/instance": NAME,
                    "app.kubernetes.io/name": self.order.kind.controller,
                    "app.kubernetes.io/managed-by": "windlass",
                },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": NAME,
                    "uid": owner["metadata"]["uid"], "controller": true,
                }],
            })
        };
        let pods = json!({"containers": [{"name": "c", "image": "nginx"}]});
        let deployment = json!({"metadata": metadata("web-2"), "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"of": "somebody"}},
            "template": {"metadata": {"labels": {"of": "somebody"}}, "spec": pods},
        }});
        self.cluster.must("POST", &at("/apis/apps/v1", "deployments"), Some(&deployment)).await;
        let pod = json!({"metadata": metadata("web-9"), "spec": pods});
        self.cluster.must("POST", &at("/api/v1", "pods"), Some(&pod)).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    }

    async fn strangers(&self) -> Vec<Value> {
        strangers_of(&self.cluster.objects().await)
    }

    /// Collects the events that the watches have received.
    fn listen(&mut self) {
        let kinds = self.cluster.paths();
        for ((kind, _), watch) in kinds.iter().zip(&mut self.watches) {
            self.events.extend(heard(watch).into_iter().map(|event| Event::new(kind, event)));
        }
        self.events.sort_by_key(|event| event.version);
    }

    // --- the operators ---

    pub(super) fn start(&mut self) -> OperatorGate {
        let at = self.processes.len();
        let (user, server) = [("first", 0), ("second", 1), ("third", 1)][at.min(2)];
        let Order { kind, flaw, seed, .. } = self.order;
        let gate = OperatorGate::new(&self.cluster.sim, user, server, kind.plural, flaw);
        let mut given = InProcess::new(seed.wrapping_add(at as u64));
        let hours = jiff::SignedDuration::from_hours(self.hours_off);
        given.clock = Clock::starting_at(self.cluster.clock.now() + hours);
        given.tasks = Some(self.outside.tasks(&gate));
        let flags: &[&str] = match self.plan {
            plan if plan.is_elected() => &ELECTED,
            plan if plan.has_audits() => &AUDITED,
            _ => &ALONE,
        };
        let (operator, signals) = self.cluster.operator(gate.clone(), given, flags);
        let mut tasks = JoinSet::new();
        tasks.spawn(operator);
        self.processes.push(Process { gate: gate.clone(), tasks, _signals: signals });
        gate
    }

    /// Starts another operator, whose calls are recorded from the start.
    pub(super) fn start_next(&mut self) -> OperatorGate {
        let gate = self.start();
        gate.open(None);
        gate
    }

    pub(super) fn first(&self) -> &OperatorGate {
        &self.processes.first().expect("an operator was started").gate
    }

    pub(super) async fn create_neighbour(&mut self) {
        self.run.neighbour.create(&self.cluster).await;
    }

    fn activity(&self) -> (usize, usize) {
        // Audits go on for ever.
        let of = if self.plan.has_audits() { OperatorGate::writes } else { OperatorGate::activity };
        (self.processes.iter().map(|process| of(&process.gate)).sum(), self.events.len())
    }

    // --- time ---

    /// Lets time pass, and starts another operator where the plan says so.
    pub(super) async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while self.run.neighbour.is_pending() && Instant::now() + neighbour::POLL <= end {
            tokio::time::sleep(neighbour::POLL).await;
            self.run.neighbour.look(&self.cluster).await;
        }
        tokio::time::sleep_until(end).await;
        match self.substitute {
            Substitute::OnceHeld if self.first().was_reached() => {
                self.substitute = Substitute::None;
                // In an election the other operator runs already, and waits for the lease.
                if !self.plan.is_elected() {
                    self.start_next();
                    self.create_neighbour().await;
                }
            }
            Substitute::OnceDead { again }
                if self.processes.last().is_some_and(|last| last.gate.is_dead()) =>
            {
                self.processes.last_mut().expect("an operator was started").tasks.shutdown().await;
                match again {
                    Some(nth) => self.start().dies_at(nth),
                    None => drop(self.start_next()),
                }
                self.substitute = Substitute::OnceDead { again: None };
            }
            _ => {}
        }
    }

    /// Waits until there has been no activity for `QUIET` seconds.
    pub(super) async fn settle(&mut self) -> Result<(), String> {
        let mut quiet_for = 0;
        for _ in 0..PATIENCE {
            let before = self.activity();
            self.pass(TICK).await;
            self.listen();
            quiet_for = if self.activity() == before { quiet_for + 1 } else { 0 };
            // The requests of a suspended operator time out after 30 s.
            let is_short = self.first().is_suspended();
            if quiet_for >= if is_short { QUIET_FOR_NOW } else { QUIET } {
                return self.restart_deposed();
            }
        }
        Err("the run never settles".to_owned())
    }

    /// Restarts an operator that has ended as it lost its lease.
    fn restart_deposed(&mut self) -> Result<(), String> {
        let ended = self.processes.iter_mut().find_map(|process| process.tasks.try_join_next());
        match ended {
            None => Ok(()),
            Some(Ok(Err((LOST_LEASE, _)))) if self.plan.is_elected() => {
                self.start_next();
                Ok(())
            }
            Some(ended) => Err(format!("an operator has ended: {ended:?}")),
        }
    }

    /// Checks that nothing is written at rest.
    async fn rest(&mut self) {
        let writes = |world: &Self| world.processes.iter().map(|one| one.gate.writes()).collect::<Vec<_>>();
        let before = writes(self);
        self.listen();
        // The watches end within this time, and there is nothing more to hear.
        self.watches.clear();
        tokio::time::sleep(self.order.rest).await;
        let after = writes(self);
        if self.processes.iter().any(|process| process.gate.is_in_a_loop()) {
            self.run.trouble.push("an operator sends requests without end".to_owned());
        }
        if before != after {
            self.run.trouble.push(format!("at rest writes went from {before:?} to {after:?}"));
        }
    }

    // --- the workload ---

    pub(super) async fn take(&mut self, step: &Step) -> Result<(), String> {
        let cluster = self.cluster.clone();
        cluster.take(step, async |time| self.pass(time).await).await?;
        self.settle().await?;
        let state = state(&self.cluster.objects().await);
        self.run.quiet.push((self.cluster.sim.version(), state));
        Ok(())
    }

    async fn operate(&mut self) -> Result<(), String> {
        let Workload { before, steps, .. } = self.order.workload;
        self.run.quiet.push((self.cluster.sim.version(), state(&self.cluster.objects().await)));
        self.start();
        for step in before {
            self.take(step).await?;
        }
        self.run.begin = self.cluster.sim.version();
        self.prepare();
        for step in steps {
            self.take(step).await?;
        }
        self.disturb().await?;
        self.create_neighbour().await;
        self.settle().await?;
        self.rest().await;
        Ok(())
    }
}
