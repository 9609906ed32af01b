//! Redis: Pods driven directly, as a ReplicaSet does it, each with an ordinal.
//!
//! Mirrors kubernetes `pkg/controller/replicaset` and, for the ordinals, `pkg/controller/statefulset`.
//!
//! ```text
//! Redis "cache" { replicas: 3, port: 6379, image: redis:7.4 }    finalizer redis.myapp.tangx.in/pods
//!  ├─ Pod "cache-0"     controller reference to the uid, labels app: cache and the common ones
//!  ├─ Pod "cache-1"
//!  └─ Pod "cache-2"
//! ```
//!
//! | the Pods | Ready | Reconciling | Stalled |
//! |---|---|---|---|
//! | all there, Ready, of the present spec | `True` Available | `False` | `False` |
//! | some missing, not Ready or too many | `False` Progressing | `True` | `False` |
//! | some of an old spec | `False` RollingUpdate | `True` | `False` |
//! | a wanted name is taken by a Pod that is being deleted | `False` WaitingForDeletion | `True` | `False` |
//! | a wanted name is somebody else's | `False` ResourceExists | `False` | `True` |
//! | one is refused by the server | `False` ChildRefused | `False` | `True` |
//! | one cannot be read or written for 10 s or more | `False` ChildFailing | `True` | `False` |
//! | one is stored otherwise than written each time | `False` Contended | `False` | `True` |
//! | not as wanted, the Redis is paused | `False` Paused | `False` Paused | `False` |
//! | of the spec that was applied last, a later one waits for the end of a pause | as they are | `False` Paused | `False` |
//! | going with the Redis | `False` Deleting | `True` | `False` |
//!
//! What is going does not count: a Pod too many that is stuck in its deletion (a finalizer of somebody, a lost node) does
//! not hold up Ready. A wanted name that is not to be had (somebody else's, refused, or stuck in its deletion) does, and it
//! holds up a roll of the others.
//!
//! `status.reachedReplicas` tells a Pod that was there before (`PodRecreated`) from one that never was (`ScaledUp`), also
//! after a restart: each number below it has had its Pod since the last scale-down.
//!
//! # Differences from the source document
//! - One finalizer, stored before the first Pod. There, each Pod has a finalizer of its name on the Redis, counts of the
//!   two are compared, and a crash between creating a Pod and recording it leaks the Pod.
//! - A changed image or port replaces Pods, one at a time. There, nothing happens.
//! - A Pod that has ended is replaced. There, it counts as one.
//! - Pods are ours by uid, not by name.

mod plan;
mod status;
mod sync;
mod wanted;

use super::child_of_its_name;
use crate::cache::ObjectName;
use crate::controller::builder::{Builder, Shared};
use crate::controller::{Controller, Reconciler};

pub use sync::RedisSync;

/// The operator's name, as `--controllers` takes it.
pub const NAME: &str = "redis";

/// Keeps a Redis until its Pods are gone.
pub const FINALIZER: &str = "redis.myapp.tangx.in/pods";

/// Puts the controller together.
#[must_use]
pub fn controller(shared: &Shared<'_>) -> Controller<Reconciler<RedisSync>> {
    let mut redises = Builder::new(shared, NAME, child_of_its_name);
    let pods = redises.owns_named(owner_of);
    redises.build(RedisSync { pods })
}

/// The name from which a Pod's may be made. A Redis wants any number of names, so it is found by its own.
fn owner_of(pod: &ObjectName) -> Option<ObjectName> {
    plan::owner_of(pod.name()).map(|name| ObjectName::new(pod.namespace(), name))
}
