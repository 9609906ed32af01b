//! The sync handler of WebApp: durable steps, then repair.
//!
//! # Guarantees
//! - A hook's start is stored before it runs, its end after; a finished hook does not run again. (test: `webapp_runs_each_hook_once`)
//! - A converged WebApp sends no request. (test: `a_converged_webapp_sends_nothing`)
//! - Right before a hook runs, a live read confirms that it is still due and the WebApp not paused.
//!   (test: `stale_record_runs_no_hook`, `pause_unseen_by_the_cache_blocks_hooks`)
//! - A restarted process resumes where the old one stopped. (test: `restarted_process_resumes_at_the_recorded_hook`)
//! - A failure shows in the step, a condition and an event; a permanent one waits for a new spec or for
//!   [`RECONCILE_AT`](annotations::RECONCILE_AT). (test: `failing_hook_is_reported_and_retried`, `permanently_failed_hook_waits_for_a_user`)
//! - A new spec or a deletion waits for the running hook, without reporting a failure.
//!   (test: `new_spec_awaits_running_hook_without_failure`, `deletion_waits_for_the_running_hook_then_undoes`)
//! - A deletion undoes the started tasks, last to first, and releases the WebApp when none of its Deployments is left.
//!   (test: `deletion_undoes_tasks_in_reverse_order`, `late_deployment_is_deleted_with_its_webapp`)

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::hooks::{Hooks, Task};
use super::steps::{self, Direction, Goal, Known, Next, Subject};
use super::tasks::{DEFAULT_TIMEOUT, HookCall};
use super::{FINALIZER, status, workload};
use crate::api::annotations;
use crate::api::webapp::v1::{Hook, Phase, WebApp, WebAppSpec, WebAppStatus, WebAppStep};
use crate::cache::{Lister, Object, ObjectName, Slim};
use crate::client::{ApiClient, dry_run};
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::{Pass, Reconcile, StopReason};
use crate::record::EventType;

/// Runs the tasks of a WebApp and keeps its Deployment.
#[derive(Debug)]
pub struct WebAppSync {
    pub(super) client: ApiClient,
    pub(super) deployments: Lister<ObservedDeployment>,
    pub(super) tasks: Vec<OneTask>,
    pub(super) hooks: Hooks,
}

/// A task of the list.
pub(super) enum OneTask {
    /// The task that keeps the Deployment; its hooks run within the sync.
    Workload(String),
    /// Any other task; its hooks run outside the workers.
    Executor(Task),
}

impl fmt::Debug for OneTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OneTask").field(&self.name()).finish()
    }
}

impl OneTask {
    fn name(&self) -> &str {
        match self {
            Self::Workload(name) => name,
            Self::Executor(task) => task.executor.name(),
        }
    }
}

impl Reconcile for WebAppSync {
    type Resource = Slim<WebApp>;

    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    async fn reconcile(&self, pass: &mut Pass<'_, Slim<WebApp>>) -> Result<WebAppStatus, StopReason> {
        let stored = pass.stored_status();
        let (next, steps) = self.go_on(pass, &stored, Direction::Creation).await?;
        // While a pause holds back a new spec, the status describes the former spec, if its tasks have all succeeded.
        let is_of_former = pass.is_paused() && self.have_all_succeeded(&steps, stored.observed_generation);
        let next = if is_of_former { Next::Finished } else { next };
        let object = pass.shared();
        let subject = subject(&object);
        if (is_of_former || self.is_workload_done(&steps, subject)) && pass.reports().is_empty() {
            let wanted = workload::wanted(pass.name(), &pass.object().spec);
            pass.apply(&wanted, &self.deployments).await?;
        }
        match status::health(&steps, &next, Direction::Creation, subject) {
            Some(health) => pass.report(health),
            None if pass.reports().is_empty() => pass.report(workload::none_wanted()),
            None => {}
        }
        Ok(self.status(pass, &stored, steps))
    }

    async fn finalize(&self, pass: &mut Pass<'_, Slim<WebApp>>) -> Result<Option<WebAppStatus>, StopReason> {
        if pass.is_orphaning() {
            return Ok(None);
        }
        let stored = pass.stored_status();
        let (next, steps) = self.go_on(pass, &stored, Direction::Deletion).await?;
        let health = status::health(&steps, &next, Direction::Deletion, subject(&pass.shared()));
        let Some(health) = health else { return Ok(None) };
        pass.report(health);
        Ok(Some(self.status(pass, &stored, steps)))
    }

    fn finalized(&self, name: &ObjectName) {
        self.hooks.forget(name);
    }

