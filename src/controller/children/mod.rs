//! Children on the server: made as they are wanted, deleted when they are not, never taken from somebody else.
//!
//! Mirrors controller-runtime `controllerutil` and kubernetes `pkg/controller/controller_utils.go`.
//!
//! | module | in one sentence |
//! |---|---|
//! | [`apply`] | makes a child as it is wanted, and writes nothing when it is |
//! | [`apply_outcome`] | what became of a child, and the health that follows from it |
//! | `patch` | the strategic merge patch that writes the differences of a child |
//! | `guarded_write` | the one place from which children and finalizers are written, and the owner's check before |
//! | [`owner`] | whose a child is |
//! | [`deletions`] | the ways to delete a child |
//! | [`finalizers`] | holds an owner until its effects are undone |
//! | [`lost_labels`] | finds children that the cache cannot show |
//! | [`slow_start`] | begins many calls carefully |
//! | `object_state` | what is remembered of an object between two passes |
//! | [`retry_holds`] | what the server refused, and when it is asked again |
//! | [`contention`] | notices that somebody changes a child back each time |

pub mod apply;
pub mod apply_outcome;
pub mod contention;
pub mod deletions;
pub mod finalizers;
pub(super) mod guarded_write;
pub mod lost_labels;
pub(super) mod object_state;
pub mod owner;
mod patch;
pub mod retry_holds;
pub mod slow_start;
