//! Tasks: what is run for a WebApp, hook by hook.
//!
//! Mirrors the source document's `TaskExecutor` (`PreCreate` .. `PostDelete`).
//!
//! A **task** is a [`TaskExecutor`] in the operator's list, with a name; its **hooks** are the six methods. Which
//! tasks there are is the operator's configuration ([`TaskSpec`], read by `file`), never a WebApp's.
//!
//! | a hook ends with | what it means |
//! |---|---|
//! | `Ok(())` | done; it is not run again for this generation |
//! | [`HookError::Retry`] | it failed, and is tried again after a backoff, under the same operation ID |
//! | [`HookError::Permanent`] | it failed for good: a person has to do something |
//! | [`HookError::NotYet`] | nothing failed, it is only not done yet: a rollout is on its way |
//!
//! # How to write one
//! Write the hooks that you need; those that you leave out are done at once. A hook may be run more than once for the
//! same operation: a process may die, or an answer get lost, before its result is recorded. Every try has the same
//! [`HookCall::operation_id`], so hand that on to whatever has the effect, or look first whether the effect is there.
//! A call of an older generation must not overwrite what a newer one did: [`HookCall::generation`] only grows.
//! `examples/05_task_executor.rs` is a whole one.
//!
//! # Guarantees
//! - A hook that is left out is done at once; the others are called by their names. (test: `each_hook_is_called_by_its_name`)
//! - A hook that does not end within its task's timeout is given up, to be tried again. (test: `a_hook_that_hangs_is_given_up_after_its_timeout`)
//! - A retry has the same operation ID; nothing else has it. (test: `an_operation_id_is_one_hooks_of_one_generation`)
//! - Operation IDs never change from one version of the program to the next. (test: `operation_ids_are_fixed`)
//! - Without a tasks file the tasks are `prepare`, `workload`, `announce`. (test: `the_default_list_builds`)
//!
//! # Differences from the source document
//! Its hooks get the object and nothing else, so a retry cannot be told from a second operation; they return any error,
//! so what can be retried cannot be told from what cannot; and nothing ends a hook that hangs.

mod call;
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
pub use self::spec::{BuildError, TaskKind, TaskSpec, build, default_tasks};
pub use crate::api::webapp::v1::Hook;

/// How long a hook may take when its task does not say.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server that is called may ask not to be called again.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// What a hook returns: a future of how it ended.
pub type HookFuture<'a> = BoxFuture<'a, Result<(), HookError>>;

/// Something that is done for every WebApp; see the [module](self).
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
    /// The task's name: a DNS label, its own within a list. Steps are found by it and operation IDs are made from
    /// it, so a task that is renamed is another one.
    fn name(&self) -> &str;

    /// How long each hook may take; [`run`] gives it up after that.
    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    /// Runs before the creation: a check, a reservation.
    fn pre_create<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }

    /// Creates, or changes what an earlier generation has created.
    fn create<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }

    /// Runs after the creation: waits until it works, tells somebody.
    fn post_create<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }

    /// Runs before the deletion: takes it out of use.
    fn pre_delete<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }

    /// Deletes. What is not there counts as deleted.
    fn delete<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }

    /// Runs after the deletion: waits until it is gone, tells somebody.
    fn post_delete<'a>(&'a self, _call: &'a HookCall) -> HookFuture<'a> {
        done()
    }
}

fn done<'a>() -> HookFuture<'a> {
    Box::pin(std::future::ready(Ok(())))
}

/// How a hook ended that is not done.
///
/// The messages are shown to whoever may read the WebApp (status, events) and are logged: no secrets, and no answers of
/// others, which may hold some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// It failed and is tried again, after the backoff.
    #[error("{message}")]
    Retry {
        /// What happened.
        message: String,
        /// Not before this time has passed, however short the backoff is; 10 min at most.
        after: Option<Duration>,
    },
    /// It failed and would fail again: not tried until the spec changes or a user asks for it.
    #[error("{message}")]
    Permanent {
        /// What happened, and what a person can do about it.
        message: String,
    },
    /// It is not done, for a good reason: no attempt that failed, no backoff.
    #[error("{message}")]
    NotYet {
        /// What it waits for.
        message: String,
        /// When to look again, unless something changes before; `None` when a change is sure to be noticed.
        requeue_after: Option<Duration>,
    },
}

impl HookError {
    /// Failed, to be tried again after the backoff.
    #[must_use]
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Retry { message: message.into(), after: None }
    }

    /// Failed for good.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::Permanent { message: message.into() }
    }

    /// Not done yet.
    #[must_use]
    pub fn not_yet(message: impl Into<String>, requeue_after: Option<Duration>) -> Self {
        Self::NotYet { message: message.into(), requeue_after }
    }

    /// What happened, in words.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Retry { message, .. } | Self::Permanent { message } | Self::NotYet { message, .. } => {
                message
            }
        }
    }
}

/// Runs the hook that the call is for, for as long as its task allows.
///
/// # Errors
/// Those of the hook; [`HookError::Retry`] when it took too long. Whether it had its effect is unknown then, as with
/// every retry: the next try has the same operation ID.
///
/// # Cancel safety
/// Dropping it drops the hook in the middle, with the same unknown.
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
        Err(_) => Err(HookError::retry(format!("{} did not end within {timeout:?}", call.hook()))),
    }
}

#[cfg(test)]
mod tests;
