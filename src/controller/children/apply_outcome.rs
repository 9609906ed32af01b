//! What became of a child that was applied, and the health that follows from it: the one place where conditions begin.
//!
//! | what became of the child | phase | reason | requeued after |
//! |---|---|---|---|
//! | as wanted | as [`Wanted::progress`] says | `Available`, `Progressing` | (when it changes) |
//! | stored by the server otherwise than written | reconciling | `StoredOtherwise` | 1 s |
//! | terminating, or of a previous incarnation of its owner | reconciling | `WaitingForDeletion` | 30 s |
//! | an error, such as 500, for 10 s or more | reconciling | `ChildFailing` | the backoff of the key |
//! | missing, or changed since its spec was applied, and the object is paused | reconciling | `Paused` | (when it changes) |
//! | as a former spec wants it, and the object is paused | as [`Wanted::progress`] says | likewise | (when it changes) |
//! | somebody else's | stalled | `ResourceExists` | 30 s |
//! | refused by the server | stalled | `ChildRefused` | 2 min |
//! | changed back by somebody each time | stalled | `Contended` | 2 min |
//!
//! # Guarantees
//! - Each row is so. (test: `each_outcome_has_its_health`)

use std::time::Duration;

use crate::cache::Object;
use crate::client::ServerStatus;
use crate::controller::kinds::Wanted;
use crate::controller::kinds::difference::{Difference, describe};
use crate::controller::kinds::health::{ChildHealth, EXISTS_RETRY, UNDONE_RETRY, reason};

/// What became of a child that was to be as wanted.
#[derive(Clone, Debug)]
pub enum ApplyOutcome<O> {
    /// It is as wanted.
    Unchanged(O),
    /// It was not there.
    Created(O),
    /// It was different; these were the differences.
    Updated(O, Vec<Difference>),
    /// The server took the write and stored something else: an admission webhook changed it. To be tried
    /// again soon; when it comes back each time it ends as contended.
    StoredOtherwise {
        /// The child as it is.
        observed: O,
        /// Whether it was not there before.
        is_new: bool,
        /// What was not as wanted before, and is now.
        repaired: Vec<Difference>,
    },
    /// It is ours and being deleted (then it is here), or of a previous incarnation of its owner: it will go by
    /// itself.
    Terminating(Option<O>),
    /// The owner is gone, being deleted, paused, or has another spec by now: nothing was done.
    OwnerChanged,
    /// It is not as wanted, and was left so: the owner is paused.
    Paused {
        /// The child as it is, if it is there and ours.
        observed: Option<O>,
        /// What is not as wanted.
        differences: Vec<Difference>,
        /// Whether the present spec had reached the child already, so that somebody else has changed it since.
        is_applied: bool,
    },
    /// The name is somebody else's; to be looked at again after this time.
    ResourceExists {
        /// When to look again.
        requeue_after: Duration,
    },
    /// The server does not take it; to be tried again after this time.
    Refused {
        /// The child as it is, if it is there.
        observed: Option<O>,
        /// What the server said.
        status: ServerStatus,
        /// When to try again.
        requeue_after: Duration,
    },
    /// An error, which is tried again at once: nothing is known of the write.
    Failed {
        /// The child as the cache shows it, if it is there and ours.
        observed: Option<O>,
    },
    /// Somebody changes it back each time; to be tried again after this time.
    Contended {
        /// The child as it is.
        observed: O,
        /// What comes back.
        difference: String,
        /// What was not as wanted beside that, and is now.
        repaired: Vec<Difference>,
        /// When to try again.
        requeue_after: Duration,
    },
}

// === impl ApplyOutcome ===

impl<O> ApplyOutcome<O> {
    /// The child as it is, if it is there and ours.
    #[must_use]
    pub fn observed(&self) -> Option<&O> {
        match self {
            Self::Unchanged(observed)
            | Self::Created(observed)
            | Self::Updated(observed, _)
            | Self::StoredOtherwise { observed, .. }
            | Self::Contended { observed, .. } => Some(observed),
            Self::Terminating(observed)
            | Self::Refused { observed, .. }
            | Self::Paused { observed, .. }
            | Self::Failed { observed } => observed.as_ref(),
            Self::ResourceExists { .. } | Self::OwnerChanged => None,
        }
    }

    /// Whether it is there, ours, and as wanted.
    #[must_use]
    pub fn is_as_wanted(&self) -> bool {
        matches!(self, Self::Unchanged(_) | Self::Created(_) | Self::Updated(..))
    }

    /// Whether it was not there before, and is now.
    #[must_use]
    pub fn was_created(&self) -> bool {
        matches!(self, Self::Created(_) | Self::StoredOtherwise { is_new: true, .. })
    }
}

// === impl ChildHealth ===

