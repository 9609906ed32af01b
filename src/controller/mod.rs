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
//! | [`builder`], [`manager`] | the public API that builds and runs controllers |
//! | [`run`] | workers, handlers, outcomes, the guard of a key's own writes, hot loops, audits |
//! | [`kinds`] | one module per child kind: wanted and observed state, difference, health; pure functions |
//! | [`children`] | children on the server: apply, prune, finalizers, the state kept per object |
//! | [`reconcile`] | the common part of every sync handler: object, context, status, events |
//!
//! Arrows are imports; `tests/tidy.rs` checks that none points the other way.

pub mod builder;
pub mod children;
pub mod kinds;
pub mod manager;
mod recent;
pub mod reconcile;
pub mod run;

pub use builder::{BuildError, Builder, Limits, Shared};
pub use children::apply::Children;
pub use children::apply_outcome::ApplyOutcome;
pub use children::deletions::{ChildRef, Deletion};
pub use children::owner::Owner;
pub use children::slow_start::slow_start_batch;
pub use kinds::Wanted;
pub use kinds::difference::Difference;
pub use kinds::health::{ChildHealth, HealthPhase};
pub use manager::Manager;
pub use reconcile::context::{ReconcileContext, StopReason};
pub use reconcile::reconciler::{CommonStatus, CustomResource, Reconcile, Reconciler, StatusOf, Tools};
pub use run::consistency::Consistency;
pub use run::outcome::{Outcome, SyncError, SyncRequest};
pub use run::worker::{Controller, SyncHandler, UnderWay, Workers};

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
