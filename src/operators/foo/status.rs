//! The status of a Foo: a pure function of the Foo and what became of its Deployment.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::wanted;
use crate::api::conditions::{ConditionSet, READY, RECONCILING, STALLED};
use crate::api::labels;
use crate::api::samplecontroller::v1alpha1::FooStatus;
use crate::client::ServerStatus;
use crate::controller::Ensured;
use crate::controller::deployment::{ObservedDeployment, WantedDeployment};

/// Reasons of the Ready condition.
pub(super) mod reason {
    pub(crate) const AVAILABLE: &str = "Available";
    pub(crate) const PROGRESSING: &str = "Progressing";
    pub(crate) const STORED_OTHERWISE: &str = "StoredOtherwise";
    pub(crate) const WAITING_FOR_DELETION: &str = "WaitingForDeletion";
    pub(crate) const RESOURCE_EXISTS: &str = "ResourceExists";
    pub(crate) const CHILD_REFUSED: &str = "ChildRefused";
    pub(crate) const CONTENDED: &str = "Contended";
    pub(crate) const UNREADABLE: &str = "Unreadable";
}

/// The Foo that a status is for.
pub(super) struct Subject<'a> {
    pub(super) name: &'a str,
    pub(super) wanted: &'a WantedDeployment,
    pub(super) generation: i64,
    pub(super) previous: &'a FooStatus,
}

/// Where a Foo is on its way.
enum Phase {
    Ready,
    Reconciling,
    Stalled,
}

