//! Requests that the server refused, and when they are retried, so that syncs do not repeat them too soon.
//!
//! Any change of the object or of one of its children causes a sync: each Pod of a rollout, for instance, while a quota
//! refuses the Service.
//!
//! | why an attempt is on hold | retried after |
//! |---|---|
//! | the server refused the child, its deletion, or a finalizer or annotation of the owner | 2 min |
//! | the name is taken by an object that is not ours | 30 s |
//!
//! Another generation of the owner, another value of the annotation `windlass.dev/reconcile-at`, another wanted child
//! or another live child makes a different attempt, which is not held.
//!
//! # Guarantees
//! - The same attempt is not repeated too soon, whatever triggers the sync.
//!   (test: `refused_child_is_not_retried_on_every_pass`)
//! - A different attempt is made at once. (test: `different_attempt_is_not_held`)
//! - A hold is cleared once the child exists. (test: `hold_is_cleared_once_the_child_exists`)
//! - Expired holds take no memory. (test: `expired_holds_take_no_memory`)
//!
//! # Differences from client-go
//! Controllers there repeat a refused request on every sync.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::ServerStatus;
use crate::controller::kinds::health::{EXISTS_RETRY, REFUSED_RETRY};

/// The attempts of one key that are on hold.
#[derive(Debug, Default)]
pub(in crate::controller) struct Holds {
    by_request: HashMap<Request, Hold>,
}

/// What may be on hold: a request to write or delete an object, or to set a finalizer or annotation of the owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::controller) struct Request {
    verb: Verb,
    /// The kind of the object; empty for the owner itself.
    kind: Cow<'static, str>,
    /// The name of the object, finalizer or annotation.
    name: String,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::controller) enum Verb {
    /// Creates or updates a child.
    Write,
    /// Deletes a child.
    Delete,
    /// Adds a finalizer.
    AddFinalizer,
    /// Removes a finalizer.
    RemoveFinalizer,
    /// Sets an annotation.
    Annotate,
}

#[derive(Debug)]
struct Hold {
    attempt: Attempt,
    reason: HoldReason,
    at: Instant,
}

/// Why an attempt is on hold.
#[derive(Clone, Debug)]
pub(in crate::controller) enum HoldReason {
    /// The server refused it with this status.
    Refused(ServerStatus),
    /// The name is taken by an object that is not ours.
    Exists,
}

/// The hash of a request and of the owner's spec: equal attempts get the same answer, unless someone else has changed
/// something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) struct Attempt(u64);

// === impl HoldReason ===

impl HoldReason {
    /// Returns how long the same attempt is held.
    fn retry(&self) -> Duration {
        match self {
            Self::Refused(_) => REFUSED_RETRY,
            Self::Exists => EXISTS_RETRY,
        }
    }
}

// === impl Attempt ===

impl Attempt {
    /// An attempt at `what` for this state of the owner.
    pub(in crate::controller) fn new(generation: i64, reconcile_at: Option<&str>, what: impl Hash) -> Self {
        Self(foldhash::fast::FixedState::default().hash_one((generation, reconcile_at, what)))
    }
}

// === impl Request ===

impl Request {
    /// A request about the child of this kind and name.
    pub(in crate::controller) fn of(verb: Verb, kind: Cow<'static, str>, name: &str) -> Self {
        Self { verb, kind, name: name.to_owned() }
    }

    /// A request about the owner's finalizer or annotation of this name.
    pub(in crate::controller) fn of_owner(verb: Verb, name: &str) -> Self {
        Self { verb, kind: Cow::Borrowed(""), name: name.to_owned() }
    }
}

// === impl Holds ===

impl Holds {
    /// Returns why this attempt is on hold, and for how much longer; `None` means that it may be made.
    pub(in crate::controller) fn active(
        &self,
        request: &Request,
        attempt: Attempt,
    ) -> Option<(HoldReason, Duration)> {
        let hold = self.by_request.get(request).filter(|hold| hold.attempt == attempt)?;
        let left = hold.reason.retry().checked_sub(hold.at.elapsed())?;
        (!left.is_zero()).then(|| (hold.reason.clone(), left))
    }

    /// Puts an attempt on hold.
    pub(in crate::controller) fn record(&mut self, request: Request, attempt: Attempt, reason: HoldReason) {
        self.by_request.insert(request, Hold { attempt, reason, at: Instant::now() });
    }

    /// Clears the hold of this request, if any.
    pub(in crate::controller) fn clear(&mut self, request: impl FnOnce() -> Request) {
        if !self.by_request.is_empty() {
            self.by_request.remove(&request());
        }
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.by_request.retain(|_, hold| now - hold.at < hold.reason.retry());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_request.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> HoldReason {
        HoldReason::Refused(ServerStatus::default())
    }

    fn request(name: &str) -> Request {
        Request::of(Verb::Write, "Service".into(), name)
    }

    fn left(holds: &Holds, attempt: Attempt) -> Option<u64> {
        holds.active(&request("a"), attempt).map(|(_, left)| left.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn same_attempt_is_held_for_its_retry_interval() {
        let attempt = Attempt::new(1, None, "what");
        for (reason, seconds) in [(refused(), 120), (HoldReason::Exists, 30)] {
            let mut holds = Holds::default();
            assert_eq!(left(&holds, attempt), None);
            holds.record(request("a"), attempt, reason);
            assert_eq!(left(&holds, attempt), Some(seconds));
            tokio::time::advance(Duration::from_secs(seconds - 1)).await;
            assert_eq!(left(&holds, attempt), Some(1));
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(left(&holds, attempt), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn different_attempt_is_not_held() {
        let attempt = Attempt::new(1, None, "what");
        let mut holds = Holds::default();
        holds.record(request("a"), attempt, refused());
        for other in [
            Attempt::new(2, None, "what"),
            Attempt::new(1, Some("now"), "what"),
            Attempt::new(1, None, "another"),
        ] {
            assert_eq!(left(&holds, other), None);
        }
        assert!(holds.active(&request("b"), attempt).is_none(), "another child is not held");
        let deletion = Request::of(Verb::Delete, "Service".into(), "a");
        assert!(holds.active(&deletion, attempt).is_none(), "its deletion is not held");
        assert_eq!(left(&holds, attempt), Some(120));
        holds.clear(|| request("a"));
        assert_eq!(left(&holds, attempt), None);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_holds_take_no_memory() {
        let attempt = Attempt::new(1, None, "what");
        let mut holds = Holds::default();
        for second in 0..1000 {
            holds.record(request(&second.to_string()), attempt, refused());
            tokio::time::advance(Duration::from_secs(1)).await;
            holds.expire(Instant::now());
        }
        assert_eq!(holds.by_request.len(), 119, "{holds:?}");
        tokio::time::advance(REFUSED_RETRY).await;
        holds.expire(Instant::now());
        assert!(holds.is_empty());
    }
}
