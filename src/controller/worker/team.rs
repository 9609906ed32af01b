//! The tasks of a controller that runs: workers, the queue's delays, audits.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Audit, Controller, SyncHandler};
use crate::controller::audit;

/// What has ended of a controller's tasks.
pub(super) enum Ended {
    Worker(usize),
    Other,
}

/// The tasks of a controller that runs.
pub(super) struct Team<H> {
    pub(super) controller: Arc<Controller<H>>,
    pub(super) tasks: JoinSet<Ended>,
    /// The workers that have not ended.
    pub(super) at_work: BTreeSet<usize>,
}

impl<H: SyncHandler> Team<H> {
    pub(super) fn of(controller: Controller<H>) -> Self {
        Self { controller: Arc::new(controller), tasks: JoinSet::new(), at_work: BTreeSet::new() }
    }

    fn spawn(&mut self, task: BoxFuture<'static, Ended>) {
        self.tasks.spawn(task.in_current_span());
    }

    /// The queue's delays, and audits.
    pub(super) fn start_others(&mut self, scope: &CancellationToken) {
        let delays = self.controller.queue.clone();
        self.spawn(Box::pin(async move {
            let forgotten = delays.run().await;
            tracing::debug!(forgotten, "Delays ended");
            Ended::Other
        }));
        if self.controller.audit.is_some() {
            let (controller, scope) = (self.controller.clone(), scope.clone());
            self.spawn(Box::pin(async move {
                if let Some(Audit { period, inventory }) = &controller.audit {
                    audit::run(inventory, controller.queue.clone(), *period, scope).await;
                }
                Ended::Other
            }));
        }
    }

    /// Starts those that are missing of so many.
    pub(super) fn start_workers(&mut self, wanted: usize, scope: &CancellationToken) {
        self.controller.metrics.workers(wanted);
        for index in 0..wanted {
            if self.at_work.insert(index) {
                let (controller, scope) = (self.controller.clone(), scope.clone());
                self.spawn(Box::pin(async move {
                    controller.run_worker(index, &scope).await;
                    Ended::Worker(index)
                }));
            }
        }
    }
}
