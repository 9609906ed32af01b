//! Children on the server: created and updated to match their wanted state, deleted when surplus, never adopted.
//!
//! Mirrors controller-runtime `controllerutil` and kubernetes `pkg/controller/controller_utils.go`.
//!
//! | module | in one sentence |
//! |---|---|
//! | [`apply`] | creates or patches a child, and sends nothing when the child already matches |
//! | [`apply_outcome`] | the result of applying a child, and the health derived from the result |
//! | `guarded_write` | the only place that writes children and finalizers, behind a check of the owner |
//! | [`owner`] | who owns a child |
//! | `owner_evidence` | the last live read of an owner, which many writes share |
//! | [`deletions`] | the ways to delete a child |
//! | [`finalizers`] | holds an owner until its effects are undone |
//! | [`lost_labels`] | finds children that are missing from the cache |
//! | [`slow_start`] | starts many calls in growing batches |
//! | `object_state` | per-object state that is kept between passes |
//! | [`retry_holds`] | requests that the server refused, and when they are retried |
//! | [`contention`] | detects that another client keeps reverting a child |

pub(super) mod apply;
pub(super) mod apply_outcome;
pub(super) mod contention;
pub(super) mod deletions;
pub(super) mod finalizers;
pub(super) mod guarded_write;
pub(super) mod lost_labels;
pub(super) mod object_state;
pub(super) mod owner;
pub(super) mod owner_evidence;
pub(super) mod retry_holds;
pub(super) mod slow_start;

use std::fmt;
use std::sync::Arc;

use crate::client::ApiClient;
use crate::controller::run::consistency::Consistency;
use contention::Contention;
use object_state::ObjectStates;
use retry_holds::RetryHolds;

/// Writes children; each controller has one.
#[derive(Debug)]
pub struct Children {
    pub(in crate::controller) client: ApiClient,
    pub(in crate::controller) consistency: Arc<Consistency>,
    pub(in crate::controller) contention: Contention,
    pub(in crate::controller) retry_holds: RetryHolds,
    pub(in crate::controller) states: ObjectStates,
    pub(in crate::controller) owners: Relist,
}

/// Makes the owners' informer relist.
#[derive(Clone, Default)]
pub(in crate::controller) struct Relist(Option<Arc<dyn Fn() + Send + Sync>>);

impl Relist {
    pub(in crate::controller) fn ask(&self) {
        if let Some(relist) = &self.0 {
            relist();
        }
    }
}

impl fmt::Debug for Relist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Relist").field(&self.0.is_some()).finish()
    }
}

// === impl Children ===

impl Children {
    /// Writes through `client`, and records every write with the guard.
    #[must_use]
    pub fn new(client: ApiClient, consistency: Arc<Consistency>) -> Self {
        let (contention, retry_holds) = (Contention::default(), RetryHolds::default());
        Self {
            client,
            consistency,
            contention,
            retry_holds,
            states: ObjectStates::default(),
            owners: Relist::default(),
        }
    }

    /// Sets the function that relists the owners when a live read returns an older owner than the cache holds, which
    /// means that the server's store was restored from a backup.
    #[must_use]
    pub fn relists_owners(self, relist: impl Fn() + Send + Sync + 'static) -> Self {
        Self { owners: Relist(Some(Arc::new(relist))), ..self }
    }
}
