//! Runs hooks outside the workers, so that a hanging hook delays no other object, and keeps their results.
//!
//! Flow: sync handler -> **hooks** -> executor -> result -> the WebApp's key is queued
//!
//! # Guarantees
//! - A result is kept until the WebApp's next hook runs: a sync that failed to record the result finds it again. (test: `a_result_is_kept_until_the_next_hook`)
//! - At most [`AT_ONCE`] hooks of one task run at once, and those of one namespace leave room for others.
//!   (test: `hanging_task_does_not_block_others`, `hanging_hooks_of_a_namespace_block_no_other`)
//! - When its turn comes, a hook runs only if it is still wanted. (test: `queued_hook_runs_only_if_still_wanted`)
//! - A superseded hook that still waits for its turn is dropped at once. (test: `superseded_queued_hook_is_dropped`)
//! - A deleted WebApp leaves no record. (test: `forgotten_webapp_leaves_no_records_and_runs_nothing`)
//! - A hook that panics has failed and is retried. (test: `panic_counts_as_retryable_failure`)
//! - A shutdown aborts running hooks; their starts are recorded, so the next process runs them again. (test: `shutdown_aborts_running_hooks`)
//!
//! # Locks and tasks
//! [`Runner::run`] owns one task per hook. One lock guards the records; it is never held across an await.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::steps::Known;
use super::tasks::{self, HookCall, HookError, TaskExecutor};
use crate::api::webapp::v1::WebAppStep;
use crate::cache::ObjectName;
use crate::client::Error;
use crate::client::fair_slots::FairSlots;
use crate::controller::kinds::health::UNDONE_RETRY;
use crate::traces::{self, Failed};
use crate::workqueue::{AddOptions, RateLimitingQueue, Reason};

/// How many hooks of one task run at once; those of one namespace alone are half as many.
pub(super) const AT_ONCE: usize = 64;
/// How soon to check again on an unfinished hook that does not say when.
const NOT_YET: Duration = Duration::from_secs(10);
/// How soon to check again whether a hook is wanted, after a failed check.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The check whether a hook is still wanted, made when its turn comes.
pub(super) type IsWanted = BoxFuture<'static, Result<bool, Error>>;

type Records = Arc<Mutex<HashMap<ObjectName, Record>>>;

/// Starts hooks and keeps what this process knows of them. Cheap to clone.
#[derive(Clone)]
pub(super) struct Hooks {
    records: Records,
    jobs: mpsc::UnboundedSender<Job>,
}

/// Runs the hooks that [`Hooks::run`] sends; the owner drives [`run`](Self::run).
pub(super) struct Runner {
    records: Records,
    jobs: mpsc::UnboundedReceiver<Job>,
    queue: RateLimitingQueue<ObjectName>,
}

/// The last hook of one WebApp.
struct Record {
    operation_id: String,
    attempts: i32,
    /// The hook's result, once it has ended.
    ended: Option<Result<(), HookError>>,
    /// When an unfinished hook is checked again; for a hook elsewhere, when it has timed out.
    until: Instant,
    runs_here: bool,
    /// Whether the hook had its turn and was still wanted.
    is_begun: bool,
}

struct Job {
    executor: Arc<dyn TaskExecutor>,
    limit: FairSlots,
    call: HookCall,
    attempts: i32,
    is_wanted: IsWanted,
    /// Its span, which begins here, as the hook may wait for its turn.
    trace: traces::Scope,
}

/// An executor, and the limit on its concurrent hooks.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) executor: Arc<dyn TaskExecutor>,
    limit: FairSlots,
}

impl Task {
    pub(super) fn new(executor: Arc<dyn TaskExecutor>) -> Self {
        Self { executor, limit: FairSlots::new(AT_ONCE) }
    }
}

/// Creates both ends; each result adds the key of its WebApp to `queue`.
pub(super) fn pair(queue: RateLimitingQueue<ObjectName>) -> (Hooks, Runner) {
    let (sender, jobs) = mpsc::unbounded_channel();
    let records = Records::default();
    (Hooks { records: records.clone(), jobs: sender }, Runner { records, jobs, queue })
}

// === impl Hooks ===

impl Hooks {
    /// Returns what is known of the step's hook, whose start is recorded. A superseded hook that does not run here may
    /// still run in another process for up to `timeout`; a superseded hook that waits for its turn is dropped.
    pub(super) fn known(
        &self,
        (webapp, step): (&ObjectName, &WebAppStep),
        superseded: bool,
        timeout: Duration,
    ) -> Known {
        let now = Instant::now();
        let mut records = self.records.lock();
        let Some(record) =
            records.get(webapp).filter(|record| record.is_of(&step.operation_id, step.attempts))
        else {
            if !superseded {
                return Known::Nothing;
            }
            let lost = Record {
                operation_id: step.operation_id.clone(),
                attempts: step.attempts,
                ended: None,
                until: now + timeout,
                runs_here: false,
                is_begun: true,
            };
            records.insert(webapp.clone(), lost);
            return Known::Elsewhere(timeout);
        };
        let left = record.until.saturating_duration_since(now);
        if superseded && !record.is_begun {
            records.remove(webapp);
            return Known::Elsewhere(Duration::ZERO);
        }
        match &record.ended {
            None if record.runs_here => Known::Running,
            None => Known::Elsewhere(left),
            Some(Err(HookError::NotYet { message, .. })) => Known::Waiting(message.clone(), left),
            Some(ended) => Known::Ended(ended.clone()),
        }
    }

