//! The parts that all operators share: workers, handlers, children, conditions.
//!
//! Mirrors sample-controller `controller.go` and kubernetes `pkg/controller/controller_utils.go`.
//!
//! ```text
//! builder, manager ──▶ pass ──▶ run ──▶ key ──▶ kinds
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `builder`, `manager` | the public API that builds and runs controllers: [`Builder`], [`Manager`] |
//! | `pass` | one sync of one key, top to bottom: [`Reconcile`], [`Pass`] |
//! | `run` | workers, handlers, outcomes, takeover, audits |
//! | `key` | what is remembered of a key between its syncs |
//! | [`kinds`] | one module per child kind: wanted and observed state, difference, health; pure functions |
//!
//! Arrows are imports; `tests/tidy.rs` checks that none points the other way.
//!
//! # Where to start
//! | to | see |
//! |---|---|
//! | write an operator | [`Reconcile`], [`Pass`]; [`Wanted`] and [`kinds`] for its children |
//! | build and run it | [`Builder`], [`Limits`], [`Manager`] |
//! | write the sync handler yourself | [`SyncHandler`], [`Controller`], [`EnqueueSelf`], [`EnqueueOwner`], [`SyncRequest`], [`slow_start_batch`] |

mod builder;
mod key;
pub mod kinds;
mod manager;
mod pass;
mod run;

pub use builder::{BuildError, Builder, ControllerContext, Limits, own_name};
/// The condition of Kubernetes, for [`common_status!`](crate::common_status).
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
pub use key::stores::{Presence, StoreView};
pub use key::{KeyState, Keys};
pub use kinds::difference::Difference;
pub use kinds::health::{ChildHealth, HealthPhase};
pub use kinds::{Wanted, wanted};
pub use manager::{AutoWorkers, Manager, RunError, Runnable, Signals};
pub use pass::apply_outcome::{Applied, ApplyOutcome};
pub use pass::batch::Batch;
pub use pass::custom_resource::{CommonStatus, CustomResource};
pub use pass::delete::{ChildRef, Deletion};
pub use pass::owner::Owner;
pub use pass::reconciler::{Reconcile, Reconciler, StatusOf};
pub use pass::slow_start::slow_start_batch;
#[cfg(test)]
#[cfg(feature = "sim")]
pub(crate) use pass::tests::fixture::{Caches, Fixture};
pub use pass::{Pass, Relist, StopReason, Tools};
pub use run::audit::Audits;
pub use run::handlers::{CHILD_NAME, EnqueueOwner, EnqueueSelf};
pub use run::observer::{PassEnd, PassFailure, PassObserver};
pub use run::outcome::{Outcome, SyncError, SyncRequest, Trust};
pub use run::worker::{
    Controller, ControllerView, OnceObserver, RunningPass, SharedObserver, SyncHandler, Workers,
};

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