    fn gone(&self, name: &ObjectName) {
        if self.hooks.forget(name) {
            tracing::warn!(
                "WebApp is gone, possibly before its tasks were undone; clean up what they created"
            );
        }
    }
}

impl WebAppSync {
    /// Advances the steps once and runs the hook that is due. Events of the changes follow once the status is stored.
    async fn go_on(
        &self,
        pass: &mut Pass<'_, Slim<WebApp>>,
        stored: &WebAppStatus,
        direction: Direction,
    ) -> Result<(Next, Vec<WebAppStep>), StopReason> {
        let names: Vec<&str> = self.tasks.iter().map(OneTask::name).collect();
        let mut steps = steps::aligned(&stored.steps, &names);
        let object = pass.shared();
        let goal = Goal {
            subject: subject(&object),
            direction,
            may_start: !pass.is_paused(),
            is_asked: stored.handled_reconcile_at != reconcile_at(pass),
            now: pass.clock().now(),
        };
        let in_pass = self.run_in_pass(pass, &steps, &goal).await?;
        let known = |step: &WebAppStep| match &in_pass {
            Some((name, known)) if *name == step.name => known.clone(),
            _ => self.known(&pass.owner().name, &goal, step),
        };
        let next = steps::advance(&mut steps, names.len(), &goal, known);
        if let Next::Run(at) | Next::Recorded(at) = next
            && let (Some(OneTask::Executor(task)), Some(hook)) = (self.tasks.get(at), steps[at].hook)
            && !pass.is_paused()
        {
            dry_run::would_call(task.executor.name(), hook.as_str());
            if next == Next::Run(at) {
                self.run(pass, task, &steps[at]);
            }
        }
        announce(pass, &stored.steps, &steps, &goal);
        Ok((next, steps))
    }

    /// Runs the recorded hook if it belongs to the Deployment's task; returns the task's name and the outcome.
    async fn run_in_pass(
        &self,
        pass: &mut Pass<'_, Slim<WebApp>>,
        steps: &[WebAppStep],
        goal: &Goal<'_>,
    ) -> Result<Option<(String, Known)>, StopReason> {
        let Some(at) = steps::running(steps) else { return Ok(None) };
        let (Some(OneTask::Workload(_)), Some(hook)) = (self.tasks.get(at), steps[at].hook) else {
            return Ok(None);
        };
        let step = &steps[at];
        let known = if steps::is_superseded(step, goal) {
            // Such a hook runs only within a sync, and this key has no other sync under way.
            Known::Elsewhere(std::time::Duration::ZERO)
        } else if pass.is_paused() {
            Known::Running
        } else {
            Known::Ended(workload::run(pass, &self.deployments, hook).await?)
        };
        Ok(Some((step.name.clone(), known)))
    }

    fn known(&self, webapp: &ObjectName, goal: &Goal<'_>, step: &WebAppStep) -> Known {
        let task = self.tasks.iter().find(|task| task.name() == step.name);
        let timeout = match task {
            Some(OneTask::Executor(task)) => task.executor.timeout(),
            Some(OneTask::Workload(_)) | None => DEFAULT_TIMEOUT,
        };
        self.hooks.known((webapp, step), steps::is_superseded(step, goal), timeout)
    }

    /// Runs a hook whose start is stored, if a live read confirms that the hook is still due.
    fn run(&self, pass: &Pass<'_, Slim<WebApp>>, task: &Task, step: &WebAppStep) {
        let Some(hook) = step.hook else { return };
        let (client, owner, object, recorded) =
            (self.client.clone(), pass.owner().clone(), pass.shared(), step.clone());
        let call = HookCall::recorded(step, hook, object.clone());
        let is_wanted = async move {
            let (namespace, name) = (owner.name.namespace(), owner.name.name());
            let live: Option<Value> = client.get(&owner.resource, namespace, name).await?;
            // Last of all: a process that was frozen meanwhile may lead no more, or not here.
            let is_wanted = live.is_some_and(|live| is_current(&live, &object, &recorded));
            Ok(is_wanted && client.gate().is_open_for(namespace.unwrap_or_default()))
        };
        self.hooks.run(task, call, step.attempts, Box::pin(is_wanted));
    }

    /// Whether every task has succeeded for the spec of this generation.
    fn have_all_succeeded(&self, steps: &[WebAppStep], generation: Option<i64>) -> bool {
        let mut of_tasks = steps.iter().take(self.tasks.len());
        of_tasks.all(|step| step.phase == Phase::Succeeded && Some(step.generation) == generation)
    }

