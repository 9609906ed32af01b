//! Takes keys off the queue and syncs them.
//!
//! Mirrors sample-controller `controller.go` (`Run`, `runWorker`, `processNextWorkItem`).
//! Flow: workqueue -> **workers** -> sync handler -> API server
//! Chapter 7 of `docs/book` builds this from nothing.
//!
//! The table in [`outcome`](super::outcome) says what follows each sync.
//!
//! # Guarantees
//! - Workers start only after all caches have synced and all handlers have seen the first list.
//!   (test: `workers_wait_for_the_caches`, `workers_wait_until_handlers_saw_the_first_list`)
//! - A key is never synced by two workers at once. (test: `key_is_never_synced_concurrently`)
//! - A key is not synced before the caches have seen its own writes. (test: `a_key_waits_for_its_own_writes`)
//! - A failed sync is retried with backoff and not before Retry-After; only a change that may fix it ends the backoff.
//!   (test: `failed_sync_is_retried_with_backoff_until_success`, `an_event_during_the_backoff_waits`, `retry_after_from_the_server_is_obeyed`, `new_spec_during_failing_sync_skips_backoff`)
//! - A sync has the reasons of all adds that it serves; a retry keeps them, and their priority.
//!   (test: `pass_has_the_reasons_added_while_it_waited`, `failed_audit_pass_is_retried_as_an_audit`, `a_retry_keeps_its_priority`)
//! - A panic in a sync is retried like an error; any other panic ends the run, after the syncs in flight.
//!   (test: `a_panic_is_caught_and_retried`, `panic_outside_syncs_ends_run_after_running_syncs`)
//! - With shards, a key is synced when the caches have its shard, and dropped if another process holds it.
//!   (test: `keys_wait_for_their_shard_and_those_of_others_are_dropped`)
//! - Shutdown waits for syncs in flight and starts no more. (test: `shutdown_finishes_running_syncs_and_starts_none`)
//!
//! # Differences from client-go
//! Late caches are named in the log and waited for; controller-runtime gives up after two minutes. A panic outside a
//! sync ends the process, as in client-go by default. While a sync waits for a slow response, another
//! worker stands in for its own (see [`Workers`]); if that sync fails, its key is retried behind others, after at
//! least the time the sync took. A requeue has the priority of a change, unless the key waits for a user.
//! [`Controller::run`] owns all tasks, and waits for them.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::observer::PassEnd;
use super::outcome::{Outcome, SyncError, SyncRequest, Trust};
use super::takeover::Takeover;
use crate::api::ApiResource;
use crate::cache::listener::text_of;
use crate::cache::synctrack::{self, SyncedSetter};
use crate::cache::{
    self, EventHandler, Lister, ObjectName, SharedInformer, Synced, TypedObject, wait_for_cache_sync,
};
use crate::client::shards::{Admission, Changes, Shards};
use crate::client::slow_calls;
use crate::controller::key::own_writes::{self, Readiness};
use crate::controller::key::{KeyState, Keys};
use crate::metrics::{ControllerMetrics, Effect, Retry};
use crate::traces::{PutOff, Tracer};
use crate::workqueue::{AddOptions, LOW_PRIORITY, Next, Processing, RateLimitingQueue, Reasons};
pub use once::{OnceObserver, SharedObserver};
use task_set::{Ended, TaskSet};
use workers::VersionOf;
pub use workers::{ControllerView, RunningPass, Workers};

/// How often caches that have not synced yet are named in the log.
pub(crate) const CACHE_SYNC_PATIENCE: Duration = Duration::from_secs(120);

/// When a parked key is looked at again even if no sync of its namespace has ended meanwhile.
const PARKED_MAX: Duration = Duration::from_secs(60);

/// When a key that was handed out, but is not synced, is to be handed out again; and what it waits for, in traces.
struct NotNow(AddOptions, &'static str);

/// Brings the cluster to the state that an object asks for.
pub trait SyncHandler: Send + Sync + 'static {
    /// Syncs one object. If the object no longer exists, the outcome is [`Outcome::Done`].
    ///
    /// `Err` means "retry with backoff" and nothing else: report a spec that can never work in a condition, and
    /// return `Ok`.
    fn sync(
        &self,
        key: &ObjectName,
        request: SyncRequest<'_>,
    ) -> impl Future<Output = Result<Outcome, SyncError>> + Send;
}

