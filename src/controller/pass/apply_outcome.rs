//! The result of applying a child, and the health derived from the result: the only place where conditions originate.
//!
//! | result for the child | phase | reason | requeued after |
//! |---|---|---|---|
//! | matches | from [`Wanted::progress`] | `Available`, `Progressing` | (when it changes) |
//! | the server stored something other than what was written | reconciling | `StoredOtherwise` | 1 s |
//! | terminating, or owned by a previous incarnation of its owner | reconciling | `WaitingForDeletion` | 30 s |
//! | an error, such as a 500, for 10 s or more | reconciling | `ChildFailing` | the backoff of the key |
//! | missing, or changed since its spec was applied, and the object is paused | reconciling | `Paused` | (when it changes) |
//! | matches an earlier spec, and the object is paused | from [`Wanted::progress`] | likewise | (when it changes) |
//! | owned by someone else | stalled | `ResourceExists` | 30 s |
//! | refused by the server | stalled | `ChildRefused` | 2 min |
//! | repeatedly reverted by another client | stalled | `Contended` | 2 min |
//!
//! # Guarantees
//! - Each outcome has the health of its row. (test: `each_outcome_maps_to_its_health`)

use std::time::Duration;

use crate::api::ApiResource;
use crate::client::ServerStatus;
use crate::controller::kinds::Wanted;
use crate::controller::kinds::difference::{Difference, describe};
use crate::controller::kinds::health::{ChildHealth, EXISTS_RETRY, UNDONE_RETRY, reason};

/// What became of a child, and its health.
#[derive(Clone, Debug)]
pub struct Applied<O> {
    /// What became of the child.
    pub outcome: ApplyOutcome<O>,
    /// Its health, which the sync reports.
    pub health: ChildHealth,
}

/// The result of applying a child.
#[derive(Clone, Debug)]
pub enum ApplyOutcome<O> {
    /// The child already matches.
    Unchanged(O),
    /// The child was created.
    Created(O),
    /// The child was updated because of these differences.
    Updated(O, Vec<Difference>),
    /// The server accepted the write but stored something else: an admission webhook changed it. Retried soon;
    /// contended if the same differences keep coming back.
    StoredOtherwise {
        /// The child as stored.
        observed: O,
        /// Whether the child was just created.
        is_new: bool,
        /// The differences that the write removed.
        repaired: Vec<Difference>,
    },
    /// Either ours and being deleted (`Some`), or owned by a previous incarnation of the owner and awaiting garbage
    /// collection.
    Terminating(Option<O>),
    /// The owner is gone, being deleted, paused, or has a newer spec: nothing was written.
    OwnerChanged,
    /// The child differs and was left alone, because the owner is paused.
    Paused {
        /// The child, if it exists and is ours.
        observed: Option<O>,
        /// The fields that differ.
        differences: Vec<Difference>,
        /// Whether this spec was applied before, so that another client has changed the child since.
        is_applied: bool,
    },
    /// The name is taken by an object that is not ours.
    ResourceExists {
        /// When to check again.
        requeue_after: Duration,
    },
    /// The server refuses the child.
    Refused {
        /// The child, if it exists.
        observed: Option<O>,
        /// The server's answer.
        status: ServerStatus,
        /// When to retry.
        requeue_after: Duration,
    },
    /// The write failed with an error, and its result is unknown; retried with the backoff of the key.
    Failed {
        /// The cached child, if it exists and is ours.
        observed: Option<O>,
    },
    /// Another client keeps reverting the child.
    Contended {
        /// The child as it is.
        observed: O,
        /// The differences that keep coming back.
        difference: String,
        /// The other differences, which the write removed.
        repaired: Vec<Difference>,
        /// When to retry.
        requeue_after: Duration,
    },
}

// === impl ApplyOutcome ===

impl<O> ApplyOutcome<O> {
    /// Returns the child, if it exists and is ours.
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

    /// Whether the child exists, is ours, and matches.
    #[must_use]
    pub fn is_as_wanted(&self) -> bool {
        matches!(self, Self::Unchanged(_) | Self::Created(_) | Self::Updated(..))
    }

    /// Whether the child was just created.
    #[must_use]
    pub fn was_created(&self) -> bool {
        matches!(self, Self::Created(_) | Self::StoredOtherwise { is_new: true, .. })
    }
}

// === impl ChildHealth ===

