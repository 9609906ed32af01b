//! Myapp: an application with a Service and, given a host, an Ingress.
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
//! | as wanted, all replicas available | `True` Available | | | `Running` |
//! | the Deployment is rolling out | `False` Progressing | `True` | | `Pending`, `NotReady`, `Failed` |
//! | one is altered by the server on write | `False` StoredOtherwise | `True` | | by its Pods |
//! | one is terminating, or a previous Myapp owns it | `False` WaitingForDeletion | `True` | | by its Pods |
//! | one name is taken by somebody else | `False` ResourceExists | | `True` | by its Pods |
//! | one is refused by the server | `False` ChildRefused | | `True` | `Failed` |
//! | one is not readable or writable for 10 s or more | `False` ChildFailing | `True` | | by its Pods |
//! | one is reverted by another client after each write | `False` Contended | | `True` | by its Pods |
//! | one is not as wanted while the Myapp is paused | `False` Paused | `False` Paused | | by its Pods |
//!
//! # Differences from the source document
//! - The label `app` is the Myapp's name. There it is the namespace, so two Myapps in one namespace select each other's
//!   Pods.
//! - Children are written only when they differ. There, all three are written on every sync.
//! - The Ingress class is a field. There it is the deprecated annotation.
//! - Without a host there is no Ingress; an existing one is deleted.
//! - A host has at most 253 characters, the limit for an Ingress. There it may have 1000.
//! - `status.replicas` is the number of existing Pods. There it is the number of wanted Pods.

mod status;
mod sync;
mod wanted;

use crate::controller::{BuildError, Builder, Controller, ControllerContext, Reconciler, own_name};

pub use sync::MyappSync;

/// The operator's name, as `--controllers` takes it.
pub const NAME: &str = "myapp";

/// Builds the Myapp controller.
pub fn controller(context: &ControllerContext<'_>) -> Result<Controller<Reconciler<MyappSync>>, BuildError> {
    let mut myapps = Builder::new(context, NAME, own_name)?;
    let (deployments, services, ingresses) = (myapps.owns()?, myapps.owns()?, myapps.owns()?);
    Ok(myapps.build(MyappSync { deployments, services, ingresses }))
}
