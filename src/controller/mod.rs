//! What every operator shares, and sample-controller writes by hand: workers, children, conditions.
//!
//! Mirrors sample-controller `controller.go` and kubernetes `pkg/controller/controller_utils.go`.
//!
//! ```text
//! builder ──▶ reconcile ──▶ children ──▶ kinds
//!    │            │             │
//!    └────────────┴─────────────┴──────▶ run
//! ```
//!
//! | room | what it is |
//! |---|---|
//! | [`builder`], [`manager`] | the public way to put a controller together, and to run it |
//! | [`run`] | workers, handlers, the outcome of a pass, the guard of own writes, the audit |
//! | [`kinds`] | what a kind of child is: wanted, observed, difference; pure |
//! | [`children`] | children on the server: apply, prune, finalizers, what is remembered of them |
//! | [`reconcile`] | the frame of a sync handler: object, context, status, events |
//!
//! An arrow is an import; there is none against it (see the rules of the repository, `tests/tidy.rs`).

pub mod builder;
pub mod children;
pub mod kinds;
pub mod manager;
mod recent;
pub mod reconcile;
pub mod run;

pub use builder::{Builder, Limits, Shared};
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
