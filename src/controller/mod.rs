//! What every operator shares, and sample-controller writes by hand: workers, children, conditions.
//!
//! Mirrors sample-controller `controller.go` and kubernetes `pkg/controller/controller_utils.go`.
//!
//! | module | in one sentence |
//! |---|---|
//! | [`worker`] | takes keys off the queue and syncs them: `run`, `run_worker`, `process_next_work_item` |
//! | [`handlers`] | from a changed object to the key of whom it concerns |
//! | [`children`] | makes a child as it is wanted, and writes nothing when it is |
//! | [`deployment`] | what is wanted and what is observed of a Deployment |
//! | [`consistency`] | holds a key until the caches have seen what it wrote |
//! | [`contention`] | notices that somebody changes a child back each time |
//! | [`status`] | writes a status when it differs |

pub mod children;
pub mod consistency;
pub mod contention;
pub mod deployment;
pub mod handlers;
pub mod status;
pub mod worker;

pub use children::{Children, Deletion, Difference, Ensured, Owner, Wanted};
pub use consistency::Consistency;
pub use worker::{Controller, Outcome, SyncError, SyncHandler};
