//! The tasks of a running manager, and the order in which they stop.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Elector, Run, Runnable};
use crate::client::ApiClient;
use crate::controller::run::worker::ControllerView;
use crate::leader_election::Ending;

/// How many keys a message lists.
const KEYS_LISTED: usize = 10;
/// The shortest timeout for a stop: even idle tasks need a moment to end.
const MOMENT: Duration = Duration::from_millis(250);
/// How long writing the last events may take.
const EVENTS_FLUSH: Duration = Duration::from_secs(5);

/// Why a manager ended by itself, or did not stop in order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Leadership was lost.
    #[error("lost leadership: another process may lead now; see the log for the cause")]
    LostLeadership,
    /// A task panicked; the panic hook has reported it.
    #[error("an internal task panicked; the log shows where")]
    Panicked,
    /// A task ended although nobody stopped it.
    #[error("an internal task ended unexpectedly")]
    EndedEarly,
    /// Syncs were still in flight at the shutdown timeout.
    #[error("syncs in flight did not finish within {timeout:?}: {keys}")]
    DrainTimedOut {
        /// The shutdown timeout.
        timeout: Duration,
        /// The first keys that were being synced.
        keys: String,
    },
    /// A second signal came before everything had stopped.
    #[error("stopped by a second signal before the end of an orderly stop")]
    Interrupted,
    /// The process cannot listen for signals.
    #[error("could not listen for signals: {0}")]
    Signals(String),
}

/// The tasks, in the groups in which they stop.
pub(super) struct Running {
    client: ApiClient,
    views: Vec<ControllerView>,
    stopping: CancellationToken,
    shutdown_timeout: Duration,
    controllers: JoinSet<()>,
    /// Informers and audits.
    machine: JoinSet<()>,
    /// Events and servers, which run until `last` is cancelled.
    others: JoinSet<()>,
    last: CancellationToken,
    elector: JoinSet<Ending>,
    /// Cancelled to release the Lease.
    release: CancellationToken,
}

// === impl Running ===

impl Running {
    pub(super) fn new(
        client: ApiClient,
        views: Vec<ControllerView>,
        stopping: CancellationToken,
        shutdown_timeout: Duration,
    ) -> Self {
        Self {
            client,
            views,
            stopping,
            shutdown_timeout,
            controllers: JoinSet::new(),
            machine: JoinSet::new(),
            others: JoinSet::new(),
            last: CancellationToken::new(),
            elector: JoinSet::new(),
            release: CancellationToken::new(),
        }
    }

    pub(super) fn start_controller(&mut self, controller: Runnable) {
        self.controllers.spawn((controller.run)(self.stopping.clone()).in_current_span());
    }

    pub(super) fn start<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        run: impl FnOnce(CancellationToken) -> F,
    ) {
        self.machine.spawn(run(self.stopping.clone()).in_current_span());
    }

    pub(super) fn start_server(&mut self, run: Run) {
        self.others.spawn(run(self.last.clone()).in_current_span());
    }

    pub(super) fn start_election(&mut self, elector: Elector, runtime: Option<Handle>) {
        let (stopping, release) = (self.stopping.clone(), self.release.clone());
        let election = match elector {
            Elector::OfOne(elector) => elector.run(release).in_current_span().left_future(),
            Elector::OfShards(elector) => elector.run(stopping, release).in_current_span().right_future(),
        };
        self.elector.spawn_on(election, &runtime.unwrap_or_else(Handle::current));
    }

    /// Runs until `stop` or a failure; then stops everything in order.
    pub(super) async fn until(mut self, stop: CancellationToken) -> Result<(), RunError> {
        let outcome = self.until_stopped(&stop).await;
        self.stopping.cancel();
        self.client.gate().shut_down();
        let limit = self.shutdown_timeout.max(MOMENT);
        let drained = tokio::time::timeout(limit, self.drain()).await;
        let drained = drained.unwrap_or_else(|_| {
            Err(RunError::DrainTimedOut { timeout: self.shutdown_timeout, keys: under_way(&self.views) })
        });
        self.last.cancel();
        // Events are best effort: a hanging server must neither delay the exit nor make it a failure.
        let flushed = tokio::time::timeout(EVENTS_FLUSH.min(limit), drain(&mut self.others)).await;
        let flushed = flushed.unwrap_or_else(|_| {
            tracing::warn!("Could not write the last events in time");
            Ok(())
        });
        if drained.is_ok() && outcome != Err(RunError::Panicked) {
            self.release.cancel();
            while self.elector.join_next().await.is_some() {}
        } else {
            // A write of an aborted sync may still be in an admission webhook: no other process may lead before the
            // Lease expires.
            self.elector.shutdown().await;
            self.client.gate().close();
        }
        outcome.and(drained).and(flushed)?;
        tracing::info!("Stopped");
        Ok(())
    }

    async fn until_stopped(&mut self, stop: &CancellationToken) -> Result<(), RunError> {
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            Some(ended) = self.controllers.join_next() => ended,
            Some(ended) = self.machine.join_next() => ended,
            Some(ended) = self.others.join_next() => ended,
            Some(ended) = self.elector.join_next() => match ended {
                Ok(_) => return Err(RunError::LostLeadership),
                Err(panicked) => Err(panicked),
            },
        };
        Err(failed(&ended))
    }

    /// Waits for controllers, informers and audits.
    async fn drain(&mut self) -> Result<(), RunError> {
        let controllers = drain(&mut self.controllers).await;
        controllers.and(drain(&mut self.machine).await)
    }
}

/// Waits for all tasks; fails if one of them panicked.
pub(super) async fn drain(tasks: &mut JoinSet<()>) -> Result<(), RunError> {
    let mut outcome = Ok(());
    while let Some(ended) = tasks.join_next().await {
        if ended.is_err() {
            outcome = Err(failed(&ended));
        }
    }
    outcome
}

fn failed(ended: &Result<(), JoinError>) -> RunError {
    match ended {
        Err(error) if error.is_panic() => RunError::Panicked,
        _ => RunError::EndedEarly,
    }
}

/// Lists the keys of syncs in progress.
fn under_way(views: &[ControllerView]) -> String {
    let passes: Vec<_> = views.iter().flat_map(|view| view.workers.passes()).collect();
    let mut keys: Vec<_> = passes.iter().map(|pass| pass.key.to_string()).take(KEYS_LISTED).collect();
    if passes.len() > KEYS_LISTED {
        keys.push(format!("and {} more", passes.len() - KEYS_LISTED));
    }
    keys.join(", ")
}
