//! One run: a server, a first operator that takes part in all of it, a second one that comes later.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::gate::{Flaw, Gate, Hold};
use super::oracle::{self, Event, Findings};
use crate::plans::call::{Call, Made};
use crate::plans::cluster::{Cluster, NAMESPACE, Watch, heard};
use crate::plans::outcome::{self, State};
use crate::plans::workloads::{Kind, NAME, Step, Workload};

/// Longer than any timer that leads to a write: contention is remembered for 600 s, a hot loop for 305 s.
const QUIET: u32 = 900;
/// While an operator stands still: its requests give up after 30 s.
const QUIET_FOR_NOW: u32 = 3;
/// So many seconds without rest are never quiet.
const PATIENCE: u32 = 5 * QUIET;
const TICK: Duration = Duration::from_secs(1);
/// For how long a view is frozen.
const FROZEN: Duration = Duration::from_secs(300);
/// The same beside an operator with a current view: each corrects the status that the other writes, without end.
const FROZEN_BESIDE: Duration = Duration::from_secs(10);
/// For how long nothing may be written at the end.
const REST: Duration = Duration::from_secs(3600);

/// What is to be run.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) kind: &'a Kind,
    pub(super) workload: &'a Workload,
    pub(super) seed: u64,
    pub(super) flaw: Flaw,
}

/// What is done to it.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Undisturbed,
    /// After the workload a second operator starts, to which a resource is as of a version for a while.
    Frozen {
        group: &'static str,
        plural: &'static str,
        version: u64,
        /// The first operator has gone by then.
        is_alone: bool,
    },
    /// A call of the first operator is held until a second one has finished the workload and more.
    Suspended {
        call: Call,
        hold: Hold,
        next: Vec<Step>,
    },
    /// After the workload the store goes back to a version, under one operator or two.
    RolledBack {
        version: u64,
        /// The second operator starts afterwards.
        is_fresh: bool,
    },
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Of the first operator.
    pub(super) calls: Vec<Made>,
    /// Of the second.
    pub(super) later_calls: Vec<Made>,
    pub(super) state: State,
    /// After each step: the version, and the objects.
    pub(super) quiet: Vec<(u64, State)>,
    /// Since the store last went back.
    pub(super) events: Vec<Event>,
    pub(super) findings: Findings,
    pub(super) was_reached: bool,
    /// What is wrong, whatever an undisturbed run does.
    pub(super) trouble: Vec<String>,
    pub(super) recipe: String,
}

/// An operator that runs.
struct Process {
    gate: Gate,
    tasks: JoinSet<Result<(), (u8, String)>>,
    /// Keeps it running for as long as it lives.
    _signals: mpsc::Sender<&'static str>,
}

struct World<'a> {
    order: Order<'a>,
    cluster: Cluster<'a>,
    watches: Vec<Watch>,
    events: Vec<Event>,
    processes: Vec<Process>,
    /// The first operator stands still.
    is_suspended: bool,
    /// A second one starts as soon as the planned call is held.
    is_substituted: bool,
    run: Run,
}

/// Runs it in a time of its own.
pub(super) fn run(order: Order<'_>, plan: &Plan) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(run_here(order, plan))
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
        run.trouble.push("an object of somebody else was touched".to_owned());
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

/// Children whose owner is not there.
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

/// The objects, so that those of another run may be compared: without what counts how often a child was changed.
fn state(objects: &[Value]) -> State {
    let mut plain = objects.to_vec();
    for object in &mut plain {
        if object["metadata"]["ownerReferences"].is_array() {
            forget_changes(object);
        }
    }
    let mut state = outcome::state(&plain);
    // One stays of each template that was ever wanted.
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
    // --- what there is ---

    /// Objects with names and labels as ours have, and with an owner of another kind.
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

    /// Takes in what the watches have heard.
    fn listen(&mut self) {
        let kinds = self.cluster.paths();
        for ((kind, _), watch) in kinds.iter().zip(&mut self.watches) {
            self.events.extend(heard(watch).into_iter().map(|event| Event::new(kind, event)));
        }
        self.events.sort_by_key(|event| event.version);
    }

    // --- the operators ---

    fn start(&mut self) -> &Gate {
        let (user, server) = if self.processes.is_empty() { ("first", 0) } else { ("second", 1) };
        let Order { kind, flaw, seed, .. } = self.order;
        let gate = Gate::new(&self.cluster.sim, user, server, kind.plural, flaw);
        let (operator, signals) = self.cluster.operator(gate.clone(), seed);
        let mut tasks = JoinSet::new();
        tasks.spawn(operator);
        self.processes.push(Process { gate, tasks, _signals: signals });
        &self.processes.last().expect("it was just started").gate
    }

    /// The second operator, whose calls count from its start.
    fn start_second(&mut self) -> &Gate {
        let gate = self.start();
        gate.open(None);
        gate
    }

    fn first(&self) -> &Gate {
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

    /// Waits until nobody has anything more to do.
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
        Err("it is never quiet".to_owned())
    }

    /// Finds what is written when there is nothing to do.
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

    // --- what is done ---

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
