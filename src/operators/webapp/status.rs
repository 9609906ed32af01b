//! The status of a WebApp: a pure function of its steps and its Deployment.
//!
//! | steps | Ready | Reconciling | Stalled |
//! |---|---|---|---|
//! | a hook runs, or is next | `False` RunningTasks | `True` | |
//! | a hook has failed and will be retried | `False` TaskRetrying | `True` | |
//! | the server to call next has asked for a pause | `False` RunningTasks | `True` | |
//! | a hook has failed permanently | `False` TaskFailed | | `True` |
//! | being undone | `False` Deleting | `True` | |
//! | an undo has failed | `False` UndoFailed | `True` unless permanent | `True` if permanent |
//! | a step to undo has no task any more | `False` TaskUnknown | | `True` |
//! | all have succeeded | as the Deployment | | |

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::steps::{Direction, Next, Subject, is_current, running};
use super::{FINALIZER, workload};
use crate::api::labels;
use crate::api::webapp::v1::{Phase, WebAppCondition, WebAppStatus, WebAppStep};
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::kinds::health::reason;
use crate::controller::{ChildHealth, CommonStatus};

/// A hook runs, or is next.
const RUNNING: &str = "RunningTasks";
/// A hook has failed and will be retried.
const RETRYING: &str = "TaskRetrying";
/// A hook has failed permanently.
pub(super) const FAILED: &str = "TaskFailed";
/// An undo has failed.
const UNDO_FAILED: &str = "UndoFailed";
/// A step to undo has no task any more.
const UNKNOWN: &str = "TaskUnknown";

impl CommonStatus for WebAppStatus {
    fn observed_generation(&self) -> Option<i64> {
        self.observed_generation
    }

    fn conditions(&self) -> Vec<Condition> {
        self.conditions.iter().map(|condition| condition.condition.clone()).collect()
    }

    fn set_common(&mut self, observed_generation: Option<i64>, conditions: Vec<Condition>) {
        let phase = phase(&self.steps);
        self.observed_generation = observed_generation;
        self.conditions =
            conditions.into_iter().map(|condition| WebAppCondition { condition, phase }).collect();
    }

    fn keep_unknown(&mut self, stored: &Self) {
        self.other.clone_from(&stored.other);
    }
}

/// Returns the phase of the task that runs or ran last.
fn phase(steps: &[WebAppStep]) -> Option<Phase> {
    let last = |step: &&WebAppStep| (step.generation, step.started_at.as_ref().map(|time| time.0));
    let at = running(steps).map(|at| &steps[at]);
    let begun = steps.iter().filter(|step| step.hook.is_some());
    at.or_else(|| begun.max_by_key(last)).map(|step| step.phase)
}

pub(super) fn status(
    name: &str,
    steps: Vec<WebAppStep>,
    deployment: Option<&ObservedDeployment>,
    handled_reconcile_at: Option<String>,
) -> WebAppStatus {
    WebAppStatus {
        available_replicas: deployment.map_or(0, |deployment| deployment.status.available_replicas),
        replicas: deployment.map_or(0, |deployment| deployment.status.replicas),
        selector: labels::to_selector(&workload::selector(name)),
        steps,
        handled_reconcile_at,
        ..WebAppStatus::default()
    }
}

/// Maps the steps to a health; `None` when all are done.
pub(super) fn health(
    steps: &[WebAppStep],
    next: &Next,
    direction: Direction,
    subject: Subject<'_>,
) -> Option<ChildHealth> {
    let is_undo = direction == Direction::Deletion;
    let (at, time) = match next {
        Next::Finished => return None,
        Next::Recorded(at) | Next::Run(at) | Next::GivenUp(at) | Next::Held(at) | Next::Unknown(at) => {
            (*at, None)
        }
        Next::Wait(at, time) => (*at, *time),
        Next::Retry(at, time) | Next::Throttled(at, time) => (*at, Some(*time)),
    };
    let step = &steps[at];
    let hook = step.hook.map_or_else(|| "hook".to_owned(), |hook| hook.to_string());
    let what = format!("Task {:?}: {hook}", step.name);
    let failed = format!("failed ({})", attempts(step.attempts));
    let health = match next {
        Next::GivenUp(_) => ChildHealth::stalled(
            FAILED,
            format!("{what} {failed} and will not be retried: {}. {}", step.message, remedy(is_undo)),
        ),
        Next::Retry(..) if is_undo && step.permanent => ChildHealth::stalled(
            UNDO_FAILED,
            format!("{what} {failed}: {}. {}", step.message, remedy(is_undo)),
        ),
        Next::Retry(..) => ChildHealth::reconciling(
            if is_undo { UNDO_FAILED } else { RETRYING },
            format!("{what} {failed} and will be retried: {}", step.message),
        ),
        Next::Unknown(_) => ChildHealth::stalled(
            UNKNOWN,
            format!(
                "Task {:?} must be undone, but this operator has no task of that name: restore it in the tasks \
                 file, or, once nothing is left to undo, remove the finalizer {FINALIZER}",
                step.name
            ),
        ),
        Next::Throttled(..) => ChildHealth::reconciling(
            if is_undo { reason::DELETING } else { RUNNING },
            format!(
                "Task {:?} continues after the Retry-After of the server that it calls: {}",
                step.name, step.message
            ),
        ),
        Next::Held(_) => {
            let message = "Tasks are pending, but this object is paused; remove the annotation \
                           windlass.dev/paused to run them";
            ChildHealth::reconciling(reason::PAUSED, message)
        }
        Next::Finished | Next::Recorded(_) | Next::Run(_) | Next::Wait(..) => {
            let done = steps.iter().filter(|step| is_done(step, is_undo, subject)).count();
            let mut message =
                format!("Running task {:?}: {hook}; {done} of {} tasks are done", step.name, steps.len());
            if !step.message.is_empty() {
                message = format!("{message}; {}", step.message);
            }
            ChildHealth::reconciling(if is_undo { reason::DELETING } else { RUNNING }, message)
        }
    };
    Some(match time {
        Some(time) => health.requeue_after(time),
        None => health,
    })
}