/// A handler that the caller shares.
impl<H: SyncHandler> SyncHandler for Arc<H> {
    fn sync(
        &self,
        key: &ObjectName,
        request: SyncRequest<'_>,
    ) -> impl Future<Output = Result<Outcome, SyncError>> + Send {
        H::sync(self, key, request)
    }
}

/// Runs workers over a queue; see the module.
pub struct Controller<H> {
    /// Shown in logs and metrics.
    name: &'static str,
    queue: RateLimitingQueue<ObjectName>,
    handler: H,
    /// Caches that must have synced before the workers start.
    caches: Vec<Synced>,
    /// What is remembered of each key; holds a key until the caches have seen its own writes.
    keys: Arc<Keys>,
    workers: Workers,
    /// The kind of the objects, if known.
    kind: Cow<'static, str>,
    version_of: VersionOf,
    metrics: ControllerMetrics,
    started: (SyncedSetter, Synced),
    tracer: Tracer,
    /// `None` for a controller without leader election.
    takeover: Option<Takeover>,
    /// Whether the caches have caught up with the writes of another leader.
    has_caught_up: AtomicBool,
    /// `None` without a limit.
    sync_timeout: Option<Duration>,
    /// `None` to sync the keys of all namespaces.
    shards: Option<Shards>,
}

/// The sync took longer than [`Controller::with_sync_timeout`] allows.
#[derive(Debug, thiserror::Error)]
#[error("the sync did not end within {0:?}")]
struct SyncTimedOut(Duration);

// === impl Controller ===

impl<H: SyncHandler> Controller<H> {
    /// Creates a controller with one worker; [`run`](Self::run) starts it.
    #[must_use]
    pub fn new(name: &'static str, queue: RateLimitingQueue<ObjectName>, handler: H) -> Self {
        Self {
            name,
            queue,
            handler,
            caches: Vec::new(),
            keys: Arc::default(),
            workers: Workers::new(1),
            kind: "".into(),
            version_of: Arc::new(|_| None),
            metrics: ControllerMetrics::unread(name),
            started: synctrack::pair(name),
            tracer: Tracer::default(),
            takeover: None,
            has_caught_up: AtomicBool::new(true),
            sync_timeout: None,
            shards: None,
        }
    }

    /// Calls `handler` for each change of this kind, to enqueue keys. Workers wait until the handler has seen the
    /// first list, and a key waits until this cache has seen its own writes.
    ///
    /// # Errors
    /// [`cache::Ended`] when the informer has ended.
    pub fn watches<K: TypedObject>(
        mut self,
        informer: &SharedInformer<K>,
        handler: impl EventHandler<K>,
    ) -> Result<Self, cache::Ended> {
        let registration = informer.add_event_handler(handler)?;
        self.caches.push(registration.synced());
        let namespace = informer.selection().namespace.clone();
        self.keys.observe_in(namespace, ApiResource::of::<K>(), informer.clone());
        Ok(self)
    }

    /// Sets the records of the keys, which the caller shares, and whose stores show the writes of the keys.
    #[must_use]
    pub fn with_keys(self, keys: Arc<Keys>) -> Self {
        Self { keys, ..self }
    }

    /// Makes the workers wait for this cache, too.
    #[must_use]
    pub fn waits_for(mut self, cache: Synced) -> Self {
        self.caches.push(cache);
        self
    }

    /// Sets the number of workers.
    #[must_use]
    pub fn with_workers(self, workers: usize) -> Self {
        self.workers.set(workers);
        self
    }

    /// Sets where the objects that keys name are cached, whose versions [`view`](Self::view) shows.
    #[must_use]
    pub fn with_objects<K: TypedObject>(mut self, objects: Lister<K>) -> Self {
        self.kind = ApiResource::of::<K>().kind;
        self.version_of = Arc::new(move |key| Some(objects.get(key)?.resource_version().to_owned()));
        self
    }

