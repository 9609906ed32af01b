//! The status of a Foo: a pure function of the Foo and what became of its Deployment.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::wanted;
use crate::api::conditions::{ConditionSet, READY, RECONCILING, STALLED};
use crate::api::labels;
use crate::api::samplecontroller::v1alpha1::FooStatus;
use crate::client::ServerStatus;
use crate::controller::Ensured;
use crate::controller::deployment::ObservedDeployment;

/// Reasons of the Ready condition.
pub(super) mod reason {
    pub(crate) const AVAILABLE: &str = "Available";
    pub(crate) const PROGRESSING: &str = "Progressing";
    pub(crate) const WAITING_FOR_DELETION: &str = "WaitingForDeletion";
    pub(crate) const RESOURCE_EXISTS: &str = "ResourceExists";
    pub(crate) const CHILD_REFUSED: &str = "ChildRefused";
    pub(crate) const CONTENDED: &str = "Contended";
    pub(crate) const UNREADABLE: &str = "Unreadable";
}

/// The Foo that a status is for.
pub(super) struct Subject<'a> {
    pub(super) name: &'a str,
    pub(super) deployment_name: &'a str,
    pub(super) replicas: i32,
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
    let name = foo.deployment_name;
    match ensured {
        Ensured::Unchanged(d) | Ensured::Created(d) | Ensured::Updated(d, _) => rollout(foo, d),
        Ensured::Leaving => Summary {
            phase: Phase::Reconciling,
            reason: reason::WAITING_FOR_DELETION,
            message: format!("Deployment {name:?} of an earlier time is being deleted; a new one follows"),
        },
        Ensured::ResourceExists => {
            Summary { phase: Phase::Stalled, reason: reason::RESOURCE_EXISTS, message: resource_exists(name) }
        }
        Ensured::Refused(status) => {
            Summary { phase: Phase::Stalled, reason: reason::CHILD_REFUSED, message: refused(name, status) }
        }
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
    let progress =
        format!("{} of {} replicas are available", deployment.status.available_replicas, foo.replicas);
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

fn refused(name: &str, status: &ServerStatus) -> String {
    let causes: Vec<String> =
        status.causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    let cause = if causes.is_empty() { status.message.clone() } else { causes.join("; ") };
    format!("The API server refuses Deployment {name:?}: {cause}")
}

/// The next status.
pub(super) fn status(
    foo: &Subject<'_>,
    summary: &Summary,
    ensured: &Ensured<ObservedDeployment>,
    now: Timestamp,
) -> FooStatus {
    let numbers = match ensured {
        Ensured::Unchanged(d) | Ensured::Created(d) | Ensured::Updated(d, _) => Some(&d.status),
        Ensured::Contended { observed, .. } => Some(&observed.status),
        Ensured::Leaving | Ensured::ResourceExists | Ensured::Refused(_) => None,
    };
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
    use serde_json::json;

    fn observed(wanted: i32, available: i32) -> ObservedDeployment {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "generation": 1},
            "spec": {"replicas": wanted},
            "status": {"observedGeneration": 1, "replicas": wanted, "updatedReplicas": wanted,
                "availableReplicas": available},
        }))
        .unwrap()
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
        let foo =
            Subject { name: "one", deployment_name: "web", replicas: 2, generation: 4, previous: &previous };
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
        check(&Ensured::Leaving, false, true, false, "WaitingForDeletion");
        check(&Ensured::ResourceExists, false, false, true, "ResourceExists");
        check(&Ensured::Refused(ServerStatus::default()), false, false, true, "ChildRefused");
        let contended = Ensured::Contended {
            observed: observed(7, 7),
            difference: "spec.replicas was 7, wanted 2".to_owned(),
            again_in: std::time::Duration::ZERO,
        };
        check(&contended, false, false, true, "Contended");
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
            refused("web", &status),
            "The API server refuses Deployment \"web\": spec.replicas: must be less than 5"
        );
    }
}
