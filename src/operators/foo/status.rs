//! The status of a Foo: a pure function of the Foo and what became of its Deployment.

use super::wanted;
use crate::api::labels;
use crate::api::samplecontroller::v1alpha1::FooStatus;
use crate::controller::Ensured;
use crate::controller::deployment::ObservedDeployment;

common_status!(FooStatus);

/// The numbers are those observed, whatever became of the last write.
pub(super) fn status(name: &str, deployment: &Ensured<ObservedDeployment>) -> FooStatus {
    let observed = deployment.observed().map(|observed| &observed.status);
    FooStatus {
        available_replicas: observed.map_or(0, |status| status.available_replicas),
        replicas: observed.map_or(0, |status| status.replicas),
        selector: labels::to_selector(&wanted::selector(name)),
        ..FooStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ServerStatus;
    use serde_json::json;

    /// A refused change does not make Pods that run look gone.
    #[test]
    fn the_numbers_are_those_observed() {
        let live = json!({"status": {"replicas": 3, "availableReplicas": 2}});
        let deployment: ObservedDeployment = serde_json::from_value(live).unwrap();
        for ensured in [
            Ensured::Refused { observed: Some(deployment.clone()), status: ServerStatus::default() },
            Ensured::Leaving(Some(deployment.clone())),
            Ensured::Undone { observed: deployment, is_new: false },
        ] {
            let status = status("one", &ensured);
            assert_eq!((status.replicas, status.available_replicas), (3, 2), "{ensured:?}");
        }
        assert_eq!(status("one", &Ensured::ResourceExists).replicas, 0);
    }
}
