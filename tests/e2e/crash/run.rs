//! One run: a server, a process, what is done, and what comes of it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::gate::{Act, Flaw, Gate};
use crate::plans::call::{Call, Made};
use crate::plans::cluster::{Cluster, heard};
use crate::plans::outcome::{self, Lives, State};
use crate::plans::workloads::{Kind, Step, Workload};

/// Longer than anybody waits who still has something to do.
const QUIET: Duration = Duration::from_secs(300);
/// So many times that long is never quiet.
const PATIENCE: usize = 50;

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
    cluster: Cluster<'a>,
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
    let cluster = Cluster::new(order.kind, order.seed);
    let mut driver = JoinSet::new();
    let driven = cluster.sim.clone();
    driver.spawn(async move { driven.run().await });
    cluster.furnish().await;
    let mut watches = cluster.watch().await;
    let mut world = World { order, cluster, gates: Vec::new(), process: JoinSet::new(), signals: Vec::new() };
    let trouble = world.operate(planned).await.err();
    let state = outcome::state(&world.cluster.objects().await);
    let mut run = Run { state, trouble, ..Run::default() };
    for watch in &mut watches {
        outcome::count(&mut run.lives, &heard(watch));
    }
    let [first, later @ ..] = &world.gates[..] else { return run };
    run.calls = first.made();
    run.later_calls = later.iter().flat_map(Gate::made).collect();
    run.was_reached = first.was_reached();
    run.recipe = world.cluster.sim.recipe();
    if driver.try_join_next().is_some() {
        run.trouble = Some("the server has panicked".to_owned());
    }
    run
}

impl World<'_> {
    // --- the process ---

    /// Starts a process; what a dead one has under way comes in its time.
    fn start(&mut self) {
        let user = if self.gates.is_empty() { "first" } else { "second" };
        let gate = Gate::new(&self.cluster.sim, user, self.order.flaw);
        if let Some(dead) = self.gates.last() {
            gate.inherit(dead);
            gate.open(None);
        }
        let (operator, signals) = self.cluster.operator(gate.clone(), self.order.seed);
        self.process.spawn(operator);
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
        let cluster = self.cluster.clone();
        cluster.take(step, async |time| self.pass(time).await).await?;
        self.settle().await
    }
}