    /// Whether the Deployment's task has succeeded for this spec.
    fn is_workload_done(&self, steps: &[WebAppStep], subject: Subject<'_>) -> bool {
        let at = self.tasks.iter().position(|task| matches!(task, OneTask::Workload(_)));
        at.and_then(|at| steps.get(at))
            .is_some_and(|step| step.phase == Phase::Succeeded && steps::is_current(step, subject))
    }

    /// Builds the status from the steps and the Deployment.
    fn status(
        &self,
        pass: &Pass<'_, Slim<WebApp>>,
        stored: &WebAppStatus,
        steps: Vec<WebAppStep>,
    ) -> WebAppStatus {
        let has_workload = self.tasks.iter().any(|task| matches!(task, OneTask::Workload(_)));
        let deployment = has_workload.then(|| workload::observed(pass, &self.deployments)).flatten();
        let has_failed = steps.iter().any(|step| step.phase == Phase::Failed || step.attempts > 1);
        let steps = steps::in_order_to_store(steps, self.tasks.len(), &stored.steps);
        let handled = if steps == stored.steps {
            // A change of the annotation since then has not been handled yet.
            stored.handled_reconcile_at.clone()
        } else if has_failed {
            reconcile_at(pass)
        } else {
            None
        };
        status::status(pass.name(), steps, deployment.as_ref(), handled)
    }
}

fn subject(webapp: &Slim<WebApp>) -> Subject<'_> {
    Subject { uid: webapp.uid(), generation: webapp.generation(), spec: &webapp.spec }
}

fn reconcile_at(pass: &Pass<'_, Slim<WebApp>>) -> Option<String> {
    pass.object().annotations()?.get(annotations::RECONCILE_AT).cloned()
}

/// Whether the live WebApp still has this step's recorded start and has not been paused since.
fn is_current(live: &Value, object: &Slim<WebApp>, step: &WebAppStep) -> bool {
    let meta = &live["metadata"];
    let steps = live["status"]["steps"].as_array();
    let recorded = steps.into_iter().flatten().find(|recorded| recorded["name"] == *step.name);
    // After a restore of the store, another spec may have the same generation.
    let spec = WebAppSpec::deserialize(&live["spec"]);
    meta["uid"] == object.uid()
        && meta["generation"] == object.generation()
        && spec.is_ok_and(|spec| spec == object.spec)
        && meta["deletionTimestamp"].is_null() != object.is_deleting()
        && (object.is_deleting() || meta["annotations"][annotations::PAUSED] != "true")
        && recorded.is_some_and(|recorded| {
            recorded["operationID"] == *step.operation_id
                && recorded["attempts"] == step.attempts
                && recorded["finishedAt"].is_null()
        })
}

/// Queues events for the changed steps, to be recorded once the status is stored.
fn announce(pass: &mut Pass<'_, Slim<WebApp>>, before: &[WebAppStep], now: &[WebAppStep], goal: &Goal<'_>) {
    // The failure of a superseded hook matters to nobody.
    for step in now.iter().filter(|step| step.phase != Phase::Failed || !steps::is_superseded(step, goal)) {
        let former = before.iter().find(|former| former.name == step.name);
        let hook = step.hook.map_or("a hook", |hook| hook.as_str());
        let is_same = former.is_some_and(|former| {
            (former.phase, &former.operation_id, former.hook) == (step.phase, &step.operation_id, step.hook)
        });
        // A hook that keeps failing is reported once, and once more if it fails permanently.
        let is_known_failure =
            !step.permanent && former.is_some_and(|former| former.attempts > 1 && step.attempts > 1);
        if is_same || step.phase == Phase::Failed && is_known_failure {
            continue;
        }
        let name = &step.name;
        match step.phase {
            Phase::Succeeded => {
                pass.event_when_written(
                    EventType::Normal,
                    "TaskSucceeded",
                    "Run",
                    format!("Task {name:?} succeeded"),
                );
            }
            Phase::Undone => {
                pass.event_when_written(
                    EventType::Normal,
                    "TaskUndone",
                    "Undo",
                    format!("Task {name:?} was undone"),
                );
            }
            Phase::Failed => {
                let is_undo = step.hook.is_some_and(Hook::is_undo);
                let mut note = format!("Task {name:?}: {hook} failed: {}", step.message);
                if step.permanent {
                    note = format!("{note}. {}", status::remedy(is_undo));
                }
                let action = if is_undo { "Undo" } else { "Run" };
                pass.event_when_written(EventType::Warning, "TaskFailed", action, note);
            }
            Phase::Pending | Phase::Running | Phase::Undoing => {}
        }
    }
}

#[cfg(test)]
mod tests;
