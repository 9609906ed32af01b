//! The sync handler of Myapp.
//!
//! # Guarantees
//! - Nothing to do, nothing sent. (test: `a_converged_myapp_sends_nothing`)
//! - Each child is looked after, whatever became of the others. (test: `a_child_that_is_in_the_way_does_not_hold_up_the_others`, `a_failing_child_holds_up_no_other_and_is_reported`)
//! - Without a host the Ingress goes. (test: `the_ingress_follows_the_host`)

use super::{status, wanted};
use crate::api::myapp::v1::{Myapp, MyappStatus};
use crate::cache::Lister;
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::kinds::ingress::ObservedIngress;
use crate::controller::kinds::service::ObservedService;
use crate::controller::{ApplyOutcome, Reconcile, ReconcileContext, StopReason};

/// Makes the children of a Myapp as the Myapp wants them.
#[derive(Debug)]
pub struct MyappSync {
    pub(super) deployments: Lister<ObservedDeployment>,
    pub(super) services: Lister<ObservedService>,
    pub(super) ingresses: Lister<ObservedIngress>,
}

impl Reconcile for MyappSync {
    type Resource = Myapp;

    async fn reconcile(&self, ctx: &mut ReconcileContext<'_, Myapp>) -> Result<MyappStatus, StopReason> {
        let wanted = wanted::children(ctx.object());
        let deployment = ctx.apply(&wanted.deployment, &self.deployments).await?;
        ctx.apply(&wanted.service, &self.services).await?;
        match &wanted.ingress {
            Some(ingress) => {
                ctx.apply(ingress, &self.ingresses).await?;
            }
            None => ctx.prune_all(&self.ingresses, "spec.host is empty now").await?,
        }
        let replicas = match &deployment {
            // Those of the former spec: the present one waits for the end of a pause.
            ApplyOutcome::Paused { observed: Some(held), is_applied: false, .. } => {
                held.spec.replicas.unwrap_or(1)
            }
            _ => wanted.deployment.replicas,
        };
        Ok(status::status(ctx.name(), ctx.reports(), replicas, &deployment))
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
