//! The status of an AppService: the Deployment's counts and conditions, and the common conditions.

use super::wanted;
use crate::api::appservice::v1alpha1::AppServiceStatus;
use crate::api::labels;
use crate::controller::ApplyOutcome;
use crate::controller::kinds::deployment::ObservedDeployment;

/// The conditions that are copied from the Deployment.
const SHOWN: [&str; 3] = ["Available", "Progressing", "ReplicaFailure"];

crate::common_status!(AppServiceStatus, other);

pub(super) fn status(name: &str, deployment: &ApplyOutcome<ObservedDeployment>) -> AppServiceStatus {
    let numbers = deployment.observed().map(|observed| observed.status.clone()).unwrap_or_default();
    AppServiceStatus {
        replicas: numbers.replicas,
        updated_replicas: numbers.updated_replicas,
        ready_replicas: numbers.ready_replicas,
        available_replicas: numbers.available_replicas,
        unavailable_replicas: numbers.unavailable_replicas,
        terminating_replicas: numbers.terminating_replicas,
        collision_count: numbers.collision_count,
        selector: labels::to_selector(&wanted::selector(name)),
        ..AppServiceStatus::default()
    }
}

/// Status, reason and message of a condition.
type Shown = (bool, String, String);

/// Returns the Deployment's conditions to copy; `None` for a condition that is absent or `Unknown`.
pub(super) fn of_the_deployment(
    deployment: &ApplyOutcome<ObservedDeployment>,
) -> [(&'static str, Option<Shown>); 3] {
    let conditions =
        deployment.observed().map(|observed| &observed.status.conditions[..]).unwrap_or_default();
    SHOWN.map(|type_| {
        let found = conditions
            .iter()
            .find(|condition| condition.type_ == type_ && condition.status != "Unknown")
            .map(|condition| {
                // A condition must have a reason.
                let reason = if condition.reason.is_empty() { type_ } else { &condition.reason };
                (condition.status == "True", reason.to_owned(), condition.message.to_string())
            });
        (type_, found)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_copies_deployment_counts_and_conditions() {
        let live = json!({"status": {"replicas": 3, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1,
        "unavailableReplicas": 2, "terminatingReplicas": 1, "collisionCount": 4,
        "conditions": [
            {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "m"},
            {"type": "Progressing", "status": "Unknown", "reason": "DeploymentPaused", "message": ""},
            {"type": "SomethingElse", "status": "True", "reason": "x", "message": ""},
        ]}});
        let applied = ApplyOutcome::Unchanged(serde_json::from_value::<ObservedDeployment>(live).unwrap());
        let status = status("web", &applied);
        assert_eq!([status.replicas, status.updated_replicas, status.ready_replicas], [3, 2, 1]);
        assert_eq!([status.available_replicas, status.unavailable_replicas], [1, 2]);
        assert_eq!((status.terminating_replicas, status.collision_count), (Some(1), Some(4)));
        let available = (false, "MinimumReplicasUnavailable".to_owned(), "m".to_owned());
        assert_eq!(
            of_the_deployment(&applied),
            [("Available", Some(available)), ("Progressing", None), ("ReplicaFailure", None)]
        );
    }
}
