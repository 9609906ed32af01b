//! Tasks: the work that is run for each WebApp, hook by hook.
//!
//! Mirrors the source document's `TaskExecutor` (`PreCreate` .. `PostDelete`).
//!
//! A **task** is a [`TaskExecutor`] in the operator's list, with a name; its **hooks** are the six methods. The
//! operator's configuration names the tasks ([`TaskSpec`], read by `file`); a WebApp cannot.
//!
//! | a hook returns | meaning |
//! |---|---|
//! | `Ok(())` | done; the hook does not run again for this generation |
//! | [`HookError::Retry`] | failed; retried after a backoff, under the same operation ID |
//! | [`HookError::Permanent`] | failed permanently; a person has to act |
//! | [`HookError::NotYet`] | not done yet, without a failure: a rollout is in progress |
//!
//! # Writing a task
//! Implement the hooks that you need, as in `examples/05_task_executor.rs`. A hook may run more than once for the same
//! operation, because the process may die, or a response may be lost, before the result is recorded. Every attempt has
//! the same [`HookCall::operation_id`]: pass it on to the system that you call, or check whether the effect exists. A
//! call for an older generation must not overwrite the effect of a newer one: [`HookCall::generation`] grows, except
//! when the cluster's store is restored; a restored spec has IDs of its own.
//!
//! # Guarantees
//! - A hook that is not implemented succeeds at once; the others are called by name. (test: `run_dispatches_to_the_named_hook`)
//! - A hook that exceeds its task's timeout is dropped and retried. (test: `hanging_hook_times_out`)
//! - All attempts of an operation share an ID that no other has. (test: `operation_ids_are_unique_per_hook_and_generation`)
//! - Operation IDs are the same in every version of the program. (test: `operation_ids_are_fixed`)
//! - Without a tasks file the tasks are `prepare`, `workload`, `announce`. (test: `default_tasks_build`)
//!
//! # Differences from the source document
//! There, hooks get only the object, so a retry looks like a second operation; any error is alike; no hook times out.

pub(super) mod call;
#[cfg(feature = "cli")]
pub mod file;
#[cfg(feature = "http-tasks")]
pub mod http;
mod log;
mod spec;

use std::time::Duration;

use futures_util::future::BoxFuture;

pub use self::call::{HookCall, operation_id};
pub use self::log::LogTask;
pub use self::spec::{TaskBuildError, TaskKind, TaskSpec, build, default_tasks};
pub use crate::api::webapp::v1::Hook;

/// The timeout of a hook whose task sets none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest pause that a called server may ask for.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// The future that a hook returns.
pub type HookFuture<'a> = BoxFuture<'a, Result<(), HookError>>;

/// Work that is done for every WebApp; see the [module](self).
///
/// ```
/// use windlass::operators::webapp::tasks::{HookCall, HookError, HookFuture, TaskExecutor};
///
/// struct Greet;
///
/// impl TaskExecutor for Greet {
///     fn name(&self) -> &str {
///         "greet"
///     }
///
///     fn create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
///         Box::pin(async move {
///             match call.name() {
///                 "nobody" => Err(HookError::permanent("there is nobody to greet")),
///                 _ => Ok(()),
///             }
///         })
///     }
/// }
/// ```
pub trait TaskExecutor: Send + Sync + 'static {
    /// Returns the task's name: a DNS label, unique within the list. Steps are found by the name and operation IDs
    /// derive from it, so a renamed task is a new task.
    fn name(&self) -> &str;

    /// Returns the timeout of each hook, enforced by [`run`].
    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    /// Runs before the creation: a check, a reservation.
    fn pre_create<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }

    /// Creates the task's effect, or updates that of an earlier generation.
    fn create<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }

    /// Runs after the creation: a wait for readiness, a notification.
    fn post_create<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }

    /// Runs before the deletion: a removal from service.
    fn pre_delete<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }

    /// Deletes the task's effect. A missing effect counts as deleted.
    fn delete<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }

    /// Runs after the deletion: a wait for the end, a notification.
    fn post_delete<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }
}

fn done<'a>() -> HookFuture<'a> {
    Box::pin(std::future::ready(Ok(())))
}

/// The reason why a hook is not done.
///
/// Messages appear in the WebApp's status, in events and in the log: include no secrets, and no answers of other
/// systems, which may contain some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// The hook failed and is retried after the backoff.
    #[error("{message}")]
    Retry {
        /// The cause.
        message: String,
        /// The shortest wait before the retry, even if the backoff is shorter; 10 min at most.
        after: Option<Duration>,
    },
    /// The hook failed and would fail again: no retry until the spec changes or a user asks for it.
    #[error("{message}")]
    Permanent {
        /// The cause, and the remedy.
        message: String,
    },
    /// The hook is not done yet, without a failure: no backoff.
    #[error("{message}")]
    NotYet {
        /// The event that the hook waits for.
        message: String,
        /// When to check again at the latest; `None` leaves the time to the operator.
        requeue_after: Option<Duration>,
    },
}

impl HookError {
    /// Creates a failure that is retried after the backoff.
    #[must_use]
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Retry { message: message.into(), after: None }
    }

    /// Creates a permanent failure.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::Permanent { message: message.into() }
    }

    /// Creates the result of a hook that is not done yet.
    #[must_use]
    pub fn not_yet(message: impl Into<String>, requeue_after: Option<Duration>) -> Self {
        Self::NotYet { message: message.into(), requeue_after }
    }

    /// Returns the message for people.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Retry { message, .. } | Self::Permanent { message } | Self::NotYet { message, .. } => {
                message
            }
        }
    }
}

/// Runs the hook that `call` names, within the task's timeout.
///
/// # Errors
/// The hook's own; [`HookError::Retry`] after a timeout. The hook may have had its effect even so: the next attempt has
/// the same operation ID.
///
/// # Cancel safety
/// Dropping the future drops the hook midway; whether it had its effect is unknown.
pub async fn run(executor: &dyn TaskExecutor, call: &HookCall) -> Result<(), HookError> {
    let hook = match call.hook() {
        Hook::PreCreate => executor.pre_create(call),
        Hook::Create => executor.create(call),
        Hook::PostCreate => executor.post_create(call),
        Hook::PreDelete => executor.pre_delete(call),
        Hook::Delete => executor.delete(call),
        Hook::PostDelete => executor.post_delete(call),
    };
    let timeout = executor.timeout();
    match tokio::time::timeout(timeout, hook).await {
        Ok(ended) => ended,
        Err(_) => Err(HookError::retry(format!("{} timed out after {timeout:?}", call.hook()))),
    }
}

#[cfg(test)]
mod tests;
