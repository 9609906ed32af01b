//! Takes keys off the queue and syncs them.
//!
//! Mirrors sample-controller `controller.go` (`Run`, `runWorker`, `processNextWorkItem`).
//! Flow: workqueue -> **workers** -> sync handler -> API server
//!
//! | a sync ends with | forget failures? | next pass | log |
//! |---|---|---|---|
//! | [`Outcome::Done`] | yes | when something changes | debug |
//! | [`Outcome::RequeueAfter`] | yes | after that time, or when something changes | debug |
//! | [`SyncError`]: conflict | no | after the backoff | debug |
//! | [`SyncError`]: lost connection | no | after the backoff | debug (the client tells it once) |
//! | [`SyncError`]: other | no | after the backoff, and not before the server's Retry-After (at most 10 min) | warn |
//! | a panic | no | after the backoff | error |
//!
//! # Guarantees
//! - No worker starts before the caches have synced. (test: `workers_wait_for_the_caches`)
//! - A key is never synced twice at once, whatever the number of workers. (test: `a_key_is_never_synced_twice_at_once`)
//! - A key is not synced before the caches have seen its own writes. (test: `a_key_waits_for_its_own_writes`)
//! - An error is retried with backoff; a success forgets it. (test: `an_error_is_retried_with_backoff_until_it_succeeds`)
//! - An event during the backoff does not bring the key early. (test: `an_event_during_the_backoff_waits`)
//! - A panic is caught and retried like an error; the others go on. (test: `a_panic_is_caught_and_retried`)
//! - A shutdown lets syncs in flight end, and starts no more. (test: `shutdown_ends_what_is_in_flight_and_starts_no_more`)
//!
//! # Differences from client-go
//! `run` waits for its workers; sample-controller promises it and does not. Retry-After is obeyed. The
//! backoff is honest: an event that arrives meanwhile waits for its end, unless it brings a new spec (see
//! [`RateLimitingQueue`]).
//!
//! # Locks and tasks
//! One task for each worker and one for the queue's delays, all owned by [`Controller::run`].

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::consistency::{self, Consistency};
use crate::cache::{ObjectName, Synced, wait_for_cache_sync};
use crate::client;
use crate::workqueue::RateLimitingQueue;

/// Makes the world as one object wants it.
pub trait SyncHandler: Send + Sync + 'static {
    /// Looks at what is true now and does what is missing. An object that is gone is `Done`.
    ///
    /// `Err` means "try again with backoff", nothing else: a spec that can never work becomes a
    /// condition, and `Ok`.
    fn sync(&self, key: &ObjectName) -> impl Future<Output = Result<Outcome, SyncError>> + Send;
}

/// How a sync ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do until something changes.
    Done,
    /// Look again after this time, whatever happens.
    RequeueAfter(Duration),
}

/// Why a sync has to be tried again.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SyncError(#[from] pub client::Error);

/// Workers over a queue; see the module.
pub struct Controller<H> {
    /// For the log.
    name: &'static str,
    queue: RateLimitingQueue<ObjectName>,
    handler: H,
    /// What must have synced before the first key is taken.
    caches: Vec<Synced>,
    /// What must have been seen before a key is taken again.
    consistency: Arc<Consistency>,
    workers: usize,
}

// === impl Controller ===

impl<H: SyncHandler> Controller<H> {
    /// Nothing happens before [`run`](Self::run).
    #[must_use]
    pub fn new(
        name: &'static str,
        queue: RateLimitingQueue<ObjectName>,
        handler: H,
        caches: Vec<Synced>,
        consistency: Arc<Consistency>,
        workers: usize,
    ) -> Self {
        Self { name, queue, handler, caches, consistency, workers }
    }

