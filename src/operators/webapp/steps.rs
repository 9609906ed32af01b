//! The steps of a WebApp: which hook is next, as a pure function of what is recorded and what this process knows.
//!
//! Mirrors nothing: the source document runs every step on every event.
//!
//! # The life of a hook
//! ```text
//!   start is recorded ──▶ it is run ──▶ its end is recorded, with the start of the next
//!        ▲                  ▲   │
//!        │                  │   └ not yet: again after a while, the same try
//!        │                  └ a new process finds a start without an end: it runs the same operation again
//!        └ failed: the next try is recorded after the backoff
//! ```
//! What is recorded as running and is not run by this process is run: a first try and one after a crash are the same.
//! So a hook is never run before the record of its start is stored, and a finished one never again.
//!
//! # Guarantees
//! - Tasks run first to last, hooks in their order, each recorded before it is run. (test: `tasks_run_first_to_last_each_recorded_before_it_is_run`)
//! - The undo runs last to first, and only what was started. (test: `the_undo_runs_last_to_first_and_only_what_was_started`)
//! - A finished hook is not run again for the same generation. (test: `a_finished_hook_is_not_run_again`)
//! - After a crash the hook that was recorded is run under the same ID. (test: `a_recorded_start_is_run_again_under_the_same_id`)
//! - A new generation waits for the hook of the old one, then runs all tasks under new IDs. (test: `a_new_generation_waits_for_the_hook_of_the_old_one`)
//! - A failure is tried again with one more attempt and the same ID. (test: `a_failure_is_tried_again_under_the_same_id`)
//! - It rests for its backoff, which a user can cut short, and as long as a server has asked for, which nobody can: by what is recorded, so that a new process keeps to it. (test: `a_failure_rests_by_what_is_recorded`)
//! - Nor does a new spec or a deletion call a server before the time that it has asked for. (test: `a_new_spec_and_a_deletion_keep_to_what_a_server_asks_for`)
//! - One that is not done yet holds up neither a new spec nor a deletion. (test: `a_hook_that_is_not_done_yet_gives_way`)
//! - A record that is not of this WebApp is not believed. (test: `a_record_of_another_operation_is_tried_anew`)
//! - What failed for good waits for a user; when undoing, it is tried again. (test: `what_failed_for_good_waits_for_a_user`)
//! - From any record, run to the end, every task has succeeded once, or is undone. (test: `from_any_record_the_steps_lead_to_the_end`)

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::tasks::{HookError, RETRY_AFTER_MAX, operation_id};
use crate::api::webapp::v1::{Hook, Phase, WebAppStep};

/// Whether the tasks are run or undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Creation,
    Deletion,
}

/// What this process knows of a hook whose start is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It does not run here.
    Nothing,
    /// It runs.
    Running,
    /// It has ended so.
    Ended(Result<(), HookError>),
    /// It is not done, and is to be looked at again after this time.
    Resting(Duration),
    /// It was not seen to end, and may still run elsewhere for this time.
    Elsewhere(Duration),
}

/// What a WebApp is at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal<'a> {
    pub(super) uid: &'a str,
    pub(super) generation: i64,
    pub(super) direction: Direction,
    /// Whether new hooks may be started.
    pub(super) may_start: bool,
    /// Whether a user asks for another try of what has failed.
    pub(super) is_asked: bool,
    pub(super) now: Timestamp,
}

/// What comes of a look at the steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// All is done.
    Finished,
    /// The start of this step's hook is recorded now: run it when that is stored.
    Recorded(usize),
    /// Run the hook of this step: its start is stored.
    Run(usize),
    /// It runs, or is waited for: look again after this time, or when it has ended.
    Wait(usize, Option<Duration>),
    /// It has failed and is tried again after this time.
    Retry(usize, Duration),
    /// What it calls has asked not to be called before this time has passed.
    Rest(usize, Duration),
    /// It has failed for good.
    GivenUp(usize),
    /// A new one is to be started, and may not be.
    Held(usize),
    /// It has to be undone, and there is no such task any more.
    Unknown(usize),
}

/// How long a hook waits that has failed so often.
fn backoff(attempts: i32) -> Duration {
    let doublings = u32::try_from(attempts - 1).unwrap_or(0).min(7);
    Duration::from_secs(1 << doublings).min(BACKOFF_MAX)
}

/// The longest backoff; also how often an undo that failed for good is tried.
const BACKOFF_MAX: Duration = Duration::from_secs(120);

/// Of a hook whose end is not waited for any more.
const OVERTAKEN: &str = "something newer came before its end";

/// One step for each task, in their order; behind them what was started of tasks that are no longer there.
pub(super) fn aligned(stored: &[WebAppStep], tasks: &[&str]) -> Vec<WebAppStep> {
    let known = |name: &str| stored.iter().find(|step| step.name == name).cloned();
    let fresh = |name: &str| WebAppStep { name: name.to_owned(), ..WebAppStep::default() };
    let others = stored.iter().filter(|step| {
        !tasks.contains(&step.name.as_str()) && step.hook.is_some() && step.phase != Phase::Undone
    });
    tasks.iter().map(|name| known(name).unwrap_or_else(|| fresh(name))).chain(others.cloned()).collect()
}

/// The step whose hook's start is recorded and whose end is not.
pub(super) fn running(steps: &[WebAppStep]) -> Option<usize> {
    steps
        .iter()
        .position(|step| matches!(step.phase, Phase::Running | Phase::Undoing) && step.finished_at.is_none())
}

