//! The sync handler of AppService.
//!
//! # Guarantees
//! - Nothing to do, nothing sent. (test: `a_converged_appservice_sends_nothing`)
//! - Without ports the Service goes. (test: `the_service_follows_the_ports`)
//! - The annotation with the applied spec is written only when the spec changes. (test: `the_applied_spec_is_recorded_when_it_changes`)
//! - What became of one write before decides nothing. (test: `a_conflict_on_the_annotation_breaks_nothing`)
//! - Where it cannot be written at all, the AppService becomes Ready all the same. (test: `an_annotation_that_is_never_written_holds_up_nothing`)
//! - A taken node port is a condition, and heals. (test: `a_refused_service_is_reported_and_heals`)

use super::{APPLIED_SPEC, status, wanted};
use crate::api::appservice::v1alpha1::{AppService, AppServiceStatus};
use crate::cache::Lister;
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::kinds::service::ObservedService;
use crate::controller::{Reconcile, ReconcileContext, StopReason};

/// Makes the children of an AppService as the AppService wants them.
#[derive(Debug)]
pub struct AppServiceSync {
    pub(super) deployments: Lister<ObservedDeployment>,
    pub(super) services: Lister<ObservedService>,
}

impl Reconcile for AppServiceSync {
    type Resource = AppService;

    async fn reconcile(
        &self,
        ctx: &mut ReconcileContext<'_, AppService>,
    ) -> Result<AppServiceStatus, StopReason> {
        let wanted = wanted::children(ctx.object());
        let deployment = ctx.apply(&wanted.deployment, &self.deployments).await?;
        match &wanted.service {
            Some(service) => {
                ctx.apply(service, &self.services).await?;
            }
            None => ctx.prune_all(&self.services, "spec.ports is empty now").await?,
        }
        for (type_, condition) in status::of_the_deployment(&deployment) {
            ctx.condition(type_, condition);
        }
        let spec = serde_json::to_string(&ctx.object().spec).unwrap_or_default();
        ctx.annotate(APPLIED_SPEC, &spec).await;
        Ok(status::status(ctx.name(), &deployment))
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
