//! The status of a Foo: a pure function of the Foo and what became of its Deployment.
//!
//! # Guarantees
//! - The numbers are those of what runs, whatever became of the last write. (test: `the_numbers_are_those_observed`)
//! - While there is no Deployment of the present name, what runs are those of former names. (test: `while_the_new_name_is_taken_the_old_one_is_counted`)

use std::sync::Arc;

use super::wanted;
use crate::api::labels;
use crate::api::samplecontroller::v1alpha1::FooStatus;
use crate::controller::ApplyOutcome;
use crate::controller::kinds::deployment::{ObservedDeployment, ObservedStatus};

common_status!(FooStatus);

/// The status, but for what all kinds have in common; `former` are the Foo's Deployments of other names, whose Pods
/// the selector finds as well.
pub(super) fn status(
    name: &str,
    deployment: &ApplyOutcome<ObservedDeployment>,
    former: &[Arc<ObservedDeployment>],
) -> FooStatus {
    let sum = |number: fn(&ObservedStatus) -> i32| match deployment.observed() {
        Some(observed) => number(&observed.status),
        None => former.iter().map(|former| number(&former.status)).sum(),
    };
    FooStatus {
        available_replicas: sum(|status| status.available_replicas),
        replicas: sum(|status| status.replicas),
        selector: labels::to_selector(&wanted::selector(name)),
        ..FooStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ServerStatus;
    use crate::controller::kinds::health::{EXISTS_RETRY, REFUSED_RETRY};
    use serde_json::json;

    /// A refused change does not make Pods that run look gone.
    #[test]
    fn the_numbers_are_those_observed() {
        let live = json!({"status": {"replicas": 3, "availableReplicas": 2}});
        let deployment: ObservedDeployment = serde_json::from_value(live).unwrap();
        for applied in [
            ApplyOutcome::Refused {
                observed: Some(deployment.clone()),
                status: ServerStatus::default(),
                requeue_after: REFUSED_RETRY,
            },
            ApplyOutcome::Terminating(Some(deployment.clone())),
            ApplyOutcome::StoredOtherwise { observed: deployment, is_new: false, repaired: Vec::new() },
        ] {
            let status = status("one", &applied, &[Arc::default()]);
            assert_eq!((status.replicas, status.available_replicas), (3, 2), "{applied:?}");
        }
        assert_eq!(
            status("one", &ApplyOutcome::ResourceExists { requeue_after: EXISTS_RETRY }, &[]).replicas,
            0
        );
    }
}
