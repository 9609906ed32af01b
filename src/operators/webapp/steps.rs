//! Decides which hook of a WebApp is next: a pure function of the recorded steps and of what this process knows.
//!
//! Mirrors nothing: the source document runs every step on every event.
//!
//! # The life of a hook
//! ```text
//!   start is recorded ──▶ it is run ──▶ its end is recorded, with the start of the next
//!        ▲                  ▲   │
//!        │                  │   └ not yet: checked again later, as the same attempt
//!        │                  └ a new process finds a start without an end: it runs the same operation again
//!        └ failed: the next attempt is recorded after the backoff
//! ```
//! A hook that is recorded as running but does not run in this process is run: a first attempt and one after a crash
//! look the same. So a hook never runs before its start is stored, and never again once its end is.
//!
//! # Guarantees
//! - Tasks run first to last, hooks in their order, each recorded before it runs. (test: `hooks_run_in_order_each_recorded_first`)
//! - A deletion undoes the started tasks only, last to first. (test: `deletion_undoes_started_tasks_in_reverse`)
//! - A finished hook does not run again for the same uid, generation and spec. (test: `a_finished_hook_is_not_run_again`, `steps_of_another_uid_run_again`, `other_spec_of_the_same_generation_runs_again`)
//! - After a crash or a failure a hook runs again under the ID that is stored. (test: `recorded_hook_is_rerun_under_the_same_id`, `failed_hook_is_retried_under_the_same_id`, `ids_of_the_first_version_are_kept`)
//! - A new generation waits for the running hook, then runs all tasks under new IDs. (test: `new_generation_waits_for_the_running_hook`)
//! - Steps of tasks that this process does not have are left as they are. (test: `processes_with_different_tasks_do_not_fight`)
//! - Backoff and Retry-After count from the recorded times, also in a new process; a user can cut short the backoff
//!   only. (test: `backoff_follows_the_recorded_times`, `new_spec_and_deletion_honour_retry_after`)
//! - From any record the steps end with every task succeeded, or undone. (test: `any_recorded_state_reaches_the_goal`)

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::tasks::{HookError, RETRY_AFTER_MAX, call, operation_id};
use crate::api::webapp::v1::{Hook, Phase, WebAppSpec, WebAppStep};

/// Whether the tasks are run or undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Creation,
    Deletion,
}

/// This process's view of a hook whose start is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// This process has not run the hook.
    Nothing,
    /// The hook runs.
    Running,
    /// The hook has ended with this result.
    Ended(Result<(), HookError>),
    /// The hook is not done, with this message; check again after this time.
    Waiting(String, Duration),
    /// The hook's end was not seen; it may still run elsewhere for this time.
    Elsewhere(Duration),
}

/// What the tasks are run for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) uid: &'a str,
    pub(super) generation: i64,
    pub(super) spec: &'a WebAppSpec,
}

/// The state that the steps have to reach, and the circumstances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal<'a> {
    pub(super) subject: Subject<'a>,
    pub(super) direction: Direction,
    /// Whether new hooks may be started.
    pub(super) may_start: bool,
    /// Whether a user asks for a retry of the failed hook.
    pub(super) is_asked: bool,
    pub(super) now: Timestamp,
}

/// The next action, and the index of its step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// All is done.
    Finished,
    /// The start of the step's hook is now recorded: run the hook once the record is stored.
    Recorded(usize),
    /// Run the step's hook: its start is stored.
    Run(usize),
    /// The hook runs or is not done: check again after this time, or when it ends.
    Wait(usize, Option<Duration>),
    /// The hook has failed; retry it after this time.
    Retry(usize, Duration),
    /// The server that the hook calls asked for a pause of this length, by Retry-After.
    Throttled(usize, Duration),
    /// The hook has failed permanently.
    GivenUp(usize),
    /// A hook is due but must not start now.
    Held(usize),
    /// The step has to be undone, but its task no longer exists.
    Unknown(usize),
}

