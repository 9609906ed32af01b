//! The sync handler of WebApp: durable steps, then repair.
//!
//! # Guarantees
//! - A hook's start is stored before it is run, its end after; nothing runs twice. (test: `a_webapp_goes_through_its_tasks_once`)
//! - Nothing to do, nothing sent. (test: `a_converged_webapp_sends_nothing`)
//! - Before a hook is run, a live read shows that it is still the one to run, however long it has waited for its turn. (test: `an_old_record_runs_nothing`)
//! - And that the WebApp is not paused. (test: `a_pause_that_the_cache_has_not_seen_runs_nothing`)
//! - A new process goes on where the old one was. (test: `a_new_process_goes_on_where_the_old_one_was`)
//! - A failure shows in the step, a condition and an event. (test: `a_failing_hook_shows_everywhere_and_is_tried_again`)
//! - What failed for good waits for a new spec or for [`RECONCILE_AT`](annotations::RECONCILE_AT). (test: `a_hook_that_failed_for_good_waits_for_a_user`)
//! - One who asks is answered at once, by the process that has seen the failure, too. (test: `a_user_who_asks_is_answered_at_once`)
//! - Nobody cuts short the time that a server has asked for, nor does a new process. (test: `what_a_server_asks_for_is_kept_to_by_a_new_process_and_a_user_who_asks`)
//! - What failed for good is not forgotten for another obstacle. (test: `a_failure_for_good_is_remembered_beside_another_obstacle`)
//! - A new spec or a deletion waits for the hook that runs, and makes no failure of it. (test: `a_new_spec_in_mid_run_waits_for_the_hook_that_runs_and_is_no_failure`, `a_new_spec_during_a_rollout_is_no_failure`, `a_deletion_in_mid_run_waits_for_the_hook_and_undoes_what_was_started`)
//! - While a new spec waits for the end of a pause, Ready is as the former one's tasks have left it. (test: `a_spec_that_waits_for_the_end_of_a_pause_leaves_ready_as_it_is`)
//! - Repair of the Deployment runs no task. (test: `a_repair_runs_no_task`)
//! - A deletion undoes what was started, last to first, and then lets go. (test: `a_deletion_undoes_what_was_started`)
//! - One that is orphaned goes at once, and nothing is undone. (test: `an_orphaned_webapp_goes_at_once`)
//! - It goes when no Deployment of its own is left, whatever its name is. (test: `a_deployment_that_comes_late_goes_with_its_webapp`)

use std::fmt;

use kube_core::Resource;
use serde_json::Value;

use super::hooks::{Hooks, Task};
use super::steps::{self, Direction, Goal, Known, Next};
use super::tasks::{DEFAULT_TIMEOUT, HookCall};
use super::{FINALIZER, status, workload};
use crate::api::annotations;
use crate::api::webapp::v1::{Hook, Phase, WebApp, WebAppStatus, WebAppStep};
use crate::cache::{Lister, Object, ObjectName};
use crate::client::ApiClient;
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::{Reconcile, ReconcileContext, StopReason};
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
    /// The one that looks after the Deployment, in the pass itself.
    Workload(String),
    /// Any other, beside the workers.
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
    type Resource = WebApp;

    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    async fn reconcile(&self, ctx: &mut ReconcileContext<'_, WebApp>) -> Result<WebAppStatus, StopReason> {
        ctx.add_finalizer(FINALIZER).await?;
        let stored = ctx.stored_status();
        let (next, steps) = self.go_on(ctx, &stored, Direction::Creation).await?;
        // While a new spec waits for the end of a pause, the WebApp is as it is after the tasks of the former one.
        let is_of_former = ctx.is_paused() && self.have_all_succeeded(&steps, stored.observed_generation);
        let (next, generation) = match stored.observed_generation {
            Some(former) if is_of_former => (Next::Finished, former),
            Some(_) | None => (next, ctx.owner().generation),
        };
        let is_workload_done = self.is_workload_done(&steps, generation);
        if is_workload_done && ctx.reports().is_empty() {
            ctx.apply(&workload::wanted(ctx.object()), &self.deployments).await?;
        }
        match status::health(&steps, &next, Direction::Creation, ctx.owner().generation) {
            Some(health) => ctx.report(health),
            None if ctx.reports().is_empty() => ctx.report(workload::none_wanted()),
            None => {}
        }
        Ok(self.status(ctx, &stored, steps))
    }

    async fn finalize(
        &self,
        ctx: &mut ReconcileContext<'_, WebApp>,
    ) -> Result<Option<WebAppStatus>, StopReason> {
        if !ctx.has_finalizer(FINALIZER) {
            self.gone(&ctx.owner().name);
            return Ok(None);
        }
        let stored = ctx.stored_status();
        let is_over = if ctx.is_orphaning() {
            None
        } else {
            let (next, steps) = self.go_on(ctx, &stored, Direction::Deletion).await?;
            let health = status::health(&steps, &next, Direction::Deletion, ctx.owner().generation);
            health.map(|health| (health, steps))
        };
        let Some((health, steps)) = is_over else {
            ctx.remove_finalizer(FINALIZER).await?;
            self.hooks.forget(&ctx.owner().name);
            return Ok(None);
        };
        ctx.report(health);
        Ok(Some(self.status(ctx, &stored, steps)))
    }

    fn gone(&self, name: &ObjectName) {
        if self.hooks.forget(name) {
            tracing::warn!(
                "It has gone and its tasks were not seen to be undone: see to what they have made"
            );
        }
    }
}

