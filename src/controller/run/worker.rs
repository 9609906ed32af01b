//! Takes keys off the queue and syncs them.
//!
//! Mirrors sample-controller `controller.go` (`Run`, `runWorker`, `processNextWorkItem`).
//! Flow: workqueue -> **workers** -> sync handler -> API server
//!
//! What follows from the end of a sync is the table in [`outcome`](super::outcome).
//!
//! # Guarantees
//! - No worker starts before the caches have synced, and their handlers have heard of it. (test: `workers_wait_for_the_caches`, `workers_wait_until_handlers_have_heard_of_the_first_list`)
//! - Those that are missing after [`CACHE_SYNC_PATIENCE`] are named. (test: `caches_that_are_missing_are_named`)
//! - A key is never synced twice at once, whatever the number of workers. (test: `a_key_is_never_synced_twice_at_once`)
//! - The number of workers can change while they work; nothing under way is cut. (test: `workers_come_and_go`)
//! - A key is not synced before the caches have seen its own writes. (test: `a_key_waits_for_its_own_writes`)
//! - An error is retried with backoff; a success forgets it. (test: `an_error_is_retried_with_backoff_until_it_succeeds`)
//! - An event during the backoff does not bring the key early. (test: `an_event_during_the_backoff_waits`)
//! - A new spec during a pass that fails is not held back by its backoff. (test: `a_new_spec_during_a_pass_that_fails_comes_at_once`)
//! - A try after a failure is for the same reasons as the first, and no more urgent. (test: `an_audit_that_fails_is_tried_again_as_an_audit`, `a_retry_keeps_its_priority`)
//! - A key that disappears leaves nothing. (test: `a_key_that_disappears_leaves_nothing`)
//! - A pass knows all its reasons, also those that came while the key had to wait. (test: `a_pass_knows_what_came_while_it_waited`)
//! - A key that asks for itself without end is named and slowed. (test: `a_hot_key_is_slowed`, `a_key_that_answers_its_own_writes_is_slowed`)
//! - No try comes before the time that the server has asked for. (test: `retry_after_of_the_server_is_obeyed`)
//! - Which passes are under way, and why, can be asked. (test: `passes_that_are_under_way_are_listed`)
//! - A line that is logged in a pass says of which object it is, and why the pass is made. (test: `a_pass_says_why_in_the_log`)
//! - Passes are counted by what they did, and why. (test: `a_pass_is_counted_by_its_effect_and_reasons`)
//! - Passes that never wait leave the thread to others all the same. (test: `passes_that_never_wait_leave_the_thread_to_others`)
//! - A panic is caught and retried like an error; the others go on. (test: `a_panic_is_caught_and_retried`)
//! - A panic of the machinery ends the run, after what is in flight. (test: `a_panic_of_the_machinery_ends_the_run_after_what_is_in_flight`)
//! - A shutdown lets syncs in flight end, and starts no more. (test: `shutdown_ends_what_is_in_flight_and_starts_no_more`)
//!
//! # Differences from client-go
//! The queue and the guard are made by whoever wires the controller, as handlers and the sync handler hold them, too. Caches
//! that are late are named and waited for; controller-runtime gives up after two minutes. What asks to be looked at again
//! comes with the priority of a change, unless it waits for a user.
//! `run` waits for its workers; sample-controller promises it and does not. A panic of the machinery ends the process;
//! there, a worker is started again after a second. Retry-After is obeyed. The
//! backoff is honest: an event that arrives meanwhile waits for its end, unless it brings a new spec (see
//! [`RateLimitingQueue`]).
//!
//! # Locks and tasks
//! One task for each worker, one for the queue's delays, all owned by [`Controller::run`].

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::consistency::{self, Consistency, Readiness, Write};
use super::hot_loop::{HotLoops, PACE, Temperature};
use super::outcome::{Outcome, SyncError, SyncRequest};
use crate::cache::synctrack::{self, SyncedSetter};
use crate::cache::{EventHandler, Object, ObjectName, SharedInformer, Synced, wait_for_cache_sync};
use crate::metrics::{ControllerMetrics, Effect, Retry};
use crate::workqueue::{AddOptions, LOW_PRIORITY, Processing, RateLimitingQueue, Reason, Reasons};
use task_set::{Ended, TaskSet};
pub use workers::{UnderWay, Workers};

