//! How a pass over a key ends, and what follows from it.
//!
//! Mirrors controller-runtime `pkg/reconcile` (`Result`, `TerminalError`).
//!
//! | a pass ends with | failures forgotten? | next pass, unless something changes before | counted as | log |
//! |---|---|---|---|---|
//! | [`Outcome::Done`] | yes | none | `success` | debug |
//! | [`Outcome::RequeueAfter`] | yes | after that time | `requeue_after` | debug |
//! | [`Outcome::Deferred`] | yes | after that time, for the same reasons | `requeue_after` | debug |
//! | [`Outcome::WaitForUser`] with a time | yes | after that time, behind changes | `requeue_after` | debug |
//! | [`Outcome::WaitForUser`] without | yes | none: a new spec, or the annotation that asks for one | `success` | debug |
//! | [`SyncError`], a conflict | no | after the backoff | `requeue_after`, retry `conflict` | debug |
//! | [`SyncError`], no answer | no | after the backoff | `error`, retry `connection` | debug (the client tells it once) |
//! | [`SyncError`], 429 | no | after the backoff and the server's Retry-After | `error`, retry `throttled` | debug |
//! | [`SyncError`], other | no | after the backoff, not before Retry-After | `error`, retry `error` | warn |
//! | a panic | no | after the backoff | `error`, `panics`, retry `panic` | error |
//!
//! # Differences from controller-runtime
//! `WaitForUser` is its `TerminalError` with a time, and without the error: the condition tells. There, the failures of
//! such a key stay; here, they are forgotten. A pass has no time limit of its own: each request has. Of what a server asks
//! for by Retry-After 10 min are obeyed at most.
//!
//! # Guarantees
//! - Each row is so. (test: `every_row_of_the_table_of_outcomes`)
//! - An error of the client is found in any other that it caused. (test: `an_error_keeps_its_class_in_another`)
//! - Many that wait for a user hold up nobody else. (test: `what_waits_for_a_user_is_looked_at_behind_changes`)

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::client;
use crate::metrics::Retry;
use crate::workqueue::{Reason, Reasons};

/// How a pass ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do until something changes.
    Done,
    /// Look again after this time, whatever happens.
    RequeueAfter(Duration),
    /// A part of the pass was put off for this time; the pass that makes it up is for the same reasons.
    Deferred(Duration),
    /// Only a user can help: a condition and an event say how. A new spec is looked at at once.
    WaitForUser {
        /// When to look again all the same; `None` for never.
        requeue_after: Option<Duration>,
    },
}

impl Outcome {
    /// After what time the next pass comes when nothing changes.
    #[must_use]
    pub fn next_pass(&self) -> Option<Duration> {
        match self {
            Self::Done => None,
            Self::RequeueAfter(time) | Self::Deferred(time) => Some(*time),
            Self::WaitForUser { requeue_after } => *requeue_after,
        }
    }
}

/// Why a pass has to be made again: any error. One of the [`client`] is found in it, also as a cause, so that its class and
/// its Retry-After are kept.
pub struct SyncError(Box<dyn Error + Send + Sync>);

impl<E: Error + Send + Sync + 'static> From<E> for SyncError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

// === impl SyncError ===

impl SyncError {
    /// An error that is boxed already, or a text.
    #[must_use]
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }

    /// The error that it is made of, with its causes.
    #[must_use]
    pub fn as_error(&self) -> &(dyn Error + 'static) {
        &*self.0
    }

    /// The error of a request, if that is what it is, or what caused it.
    #[must_use]
    pub fn of_client(&self) -> Option<&client::Error> {
        let mut cause = Some(self.as_error());
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            cause = error.source();
        }
        None
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self.of_client() {
            Some(error) if error.is_conflict() || error.is_already_exists() => Retry::Conflict,
            Some(error) if error.is_connection() => Retry::Connection,
            Some(error) if error.is_too_many_requests() => Retry::Throttled,
            Some(_) | None => Retry::Error,
        }
    }

    /// The least time to wait that the server has asked for.
    #[must_use]
    pub fn at_least(&self) -> Duration {
        self.of_client().and_then(client::Error::retry_after).unwrap_or_default()
    }
}

/// What a pass may know beside its key.
#[derive(Clone, Copy, Debug)]
pub struct SyncRequest<'a> {
    reasons: &'a Reasons,
    is_hot: bool,
    is_cache_late: bool,
}

impl<'a> SyncRequest<'a> {
    /// A pass for these reasons.
    #[must_use]
    pub fn new(reasons: &'a Reasons) -> Self {
        Self { reasons, is_hot: false, is_cache_late: false }
    }

    /// The same, of a key that is hot or not.
    #[must_use]
    pub fn hot(self, is_hot: bool) -> Self {
        Self { is_hot, ..self }
    }

    /// The same, of a key whose own writes the caches have not shown for too long, or have.
    #[must_use]
    pub fn late(self, is_cache_late: bool) -> Self {
        Self { is_cache_late, ..self }
    }

    /// Whether the key asks for itself without end, and is slowed down for that: worth a condition. See
    /// [`hot_loop`](super::hot_loop).
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.is_hot
    }

    /// Why it is made. What to do must not depend on it: a reason may be lost with the process.
    #[must_use]
    pub fn reasons(&self) -> &'a Reasons {
        self.reasons
    }

    /// Whether it is made to find what the caches have missed.
    #[must_use]
    pub fn is_audit(&self) -> bool {
        self.reasons.contains(&Reason::Audit)
    }

    /// Whether it is the first pass over the object in this process: a former one may have been cut off in the middle.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.reasons.contains(&Reason::Initial)
    }

    /// Whether everything is to be read from the server, and nothing believed that the cache says.
    #[must_use]
    pub fn reads_live(&self) -> bool {
        self.is_cache_late || self.is_audit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ServerStatus;

    #[derive(Debug, thiserror::Error)]
    #[error("could not greet")]
    struct Outer(#[source] client::Error);

    #[test]
    fn an_error_keeps_its_class_in_another() {
        let retry_after = Some(Duration::from_secs(7));
        let status = ServerStatus { code: 429, retry_after, ..ServerStatus::default() };
        let inner = client::Error::Status { request: "r".to_owned(), status: Box::new(status) };
        let error = SyncError::from(Outer(inner));
        assert_eq!((error.retry(), error.at_least()), (Retry::Throttled, Duration::from_secs(7)));
        let other = SyncError::new("no such file");
        assert_eq!((other.retry(), other.at_least()), (Retry::Error, Duration::ZERO));
        assert_eq!(other.to_string(), "no such file");
    }
}