    /// Ends a sync that takes longer, and retries it with backoff; by default a sync may take any time. Mirrors
    /// controller-runtime's `ReconciliationTimeout`.
    ///
    /// A write that is cut may have been applied: the next sync of the key reads everything from the server.
    #[must_use]
    pub fn with_sync_timeout(mut self, timeout: Duration) -> Self {
        self.sync_timeout = Some(timeout);
        self
    }

    /// Counts syncs in `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: ControllerMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Traces syncs by `tracer`.
    #[must_use]
    pub fn with_tracer(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
    }

    /// Starts the workers when this process leads, and distrusts the caches until they have caught up.
    #[must_use]
    pub fn with_takeover(mut self, takeover: Takeover) -> Self {
        self.takeover = Some(takeover);
        self.has_caught_up = AtomicBool::new(false);
        self
    }

    /// Syncs the keys of the shards that the process holds, each when the caches have it; drops all others.
    #[must_use]
    pub fn with_shards(self, shards: Option<Shards>) -> Self {
        Self { shards, ..self }
    }

    /// Returns a handle that changes the number of workers and lists their syncs.
    #[must_use]
    pub fn workers(&self) -> Workers {
        self.workers.clone()
    }

    /// Returns handles to read the controller's state while it runs.
    #[must_use]
    pub fn view(&self) -> ControllerView {
        ControllerView {
            name: self.name,
            queue: self.queue.clone(),
            workers: self.workers.clone(),
            version_of: self.version_of.clone(),
        }
    }

    /// Returns a handle that tells when the workers have started, or would if this process led.
    #[must_use]
    pub fn started(&self) -> Synced {
        self.started.1.clone()
    }

    /// Waits for the caches, syncs keys until `shutdown`, then waits for the syncs in flight.
    ///
    /// # Panics
    /// Resumes a panic from outside a sync; panics in syncs are caught.
    ///
    /// # Cancel safety
    /// Not cancel-safe: end it by the token.
    pub async fn run(self, shutdown: CancellationToken) {
        Arc::new(self).run_shared(shutdown).await;
    }

    /// See [`run`](Self::run).
    pub(in crate::controller) async fn run_shared(self: Arc<Self>, shutdown: CancellationToken) {
        if !self.caches_have_synced(&shutdown).await {
            return;
        }
        let scope = shutdown.child_token();
        let mut tasks = TaskSet::of(self);
        tasks.start_delays();
        let controller = tasks.controller.clone();
        let queue = &controller.queue;
        controller.started.0.set();
        if let Some(takeover) = &controller.takeover {
            tokio::select! {
                biased;
                () = scope.cancelled() => {}
                () = takeover.acquired() => tasks.start_catching_up(takeover.clone(), &scope),
            }
        }
        tracing::info!(
            controller = controller.name,
            workers = controller.workers.count(),
            "Caches synced, starting workers"
        );
        let mut shards = controller.shards.as_ref().map(Shards::changes);
        let mut wanted = controller.workers.count();
        loop {
            let changed = controller.workers.changed();
            if !queue.is_shutting_down() {
                let count = controller.workers.counted();
                if std::mem::replace(&mut wanted, count.wanted) != count.wanted {
                    let why = controller.workers.why();
                    let why = why.as_deref();
                    tracing::info!(
                        controller = controller.name,
                        workers = wanted,
                        why,
                        "Changed the number of workers"
                    );
                }
                tasks.start_workers(count, &scope);
            }
            let ended = tokio::select! {
                biased;
                ended = tasks.tasks.join_next() => ended,
                () = scope.cancelled(), if !queue.is_shutting_down() => {
                    queue.shut_down();
                    continue;
                }
                () = next_change(&mut shards) => {
                    controller.release_listed();
                    continue;
                }
                () = changed, if !queue.is_shutting_down() => continue,
            };
            match ended {
                Some(Ok(Ended::Worker(index))) => {
                    // It may have ended for a wanted number that has changed since.
                    tasks.at_work.remove(&index);
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
                    tracing::info!(
                        controller = self.name,
                        error = %missing,
                        "Shut down before the caches synced; no worker was started"
                    );
                    return false;
                }
                Err(_) => {
                    let missing: Vec<&str> =
                        self.caches.iter().filter(|cache| !cache.is_synced()).map(Synced::name).collect();
                    tracing::warn!(
                        controller = self.name,
                        missing = missing.join(", "),
                        "Still waiting for the caches of these kinds to sync; \
                         check that the kinds exist and may be listed"
                    );
                }
            }
        }
    }

