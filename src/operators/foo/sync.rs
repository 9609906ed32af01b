//! The sync handler of Foo.
//!
//! Mirrors sample-controller `controller.go` (`syncHandler`), step by step:
//!
//! | step of `syncHandler` | here |
//! |---|---|
//! | `foosLister.Get`; not found: nothing to do | the frame: [`reconciler`](crate::controller::reconcile::reconciler) |
//! | `deploymentName` must be specified | the CRD's schema |
//! | `deploymentsLister.Get`; not found: `Deployments.Create` | **apply**: [`ReconcileContext::apply`] |
//! | not `IsControlledBy`: event `ErrResourceExists` | apply finds it, the frame records it |
//! | other `replicas`: `Deployments.Update` | apply: one patch of every field that differs |
//! | (a Deployment under a former name stays) | **prune**: [`ReconcileContext::prune_others`] |
//! | `updateFooStatus` | **status**: what `reconcile` returns, written by the frame when it differs |
//! | event `Synced`, in each pass | the frame, when the Foo becomes Ready |
//!
//! # Guarantees
//! - Nothing to do, nothing sent. (test: `a_converged_foo_sends_nothing`)
//! - The old Deployment goes only after the new one is there. (test: `a_new_name_creates_first_and_deletes_after`)
//! - While the new name is taken the old Deployment stays. (test: `while_the_new_name_is_taken_the_old_one_stays`)
//! - A Foo that is being deleted is left to the garbage collector. (test: `a_foo_being_deleted_is_left_alone`)

use std::sync::Arc;

use super::{status, wanted};
use crate::api::samplecontroller::v1alpha1::{Foo, FooStatus};
use crate::cache::{Cached, Lister, Object};
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::{Reconcile, ReconcileContext, StopReason};

/// Makes the Deployment of a Foo as the Foo wants it.
#[derive(Debug)]
pub struct FooSync {
    pub(super) deployments: Lister<ObservedDeployment>,
}

impl Reconcile for FooSync {
    type Resource = Foo;

    const SYNCED: Option<(&'static str, &'static str)> = Some(("Synced", "Foo synced successfully"));

    async fn reconcile(&self, ctx: &mut ReconcileContext<'_, Foo>) -> Result<FooStatus, StopReason> {
        let wanted = wanted::deployment(ctx.object());
        let deployment = ctx.apply(&wanted, &self.deployments).await?;
        let why = format!("spec.deploymentName is {:?} now", wanted.name);
        ctx.prune_others(&wanted, &deployment, &self.deployments, &why).await?;
        Ok(status::status(ctx.name(), &deployment, &self.former(ctx)))
    }
}

impl FooSync {
    /// The Deployments of this Foo that run under whatever name.
    fn former(&self, ctx: &ReconcileContext<'_, Foo>) -> Vec<Arc<ObservedDeployment>> {
        let all = self.deployments.controlled_by(&ctx.owner().uid);
        all.iter().filter_map(Cached::readable).filter(|one| !one.is_deleting()).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
