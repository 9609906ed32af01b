//! The tasks of a running controller: workers and the queue's delays.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::workers::Count;
use super::{Controller, SyncHandler, Takeover};

/// Which task of a controller has ended.
pub(super) enum Ended {
    Worker(usize),
    Other,
}

/// The tasks of a running controller.
pub(super) struct TaskSet<H> {
    pub(super) controller: Arc<Controller<H>>,
    pub(super) tasks: JoinSet<Ended>,
    /// Indexes of the running workers.
    pub(super) at_work: BTreeSet<usize>,
}

impl<H: SyncHandler> TaskSet<H> {
    pub(super) fn of(controller: Arc<Controller<H>>) -> Self {
        Self { controller, tasks: JoinSet::new(), at_work: BTreeSet::new() }
    }

    fn spawn(&mut self, task: BoxFuture<'static, Ended>) {
        self.tasks.spawn(task.in_current_span());
    }

    /// Starts the task of the queue's delays.
    pub(super) fn start_delays(&mut self) {
        let delays = self.controller.queue.clone();
        self.spawn(Box::pin(async move {
            let forgotten = delays.run().await;
            tracing::debug!(forgotten, "Delay task ended");
            Ended::Other
        }));
    }

    /// Starts the task that waits until syncs may trust the caches.
    pub(super) fn start_catching_up(&mut self, takeover: Takeover, scope: &CancellationToken) {
        let (controller, scope) = (self.controller.clone(), scope.clone());
        self.spawn(Box::pin(async move {
            tokio::select! {
                biased;
                () = scope.cancelled() => {}
                () = takeover.caught_up(&controller.keys) => {
                    controller.has_caught_up.store(true, Ordering::Relaxed);
                    tracing::debug!("The caches have caught up with the writes of the previous leader");
                }
            }
            Ended::Other
        }));
    }

    /// Starts workers until as many as counted are running.
    pub(super) fn start_workers(&mut self, count: Count, scope: &CancellationToken) {
        self.controller.metrics.workers(count.wanted);
        for index in 0..count.running() {
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