/// Returns the backoff after this many attempts.
fn backoff(attempts: i32) -> Duration {
    let doublings = u32::try_from(attempts - 1).unwrap_or(0).min(7);
    Duration::from_secs(1 << doublings).min(BACKOFF_MAX)
}

/// The longest backoff; also how often a permanently failed undo is retried.
const BACKOFF_MAX: Duration = Duration::from_secs(120);

/// Message of a hook whose end is no longer awaited.
const OVERTAKEN: &str = "superseded by a newer spec or a deletion before it finished";

/// Returns one step per task, in order, followed by the steps of tasks that this process does not have. They are left
/// as they are: to be undone they need their task, and another process may have it.
pub(super) fn aligned(stored: &[WebAppStep], tasks: &[&str]) -> Vec<WebAppStep> {
    let known = |name: &str| stored.iter().find(|step| step.name == name).cloned();
    let fresh = |name: &str| WebAppStep { name: name.to_owned(), ..WebAppStep::default() };
    let others = stored.iter().filter(|step| !tasks.contains(&step.name.as_str()));
    tasks.iter().map(|name| known(name).unwrap_or_else(|| fresh(name))).chain(others.cloned()).collect()
}

/// Returns the steps of [`aligned`], of which the first `count` have a task, in the order in which to store them: that
/// of the tasks, unless some are missing here. Then it is the stored order, over which two processes with different
/// tasks would fight.
pub(super) fn in_order_to_store(
    mut steps: Vec<WebAppStep>,
    count: usize,
    stored: &[WebAppStep],
) -> Vec<WebAppStep> {
    if steps.len() > count {
        let place = |step: &WebAppStep| stored.iter().position(|other| other.name == step.name);
        steps.sort_by_key(|step| place(step).unwrap_or(usize::MAX));
    }
    steps
}

/// Returns the step whose hook has a recorded start but no end.
pub(super) fn running(steps: &[WebAppStep]) -> Option<usize> {
    steps
        .iter()
        .position(|step| matches!(step.phase, Phase::Running | Phase::Undoing) && step.finished_at.is_none())
}

/// Whether a recorded hook is obsolete: of another generation, spec or direction.
pub(super) fn is_superseded(step: &WebAppStep, goal: &Goal<'_>) -> bool {
    let Subject { uid, generation, .. } = goal.subject;
    let is_undo = step.hook.is_some_and(Hook::is_undo);
    let is_of_other_spec = || is_of(step, uid) && !is_current(step, goal.subject);
    match goal.direction {
        Direction::Creation => is_undo || step.generation != generation || is_of_other_spec(),
        Direction::Deletion => !is_undo,
    }
}

