//! One run of a plan: two API servers over one store, an operator, and a second operator that starts later.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::gate::{Flaw, Hold, OperatorGate};
use super::oracle::{self, Event, Findings};
use crate::plans::call::{Call, Made};
use crate::plans::cluster::{Cluster, NAMESPACE, Watch, heard};
use crate::plans::outcome::{self, State};
use crate::plans::workloads::{Kind, NAME, Step, Workload};

/// A run is settled after this many seconds without activity, which exceeds every timer that leads to a write:
/// contention is remembered for 600 s, a hot loop for 305 s.
const QUIET: u32 = 900;
/// Like `QUIET`, but while an operator is suspended, whose requests time out after 30 s.
const QUIET_FOR_NOW: u32 = 3;
/// How many seconds a run may take to settle.
const PATIENCE: u32 = 5 * QUIET;
const TICK: Duration = Duration::from_secs(1);
/// How long the view of a lone operator is frozen.
const FROZEN: Duration = Duration::from_secs(300);
/// How long a view is frozen beside an operator with a current view, as each keeps correcting the other's status.
const FROZEN_BESIDE: Duration = Duration::from_secs(10);
/// How long nothing may be written at the end.
const REST: Duration = Duration::from_secs(3600);

/// The workload to run, and how.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) kind: &'a Kind,
    pub(super) workload: &'a Workload,
    pub(super) seed: u64,
    pub(super) flaw: Flaw,
}

/// A disturbance of a run.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Undisturbed,
    /// After the workload a second operator starts, which sees a resource at an earlier version for a while.
    Frozen {
        group: &'static str,
        plural: &'static str,
        version: u64,
        /// Whether the first operator is stopped before.
        is_alone: bool,
    },
    /// A call of the first operator is held until a second one has finished the workload and further steps.
    Suspended {
        call: Call,
        hold: Hold,
        next: Vec<Step>,
    },
    /// After the workload the store goes back to a version, while one operator runs or two.
    RolledBack {
        version: u64,
        /// Whether the second operator starts after the rollback.
        is_fresh: bool,
    },
}

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// The recorded calls of the first operator.
    pub(super) calls: Vec<Made>,
    /// The calls of the second operator.
    pub(super) later_calls: Vec<Made>,
    pub(super) state: State,
    /// The version and the objects before the first step and after each step.
    pub(super) quiet: Vec<(u64, State)>,
    /// The events since the last rollback.
    pub(super) events: Vec<Event>,
    pub(super) findings: Findings,
    pub(super) was_reached: bool,
    /// Errors that do not depend on the comparison with an undisturbed run.
    pub(super) trouble: Vec<String>,
    pub(super) recipe: String,
}

/// A running operator.
struct Process {
    gate: OperatorGate,
    tasks: JoinSet<Result<(), (u8, String)>>,
    /// The sender of the operator's signals, which is never used.
    _signals: mpsc::Sender<&'static str>,
}

struct World<'a> {
    order: Order<'a>,
    cluster: Cluster<'a>,
    watches: Vec<Watch>,
    events: Vec<Event>,
    processes: Vec<Process>,
    /// Whether the first operator is suspended once the planned call is held.
    is_suspended: bool,
    /// Whether a second operator is to start as soon as the planned call is held.
    is_substituted: bool,
    run: Run,
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
        cluster,
        watches,
        events: Vec::new(),
        processes: Vec::new(),
        is_suspended: false,
        is_substituted: false,
        run: Run::default(),
    };
    world.plant_strangers().await;
    let strangers = world.strangers().await;
    if let Err(trouble) = world.operate(plan).await {
        world.run.trouble.push(trouble);
    }
    world.listen();
    let objects = world.cluster.objects().await;
    let mut run = world.run;
    run.trouble.extend(orphans(order.kind.kind, &objects));
    if strangers != strangers_of(&objects) {
        run.trouble.push("a foreign object was modified".to_owned());
    }
    run.state = state(&objects);
    run.findings = oracle::findings(order.kind.kind, &world.events);
    run.events = world.events;
    let calls = |at: usize| world.processes.get(at).map(|process| process.gate.made()).unwrap_or_default();
    (run.calls, run.later_calls) = (calls(0), calls(1));
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

