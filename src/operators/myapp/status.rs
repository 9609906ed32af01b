//! The status of a Myapp: a pure function of its children.
//!
//! | phase | when |
//! |---|---|
//! | `Failed` | the server refuses a child, or the Deployment reports a failed rollout |
//! | `Pending` | there is no Deployment, or it is rolling out and no Pod is ready |
//! | `NotReady` | otherwise, if fewer Pods are ready than wanted |
//! | `Running` | all wanted Pods are ready |

use super::wanted;
use crate::api::labels;
use crate::api::myapp::v1::{MyappPhase, MyappStatus};
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::kinds::health::reason;
use crate::controller::{ApplyOutcome, ChildHealth};

crate::common_status!(MyappStatus, other);

pub(super) fn status(
    name: &str,
    reports: &[ChildHealth],
    wanted_replicas: i32,
    deployment: &ApplyOutcome<ObservedDeployment>,
) -> MyappStatus {
    let observed = deployment.observed();
    let numbers = observed.map(|observed| &observed.status);
    let selector = wanted::selector(name);
    MyappStatus {
        replicas: numbers.map_or(0, |status| status.replicas),
        ready_replicas: numbers.map_or(0, |status| status.ready_replicas),
        status: Some(word(reports, wanted_replicas, observed)),
        selector: labels::to_selector(&selector),
        label_selector: selector,
        ..MyappStatus::default()
    }
}

fn word(reports: &[ChildHealth], wanted: i32, deployment: Option<&ObservedDeployment>) -> MyappPhase {
    let is_refused = reports.iter().any(|health| health.reason == reason::CHILD_REFUSED);
    let Some(deployment) = deployment else {
        return if is_refused { MyappPhase::Failed } else { MyappPhase::Pending };
    };
    if is_refused || deployment.has_failed() {
        return MyappPhase::Failed;
    }
    let ready = deployment.status.ready_replicas;
    if ready == 0 && deployment.is_rolling_out() {
        MyappPhase::Pending
    } else if ready < wanted {
        MyappPhase::NotReady
    } else {
        MyappPhase::Running
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(ready: i32, available: i32, condition: (&str, &str, &str)) -> ObservedDeployment {
        let (type_, status, reason) = condition;
        serde_json::from_value(json!({
            "metadata": {"generation": 2},
            "spec": {"replicas": 2},
            "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": ready,
                "availableReplicas": available,
                "conditions": [{"type": type_, "status": status, "reason": reason}]},
        }))
        .unwrap()
    }

    #[test]
    fn each_situation_has_its_phase() {
        let fine = ("Progressing", "True", "NewReplicaSetAvailable");
        let rolling = ("Progressing", "True", "ReplicaSetUpdated");
        let mut unseen = deployment(0, 0, fine);
        unseen.metadata.generation = 3;
        let refused = [ChildHealth::stalled(reason::CHILD_REFUSED, "")];
        let deadline = ("Progressing", "False", "ProgressDeadlineExceeded");
        let failure = ("ReplicaFailure", "True", "FailedCreate");
        for (reports, deployment, expected) in [
            (&[][..], None, MyappPhase::Pending),
            (&refused, None, MyappPhase::Failed),
            (&refused, Some(deployment(2, 2, fine)), MyappPhase::Failed),
            (&[], Some(deployment(0, 0, rolling)), MyappPhase::Pending),
            (&[], Some(unseen), MyappPhase::Pending),
            (&[], Some(deployment(0, 0, fine)), MyappPhase::NotReady),
            (&[], Some(deployment(1, 1, rolling)), MyappPhase::NotReady),
            (&[], Some(deployment(1, 1, fine)), MyappPhase::NotReady),
            (&[], Some(deployment(2, 2, fine)), MyappPhase::Running),
            (&[], Some(deployment(1, 1, deadline)), MyappPhase::Failed),
            (&[], Some(deployment(1, 1, failure)), MyappPhase::Failed),
        ] {
            assert_eq!(word(reports, 2, deployment.as_ref()), expected, "{reports:?} {deployment:?}");
        }
    }
}
