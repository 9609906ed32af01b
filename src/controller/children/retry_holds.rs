//! Requests that the server refused, and when they are retried, so that passes do not repeat them too soon.
//!
//! Any change of the object or of one of its children causes a pass: each Pod of a rollout, for instance, while a quota
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
//! - The same attempt is not repeated too soon, whatever triggers the pass.
//!   (test: `refused_child_is_not_retried_on_every_pass`)
//! - A different attempt is made at once. (test: `different_attempt_is_not_held`)
//! - A hold is cleared once the child exists. (test: `hold_is_cleared_once_the_child_exists`)
//! - Expired holds take no memory. (test: `expired_holds_take_no_memory`)
//!
//! # Differences from client-go
//! Controllers there repeat a refused request on every pass.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::owner::Owner;
use crate::client::ServerStatus;
use crate::controller::kinds::difference::Difference;
use crate::controller::kinds::health::{EXISTS_RETRY, REFUSED_RETRY};
use crate::controller::recent::Recent;

/// The attempts that are on hold.
#[derive(Debug)]
pub(crate) struct RetryHolds {
    /// By [`hold_key`].
    known: Recent<String, Hold>,
}

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
    /// An attempt to create this child for this state of the owner.
    pub(in crate::controller) fn create(owner: &Owner, child: &Value) -> Self {
        Self::new(owner, child.to_string())
    }

    /// An attempt to remove these differences from the live child of this uid.
    pub(in crate::controller) fn update(owner: &Owner, uid: &str, differences: &[Difference]) -> Self {
        let wanted: Vec<_> = differences.iter().map(|one| (&one.field, one.fingerprint)).collect();
        Self::new(owner, (uid, wanted))
    }

    /// An attempt to delete the live child of this uid.
    pub(in crate::controller) fn delete(owner: &Owner, uid: &str) -> Self {
        Self::new(owner, uid)
    }

    /// An attempt to write this into the owner itself.
    pub(in crate::controller) fn set(owner: &Owner, what: impl Hash) -> Self {
        Self::new(owner, what)
    }

    fn new(owner: &Owner, what: impl Hash) -> Self {
        let all = (owner.generation, &owner.reconcile_at, what);
        Self(foldhash::fast::FixedState::default().hash_one(all))
    }
}

// === impl RetryHolds ===

impl RetryHolds {
    /// Returns why this attempt is on hold, and for how much longer; `None` means that it may be made.
    pub(in crate::controller) fn active(
        &self,
        hold_key: &str,
        attempt: Attempt,
    ) -> Option<(HoldReason, Duration)> {
        self.known.at(hold_key, |known| {
            let hold = known.get().filter(|hold| hold.attempt == attempt)?;
            let left = hold.reason.retry().checked_sub(hold.at.elapsed())?;
            (!left.is_zero()).then(|| (hold.reason.clone(), left))
        })
    }

    /// Puts an attempt on hold.
    #[expect(clippy::needless_pass_by_value, reason = "callers build the key for this call")]
    pub(in crate::controller) fn record(&self, hold_key: String, attempt: Attempt, reason: HoldReason) {
        let hold = Hold { attempt, reason, at: Instant::now() };
        drop(self.known.at(hold_key.as_str(), |known| known.insert(hold)));
    }

    /// Clears the hold of this key, if any.
    pub(in crate::controller) fn clear(&self, hold_key: impl FnOnce() -> String) {
        if self.known.len() > 0 {
            drop(self.known.at(hold_key().as_str(), |slot| slot.remove()));
        }
    }

    #[cfg(test)]
    pub(in crate::controller) fn len(&self) -> usize {
        self.known.len()
    }
}

impl Default for RetryHolds {
    fn default() -> Self {
        Self { known: Recent::new(REFUSED_RETRY) }
    }
}

/// Returns the key of the hold for a child of this incarnation of the owner.
pub(in crate::controller) fn hold_key(owner: &Owner, kind: &str, name: &str) -> String {
    format!("{}/{kind}/{name}", owner.uid)
}

/// Returns the key of the hold for a child's deletion, which is separate from that of its other writes.
pub(in crate::controller) fn deletion_hold_key(owner: &Owner, kind: &str, name: &str) -> String {
    format!("{}/-{kind}/{name}", owner.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiResource;
    use crate::cache::ObjectName;

    fn owner() -> Owner {
        let (resource, name) =
            (ApiResource::new("example.com", "v1", "Foo", "foos"), ObjectName::new(Some("ns"), "one"));
        Owner { generation: 1, ..Owner::known_as(resource, name, "u", "1") }
    }

    fn refused() -> HoldReason {
        HoldReason::Refused(ServerStatus::default())
    }

    fn left(retry_holds: &RetryHolds, attempt: Attempt) -> Option<u64> {
        retry_holds.active("a", attempt).map(|(_, left)| left.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn same_attempt_is_held_for_its_retry_interval() {
        let attempt = Attempt::new(&owner(), "what");
        for (reason, seconds) in [(refused(), 120), (HoldReason::Exists, 30)] {
            let retry_holds = RetryHolds::default();
            assert_eq!(left(&retry_holds, attempt), None);
            retry_holds.record("a".to_owned(), attempt, reason);
            assert_eq!(left(&retry_holds, attempt), Some(seconds));
            tokio::time::advance(Duration::from_secs(seconds - 1)).await;
            assert_eq!(left(&retry_holds, attempt), Some(1));
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(left(&retry_holds, attempt), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn different_attempt_is_not_held() {
        let attempt = Attempt::new(&owner(), "what");
        let retry_holds = RetryHolds::default();
        retry_holds.record("a".to_owned(), attempt, refused());
        let asked = Owner { reconcile_at: Some("now".to_owned()), ..owner() };
        for other in [
            Attempt::new(&Owner { generation: 2, ..owner() }, "what"),
            Attempt::new(&asked, "what"),
            Attempt::new(&owner(), "another"),
        ] {
            assert_eq!(left(&retry_holds, other), None);
        }
        assert!(retry_holds.active("b", attempt).is_none(), "another child is not held");
        assert_eq!(left(&retry_holds, attempt), Some(120));
        retry_holds.clear(|| "a".to_owned());
        assert_eq!(left(&retry_holds, attempt), None);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_holds_take_no_memory() {
        let attempt = Attempt::new(&owner(), "what");
        let retry_holds = RetryHolds::default();
        for second in 0..1000 {
            retry_holds.record(second.to_string(), attempt, refused());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!((120..=240).contains(&retry_holds.len()), "{retry_holds:?}");
        tokio::time::advance(2 * REFUSED_RETRY).await;
        retry_holds.clear(|| "another".to_owned());
        assert_eq!(retry_holds.len(), 0);
    }
}
