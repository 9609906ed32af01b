//! The sync handler of Foo.
//!
//! Mirrors sample-controller `controller.go` (`syncHandler`), step by step:
//!
//! | step of `syncHandler` | here |
//! |---|---|
//! | `foosLister.Get`; not found: nothing to do | the shared [`Reconciler`](crate::controller::Reconciler) |
//! | `deploymentName` must be specified | the CRD's schema |
//! | `deploymentsLister.Get`; not found: `Deployments.Create` | **apply**: [`Pass::apply`] |
//! | not `IsControlledBy`: event `ErrResourceExists` | apply reports it, the reconciler records the event |
//! | other `replicas`: `Deployments.Update` | apply: one patch with every field that differs |
//! | (a Deployment under a former name stays) | **prune**: [`Pass::prune_others`] |
//! | `updateFooStatus` | **status**: returned by `reconcile`, written by the reconciler if it differs |
//! | event `Synced`, in each sync | the reconciler, when the Foo becomes Ready |
//!
//! # Guarantees
//! - A converged Foo sends no requests. (test: `a_converged_foo_sends_nothing`)
//! - A rename creates the new Deployment before it deletes the old one. (test: `rename_creates_new_deployment_before_deleting_old`)
//! - The old Deployment stays while the new name is taken. (test: `old_deployment_stays_while_new_name_is_taken`)
//! - A Foo that is being deleted is left to the garbage collector. (test: `deleted_object_without_finalizer_is_left_alone`)

use std::sync::Arc;

use super::{status, wanted};
use crate::api::samplecontroller::v1alpha1::{Foo, FooStatus};
use crate::cache::{Cached, Lister, Object, Slim};
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::{Pass, Reconcile, StopReason};

/// Reconciles the Deployment of a Foo.
#[derive(Debug)]
pub struct FooSync {
    pub(super) deployments: Lister<ObservedDeployment>,
}

impl Reconcile for FooSync {
    type Resource = Slim<Foo>;

    const SYNCED: Option<(&'static str, &'static str)> = Some(("Synced", "Foo synced successfully"));

    async fn reconcile(&self, pass: &mut Pass<'_, Slim<Foo>>) -> Result<FooStatus, StopReason> {
        // Get
        let wanted = wanted::deployment(pass.name(), &pass.object().spec);
        // Apply
        let deployment = pass.apply(&wanted, &self.deployments).await?.outcome;
        // Prune
        let why = format!("spec.deploymentName is now {:?}", wanted.name);
        pass.prune_others(&wanted, &deployment, &self.deployments, &why).await?;
        // Status
        Ok(status::status(pass.name(), &deployment, &self.former(pass)))
    }
}

impl FooSync {
    /// Returns this Foo's Deployments under any name, except those being deleted.
    fn former(&self, pass: &Pass<'_, Slim<Foo>>) -> Vec<Arc<ObservedDeployment>> {
        let all = self.deployments.controlled_by(&pass.owner().uid);
        all.iter().filter_map(Cached::readable).filter(|one| !one.is_deleting()).cloned().collect()
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
