//! AppService: an application with a NodePort Service.
//!
//! ```text
//! AppService "web" { image, replicas, ports, envs, resources }     annotation batch.schwarzeni.github.com/applied-spec
//!  ├─ Deployment "web"   one container; Pods labelled app: web and the common ones
//!  └─ Service "web"      NodePort, those ports, selects those Pods; only with ports
//! ```
//!
//! | the children | Ready | Reconciling | Stalled |
//! |---|---|---|---|
//! | as wanted, all replicas available | `True` Available | | |
//! | the Deployment is rolling out | `False` Progressing | `True` | |
//! | one is altered by the server on write | `False` StoredOtherwise | `True` | |
//! | one is terminating, or a previous AppService owns it | `False` WaitingForDeletion | `True` | |
//! | one name is taken by somebody else | `False` ResourceExists | | `True` |
//! | one is refused by the server, such as a taken node port | `False` ChildRefused | | `True` |
//! | one is not readable or writable for 10 s or more | `False` ChildFailing | `True` | |
//! | one is reverted by another client after each write | `False` Contended | | `True` |
//! | one is not as wanted while the AppService is paused | `False` Paused | `False` Paused | |
//!
//! The Deployment's own conditions are copied: `Available`, `Progressing`, `ReplicaFailure`.
//!
//! # Differences from the source document
//! - Nothing depends on the annotation: the children are compared, not the recorded spec (`docs/operators.md`).
//! - The container port is the target port, or `port` if that is unset; a named target port becomes a named container
//!   port with the number `port`. There, both cases give port 0.
//! - `observedGeneration` is that of the AppService, and the status has standard conditions.
//! - Without ports there is no Service; an existing one is deleted.

mod status;
mod sync;
mod wanted;

use crate::controller::{BuildError, Builder, Controller, ControllerContext, Reconciler, own_name};

pub use sync::AppServiceSync;

/// The operator's name, as `--controllers` takes it.
pub const NAME: &str = "appservice";

/// The annotation that holds the last applied spec as JSON.
pub const APPLIED_SPEC: &str = "batch.schwarzeni.github.com/applied-spec";

/// Builds the AppService controller.
pub fn controller(
    context: &ControllerContext<'_>,
) -> Result<Controller<Reconciler<AppServiceSync>>, BuildError> {
    let mut apps = Builder::new(context, NAME, own_name)?;
    let (deployments, services) = (apps.owns()?, apps.owns()?);
    Ok(apps.build(AppServiceSync { deployments, services }))
}