    /// Syncs keys one after the other until `shutdown`, or until fewer workers are wanted. Keys still queued at
    /// shutdown are left to the next process.
    async fn run_worker(&self, index: usize, shutdown: &CancellationToken) {
        loop {
            let changed = self.workers.changed();
            if shutdown.is_cancelled() || index >= self.workers.counted().running() {
                return;
            }
            // Syncs that never wait would otherwise starve the other tasks of this thread.
            tokio::task::coop::consume_budget().await;
            tokio::select! {
                biased;
                () = changed => {}
                next = self.queue.get_unless(|taken| self.is_to_be_parked(taken)) => match next {
                    _ if shutdown.is_cancelled() => return,
                    Some(Next::Process(processing)) => self.process(&processing, index).await,
                    Some(Next::PutOff { key, priority }) => {
                        // Only a delayed key can be released.
                        self.workers.park(&key, priority);
                        self.release_parked(key.namespace().unwrap_or_default());
                    }
                    None => return,
                },
            }
        }
    }

    /// Returns when to look at a key again, if syncs of its namespace wait for slow answers, or the caches do not have its
    /// shard yet.
    fn is_to_be_parked(&self, taken: &Processing<'_, ObjectName>) -> Option<Duration> {
        let key = taken.key();
        let namespace = key.namespace().unwrap_or_default();
        let why = match &self.shards {
            Some(shards) if shards.is_listing(namespace) => "shard being listed",
            _ if self.workers.are_crowded_by(namespace) => "crowded namespace",
            _ => return None,
        };
        let mut state = self.keys.take(key);
        state.traced.put_off(&self.tracer, PutOff { waited: taken.waited(), why });
        self.keys.put_back(key, state);
        tracing::debug!(controller = self.name, object = %key, why, "Deferred");
        Some(PARKED_MAX)
    }

    /// Queues the parked keys of the shards that the caches have now.
    fn release_listed(&self) {
        let Some(shards) = &self.shards else { return };
        for namespace in self.workers.parked_namespaces() {
            while !shards.is_listing(&namespace)
                && let Some(parked) = self.workers.unpark(&namespace)
            {
                self.queue.hasten(&parked);
            }
        }
    }

    /// Syncs one key, unless its time has not come, or it is another process's.
    async fn process(&self, processing: &Processing<'_, ObjectName>, worker: usize) {
        let admission =
            self.shards.as_ref().map(|shards| shards.admit(processing.key().namespace().unwrap_or_default()));
        let _in_flight = match admission {
            None => None,
            Some(Admission::Now(in_flight)) => Some(in_flight),
            // The shard was lost, and taken again, since the key was taken off the queue.
            Some(Admission::Later) => {
                let (priority, reasons) = (processing.priority(), processing.reasons().clone());
                let options = AddOptions { priority, reasons, ..AddOptions::default() };
                return self.queue.add_with(processing.key().clone(), options);
            }
            Some(Admission::Never) => {
                self.queue.forget(processing.key());
                drop(self.keys.take(processing.key()));
                return;
            }
        };
        let why = tracing::field::display(processing.reasons());
        let trace_id = tracing::field::Empty;
        let span =
            tracing::info_span!("sync", controller = self.name, object = %processing.key(), why, trace_id);
        let sync = async {
            let key = processing.key();
            let mut state = self.keys.take(key);
            let later = match self.trust(processing, &mut state) {
                Ok(trust) => {
                    self.sync(processing, worker, trust, &mut state).await;
                    None
                }
                Err(NotNow(options, why)) => {
                    state.traced.put_off(&self.tracer, PutOff { waited: processing.waited(), why });
                    Some(options)
                }
            };
            self.keys.put_back(key, state);
            if let Some(options) = later {
                self.queue.add_with(key.clone(), options);
            }
            self.release_parked(key.namespace().unwrap_or_default());
        };
        sync.instrument(span).await;
    }