impl ChildHealth {
    /// Returns the health of a child of an `owner_kind` after [`Pass::apply`](super::Pass::apply).
    #[must_use]
    pub fn of<W: Wanted>(owner_kind: &str, wanted: &W, applied: &ApplyOutcome<W::Observed>) -> Self {
        let name = wanted.name();
        let child = format!("{} {name:?}", ApiResource::of::<W::Observed>().kind);
        match applied {
            ApplyOutcome::Unchanged(observed)
            | ApplyOutcome::Created(observed)
            | ApplyOutcome::Updated(observed, _) => wanted.progress(observed),
            ApplyOutcome::StoredOtherwise { .. } => Self::reconciling(
                reason::STORED_OTHERWISE,
                format!("The API server or an admission webhook changed {child} while storing it; retrying"),
            )
            .about(&child)
            .requeue_after(UNDONE_RETRY),
            ApplyOutcome::Failed { .. } => Self::failing(&child, "a request to the API server failed"),
            ApplyOutcome::Terminating(_) | ApplyOutcome::OwnerChanged => Self::reconciling(
                reason::WAITING_FOR_DELETION,
                format!("Waiting for the previous {child} to be deleted before creating a new one"),
            )
            .requeue_after(EXISTS_RETRY),
            // A spec that was not applied is not reported on: the child still matches the previous spec.
            ApplyOutcome::Paused { observed: Some(observed), is_applied: false, .. } => {
                wanted.progress(observed)
            }
            ApplyOutcome::Paused { observed: None, .. } => Self::reconciling(
                reason::PAUSED,
                format!("{child} does not exist and is not created while this object is paused"),
            ),
            ApplyOutcome::Paused { differences, .. } => Self::reconciling(
                reason::PAUSED,
                format!(
                    "{child} differs ({}) and is not updated while this object is paused",
                    describe(differences)
                ),
            ),
            ApplyOutcome::ResourceExists { requeue_after } => {
                Self::stalled(reason::RESOURCE_EXISTS, resource_exists(name, owner_kind))
                    .requeue_after(*requeue_after)
                    .about(&child)
            }
            ApplyOutcome::Refused { observed, status, requeue_after } => {
                let refused = Self::refused(&child, status).requeue_after(*requeue_after);
                match observed.as_ref().filter(|_| status.is_immutable()) {
                    Some(_) => refused.with_remedy(&format!(
                        "delete {child} to recreate it; `kubectl delete --cascade=orphan` keeps its Pods"
                    )),
                    None => refused,
                }
            }
            ApplyOutcome::Contended { difference, requeue_after, .. } => Self::stalled(
                reason::CONTENDED,
                format!(
                    "Another client keeps reverting {child} ({difference}); stop it, or pause this object"
                ),
            )
            .requeue_after(*requeue_after)
            .about(&child),
        }
    }
}

/// sample-controller's message, used for the event and the condition.
fn resource_exists(child: &str, owner_kind: &str) -> String {
    format!("Resource {child:?} already exists and is not managed by {owner_kind}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::Cause;
    use crate::controller::Wanted;
    use crate::controller::kinds::deployment::{ObservedDeployment, WantedDeployment};
    use crate::controller::kinds::diff::differences;
    use crate::controller::kinds::health::{HealthPhase, REFUSED_RETRY};

    fn wanted() -> WantedDeployment {
        WantedDeployment { name: "web".to_owned(), replicas: 2, ..WantedDeployment::default() }
    }

    fn observed(replicas: i32, available: i32) -> ObservedDeployment {
        let mut observed = ObservedDeployment::default();
        wanted().write_into(&mut observed);
        let mut live = json!(observed);
        live["metadata"] = json!({"name": "web", "uid": "u", "generation": 1});
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
    fn each_outcome_maps_to_its_health() {
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
            differences: differences(&wanted(), &observed(3, 3)),
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
        let cause = Cause {
            field: "spec.selector".to_owned(),
            message: "Invalid value: {}: field is immutable".to_owned(),
            ..Cause::default()
        };
        let immutable = ApplyOutcome::Refused {
            observed: Some(observed(1, 1)),
            status: ServerStatus { causes: vec![cause], ..ServerStatus::default() },
            requeue_after: REFUSED_RETRY,
        };
        let message = ChildHealth::of("Foo", &wanted(), &immutable).message;
        let remedy =
            "delete Deployment \"web\" to recreate it; `kubectl delete --cascade=orphan` keeps its Pods";
        assert!(message.ends_with(remedy), "{message}");
        let contended = ApplyOutcome::Contended {
            observed: observed(7, 7),
            repaired: Vec::new(),
            difference: "spec.replicas was 7, wanted 2".to_owned(),
            requeue_after: Duration::from_secs(77),
        };
        check(&contended, Stalled, "Contended", 77);
    }
}
