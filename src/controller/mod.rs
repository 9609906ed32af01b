//! The parts that all operators share: workers, handlers, children, conditions.
//!
//! Mirrors sample-controller `controller.go` and kubernetes `pkg/controller/controller_utils.go`.
//!
//! ```text
//! builder ──▶ reconcile ──▶ children ──▶ kinds
//!    │            │             │
//!    └────────────┴─────────────┴──────▶ run
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `builder`, `manager` | the public API that builds and runs controllers: [`Builder`], [`Manager`] |
//! | `run` | workers, handlers, outcomes, the guard of a key's own writes, hot loops, audits |
//! | [`kinds`] | one module per child kind: wanted and observed state, difference, health; pure functions |
//! | `children` | children on the server: apply, prune, finalizers, the state kept per object |
//! | `recent` | a map whose entries expire, for `children` and `run` |
//! | `reconcile` | the common part of every sync handler: object, context, status, events |
//!
//! Arrows are imports; `tests/tidy.rs` checks that none points the other way.
//!
//! # Where to start
//! | to | see |
//! |---|---|
//! | write an operator | [`Reconcile`], [`ReconcileContext`]; [`Wanted`] and [`kinds`] for its children |
//! | build and run it | [`Builder`], [`Limits`], [`Manager`] |
//! | write the sync handler yourself | [`SyncHandler`], [`Controller`], [`EnqueueSelf`], [`EnqueueOwner`], [`Consistency`], [`Children`], [`slow_start_batch`] |

mod builder;
mod children;
pub mod kinds;
mod manager;
mod recent;
mod reconcile;
mod run;

pub use builder::{BuildError, Builder, Limits, Shared, own_name};
pub use children::Children;
pub use children::apply_outcome::ApplyOutcome;
#[doc(hidden)] // for the benchmark of memory at rest
pub use children::contention::Contention;
pub use children::deletions::{ChildRef, Deletion};
pub use children::owner::Owner;
pub use children::slow_start::slow_start_batch;
/// The condition of Kubernetes, for [`common_status!`](crate::common_status).
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
pub use kinds::Wanted;
pub use kinds::difference::Difference;
pub use kinds::health::{ChildHealth, HealthPhase};
pub use manager::{Manager, RunError, Runnable};
pub use reconcile::context::{ReconcileContext, StopReason};
pub use reconcile::custom_resource::{CommonStatus, CustomResource};
pub use reconcile::reconciler::{Reconcile, Reconciler, StatusOf};
#[cfg(test)]
#[cfg(feature = "sim")]
pub(crate) use reconcile::tests::fixture::{Caches, Fixture};
pub use reconcile::tools::Tools;
pub use run::audit::Audits;
pub use run::consistency::{Consistency, Presence, StoreView};
pub use run::handlers::{CHILD_NAME, EnqueueOwner, EnqueueSelf};
pub use run::observer::{PassEnd, PassFailure, PassObserver};
pub use run::outcome::{Outcome, SyncError, SyncRequest};
pub use run::worker::{Controller, ControllerView, RunningPass, SyncHandler, Workers};

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
