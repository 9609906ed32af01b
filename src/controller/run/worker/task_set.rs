//! The tasks of a controller that runs: workers, the queue's delays.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Controller, SyncHandler};

/// What has ended of a controller's tasks.
pub(super) enum Ended {
    Worker(usize),
    Other,
}

/// The tasks of a controller that runs.
pub(super) struct TaskSet<H> {
    pub(super) controller: Arc<Controller<H>>,
    pub(super) tasks: JoinSet<Ended>,
    /// The workers that have not ended.
    pub(super) at_work: BTreeSet<usize>,
}

impl<H: SyncHandler> TaskSet<H> {
    pub(super) fn of(controller: Controller<H>) -> Self {
        Self { controller: Arc::new(controller), tasks: JoinSet::new(), at_work: BTreeSet::new() }
    }

    fn spawn(&mut self, task: BoxFuture<'static, Ended>) {
        self.tasks.spawn(task.in_current_span());
    }

    /// The queue's delays.
    pub(super) fn start_delays(&mut self) {
        let delays = self.controller.queue.clone();
        self.spawn(Box::pin(async move {
            let forgotten = delays.run().await;
            tracing::debug!(forgotten, "Delays ended");
            Ended::Other
        }));
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
