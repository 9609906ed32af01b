//! Foo: one nginx Deployment with a user-chosen name.
//!
//! Mirrors sample-controller `controller.go`; read the two side by side.
//!
//! ```text
//! Foo "one" { deploymentName: web, replicas: 2 }
//!  └─ Deployment "web"        controller reference to the Foo's uid, replicas: 2
//!      └─ ReplicaSet, Pods    labels app: nginx, controller: one, and the common ones
//! ```
//!
//! | the Deployment | Ready | Reconciling | Stalled |
//! |---|---|---|---|
//! | as wanted, all replicas available | `True` Available | | |
//! | as wanted, rolling out | `False` Progressing | `True` | |
//! | altered by the server on write | `False` StoredOtherwise | `True` | |
//! | terminating, or owned by a previous Foo of that name | `False` WaitingForDeletion | `True` | |
//! | owned by somebody else | `False` ResourceExists | | `True` |
//! | refused by the server | `False` ChildRefused | | `True` |
//! | not readable or writable for 10 s or more | `False` ChildFailing | `True` | |
//! | reverted by another client after each write | `False` Contended | | `True` |
//! | not as wanted while the Foo is paused | `False` Paused | `False` Paused | |
//! | any, but the Foo does not decode | `False` Unreadable | | `True` |
//!
//! # Differences from sample-controller
//! - `Synced` is recorded only on transitions, and the status is written only if it differs; there, on every sync.
//! - Only Deployments with our label are watched, and each wakes its owner by uid; there, all, by kind and name.
//! - A new `deploymentName` deletes the old Deployment once the new one exists; there, the old one stays.
//! - The schema rejects a Foo without `deploymentName`; there, the key is dropped.
//! - A taken Deployment name is retried every 30 s; there, with a backoff of up to 1000 s.

mod status;
mod sync;
mod wanted;

use std::sync::Arc;

use crate::api::samplecontroller::v1alpha1::Foo;
use crate::cache::{Cached, Object, ObjectName, Slim};
use crate::controller::{BuildError, Builder, Controller, ControllerContext, Reconciler};

pub use sync::FooSync;

/// The operator's name, as `--controllers` takes it.
pub const NAME: &str = "foo";

/// Builds the Foo controller.
pub fn controller(context: &ControllerContext<'_>) -> Result<Controller<Reconciler<FooSync>>, BuildError> {
    let mut foos = Builder::new(context, NAME, child_names)?;
    let deployments = foos.owns()?;
    Ok(foos.build(FooSync { deployments }))
}

/// Returns the names of the children that a Foo wants.
fn child_names(foo: &Cached<Slim<Foo>>) -> Vec<String> {
    let name = |foo: &Arc<Slim<Foo>>| {
        ObjectName::new(foo.object_name().namespace(), &foo.spec.deployment_name).to_string()
    };
    foo.readable().map(name).into_iter().collect()
}
