//! Defines how a sync over a key ends and when the next one comes.
//!
//! Mirrors controller-runtime `pkg/reconcile` (`Result`, `TerminalError`).
//!
//! | a sync ends with | backoff reset? | next sync, unless a change comes first | counted as | log |
//! |---|---|---|---|---|
//! | [`Outcome::Done`] | yes | none | `success` | debug |
//! | [`Outcome::RequeueAfter`] | yes | after that time | `requeue_after` | debug |
//! | [`Outcome::Deferred`] | yes | after that time, for the same reasons | `requeue_after` | debug |
//! | [`Outcome::WaitForUser`] with a time | yes | after that time, behind changes | `requeue_after` | debug |
//! | [`Outcome::WaitForUser`] without | yes | none before a new spec or a requested pass | `success` | debug |
//! | [`SyncError`], a conflict | no | after the backoff | `requeue_after`, retry `conflict` | debug |
//! | [`SyncError`], no response | no | after the backoff | `error`, retry `connection` | debug (the client logs once) |
//! | [`SyncError`], 429 | no | after the backoff and the server's Retry-After | `error`, retry `throttled` | debug |
//! | [`SyncError`], other | no | after the backoff, not before Retry-After | `error`, retry `error` | warn |
//! | a panic | no | after the backoff | `error`, `panics`, retry `panic` | error |
//!
//! # Differences from controller-runtime
//! `WaitForUser` replaces `TerminalError`: a condition reports the problem instead of an error, the backoff is
//! reset, and the key may be requeued. A sync has no timeout of its own; each request has one. Retry-After is
//! obeyed up to 10 min.
//!
//! # Guarantees
//! - Every row of the table holds. (test: `every_row_of_the_outcome_table_holds`)
//! - A client error keeps its class inside another error. (test: `wrapped_client_error_keeps_its_class`)
//! - Keys that wait for a user are synced behind changes. (test: `keys_waiting_for_a_user_sync_behind_changes`)

use std::error::Error;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::ApiResource;
use crate::cache::{ObjectName, TypedObject};
use crate::client;
use crate::controller::key::KeyState;
use crate::metrics::Retry;
use crate::workqueue::{RateLimitingQueue, Reasons};

/// The result of a sync that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do until something changes.
    Done,
    /// Sync again after this time at the latest.
    RequeueAfter(Duration),
    /// Part of the sync is postponed by this time; the next sync has the same reasons.
    Deferred(Duration),
    /// Only a user can fix the problem: a condition and an event say how. A new spec is synced at once.
    WaitForUser {
        /// When to sync again without a change; `None` for never.
        requeue_after: Option<Duration>,
    },
}

impl Outcome {
    /// Returns the delay of the next sync if nothing changes.
    #[must_use]
    pub fn next_pass(&self) -> Option<Duration> {
        match self {
            Self::Done => None,
            Self::RequeueAfter(time) | Self::Deferred(time) => Some(*time),
            Self::WaitForUser { requeue_after } => *requeue_after,
        }
    }
}

/// The error of a failed sync: any error type. A [`client`] error among its causes keeps its class and its
/// Retry-After.
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
    /// Wraps a boxed error or a message.
    #[must_use]
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }

    /// Returns the wrapped error.
    #[must_use]
    pub fn as_error(&self) -> &(dyn Error + 'static) {
        &*self.0
    }

    /// Returns the first [`client`] error in the chain of causes.
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

    /// Classifies the failure.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self.of_client() {
            Some(error) if error.is_conflict() || error.is_already_exists() => Retry::Conflict,
            // The fence has closed, as a lost connection to the Lease does.
            Some(error) if error.is_connection() || error.is_not_held() => Retry::Connection,
            Some(error) if error.is_too_many_requests() => Retry::Throttled,
            Some(_) | None => Retry::Error,
        }
    }

    /// Returns the least delay of the retry: the server's Retry-After, or zero.
    #[must_use]
    pub fn at_least(&self) -> Duration {
        self.of_client().and_then(client::Error::retry_after).unwrap_or_default()
    }
}

/// How long a sync goes on writing while other keys wait.
const TURN: Duration = Duration::from_secs(1);

/// How far a sync trusts the caches. The worker decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The caches have seen the writes of the key's last sync.
    #[default]
    Cache,
    /// The caches may lack writes of the leader before: the object is read live before the first write.
    OwnerLive,
    /// An audit has found a difference, or the caches lag the key's own writes: everything is read live.
    Nothing,
}

/// The request for a sync: how far to trust the caches, what is remembered of the key, and why it is made.
#[derive(Debug)]
pub struct SyncRequest<'a> {
    pub(in crate::controller) trust: Trust,
    pub(in crate::controller) state: &'a mut KeyState,
    pub(in crate::controller) turn: Turn<'a>,
    reasons: &'a Reasons,
}

/// The turn of a sync: how long it may go on writing while other keys wait.
#[derive(Clone, Copy, Debug)]
pub(in crate::controller) struct Turn<'a> {
    began: Instant,
    /// The queue in which other keys wait.
    queue: Option<&'a RateLimitingQueue<ObjectName>>,
}

impl<'a> SyncRequest<'a> {
    /// Creates a request with these reasons, which trusts the caches.
    #[must_use]
    pub fn new(reasons: &'a Reasons, state: &'a mut KeyState) -> Self {
        let turn = Turn { began: Instant::now(), queue: None };
        Self { trust: Trust::Cache, state, turn, reasons }
    }

    /// Sets how far to trust the caches.
    #[must_use]
    pub fn with_trust(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// Sets the queue in which other keys wait.
    #[must_use]
    pub fn beside(self, queue: &'a RateLimitingQueue<ObjectName>) -> Self {
        Self { turn: Turn { queue: Some(queue), ..self.turn }, ..self }
    }

    /// Returns how far to trust the caches.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// Returns why the sync is made, for people. Behaviour must not depend on reasons: they are lost with the process.
    #[must_use]
    pub fn reasons(&self) -> &'a Reasons {
        self.reasons
    }

    /// Records a write by this sync; `object` is the server's response. The key is not synced again before the caches
    /// have seen the write.
    pub fn wrote<O: TypedObject>(&mut self, object: &O) {
        self.state.own_writes.wrote(object);
    }

    /// Records that this sync deleted the object with this uid.
    pub fn deleted(&mut self, resource: &ApiResource, name: ObjectName, uid: &str) {
        self.state.own_writes.deleted(resource, name, uid);
    }

    /// Returns what is remembered of the key.
    #[doc(hidden)] // for the benchmark of memory at rest
    pub fn state(&mut self) -> &mut KeyState {
        self.state
    }
}

impl Turn<'_> {
    /// Whether the sync has lasted a second and other keys wait: a sync with many writes then leaves the others to its
    /// next one.
    pub(in crate::controller) fn is_over(&self) -> bool {
        self.began.elapsed() >= TURN && self.queue.is_some_and(|queue| !queue.is_empty())
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
    fn wrapped_client_error_keeps_its_class() {
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