/// What the Ready condition says.
pub(super) struct Summary {
    phase: Phase,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The message of the original, for event and condition.
pub(super) fn resource_exists(deployment_name: &str) -> String {
    format!("Resource {deployment_name:?} already exists and is not managed by Foo")
}

pub(super) fn summary(foo: &Subject<'_>, ensured: &Ensured<ObservedDeployment>) -> Summary {
    let name = foo.wanted.name.as_str();
    match ensured {
        Ensured::Unchanged(d) | Ensured::Created(d) | Ensured::Updated(d, _) => rollout(foo, d),
        Ensured::Undone(_) => Summary {
            phase: Phase::Reconciling,
            reason: reason::STORED_OTHERWISE,
            message: format!(
                "The API server stored Deployment {name:?} otherwise than written; trying again"
            ),
        },
        Ensured::Leaving(_) | Ensured::OwnerMovedOn => Summary {
            phase: Phase::Reconciling,
            reason: reason::WAITING_FOR_DELETION,
            message: format!("Deployment {name:?} of an earlier time is being deleted; a new one follows"),
        },
        Ensured::ResourceExists => {
            Summary { phase: Phase::Stalled, reason: reason::RESOURCE_EXISTS, message: resource_exists(name) }
        }
        Ensured::Refused { status, .. } => refused(&format!("Deployment {name:?}"), status),
        Ensured::Contended { difference, .. } => Summary {
            phase: Phase::Stalled,
            reason: reason::CONTENDED,
            message: format!(
                "Somebody changes Deployment {name:?} back each time ({difference}): find out who, and stop one of us"
            ),
        },
    }
}

fn rollout(foo: &Subject<'_>, deployment: &ObservedDeployment) -> Summary {
    let available = deployment.status.available_replicas;
    let progress = format!("{available} of {} replicas are available", foo.wanted.replicas);
    if deployment.is_available() {
        return Summary { phase: Phase::Ready, reason: reason::AVAILABLE, message: progress };
    }
    let failure =
        deployment.condition("ReplicaFailure", "True").or(deployment.condition("Progressing", "False"));
    let message = match failure {
        Some(condition) => format!("{progress}; {}: {}", condition.reason, condition.message),
        None => progress,
    };
    Summary { phase: Phase::Reconciling, reason: reason::PROGRESSING, message }
}

/// What is said of something that the server refuses.
pub(super) fn refused(what: &str, status: &ServerStatus) -> Summary {
    let causes: Vec<String> =
        status.causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    let cause = if causes.is_empty() { status.message.clone() } else { causes.join("; ") };
    Summary {
        phase: Phase::Stalled,
        reason: reason::CHILD_REFUSED,
        message: format!("The API server refuses {what}: {cause}"),
    }
}

/// The next status.
pub(super) fn status(
    foo: &Subject<'_>,
    summary: &Summary,
    ensured: &Ensured<ObservedDeployment>,
    now: Timestamp,
) -> FooStatus {
    let numbers = match ensured {
        Ensured::Unchanged(observed)
        | Ensured::Created(observed)
        | Ensured::Updated(observed, _)
        | Ensured::Undone(observed)
        | Ensured::Contended { observed, .. } => Some(observed),
        Ensured::Leaving(observed) | Ensured::Refused { observed, .. } => observed.as_ref(),
        Ensured::ResourceExists | Ensured::OwnerMovedOn => None,
    };
    let numbers = numbers.map(|observed| &observed.status);
    FooStatus {
        available_replicas: numbers.map_or(0, |status| status.available_replicas),
        replicas: numbers.map_or(0, |status| status.replicas),
        selector: labels::to_selector(&wanted::selector(foo.name)),
        observed_generation: Some(foo.generation),
        conditions: conditions(&foo.previous.conditions, foo.generation, summary, now),
    }
}

/// The conditions of a Foo that does not decode.
pub(super) fn unreadable(
    previous: &[Condition],
    generation: i64,
    error: &str,
    now: Timestamp,
) -> Vec<Condition> {
    let summary = Summary {
        phase: Phase::Stalled,
        reason: reason::UNREADABLE,
        message: format!(
            "The stored object does not decode; its Deployment is left as it is. Correct: {error}"
        ),
    };
    conditions(previous, generation, &summary, now)
}

fn conditions(previous: &[Condition], generation: i64, summary: &Summary, now: Timestamp) -> Vec<Condition> {
    let Summary { phase, reason, message } = summary;
    let mut set = ConditionSet::new(previous, Some(generation), now);
    set.set(READY, matches!(phase, Phase::Ready), reason, message);
    set.set(RECONCILING, matches!(phase, Phase::Reconciling), reason, message);
    set.set(STALLED, matches!(phase, Phase::Stalled), reason, message);
    set.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::is_true;
    use crate::api::samplecontroller::v1alpha1::{Foo, FooSpec};
    use crate::controller::Wanted;
    use serde_json::json;

    fn wanted() -> WantedDeployment {
        wanted::deployment(&Foo::new("one", FooSpec { deployment_name: "web".to_owned(), replicas: 2 }))
    }

    fn observed(replicas: i32, available: i32) -> ObservedDeployment {
        let mut live = json!({"metadata": {"name": "web", "generation": 1}});
        wanted().apply(&mut live);
        live["spec"]["replicas"] = json!(replicas);
        live["status"] = json!({"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "availableReplicas": available});
        serde_json::from_value(live).unwrap()
    }

    #[track_caller]
    fn check(
        ensured: &Ensured<ObservedDeployment>,
        ready: bool,
        reconciling: bool,
        stalled: bool,
        reason: &str,
    ) {
        let previous = FooStatus::default();
        let wanted = wanted();
        let foo = Subject { name: "one", wanted: &wanted, generation: 4, previous: &previous };
        let summary = summary(&foo, ensured);
        let status = status(&foo, &summary, ensured, Timestamp::UNIX_EPOCH);
        let found = [READY, RECONCILING, STALLED].map(|type_| is_true(&status.conditions, type_));
        assert_eq!(found, [ready, reconciling, stalled], "{reason}");
        assert_eq!(summary.reason, reason);
        assert_eq!(status.observed_generation, Some(4));
        assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(4)));
    }

    /// The table of the module, row by row.
    #[test]
    fn each_state_of_the_deployment_has_its_conditions() {
        check(&Ensured::Unchanged(observed(2, 2)), true, false, false, "Available");
        check(&Ensured::Unchanged(observed(2, 1)), false, true, false, "Progressing");
        check(&Ensured::Created(ObservedDeployment::default()), false, true, false, "Progressing");
        check(&Ensured::Undone(observed(7, 7)), false, true, false, "StoredOtherwise");
        check(&Ensured::Leaving(None), false, true, false, "WaitingForDeletion");
        check(&Ensured::ResourceExists, false, false, true, "ResourceExists");
        let refused = Ensured::Refused { observed: Some(observed(1, 1)), status: ServerStatus::default() };
        check(&refused, false, false, true, "ChildRefused");
        let contended = Ensured::Contended {
            observed: observed(7, 7),
            difference: "spec.replicas was 7, wanted 2".to_owned(),
            again_in: std::time::Duration::ZERO,
        };
        check(&contended, false, false, true, "Contended");
    }

    /// A refused change does not make Pods that run look gone.
    #[test]
    fn the_numbers_are_those_observed() {
        let previous = FooStatus::default();
        let wanted = wanted();
        let foo = Subject { name: "one", wanted: &wanted, generation: 4, previous: &previous };
        let deployment = observed(3, 2);
        for ensured in [
            Ensured::Refused { observed: Some(deployment.clone()), status: ServerStatus::default() },
            Ensured::Leaving(Some(deployment.clone())),
            Ensured::Undone(deployment),
        ] {
            let status = status(&foo, &summary(&foo, &ensured), &ensured, Timestamp::UNIX_EPOCH);
            assert_eq!((status.replicas, status.available_replicas), (3, 2), "{ensured:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_field() {
        let cause = crate::client::Cause {
            field: "spec.replicas".to_owned(),
            message: "must be less than 5".to_owned(),
            ..Default::default()
        };
        let status = ServerStatus { causes: vec![cause], ..ServerStatus::default() };
        assert_eq!(
            refused("Deployment \"web\"", &status).message,
            "The API server refuses Deployment \"web\": spec.replicas: must be less than 5"
        );
    }
}
