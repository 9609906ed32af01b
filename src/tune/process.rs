//! The operator of a trial: in this process, in virtual time, until it is dropped.

use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::load::Load;
use super::program::Program;
use super::setting::Setting;
use crate::cli::run::InProcess;
use crate::client::Clock;
use crate::controller::PassObserver;
use crate::metrics::Metrics;
use crate::operators::webapp::TaskEntry;
use crate::operators::webapp::tasks::{HookCall, HookFuture, TaskExecutor};
use crate::sim::Sim;

/// When the simulated world begins, in seconds since 1970: 2026-01-01.
const EPOCH: i64 = 1_767_225_600;

/// A running operator.
pub(super) struct Process {
    stop: mpsc::Sender<&'static str>,
    ended: JoinSet<Result<(), String>>,
    pub(super) metrics: Metrics,
}

/// A task of a WebApp that takes its time.
struct SlowTask(Duration);

/// Returns when the simulated world begins.
pub(super) fn epoch() -> jiff::Timestamp {
    jiff::Timestamp::from_second(EPOCH).unwrap_or_default()
}

// === impl Process ===

impl Process {
    /// Starts the operator with this setting, at the server's time.
    pub(super) fn start(
        program: &Program,
        load: &Load,
        setting: &Setting,
        (sim, client): (&Sim, Client),
        seed: u64,
        passes: Option<Arc<dyn PassObserver>>,
    ) -> Self {
        let metrics = Metrics::new();
        let (stop, signals) = mpsc::channel(1);
        let elapsed = jiff::SignedDuration::try_from(sim.elapsed()).unwrap_or_default();
        let tasks = vec![
            TaskEntry::Executor(Arc::new(SlowTask(load.webapp_task.0))),
            TaskEntry::Workload("workload".to_owned()),
        ];
        let given = InProcess {
            metrics: metrics.clone(),
            clock: Clock::starting_at(epoch().checked_add(elapsed).unwrap_or(epoch())),
            tasks: Some(tasks),
            seed,
            election: None,
            debug: None,
            passes,
        };
        let mut ended = JoinSet::new();
        ended.spawn(program.run(client, setting, given, signals));
        Self { stop, ended, metrics }
    }

    /// Waits until the operator ends by itself, and returns why.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub(super) async fn ended(&mut self) -> String {
        match self.ended.join_next().await {
            Some(Ok(Err(message))) => message,
            _ => "the operator ended by itself".to_owned(),
        }
    }

    /// Stops the operator and waits for its end.
    pub(super) async fn stop(mut self, why: &'static str) {
        self.stop.send(why).await.ok();
        while self.ended.join_next().await.is_some() {}
    }
}

impl TaskExecutor for SlowTask {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn create<'a>(&'a self, _: &'a HookCall) -> HookFuture<'a> {
        let pause = tokio::time::sleep(self.0);
        Box::pin(async move {
            pause.await;
            Ok(())
        })
    }
}
