//! The sync handler of AppService.
//!
//! # Guarantees
//! - A converged AppService sends no requests. (test: `a_converged_appservice_sends_nothing`)
//! - The Service exists only while the spec has ports. (test: `the_service_follows_the_ports`)
//! - The applied spec is recorded only when it changes. (test: `the_applied_spec_is_recorded_when_it_changes`)
//! - A failed write of the annotation does not affect later syncs. (test: `a_conflict_on_the_annotation_breaks_nothing`)
//! - An AppService becomes Ready even if the annotation can never be written. (test: `failing_annotation_write_does_not_block_ready`)
//! - A taken node port sets a condition, which clears once the port is free. (test: `a_refused_service_is_reported_and_heals`)

use super::{APPLIED_SPEC, status, wanted};
use crate::api::appservice::v1alpha1::{AppService, AppServiceStatus};
use crate::cache::{Lister, Slim};
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::kinds::service::ObservedService;
use crate::controller::{Pass, Reconcile, StopReason};

/// Reconciles the children of an AppService.
#[derive(Debug)]
pub struct AppServiceSync {
    pub(super) deployments: Lister<ObservedDeployment>,
    pub(super) services: Lister<ObservedService>,
}

impl Reconcile for AppServiceSync {
    type Resource = Slim<AppService>;

    async fn reconcile(&self, pass: &mut Pass<'_, Slim<AppService>>) -> Result<AppServiceStatus, StopReason> {
        // Get
        let wanted = wanted::children(pass.name(), &pass.object().spec);
        // Apply
        let deployment = pass.apply(&wanted.deployment, &self.deployments).await?.outcome;
        if let Some(service) = &wanted.service {
            pass.apply(service, &self.services).await?;
        }
        // Prune
        if wanted.service.is_none() {
            pass.prune_all(&self.services, "spec.ports is empty").await?;
        }
        // Status
        for (type_, condition) in status::of_the_deployment(&deployment) {
            pass.condition(type_, condition);
        }
        let spec = serde_json::to_string(&pass.object().spec).unwrap_or_default();
        pass.annotate(APPLIED_SPEC, &spec).await;
        Ok(status::status(pass.name(), &deployment))
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