impl WebAppSync {
    /// Goes on by one look at the steps; runs what is to be run. What has changed is told when it is stored.
    async fn go_on(
        &self,
        ctx: &mut ReconcileContext<'_, WebApp>,
        stored: &WebAppStatus,
        direction: Direction,
    ) -> Result<(Next, Vec<WebAppStep>), StopReason> {
        let names: Vec<&str> = self.tasks.iter().map(OneTask::name).collect();
        let mut steps = steps::aligned(&stored.steps, &names);
        let uid = ctx.owner().uid.clone();
        let goal = Goal {
            uid: &uid,
            generation: ctx.owner().generation,
            direction,
            may_start: !ctx.is_paused(),
            is_asked: stored.handled_reconcile_at != reconcile_at(ctx),
            now: ctx.clock().now(),
        };
        let in_pass = self.run_in_pass(ctx, &steps, &goal).await?;
        let known = |step: &WebAppStep| match &in_pass {
            Some((name, known)) if *name == step.name => known.clone(),
            _ => self.known(&ctx.owner().name, &goal, step),
        };
        let next = steps::advance(&mut steps, names.len(), &goal, known);
        if let Next::Run(at) = next
            && let Some(OneTask::Executor(task)) = self.tasks.get(at)
            && !ctx.is_paused()
        {
            self.run(ctx, task, &steps[at]);
        }
        announce(ctx, &stored.steps, &steps, &goal);
        Ok((next, steps))
    }