/// Returns the objects in comparable form, without fields that count the changes of children.
fn state(objects: &[Value]) -> State {
    let mut plain = objects.to_vec();
    for object in &mut plain {
        if object["metadata"]["ownerReferences"].is_array() {
            forget_changes(object);
        }
    }
    let mut state = outcome::state(&plain);
    // A ReplicaSet is left for each template that was ever wanted.
    state.retain(|label, _| !label.starts_with("ReplicaSet "));
    state
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

    fn start(&mut self) -> &OperatorGate {
        let (user, server) = if self.processes.is_empty() { ("first", 0) } else { ("second", 1) };
        let Order { kind, flaw, seed, .. } = self.order;
        let gate = OperatorGate::new(&self.cluster.sim, user, server, kind.plural, flaw);
        let (operator, signals) = self.cluster.operator(gate.clone(), seed);
        let mut tasks = JoinSet::new();
        tasks.spawn(operator);
        self.processes.push(Process { gate, tasks, _signals: signals });
        &self.processes.last().expect("the operator was just started").gate
    }

    /// Starts the second operator, whose calls are recorded from the start.
    fn start_second(&mut self) -> &OperatorGate {
        let gate = self.start();
        gate.open(None);
        gate
    }

    fn first(&self) -> &OperatorGate {
        &self.processes.first().expect("an operator was started").gate
    }

    fn activity(&self) -> (usize, u64) {
        let requests = self.processes.iter().map(|process| process.gate.activity()).sum();
        (requests, self.cluster.sim.version())
    }

    // --- time ---

    async fn pass(&mut self, time: Duration) {
        tokio::time::sleep(time).await;
        if self.is_substituted && self.first().was_reached() {
            self.is_substituted = false;
            self.start_second();
        }
    }

    /// Waits until there has been no activity for `QUIET` seconds.
    async fn settle(&mut self) -> Result<(), String> {
        let mut quiet_for = 0;
        for _ in 0..PATIENCE {
            let before = self.activity();
            self.pass(TICK).await;
            quiet_for = if self.activity() == before { quiet_for + 1 } else { 0 };
            let is_short = self.is_suspended && self.first().was_reached();
            if quiet_for >= if is_short { QUIET_FOR_NOW } else { QUIET } {
                self.listen();
                let ended = self.processes.iter_mut().find_map(|process| process.tasks.try_join_next());
                return ended.map_or(Ok(()), |ended| Err(format!("an operator has ended: {ended:?}")));
            }
        }
        Err("the run never settles".to_owned())
    }

    /// Checks that nothing is written at rest.
    async fn rest(&mut self) {
        let writes = |world: &Self| world.processes.iter().map(|one| one.gate.writes()).collect::<Vec<_>>();
        let before = writes(self);
        tokio::time::sleep(REST).await;
        self.listen();
        let after = writes(self);
        if self.processes.iter().any(|process| process.gate.is_in_a_loop()) {
            self.run.trouble.push("an operator sends requests without end".to_owned());
        }
        if before != after {
            self.run.trouble.push(format!("at rest writes went from {before:?} to {after:?}"));
        }
    }

    // --- the workload and its disturbance ---

    async fn take(&mut self, step: &Step) -> Result<(), String> {
        let cluster = self.cluster.clone();
        cluster.take(step, async |time| self.pass(time).await).await?;
        self.settle().await?;
        let state = state(&self.cluster.objects().await);
        self.run.quiet.push((self.cluster.sim.version(), state));
        Ok(())
    }

    async fn operate(&mut self, plan: &Plan) -> Result<(), String> {
        let Workload { before, steps, .. } = self.order.workload;
        self.run.quiet.push((self.cluster.sim.version(), state(&self.cluster.objects().await)));
        self.start();
        for step in before {
            self.take(step).await?;
        }
        let planned = match plan {
            Plan::Suspended { call, hold, .. } => {
                (self.is_substituted, self.is_suspended) = (true, *hold == Hold::Operator);
                Some((call.clone(), *hold))
            }
            _ => None,
        };
        self.first().open(planned);
        for step in steps {
            self.take(step).await?;
        }
        self.disturb(plan).await?;
        self.rest().await;
        Ok(())
    }

    async fn disturb(&mut self, plan: &Plan) -> Result<(), String> {
        match plan {
            Plan::Undisturbed => {}
            Plan::Frozen { group, plural, version, is_alone } => {
                self.freeze(group, plural, *version, *is_alone).await?;
            }
            Plan::Suspended { next, .. } => {
                for step in next {
                    self.take(step).await?;
                }
                self.run.was_reached = self.first().was_reached();
                self.is_suspended = false;
                self.first().release().await;
                self.settle().await?;
            }
            Plan::RolledBack { version, is_fresh } => {
                if !is_fresh {
                    self.start_second();
                    self.settle().await?;
                }
                self.run.was_reached = self.cluster.sim.roll_back(*version);
                self.events.clear();
                self.watches = self.cluster.watch().await;
                if *is_fresh {
                    self.start_second();
                }
                self.settle().await?;
            }
        }
        Ok(())
    }

    async fn freeze(
        &mut self,
        group: &str,
        plural: &'static str,
        version: u64,
        is_alone: bool,
    ) -> Result<(), String> {
        if is_alone {
            self.processes[0].tasks.shutdown().await;
        }
        let is_frozen = self.cluster.sim.freeze_cache_at(1, group, plural, version);
        let second = self.start_second().clone();
        second.list_at(plural, version);
        self.pass(if is_alone { FROZEN } else { FROZEN_BESIDE }).await;
        self.cluster.sim.freeze_cache(1, group, plural, false);
        self.run.was_reached = is_frozen && second.has_listed_the_past();
        self.settle().await
    }
}
