//! The status of a Foo: a pure function of the Foo and its Deployments.
//!
//! # Guarantees
//! - Replica counts describe the running Deployment, even if the last write failed. (test: `replica_counts_are_those_observed`)
//! - While no Deployment has the current name, Deployments of former names are counted. (test: `old_deployment_counts_while_new_name_is_taken`)

use std::sync::Arc;

use super::wanted;
use crate::api::labels;
use crate::api::samplecontroller::v1alpha1::FooStatus;
use crate::controller::ApplyOutcome;
use crate::controller::kinds::deployment::{ObservedDeployment, ObservedStatus};

crate::common_status!(FooStatus, other);

/// Returns the status without the common fields. `former` are the Foo's Deployments under other names, whose Pods the
/// selector matches, too.
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

    /// A refused change does not hide running Pods.
    #[test]
    fn replica_counts_are_those_observed() {
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
