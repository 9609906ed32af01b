//! Myapp: an application behind a name, from one resource.
//!
//! ```text
//! Myapp "web" { image, replicas, containerPort, servicePort, host, env, resources }
//!  ├─ Deployment "web"   one container; Pods labelled app: web, release: canary and the common ones
//!  ├─ Service "web"      ClusterIP, servicePort -> containerPort, selects those Pods
//!  └─ Ingress "web"      host -> Service "web"; only with a host
//! ```
//!
//! | the children | Ready | Reconciling | Stalled | status |
//! |---|---|---|---|---|
//! | as wanted, all replicas available | `True` Available | `False` | `False` | `Running` |
//! | the Deployment on its way | `False` Progressing | `True` | `False` | `Pending`, `NotReady`, `Failed` |
//! | one stored otherwise than written | `False` StoredOtherwise | `True` | `False` | by its Pods |
//! | one being deleted, or of a previous incarnation | `False` WaitingForDeletion | `True` | `False` | by its Pods |
//! | the name of one is somebody else's | `False` ResourceExists | `False` | `True` | by its Pods |
//! | one is refused by the server | `False` ChildRefused | `False` | `True` | `Failed` |
//! | an error of one for 10 s or more, such as 500 | `False` ChildFailing | `True` | `False` | by its Pods |
//! | one is changed back by somebody each time | `False` Contended | `False` | `True` | by its Pods |
//! | one not as wanted, the Myapp is paused | `False` Paused | `False` Paused | `False` | by its Pods |
//!
//! # Differences from the source document
//! - The label `app` is the Myapp's name. There it is the namespace, so that two Myapps of one namespace select each
//!   other's Pods.
//! - Children are written when they differ. There, all three are written on every pass.
//! - The class of the Ingress is a field. There it is the annotation that the field has replaced.
//! - Without a host there is no Ingress, also when there was one.
//! - A host has at most 253 characters. There it may have 1000, and no Ingress takes more than 253.
//! - `status.replicas` is how many Pods there are. There it is how many are wanted.

mod status;
mod sync;
mod wanted;

use super::child_of_its_name;
use crate::controller::builder::{Builder, Shared};
use crate::controller::{Controller, Reconciler};

pub use sync::MyappSync;

/// The operator's name, as `--controllers` takes it.
pub const NAME: &str = "myapp";

/// Puts the controller together.
#[must_use]
pub fn controller(shared: &Shared<'_>) -> Controller<Reconciler<MyappSync>> {
    let mut myapps = Builder::new(shared, NAME, child_of_its_name);
    let (deployments, services, ingresses) = (myapps.owns(), myapps.owns(), myapps.owns());
    myapps.build(MyappSync { deployments, services, ingresses })
}
