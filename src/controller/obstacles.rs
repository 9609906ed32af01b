//! Remembers what stood in the way of a child, so that no pass asks the server for the same too soon.
//!
//! A pass comes with any change of the object and of any of its children: with each Pod of a rollout, say, while a
//! quota refuses the Service.
//!
//! | what stood in the way | the same is not tried again before |
//! |---|---|
//! | the server refused the child, its deletion, or a finalizer or annotation of the owner | 2 min |
//! | the name was somebody else's | 30 s |
//!
//! Another generation of the owner, another value of the annotation `windlass.dev/reconcile-at`, another wanted child
//! or another live one make it another attempt, which is made at once.
//!
//! # Guarantees
//! - The same attempt is not made again too soon, whatever wakes the owner. (test: `a_refused_child_is_not_asked_for_again_at_each_pass`)
//! - Another attempt is made at once. (test: `another_attempt_is_made_at_once`)
//! - It is forgotten when the child is there. (test: `what_was_in_the_way_is_forgotten_when_it_is_gone`)
//! - It takes no more memory than what was in the way lately. (test: `what_is_over_takes_no_memory`)
//!
//! Mirrors nothing in client-go: controllers there ask again at each pass.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::difference::Difference;
use super::owner::Owner;
use super::recent::Recent;
use super::summary::{EXISTS_RETRY, REFUSED_RETRY};
use crate::client::ServerStatus;

/// What stood in the way of a child, and of which attempt.
#[derive(Debug)]
pub struct Obstacles {
    /// By [`place`].
    known: Recent<Met>,
}

struct Met {
    attempt: Attempt,
    obstacle: Obstacle,
    at: Instant,
}

/// What stood in the way.
#[derive(Clone, Debug)]
pub(super) enum Obstacle {
    /// The server did not take it, for this cause.
    Refused(ServerStatus),
    /// The name is somebody else's.
    Exists,
}

/// What was asked of the server, for whom: two that are equal have the same answer, unless others have changed
/// something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt(u64);

// === impl Obstacle ===

impl Obstacle {
    /// How long the same attempt is not made again.
    fn retry(&self) -> Duration {
        match self {
            Self::Refused(_) => REFUSED_RETRY,
            Self::Exists => EXISTS_RETRY,
        }
    }
}

// === impl Attempt ===

impl Attempt {
    /// To create this child for this owner, as it is now.
    pub(super) fn create(owner: &Owner, child: &Value) -> Self {
        Self::new(owner, child.to_string())
    }

    /// To write these differences away from the live child of this uid.
    pub(super) fn update(owner: &Owner, uid: &str, differences: &[Difference]) -> Self {
        let wanted: Vec<_> = differences.iter().map(|one| (&one.field, one.fingerprint)).collect();
        Self::new(owner, (uid, wanted))
    }

    /// To delete the live child of this uid.
    pub(super) fn delete(owner: &Owner, uid: &str) -> Self {
        Self::new(owner, uid)
    }

    /// To write this into the owner itself.
    pub(super) fn set(owner: &Owner, what: impl Hash) -> Self {
        Self::new(owner, what)
    }

    fn new(owner: &Owner, what: impl Hash) -> Self {
        let all = (owner.generation, &owner.reconcile_at, what);
        Self(foldhash::fast::FixedState::default().hash_one(all))
    }
}

// === impl Obstacles ===

impl Obstacles {
    /// What stood in the way of this very attempt, and how long it is not to be made again; `None`: it may be made.
    pub(super) fn in_the_way(&self, place: &str, attempt: Attempt) -> Option<(Obstacle, Duration)> {
        self.known.at(place, |known| {
            let met = known.get().filter(|met| met.attempt == attempt)?;
            let left = met.obstacle.retry().checked_sub(met.at.elapsed())?;
            (!left.is_zero()).then(|| (met.obstacle.clone(), left))
        })
    }

    /// Something stood in the way of an attempt.
    #[expect(clippy::needless_pass_by_value, reason = "callers have made the name for this")]
    pub(super) fn met(&self, place: String, attempt: Attempt, obstacle: Obstacle) {
        let met = Met { attempt, obstacle, at: Instant::now() };
        drop(self.known.at(place.as_str(), |known| known.insert(met)));
    }

    /// Nothing is in the way any more.
    pub(super) fn gone(&self, place: impl FnOnce() -> String) {
        if self.known.len() > 0 {
            drop(self.known.at(place().as_str(), |slot| slot.remove()));
        }
    }

    /// How many it remembers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether it remembers none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Obstacles {
    fn default() -> Self {
        Self { known: Recent::new(REFUSED_RETRY) }
    }
}

/// Where an obstacle is: one child of one life of an owner.
pub(super) fn place(owner: &Owner, kind: &str, name: &str) -> String {
    format!("{}/{kind}/{name}", owner.uid)
}

/// The same for its deletion: what is in the way of the one says nothing of the other.
pub(super) fn place_of_deletion(owner: &Owner, kind: &str, name: &str) -> String {
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

    fn refused() -> Obstacle {
        Obstacle::Refused(ServerStatus::default())
    }

    fn left(obstacles: &Obstacles, attempt: Attempt) -> Option<u64> {
        obstacles.in_the_way("a", attempt).map(|(_, left)| left.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_attempt_waits_as_long_as_the_table_says() {
        let attempt = Attempt::new(&owner(), "what");
        for (obstacle, seconds) in [(refused(), 120), (Obstacle::Exists, 30)] {
            let obstacles = Obstacles::default();
            assert_eq!(left(&obstacles, attempt), None);
            obstacles.met("a".to_owned(), attempt, obstacle);
            assert_eq!(left(&obstacles, attempt), Some(seconds));
            tokio::time::advance(Duration::from_secs(seconds - 1)).await;
            assert_eq!(left(&obstacles, attempt), Some(1));
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(left(&obstacles, attempt), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_attempt_is_made_at_once() {
        let attempt = Attempt::new(&owner(), "what");
        let obstacles = Obstacles::default();
        obstacles.met("a".to_owned(), attempt, refused());
        let asked = Owner { reconcile_at: Some("now".to_owned()), ..owner() };
        for other in [
            Attempt::new(&Owner { generation: 2, ..owner() }, "what"),
            Attempt::new(&asked, "what"),
            Attempt::new(&owner(), "another"),
        ] {
            assert_eq!(left(&obstacles, other), None);
        }
        assert!(obstacles.in_the_way("b", attempt).is_none(), "of another child");
        assert_eq!(left(&obstacles, attempt), Some(120));
        obstacles.gone(|| "a".to_owned());
        assert_eq!(left(&obstacles, attempt), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_takes_no_memory() {
        let attempt = Attempt::new(&owner(), "what");
        let obstacles = Obstacles::default();
        for second in 0..1000 {
            obstacles.met(second.to_string(), attempt, refused());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!((120..=240).contains(&obstacles.len()), "{obstacles:?}");
        tokio::time::advance(2 * REFUSED_RETRY).await;
        obstacles.gone(|| "another".to_owned());
        assert!(obstacles.is_empty());
    }
}