/// Advances the state machine by one step: records which hook has ended and which one starts. The first `count` steps
/// have a task; `known` returns what this process knows of a step's hook.
pub(super) fn advance(
    steps: &mut [WebAppStep],
    count: usize,
    goal: &Goal<'_>,
    known: impl Fn(&WebAppStep) -> Known,
) -> Next {
    if let Some(at) = running(&steps[..count]) {
        let step = &mut steps[at];
        let superseded = is_superseded(step, goal);
        let known =
            if is_of(step, goal.subject.uid) { known(step) } else { Known::Elsewhere(Duration::ZERO) };
        match known {
            Known::Ended(Ok(())) => done(step, goal.now),
            Known::Ended(Err(HookError::NotYet { message, requeue_after })) if !superseded => {
                step.message = message;
                return Next::Wait(at, requeue_after);
            }
            Known::Ended(Err(error)) => {
                failed(step, error.message(), goal.now);
                step.permanent = matches!(error, HookError::Permanent { .. });
                if let HookError::Retry { after: Some(after), .. } = error {
                    let time = goal.now.checked_add(after.min(RETRY_AFTER_MAX));
                    step.not_before = time.ok().map(|time| Time(no_earlier_second(time)));
                }
                if !superseded && is_given_up(step, goal.direction) {
                    return Next::GivenUp(at);
                }
                if !superseded {
                    // The failure is stored before the next attempt, however short the backoff is.
                    return Next::Retry(at, retry_delay(step, goal));
                }
            }
            Known::Nothing if !superseded => return Next::Run(at),
            Known::Waiting(..) if superseded => failed(step, OVERTAKEN, goal.now),
            Known::Nothing | Known::Elsewhere(Duration::ZERO) => {
                failed(step, if superseded { OVERTAKEN } else { "its result is unknown" }, goal.now);
            }
            Known::Running => return Next::Wait(at, None),
            Known::Waiting(message, time) => {
                step.message = message;
                return if time.is_zero() { Next::Run(at) } else { Next::Wait(at, Some(time)) };
            }
            Known::Elsewhere(time) => return Next::Wait(at, Some(time)),
        }
    }
    let next = match goal.direction {
        Direction::Creation => next_to_do(&steps[..count], goal),
        Direction::Deletion => next_to_undo(steps),
    };
    let Some((at, hook)) = next else { return Next::Finished };
    if at >= count {
        return Next::Unknown(at);
    }
    let step = &mut steps[at];
    let is_retry = step.phase == Phase::Failed && step.hook == Some(hook) && !is_superseded(step, goal);
    if is_retry {
        if is_given_up(step, goal.direction) && is_of(step, goal.subject.uid) && !goal.is_asked {
            return Next::GivenUp(at);
        }
        let delay = retry_delay(step, goal);
        if !delay.is_zero() {
            return Next::Retry(at, delay);
        }
    }
    if !goal.may_start {
        return Next::Held(at);
    }
    let asked_for = asked_for(step, goal);
    if !asked_for.is_zero() {
        return Next::Throttled(at, asked_for);
    }
    start(step, hook, is_retry, goal);
    Next::Recorded(at)
}

/// Whether the failed step waits for a user; an undo is always retried.
fn is_given_up(step: &WebAppStep, direction: Direction) -> bool {
    step.permanent && direction == Direction::Creation
}

/// Returns the time until a failed step is retried.
fn retry_delay(step: &WebAppStep, goal: &Goal<'_>) -> Duration {
    let asked_for = asked_for(step, goal);
    let Some(failed_at) = step.finished_at.as_ref().filter(|_| !goal.is_asked) else { return asked_for };
    // Recorded by a process whose clock was ahead: the time since then is unknown.
    let Ok(passed) = Duration::try_from(goal.now.duration_since(failed_at.0)) else { return asked_for };
    // The recorded time has lost its fraction of a second: one second more keeps the backoff from being too short.
    let backoff = Duration::from_secs(1) + if step.permanent { BACKOFF_MAX } else { backoff(step.attempts) };
    asked_for.max(backoff.saturating_sub(passed))
}

/// Returns what is left of the pause that the called server asked for.
fn asked_for(step: &WebAppStep, goal: &Goal<'_>) -> Duration {
    let until = |time: &Time| Duration::try_from(time.0.duration_since(goal.now)).unwrap_or_default();
    let left = step.not_before.as_ref().map_or(Duration::ZERO, until);
    // Longer than any pause we grant: the recording clock was ahead, or somebody else wrote the record.
    if left > RETRY_AFTER_MAX + Duration::from_secs(1) { Duration::ZERO } else { left }
}

/// Whether the recorded operation ID belongs to this WebApp's step.
fn is_of(step: &WebAppStep, uid: &str) -> bool {
    step.hook.is_some_and(|hook| call::is_of(&step.operation_id, uid, &step.name, hook, step.generation))
}

