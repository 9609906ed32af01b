//! AppService: an application on the nodes' ports, from one resource.
//!
//! ```text
//! AppService "web" { image, replicas, ports, envs, resources }     annotation batch.schwarzeni.github.com/applied-spec
//!  ├─ Deployment "web"   one container; Pods labelled app: web and the common ones
//!  └─ Service "web"      NodePort, those ports, selects those Pods; only with ports
//! ```
//!
//! | the children | Ready | Reconciling | Stalled |
//! |---|---|---|---|
//! | as wanted, all replicas available | `True` Available | `False` | `False` |
//! | the Deployment on its way | `False` Progressing | `True` | `False` |
//! | one stored otherwise than written | `False` StoredOtherwise | `True` | `False` |
//! | one being deleted, or of a previous incarnation | `False` WaitingForDeletion | `True` | `False` |
//! | the name of one is somebody else's | `False` ResourceExists | `False` | `True` |
//! | one is refused by the server, as for a node port that is taken | `False` ChildRefused | `False` | `True` |
//! | an error of one for 10 s or more, such as 500 | `False` ChildFailing | `True` | `False` |
//! | one is changed back by somebody each time | `False` Contended | `False` | `True` |
//! | one not as wanted, the AppService is paused | `False` Paused | `False` Paused | `False` |
//!
//! The Deployment's own conditions stand beside these: `Available`, `Progressing`, `ReplicaFailure`.
//!
//! # Differences from the source document
//! - Nothing depends on the annotation with the applied spec. There, it is what the spec is compared with: one conflict
//!   before it is written leaves the resource broken for good, and a child that was changed by hand is never repaired.
//!   Where it is refused, a line in the log says so, and the AppService becomes Ready without it.
//! - The annotation is `batch.schwarzeni.github.com/applied-spec`; there it is `spec`. It holds the spec as its type writes
//!   it: empty lists are left out, amounts are text. A spec of more than 128 KiB is not recorded, and what is there stays:
//!   the spec that was recorded before. (All annotations of an object together may have 256 KiB.)
//! - A container port is the target port: `port` where it is left out, a named port with the number `port` where it is a
//!   name. There, it is the number of the target port alone (`TargetPort.IntVal`), which is 0 for both.
//! - The status is a struct of its own with conditions of the standard type; `observedGeneration` is the AppService's.
//! - Without ports there is no Service, also when there was one.

mod status;
mod sync;
mod wanted;

use super::child_of_its_name;
use crate::controller::builder::{Builder, Shared};
use crate::controller::{Controller, Reconciler};

pub use sync::AppServiceSync;

/// The operator's name, as `--controllers` takes it.
pub const NAME: &str = "appservice";

/// The annotation that holds the spec that was applied last, as JSON.
pub const APPLIED_SPEC: &str = "batch.schwarzeni.github.com/applied-spec";

/// Puts the controller together.
#[must_use]
pub fn controller(shared: &Shared<'_>) -> Controller<Reconciler<AppServiceSync>> {
    let mut apps = Builder::new(shared, NAME, child_of_its_name);
    let (deployments, services) = (apps.owns(), apps.owns());
    apps.build(AppServiceSync { deployments, services })
}
