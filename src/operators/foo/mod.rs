//! Foo: one Deployment of nginx under a name of the user's choice.
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
//! | as wanted, all replicas available | `True` Available | `False` | `False` |
//! | as wanted, on its way | `False` Progressing | `True` | `False` |
//! | stored by the server otherwise than written | `False` StoredOtherwise | `True` | `False` |
//! | of that name, being deleted or of a previous incarnation | `False` WaitingForDeletion | `True` | `False` |
//! | of that name, somebody else's | `False` ResourceExists | `False` | `True` |
//! | refused by the server | `False` ChildRefused | `False` | `True` |
//! | an error of the API server, such as 500, for 10 s or more | `False` ChildFailing | `True` | `False` |
//! | changed back by somebody each time | `False` Contended | `False` | `True` |
//! | not as wanted, the Foo is paused | `False` Paused | `False` Paused | `False` |
//! | (the Foo itself does not decode) | `False` Unreadable | `False` | `True` |
//!
//! # Differences from sample-controller
//! - `Synced` is recorded on a transition only, and status is written on change only: at rest nothing
//!   is written. The original records and writes on every pass.
//! - The owner is matched by uid. The original compares the name, and so takes the children of a Foo's
//!   previous incarnation for its own.
//! - When `deploymentName` changes, the old Deployment is deleted once the new one is there. The
//!   original leaves it.
//! - A Foo without `deploymentName` is refused by its schema. The original drops it from the queue.
//! - Only Deployments with our label are watched. The original watches all.
//! - A Deployment of that name that is not ours is looked at again every 30 s. The original backs off
//!   up to 1000 s.

mod status;
mod sync;
mod wanted;

use crate::api::samplecontroller::v1alpha1::Foo;
use crate::cache::{Cached, Object, ObjectName};
use crate::controller::builder::{Builder, Shared};
use crate::controller::{Controller, Reconciler};

pub use sync::FooSync;

/// The operator's name, as `--controllers` takes it.
pub const NAME: &str = "foo";

/// Puts the controller together.
#[must_use]
pub fn controller(shared: &Shared<'_>) -> Controller<Reconciler<FooSync>> {
    let mut foos = Builder::new(shared, NAME, child_names);
    let deployments = foos.owns();
    foos.build(FooSync { deployments })
}

/// The names of the children that a Foo wants.
fn child_names(foo: &Cached<Foo>) -> Vec<String> {
    let name =
        |foo: &Foo| ObjectName::new(foo.object_name().namespace(), &foo.spec.deployment_name).to_string();
    foo.readable().map(|foo| name(foo)).into_iter().collect()
}
