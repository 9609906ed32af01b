//! The sync handler of Myapp.
//!
//! # Guarantees
//! - A converged Myapp sends no requests. (test: `a_converged_myapp_sends_nothing`)
//! - A blocked or failing child does not hold up the others. (test: `taken_child_name_does_not_block_other_children`, `failing_child_is_reported_and_blocks_no_other`)
//! - The Ingress exists only while the spec has a host. (test: `the_ingress_follows_the_host`)

use super::{status, wanted};
use crate::api::myapp::v1::{Myapp, MyappStatus};
use crate::cache::{Lister, Slim};
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::kinds::ingress::ObservedIngress;
use crate::controller::kinds::service::ObservedService;
use crate::controller::{ApplyOutcome, Pass, Reconcile, StopReason};

/// Reconciles the children of a Myapp.
#[derive(Debug)]
pub struct MyappSync {
    pub(super) deployments: Lister<ObservedDeployment>,
    pub(super) services: Lister<ObservedService>,
    pub(super) ingresses: Lister<ObservedIngress>,
}

impl Reconcile for MyappSync {
    type Resource = Slim<Myapp>;

    async fn reconcile(&self, pass: &mut Pass<'_, Slim<Myapp>>) -> Result<MyappStatus, StopReason> {
        // Get
        let wanted = wanted::children(pass.name(), &pass.object().spec);
        // Apply
        let deployment = pass.apply(&wanted.deployment, &self.deployments).await?.outcome;
        pass.apply(&wanted.service, &self.services).await?;
        if let Some(ingress) = &wanted.ingress {
            pass.apply(ingress, &self.ingresses).await?;
        }
        // Prune
        if wanted.ingress.is_none() {
            pass.prune_all(&self.ingresses, "spec.host is not set").await?;
        }
        // Status
        let replicas = match &deployment {
            // A pause holds back the current spec: take the replicas of the former spec.
            ApplyOutcome::Paused { observed: Some(held), is_applied: false, .. } => {
                held.spec.replicas.unwrap_or(1)
            }
            _ => wanted.deployment.replicas,
        };
        Ok(status::status(pass.name(), pass.reports(), replicas, &deployment))
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