/// How long caches may take until those that are missing are named, again and again.
pub const CACHE_SYNC_PATIENCE: Duration = Duration::from_secs(120);

/// Makes the world as one object wants it.
pub trait SyncHandler: Send + Sync + 'static {
    /// Looks at what is true now and does what is missing. An object that is gone is `Done`.
    ///
    /// `Err` means "try again with backoff", nothing else: a spec that can never work becomes a
    /// condition, and `Ok`.
    fn sync(
        &self,
        key: &ObjectName,
        request: SyncRequest<'_>,
    ) -> impl Future<Output = Result<Outcome, SyncError>> + Send;
}

/// A handler that somebody else holds, too.
impl<H: SyncHandler> SyncHandler for Arc<H> {
    fn sync(
        &self,
        key: &ObjectName,
        request: SyncRequest<'_>,
    ) -> impl Future<Output = Result<Outcome, SyncError>> + Send {
        H::sync(self, key, request)
    }
}

/// Workers over a queue; see the module.
pub struct Controller<H> {
    /// For log and metrics.
    name: &'static str,
    queue: RateLimitingQueue<ObjectName>,
    handler: H,
    /// What must have synced before the first key is taken.
    caches: Vec<Synced>,
    /// What must have been seen before a key is taken again.
    consistency: Arc<Consistency>,
    workers: Workers,
    metrics: ControllerMetrics,
    hot: Arc<HotLoops>,
    started: (SyncedSetter, Synced),
}

// === impl Controller ===

impl<H: SyncHandler> Controller<H> {
    /// A controller with one worker. Nothing happens before [`run`](Self::run).
    #[must_use]
    pub fn new(
        name: &'static str,
        queue: RateLimitingQueue<ObjectName>,
        handler: H,
        consistency: Arc<Consistency>,
    ) -> Self {
        Self {
            name,
            queue,
            handler,
            caches: Vec::new(),
            consistency,
            workers: Workers::new(1),
            metrics: ControllerMetrics::unread(name),
            hot: Arc::default(),
            started: synctrack::pair(name),
        }
    }

    /// Calls `handler` when an object of this kind changes: it queues the keys that this concerns. Workers
    /// wait until it has heard of the first list, and a key waits until this cache has seen its writes.
    ///
    /// # Panics
    /// When the informer has ended.
    #[must_use]
    pub fn watches<K: Object>(mut self, informer: &SharedInformer<K>, handler: impl EventHandler<K>) -> Self {
        let registration = informer.add_event_handler(handler).expect("an informer runs after the wiring");
        self.caches.push(registration.synced());
        self.consistency.observe(K::resource(), informer.store());
        self
    }

    /// Waits for this, too, before the first key is taken.
    #[must_use]
    pub fn waits_for(mut self, cache: Synced) -> Self {
        self.caches.push(cache);
        self
    }

    /// So many syncs at once.
    #[must_use]
    pub fn with_workers(self, workers: usize) -> Self {
        self.workers.set(workers);
        self
    }

