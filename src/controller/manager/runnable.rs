//! A controller as the manager runs it.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use futures_util::future::BoxFuture;

use super::Run;
use super::auto_workers::AutoWorkers;
use crate::cache::Synced;
use crate::controller::run::worker::{Controller, ControllerView, SharedObserver, SyncHandler};

/// A controller that is built but not yet running.
pub struct Runnable {
    /// Resolves when the workers have started.
    pub(super) started: Synced,
    /// Shows the controller's queue and workers.
    pub(super) view: ControllerView,
    /// `None` for a fixed number of workers.
    pub(super) auto_workers: Option<AutoWorkers>,
    /// Runs the controller until its token is cancelled.
    pub(super) run: Run,
    /// Syncs each object once instead.
    pub(super) run_once: RunOnce,
}

type RunOnce = Box<dyn FnOnce(SharedObserver, CancellationToken) -> BoxFuture<'static, ()> + Send>;

// === impl Runnable ===

impl Runnable {
    /// Sets the number of workers.
    #[must_use]
    pub fn with_workers(self, workers: usize) -> Self {
        self.view.workers.set(workers);
        Self { auto_workers: None, ..self }
    }

    /// Lets the number of workers follow the load, from its present value.
    #[must_use]
    pub fn with_auto_workers(self, auto: AutoWorkers) -> Self {
        Self { auto_workers: Some(auto), ..self }
    }

    /// Runs `other` in the same task, but for [`Manager::run_once`](super::Manager::run_once); it must end when its token is
    /// cancelled.
    #[must_use]
    pub fn beside<F: Future<Output = ()> + Send + 'static>(
        self,
        other: impl FnOnce(CancellationToken) -> F + Send + 'static,
    ) -> Self {
        let run = self.run;
        let both = |stop: CancellationToken| async move {
            tokio::join!(run(stop.clone()), other(stop));
        };
        Self { run: Box::new(|stop| Box::pin(both(stop))), ..self }
    }
}

impl<H: SyncHandler> From<Controller<H>> for Runnable {
    fn from(controller: Controller<H>) -> Self {
        let controller = Arc::new(controller);
        Self {
            started: controller.started(),
            view: controller.view(),
            auto_workers: None,
            run: {
                let controller = controller.clone();
                Box::new(|stop| Box::pin(controller.run_shared(stop)))
            },
            run_once: Box::new(|observer, stop| {
                Box::pin(async move { controller.run_once(observer, stop).await })
            }),
        }
    }
}

impl fmt::Debug for Runnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runnable").field("started", &self.started).finish_non_exhaustive()
    }
}
