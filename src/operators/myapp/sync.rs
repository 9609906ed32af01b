//! The sync handler of Myapp.
//!
//! # Guarantees
//! - Nothing to do, nothing sent. (test: `a_converged_myapp_sends_nothing`)
//! - Each child is looked after, whatever became of the others. (test: `a_child_that_is_in_the_way_does_not_hold_up_the_others`, `a_child_that_fails_holds_up_no_other_and_is_told_when_it_lasts`)
//! - Without a host the Ingress goes. (test: `the_ingress_follows_the_host`)

use super::{status, wanted};
use crate::api::myapp::v1::{Myapp, MyappStatus};
use crate::cache::Lister;
use crate::controller::deployment::ObservedDeployment;
use crate::controller::ingress::ObservedIngress;
use crate::controller::service::ObservedService;
use crate::controller::{Ensured, Halt, Reconcile, Turn};

/// Makes the children of a Myapp as the Myapp wants them.
#[derive(Debug)]
pub struct MyappSync {
    pub(super) deployments: Lister<ObservedDeployment>,
    pub(super) services: Lister<ObservedService>,
    pub(super) ingresses: Lister<ObservedIngress>,
}

impl Reconcile for MyappSync {
    type Resource = Myapp;

    async fn reconcile(&self, turn: &mut Turn<'_, Myapp>) -> Result<MyappStatus, Halt> {
        let wanted = wanted::children(turn.object());
        let deployment = turn.ensure(&wanted.deployment, &self.deployments).await?;
        turn.ensure(&wanted.service, &self.services).await?;
        match &wanted.ingress {
            Some(ingress) => {
                turn.ensure(ingress, &self.ingresses).await?;
            }
            None => turn.delete_all(&self.ingresses, "spec.host is empty now").await?,
        }
        let replicas = match &deployment {
            // Those of the former spec: the present one waits for the end of a pause.
            Ensured::Held { observed: Some(held), is_applied: false, .. } => held.spec.replicas.unwrap_or(1),
            _ => wanted.deployment.replicas,
        };
        Ok(status::status(turn.name(), turn.findings(), replicas, &deployment))
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