/// Whether the recorded operation is for this WebApp, generation and spec. An ID of the first version of this program
/// says nothing about the spec.
pub(super) fn is_current(step: &WebAppStep, Subject { uid, generation, spec }: Subject<'_>) -> bool {
    let is_recorded = |hook| {
        step.operation_id == operation_id(uid, &step.name, hook, generation, spec)
            || step.operation_id == call::without_spec(uid, &step.name, hook, generation)
    };
    step.generation == generation && step.hook.is_some_and(is_recorded)
}

/// Returns the first task that has not succeeded for this WebApp, generation and spec, and its next hook. A restored
/// status has the steps of another uid, whose generations count differently.
fn next_to_do(steps: &[WebAppStep], goal: &Goal<'_>) -> Option<(usize, Hook)> {
    let is_current = |step: &WebAppStep| is_current(step, goal.subject);
    let at = steps.iter().position(|step| step.phase != Phase::Succeeded || !is_current(step))?;
    let step = &steps[at];
    let is_begun = is_current(step) && !step.hook.is_none_or(Hook::is_undo);
    let hook = match (step.phase, step.hook) {
        (Phase::Running, Some(hook)) if is_begun => hook.next(),
        (Phase::Failed, Some(hook)) if is_begun => Some(hook),
        _ => None,
    };
    Some((at, hook.unwrap_or(Hook::PreCreate)))
}

/// Returns the last task that was started and is not undone, and its next hook.
fn next_to_undo(steps: &[WebAppStep]) -> Option<(usize, Hook)> {
    let at = steps.iter().rposition(|step| step.hook.is_some() && step.phase != Phase::Undone)?;
    let step = &steps[at];
    let hook = match (step.phase, step.hook.filter(|hook| hook.is_undo())) {
        (Phase::Undoing, Some(hook)) => hook.next(),
        (Phase::Failed, Some(hook)) => Some(hook),
        _ => None,
    };
    Some((at, hook.unwrap_or(Hook::PreDelete)))
}

fn start(step: &mut WebAppStep, hook: Hook, is_retry: bool, goal: &Goal<'_>) {
    let now = Some(Time(whole_seconds(goal.now)));
    let Subject { uid, generation, spec } = goal.subject;
    // A retry is the same operation, and an undo keeps the generation with which it began.
    let generation = if is_retry || step.phase == Phase::Undoing { step.generation } else { generation };
    let is_known = is_retry && is_of(step, uid);
    let (name, id) = (std::mem::take(&mut step.name), std::mem::take(&mut step.operation_id));
    *step = WebAppStep {
        operation_id: if is_known { id } else { operation_id(uid, &name, hook, generation, spec) },
        name,
        phase: if hook.is_undo() { Phase::Undoing } else { Phase::Running },
        hook: Some(hook),
        generation,
        attempts: if is_retry { step.attempts.saturating_add(1) } else { 1 },
        started_at: if is_retry { step.started_at.take() } else { now },
        finished_at: None,
        not_before: None,
        message: String::new(),
        permanent: false,
    };
}

fn done(step: &mut WebAppStep, now: Timestamp) {
    step.finished_at = Some(Time(whole_seconds(now)));
    step.message = String::new();
    match step.hook {
        Some(hook) if hook.next().is_some() => {}
        Some(hook) if hook.is_undo() => step.phase = Phase::Undone,
        Some(_) | None => step.phase = Phase::Succeeded,
    }
}

fn failed(step: &mut WebAppStep, message: &str, now: Timestamp) {
    step.phase = Phase::Failed;
    step.finished_at = Some(Time(whole_seconds(now)));
    message.clone_into(&mut step.message);
}

/// Truncates to whole seconds, as the server stores times.
fn whole_seconds(stamp: Timestamp) -> Timestamp {
    Timestamp::from_second(stamp.as_second()).unwrap_or(stamp)
}

fn no_earlier_second(stamp: Timestamp) -> Timestamp {
    let whole = whole_seconds(stamp);
    if whole < stamp { Timestamp::from_second(whole.as_second() + 1).unwrap_or(whole) } else { whole }
}

#[cfg(test)]
mod tests;
