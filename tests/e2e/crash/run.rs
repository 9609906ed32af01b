//! One run of a workload: a server, the operator's process and its successors, and the final state.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use windlass::cli::InProcess;

use super::gate::{Act, CrashGate, Flaw};
use crate::plans::call::{Call, Made};
use crate::plans::cluster::{ALONE, Cluster, heard};
use crate::plans::outcome::{self, Churn, State};
use crate::plans::workloads::{Kind, Step, Workload};

/// A run is settled when nothing happens for this long: no party with work left waits longer.
const QUIET: Duration = Duration::from_secs(300);
/// How many times `QUIET` a run may take to settle.
const PATIENCE: usize = 50;

/// The workload to run, and how.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) kind: &'a Kind,
    pub(super) workload: &'a Workload,
    pub(super) seed: u64,
    pub(super) flaw: Flaw,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// The recorded calls of the first process.
    pub(super) calls: Vec<Made>,
    /// The calls of its successors.
    pub(super) later_calls: Vec<Made>,
    pub(super) state: State,
    pub(super) churn: Churn,
    pub(super) was_reached: bool,
    /// Why the run did not complete, if it did not.
    pub(super) trouble: Option<String>,
    /// How to repeat the server's behaviour.
    pub(super) recipe: String,
}

/// A server with an operator and watchers.
struct World<'a> {
    order: Order<'a>,
    cluster: Cluster<'a>,
    gates: Vec<CrashGate>,
    /// The living process; empty if it stays dead.
    process: JoinSet<Result<(), (u8, String)>>,
    /// The senders of the processes' signals, which are never used.
    signals: Vec<mpsc::Sender<&'static str>>,
}

/// Runs a workload on a runtime of its own, with the clock paused.
pub(super) fn run(order: Order<'_>, planned: Option<(Call, Act)>) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("the runtime starts").block_on(run_here(order, planned))
}

async fn run_here(order: Order<'_>, planned: Option<(Call, Act)>) -> Run {
    let cluster = Cluster::new(order.kind, order.seed);
    let mut driver = JoinSet::new();
    let driven = cluster.sim.clone();
    driver.spawn(async move { driven.run().await });
    cluster.furnish().await;
    let mut watches = cluster.watch().await;
    let mut world = World { order, cluster, gates: Vec::new(), process: JoinSet::new(), signals: Vec::new() };
    let trouble = world.operate(planned).await.err();
    let state = outcome::state(&world.cluster.objects().await);
    let mut run = Run { trouble, state, ..Run::default() };
    for watch in &mut watches {
        outcome::count(&mut run.churn, &heard(watch));
    }
    let [first, later @ ..] = &world.gates[..] else { return run };
    run.calls = first.made();
    run.later_calls = later.iter().flat_map(CrashGate::made).collect();
    run.was_reached = first.was_reached();
    run.recipe = world.cluster.sim.recipe();
    if driver.try_join_next().is_some() {
        run.trouble = Some("the server has panicked".to_owned());
    }
    run
}

impl World<'_> {
    // --- the process ---

    /// Starts a process, which inherits the in-flight request of a dead one.
    fn start(&mut self) {
        let user = if self.gates.is_empty() { "first" } else { "second" };
        let gate = CrashGate::new(&self.cluster.sim, user, self.order.flaw);
        if let Some(dead) = self.gates.last() {
            gate.inherit(dead);
            gate.open(None);
        }
        let (operator, signals) =
            self.cluster.operator(gate.clone(), InProcess::new(self.order.seed), &ALONE);
        self.process.spawn(operator);
        self.signals.push(signals);
        self.gates.push(gate);
    }

    fn gate(&self) -> &CrashGate {
        self.gates.last().expect("a process was started")
    }

    /// Ends the dead process's tasks and starts its successor.
    async fn restart(&mut self) {
        self.gate().close();
        self.process.shutdown().await;
        if self.order.flaw != Flaw::StaysDead {
            self.start();
        }
    }

    /// Lets time pass, and restarts the process if it dies.
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

    /// Waits until nothing happens any more, and then applies an in-flight request that is still pending.
    async fn settle(&mut self) -> Result<(), String> {
        for _ in 0..PATIENCE {
            let before = (self.gates.len(), self.gate().activity(), self.cluster.sim.version());
            self.pass(QUIET).await;
            if let Some(ended) = self.process.try_join_next() {
                return Err(format!("the operator has ended: {ended:?}"));
            }
            let is_quiet = before == (self.gates.len(), self.gate().activity(), self.cluster.sim.version());
            if is_quiet && !self.gate().release(|_| true).await {
                return Ok(());
            }
        }
        Err("the run never settles".to_owned())
    }

    // --- the workload ---

    async fn operate(&mut self, planned: Option<(Call, Act)>) -> Result<(), String> {
        let Workload { before, steps, .. } = self.order.workload;
        self.start();
        // If the workload has no steps before, the calls of the startup are recorded, too.
        for step in before {
            self.perform(step).await?;
        }
        self.gate().open(planned);
        for step in steps {
            self.perform(step).await?;
        }
        if self.gate().is_doomed() {
            // The process had no further call at which to die.
            self.restart().await;
            self.settle().await?;
        }
        Ok(())
    }

    async fn perform(&mut self, step: &Step) -> Result<(), String> {
        let cluster = self.cluster.clone();
        cluster.take(step, async |time| self.pass(time).await).await?;
        self.settle().await
    }
}