    /// Waits for the caches, syncs keys until `shutdown`, waits for what is in flight.
    ///
    /// # Panics
    /// With a panic of the machinery; that of a sync is caught.
    ///
    /// # Cancel safety
    /// Not cancel-safe: end it by the token.
    pub async fn run(self, shutdown: CancellationToken) {
        if let Err(missing) = wait_for_cache_sync(&self.caches, &shutdown).await {
            tracing::info!(controller = self.name, error = %missing, "Stopped before it started");
            return;
        }
        tracing::info!(controller = self.name, workers = self.workers, "Caches synced, starting workers");
        let this = Arc::new(self);
        let scope = shutdown.child_token();
        let mut tasks = JoinSet::new();
        let delays = this.queue.clone();
        let delays = async move {
            let forgotten = delays.run().await;
            tracing::debug!(forgotten, "Delays ended");
        };
        tasks.spawn(delays.in_current_span());
        for _ in 0..this.workers {
            let (worker, scope) = (this.clone(), scope.clone());
            tasks.spawn(async move { worker.run_worker(&scope).await }.in_current_span());
        }
        let queue = &this.queue;
        loop {
            let ended = tokio::select! {
                biased;
                ended = tasks.join_next() => ended,
                () = scope.cancelled(), if !queue.is_shutting_down() => {
                    queue.shut_down();
                    continue;
                }
            };
            match ended {
                Some(Ok(())) => {}
                Some(Err(failure)) => {
                    queue.shut_down();
                    scope.cancel();
                    while tasks.join_next().await.is_some() {}
                    std::panic::resume_unwind(failure.into_panic());
                }
                None => break,
            }
        }
        tracing::info!(controller = this.name, left = this.queue.len(), "Workers stopped");
    }

    /// One worker: a key after the other. What is queued at the shutdown is the next process's.
    async fn run_worker(&self, shutdown: &CancellationToken) {
        while !shutdown.is_cancelled() && self.process_next_work_item(shutdown).await {}
    }

    /// Takes one key and syncs it; `false` when the queue has ended or the shutdown has begun.
    async fn process_next_work_item(&self, shutdown: &CancellationToken) -> bool {
        let Some(processing) = self.queue.get().await else { return false };
        if shutdown.is_cancelled() {
            return false;
        }
        let key = processing.key();
        let span = tracing::info_span!("sync", controller = self.name, object = %key);
        async {
            if self.queue.backs_off(key) {
                // An event came while the sync that failed was under way; the end of the backoff brings it.
                return;
            }
            if !self.consistency.is_ready(key) {
                // The event of our own write wakes the key; this is for events that never come.
                tracing::debug!("Waiting for the caches to show our own writes");
                self.queue.add_after(key.clone(), consistency::RETRY);
                return;
            }
            match AssertUnwindSafe(async { self.handler.sync(key).await }).catch_unwind().await {
                Ok(Ok(outcome)) => self.succeeded(key, outcome),
                Ok(Err(error)) => self.failed(key, &error),
                Err(panic) => self.panicked(key, &*panic),
            }
        }
        .instrument(span)
        .await;
        true
    }

    fn succeeded(&self, key: &ObjectName, outcome: Outcome) {
        self.queue.forget(key);
        if let Outcome::RequeueAfter(delay) = outcome {
            self.queue.add_after(key.clone(), delay);
        }
        tracing::debug!(?outcome, "Synced");
    }

    fn failed(&self, key: &ObjectName, SyncError(error): &SyncError) {
        let attempt = self.queue.num_requeues(key) + 1;
        let at_least = error.retry_after().unwrap_or_default();
        self.queue.back_off(key.clone(), at_least);
        let cause = error as &dyn std::error::Error;
        if error.is_conflict() || error.is_already_exists() || error.is_connection() {
            tracing::debug!(error = cause, attempt, "Could not sync; trying again");
        } else {
            tracing::warn!(error = cause, attempt, "Could not sync; trying again");
        }
    }

    fn panicked(&self, key: &ObjectName, panic: &(dyn Any + Send)) {
        let attempt = self.queue.num_requeues(key) + 1;
        self.queue.back_off(key.clone(), Duration::ZERO);
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(panic = text.unwrap_or("of another type"), attempt, "A sync panicked; trying again");
    }
}

impl<H> fmt::Debug for Controller<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