    /// Counts here.
    #[must_use]
    pub fn with_metrics(mut self, metrics: ControllerMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Changes the number of workers while they work, and tells what they do.
    #[must_use]
    pub fn workers(&self) -> Workers {
        self.workers.clone()
    }

    /// Tells when the workers have started.
    #[must_use]
    pub fn started(&self) -> Synced {
        self.started.1.clone()
    }

    /// Waits for the caches, syncs keys until `shutdown`, waits for what is in flight.
    ///
    /// # Panics
    /// With a panic of the machinery; that of a sync is caught.
    ///
    /// # Cancel safety
    /// Not cancel-safe: end it by the token.
    pub async fn run(self, shutdown: CancellationToken) {
        if !self.caches_have_synced(&shutdown).await {
            return;
        }
        let scope = shutdown.child_token();
        let mut tasks = TaskSet::of(self);
        tasks.start_delays();
        let controller = tasks.controller.clone();
        let mut wanted = controller.workers.wanted();
        let queue = &controller.queue;
        tracing::info!(
            controller = controller.name,
            workers = *wanted.borrow(),
            "Caches synced, starting workers"
        );
        tasks.start_workers(*wanted.borrow_and_update(), &scope);
        controller.started.0.set();
        loop {
            let ended = tokio::select! {
                biased;
                ended = tasks.tasks.join_next() => ended,
                () = scope.cancelled(), if !queue.is_shutting_down() => {
                    queue.shut_down();
                    continue;
                }
                Ok(()) = wanted.changed(), if !queue.is_shutting_down() => {
                    let workers = *wanted.borrow_and_update();
                    tracing::info!(controller = controller.name, workers, "Another number of workers");
                    tasks.start_workers(workers, &scope);
                    continue;
                }
            };
            match ended {
                Some(Ok(Ended::Worker(index))) => {
                    tasks.at_work.remove(&index);
                    if !queue.is_shutting_down() {
                        // It may have ended for a number that has changed again.
                        tasks.start_workers(*wanted.borrow(), &scope);
                    }
                }
                Some(Ok(Ended::Other)) => {}
                Some(Err(failure)) => {
                    queue.shut_down();
                    scope.cancel();
                    while tasks.tasks.join_next().await.is_some() {}
                    std::panic::resume_unwind(failure.into_panic());
                }
                None => break,
            }
        }
        tracing::info!(controller = controller.name, left = queue.len(), "Workers stopped");
    }

    async fn caches_have_synced(&self, shutdown: &CancellationToken) -> bool {
        loop {
            let waiting = wait_for_cache_sync(&self.caches, shutdown);
            match tokio::time::timeout(CACHE_SYNC_PATIENCE, waiting).await {
                Ok(Ok(())) => return true,
                Ok(Err(missing)) => {
                    tracing::info!(controller = self.name, error = %missing, "Stopped before it started");
                    return false;
                }
                Err(_) => {
                    let missing: Vec<&str> =
                        self.caches.iter().filter(|cache| !cache.is_synced()).map(Synced::name).collect();
                    tracing::warn!(
                        controller = self.name,
                        missing = missing.join(", "),
                        "Still waiting for the first list of these kinds; no object is synced before"
                    );
                }
            }
        }
    }

    /// One worker: a key after the other, as long as so many are wanted. What is queued at the shutdown is
    /// the next process's.
    async fn run_worker(&self, index: usize, shutdown: &CancellationToken) {
        let mut wanted = self.workers.wanted();
        while !shutdown.is_cancelled() && index < *wanted.borrow_and_update() {
            // Passes that never wait let others have the thread all the same.
            tokio::task::coop::consume_budget().await;
            tokio::select! {
                biased;
                _ = wanted.changed() => {}
                processing = self.queue.get() => match processing {
                    Some(processing) if !shutdown.is_cancelled() => {
                        self.process(&processing, index).await;
                    }
                    _ => return,
                },
            }
        }
    }

    /// Syncs one key, unless it has to wait.
    async fn process(&self, processing: &Processing<'_, ObjectName>, worker: usize) {
        let (key, reasons) = (processing.key(), processing.reasons());
        let why = tracing::field::display(reasons);
        let span = tracing::info_span!("sync", controller = self.name, object = %key, why);
        let pass = async {
            if self.queue.backs_off(key) {
                // An event came while the sync that failed was under way. What may have cured the cause ends the
                // backoff; the end of the backoff brings everything else.
                let bypass_backoff = reasons.iter().any(Reason::may_cure);
                let (priority, reasons) = (processing.priority(), reasons.clone());
                let options = AddOptions { bypass_backoff, priority, reasons, ..AddOptions::default() };
                self.queue.add(key.clone(), options);
                return;
            }
            let readiness = self.consistency.look(key);
            if readiness == Readiness::Waits {
                // The event of our own write wakes the key; this is for events that never come.
                tracing::debug!("Waiting for the caches to show our own writes");
                self.metrics.waits_for_own_writes();
                let (after, priority) = (Some(consistency::RETRY), processing.priority());
                let options =
                    AddOptions { after, priority, reasons: reasons.clone(), ..AddOptions::default() };
                self.queue.add(key.clone(), options);
                return;
            }
            let _active = self.metrics.active();
            let started = Instant::now();
            let is_late = readiness == Readiness::FailedOpen;
            if is_late {
                self.metrics.failed_open();
            }
            let under_way = self
                .workers
                .begin(worker, UnderWay { key: key.clone(), reasons: reasons.clone(), since: started });
            self.consistency.begin_pass(key);
            let request = SyncRequest::new(reasons).hot(self.hot.is_hot(key)).late(is_late);
            let sync = AssertUnwindSafe(async { self.handler.sync(key, request).await });
            let ended = sync.catch_unwind().await;
            drop(under_way);
            let took = started.elapsed();
            let writes = self.consistency.end_pass(key);
            let effect = match &ended {
                Ok(Ok(_)) if writes.is_empty() => Effect::Nothing,
                Ok(Ok(_)) => Effect::Changed,
                Ok(Err(_)) | Err(_) => Effect::Error,
            };
            self.metrics.effect(effect, reasons);
            match ended {
                Ok(Ok(outcome)) => self.succeeded(processing, outcome, took, writes),
                Ok(Err(error)) => self.failed(processing, &error, took),
                Err(panic) => self.panicked(processing, &*panic, took),
            }
        };
        pass.instrument(span).await;
    }

    fn succeeded(
        &self,
        processing: &Processing<'_, ObjectName>,
        outcome: Outcome,
        took: Duration,
        writes: Vec<Write>,
    ) {
        let key = processing.key();
        self.queue.forget(key);
        let next = outcome.next_pass();
        self.metrics.succeeded(took, next.is_some());
        let temperature = self.hot.passed(key, processing.reasons(), next, writes);
        if temperature == Temperature::JustHot {
            self.metrics.hot();
            tracing::warn!(?outcome, "Asks for itself again and again though nothing changes; slowed down");
        }
        match (temperature, next) {
            (Temperature::Cool, Some(time)) => {
                // What only a user can help is looked at behind what users have done.
                let is_stuck = matches!(outcome, Outcome::WaitForUser { .. });
                let priority = if is_stuck { LOW_PRIORITY } else { 0 };
                let reasons = match outcome {
                    Outcome::Deferred(_) => processing.reasons().clone(),
                    _ => Reasons::default(),
                };
                let options = AddOptions { after: Some(time), priority, reasons, ..AddOptions::default() };
                self.queue.add(key.clone(), options);
            }
            (Temperature::Cool, None) => {}
            (_, next) => self.queue.rest(key.clone(), next.unwrap_or_default().max(PACE)),
        }
        tracing::debug!(?outcome, "Synced");
    }

    fn failed(&self, processing: &Processing<'_, ObjectName>, error: &SyncError, took: Duration) {
        let retry = error.retry();
        self.metrics.failed(took, retry);
        let attempt = self.back_off(processing, error.at_least());
        let cause = error.as_error();
        match retry {
            Retry::Conflict | Retry::Connection | Retry::Throttled => {
                tracing::debug!(error = cause, attempt, "Could not sync; trying again");
            }
            Retry::Error | Retry::Panic => {
                tracing::warn!(error = cause, attempt, "Could not sync; trying again");
            }
        }
    }

    fn panicked(&self, processing: &Processing<'_, ObjectName>, panic: &(dyn Any + Send), took: Duration) {
        self.metrics.failed(took, Retry::Panic);
        let attempt = self.back_off(processing, Duration::ZERO);
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(panic = text.unwrap_or("of another type"), attempt, "A sync panicked; trying again");
    }

    /// The next try answers what this one was for, with the same priority; returns how often it has failed.
    fn back_off(&self, processing: &Processing<'_, ObjectName>, at_least: Duration) -> u32 {
        let (key, reasons) = (processing.key(), processing.reasons().clone());
        self.queue.back_off_with(key.clone(), at_least, processing.priority(), reasons);
        self.queue.num_requeues(key)
    }
}

impl<H> fmt::Debug for Controller<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}

mod task_set;
mod workers;

#[cfg(test)]
mod tests;