    /// Runs a hook whose start is recorded, once its turn comes and if it is still wanted then.
    pub(super) fn run(&self, task: &Task, call: HookCall, attempts: i32, is_wanted: IsWanted) {
        let record = Record {
            operation_id: call.operation_id().to_owned(),
            attempts,
            ended: None,
            until: Instant::now(),
            runs_here: true,
            is_begun: false,
        };
        let former = self.records.lock().insert(call.object(), record);
        if former.is_some_and(|former| former.is_begun && former.runs_here && former.ended.is_none()) {
            tracing::warn!(
                operation = call.operation_id(),
                "Starting a hook while another hook of the same WebApp is still running"
            );
        }
        let trace = traces::hook(call.task(), call.hook().as_str(), attempts);
        let (executor, limit) = (task.executor.clone(), task.limit.clone());
        let job = Job { executor, limit, call, attempts, is_wanted, trace };
        // Sending fails only during a shutdown; the next process finds the recorded start.
        drop(self.jobs.send(job));
    }

    /// Removes the record of a deleted WebApp; returns whether there was one.
    pub(super) fn forget(&self, webapp: &ObjectName) -> bool {
        self.records.lock().remove(webapp).is_some()
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("records", &self.records.lock().len()).finish_non_exhaustive()
    }
}

// === impl Record ===

impl Record {
    fn is_of(&self, operation_id: &str, attempts: i32) -> bool {
        self.operation_id == operation_id && self.attempts == attempts
    }
}

// === impl Runner ===

impl Runner {
    /// Runs hooks until `shutdown`, then aborts those that still run.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(_) = running.join_next() => {}
                job = self.jobs.recv() => match job {
                    Some(job) => {
                        let (records, queue) = (self.records.clone(), self.queue.clone());
                        running.spawn(run_traced(job, records, queue).in_current_span());
                    }
                    None => break,
                }
            }
        }
        running.shutdown().await;
    }
}

async fn run_traced(mut job: Job, records: Records, queue: RateLimitingQueue<ObjectName>) {
    let trace = std::mem::take(&mut job.trace);
    let failed = trace.run(run_one(job, records, queue)).await;
    trace.ended(|| failed);
}

/// Runs a hook, and returns how it failed.
async fn run_one(job: Job, records: Records, queue: RateLimitingQueue<ObjectName>) -> Option<Failed> {
    let Job { executor, limit, call, attempts, is_wanted, trace: _ } = job;
    let webapp = call.object();
    let _turn = limit.acquire(webapp.namespace().unwrap_or_default()).await;
    let update = |change: &mut dyn FnMut(&mut Record)| {
        let mut records = records.lock();
        let record = records.get_mut(&webapp).filter(|record| record.is_of(call.operation_id(), attempts));
        record.map(change).is_some()
    };
    // The hook may have been dropped while it waited.
    if !update(&mut |_| {}) {
        return None;
    }
    match is_wanted.await {
        Ok(true) => {}
        Ok(false) => {
            tracing::debug!(
                operation = call.operation_id(),
                "Hook not started: a live read shows that it is not due"
            );
            let mut records = records.lock();
            if records.get(&webapp).is_some_and(|record| record.is_of(call.operation_id(), attempts)) {
                records.remove(&webapp);
            }
            queue.add_after(webapp, UNDONE_RETRY);
            return None;
        }
        Err(error) => {
            let message = format!("not started, as the WebApp could not be read live: {error}");
            update(&mut |record| {
                record.ended = Some(Err(HookError::not_yet(message.clone(), Some(ASK_AGAIN))));
                record.until = Instant::now() + ASK_AGAIN;
            });
            queue.add_with(webapp, AddOptions::because(Reason::Timer));
            return None;
        }
    }
    if !update(&mut |record| record.is_begun = true) {
        return None;
    }
    let span = tracing::info_span!("hook", task = call.task(), hook = %call.hook(), object = %webapp, attempt = attempts);
    let outcome = AssertUnwindSafe(tasks::run(&*executor, &call)).catch_unwind().instrument(span).await;
    let ended = outcome.unwrap_or_else(|_| Err(HookError::retry(format!("{} panicked", call.hook()))));
    let rest = match &ended {
        Err(HookError::NotYet { requeue_after, .. }) => requeue_after.unwrap_or(NOT_YET),
        Ok(()) | Err(HookError::Retry { .. } | HookError::Permanent { .. }) => Duration::ZERO,
    };
    let is_known = update(&mut |record| {
        record.ended = Some(ended.clone());
        record.until = Instant::now() + rest;
    });
    if is_known {
        let reason = Reason::Child { kind: "Task".into(), name: call.task().into() };
        queue.add_with(webapp, AddOptions::because(reason));
    }
    let class = match &ended {
        Ok(()) | Err(HookError::NotYet { .. }) => return None,
        Err(HookError::Retry { .. }) => "retry",
        Err(HookError::Permanent { .. }) => "permanent",
    };
    Some(Failed { class, code: None })
}

#[cfg(test)]
mod tests;
