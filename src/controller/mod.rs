//! What every operator shares, and sample-controller writes by hand: workers, children, conditions.
//!
//! Mirrors sample-controller `controller.go` and kubernetes `pkg/controller/controller_utils.go`.
//!
//! | module | in one sentence |
//! |---|---|
//! | [`reconciler`] | the frame of every sync handler: from a key to a status |
//! | [`turn`] | one pass over one object: what may be done in it |
//! | [`summary`] | ready, on its way or stuck, and the conditions that say so |
//! | [`worker`] | takes keys off the queue and syncs them |
//! | [`outcome`] | how a pass ends, and what follows |
//! | [`handlers`] | from a changed object to the key of whom it concerns |
//! | [`children`] | makes a child as it is wanted, and writes nothing when it is |
//! | [`ensured`] | what becomes of a child that is to be as wanted |
//! | [`difference`] | what differs between a child as it is and as it is wanted |
//! | [`fields`] | whose each field of a child is, as data |
//! | [`quantity`] | amounts such as `500m`, compared by value |
//! | [`deployment`], [`service`], [`ingress`], [`pod`] | what is wanted and what is observed of each kind of child |
//! | [`container`] | the same of a container, in a Pod or in a template |
//! | [`observed`] | what the projections of all kinds of children have in common |
//! | [`consistency`] | holds a key until the caches have seen what it wrote |
//! | [`contention`] | notices that somebody changes a child back each time |
//! | `guarded` | the one place from which children and finalizers are written, and the owner's check before |
//! | `lags` | notices that a child's `observedGeneration` is behind for a moment |
//! | `patch` | the strategic merge patch that writes the differences of a child |
//! | `renames` | keeps a rename open until the former child is gone |
//! | [`lost_labels`] | finds children that the cache cannot show |
//! | [`deletions`] | the ways to delete a child |
//! | [`finalizers`] | holds an owner until its effects are undone |
//! | [`hot_loop`] | notices a key that asks for itself without end |
//! | [`audit`] | finds what the caches have missed |
//! | [`slow_start`] | begins many calls carefully |
//! | `recent` | a map that forgets with time |
//! | [`status`] | writes a status when it differs |

pub mod audit;
pub mod children;
pub mod consistency;
pub mod container;
pub mod contention;
pub mod deletions;
pub mod deployment;
pub mod difference;
pub mod ensured;
pub mod fields;
pub mod finalizers;
mod guarded;
pub mod handlers;
pub mod hot_loop;
pub mod ingress;
mod lags;
pub mod lost_labels;
pub mod observed;
pub mod obstacles;
pub mod outcome;
pub mod owner;
mod patch;
pub mod pod;
pub mod quantity;
mod recent;
pub mod reconciler;
mod renames;
pub mod service;
pub mod slow_start;
pub mod status;
pub mod summary;
pub mod turn;
pub mod worker;

pub use children::{Children, Ensured, Owner, Wanted};
pub use consistency::Consistency;
pub use deletions::{ChildRef, Deletion};
pub use difference::Difference;
pub use outcome::{Outcome, Pass, SyncError};
pub use reconciler::{CommonStatus, CustomResource, Reconcile, Reconciler, StatusOf, Tools};
pub use slow_start::slow_start_batch;
pub use summary::{Phase, Summary};
pub use turn::{Halt, Turn};
pub use worker::{Controller, SyncHandler, UnderWay, Workers};

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
