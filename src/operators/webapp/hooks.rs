//! Runs hooks beside the workers, so that one that hangs holds up no other object, and remembers how they ended.
//!
//! Flow: sync handler -> **hooks** -> executor -> result -> the WebApp's key is queued
//!
//! # Guarantees
//! - A result is kept until another hook of the same WebApp is run: a pass that could not record it finds it again. (test: `a_result_is_kept_until_the_next_hook`)
//! - No more than [`AT_ONCE`] hooks of one task run at once; the others wait for their turn. (test: `a_task_that_hangs_holds_up_no_other`)
//! - Before a hook is run, and after it has waited for its turn, it is asked whether it is still wanted. (test: `one_that_waits_for_its_turn_is_run_only_if_it_is_still_wanted`)
//! - One that waits for its turn gives way to something newer at once. (test: `one_that_waits_for_its_turn_gives_way`)
//! - Nothing is kept of a WebApp that has gone. (test: `what_has_gone_leaves_nothing_and_runs_nothing`)
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
use futures_util::future::BoxFuture;
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
use crate::client::Error;
use crate::controller::kinds::health::UNDONE_RETRY;
use crate::workqueue::{AddOptions, RateLimitingQueue, Reason};

/// How many hooks of one task run at once.
pub(super) const AT_ONCE: usize = 64;
/// How soon a hook is looked at again that is not done and does not say when.
const NOT_YET: Duration = Duration::from_secs(10);
/// How soon it is asked again whether a hook is wanted, when there was no answer.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Whether a hook is still wanted: asked when its turn has come.
pub(super) type IsWanted = BoxFuture<'static, Result<bool, Error>>;

type Records = Arc<Mutex<HashMap<ObjectName, Record>>>;

/// What this process knows of hooks. Cheap to clone.
#[derive(Clone)]
pub(super) struct Hooks {
    records: Records,
    jobs: mpsc::UnboundedSender<Job>,
}

/// Runs them; its owner runs it.
pub(super) struct Runner {
    records: Records,
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
    /// It had its turn, and was still wanted.
    is_begun: bool,
}

struct Job {
    executor: Arc<dyn TaskExecutor>,
    limit: Arc<Semaphore>,
    call: HookCall,
    attempts: i32,
    is_wanted: IsWanted,
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
    let records = Records::default();
    (Hooks { records: records.clone(), jobs: sender }, Runner { records, jobs, queue })
}

// === impl Hooks ===

impl Hooks {
    /// What is known of the hook of this step, whose start is recorded. One that is superseded and does not run here
    /// may still run in a process that was cut off, for as long as its `timeout`; one that waits for its turn is not
    /// run any more.
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
            // Its message is written down once, with the first look.
            Some(Err(HookError::NotYet { message, .. })) if *message == step.message => Known::Resting(left),
            Some(ended) => Known::Ended(ended.clone()),
        }
    }

    /// Runs a hook whose start is recorded, when its turn has come and if it is wanted then.
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
                "A hook is run while another one of the same WebApp runs"
            );
        }
        let job =
            Job { executor: task.executor.clone(), limit: task.limit.clone(), call, attempts, is_wanted };
        // Nobody runs it when the process is ending: the record of its start is found by the next one.
        drop(self.jobs.send(job));
    }

    /// Forgets a WebApp that goes; whether anything was known of it.
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

async fn run_one(job: Job, records: Records, queue: RateLimitingQueue<ObjectName>) {
    let Job { executor, limit, call, attempts, is_wanted } = job;
    let Ok(_turn) = limit.acquire().await else { return };
    let webapp = call.object();
    let update = |change: &mut dyn FnMut(&mut Record)| {
        let mut records = records.lock();
        let record = records.get_mut(&webapp).filter(|record| record.is_of(call.operation_id(), attempts));
        record.map(change).is_some()
    };
    // It may have been given up while it waited.
    if !update(&mut |_| {}) {
        return;
    }
    let wait = match is_wanted.await {
        Ok(true) => None,
        Ok(false) => Some(UNDONE_RETRY),
        Err(_) => Some(ASK_AGAIN),
    };
    if let Some(wait) = wait {
        tracing::debug!(operation = call.operation_id(), "Runs nothing: the record may be an old one");
        let mut records = records.lock();
        if records.get(&webapp).is_some_and(|record| record.is_of(call.operation_id(), attempts)) {
            records.remove(&webapp);
        }
        queue.add_after(webapp, wait);
        return;
    }
    if !update(&mut |record| record.is_begun = true) {
        return;
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
        queue.add(webapp, AddOptions::because(reason));
    }
}

#[cfg(test)]
mod tests;