    /// Queues a parked key of this namespace, if there is one and room for it.
    fn release_parked(&self, namespace: &str) {
        if self.shards.as_ref().is_some_and(|shards| shards.is_listing(namespace)) {
            return;
        }
        while let Some(parked) = self.workers.unpark(namespace) {
            // It is not delayed any more if it was added meanwhile.
            if self.queue.hasten(&parked) {
                return;
            }
        }
    }

    /// Returns how far the sync may trust the caches, or when to look at the key again, for the same reasons.
    fn trust(&self, processing: &Processing<'_, ObjectName>, state: &mut KeyState) -> Result<Trust, NotNow> {
        let (key, reasons) = (processing.key(), processing.reasons());
        let later = || AddOptions {
            priority: processing.priority(),
            reasons: reasons.clone(),
            ..AddOptions::default()
        };
        if self.queue.backs_off(key) {
            // An event arrived while the failing sync was running, and waits until the backoff is over.
            return Err(NotNow(later(), "backoff"));
        }
        match state.own_writes.readiness(&self.keys.stores) {
            Readiness::Ready if state.is_distrusted() => Ok(Trust::Nothing),
            Readiness::Ready if !self.has_caught_up.load(Ordering::Relaxed) => Ok(Trust::OwnerLive),
            Readiness::Ready => Ok(Trust::Cache),
            Readiness::FailedOpen => {
                self.metrics.failed_open();
                Ok(Trust::Nothing)
            }
            Readiness::Waits => {
                // The event of our own write enqueues the key; this retry covers events that never come.
                tracing::debug!("Waiting for the caches to observe this key's own writes");
                if let Some(lagging) = state.own_writes.oldest_unseen() {
                    self.metrics.waits_for_own_writes(&lagging.group, &lagging.plural);
                }
                if let Some(observer) = self.workers.observer() {
                    observer.held(key);
                }
                let options = AddOptions { after: Some(own_writes::RETRY), ..later() };
                Err(NotNow(options, "own writes"))
            }
        }
    }

    async fn sync(
        &self,
        processing: &Processing<'_, ObjectName>,
        worker: usize,
        trust: Trust,
        state: &mut KeyState,
    ) {
        let (key, reasons) = (processing.key(), processing.reasons());
        let _active = self.metrics.active();
        let started = Instant::now();
        let listed = self.list_pass(processing, worker, started);
        let trace = self.trace(processing, state);
        let request = SyncRequest::new(reasons, state).beside(&self.queue).with_trust(trust);
        let sync = AssertUnwindSafe(trace.run(self.sync_in_time(key, request)));
        let (patience, on_slow) = self.workers.patience(key);
        let (ended, was_slow) = slow_calls::noticing(patience, on_slow, sync.catch_unwind()).await;
        drop(listed);
        let took = started.elapsed();
        let writes = state.own_writes.end_sync();
        let effect = match &ended {
            Ok(Ok(_)) if writes.is_empty() => Effect::Nothing,
            Ok(Ok(_)) => Effect::Changed,
            Ok(Err(_)) | Err(_) => Effect::Error,
        };
        self.metrics.effect(effect, reasons);
        trace.ended(&mut state.traced, writes.len(), traced::end(&ended));
        let observer = self.workers.observer();
        let observed = observer.map(|observer| (observer, PassEnd::of(took, &ended, &writes)));
        match ended {
            Ok(Ok(outcome)) => {
                if trust == Trust::Nothing {
                    state.trust_again();
                }
                self.succeeded(processing, outcome, took);
            }
            Ok(Err(error)) => self.failed(processing, &error, (took, was_slow)),
            Err(panic) => self.panicked(processing, &*panic, took),
        }
        if let Some((observer, end)) = observed {
            observer.ended(worker, key, end);
        }
    }

