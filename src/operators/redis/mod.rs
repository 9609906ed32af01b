//! Redis: Pods with ordinals, managed directly as by a ReplicaSet.
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
//! | all exist, are Ready and match the spec | `True` Available | | |
//! | some are missing, not Ready or surplus | `False` Progressing | `True` | |
//! | some are outdated | `False` RollingUpdate | `True` | |
//! | a wanted name is taken by a terminating Pod | `False` WaitingForDeletion | `True` | |
//! | a wanted name is taken by somebody else | `False` ResourceExists | | `True` |
//! | one is refused by the server | `False` ChildRefused | | `True` |
//! | one is not readable or writable for 10 s or more | `False` ChildFailing | `True` | |
//! | one is altered by the server on every create | `False` Contended | | `True` |
//! | not as wanted while the Redis is paused | `False` Paused | `False` Paused | |
//! | as last applied, while a pause holds back a newer spec | as they are | `False` Paused | |
//! | being deleted with the Redis | `False` Deleting | `True` | |
//!
//! A surplus Pod that is terminating does not delay Ready. A wanted name that is taken, refused or held by a
//! terminating Pod delays Ready, and blocks the rollout of the others. `status.reachedReplicas` distinguishes a
//! recreated Pod from a new one: each ordinal below it has had a Pod since the last scale-down.
//! `docs/operators.md` lists the differences from the source document.

mod plan;
mod prune;
mod status;
mod sync;
mod wanted;

use std::time::Duration;

use crate::cache::ObjectName;
use crate::controller::{BuildError, Builder, Controller, ControllerContext, Reconciler, own_name};

pub use sync::RedisSync;

/// The operator's name, as `--controllers` takes it.
pub const NAME: &str = "redis";

/// The finalizer that keeps a Redis until its Pods are gone.
pub const FINALIZER: &str = "redis.myapp.tangx.in/pods";

/// The most Pods that one sync creates or deletes, so that other keys get their turn.
const WRITES_MAX: usize = 128;
/// The requeue delay after a sync reached [`WRITES_MAX`]; events for its own writes usually wake the key sooner.
const CUT_RETRY: Duration = Duration::from_secs(1);

/// Builds the Redis controller.
pub fn controller(context: &ControllerContext<'_>) -> Result<Controller<Reconciler<RedisSync>>, BuildError> {
    let mut redises = Builder::new(context, NAME, own_name)?;
    let pods = redises.owns_named(owner_of)?;
    Ok(redises.build(RedisSync { pods }))
}

/// Returns the Redis name that a Pod's name implies: the index of child names cannot hold every Pod of a Redis.
fn owner_of(pod: &ObjectName) -> Option<ObjectName> {
    plan::owner_of(pod.name()).map(|name| ObjectName::new(pod.namespace(), name))
}