/// Whether a hook that is recorded as running is not what is wanted any more.
pub(super) fn is_superseded(step: &WebAppStep, goal: &Goal<'_>) -> bool {
    let is_undo = step.hook.is_some_and(Hook::is_undo);
    match goal.direction {
        Direction::Creation => is_undo || step.generation != goal.generation,
        Direction::Deletion => !is_undo,
    }
}

/// Goes on by one look: writes down what has ended and what starts. `count` is how many of the steps have a task;
/// `known` tells what this process knows of a step's hook.
pub(super) fn advance(
    steps: &mut [WebAppStep],
    count: usize,
    goal: &Goal<'_>,
    known: impl Fn(&WebAppStep) -> Known,
) -> Next {
    if let Some(at) = running(steps) {
        let step = &mut steps[at];
        let superseded = is_superseded(step, goal);
        let known = if is_of(step, goal.uid) { known(step) } else { Known::Elsewhere(Duration::ZERO) };
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
                    // The failure is stored before the next try, however short the rest is.
                    return Next::Retry(at, rest(step, goal));
                }
            }
            Known::Nothing if !superseded && at < count => return Next::Run(at),
            Known::Resting(_) if superseded => failed(step, OVERTAKEN, goal.now),
            Known::Nothing | Known::Elsewhere(Duration::ZERO) => {
                failed(step, if superseded { OVERTAKEN } else { "its end was not seen" }, goal.now);
            }
            Known::Running => return Next::Wait(at, None),
            Known::Resting(Duration::ZERO) => return Next::Run(at),
            Known::Resting(time) | Known::Elsewhere(time) => return Next::Wait(at, Some(time)),
        }
    }
    let next = match goal.direction {
        Direction::Creation => next_to_do(&steps[..count], goal.generation),
        Direction::Deletion => next_to_undo(steps),
    };
    let Some((at, hook)) = next else { return Next::Finished };
    if at >= count {
        return Next::Unknown(at);
    }
    let step = &mut steps[at];
    let is_retry = step.phase == Phase::Failed && step.hook == Some(hook) && !is_superseded(step, goal);
    if is_retry {
        if is_given_up(step, goal.direction) && !goal.is_asked {
            return Next::GivenUp(at);
        }
        let rest = rest(step, goal);
        if !rest.is_zero() {
            return Next::Retry(at, rest);
        }
    }
    if !goal.may_start {
        return Next::Held(at);
    }
    let asked_for = asked_for(step, goal);
    if !asked_for.is_zero() {
        return Next::Rest(at, asked_for);
    }
    start(step, hook, is_retry, goal);
    Next::Recorded(at)
}

/// Whether it is not tried again by itself: an undo always is.
fn is_given_up(step: &WebAppStep, direction: Direction) -> bool {
    step.permanent && direction == Direction::Creation
}

/// How long a step that has failed still rests.
fn rest(step: &WebAppStep, goal: &Goal<'_>) -> Duration {
    let asked_for = asked_for(step, goal);
    let Some(failed_at) = step.finished_at.as_ref().filter(|_| !goal.is_asked) else { return asked_for };
    // Of another process, whose clock was ahead: there is no telling how long it has rested.
    let Ok(passed) = Duration::try_from(goal.now.duration_since(failed_at.0)) else { return asked_for };
    // The fraction of a second that was cut off when it was recorded: a backoff is never shorter than it says.
    let backoff = Duration::from_secs(1) + if step.permanent { BACKOFF_MAX } else { backoff(step.attempts) };
    asked_for.max(backoff.saturating_sub(passed))
}

/// How long what the step calls is still not to be called, by its own word.
fn asked_for(step: &WebAppStep, goal: &Goal<'_>) -> Duration {
    let until = |time: &Time| Duration::try_from(time.0.duration_since(goal.now)).unwrap_or_default();
    let left = step.not_before.as_ref().map_or(Duration::ZERO, until);
    // Longer than anybody is believed: of a process whose clock was ahead, or of no process.
    if left > RETRY_AFTER_MAX + Duration::from_secs(1) { Duration::ZERO } else { left }
}

/// Whether the operation that is recorded is one of this WebApp.
fn is_of(step: &WebAppStep, uid: &str) -> bool {
    step.hook.is_some_and(|hook| step.operation_id == operation_id(uid, &step.name, hook, step.generation))
}

/// The first task that has not succeeded for this generation, and its next hook.
fn next_to_do(steps: &[WebAppStep], generation: i64) -> Option<(usize, Hook)> {
    let at = steps.iter().position(|s| s.generation != generation || s.phase != Phase::Succeeded)?;
    let step = &steps[at];
    let is_begun = step.generation == generation && !step.hook.is_none_or(Hook::is_undo);
    let hook = match (step.phase, step.hook) {
        (Phase::Running, Some(hook)) if is_begun => hook.next(),
        (Phase::Failed, Some(hook)) if is_begun => Some(hook),
        _ => None,
    };
    Some((at, hook.unwrap_or(Hook::PreCreate)))
}

/// The last task that was started and is not undone, and its next hook.
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
    // A retry is the same operation: an undo keeps the generation with which it began.
    let generation = if is_retry || step.phase == Phase::Undoing { step.generation } else { goal.generation };
    let name = std::mem::take(&mut step.name);
    *step = WebAppStep {
        operation_id: operation_id(goal.uid, &name, hook, generation),
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

/// As the server stores it.
fn whole_seconds(stamp: Timestamp) -> Timestamp {
    Timestamp::from_second(stamp.as_second()).unwrap_or(stamp)
}

fn no_earlier_second(stamp: Timestamp) -> Timestamp {
    let whole = whole_seconds(stamp);
    if whole < stamp { Timestamp::from_second(whole.as_second() + 1).unwrap_or(whole) } else { whole }
}

#[cfg(test)]
mod tests;