    /// The hook of the task that looks after the Deployment, if it is the one that is recorded as running.
    async fn run_in_pass(
        &self,
        ctx: &mut ReconcileContext<'_, WebApp>,
        steps: &[WebAppStep],
        goal: &Goal<'_>,
    ) -> Result<Option<(String, Known)>, StopReason> {
        let Some(at) = steps::running(steps) else { return Ok(None) };
        let (Some(OneTask::Workload(_)), Some(hook)) = (self.tasks.get(at), steps[at].hook) else {
            return Ok(None);
        };
        let step = &steps[at];
        let known = if steps::is_superseded(step, goal) {
            // It was made in a pass, and no pass is under way but this one.
            Known::Elsewhere(std::time::Duration::ZERO)
        } else if ctx.is_paused() {
            Known::Running
        } else {
            Known::Ended(workload::run(ctx, &self.deployments, hook).await?)
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

    /// Runs a hook whose start is stored, if a live read shows then that it is still the one to run.
    fn run(&self, ctx: &ReconcileContext<'_, WebApp>, task: &Task, step: &WebAppStep) {
        let Some(hook) = step.hook else { return };
        let (client, owner, object, recorded) =
            (self.client.clone(), ctx.owner().clone(), ctx.shared(), step.clone());
        let call = HookCall::for_generation(&step.name, hook, object.clone(), step.generation);
        let is_wanted = async move {
            let (namespace, name) = (owner.name.namespace(), owner.name.name());
            let live: Option<Value> = client.get(&owner.resource, namespace, name).await?;
            Ok(live.is_some_and(|live| is_current(&live, &object, &recorded)))
        };
        self.hooks.run(task, call, step.attempts, Box::pin(is_wanted));
    }

    /// Whether every task has succeeded for the spec of this generation.
    fn have_all_succeeded(&self, steps: &[WebAppStep], generation: Option<i64>) -> bool {
        let mut of_tasks = steps.iter().take(self.tasks.len());
        of_tasks.all(|step| step.phase == Phase::Succeeded && Some(step.generation) == generation)
    }

    /// Whether the task that looks after the Deployment has made it from the spec of this generation.
    fn is_workload_done(&self, steps: &[WebAppStep], generation: i64) -> bool {
        let at = self.tasks.iter().position(|task| matches!(task, OneTask::Workload(_)));
        at.and_then(|at| steps.get(at))
            .is_some_and(|step| step.phase == Phase::Succeeded && step.generation == generation)
    }

    /// The status of these steps.
    fn status(
        &self,
        ctx: &ReconcileContext<'_, WebApp>,
        stored: &WebAppStatus,
        steps: Vec<WebAppStep>,
    ) -> WebAppStatus {
        let has_workload = self.tasks.iter().any(|task| matches!(task, OneTask::Workload(_)));
        let deployment = has_workload.then(|| workload::observed(ctx, &self.deployments)).flatten();
        let has_failed = steps.iter().any(|step| step.phase == Phase::Failed || step.attempts > 1);
        let handled = if steps == stored.steps {
            // Whoever has asked since then has not been answered yet.
            stored.handled_reconcile_at.clone()
        } else if has_failed {
            reconcile_at(ctx)
        } else {
            None
        };
        status::status(ctx.name(), steps, deployment.as_ref(), handled)
    }
}

fn reconcile_at(ctx: &ReconcileContext<'_, WebApp>) -> Option<String> {
    ctx.object().meta().annotations.as_ref()?.get(annotations::RECONCILE_AT).cloned()
}

/// Whether a live WebApp is in the state in which this step's start was recorded, and not paused since.
fn is_current(live: &Value, object: &WebApp, step: &WebAppStep) -> bool {
    let meta = &live["metadata"];
    let steps = live["status"]["steps"].as_array();
    let recorded = steps.into_iter().flatten().find(|recorded| recorded["name"] == *step.name);
    meta["uid"] == Object::uid(object)
        && meta["generation"] == Object::generation(object)
        && meta["deletionTimestamp"].is_null() != object.is_deleting()
        && (object.is_deleting() || meta["annotations"][annotations::PAUSED] != "true")
        && recorded.is_some_and(|recorded| {
            recorded["operationID"] == *step.operation_id
                && recorded["attempts"] == step.attempts
                && recorded["finishedAt"].is_null()
        })
}

/// Events of what has changed in the steps, to be recorded when it is stored.
fn announce(
    ctx: &mut ReconcileContext<'_, WebApp>,
    before: &[WebAppStep],
    now: &[WebAppStep],
    goal: &Goal<'_>,
) {
    // What is not wanted any more has not failed for anybody.
    for step in now.iter().filter(|step| step.phase != Phase::Failed || !steps::is_superseded(step, goal)) {
        let former = before.iter().find(|former| former.name == step.name);
        let hook = step.hook.map_or("a hook", |hook| hook.as_str());
        let is_same = former.is_some_and(|former| {
            (former.phase, former.generation, former.hook) == (step.phase, step.generation, step.hook)
        });
        // A hook that fails again and again is told once, and once more when it fails for good.
        let is_known_failure =
            !step.permanent && former.is_some_and(|former| former.attempts > 1 && step.attempts > 1);
        if is_same || step.phase == Phase::Failed && is_known_failure {
            continue;
        }
        let name = &step.name;
        match step.phase {
            Phase::Succeeded => {
                ctx.event_when_written(
                    EventType::Normal,
                    "TaskSucceeded",
                    "Run",
                    format!("Task {name:?} is done"),
                );
            }
            Phase::Undone => {
                ctx.event_when_written(
                    EventType::Normal,
                    "TaskUndone",
                    "Undo",
                    format!("Task {name:?} is undone"),
                );
            }
            Phase::Failed => {
                let is_undo = step.hook.is_some_and(Hook::is_undo);
                let mut note = format!("Task {name:?}: {hook} has failed: {}", step.message);
                if step.permanent {
                    note = format!("{note}. {}", status::remedy(is_undo));
                }
                let action = if is_undo { "Undo" } else { "Run" };
                ctx.event_when_written(EventType::Warning, "TaskFailed", action, note);
            }
            Phase::Pending | Phase::Running | Phase::Undoing => {}
        }
    }
}

#[cfg(test)]
mod tests;
