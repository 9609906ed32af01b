//! Runs hooks beside the workers, so that one that hangs holds up no other object, and remembers how they ended.
//!
//! Flow: sync handler -> **hooks** -> executor -> result -> the WebApp's key is queued
//!
//! # Guarantees
//! - A result is kept until another hook of the same WebApp is run: a pass that could not record it finds it again. (test: `a_result_is_kept_until_the_next_hook`)
//! - No more than [`AT_ONCE`] hooks of one task run at once; the others wait for their turn. (test: `a_task_that_hangs_holds_up_no_other`)
//! - A hook that panics has failed, and is tried again. (test: `a_panic_is_a_failure`)
//! - A shutdown cuts what runs: its start is recorded, and the next process runs it again. (test: `a_shutdown_cuts_what_runs`)
//!
//! # Locks and tasks
//! One task for each hook that runs, owned by [`Runner::run`]; one lock, held for a look.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::steps::Known;
use super::tasks::{self, HookCall, HookError, TaskExecutor};
use crate::api::webapp::v1::WebAppStep;
use crate::cache::ObjectName;
use crate::workqueue::{AddOptions, RateLimitingQueue, Reason};

/// How many hooks of one task run at once.
pub(super) const AT_ONCE: usize = 64;
/// How soon a hook is looked at again that is not done and does not say when.
const NOT_YET: Duration = Duration::from_secs(10);

/// What this process knows of hooks. Cheap to clone.
#[derive(Clone)]
pub(super) struct Hooks {
    records: Arc<Mutex<HashMap<String, Record>>>,
    jobs: mpsc::UnboundedSender<Job>,
}

/// Runs them; its owner runs it.
pub(super) struct Runner {
    records: Arc<Mutex<HashMap<String, Record>>>,
    jobs: mpsc::UnboundedReceiver<Job>,
    queue: RateLimitingQueue<ObjectName>,
}

/// The last hook of one WebApp.
struct Record {
    operation_id: String,
    attempts: i32,
    /// How it has ended, if it has.
    ended: Option<Result<(), HookError>>,
    /// Until when one that is not done is let be; for one that runs elsewhere, until when it may.
    until: Instant,
    runs_here: bool,
}

struct Job {
    executor: Arc<dyn TaskExecutor>,
    limit: Arc<Semaphore>,
    call: HookCall,
    attempts: i32,
}

/// An executor, and how many of its hooks may run.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) executor: Arc<dyn TaskExecutor>,
    limit: Arc<Semaphore>,
}

impl Task {
    pub(super) fn new(executor: Arc<dyn TaskExecutor>) -> Self {
        Self { executor, limit: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

/// Both ends; results queue the key of their WebApp here.
pub(super) fn pair(queue: RateLimitingQueue<ObjectName>) -> (Hooks, Runner) {
    let (sender, jobs) = mpsc::unbounded_channel();
    let records = Arc::<Mutex<HashMap<String, Record>>>::default();
    (Hooks { records: records.clone(), jobs: sender }, Runner { records, jobs, queue })
}

// === impl Hooks ===

impl Hooks {
    /// What is known of the hook of this step, whose start is recorded. One that is superseded and does not run here
    /// may still run in a process that was cut off, for as long as its `timeout`.
    pub(super) fn known(
        &self,
        (uid, step): (&str, &WebAppStep),
        superseded: bool,
        timeout: Duration,
    ) -> Known {
        let now = Instant::now();
        let mut records = self.records.lock();
        let is_of =
            |record: &Record| record.operation_id == step.operation_id && record.attempts == step.attempts;
        let Some(record) = records.get(uid).filter(|record| is_of(record)) else {
            if !superseded {
                return Known::Nothing;
            }
            let lost = Record {
                operation_id: step.operation_id.clone(),
                attempts: step.attempts,
                ended: None,
                until: now + timeout,
                runs_here: false,
            };
            records.insert(uid.to_owned(), lost);
            return Known::Elsewhere(timeout);
        };
        let left = record.until.saturating_duration_since(now);
        match &record.ended {
            None if record.runs_here => Known::Running,
            None => Known::Elsewhere(left),
            // Its message is written down once, with the first look.
            Some(Err(HookError::NotYet { message, .. })) if *message == step.message => Known::Resting(left),
            Some(ended) => Known::Ended(ended.clone()),
        }
    }

    /// Runs a hook whose start is recorded. One that is run already is not run twice.
    pub(super) fn run(&self, task: &Task, call: HookCall, attempts: i32) {
        let record = Record {
            operation_id: call.operation_id().to_owned(),
            attempts,
            ended: None,
            until: Instant::now(),
            runs_here: true,
        };
        let former = self.records.lock().insert(call.uid().to_owned(), record);
        if former.is_some_and(|former| former.runs_here && former.ended.is_none()) {
            tracing::warn!(
                operation = call.operation_id(),
                "A hook is run while another one of the same WebApp runs"
            );
        }
        let job = Job { executor: task.executor.clone(), limit: task.limit.clone(), call, attempts };
        // Nobody runs it when the process is ending: the record of its start is found by the next one.
        drop(self.jobs.send(job));
    }

    /// Forgets a WebApp that has gone.
    pub(super) fn forget(&self, uid: &str) {
        self.records.lock().remove(uid);
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("records", &self.records.lock().len()).finish_non_exhaustive()
    }
}

// === impl Runner ===

impl Runner {
    /// Runs hooks until the token; those that run then are cut.
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
                        running.spawn(run_one(job, records, queue).in_current_span());
                    }
                    None => break,
                }
            }
        }
        running.shutdown().await;
    }
}

async fn run_one(
    job: Job,
    records: Arc<Mutex<HashMap<String, Record>>>,
    queue: RateLimitingQueue<ObjectName>,
) {
    let Job { executor, limit, call, attempts } = job;
    let Ok(_turn) = limit.acquire().await else { return };
    let span = tracing::info_span!("hook", task = call.task(), hook = %call.hook(), object = %call.object(), attempt = attempts);
    let outcome = AssertUnwindSafe(tasks::run(&*executor, &call)).catch_unwind().instrument(span).await;
    let ended = outcome.unwrap_or_else(|_| Err(HookError::retry(format!("{} panicked", call.hook()))));
    let rest = match &ended {
        Err(HookError::NotYet { look_again, .. }) => look_again.unwrap_or(NOT_YET),
        Ok(()) | Err(HookError::Retry { .. } | HookError::Permanent { .. }) => Duration::ZERO,
    };
    {
        let mut records = records.lock();
        let Some(record) = records.get_mut(call.uid()) else { return };
        if record.operation_id != call.operation_id() || record.attempts != attempts {
            return;
        }
        record.ended = Some(ended);
        record.until = Instant::now() + rest;
    }
    let reason = Reason::Child { kind: "Task".into(), name: call.task().into() };
    queue.add(call.object(), AddOptions::because(reason));
}

#[cfg(test)]
mod tests;