/// Tells a person what to do about a permanently failed hook.
pub(super) fn remedy(is_undo: bool) -> String {
    if is_undo {
        format!(
            "The undo is retried every 2 min and blocks the deletion: fix the cause, or, once nothing is \
             left to undo, remove the finalizer {FINALIZER}"
        )
    } else {
        "Fix the cause and change the annotation windlass.dev/reconcile-at, or change the spec".to_owned()
    }
}

fn is_done(step: &WebAppStep, is_undo: bool, subject: Subject<'_>) -> bool {
    match step.phase {
        Phase::Succeeded => !is_undo && is_current(step, subject),
        Phase::Undone => true,
        Phase::Pending => is_undo,
        Phase::Running | Phase::Failed | Phase::Undoing => false,
    }
}

fn attempts(count: i32) -> String {
    if count == 1 { "1 attempt".to_owned() } else { format!("{count} attempts") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::webapp::v1::{Hook, WebAppSpec};
    use crate::controller::HealthPhase;
    use crate::operators::webapp::tasks::operation_id;

    fn step() -> WebAppStep {
        WebAppStep {
            name: "a".to_owned(),
            hook: Some(Hook::Create),
            phase: Phase::Running,
            attempts: 2,
            message: "no".to_owned(),
            ..WebAppStep::default()
        }
    }

    #[test]
    fn each_step_state_maps_to_a_health() {
        let spec = WebAppSpec { version: "1".to_owned(), replicas: 1, image: "nginx".to_owned() };
        let subject = Subject { uid: "u", generation: 2, spec: &spec };
        let done = |generation| WebAppStep {
            phase: Phase::Succeeded,
            hook: Some(Hook::PostCreate),
            operation_id: operation_id("u", "", Hook::PostCreate, generation, &spec),
            generation,
            ..WebAppStep::default()
        };
        let mut steps = [step(), done(1), done(2)];
        let second = Duration::from_secs(1);
        use Direction::{Creation, Deletion};
        use HealthPhase::{Reconciling, Stalled};
        for (next, direction, is_for_good, phase, reason, words) in [
            (
                Next::Run(0),
                Creation,
                false,
                Reconciling,
                "RunningTasks",
                "Running task \"a\": create; 1 of 3 tasks are done; no",
            ),
            (Next::Wait(0, None), Creation, false, Reconciling, "RunningTasks", "1 of 3"),
            (Next::Retry(0, second), Creation, false, Reconciling, "TaskRetrying", "will be retried: no"),
            (
                Next::GivenUp(0),
                Creation,
                true,
                Stalled,
                "TaskFailed",
                "and will not be retried: no. Fix the cause and change the annotation",
            ),
            (
                Next::Throttled(0, second),
                Creation,
                false,
                Reconciling,
                "RunningTasks",
                "continues after the Retry-After of the server that it calls: no",
            ),
            (Next::Throttled(0, second), Deletion, false, Reconciling, "Deleting", "continues after"),
            (Next::Held(0), Creation, false, Reconciling, "Paused", "paused"),
            (Next::Recorded(0), Deletion, false, Reconciling, "Deleting", "0 of 3"),
            (Next::Retry(0, second), Deletion, false, Reconciling, "UndoFailed", "will be retried: no"),
            (
                Next::Retry(0, second),
                Deletion,
                true,
                Stalled,
                "UndoFailed",
                "no. The undo is retried every 2 min and blocks the deletion",
            ),
            (Next::Unknown(0), Deletion, false, Stalled, "TaskUnknown", "no task of that name"),
        ] {
            steps[0].permanent = is_for_good;
            let health = health(&steps, &next, direction, subject).unwrap();
            assert_eq!((health.phase, health.reason), (phase, reason), "{next:?}");
            assert!(health.message.contains(words), "{next:?}: {}", health.message);
        }
    }

    #[test]
    fn retry_reports_attempts_and_delay() {
        let second = Duration::from_secs(1);
        let spec = WebAppSpec { version: "1".to_owned(), replicas: 1, image: "nginx".to_owned() };
        let subject = Subject { uid: "u", generation: 2, spec: &spec };
        let retry = health(&[step()], &Next::Retry(0, second), Direction::Creation, subject).unwrap();
        assert_eq!(retry.message, "Task \"a\": create failed (2 attempts) and will be retried: no");
        assert_eq!(retry.requeue_after, Some(second));
        assert_eq!(health(&[], &Next::Finished, Direction::Creation, subject), None);
    }

    #[test]
    fn conditions_carry_the_running_tasks_phase() {
        let mut status = WebAppStatus {
            steps: vec![
                WebAppStep { hook: Some(Hook::PostCreate), phase: Phase::Succeeded, ..WebAppStep::default() },
                WebAppStep { hook: Some(Hook::Create), phase: Phase::Running, ..WebAppStep::default() },
                WebAppStep::default(),
            ],
            ..WebAppStatus::default()
        };
        let mut set = crate::api::conditions::ConditionSet::new(&[], None, jiff::Timestamp::UNIX_EPOCH);
        set.set("Ready", false, "RunningTasks", "");
        status.set_common(Some(1), set.into_vec());
        assert_eq!(status.conditions[0].phase, Some(Phase::Running));
        assert_eq!(status.conditions().len(), 1);
    }
}
