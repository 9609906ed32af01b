//! The sync handler of Foo.
//!
//! Mirrors sample-controller `controller.go` (`syncHandler`); what is not Foo's own there is in
//! [`reconciler`](crate::controller::reconciler).
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
use crate::controller::deployment::ObservedDeployment;
use crate::controller::{Halt, Reconcile, Turn};

/// Makes the Deployment of a Foo as the Foo wants it.
#[derive(Debug)]
pub struct FooSync {
    pub(super) deployments: Lister<ObservedDeployment>,
}

impl Reconcile for FooSync {
    type Resource = Foo;

    const SYNCED: Option<(&'static str, &'static str)> = Some(("Synced", "Foo synced successfully"));

    async fn reconcile(&self, turn: &mut Turn<'_, Foo>) -> Result<FooStatus, Halt> {
        let wanted = wanted::deployment(turn.object());
        let deployment = turn.ensure(&wanted, &self.deployments).await?;
        let why = format!("spec.deploymentName is {:?} now", wanted.name);
        turn.replace_others(&wanted, &deployment, &self.deployments, &why).await?;
        Ok(status::status(turn.name(), &deployment, &self.former(turn)))
    }
}

impl FooSync {
    /// The Deployments of this Foo that run under whatever name.
    fn former(&self, turn: &Turn<'_, Foo>) -> Vec<Arc<ObservedDeployment>> {
        let all = self.deployments.controlled_by(&turn.owner().uid);
        all.iter().filter_map(Cached::readable).filter(|one| !one.is_deleting()).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