impl ChildHealth {
    /// What is said of a child of an owner of `owner_kind` after [`Children::apply`](super::apply::Children::apply).
    #[must_use]
    pub fn of<W: Wanted>(owner_kind: &str, wanted: &W, applied: &ApplyOutcome<W::Observed>) -> Self {
        let name = wanted.name();
        let child = format!("{} {name:?}", W::Observed::resource().kind);
        match applied {
            ApplyOutcome::Unchanged(observed)
            | ApplyOutcome::Created(observed)
            | ApplyOutcome::Updated(observed, _) => wanted.progress(observed),
            ApplyOutcome::StoredOtherwise { .. } => Self::reconciling(
                reason::STORED_OTHERWISE,
                format!("The API server stored {child} otherwise than written; trying again"),
            )
            .about(&child)
            .requeue_after(UNDONE_RETRY),
            ApplyOutcome::Failed { .. } => Self::failing(&child, "of an error"),
            ApplyOutcome::Terminating(_) | ApplyOutcome::OwnerChanged => Self::reconciling(
                reason::WAITING_FOR_DELETION,
                format!("{child} of an earlier time is being deleted; a new one follows"),
            )
            .requeue_after(EXISTS_RETRY),
            // Of a spec that has not been applied nothing is said: the child is as the former one wants it.
            ApplyOutcome::Paused { observed: Some(observed), is_applied: false, .. } => {
                wanted.progress(observed)
            }
            ApplyOutcome::Paused { observed: None, .. } => {
                Self::reconciling(reason::PAUSED, format!("{child} is not there, and this object is paused"))
            }
            ApplyOutcome::Paused { differences, .. } => Self::reconciling(
                reason::PAUSED,
                format!("{child} is not as wanted ({}), and this object is paused", describe(differences)),
            ),
            ApplyOutcome::ResourceExists { requeue_after } => {
                Self::stalled(reason::RESOURCE_EXISTS, resource_exists(name, owner_kind))
                    .requeue_after(*requeue_after)
                    .about(&child)
            }
            ApplyOutcome::Refused { status, requeue_after, .. } => {
                Self::refused(&child, status).requeue_after(*requeue_after)
            }
            ApplyOutcome::Contended { difference, requeue_after, .. } => Self::stalled(
                reason::CONTENDED,
                format!(
                    "Somebody changes {child} back each time ({difference}): find out who, and stop one of us"
                ),
            )
            .requeue_after(*requeue_after)
            .about(&child),
        }
    }
}

/// sample-controller's message, for event and condition.
fn resource_exists(child: &str, owner_kind: &str) -> String {
    format!("Resource {child:?} already exists and is not managed by {owner_kind}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controller::Wanted;
    use crate::controller::kinds::deployment::{ObservedDeployment, WantedDeployment};
    use crate::controller::kinds::health::{HealthPhase, REFUSED_RETRY};

    fn wanted() -> WantedDeployment {
        WantedDeployment { name: "web".to_owned(), replicas: 2, ..WantedDeployment::default() }
    }

    fn observed(replicas: i32, available: i32) -> ObservedDeployment {
        let mut live = json!({"metadata": {"name": "web", "generation": 1}});
        wanted().write_into(&mut live);
        live["spec"]["replicas"] = json!(replicas);
        live["status"] = json!({"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "availableReplicas": available});
        serde_json::from_value(live).unwrap()
    }

    #[track_caller]
    fn check(
        applied: &ApplyOutcome<ObservedDeployment>,
        phase: HealthPhase,
        reason: &str,
        requeue_after: u64,
    ) {
        let health = ChildHealth::of("Foo", &wanted(), applied);
        let requeue_after = (requeue_after > 0).then(|| Duration::from_secs(requeue_after));
        assert_eq!((health.phase, health.reason, health.requeue_after), (phase, reason, requeue_after));
    }

    #[test]
    fn each_outcome_has_its_health() {
        use HealthPhase::{Ready, Reconciling, Stalled};
        check(&ApplyOutcome::Unchanged(observed(2, 2)), Ready, "Available", 0);
        check(&ApplyOutcome::Updated(observed(2, 2), Vec::new()), Ready, "Available", 0);
        check(&ApplyOutcome::Unchanged(observed(2, 1)), Reconciling, "Progressing", 0);
        check(&ApplyOutcome::Created(ObservedDeployment::default()), Reconciling, "Progressing", 0);
        check(
            &ApplyOutcome::StoredOtherwise { observed: observed(7, 7), is_new: true, repaired: Vec::new() },
            Reconciling,
            "StoredOtherwise",
            1,
        );
        check(&ApplyOutcome::Terminating(None), Reconciling, "WaitingForDeletion", 30);
        check(&ApplyOutcome::ResourceExists { requeue_after: EXISTS_RETRY }, Stalled, "ResourceExists", 30);
        let held = |is_applied| ApplyOutcome::Paused {
            differences: wanted().differences(&observed(3, 3)),
            observed: Some(observed(3, 3)),
            is_applied,
        };
        check(&held(true), Reconciling, "Paused", 0);
        check(&held(false), Ready, "Available", 0);
        let message = ChildHealth::of("Foo", &wanted(), &held(false)).message;
        assert_eq!(
            message, "3 of 3 replicas are available",
            "not counted against a spec that is not applied"
        );
        let none = ApplyOutcome::Paused { observed: None, differences: Vec::new(), is_applied: false };
        check(&none, Reconciling, "Paused", 0);
        let refused = |requeue_after| ApplyOutcome::Refused {
            observed: Some(observed(1, 1)),
            status: ServerStatus::default(),
            requeue_after,
        };
        check(&refused(REFUSED_RETRY), Stalled, "ChildRefused", 120);
        check(&refused(Duration::from_secs(7)), Stalled, "ChildRefused", 7);
        let contended = ApplyOutcome::Contended {
            observed: observed(7, 7),
            repaired: Vec::new(),
            difference: "spec.replicas was 7, wanted 2".to_owned(),
            requeue_after: Duration::from_secs(77),
        };
        check(&contended, Stalled, "Contended", 77);
    }
}