    async fn sync_in_time(&self, key: &ObjectName, request: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        let sync = async { self.handler.sync(key, request).await };
        let Some(limit) = self.sync_timeout else { return sync.await };
        tokio::time::timeout(limit, sync).await.unwrap_or_else(|_| {
            self.keys.distrust(key);
            self.metrics.timed_out();
            Err(SyncTimedOut(limit).into())
        })
    }

    /// Lists a sync as running until the returned guard is dropped.
    fn list_pass(
        &self,
        processing: &Processing<'_, ObjectName>,
        worker: usize,
        since: Instant,
    ) -> impl Drop + use<H> {
        let (key, reasons) = (processing.key(), processing.reasons());
        let task = tokio::task::try_id();
        let pass = RunningPass { worker, task, key: key.clone(), reasons: reasons.clone(), since };
        if let Some(observer) = self.workers.observer() {
            observer.began(worker, key, reasons, processing.priority(), processing.waited());
        }
        self.workers.begin(pass)
    }

    fn succeeded(&self, processing: &Processing<'_, ObjectName>, outcome: Outcome, took: Duration) {
        let key = processing.key();
        self.queue.forget(key);
        let next = outcome.next_pass();
        self.metrics.succeeded(took, next.is_some());
        if let Some(time) = next {
            // A key that waits for a user is synced behind keys that users have changed.
            let is_stuck = matches!(outcome, Outcome::WaitForUser { .. });
            let priority = if is_stuck { LOW_PRIORITY } else { 0 };
            let reasons = match outcome {
                Outcome::Deferred(_) => processing.reasons().clone(),
                _ => Reasons::default(),
            };
            let options = AddOptions { after: Some(time), priority, reasons, ..AddOptions::default() };
            self.queue.add_with(key.clone(), options);
        }
        tracing::debug!(?outcome, "Synced");
    }

    fn failed(
        &self,
        processing: &Processing<'_, ObjectName>,
        error: &SyncError,
        (took, was_slow): (Duration, bool),
    ) {
        let retry = error.retry();
        self.metrics.failed(took, retry);
        // A sync that failed after a slow answer is likely to do so again.
        let attempt = match was_slow && self.workers.failed_slowly(processing.key(), took) {
            true => self.back_off(processing, error.at_least().max(took), LOW_PRIORITY),
            false => self.back_off(processing, error.at_least(), processing.priority()),
        };
        let cause = error.as_error();
        match retry {
            Retry::Conflict | Retry::Connection | Retry::Throttled => {
                tracing::debug!(error = cause, attempt, "Sync failed; retrying with backoff");
            }
            Retry::Error | Retry::Panic => {
                tracing::warn!(error = cause, attempt, "Sync failed; retrying with backoff");
            }
        }
    }

    fn panicked(&self, processing: &Processing<'_, ObjectName>, panic: &(dyn Any + Send), took: Duration) {
        self.metrics.failed(took, Retry::Panic);
        let attempt = self.back_off(processing, Duration::ZERO, processing.priority());
        let text = text_of(panic);
        tracing::error!(panic = text, attempt, "Sync panicked; retrying with backoff");
    }

    /// Requeues the key with backoff, keeping its reasons; returns the number of its failures.
    fn back_off(&self, processing: &Processing<'_, ObjectName>, at_least: Duration, priority: i32) -> u32 {
        let (key, reasons) = (processing.key(), processing.reasons().clone());
        self.queue.back_off_with(key.clone(), at_least, priority, reasons);
        self.queue.num_requeues(key)
    }
}

/// Waits for a change of the shards, for ever without shards.
async fn next_change(shards: &mut Option<Changes>) {
    match shards {
        Some(shards) => shards.next().await,
        None => std::future::pending().await,
    }
}

impl<H> fmt::Debug for Controller<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}

mod once;
mod task_set;
mod traced;
mod workers;

#[cfg(test)]
mod tests;
