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
//! - Many that wait for a user hold up nobody else. (test: `what_waits_for_a_user_is_looked_at_behind_changes`)

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
        look_again: Option<Duration>,
    },
}

impl Outcome {
    /// After what time the next pass comes when nothing changes.
    #[must_use]
    pub fn next_pass(&self) -> Option<Duration> {
        match self {
            Self::Done => None,
            Self::RequeueAfter(time) | Self::Deferred(time) => Some(*time),
            Self::WaitForUser { look_again } => *look_again,
        }
    }
}

/// Why a pass has to be made again.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SyncError(#[from] pub client::Error);

impl SyncError {
    /// What kind of failure it is.
    #[must_use]
    pub fn retry(&self) -> Retry {
        let Self(error) = self;
        if error.is_conflict() || error.is_already_exists() {
            Retry::Conflict
        } else if error.is_connection() {
            Retry::Connection
        } else if error.is_too_many_requests() {
            Retry::Throttled
        } else {
            Retry::Error
        }
    }

    /// The least time to wait that the server has asked for.
    #[must_use]
    pub fn at_least(&self) -> Duration {
        self.0.retry_after().unwrap_or_default()
    }
}

/// What a pass may know beside its key.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    reasons: &'a Reasons,
    is_hot: bool,
    is_cache_late: bool,
}

impl<'a> Pass<'a> {
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
